//! Settings that change while the server runs.
//!
//! # Concurrency
//! Workers look at them once a turn, or when a connection opens; a change may reach one worker a turn
//! later than another. Nothing else depends on the moment, so relaxed loads and stores do.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};

use crate::flags::Settings;
use crate::losses::LossLimit;
use crate::permissions::Permissions;

/// See the module.
pub struct Live {
    idle_timeout_s: AtomicU64,
    drain_timeout_s: AtomicU64,
    requests_per_turn: AtomicUsize,
    refuses_at_once: AtomicBool,
    permits_poison: AtomicBool,
    rest: Mutex<Rest>,
}

/// Those that are looked at rarely.
#[derive(Clone, Copy)]
struct Rest {
    permissions: Permissions,
    loss_limit: LossLimit,
}

impl Live {
    /// As the settings say.
    pub fn new(settings: &Settings) -> Live {
        Live {
            idle_timeout_s: AtomicU64::new(settings.idle_timeout_s),
            drain_timeout_s: AtomicU64::new(settings.drain_timeout_s),
            requests_per_turn: AtomicUsize::new(settings.requests_per_turn),
            refuses_at_once: AtomicBool::new(settings.refuses_at_once),
            permits_poison: AtomicBool::new(settings.permits_poison),
            rest: Mutex::new(Rest::of(settings)),
        }
    }

    /// Follows other settings from now on.
    pub fn follow(&self, settings: &Settings) {
        self.idle_timeout_s.store(settings.idle_timeout_s, Relaxed);
        self.drain_timeout_s
            .store(settings.drain_timeout_s, Relaxed);
        self.requests_per_turn
            .store(settings.requests_per_turn, Relaxed);
        self.refuses_at_once
            .store(settings.refuses_at_once, Relaxed);
        self.permits_poison.store(settings.permits_poison, Relaxed);
        *self.rest.lock().unwrap_or_else(PoisonError::into_inner) = Rest::of(settings);
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
        self.rest().permissions
    }

    /// How many pages the machine may lose before the server stops.
    pub fn loss_limit(&self) -> LossLimit {
        self.rest().loss_limit
    }

    fn rest(&self) -> Rest {
        *self.rest.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Rest {
    fn of(settings: &Settings) -> Rest {
        Rest {
            permissions: settings.permissions,
            loss_limit: settings.loss_limit,
        }
    }
}
