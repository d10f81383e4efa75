//! A pair of rings as one worker's queue of a namespace.

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::command::{SubmissionEntry, discard_range, judged};
use super::controller::Controller;
use super::dma::DmaMemory;
use super::prp::{self, PAGE_LEN};
use super::rings::{Pair, PairLayout};
use super::shared::{Shared, elapsed_ns};
use super::state::{Fate, QueueState};
use super::task::QueueSpec;
use crate::device::{
    Armed, Command, Completion, Failure, Identity, OpenError, Queue, Rejected, Rejection, Request,
};
use crate::slots::{InFlight, Slots};
use crate::{Buffer, Region};

/// How often requests are looked at for being late.
const LOOK_NS: u64 = 100_000_000;

/// A worker that found so many completions since it last slept is busy: it is spared interrupts.
const BUSY: u32 = 1024;

/// How long a queue that is dropped waits for what is under way.
const DROP_WAIT: Duration = Duration::from_secs(1);

/// A pair of rings.
pub(super) struct NvmeQueue {
    shared: Arc<Shared>,
    identity: Identity,
    number: u16,
    pair: Pair,
    /// The first page of lists.
    lists: usize,
    memory: Arc<DmaMemory>,
    slots: Slots,
    entries: u16,
    /// The controller's, when the rings were made.
    epoch: u32,
    now_ns: u64,
    next_look_ns: u64,
    is_signalled: bool,
    is_armed: bool,
    completed: u32,
}

impl NvmeQueue {
    /// A queue of a device, with room for `depth` requests or what the controller allows.
    ///
    /// # Errors
    /// Where the controller has no more, is gone, or does not answer in time.
    pub(super) fn open(
        shared: &Arc<Shared>,
        identity: &Identity,
        depth: usize,
    ) -> Result<NvmeQueue, OpenError> {
        let controller = &shared.controller;
        if controller.fate() != Fate::Well {
            return Err(OpenError::Removed);
        }
        // One place of a ring stays empty.
        let depth = depth.clamp(1, (controller.capabilities.entries_max - 1).min(1023));
        let entries = u16::try_from(depth + 1).map_err(|_| OpenError::TooSmall)?;
        let layout = PairLayout { entries };
        let buffer = Region::allocate(layout.len() + depth * PAGE_LEN);
        let address = controller
            .hardware
            .map(buffer.region())
            .map_err(OpenError::at("map memory"))?;
        let number = controller.reserve().ok_or(OpenError::System {
            what: "the controller has no more queues",
            error: std::io::ErrorKind::QuotaExceeded.into(),
        })?;
        let memory = Arc::new(DmaMemory::of(buffer, address));
        let pair = Pair::new(
            Arc::clone(&memory),
            layout,
            number,
            &controller.capabilities,
        );
        let mut queue = NvmeQueue {
            shared: Arc::clone(shared),
            identity: identity.clone(),
            number,
            pair,
            lists: layout.len() / PAGE_LEN,
            memory,
            slots: Slots::new(depth),
            entries,
            epoch: controller.epoch(),
            now_ns: 0,
            next_look_ns: 0,
            is_signalled: false,
            is_armed: false,
            completed: 0,
        };
        queue.create();
        let begin = Instant::now();
        let limit =
            Duration::from_nanos(2 * controller.capabilities.ready_ns) + Duration::from_secs(10);
        loop {
            controller.tend(elapsed_ns(begin));
            queue.follow_epoch();
            match controller.queue_state(number) {
                QueueState::Live => return Ok(queue),
                QueueState::Refused => return Err(OpenError::Misbehaves("it refuses a queue")),
                _ if controller.fate() != Fate::Well => return Err(OpenError::Removed),
                _ if begin.elapsed() > limit => return Err(OpenError::TimedOut),
                _ => std::thread::sleep(Duration::from_micros(50)),
            }
        }
    }

    fn controller(&self) -> &Controller {
        &self.shared.controller
    }

    fn create(&self) {
        let (submission, completion) = self.pair.addresses();
        let hardware = &self.controller().hardware;
        let vector = hardware.signal(self.number).map(|_| self.number);
        let spec = QueueSpec {
            submission,
            completion,
            entries: self.entries,
            vector,
        };
        self.controller().create(self.number, spec);
    }

    fn is_live(&self) -> bool {
        self.controller().epoch() == self.epoch
            && self.controller().queue_state(self.number) == QueueState::Live
    }

