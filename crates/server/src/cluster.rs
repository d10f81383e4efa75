//! Which servers a fleet has: the file of `-o cluster_config`, which clients with auto-discovery ask any of its servers
//! for (`config get cluster`, and before memcached 1.4.14 `get AmazonElastiCache:cluster`).
//!
//! ```text
//! # comments and empty lines are passed over
//! 12                                  the version: it rises with every change, since clients ignore lower ones
//! cache1.example|10.0.0.1|11211       a server: name, address or nothing, port
//! cache2.example||11211
//! ```

use std::collections::HashSet;
use std::io;
use std::net::IpAddr;
use std::path::Path;

/// Bytes of the file at most.
const FILE_LEN_MAX: u64 = 1 << 20;

/// Bytes of the answer's value at most: it is written into a worker's output in one piece.
pub const VALUE_LEN_MAX: usize = 16 << 10;

/// Bytes of a name at most, as in DNS.
const NAME_LEN_MAX: usize = 253;

/// The key under which clients of old look for the list.
pub const CLUSTER_KEY: &[u8] = b"AmazonElastiCache:cluster";

/// The servers of a fleet.
#[derive(Debug, PartialEq, Eq)]
pub struct ClusterConfig {
    /// How often the list has changed, in a manner of speaking.
    pub version: u64,
    /// How many servers there are.
    pub servers: usize,
    /// What clients are answered: the version's line, and one with all servers.
    pub value: Box<[u8]>,
}

/// Why a file of servers is refused.
#[derive(Debug, thiserror::Error)]
pub enum ClusterError {
    /// The system.
    #[error("cannot be read: {0}")]
    Read(#[from] io::Error),
    /// The file is no list of servers.
    #[error("has {FILE_LEN_MAX} bytes or more")]
    TooLong,
    /// It does not begin with a version.
    #[error("line {0}: the version is expected, a whole number from 1 on")]
    Version(usize),
    /// A line is no server.
    #[error("line {0}: NAME|ADDRESS|PORT is expected, where ADDRESS may be left out")]
    Server(usize),
    /// A server stands there twice.
    #[error("line {0}: the server is there already")]
    Twice(usize),
    /// It names nobody.
    #[error("has no line NAME|ADDRESS|PORT behind the version")]
    Empty,
    /// The servers are too many.
    #[error("line {0} is one too many: clients can be told {VALUE_LEN_MAX} bytes")]
    TooMany(usize),
}

impl ClusterConfig {
    /// Reads the file.
    ///
    /// # Errors
    /// [`ClusterError`]: it cannot be read, or is not as it should be.
    pub fn read(path: &Path) -> Result<ClusterConfig, ClusterError> {
        if std::fs::metadata(path)?.len() >= FILE_LEN_MAX {
            return Err(ClusterError::TooLong);
        }
        ClusterConfig::parse(&std::fs::read(path)?)
    }

