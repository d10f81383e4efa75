//! The rows of the site: an embedded database.

use std::time::Duration;

use redb::{Database as Redb, ReadableDatabase, TableDefinition};

use crate::process::Folder;
use crate::workload::Values;

const ROWS: TableDefinition<u32, &[u8]> = TableDefinition::new("rows");

/// One row for each number, with the number's value in [`Values`].
///
/// Its file is already deleted, so it is freed when the process ends, however it ends.
pub(super) struct Database {
    redb: Redb,
    delay: Duration,
}

impl Database {
    /// Makes a database of `items` rows; each [`read`](Self::read) takes `delay` longer than it
    /// would.
    pub(super) fn fill(items: u32, values: &Values, delay: Duration) -> anyhow::Result<Database> {
        let folder = Folder::new()?;
        let redb = Redb::create(folder.path("rows"))?;
        drop(folder);
        let filling = redb.begin_write()?;
        {
            let mut rows = filling.open_table(ROWS)?;
            for number in 0..items {
                rows.insert(number, values.of(number))?;
            }
        }
        filling.commit()?;
        Ok(Database { redb, delay })
    }

    /// Reads the values of rows that exist, in order, by one query.
    pub(super) fn read(&self, numbers: &[u32]) -> Result<Vec<Vec<u8>>, redb::Error> {
        if !self.delay.is_zero() {
            std::thread::sleep(self.delay);
        }
        let rows = self.redb.begin_read()?.open_table(ROWS)?;
        let values = numbers.iter().map(|&number| {
            let row = rows.get(number)?;
            Ok(row.map_or(Vec::new(), |row| row.value().to_vec()))
        });
        values.collect()
    }
}
