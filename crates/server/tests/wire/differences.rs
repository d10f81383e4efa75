//! The table of what coua does otherwise on purpose: `tests/scripts/differences.toml`.

use std::collections::HashSet;
use std::fs;
use std::path::Path;
use std::sync::Mutex;

use serde::Deserialize;

use crate::compare;

/// The rows, and which of them were needed.
pub(crate) struct Differences {
    rows: Vec<Row>,
    used: Mutex<HashSet<usize>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    #[serde(default)]
    difference: Vec<Row>,
}

/// One tolerated difference. What the two sides say in common before and behind it is left out.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    script: String,
    case: String,
    memcached: Vec<String>,
    coua: Vec<String>,
    reason: String,
}

impl Differences {
    /// Reads the table.
    ///
    /// # Panics
    /// On a table that is not well formed, or a row without a reason.
    pub(crate) fn load(path: &Path) -> Self {
        let text =
            fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let table: Table =
            toml::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        for row in &table.difference {
            assert!(
                row.reason.len() > 10,
                "{}: {} / {}: say why",
                path.display(),
                row.script,
                row.case
            );
        }
        Self {
            rows: table.difference,
            used: Mutex::default(),
        }
    }

    /// True when a row names exactly this difference; the row then counts as used.
    pub(crate) fn allows(
        &self,
        script: &str,
        case: &str,
        memcached: &[&str],
        coua: &[&str],
    ) -> bool {
        let found = self.rows.iter().position(|row| {
            row.script == script
                && row.case == case
                && compare::equal_texts(&row.memcached, memcached)
                && compare::equal_texts(&row.coua, coua)
        });
        if let Some(row) = found {
            self.used.lock().expect("no holder panics").insert(row);
        }
        found.is_some()
    }

    /// A complaint for each row that nothing needed.
    pub(crate) fn unused(&self) -> Vec<String> {
        let used = self.used.lock().expect("no holder panics");
        let unused = self
            .rows
            .iter()
            .enumerate()
            .filter(|(index, _)| !used.contains(index));
        unused
            .map(|(_, row)| {
                format!(
                    "differences.toml: not needed: {} / {}",
                    row.script, row.case
                )
            })
            .collect()
    }
}
