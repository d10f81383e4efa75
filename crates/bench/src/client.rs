//! A blocking client of one connection, for what is not measured, such as statistics and filling.

use std::collections::HashMap;
use std::io::{self, BufRead, BufReader, Read, Write};

use thiserror::Error as ThisError;

use crate::target::{Stream, Target};

/// One connection; requests and replies are handed through in order.
#[derive(Debug)]
pub(crate) struct Client {
    reader: BufReader<Stream>,
}

/// A value as it came from the server.
#[derive(Debug)]
pub(crate) struct Value {
    /// The key.
    pub(crate) key: Vec<u8>,
    /// The value's bytes.
    pub(crate) value: Vec<u8>,
}

impl Client {
    /// The longest line that a server may send.
    const LINE_MAX: u64 = 64 << 10;
    /// The longest value that a server may send.
    const VALUE_MAX: usize = 1 << 30;

    /// Opens a blocking connection.
    pub(crate) fn connect(target: &Target) -> io::Result<Client> {
        target.connect().map(|stream| Client {
            reader: BufReader::with_capacity(64 << 10, stream),
        })
    }

    /// Writes all of `request`. A caller that sends a lot must read replies in between.
    pub(crate) fn send(&mut self, request: &[u8]) -> Result<(), Error> {
        Ok(self.reader.get_mut().write_all(request)?)
    }

    /// Reads one line, without its end.
    pub(crate) fn read_line(&mut self, line: &mut Vec<u8>) -> Result<(), Error> {
        line.clear();
        (&mut self.reader)
            .take(Self::LINE_MAX)
            .read_until(b'\n', line)?;
        match line.strip_suffix(b"\r\n") {
            Some(content) => line.truncate(content.len()),
            None => return Err(Error::Io(io::ErrorKind::UnexpectedEof.into())),
        }
        Ok(())
    }

    /// Reads one value of a get's reply; none at its end.
    pub(crate) fn read_value(&mut self) -> Result<Option<Value>, Error> {
        let mut line = Vec::new();
        self.read_line(&mut line)?;
        if line == b"END" {
            return Ok(None);
        }
        let (key, size) = value_header(&line).ok_or_else(|| Error::unexpected(&line))?;
        if size > Self::VALUE_MAX {
            return Err(Error::unexpected(&line));
        }
        let key = key.to_vec();
        let mut value = vec![0; size + 2];
        self.reader.read_exact(&mut value)?;
        if !value.ends_with(b"\r\n") {
            return Err(Error::unexpected(&line));
        }
        value.truncate(size);
        Ok(Some(Value { key, value }))
    }

    /// All general statistics by name.
    pub(crate) fn stats(&mut self) -> Result<Stats, Error> {
        self.stats_of("")
    }

    /// The statistics of one kind, such as `net`, by name.
    pub(crate) fn stats_of(&mut self, kind: &str) -> Result<Stats, Error> {
        self.send(format!("stats {kind}\r\n").as_bytes())?;
        let mut stats = HashMap::new();
        let mut line = Vec::new();
        loop {
            self.read_line(&mut line)?;
            if line == b"END" {
                return Ok(Stats(stats));
            }
            let text = std::str::from_utf8(&line).map_err(|_| Error::unexpected(&line))?;
            let mut words = text.splitn(3, ' ');
            match (words.next(), words.next(), words.next()) {
                (Some("STAT"), Some(name), Some(value)) => {
                    stats.insert(name.to_owned(), value.to_owned())
                }
                _ => return Err(Error::unexpected(&line)),
            };
        }
    }

    /// The server's version, as it reports it.
    pub(crate) fn version(&mut self) -> Result<String, Error> {
        self.send(b"version\r\n")?;
        let mut line = Vec::new();
        self.read_line(&mut line)?;
        let version = line
            .strip_prefix(b"VERSION ")
            .ok_or_else(|| Error::unexpected(&line))?;
        Ok(String::from_utf8_lossy(version).into_owned())
    }
}

/// General statistics, by name.
#[derive(Clone, Debug)]
pub(crate) struct Stats(HashMap<String, String>);

impl Stats {
    /// A statistic that is a whole number; 0 where the server has none of this name.
    pub(crate) fn number(&self, name: &str) -> u64 {
        self.0
            .get(name)
            .and_then(|value| value.parse().ok())
            .unwrap_or(0)
    }
}

/// `VALUE <key> <flags> <bytes>`
fn value_header(line: &[u8]) -> Option<(&[u8], usize)> {
    let mut words = line.strip_prefix(b"VALUE ")?.split(|&byte| byte == b' ');
    let (key, _flags, size) = (words.next()?, words.next()?, words.next()?);
    let size = std::str::from_utf8(size).ok()?.parse().ok()?;
    Some((key, size))
}

/// Why a request was not answered.
#[derive(Debug, ThisError)]
pub(crate) enum Error {
    /// The connection broke.
    #[error("the connection to the server failed: {0}")]
    Io(#[from] io::Error),
    /// The reply is none that the request can have.
    #[error("the server answered {0:?}")]
    Unexpected(Box<str>),
}

impl Error {
    /// Keeps the beginning of what came.
    pub(crate) fn unexpected(line: &[u8]) -> Error {
        let shown = &line[..line.len().min(120)];
        Error::Unexpected(String::from_utf8_lossy(shown).into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_header_gives_key_and_size() {
        assert_eq!(value_header(b"VALUE abc 0 10"), Some((&b"abc"[..], 10)));
        assert_eq!(value_header(b"VALUE abc 0 10 77"), Some((&b"abc"[..], 10)));
        for wrong in [&b"VALUE abc 0"[..], b"VALUE abc 0 -1", b"ERROR", b""] {
            assert_eq!(value_header(wrong), None);
        }
    }
}
