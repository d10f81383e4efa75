//! Memory pressure: coua takes less of the machine's memory while others lack some, where
//! `-o memory_pressure` asks for that.
//!
//! A thread of its own waits for the kernel to report pressure ([`source`]), a policy says how much
//! memory to hold back ([`policy`]), and the store's limit follows. What `-m` or `cache_memlimit` has
//! set stays the goal: coua returns to it once the pressure is over.

mod policy;
mod source;

use std::io;
use std::sync::Arc;
use std::thread::Builder;
use std::time::{Duration, Instant};

use crate::flags::PressureSettings;
use crate::shared::Shared;
use policy::Policy;
use source::Source;

/// How often to look when nothing is reported.
const PAUSE: Duration = Duration::from_secs(1);

/// Follows the memory pressure until the server stops, on a thread of its own. Without
/// `-o memory_pressure` there is none.
///
/// # Errors
/// The kernel does not report memory pressure, or there is no thread.
pub fn watch(shared: &Arc<Shared>) -> io::Result<()> {
    let Some(settings) = shared.settings.pressure else {
        return Ok(());
    };
    let source = Source::open(settings.stall_ms)?;
    tracing::info!("memory pressure: watching {}", source.name());
    let shared = Arc::clone(shared);
    let thread = Builder::new().name("coua-pressure".to_owned());
    thread
        .spawn(move || follow(&shared, settings, source))
        .map(drop)
}

fn follow(shared: &Shared, settings: PressureSettings, mut source: Source) {
    let began = Instant::now();
    let mut policy = Policy::new(settings.floor, settings.step);
    while !shared.is_stopping() {
        let is_pressed = match source.wait(PAUSE) {
            Ok(is_pressed) => is_pressed,
            Err(error) => {
                tracing::error!("memory pressure: {}: {error}", source.name());
                shared.hold_memory_back(0);
                return;
            }
        };
        let held_back = policy.observe(began.elapsed(), shared.memory(), is_pressed);
        shared.hold_memory_back(held_back);
    }
}
