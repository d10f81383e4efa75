//! Keeps EAL's interrupt thread out while a queue is in a burst.
//!
//! A memif device shares rings with its peer. As soon as the peer's socket is closed, EAL's
//! interrupt thread unmaps them, even while a worker reads from them. A worker that is in a burst
//! at that moment, or was preempted in one, touches memory that is gone. DPDK has no lock against
//! this. So coua gives the interrupt thread a callback, which it calls each time round its loop.
//! The thread spends its time there, and leaves to serve its events only while no queue is in a
//! burst:
//!
//! ```text
//! interrupt thread  ──[ callback: sleeps  ]──wait for bursts──( events )──[ callback: sleeps ]──
//! worker            ──burst──burst──burst──burst──│ bursts refused  │──burst──burst──
//! ```
//!
//! Events wait for up to [`INTERVAL`], and a worker waits for the microseconds that serving them
//! takes. Other drivers synchronise themselves and do not need this.
//!
//! # Concurrency
//! Each side announces itself and then checks whether the other has (Dekker's algorithm): a worker
//! stores `busy` and loads `events_run`; the interrupt thread stores `events_run` and loads `busy`.
//! If a side's store could be seen only after its load, both could enter. The worker does this
//! millions of times a second and the interrupt thread a hundred times. So the interrupt thread
//! pays for the fences of both: `membarrier` executes one on every running thread of the process.
#![expect(unsafe_code, reason = "registers the callback")]

use std::ffi::c_void;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering, compiler_fence};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use coua_dpdk_sys as sys;
use rustix::thread::{MembarrierCommand, membarrier};

/// The longest time that events wait.
const INTERVAL: Duration = Duration::from_millis(10);

/// How long they wait while a link is down: connecting takes a dozen events.
const INTERVAL_LINK_DOWN: Duration = Duration::from_millis(1);

/// How often the interrupt thread spins for a burst to end before it yields its CPU.
const SPINS: u32 = 1000;

/// The most queues, and ports that are being closed.
const SLOTS: usize = 256;

const FREE: u32 = u32::MAX;

static GATE: Gate = Gate {
    events_run: AtomicBool::new(true),
    slots: [const { GateSlot::new() }; SLOTS],
};

/// Whether the callback is registered.
static IS_RUNNING: Mutex<bool> = Mutex::new(false);

struct Gate {
    /// The interrupt thread serves events, or may begin to.
    events_run: AtomicBool,
    slots: [GateSlot; SLOTS],
}

/// One queue's state, on a cache line of its own.
#[repr(align(128))]
struct GateSlot {
    /// The port's number, or [`FREE`].
    port: AtomicU32,
    /// The queue is in a burst.
    busy: AtomicBool,
}

/// A queue's right to ask for entry. It is used by one thread at a time.
pub(super) struct Pass {
    slot: &'static GateSlot,
}

/// While this lives, no event is served.
pub(super) struct Inside<'p> {
    slot: Option<&'p GateSlot>,
}

impl GateSlot {
    const fn new() -> GateSlot {
        GateSlot {
            port: AtomicU32::new(FREE),
            busy: AtomicBool::new(false),
        }
    }
}

impl Pass {
    /// Takes a pass for a queue of `port`. The first one sets up the gate for the rest of the
    /// process's life.
    pub(super) fn take(port: u16) -> io::Result<Pass> {
        let mut is_running = IS_RUNNING.lock().unwrap_or_else(PoisonError::into_inner);
        if !*is_running {
            membarrier(MembarrierCommand::RegisterPrivateExpedited)?;
            register()?;
            *is_running = true;
        }
        for slot in &GATE.slots {
            let (port, relaxed) = (u32::from(port), Ordering::Relaxed);
            if slot
                .port
                .compare_exchange(FREE, port, relaxed, relaxed)
                .is_ok()
            {
                return Ok(Pass { slot });
            }
        }
        Err(io::ErrorKind::QuotaExceeded.into())
    }

    /// Enters, unless events are being served.
    #[inline]
    pub(super) fn enter(&self) -> Option<Inside<'_>> {
        self.slot.busy.store(true, Ordering::Relaxed);
        // The processor's half of this fence is the other side's `membarrier`.
        compiler_fence(Ordering::SeqCst);
        // Acquire: the burst sees what earlier events have done to the device.
        if GATE.events_run.load(Ordering::Acquire) {
            self.slot.busy.store(false, Ordering::Release);
            return None;
        }
        Some(Inside {
            slot: Some(self.slot),
        })
    }

    /// Enters as soon as events have been served.
    pub(super) fn wait(&self) -> Inside<'_> {
        loop {
            if let Some(inside) = self.enter() {
                return inside;
            }
            thread::sleep(Duration::from_micros(20));
        }
    }
}