    fn parse(text: &[u8]) -> Result<ClusterConfig, ClusterError> {
        let lines = (1..).zip(text.split(|&byte| byte == b'\n'));
        let mut lines = lines
            .map(|(number, line)| (number, line.trim_ascii()))
            .filter(|(_, line)| !line.is_empty() && !line.starts_with(b"#"));
        let (number, first) = lines.next().ok_or(ClusterError::Version(1))?;
        let version = version(first).ok_or(ClusterError::Version(number))?;
        let mut value = format!("{version}\n").into_bytes();
        let mut known = HashSet::new();
        for (number, line) in lines {
            for server in line.split(u8::is_ascii_whitespace) {
                if server.is_empty() {
                    continue;
                }
                let (name, port) = checked(server).ok_or(ClusterError::Server(number))?;
                if !known.insert((name.to_ascii_lowercase(), port)) {
                    return Err(ClusterError::Twice(number));
                }
                if known.len() > 1 {
                    value.push(b' ');
                }
                value.extend_from_slice(server);
                if value.len() >= VALUE_LEN_MAX {
                    return Err(ClusterError::TooMany(number));
                }
            }
        }
        if known.is_empty() {
            return Err(ClusterError::Empty);
        }
        value.push(b'\n');
        Ok(ClusterConfig {
            version,
            servers: known.len(),
            value: value.into(),
        })
    }
}

/// Digits alone, and not 0: some clients take that for a list that is not there yet.
fn version(text: &[u8]) -> Option<u64> {
    let is_number = text.iter().all(u8::is_ascii_digit);
    let text = std::str::from_utf8(text).ok().filter(|_| is_number)?;
    // Java's clients read it as a long.
    let version = text.parse::<u64>().ok()?;
    (1..=i64::MAX.unsigned_abs())
        .contains(&version)
        .then_some(version)
}

/// Name and port of a server that is written as it should be.
fn checked(server: &[u8]) -> Option<(&str, u16)> {
    let server = std::str::from_utf8(server).ok()?;
    let mut parts = server.split('|');
    let (name, address, port) = (parts.next()?, parts.next()?, parts.next()?);
    let of_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_' | ':');
    let is_named = !name.is_empty() && name.len() <= NAME_LEN_MAX && name.chars().all(of_name);
    let is_address = address.is_empty() || address.parse::<IpAddr>().is_ok();
    let is_port = port.bytes().all(|byte| byte.is_ascii_digit());
    let port = port
        .parse::<u16>()
        .ok()
        .filter(|&port| port > 0 && is_port)?;
    (is_named && is_address && parts.next().is_none()).then_some((name, port))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_clients_are_told() {
        let text = b"# fleet\n\n 12 \r\na.example|10.0.0.1|11211\nb|::1|1 c||65535\n";
        let read = ClusterConfig::parse(text).expect("it is a list");
        let value = b"12\na.example|10.0.0.1|11211 b|::1|1 c||65535\n";
        assert_eq!(&*read.value, value);
        assert_eq!((read.version, read.servers), (12, 3));
    }

    #[test]
    fn what_is_no_list() {
        let long = format!("{}||1", "n".repeat(NAME_LEN_MAX + 1));
        let table = [
            (
                "",
                "line 1: the version is expected, a whole number from 1 on",
            ),
            (
                "\n0\na||1",
                "line 2: the version is expected, a whole number from 1 on",
            ),
            ("+1\na||1", "line 1: the version"),
            ("9223372036854775808\na||1", "line 1: the version"),
            (
                "1\n# a||1\n",
                "has no line NAME|ADDRESS|PORT behind the version",
            ),
            ("1\na|1", "line 2: NAME|ADDRESS|PORT is expected"),
            ("1\na||0", "line 2: NAME|ADDRESS|PORT is expected"),
            ("1\na||+1", "line 2: NAME|ADDRESS|PORT is expected"),
            ("1\na||65536", "line 2: NAME|ADDRESS|PORT is expected"),
            ("1\na|10.0.0|1", "line 2: NAME|ADDRESS|PORT is expected"),
            ("1\na||1|2", "line 2: NAME|ADDRESS|PORT is expected"),
            ("1\n||1", "line 2: NAME|ADDRESS|PORT is expected"),
            (
                &format!("1\n{long}"),
                "line 2: NAME|ADDRESS|PORT is expected",
            ),
            ("1\na\0||1", "line 2: NAME|ADDRESS|PORT is expected"),
            ("1\na||1\nA||1", "line 3: the server is there already"),
        ];
        for (text, expected) in table {
            let error = ClusterConfig::parse(text.as_bytes()).expect_err(text);
            assert!(error.to_string().starts_with(expected), "{text:?}: {error}");
        }
    }

    #[test]
    fn the_answer_is_bounded() {
        let text = |count: usize| {
            let servers = (0..count).map(|n| format!("cache{n:05}.example|10.0.0.1|11211\n"));
            format!("1\n{}", servers.collect::<String>())
        };
        let fits = ClusterConfig::parse(text(400).as_bytes()).expect("it fits");
        assert!(fits.value.len() <= VALUE_LEN_MAX);
        let error = ClusterConfig::parse(text(500).as_bytes()).expect_err("too many");
        assert!(matches!(error, ClusterError::TooMany(_)), "{error}");
    }
}
