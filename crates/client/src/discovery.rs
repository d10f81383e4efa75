//! Finding out which servers there are: from a configuration endpoint, or from DNS.

use std::net::SocketAddr;
use std::time::Duration;

use crate::address::Address;
use crate::config::Config;
use crate::error::Error;
use crate::outcome::Value;
use crate::wire::Request;

/// How often the servers are looked for again, unless it is set.
const INTERVAL: Duration = Duration::from_secs(60);

/// Servers of a list at most.
const SERVERS_MAX: usize = 1024;

/// Bytes of a list at most.
const LIST_LEN_MAX: usize = 1 << 18;

/// The key under which servers of before 1.4.14 have the list.
pub(crate) const KEY: &[u8] = b"AmazonElastiCache:cluster";

/// Which servers a client has, where that is not written down: who is asked for them, and how often.
///
/// ```no_run
/// use coua_client::{Client, Config, Discovery};
///
/// // AWS ElastiCache, or coua with `-o cluster_config`.
/// let config = Config::new("cluster.example.cfg.use1.cache.amazonaws.com:11211")?;
/// let cache = Client::builder(config).discover(Discovery::cluster())?;
/// // A name with an address for each server, as Kubernetes has for a headless service.
/// let config = Config::new("caches.default.svc.cluster.local:11211")?;
/// let cache = Client::builder(config).discover(Discovery::names())?;
/// # Ok::<(), coua_client::Error>(())
/// ```
///
/// A change takes effect for requests that begin afterwards. What is under way comes to its end on the connection
/// that it has; connections to servers that stay are kept.
#[derive(Clone, Copy, Debug)]
pub struct Discovery {
    pub(crate) source: Source,
    pub(crate) interval: Duration,
}

/// Who knows the servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    Cluster,
    Names,
}

impl Discovery {
    /// Asks the servers of the settings, one after the other, for the list of all (`config get cluster`); later also
    /// those of the list, if no other answers. A list takes the place of one with a lower version. Servers are reached
    /// by the names in it; the addresses beside these are not used.
    #[must_use]
    pub fn cluster() -> Discovery {
        Discovery {
            source: Source::Cluster,
            interval: INTERVAL,
        }
    }

    /// Looks the names of the settings up: each of their addresses is a server. On a hash ring it stands by its address.
    #[must_use]
    pub fn names() -> Discovery {
        Discovery {
            source: Source::Names,
            interval: INTERVAL,
        }
    }

    /// How often it looks again; once a minute by default, and no more than ten times a second.
    #[must_use]
    pub fn interval(mut self, interval: Duration) -> Discovery {
        self.interval = interval.max(Duration::from_millis(100));
        self
    }
}

/// The requests for a list, of which the first that has a value counts.
pub(crate) fn requests() -> [Request<'static>; 2] {
    [Request::cluster(), Request::get(KEY)]
}

/// What a server without a list comes to.
pub(crate) const NO_LIST: &str = "it has no list of servers";

/// What somebody tells of the servers.
pub(crate) fn told(server: &str, listed: Result<Listed, &str>) -> Result<Listed, Error> {
    listed.map_err(|reason| Error::Discovery {
        server: server.into(),
        reason: reason.to_owned(),
    })
}

/// The servers of a fleet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Listed {
    /// 0 where there are no versions.
    pub(crate) version: u64,
    pub(crate) servers: Vec<Address>,
}

