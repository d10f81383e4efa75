//! Bringing a controller up, asking it for queues, and what is done when it does not answer.
//!
//! ```text
//!             disable                 ready bit clear            ready bit set
//! (start) ──────────────▶ Disabling ──────────────────▶ Enabling ──────────────▶ Running
//!                            ▲ reset: no answer, a fatal status, or a lie          │
//!                            └─────────────────────────────────────────────────────┘
//!                         any ──▶ Gone: removed, or does not come back
//! ```
//! No step waits: [`Controller::tend`] looks at the registers and goes on when it can. Any worker calls it while there is
//! something to do; one at a time, the others pass by. When the ready bit is clear, the device reaches no memory any more,
//! and the epoch changes: every queue then ends what it had under way, and asks to be made again.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};

use super::command::halves;
use super::dma::DmaMemory;
use super::hardware::Hardware;
use super::identify::IDENTIFY_LEN;
use super::registers::{
    ACQ, AQA, ASQ, CC, CSTS, Capabilities, ENABLE, FATAL, GONE, READY, SHUT_DOWN, SHUTDOWN,
    SHUTDOWN_DONE,
};
use super::rings::{Pair, PairLayout};
use super::state::{Fate, QueueState};
use super::task::{QueueSpec, Task};
use crate::Region;
use crate::device::OpenError;

/// Entries of the admin queues.
const ADMIN_ENTRIES: u16 = 16;

/// How long an admin command may take.
const ADMIN_NS: u64 = 5_000_000_000;

/// How often a running controller's status is looked at.
const LOOK_NS: u64 = 100_000_000;

/// A controller that was reset so often without a command in between that was answered is given up.
const RESETS_MAX: u32 = 3;

const WELL: u32 = 0;
const QUIET: u32 = 1;
const WILD: u32 = 2;

/// A controller, shared by the queues of all workers.
pub(super) struct Controller {
    pub(super) hardware: Arc<dyn Hardware>,
    pub(super) capabilities: Capabilities,
    /// Changes whenever the controller was stopped: what was under way before is over.
    epoch: AtomicU32,
    fate: AtomicU32,
    is_running: AtomicBool,
    /// Whether somebody shall call [`Controller::tend`] soon.
    needs_tending: AtomicBool,
    queues: Box<[AtomicU32]>,
    admin: Mutex<Admin>,
}

struct Admin {
    phase: Phase,
    pair: Pair,
    memory: Arc<DmaMemory>,
    /// Where answers to identify are.
    answer_word: usize,
    tasks: VecDeque<Task>,
    pending: Option<(Task, u16, u64)>,
    next_id: u16,
    next_look_ns: u64,
    resets: u32,
    is_to_end: bool,
    /// How the rings of each queue lie.
    specs: Vec<Option<QueueSpec>>,
    answers: Vec<Result<Box<[u8; IDENTIFY_LEN]>, u16>>,
    /// How many queues the controller gives.
    granted: Option<u16>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Disabling { until_ns: u64 },
    Enabling { until_ns: u64 },
    Running,
    Over,
}

impl Controller {
    /// A controller that is about to be brought up, for at most `queues_max` queues.
    ///
    /// # Errors
    /// Where it cannot do what is needed, or memory cannot be mapped.
    pub(super) fn new(
        hardware: Arc<dyn Hardware>,
        queues_max: u16,
        now_ns: u64,
    ) -> Result<Controller, OpenError> {
        let capabilities = Capabilities::read(&*hardware)?;
        let queues = capabilities
            .queues_max(hardware.len())
            .min(usize::from(queues_max));
        if queues == 0 {
            return Err(OpenError::Misbehaves("no room for doorbells"));
        }
        let layout = PairLayout {
            entries: ADMIN_ENTRIES,
        };
        let buffer = Region::allocate(layout.len() + IDENTIFY_LEN);
        let address = hardware
            .map(buffer.region())
            .map_err(OpenError::at("map memory"))?;
        let memory = Arc::new(DmaMemory::of(buffer, address));
        let pair = Pair::new(Arc::clone(&memory), layout, 0, &capabilities);
        let admin = Admin {
            phase: Phase::Over,
            pair,
            memory,
            answer_word: layout.len() / 8,
            tasks: VecDeque::new(),
            pending: None,
            next_id: 0,
            next_look_ns: now_ns,
            resets: 0,
            is_to_end: false,
            specs: vec![None; queues + 1],
            answers: Vec::new(),
            granted: None,
        };
        let controller = Controller {
            hardware,
            capabilities,
            epoch: AtomicU32::new(0),
            fate: AtomicU32::new(WELL),
            is_running: AtomicBool::new(false),
            needs_tending: AtomicBool::new(true),
            queues: (0..=queues)
                .map(|_| AtomicU32::new(QueueState::Absent as u32))
                .collect(),
            admin: Mutex::new(admin),
        };
        controller.reset(&mut controller.admin(), now_ns);
        Ok(controller)
    }

