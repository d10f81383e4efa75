//! Where a server is.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use crate::error::Error;

/// memcached's port.
const DEFAULT_PORT: u16 = 11211;

/// Where a server is: `HOST`, `HOST:PORT`, `IPV4:PORT`, `[IPV6]:PORT`, `unix:/PATH` or `/PATH`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Address {
    /// TCP. The host is resolved each time that a connection is opened.
    Tcp {
        /// A name or an address, as it was written. It is part of what places keys on a ring.
        host: String,
        /// The port.
        port: u16,
    },
    /// A unix socket.
    Unix(PathBuf),
}

impl Address {
    /// Host and port as they stand in a hash ring: a unix socket has port 0.
    pub(crate) fn on_ring(&self) -> (String, u16) {
        match self {
            Address::Tcp { host, port } => (host.clone(), *port),
            Address::Unix(path) => (path.to_string_lossy().into_owned(), 0),
        }
    }
}

impl FromStr for Address {
    type Err = Error;

    fn from_str(text: &str) -> Result<Address, Error> {
        let wrong = || Error::Address(text.to_owned());
        let path = text.strip_prefix("unix:").unwrap_or(text);
        if path.starts_with('/') {
            return Ok(Address::Unix(path.into()));
        }
        if text.starts_with("unix:") {
            return Err(wrong());
        }
        let (host, port) = match text.strip_prefix('[') {
            Some(rest) => {
                let (host, rest) = rest.split_once(']').ok_or_else(wrong)?;
                let port = match rest {
                    "" => None,
                    _ => Some(rest.strip_prefix(':').ok_or_else(wrong)?),
                };
                (host, port)
            }
            None => match text.split_once(':') {
                Some((host, port)) => (host, Some(port)),
                None => (text, None),
            },
        };
        let port = match port {
            Some(port) => port.parse().map_err(|_| wrong())?,
            None => DEFAULT_PORT,
        };
        let foreign = |c: char| c.is_whitespace() || c.is_control() || c == ',';
        if host.is_empty() || port == 0 || host.contains(foreign) {
            return Err(wrong());
        }
        let host = host.to_owned();
        Ok(Address::Tcp { host, port })
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Tcp { host, port } if host.contains(':') => write!(f, "[{host}]:{port}"),
            Address::Tcp { host, port } => write!(f, "{host}:{port}"),
            Address::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spellings() {
        let table = [
            ("cache", Some("cache:11211")),
            ("cache:1", Some("cache:1")),
            ("10.0.0.1:11212", Some("10.0.0.1:11212")),
            ("[::1]", Some("[::1]:11211")),
            ("[::1]:5", Some("[::1]:5")),
            ("/run/coua.sock", Some("unix:/run/coua.sock")),
            ("unix:/run/coua.sock", Some("unix:/run/coua.sock")),
            ("", None),
            (":1", None),
            ("a:", None),
            ("a:0", None),
            ("a:65536", None),
            ("a b", None),
            ("::1", None),
            ("[::1", None),
            ("[::1]5", None),
            ("unix:relative", None),
        ];
        for (text, expected) in table {
            let address = text.parse::<Address>().map(|address| address.to_string());
            assert_eq!(address.ok().as_deref(), expected, "{text}");
        }
    }
}