impl Listed {
    /// Reads a line with a version, and one of servers `NAME|ADDRESS|PORT`.
    pub(crate) fn parse(value: &Value) -> Result<Listed, &'static str> {
        if value.bytes.len() > LIST_LEN_MAX {
            return Err("the list of servers is too long");
        }
        let text = std::str::from_utf8(&value.bytes);
        let mut lines = text.map_err(|_| "the list of servers is no text")?.lines();
        let version = lines.next().and_then(|line| line.trim().parse().ok());
        let version = version.ok_or("the list of servers has no version")?;
        let mut servers: Vec<Address> = Vec::new();
        for server in lines.flat_map(str::split_whitespace) {
            let server = address(server).ok_or("the list has a server that is none")?;
            if !servers.contains(&server) {
                servers.push(server);
            }
            if servers.len() > SERVERS_MAX {
                return Err("the list has too many servers");
            }
        }
        match servers.is_empty() {
            true => Err("the list of servers is empty"),
            false => Ok(Listed { version, servers }),
        }
    }

    /// The servers at the addresses of names, in an order that does not depend on who answered.
    pub(crate) fn resolved(mut addresses: Vec<SocketAddr>) -> Result<Listed, &'static str> {
        addresses.sort_unstable();
        addresses.dedup();
        if addresses.is_empty() {
            return Err("the name has no address");
        }
        if addresses.len() > SERVERS_MAX {
            return Err("the names have too many addresses");
        }
        let server = |address: SocketAddr| Address::Tcp {
            host: address.ip().to_string(),
            port: address.port(),
        };
        Ok(Listed {
            version: 0,
            servers: addresses.into_iter().map(server).collect(),
        })
    }

    /// Whether it takes the place of `before`.
    pub(crate) fn is_newer(&self, before: &Listed, source: Source) -> bool {
        match source {
            // A server that has not heard of a change yet is asked at times.
            Source::Cluster => self.version > before.version,
            Source::Names => self.servers != before.servers,
        }
    }

    /// The same settings with these servers.
    pub(crate) fn settings(&self, config: &Config) -> Config {
        let mut config = config.clone();
        config.servers = self
            .servers
            .iter()
            .map(|server| (server.clone(), 1))
            .collect();
        config
    }
}

/// `NAME|ADDRESS|PORT`; where there is no name, the address is one.
fn address(server: &str) -> Option<Address> {
    let mut parts = server.split('|');
    let (name, address, port) = (parts.next()?, parts.next()?, parts.next()?);
    let host = if name.is_empty() { address } else { name };
    let port = port.parse().ok().filter(|&port: &u16| port > 0)?;
    let is_foreign = |c: char| c.is_control() || c == ',';
    if host.is_empty() || host.contains(is_foreign) || parts.next().is_some() {
        return None;
    }
    let host = host.to_owned();
    Some(Address::Tcp { host, port })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listed(text: &[u8]) -> Result<Listed, &'static str> {
        Listed::parse(&Value {
            bytes: text.to_vec(),
            ..Value::default()
        })
    }

    #[test]
    fn lists() {
        let read = listed(b"12\na.example|10.0.0.1|11211 b||1 |::1|2 b||1\n").expect("a list");
        let servers: Vec<String> = read.servers.iter().map(ToString::to_string).collect();
        assert_eq!(servers, ["a.example:11211", "b:1", "[::1]:2"]);
        assert_eq!(read.version, 12);
        let many =
            "a||1 ".repeat(2000) + &(0..1025).map(|n| format!("n{n}||1 ")).collect::<String>();
        let table: [(&[u8], &str); 9] = [
            (b"", "has no version"),
            (b"x\na||1", "has no version"),
            (b"1\n", "is empty"),
            (b"1\na|1", "a server that is none"),
            (b"1\na||0", "a server that is none"),
            (b"1\n||1", "a server that is none"),
            (b"1\na,b||1", "a server that is none"),
            (b"\xff", "is no text"),
            (&[b' '; LIST_LEN_MAX + 1], "is too long"),
        ];
        for (text, expected) in table {
            let error = listed(text).expect_err(expected);
            assert!(error.contains(expected), "{error}");
        }
        let error = listed(format!("1\n{many}").as_bytes()).expect_err("too many");
        assert_eq!(error, "the list has too many servers");
    }

    #[test]
    fn addresses_have_an_order() {
        let address = |text: &str| text.parse().expect("an address");
        let read = Listed::resolved(vec![
            address("10.0.0.2:1"),
            address("10.0.0.1:1"),
            address("10.0.0.2:1"),
        ]);
        let read = read.expect("addresses");
        let servers: Vec<String> = read.servers.iter().map(ToString::to_string).collect();
        assert_eq!(servers, ["10.0.0.1:1", "10.0.0.2:1"]);
        assert!(Listed::resolved(Vec::new()).is_err());
    }

    #[test]
    fn old_lists_do_not_return() {
        let (one, two) = (
            listed(b"1\na||1").expect("a list"),
            listed(b"2\nb||1").expect("a list"),
        );
        assert!(two.is_newer(&one, Source::Cluster));
        assert!(!one.is_newer(&two, Source::Cluster));
        assert!(one.is_newer(&two, Source::Names));
        assert!(!one.is_newer(&one, Source::Names));
    }
}