    pub(super) fn epoch(&self) -> u32 {
        self.epoch.load(Ordering::Acquire)
    }

    pub(super) fn fate(&self) -> Fate {
        match self.fate.load(Ordering::Acquire) {
            WELL => Fate::Well,
            QUIET => Fate::Gone,
            _ => Fate::Wild,
        }
    }

    pub(super) fn needs_tending(&self) -> bool {
        self.needs_tending.load(Ordering::Relaxed)
    }

    pub(super) fn queue_state(&self, queue: u16) -> QueueState {
        let state = self.queues.get(usize::from(queue));
        state.map_or(QueueState::Refused, |it| {
            QueueState::of(it.load(Ordering::Acquire))
        })
    }

    /// Takes a number that no queue has.
    pub(super) fn reserve(&self) -> Option<u16> {
        let granted = self.admin().granted.unwrap_or(0);
        let (absent, wanted) = (QueueState::Absent as u32, QueueState::Wanted as u32);
        (1..=granted).find(|&queue| {
            let state = self.queues.get(usize::from(queue));
            state.is_some_and(|it| {
                let order = Ordering::AcqRel;
                it.compare_exchange(absent, wanted, order, Ordering::Relaxed)
                    .is_ok()
            })
        })
    }

    /// Asks for a reserved queue, or one that a reset has taken, to be made.
    pub(super) fn create(&self, queue: u16, spec: QueueSpec) {
        let mut admin = self.admin();
        admin.specs[usize::from(queue)] = Some(spec);
        self.set(queue, QueueState::Wanted);
        admin.tasks.push_back(Task::CreateCompletion(queue));
        self.needs_tending.store(true, Ordering::Relaxed);
    }

    /// Asks for a queue to be taken away. It is once its state is `Absent`.
    pub(super) fn delete(&self, queue: u16) {
        let mut admin = self.admin();
        self.set(queue, QueueState::Leaving);
        admin.tasks.push_back(Task::DeleteSubmission(queue));
        self.needs_tending.store(true, Ordering::Relaxed);
    }

    /// Frees the number of a queue whose owner is gone.
    pub(super) fn forget_queue(&self, queue: u16) {
        let mut admin = self.admin();
        let of_queue = |task: &Task| matches!(task, Task::CreateCompletion(it) | Task::CreateSubmission(it) if *it == queue);
        admin.tasks.retain(|task| !of_queue(task));
        admin.specs[usize::from(queue)] = None;
        self.set(queue, QueueState::Absent);
    }

    /// Asks for a command to be aborted.
    pub(super) fn abort(&self, queue: u16, id: u16) {
        self.admin().tasks.push_back(Task::Abort { queue, id });
        self.needs_tending.store(true, Ordering::Relaxed);
    }

    /// Stops the controller and starts it again: a command does not come back, or the device has lied. Only once for the
    /// `epoch` in which that was seen.
    pub(super) fn reset_from(&self, epoch: u32, now_ns: u64) {
        let mut admin = self.admin();
        if self.epoch() == epoch && matches!(admin.phase, Phase::Running) {
            self.reset(&mut admin, now_ns);
        }
    }

    /// Asks the controller of itself (`what` 1) or of a namespace (0), while it is opened.
    ///
    /// # Errors
    /// Where it does not answer in time, or refuses.
    pub(super) fn identify(
        &self,
        namespace: u32,
        what: u32,
        clock: &mut dyn FnMut() -> u64,
    ) -> Result<Box<[u8; IDENTIFY_LEN]>, OpenError> {
        self.admin()
            .tasks
            .push_back(Task::Identify { namespace, what });
        self.tend_until(clock, |admin| admin.answers.pop())?
            .map_err(|_| OpenError::Misbehaves("it refuses to identify itself"))
    }

    /// Brings it up, and gives how many queues it has.
    ///
    /// # Errors
    /// Where it does not come up in time.
    pub(super) fn start(&self, clock: &mut dyn FnMut() -> u64) -> Result<u16, OpenError> {
        self.tend_until(clock, |admin| admin.granted)
    }

