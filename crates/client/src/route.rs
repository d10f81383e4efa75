//! Which server has which key.

mod ketama;
mod modula;

use ketama::Ring;

/// How keys are spread over servers.
///
/// Clients that share a cache must agree on it, and on the list of servers: its order for
/// [`Distribution::Modula`], the spelling of hosts for the others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Distribution {
    /// A hash ring as libmemcached has it with `MEMCACHED_BEHAVIOR_KETAMA_WEIGHTED`: a server that goes
    /// takes only its own keys with it.
    #[default]
    Ketama,
    /// The ring of spymemcached's `KetamaNodeLocator` in its format `LIBMEMCACHED`. It is the same as
    /// [`Distribution::Ketama`], except that servers of equal weight always have 160 points: libmemcached
    /// computes in single precision and comes to 156 for some numbers of servers, 25 for one.
    KetamaSpymemcached,
    /// The hash of the key modulo the number of servers, as libmemcached does by default
    /// (`one_at_a_time`).
    Modula,
}

/// A server as a distribution sees it.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    /// The host as it was written, or the path of a unix socket.
    pub(crate) host: String,
    /// The port; 0 for a unix socket.
    pub(crate) port: u16,
    /// How many times as many keys as a server of weight 1 it gets.
    pub(crate) weight: u32,
}

/// Finds the server of a key.
#[derive(Debug)]
pub(crate) struct Router {
    kind: Kind,
    servers: usize,
}

#[derive(Debug)]
enum Kind {
    /// There is one server.
    Single,
    Ring(Ring),
    Modula,
}

impl Router {
    pub(crate) fn new(distribution: Distribution, places: &[Place]) -> Self {
        let kind = match (places, distribution) {
            ([] | [_], _) => Kind::Single,
            (_, Distribution::Ketama) => Kind::Ring(Ring::new(places, false)),
            (_, Distribution::KetamaSpymemcached) => Kind::Ring(Ring::new(places, true)),
            (_, Distribution::Modula) => Kind::Modula,
        };
        let servers = places.len();
        Router { kind, servers }
    }

    /// The server that has `key` when all servers are there.
    pub(crate) fn home(&self, key: &[u8]) -> usize {
        match &self.kind {
            Kind::Single => 0,
            Kind::Ring(ring) => ring.home(key),
            Kind::Modula => modula::index(key, self.servers),
        }
    }

    /// The server that has `key` when only those are there that `is_there` says; `None` when none is.
    pub(crate) fn among(&self, key: &[u8], is_there: impl Fn(usize) -> bool) -> Option<usize> {
        match &self.kind {
            Kind::Single => is_there(0).then_some(0),
            Kind::Ring(ring) => ring.among(key, is_there),
            Kind::Modula => {
                let home = modula::index(key, self.servers);
                if is_there(home) {
                    return Some(home);
                }
                let there = (0..self.servers).filter(|&server| is_there(server));
                let count = there.clone().count();
                let mut there = there;
                there.nth(modula::index(key, count.max(1)))
            }
        }
    }
}
