//! Keeps EAL's interrupt thread out while a queue is in a burst.
//!
//! A memif device unmaps the rings that it shares with its peer in EAL's interrupt thread, as soon
//! as the peer's socket is closed, whether or not a worker is reading from them. A worker that is
//! in a burst at that moment, or is put off the CPU in one, touches memory that is gone. DPDK has
//! no lock for that. So the interrupt thread spends its time in a callback of ours, called each time
//! round its loop, and comes out to serve its events only while no queue is in a burst:
//!
//! ```text
//! interrupt thread  ──[ callback: sleeps  ]──wait for bursts──( events )──[ callback: sleeps ]──
//! worker            ──burst──burst──burst──burst──│ bursts refused  │──burst──burst──
//! ```
//!
//! Events wait for up to [`INTERVAL`], and a worker for the microseconds that it takes to serve
//! them. Other drivers synchronise by themselves and do not come here.
//!
//! # Concurrency
//! Each side announces itself and then looks whether the other has (Dekker): a worker stores `busy`
//! and loads `events_run`, the interrupt thread stores `events_run` and loads `busy`. Were a store
//! seen by the other side only after the load that follows it, both could enter. The worker does so
//! millions of times a second and the interrupt thread a hundred times, so that the fence of both
//! is paid by the interrupt thread: `membarrier` puts one into every running thread of the process.
#![expect(unsafe_code, reason = "registers the callback")]

use std::ffi::c_void;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering, compiler_fence};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use coua_dpdk_sys as sys;
use rustix::thread::{MembarrierCommand, membarrier};

/// How long events wait at most.
const INTERVAL: Duration = Duration::from_millis(10);

/// How long they wait while a link is down: it takes a dozen to connect.
const INTERVAL_LINK_DOWN: Duration = Duration::from_millis(1);

/// Spins for a burst to end before the interrupt thread gives its CPU away.
const SPINS: u32 = 1000;

/// Queues, and ports that are being closed, at most.
const SLOTS: usize = 256;

const FREE: u32 = u32::MAX;

static GATE: Gate = Gate {
    events_run: AtomicBool::new(true),
    slots: [const { GateSlot::new() }; SLOTS],
};

/// Whether the callback is registered.
static IS_RUNNING: Mutex<bool> = Mutex::new(false);

struct Gate {
    /// The interrupt thread serves events, or may.
    events_run: AtomicBool,
    slots: [GateSlot; SLOTS],
}

/// On a cache line of its own.
#[repr(align(128))]
struct GateSlot {
    /// The port's number, or [`FREE`].
    port: AtomicU32,
    /// In a burst.
    busy: AtomicBool,
}

/// The right of one queue to ask for entry. One thread at a time uses it.
pub(super) struct Pass {
    slot: &'static GateSlot,
}

/// No event is served while it lives.
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
    /// Takes a pass for a queue of `port`. The first sets the gate up, for the process's life.
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
        // The processor's half of the fence is the other side's `membarrier`.
        compiler_fence(Ordering::SeqCst);
        // Acquire: what events have done to the device before is seen in the burst.
        if GATE.events_run.load(Ordering::Acquire) {
            self.slot.busy.store(false, Ordering::Release);
            return None;
        }
        Some(Inside {
            slot: Some(self.slot),
        })
    }

    /// Enters, when events have been served.
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
    /// Of a device that needs no gate.
    #[inline]
    pub(super) fn always() -> Inside<'static> {
        Inside { slot: None }
    }
}

impl Drop for Inside<'_> {
    #[inline]
    fn drop(&mut self) {
        if let Some(slot) = self.slot {
            // Release: the burst's last access comes before the events that may unmap its memory.
            slot.busy.store(false, Ordering::Release);
        }
    }
}

impl Gate {
    fn close_to_events(&self) {
        // Release: what events have done is seen by who enters from now on.
        self.events_run.store(false, Ordering::Release);
    }

    fn open_to_events(&self) {
        self.events_run.store(true, Ordering::SeqCst);
        // The process has registered for it, so it does not fail.
        let _ = membarrier(MembarrierCommand::PrivateExpedited);
        for slot in &self.slots {
            let mut spins = 0;
            // Acquire: pairs with the release at the end of a burst.
            while slot.busy.load(Ordering::Acquire) {
                spins += 1;
                if spins < SPINS {
                    std::hint::spin_loop();
                } else {
                    // The worker may be waiting for this very CPU.
                    thread::sleep(Duration::from_micros(20));
                }
            }
        }
    }

    /// How long events are to wait.
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

/// Runs in the interrupt thread, which serves its events after it has returned and before it is
/// called again.
extern "C" fn hold_events(_: *mut c_void) {
    GATE.close_to_events();
    thread::sleep(GATE.interval());
    GATE.open_to_events();
}

fn register() -> io::Result<()> {
    // SAFETY: the callback uses statics alone, and ignores what it is called with.
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
