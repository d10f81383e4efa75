//! What the machine loses of the server's memory while it serves.
//!
//! The handler of `coua-memory-errors` replaces a lost page by zeros; the workers compare what they
//! copy out of the store with what was lost. A thread of its own, the store's [`Mender`], sees to the
//! rest: what lay on the page is dropped, and one log line says what it was. If more is lost within
//! a time than `-o mce_limit` allows, a module is dying, and the server ends in order: with `-e` the
//! next process begins with all that is left, without the pages that failed.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use coua_memory_errors::{
    AlternateStack, Limit, Severity, events_seen, install_thread, wait_for_events,
};
use coua_store::{Loss, Mended, Mender, PageKind};

use crate::losses::LossLimit;
use crate::shared::Shared;

/// How long to wait for memory that somebody else still holds, before looking again.
const HELD_PAUSE: Duration = Duration::from_millis(20);

/// How long to wait when nothing is to be done: a server that is stopped is left soon.
const IDLE_PAUSE: Duration = Duration::from_millis(500);

fn word(kind: PageKind) -> &'static str {
    match kind {
        PageKind::Items => "items",
        PageKind::Index => "index",
        PageKind::Lent => "connection buffers",
        PageKind::Tables => "tables",
        PageKind::Tags => "the table of tags",
        PageKind::Flash => "buffers of flash",
        PageKind::Free => "nothing",
    }
}

/// Gives the calling thread a stack for the handler, until it is dropped. Without one the handler
/// runs on the thread's own stack, which does as long as that is not lost.
pub fn install_stack() -> Option<AlternateStack> {
    install_thread()
        .inspect_err(|error| tracing::warn!("memory errors: no stack for their handler: {error}"))
        .ok()
}

/// Sees to what is lost until the server stops.
pub fn see_to_losses(shared: &Shared, mut mender: Mender) {
    let _stack = install_stack();
    let mut allowed = shared.live.loss_limit();
    let new_limit =
        |allowed: LossLimit| Limit::new(allowed.at_most, Duration::from_secs(allowed.seconds));
    let mut limit = new_limit(allowed);
    let mut seen = 0;
    while !shared.is_stopping() {
        let now = events_seen();
        if now != seen {
            // They leave segments of which a part is lost, also if they have nothing else to do.
            shared.wake_all();
        }
        seen = now;
        if allowed != shared.live.loss_limit() {
            // What was lost before counts no more.
            allowed = shared.live.loss_limit();
            limit = new_limit(allowed);
        }
        if let Some(mended) = mender.mend(shared.clock.now().unix) {
            shared.losses.note(&mended);
            tell(&mended);
            let too_many = mended
                .losses
                .iter()
                .filter(|loss| limit.is_exceeded_by(&loss.lost));
            if too_many.count() > 0 || mended.overflowed {
                tracing::error!(
                    "memory errors: more than {} within {} s (-o mce_limit): stopping",
                    allowed.at_most,
                    allowed.seconds
                );
                shared.stop_for_failure();
            }
        }
        shared.losses.elsewhere.store(mender.elsewhere(), Relaxed);
        let pause = match mender.is_waiting() {
            true => HELD_PAUSE,
            false => IDLE_PAUSE,
        };
        wait_for_events(seen, pause);
    }
}

/// One line for each range, and what followed from all of them.
fn tell(mended: &Mended) {
    let (items, bytes, took) = (mended.items, mended.bytes, mended.took);
    let many = mended.losses.len();
    for Loss { lost, kind } in &mended.losses {
        let how = match lost.severity {
            Severity::ActionOptional => "before anybody touched it",
            Severity::ActionRequired => "when it was touched",
        };
        let kept = match (lost.is_detached, lost.is_restored) {
            (true, _) => "; it is not used again",
            (_, true) => ", and written anew from their copy",
            _ => "",
        };
        tracing::warn!(
            "memory error: {} bytes at {:#x} lost {how}, of {}{kept}: {items} items ({bytes} bytes) \
             gone with {many} such, nothing doubtful after {:.1} ms, seen to in {:.1} ms",
            lost.length,
            lost.address,
            word(*kind),
            mended.doubtful_for.as_secs_f64() * 1000.0,
            took.as_secs_f64() * 1000.0,
        );
    }
}

/// Starts the thread that sees to losses.
///
/// # Errors
/// If the system refuses a thread.
pub fn start(shared: &Arc<Shared>, mender: Mender) -> std::io::Result<std::thread::JoinHandle<()>> {
    let shared = Arc::clone(shared);
    std::thread::Builder::new()
        .name("coua-mender".to_owned())
        .spawn(move || see_to_losses(&shared, mender))
}