impl Drop for Pass {
    fn drop(&mut self) {
        self.slot.port.store(FREE, Ordering::Relaxed);
    }
}

impl Inside<'_> {
    /// For a device that needs no gate.
    #[inline]
    pub(super) fn always() -> Inside<'static> {
        Inside { slot: None }
    }
}

impl Drop for Inside<'_> {
    #[inline]
    fn drop(&mut self) {
        if let Some(slot) = self.slot {
            // Release: the burst's last access comes before the events, which may unmap its memory.
            slot.busy.store(false, Ordering::Release);
        }
    }
}

impl Gate {
    fn close_to_events(&self) {
        // Release: whoever enters from now on sees what the events have done.
        self.events_run.store(false, Ordering::Release);
    }

    fn open_to_events(&self) {
        self.events_run.store(true, Ordering::SeqCst);
        // It cannot fail, because the process has registered for it.
        let _ = membarrier(MembarrierCommand::PrivateExpedited);
        for slot in &self.slots {
            let mut spins = 0;
            // Acquire: pairs with the Release at the end of a burst.
            while slot.busy.load(Ordering::Acquire) {
                spins += 1;
                if spins < SPINS {
                    std::hint::spin_loop();
                } else {
                    // The worker may be waiting for this CPU.
                    thread::sleep(Duration::from_micros(20));
                }
            }
        }
    }

    /// How long events have to wait.
    fn interval(&self) -> Duration {
        let ports = self
            .slots
            .iter()
            .map(|slot| slot.port.load(Ordering::Relaxed));
        let mut ports = ports.filter_map(|port| u16::try_from(port).ok());
        let is_down = |port| {
            let mut link = sys::LinkState::default();
            sys::coua_port_link(port, &mut link) == 0 && link.is_up == 0
        };
        if ports.any(is_down) {
            INTERVAL_LINK_DOWN
        } else {
            INTERVAL
        }
    }
}

/// Runs on the interrupt thread, which serves its events between two calls of this.
extern "C" fn hold_events(_: *mut c_void) {
    GATE.close_to_events();
    thread::sleep(GATE.interval());
    GATE.open_to_events();
}

fn register() -> io::Result<()> {
    // SAFETY: the callback uses only statics, and ignores its argument.
    let result = unsafe { sys::coua_call_each_round(hold_events, std::ptr::null_mut()) };
    if result < 0 {
        return Err(io::Error::from_raw_os_error(-result));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU64;

    use super::*;

    /// Two plain counters that only an exclusive section keeps equal.
    #[test]
    fn bursts_and_events_exclude_each_other() {
        static LEFT: AtomicU64 = AtomicU64::new(0);
        static RIGHT: AtomicU64 = AtomicU64::new(0);
        let step = || {
            let left = LEFT.load(Ordering::Relaxed);
            let right = RIGHT.load(Ordering::Relaxed);
            assert_eq!(left, right);
            LEFT.store(left + 1, Ordering::Relaxed);
            RIGHT.store(right + 1, Ordering::Relaxed);
        };
        membarrier(MembarrierCommand::RegisterPrivateExpedited).expect("Linux 4.14 or newer");
        let pass = Pass {
            slot: &GATE.slots[SLOTS - 1],
        };
        let is_over = AtomicBool::new(false);
        let (bursts, events) = thread::scope(|scope| {
            let worker = scope.spawn(|| {
                let mut bursts = 0_u64;
                while !is_over.load(Ordering::Relaxed) {
                    if let Some(_inside) = pass.enter() {
                        step();
                        bursts += 1;
                    }
                }
                bursts
            });
            let mut events = 0_u64;
            for _ in 0..20_000 {
                GATE.close_to_events();
                for _ in 0..100 {
                    std::hint::spin_loop();
                }
                GATE.open_to_events();
                step();
                events += 1;
            }
            GATE.close_to_events();
            is_over.store(true, Ordering::Relaxed);
            (worker.join().expect("the counters are equal"), events)
        });
        assert!(bursts > 0, "the worker never entered");
        assert_eq!(LEFT.load(Ordering::Relaxed), bursts + events);
    }
}
