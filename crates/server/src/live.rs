//! Settings that change while the server runs.
//!
//! # Concurrency
//! Workers look at them once a turn, or when a connection opens; a change may reach one worker a turn
//! later than another. Nothing else depends on the moment, so relaxed loads and stores do. They lie on
//! cache lines of their own, which nobody writes otherwise.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering::Relaxed};

use crate::flags::Settings;
use crate::losses::LossLimit;
use crate::permissions::Permissions;

/// See the module.
#[repr(align(128))]
#[derive(Default)]
pub struct Live {
    idle_timeout_s: AtomicU64,
    drain_timeout_s: AtomicU64,
    requests_per_turn: AtomicUsize,
    refuses_at_once: AtomicBool,
    permits_poison: AtomicBool,
    /// A bit for each, as [`bits`] has them.
    permissions: AtomicU8,
    losses_at_most: AtomicUsize,
    losses_seconds: AtomicU64,
}

impl Live {
    /// As the settings say.
    pub fn new(settings: &Settings) -> Live {
        let live = Live::default();
        live.follow(settings);
        live
    }

    /// Follows other settings from now on.
    pub fn follow(&self, settings: &Settings) {
        let limit = settings.loss_limit;
        self.idle_timeout_s.store(settings.idle_timeout_s, Relaxed);
        self.drain_timeout_s
            .store(settings.drain_timeout_s, Relaxed);
        self.requests_per_turn
            .store(settings.requests_per_turn, Relaxed);
        self.refuses_at_once
            .store(settings.refuses_at_once, Relaxed);
        self.permits_poison.store(settings.permits_poison, Relaxed);
        self.permissions.store(bits(settings.permissions), Relaxed);
        self.losses_at_most.store(limit.at_most, Relaxed);
        self.losses_seconds.store(limit.seconds, Relaxed);
    }

    /// Seconds after which an idle connection is closed; 0 for never.
    pub fn idle_timeout_s(&self) -> u64 {
        self.idle_timeout_s.load(Relaxed)
    }

    /// Seconds that connections have to finish when the server stops.
    pub fn drain_timeout_s(&self) -> u64 {
        self.drain_timeout_s.load(Relaxed)
    }

    /// Requests of one connection before others have their turn.
    #[inline]
    pub fn requests_per_turn(&self) -> usize {
        self.requests_per_turn.load(Relaxed)
    }

    /// Whether connections beyond the limit are refused instead of being left to wait.
    pub fn refuses_at_once(&self) -> bool {
        self.refuses_at_once.load(Relaxed)
    }

    /// Whether clients may lose pages on purpose.
    pub fn permits_poison(&self) -> bool {
        self.permits_poison.load(Relaxed)
    }

    /// What the clients of new connections may do.
    pub fn permissions(&self) -> Permissions {
        let bits = self.permissions.load(Relaxed);
        let has = |bit: u8| bits >> bit & 1 == 1;
        Permissions {
            shutdown: has(0),
            flush: has(1),
            dump: has(2),
            watch: has(3),
            admin: has(4),
        }
    }

    /// How many pages the machine may lose before the server stops.
    pub fn loss_limit(&self) -> LossLimit {
        LossLimit {
            at_most: self.losses_at_most.load(Relaxed),
            seconds: self.losses_seconds.load(Relaxed),
        }
    }
}

/// A bit for each permission.
fn bits(permissions: Permissions) -> u8 {
    let Permissions {
        shutdown,
        flush,
        dump,
        watch,
        admin,
    } = permissions;
    let all = (0..).zip([shutdown, flush, dump, watch, admin]);
    all.map(|(bit, has)| u8::from(has) << bit).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flags::{self, Invocation};

    #[test]
    fn what_was_given_is_what_holds() {
        let flags = ["-A", "-F", "-X", "-W", "-o idle_timeout=7", "-R 9"];
        for given in 0_u32..1 << flags.len() {
            let chosen = (0..).zip(flags).filter(|(bit, _)| given >> bit & 1 == 1);
            let words = chosen.flat_map(|(_, flag)| flag.split(' ')).map(Into::into);
            let Ok(Invocation::Serve(settings)) =
                flags::read(std::iter::once("coua".into()).chain(words))
            else {
                panic!("{given} is not taken");
            };
            let live = Live::new(&settings);
            assert_eq!(live.permissions(), settings.permissions);
            assert_eq!(live.loss_limit(), settings.loss_limit);
            assert_eq!(live.idle_timeout_s(), settings.idle_timeout_s);
            assert_eq!(live.requests_per_turn(), settings.requests_per_turn);
        }
    }
}
