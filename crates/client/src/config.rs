//! What a client is set to.

use std::time::Duration;

use crate::address::Address;
use crate::error::Error;
use crate::health::Ejection;
use crate::login::Login;
use crate::observer::{Event, Observer};
use crate::route::{Distribution, Place};
use crate::wire::Limits;

/// Settings of a client; [`crate::Client::builder`] and the asynchronous client's begin with them.
///
/// ```
/// use coua_client::{Config, Distribution, Failover};
/// use std::time::Duration;
///
/// let config = Config::new("10.0.0.1:11211,10.0.0.2:11211")?
///     .weighted_server("10.0.0.3:11211", 2)?
///     .distribution(Distribution::Ketama)
///     .failover(Failover::FailFast)
///     .operation_timeout(Duration::from_millis(250));
/// # Ok::<(), coua_client::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Config {
    pub(crate) servers: Vec<(Address, u32)>,
    pub(crate) distribution: Distribution,
    pub(crate) failover: Failover,
    pub(crate) dialect: DialectChoice,
    pub(crate) connect_timeout: Duration,
    pub(crate) operation_timeout: Duration,
    pub(crate) connections_per_server: Option<usize>,
    pub(crate) ejection_failures: u32,
    pub(crate) ejection_wait_min: Duration,
    pub(crate) ejection_wait_max: Duration,
    pub(crate) limits: Limits,
    pub(crate) login: Option<Login>,
    pub(crate) observer: Observer,
}

/// What happens to keys whose server is ejected.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Failover {
    /// They go to other servers meanwhile. When their server returns with what it had before, it may have
    /// older values than those written meanwhile; let items expire.
    #[default]
    Redistribute,
    /// They fail at once, with [`crate::Cause::Ejected`].
    FailFast,
}

/// How requests are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum DialectChoice {
    /// Each connection asks its server (`mn`) whether it has the meta commands, as memcached has from 1.6
    /// on, and uses classic text where it has not. It costs one exchange a connection.
    #[default]
    Ask,
    /// The meta commands.
    Meta,
    /// Classic text, for instance through a proxy that closes connections on what it does not know.
    Classic,
}

impl Config {
    /// Settings for servers in a list that commas separate; see [`Address`] for one.
    ///
    /// # Errors
    /// When an address cannot be read, or the list is empty.
    pub fn new(servers: &str) -> Result<Config, Error> {
        let parse = |text: &str| Ok((text.trim().parse::<Address>()?, 1));
        let servers: Result<Vec<_>, Error> = servers.split(',').map(parse).collect();
        Ok(Config {
            servers: servers?,
            distribution: Distribution::default(),
            failover: Failover::default(),
            dialect: DialectChoice::default(),
            connect_timeout: Duration::from_secs(1),
            operation_timeout: Duration::from_millis(2500),
            connections_per_server: None,
            ejection_failures: 2,
            ejection_wait_min: Duration::from_secs(1),
            ejection_wait_max: Duration::from_secs(30),
            limits: Limits::default(),
            login: None,
            observer: Observer::default(),
        })
    }

    /// Adds a server that gets `weight` times as many keys as one of weight 1 (the ring's distributions
    /// only). Weight 0 counts as 1.
    ///
    /// # Errors
    /// When the address cannot be read.
    pub fn weighted_server(mut self, server: &str, weight: u32) -> Result<Config, Error> {
        self.servers.push((server.trim().parse()?, weight.max(1)));
        Ok(self)
    }

    /// How keys are spread over the servers; libmemcached's ketama by default.
    #[must_use]
    pub fn distribution(mut self, distribution: Distribution) -> Config {
        self.distribution = distribution;
        self
    }

    /// What happens to keys whose server is ejected; they go elsewhere by default.
    #[must_use]
    pub fn failover(mut self, failover: Failover) -> Config {
        self.failover = failover;
        self
    }

    /// How requests are written; by default each server is asked what it has.
    #[must_use]
    pub fn dialect(mut self, dialect: DialectChoice) -> Config {
        self.dialect = dialect;
        self
    }