    /// What a device calls the memory of a transfer.
    fn address_of(&self, buffer: &Buffer, len: usize) -> Option<u64> {
        let from = buffer.base().as_ptr().addr();
        self.shared.regions.iter().find_map(|mapped| {
            let offset = from.checked_sub(mapped.region.address())?;
            (offset + len <= mapped.region.len()).then_some(mapped.address + offset as u64)
        })
    }

    /// What the device shall do, in its own words. Nothing where the memory is not mapped or the command not known.
    fn entry(&self, command: &Command, id: u16) -> Option<SubmissionEntry> {
        let namespace = self.shared.options.namespace;
        let mut entry = SubmissionEntry::of(command, namespace, self.identity.sector_len);
        entry.id = id;
        let list = self.lists + usize::from(id);
        match command {
            Command::Read(transfer) | Command::Write(transfer) => {
                if transfer.buffer.has_replaced_pages() {
                    return None;
                }
                let address = self.address_of(&transfer.buffer, transfer.len)?;
                let entries = prp::entries(address, transfer.len, &self.memory, list);
                (entry.prp1, entry.prp2) = entries;
            }
            Command::Flush => {}
            Command::Discard { sector, sectors } => {
                let range = discard_range(*sector, *sectors).filter(|_| self.shared.can_discard)?;
                let first = list * PAGE_LEN / 8;
                for (word, value) in (first..).zip(range) {
                    self.memory.store(word, value);
                }
                entry.prp1 = self.memory.address_of(first);
            }
        }
        Some(entry)
    }

    /// After the controller was stopped: rings as at the beginning, and a wish for new ones. Requests that were under
    /// way are over; [`NvmeQueue::end_all`] has them.
    fn follow_epoch(&mut self) {
        let epoch = self.controller().epoch();
        if epoch != self.epoch && self.slots.in_flight() == 0 {
            self.epoch = epoch;
            self.pair.reset();
            if self.controller().fate() == Fate::Well {
                self.create();
            }
        }
    }

    /// Ends what was under way when the controller was stopped.
    fn end_all(&mut self, into: &mut Vec<Completion>) {
        let (failure, may_be_written) = match self.controller().fate() {
            Fate::Well => (Failure::TimedOut, false),
            Fate::Gone => (Failure::Removed, false),
            Fate::Wild => (Failure::Removed, true),
        };
        while into.len() < into.capacity() {
            let Some(mut request) = self.slots.take_any() else {
                break;
            };
            if may_be_written {
                std::mem::forget(request.buffer.take());
            }
            into.push(request.completed(Err(failure)));
        }
        self.follow_epoch();
    }

    fn take_answers(&mut self, into: &mut Vec<Completion>) {
        while into.len() < into.capacity() {
            let answer = match self.pair.next() {
                Ok(None) => break,
                Ok(Some(answer)) => answer,
                Err(_) => return self.controller().reset_from(self.epoch, self.now_ns),
            };
            let Some(request) = self.slots.take(u64::from(answer.id)) else {
                // An answer to nothing: whatever else it says is not believed either.
                return self.controller().reset_from(self.epoch, self.now_ns);
            };
            self.completed = self.completed.saturating_add(1);
            into.push(request.completed(judged(answer.status)));
        }
        self.pair.ring(&*self.shared.controller.hardware);
    }

    /// Aborts what is late, and resets the controller where that does not help.
    fn look(&mut self) {
        self.next_look_ns = self.now_ns + LOOK_NS;
        let (now_ns, timeout_ns) = (self.now_ns, self.shared.options.timeout_ns);
        let controller = &self.shared.controller;
        for (id, request) in self.slots.iter_mut() {
            let late_ns = now_ns.saturating_sub(request.since_ns);
            if late_ns > 2 * timeout_ns {
                return controller.reset_from(self.epoch, now_ns);
            }
            if late_ns > timeout_ns && !std::mem::replace(&mut request.is_aborted, true) {
                controller.abort(self.number, id);
            }
        }
        controller.tend(now_ns);
    }

    fn be_signalled(&mut self, is_signalled: bool) -> bool {
        if self.is_signalled != is_signalled {
            let hardware = &self.shared.controller.hardware;
            if hardware.set_signalled(self.number, is_signalled).is_err() {
                return false;
            }
            self.is_signalled = is_signalled;
        }
        true
    }
}

impl Queue for NvmeQueue {
    fn room(&self) -> usize {
        if self.is_live() {
            usize::from(self.entries) - 1 - self.slots.in_flight()
        } else {
            0
        }
    }