    fn tend_until<T>(
        &self,
        clock: &mut dyn FnMut() -> u64,
        until: impl Fn(&mut Admin) -> Option<T>,
    ) -> Result<T, OpenError> {
        let begin_ns = clock();
        // Stopping, starting, and a command or two.
        let limit_ns = 2 * self.capabilities.ready_ns + 2 * ADMIN_NS;
        loop {
            let now_ns = clock();
            self.tend(now_ns);
            if let Some(result) = until(&mut self.admin()) {
                return Ok(result);
            }
            if self.fate() != Fate::Well {
                return Err(OpenError::Removed);
            }
            if now_ns.saturating_sub(begin_ns) > limit_ns {
                return Err(OpenError::TimedOut);
            }
        }
    }

    /// Does what can be done now. Cheap where there is nothing.
    pub(super) fn tend(&self, now_ns: u64) {
        let mut admin = match self.admin.try_lock() {
            Ok(admin) => admin,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            // Somebody else tends.
            Err(TryLockError::WouldBlock) => return,
        };
        // Each step leads to the next at once, where the device is quick.
        for _ in 0..8 {
            let before = (admin.phase, admin.pending, admin.tasks.len());
            self.step(&mut admin, now_ns);
            if before == (admin.phase, admin.pending, admin.tasks.len()) {
                break;
            }
        }
        let is_idle = matches!(admin.phase, Phase::Running | Phase::Over)
            && admin.pending.is_none()
            && admin.tasks.is_empty();
        self.needs_tending.store(!is_idle, Ordering::Relaxed);
    }

    fn step(&self, admin: &mut Admin, now_ns: u64) {
        match admin.phase {
            Phase::Over => {}
            Phase::Disabling { until_ns } => {
                let status = self.hardware.load(CSTS);
                if status == GONE {
                    self.end(admin, QUIET);
                } else if status & READY == 0 {
                    self.stopped(admin, now_ns);
                } else if now_ns > until_ns {
                    match self.hardware.reset() {
                        Ok(()) => self.stopped(admin, now_ns),
                        Err(_) => self.end(admin, WILD),
                    }
                }
            }
            Phase::Enabling { until_ns } => {
                let status = self.hardware.load(CSTS);
                if status == GONE {
                    self.end(admin, QUIET);
                } else if status & FATAL != 0 || now_ns > until_ns {
                    self.reset(admin, now_ns);
                } else if status & READY != 0 {
                    admin.phase = Phase::Running;
                    admin.tasks.push_front(Task::SetQueues);
                    self.is_running.store(true, Ordering::Release);
                }
            }
            Phase::Running => self.run(admin, now_ns),
        }
    }

    /// The device reaches no memory.
    fn stopped(&self, admin: &mut Admin, now_ns: u64) {
        self.epoch.fetch_add(1, Ordering::AcqRel);
        self.forget(admin);
        if admin.is_to_end || admin.resets > RESETS_MAX {
            self.end(admin, QUIET);
            return;
        }
        admin.pair.reset();
        let (submission, completion) = admin.pair.addresses();
        let len = u32::from(ADMIN_ENTRIES - 1);
        self.hardware.store(AQA, len | len << 16);
        for (at, address) in [(ASQ, submission), (ACQ, completion)] {
            let [low, high] = halves(address);
            self.hardware.store(at, low);
            self.hardware.store(at + 4, high);
        }
        self.hardware.store(CC, ENABLE);
        admin.phase = Phase::Enabling {
            until_ns: now_ns + self.capabilities.ready_ns,
        };
    }

    fn reset(&self, admin: &mut Admin, now_ns: u64) {
        admin.resets += 1;
        // An answer at the start that does not come is asked for again.
        if let Some((task @ Task::Identify { .. }, ..)) = admin.pending.take() {
            admin.tasks.push_back(task);
        }
        self.forget(admin);
        self.is_running.store(false, Ordering::Release);
        self.hardware.store(CC, 0);
        admin.phase = Phase::Disabling {
            until_ns: now_ns + self.capabilities.ready_ns,
        };
        self.needs_tending.store(true, Ordering::Relaxed);
    }

    /// Queues that a controller that is stopped does not have any more. Their owners ask again when the epoch changes;
    /// who waits for an answer at the start still does.
    fn forget(&self, admin: &mut Admin) {
        admin
            .tasks
            .retain(|task| matches!(task, Task::Identify { .. }));
        for (queue, state) in (0u16..).zip(&self.queues) {
            match QueueState::of(state.load(Ordering::Acquire)) {
                QueueState::Leaving => self.set(queue, QueueState::Absent),
                QueueState::Live => self.set(queue, QueueState::Wanted),
                QueueState::Wanted | QueueState::Absent | QueueState::Refused => {}
            }
        }
    }