    /// How long opening a connection may take, once the name is resolved; 1 second by default.
    #[must_use]
    pub fn connect_timeout(mut self, timeout: Duration) -> Config {
        self.connect_timeout = timeout;
        self
    }

    /// How long an operation may take; 2.5 seconds by default. It bounds the wait for a free connection,
    /// opening one, and the answer, each attempt anew.
    #[must_use]
    pub fn operation_timeout(mut self, timeout: Duration) -> Config {
        self.operation_timeout = timeout;
        self
    }

    /// The most connections to one server. The synchronous client has one a thread that is waiting, 16 at
    /// most by default; the asynchronous one sends many requests ahead on each, and opens two by default.
    #[must_use]
    pub fn connections_per_server(mut self, connections: usize) -> Config {
        self.connections_per_server = Some(connections.max(1));
        self
    }

    /// After how many failures in a row a server is ejected; 2 by default. `u32::MAX` never ejects.
    #[must_use]
    pub fn ejection_failures(mut self, failures: u32) -> Config {
        self.ejection_failures = failures.max(1);
        self
    }

    /// How long an ejected server is left alone: `min` at first, twice as long after each failed trial, up
    /// to `max`, each time a quarter more or less. 1 and 30 seconds by default.
    #[must_use]
    pub fn ejection_wait(mut self, min: Duration, max: Duration) -> Config {
        self.ejection_wait_min = min;
        self.ejection_wait_max = max.max(min);
        self
    }

    /// The longest value that is sent or accepted, in bytes; 64 MiB by default.
    #[must_use]
    pub fn value_len_max(mut self, len: usize) -> Config {
        self.limits.value_len_max = len;
        self
    }

    /// Sends keys with blanks and control characters in base64, which servers with the meta commands
    /// decode. Off by default: such keys are refused.
    #[must_use]
    pub fn binary_keys(mut self, allowed: bool) -> Config {
        self.limits.binary_keys = allowed;
        self
    }

    /// Logs in on each new connection, as servers with `-Y` want it. The user's name has no blanks. In the clear, whoever
    /// sees the network sees the password. A login that fails is [`crate::Cause::TurnedAway`].
    #[must_use]
    pub fn login(mut self, user: &str, password: &str) -> Config {
        self.login = Some(Login::new(user, password));
        self
    }

    /// Has `observe` called with the address of a server and what has become of it. It is called in the middle of
    /// operations, by many threads at once: it should be quick, and must not use the client. One that was set before
    /// is replaced.
    ///
    /// ```
    /// use coua_client::{Config, Event};
    ///
    /// let config = Config::new("10.0.0.1:11211")?.observer(|server, event| match event {
    ///     Event::Ejected => eprintln!("{server} does not answer"),
    ///     Event::Returned => eprintln!("{server} answers again"),
    ///     _ => {}
    /// });
    /// # Ok::<(), coua_client::Error>(())
    /// ```
    #[must_use]
    pub fn observer(mut self, observe: impl Fn(&str, &Event) + Send + Sync + 'static) -> Config {
        self.observer = Observer::new(observe);
        self
    }

    /// How long opening a connection may take in all. Servers let those wait who fail to log in.
    pub(crate) fn opening_limit(&self) -> Duration {
        match self.login {
            Some(_) => self.connect_timeout + self.operation_timeout,
            None => self.connect_timeout,
        }
    }

    /// Servers in a list.
    pub(crate) fn names(servers: &[(Address, u32)]) -> String {
        let names: Vec<String> = servers
            .iter()
            .map(|(server, _)| server.to_string())
            .collect();
        names.join(",")
    }

    pub(crate) fn places(&self) -> Vec<Place> {
        let place = |(address, weight): &(Address, u32)| {
            let (host, port) = address.on_ring();
            let weight = *weight;
            Place { host, port, weight }
        };
        self.servers.iter().map(place).collect()
    }

    pub(crate) fn ejection(&self) -> Ejection {
        Ejection {
            failures: self.ejection_failures,
            wait_min: self.ejection_wait_min,
            wait_max: self.ejection_wait_max,
            trial: self.opening_limit() + self.operation_timeout,
        }
    }
}
