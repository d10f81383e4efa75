//! The cache in front of the database, as one thread of the site uses it.

use crate::client::{Client, Error};
use crate::target::Target;
use crate::workload::KeyFormat;

/// A connection, if there is one.
#[derive(Debug)]
pub(super) struct Cache {
    target: Option<Target>,
    client: Option<Client>,
    /// Connections that broke or could not be made.
    errors: u64,
}

impl Cache {
    /// Sets whose replies are awaited together.
    const SETS: usize = 500;

    /// Without a target, a cache that is always empty.
    pub(super) fn new(target: Option<Target>) -> Cache {
        Cache {
            target,
            client: None,
            errors: 0,
        }
    }

    /// Connects if there is no connection.
    pub(super) fn connect(&mut self) {
        if let (Some(target), None) = (&self.target, &self.client) {
            let connected = Client::connect(target).map_err(Error::Io);
            self.client = self.or_count(connected);
        }
    }

    /// Errors since the last call.
    pub(super) fn take_errors(&mut self) -> u64 {
        std::mem::take(&mut self.errors)
    }

    /// The values that the cache has for these keys, by one get; nothing if it cannot be reached.
    pub(super) fn get(&mut self, numbers: &[u32]) -> Vec<Option<Vec<u8>>> {
        let nothing = || vec![None; numbers.len()];
        let Some(mut client) = self.client.take() else {
            return nothing();
        };
        let found = get(&mut client, numbers).map(|found| (client, found));
        let Some((client, found)) = self.or_count(found) else {
            return nothing();
        };
        self.client = Some(client);
        found
    }

    /// Stores values; they are lost if the cache cannot be reached.
    pub(super) fn set<'a>(&mut self, rows: impl IntoIterator<Item = (u32, &'a [u8])>) {
        let rows: Vec<_> = rows.into_iter().collect();
        for rows in rows.chunks(Self::SETS) {
            let Some(mut client) = self.client.take() else {
                return;
            };
            let stored = set(&mut client, rows).map(|()| client);
            self.client = self.or_count(stored);
        }
    }

    fn or_count<T>(&mut self, result: Result<T, Error>) -> Option<T> {
        self.errors += u64::from(result.is_err());
        result.ok()
    }
}

/// The key of a number.
pub(super) fn key(number: u32) -> [u8; KeyFormat::TEN.size()] {
    let mut key = [0; KeyFormat::TEN.size()];
    KeyFormat::TEN.write(number, &mut key);
    key
}

fn get(client: &mut Client, numbers: &[u32]) -> Result<Vec<Option<Vec<u8>>>, Error> {
    let mut request = b"get".to_vec();
    for &number in numbers {
        request.push(b' ');
        request.extend(key(number));
    }
    request.extend(b"\r\n");
    client.send(&request)?;
    let mut found = vec![None; numbers.len()];
    // Values come in the order of the keys.
    let mut places = numbers.iter().zip(&mut found);
    while let Some(value) = client.read_value()? {
        let place = places.find(|(number, _)| key(**number)[..] == value.key);
        let (_, place) = place.ok_or_else(|| Error::unexpected(&value.key))?;
        *place = Some(value.value);
    }
    Ok(found)
}

fn set(client: &mut Client, rows: &[(u32, &[u8])]) -> Result<(), Error> {
    let mut request = Vec::new();
    for (number, value) in rows {
        request.extend(b"set ");
        request.extend(key(*number));
        request.extend(format!(" 0 0 {}\r\n", value.len()).bytes());
        request.extend(*value);
        request.extend(b"\r\n");
    }
    client.send(&request)?;
    let mut line = Vec::new();
    for _ in rows {
        client.read_line(&mut line)?;
        if line != b"STORED" {
            return Err(Error::unexpected(&line));
        }
    }
    Ok(())
}
