//! What all parts of a run share: the network, the time, the server's counters, the trace.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::io::Write;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use coua::shared::Shared;
use coua_transport::simulated::Network;

use crate::plan::Plan;

/// Lines of the trace that are kept to explain a failure.
const LINES_KEPT: usize = 60;

/// See the module.
pub(crate) struct Scene {
    pub(crate) plan: Rc<Plan>,
    pub(crate) network: Network,
    pub(crate) shared: Arc<Shared>,
    /// Milliseconds since the start.
    pub(crate) clock: Arc<AtomicU64>,
    /// Rounds so far.
    pub(crate) round: Cell<u64>,
    /// Connections that the server closed of its own accord, as clients saw it.
    pub(crate) closed_by_server: Cell<u64>,
    pub(crate) record: Record,
}

/// What happened: a hash of everything, and the last lines.
pub(crate) struct Record {
    hash: Cell<u64>,
    lines: RefCell<VecDeque<String>>,
    is_loud: bool,
}

impl Scene {
    pub(crate) fn now_ms(&self) -> u64 {
        self.clock.load(Relaxed)
    }

    /// The wall clock, in seconds.
    pub(crate) fn second(&self) -> u32 {
        self.shared.clock.now().unix.0
    }

    pub(crate) fn advance(&self, ms: u64) {
        self.clock.fetch_add(ms, Relaxed);
    }

    /// Whether the server has closed a connection of its own accord and no client has noticed yet.
    pub(crate) fn may_have_closed(&self) -> bool {
        let counts = self.shared.counts();
        self.closed_by_server.get()
            < counts.idle_kicks + counts.connections_shed + counts.rejected_connections
    }

    /// A client found its connection closed by the server. Whether the server has counted why.
    pub(crate) fn excuses_closing(&self) -> bool {
        let is_counted = self.may_have_closed();
        self.closed_by_server.set(self.closed_by_server.get() + 1);
        is_counted
    }

    pub(crate) fn say(&self, line: impl FnOnce() -> String) {
        self.record.say(self.round.get(), self.now_ms(), line);
    }
}

impl Record {
    pub(crate) fn new(is_loud: bool) -> Record {
        Record {
            hash: Cell::new(0xcbf2_9ce4_8422_2325),
            lines: RefCell::default(),
            is_loud,
        }
    }

    /// Takes bytes into the hash.
    pub(crate) fn take(&self, bytes: &[u8]) {
        let hash = bytes.chunks(8).fold(self.hash.get(), |hash, chunk| {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            (hash ^ u64::from_le_bytes(word))
                .wrapping_mul(0x0100_0000_01b3)
                .rotate_left(23)
        });
        self.hash.set(hash);
    }

    pub(crate) fn hash(&self) -> u64 {
        self.hash.get()
    }

    fn say(&self, round: u64, ms: u64, line: impl FnOnce() -> String) {
        let line = format!("{round:>6} {:>9}.{:03} {}", ms / 1000, ms % 1000, line());
        if self.is_loud {
            // Standard error may be closed; that is no reason to stop.
            let _ = writeln!(std::io::stderr(), "{line}");
        }
        let mut lines = self.lines.borrow_mut();
        if lines.len() == LINES_KEPT {
            lines.pop_front();
        }
        lines.push_back(line);
    }

    /// The last lines.
    pub(crate) fn lines(&self) -> String {
        let lines: Vec<String> = self.lines.borrow().iter().cloned().collect();
        lines.join("\n")
    }
}