    fn end(&self, admin: &mut Admin, fate: u32) {
        admin.phase = Phase::Over;
        admin.tasks.clear();
        admin.pending = None;
        self.is_running.store(false, Ordering::Release);
        self.fate.store(fate, Ordering::Release);
        self.epoch.fetch_add(1, Ordering::AcqRel);
    }

    fn run(&self, admin: &mut Admin, now_ns: u64) {
        if now_ns >= admin.next_look_ns {
            admin.next_look_ns = now_ns + LOOK_NS;
            let status = self.hardware.load(CSTS);
            if status == GONE {
                return self.end(admin, QUIET);
            }
            let is_wanted_back = self.hardware.is_wanted_back();
            admin.is_to_end |= is_wanted_back;
            if is_wanted_back || status & FATAL != 0 || status & READY == 0 {
                return self.reset(admin, now_ns);
            }
        }
        if let Some((task, id, until_ns)) = admin.pending {
            match admin.pair.next() {
                Ok(Some(answer)) if answer.id == id => {
                    admin.pair.ring(&*self.hardware);
                    admin.pending = None;
                    admin.resets = 0;
                    self.answered(admin, task, answer.status, answer.result);
                }
                Ok(None) if now_ns <= until_ns => {}
                Ok(_) | Err(_) => self.reset(admin, now_ns),
            }
        } else if let Some(task) = admin.tasks.pop_front() {
            self.ask(admin, task, now_ns);
        }
    }

    fn ask(&self, admin: &mut Admin, task: Task, now_ns: u64) {
        let answer = admin.memory.address_of(admin.answer_word);
        let Some(mut entry) = task.entry(&admin.specs, answer, self.queues.len() - 1) else {
            return;
        };
        entry.id = admin.next_id;
        admin.next_id = admin.next_id.wrapping_add(1);
        admin.pair.push(&entry);
        admin.pair.ring(&*self.hardware);
        admin.pending = Some((task, entry.id, now_ns + ADMIN_NS));
    }

    fn answered(&self, admin: &mut Admin, task: Task, status: u16, result: u32) {
        let is_well = status & 0x7ff == 0;
        match task {
            Task::Identify { .. } if is_well => {
                let mut answer = Box::new([0; IDENTIFY_LEN]);
                for (word, bytes) in (admin.answer_word..).zip(answer.chunks_exact_mut(8)) {
                    bytes.copy_from_slice(&admin.memory.load(word).to_le_bytes());
                }
                admin.answers.push(Ok(answer));
            }
            Task::Identify { .. } => admin.answers.push(Err(status)),
            Task::SetQueues => {
                // Each half is counted from 0.
                let least = (result & 0xffff).min(result >> 16) as usize + 1;
                let granted = if is_well {
                    least.min(self.queues.len() - 1)
                } else {
                    1
                };
                admin.granted = u16::try_from(granted).ok();
            }
            Task::CreateCompletion(queue) if is_well => {
                admin.tasks.push_front(Task::CreateSubmission(queue));
            }
            Task::CreateSubmission(queue) if is_well => self.set(queue, QueueState::Live),
            Task::CreateCompletion(queue) | Task::CreateSubmission(queue) => {
                self.set(queue, QueueState::Refused);
            }
            Task::DeleteSubmission(queue) => {
                admin.tasks.push_front(Task::DeleteCompletion(queue));
            }
            Task::DeleteCompletion(queue) => {
                admin.specs[usize::from(queue)] = None;
                self.set(queue, QueueState::Absent);
            }
            // What became of it the command itself tells, or its timeout.
            Task::Abort { .. } => {}
        }
    }

    /// Ends it in order, and waits a second at most: what was written to a cache becomes durable.
    pub(super) fn shut_down(&self, clock: &mut dyn FnMut() -> u64) {
        let mut admin = self.admin();
        if !matches!(admin.phase, Phase::Running) {
            return;
        }
        self.end(&mut admin, QUIET);
        self.hardware.store(CC, ENABLE | SHUT_DOWN);
        let begin_ns = clock();
        while self.hardware.load(CSTS) & SHUTDOWN != SHUTDOWN_DONE {
            if clock().saturating_sub(begin_ns) > 1_000_000_000 {
                return;
            }
        }
    }

    fn set(&self, queue: u16, state: QueueState) {
        self.queues[usize::from(queue)].store(state as u32, Ordering::Release);
    }

    fn admin(&self) -> MutexGuard<'_, Admin> {
        self.admin.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
