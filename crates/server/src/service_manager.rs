//! What a service manager is told (systemd's `Type=notify`, `NOTIFY_SOCKET`), and its watchdog.
//!
//! Nothing is said where nobody listens: each function does nothing without `NOTIFY_SOCKET`.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use sd_notify::NotifyState;

use crate::shared::Shared;

/// How often the watchdog is told within the time that it waits.
const TELLS: u32 = 2;

/// How long a worker has to take a turn after it was woken, at least.
const TURN_MIN: Duration = Duration::from_millis(100);

/// The server serves. Ends a reload too.
pub fn tell_ready() {
    tell(&[NotifyState::Ready, NotifyState::Status("serves")]);
}

/// Another program takes this one's place, in the same process.
pub fn tell_reloading() {
    // Without the moment the manager of `Type=notify-reload` waits for no answer.
    let moment = NotifyState::monotonic_usec_now();
    let status = NotifyState::Status("lets connections finish before a new program");
    let states = [NotifyState::Reloading]
        .into_iter()
        .chain(moment)
        .chain([status]);
    tell(&states.collect::<Vec<_>>());
}

/// The server ends.
pub fn tell_stopping() {
    let status = NotifyState::Status("lets connections finish before it ends");
    tell(&[NotifyState::Stopping, status]);
}

/// Tells the manager's watchdog (`WatchdogSec=`) that the server works for as long as each of its
/// workers takes turns, on a thread of its own. Without a watchdog there is no thread.
pub fn feed_watchdog(shared: &Arc<Shared>) {
    let Some(limit) = sd_notify::watchdog_enabled() else {
        return;
    };
    let (shared, pause) = (Arc::clone(shared), limit / TELLS);
    let feed = move || {
        let workers = shared.settings.workers;
        let turns = || -> Vec<u64> {
            let counters = (0..workers).map(|worker| shared.counters(worker));
            counters.map(|counters| counters.turns.value()).collect()
        };
        loop {
            let before = turns();
            for worker in 0..workers {
                shared.waker(worker).wake();
            }
            thread::sleep(pause.max(TURN_MIN));
            let have_turned = turns()
                .iter()
                .zip(&before)
                .all(|(now, before)| now != before);
            // Workers that have finished take none; then `-o drain_timeout` is the limit.
            if have_turned || shared.is_stopping() {
                tell(&[NotifyState::Watchdog]);
            }
        }
    };
    let thread = thread::Builder::new().name("coua-watchdog".to_owned());
    if let Err(error) = thread.spawn(feed) {
        tracing::warn!("WATCHDOG_USEC: cannot start a thread: {error}");
    }
}

fn tell(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        tracing::warn!("NOTIFY_SOCKET: cannot tell the service manager: {error}");
    }
}