    fn in_flight(&self) -> usize {
        self.slots.in_flight()
    }

    fn push(&mut self, request: Request) -> Result<(), Rejected> {
        let why = if self.controller().fate() != Fate::Well {
            Rejection::Removed
        } else if self.room() == 0 {
            Rejection::Full
        } else if !self.identity.allows(&request.command) {
            Rejection::Refused
        } else if let Some(entry) = self.entry(&request.command, self.slots.next_id()) {
            let mut request = InFlight::of(request.token, request.command);
            request.since_ns = self.now_ns;
            let id = self.slots.insert(request);
            debug_assert_eq!(id, entry.id, "the list is that of the slot");
            self.pair.push(&entry);
            return Ok(());
        } else {
            Rejection::Refused
        };
        Err(Rejected { request, why })
    }

    /// What the device knows of memory was said when that was mapped.
    fn follows_replaced_pages(&self) -> bool {
        false
    }

    fn submit(&mut self, now_ns: u64) {
        self.now_ns = now_ns;
        if self.is_live() {
            self.pair.ring(&*self.shared.controller.hardware);
        }
    }

    fn poll(&mut self, now_ns: u64, into: &mut Vec<Completion>) -> usize {
        self.now_ns = now_ns;
        if std::mem::take(&mut self.is_armed) {
            if let Some(event) = self.shared.controller.hardware.signal(self.number) {
                let _ = rustix::io::read(event, &mut [0; 8]);
            }
            if self.completed > BUSY {
                self.be_signalled(false);
            }
        }
        let before = into.len();
        if self.controller().epoch() == self.epoch {
            self.take_answers(into);
        } else {
            self.end_all(into);
        }
        if now_ns >= self.next_look_ns {
            self.look();
        } else if self.controller().needs_tending() {
            self.controller().tend(now_ns);
        }
        into.len() - before
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.shared.controller.hardware.signal(self.number)
    }

    fn arm(&mut self) -> Armed {
        let is_troubled = !self.is_live() || self.controller().needs_tending();
        if is_troubled || self.descriptor().is_none() || !self.be_signalled(true) {
            return Armed::Poll;
        }
        (self.is_armed, self.completed) = (true, 0);
        if self.pair.has_answer() {
            Armed::Ready
        } else {
            Armed::Sleep
        }
    }
}

impl Drop for NvmeQueue {
    fn drop(&mut self) {
        let (begin, before_ns) = (Instant::now(), self.now_ns);
        let mut done = Vec::with_capacity(usize::from(self.entries));
        self.pair.ring(&*self.shared.controller.hardware);
        let mut turn = |queue: &mut NvmeQueue| {
            done.clear();
            queue.poll(before_ns + elapsed_ns(begin), &mut done);
            std::thread::sleep(Duration::from_micros(20));
        };
        while self.slots.in_flight() > 0 && begin.elapsed() < DROP_WAIT {
            turn(self);
        }
        let _ = self.be_signalled(false);
        // Once the queue is gone, or the controller was stopped, its memory is reached no more.
        let epoch = self.controller().epoch();
        let is_over = |queue: &NvmeQueue| {
            let controller = queue.controller();
            let is_stopped = controller.epoch() != epoch || epoch != queue.epoch;
            is_stopped
                || controller.fate() != Fate::Well
                || controller.queue_state(queue.number) == QueueState::Absent
        };
        if controller_has_it(self) {
            self.controller().delete(self.number);
        }
        let limit = DROP_WAIT + Duration::from_nanos(self.controller().capabilities.ready_ns);
        let mut has_reset = false;
        while !is_over(self) && begin.elapsed() < DROP_WAIT + 2 * limit {
            self.controller().tend(before_ns + elapsed_ns(begin));
            if begin.elapsed() > limit && !std::mem::replace(&mut has_reset, true) {
                self.controller()
                    .reset_from(epoch, before_ns + elapsed_ns(begin));
            }
            std::thread::sleep(Duration::from_micros(20));
        }
        if !is_over(self) || self.controller().fate() == Fate::Wild {
            self.slots.leak();
            std::mem::forget(Arc::clone(&self.memory));
        }
        self.controller().forget_queue(self.number);
    }
}

/// Whether the controller knows the queue.
fn controller_has_it(queue: &NvmeQueue) -> bool {
    queue.controller().queue_state(queue.number) == QueueState::Live && queue.is_live()
}
