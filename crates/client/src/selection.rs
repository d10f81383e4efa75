//! Which server is asked now, and whether a request is tried again.

use std::time::Instant;

use crate::config::{Config, Failover};
use crate::error::{Cause, Error};
use crate::health::{Admission, Ejection, Health};
use crate::route::Router;

/// Attempts of an operation whose first one had no effect.
pub(crate) const ATTEMPTS: usize = 2;

/// Chooses servers by key and by health.
#[derive(Debug)]
pub(crate) struct Selection {
    router: Router,
    failover: Failover,
    ejection: Ejection,
    started: Instant,
}

/// The key's server is ejected, and no other takes its place.
pub(crate) struct Ejected {
    /// That server.
    pub(crate) home: usize,
}

impl Selection {
    pub(crate) fn new(config: &Config) -> Selection {
        Selection {
            router: Router::new(config.distribution, &config.places()),
            failover: config.failover,
            ejection: config.ejection(),
            started: Instant::now(),
        }
    }

    /// The same for other servers. What is known of servers that stay has its time from here.
    pub(crate) fn with(&self, config: &Config) -> Selection {
        Selection {
            started: self.started,
            ..Selection::new(config)
        }
    }

    /// The server that is asked for a key now.
    pub(crate) fn admit<'h>(
        &self,
        key: &[u8],
        health: impl Fn(usize) -> &'h Health,
    ) -> Result<(usize, Admission), Ejected> {
        let home = self.router.home(key);
        if health(home).is_live() {
            return Ok((home, Admission::Live));
        }
        if let Some(admission) = health(home).admit(self.now_ms(), &self.ejection) {
            return Ok((home, admission));
        }
        let other = match self.failover {
            Failover::FailFast => None,
            Failover::Redistribute => self.router.among(key, |other| health(other).is_live()),
        };
        match other {
            Some(other) => Ok((other, Admission::Live)),
            None => Err(Ejected { home }),
        }
    }

    /// Takes down that a server has failed. True where that ejects it.
    pub(crate) fn failed(&self, health: &Health, admission: Admission) -> bool {
        health.failed(admission, self.now_ms(), fastrand::f64(), &self.ejection)
    }

    fn now_ms(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX)
    }
}

/// Whether the request had no effect and another attempt may do better: not after a timeout.
pub(crate) fn may_repeat(error: &Error) -> bool {
    matches!(error, Error::NotSent { .. } | Error::Interrupted { .. })
        && !matches!(
            error.cause(),
            Some(Cause::Timeout(_) | Cause::Busy(_) | Cause::Ejected)
        )
}
