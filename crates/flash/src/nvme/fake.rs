//! A controller in this process: registers, rings and a disk, for tests and measurements. It lies when it is told to, and
//! takes as long as it is told to.
#![cfg_attr(
    not(test),
    allow(dead_code, reason = "only tests have it lie, or take it away")
)]
#![expect(
    unsafe_code,
    reason = "reaches memory by its address, as a device does"
)]
#![expect(
    clippy::cast_possible_truncation,
    reason = "fields of commands, and places of a small disk"
)]

use std::io;
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::Instant;

use super::command::opcode;
use super::hardware::Hardware;
use super::identify::{IDENTIFY_LEN, answers};
use super::prp::PAGE_LEN;
use super::registers::{ACQ, AQA, ASQ, CC, CSTS, FATAL, GONE, READY, SHUT_DOWN, SHUTDOWN_DONE};
use crate::Region;

/// What the next command to a namespace meets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lie {
    /// No answer, until it is aborted.
    Silent,
    /// No answer, and no answer to anything else.
    Dead,
    /// An answer for a command that is not there.
    WrongId,
    /// A number that no command can have.
    ImpossibleId,
    /// An answer for another queue.
    WrongQueue,
    /// A place of the ring that does not exist.
    WrongHead,
    /// The same answer twice.
    Twice,
    /// A fatal status instead of an answer.
    Fatal,
    /// An error of the medium.
    Medium,
}

/// How it behaves for good.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Manners {
    pub(super) never_ready: bool,
    pub(super) never_stops: bool,
    pub(super) cannot_be_reset: bool,
    pub(super) refuses_queues: bool,
    pub(super) bad_identity: bool,
}

/// How long a simulated controller takes to read or write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Latency {
    /// Nanoseconds of each command.
    pub base_ns: u64,
    /// And for each KiB of it.
    pub ns_per_kib: u64,
}

impl Latency {
    /// For so many bytes.
    pub fn of(&self, len: usize) -> u64 {
        self.base_ns + self.ns_per_kib * len as u64 / 1024
    }
}

pub(super) struct Fake {
    state: Mutex<State>,
    began: Instant,
    /// When the next late answer is due, in nanoseconds since it began.
    due_ns: AtomicU64,
}

/// An answer that is not due yet.
struct Late {
    due_ns: u64,
    queue: usize,
    id: u16,
    status: u16,
}

struct State {
    registers: [u32; 16],
    manners: Manners,
    lie: Option<Lie>,
    is_gone: bool,
    is_wanted_back: bool,
    is_dead: bool,
    resets: usize,
    aborts: usize,
    regions: Vec<(u64, Arc<Region>)>,
    next_address: u64,
    submission: [Option<Ring>; 4],
    completion: [Option<Ring>; 4],
    /// Commands without an answer, by queue.
    silent: Vec<(usize, u16)>,
    latency: Option<Latency>,
    late: Vec<Late>,
    disk: Vec<u8>,
    sector_len: usize,
}

#[derive(Clone, Copy)]
struct Ring {
    address: u64,
    entries: u64,
    at: u64,
    phase: u64,
}

impl Ring {
    fn new(address: u64, entries: u64) -> Ring {
        Ring {
            address,
            entries,
            at: 0,
            phase: 1,
        }
    }

    fn advance(&mut self) {
        self.at += 1;
        if self.at == self.entries {
            self.at = 0;
            self.phase ^= 1;
        }
    }
}

impl Fake {
    pub(super) fn new(sectors: usize, sector_len: usize, manners: Manners) -> Arc<Fake> {
        let state = State {
            registers: [0; 16],
            manners,
            lie: None,
            is_gone: false,
            is_wanted_back: false,
            is_dead: false,
            resets: 0,
            aborts: 0,
            regions: Vec::new(),
            next_address: 1 << 32,
            submission: [None; 4],
            completion: [None; 4],
            silent: Vec::new(),
            latency: None,
            late: Vec::new(),
            disk: vec![0; sectors * sector_len],
            sector_len,
        };
        Arc::new(Fake {
            state: Mutex::new(state),
            began: Instant::now(),
            due_ns: AtomicU64::new(u64::MAX),
        })
    }

    /// From now on commands take so long. A thread that never sleeps answers them, until the controller is dropped.
    pub(super) fn take_time(self: &Arc<Fake>, latency: Latency) {
        self.state().latency = Some(latency);
        let fake = Arc::downgrade(self);
        std::thread::spawn(move || answer_in_time(&fake));
    }

    fn now_ns(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    pub(super) fn lie(&self, lie: Lie) {
        self.state().lie = Some(lie);
    }

    pub(super) fn remove(&self) {
        self.state().is_gone = true;
    }

    pub(super) fn want_back(&self) {
        self.state().is_wanted_back = true;
    }

    pub(super) fn behave(&self, manners: Manners) {
        self.state().manners = manners;
    }

    /// How often it was stopped, and how many aborts it has seen.
    pub(super) fn counts(&self) -> (usize, usize) {
        let state = self.state();
        (state.resets, state.aborts)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no test panics inside")
    }
}

/// What a device does while its host waits.
fn answer_in_time(fake: &Weak<Fake>) {
    while let Some(fake) = fake.upgrade() {
        for _ in 0..1000 {
            let now_ns = fake.now_ns();
            if now_ns >= fake.due_ns.load(Ordering::Acquire) {
                let mut state = fake.state();
                state.answer_what_is_due(now_ns);
                fake.due_ns.store(state.next_due_ns(), Ordering::Release);
            }
            std::hint::spin_loop();
        }
    }
}

impl Hardware for Fake {
    fn load(&self, at: usize) -> u32 {
        let state = self.state();
        match at {
            _ if state.is_gone => GONE,
            // 64 entries, half a second, NVM commands.
            0 => 63 | 1 << 24,
            4 => 1 << 5,
            _ => state.registers[at / 4],
        }
    }

    fn store(&self, at: usize, value: u32) {
        let mut state = self.state();
        if state.is_gone {
            return;
        }
        match at {
            CC => state.configure(value),
            0x1000.. => {
                let queue = (at - 0x1000) / 8;
                if at.is_multiple_of(8) {
                    state.serve(queue, u64::from(value), self.now_ns());
                    self.due_ns.store(state.next_due_ns(), Ordering::Release);
                }
            }
            _ => state.registers[at / 4] = value,
        }
    }

    fn len(&self) -> usize {
        // The admin queue and three more.
        0x1000 + 4 * 8
    }

    fn map(&self, region: &Arc<Region>) -> io::Result<u64> {
        let mut state = self.state();
        let address = state.next_address;
        state.next_address += region.len() as u64 + 4096;
        state.regions.push((address, Arc::clone(region)));
        Ok(address)
    }

    fn signal(&self, _: u16) -> Option<BorrowedFd<'_>> {
        None
    }

    fn set_signalled(&self, _: u16, _: bool) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn is_wanted_back(&self) -> bool {
        self.state().is_wanted_back
    }

    fn reset(&self) -> io::Result<()> {
        let mut state = self.state();
        if state.manners.cannot_be_reset {
            return Err(io::ErrorKind::Unsupported.into());
        }
        state.stop();
        Ok(())
    }
}

impl State {
    fn configure(&mut self, value: u32) {
        let was_enabled = self.registers[CC / 4] & 1 != 0;
        self.registers[CC / 4] = value;
        if value & SHUT_DOWN != 0 {
            self.registers[CSTS / 4] |= SHUTDOWN_DONE;
        } else if value & 1 == 0 {
            if was_enabled && !self.manners.never_stops {
                self.stop();
            }
        } else if !self.manners.never_ready {
            let lens = self.registers[AQA / 4];
            let address = |at: usize| {
                u64::from(self.registers[at / 4]) | u64::from(self.registers[at / 4 + 1]) << 32
            };
            let (submission, completion) = (address(ASQ), address(ACQ));
            self.submission[0] = Some(Ring::new(submission, u64::from(lens & 0xfff) + 1));
            self.completion[0] = Some(Ring::new(completion, u64::from(lens >> 16 & 0xfff) + 1));
            self.registers[CSTS / 4] = READY;
        }
    }

    fn stop(&mut self) {
        self.resets += 1;
        self.registers[CSTS / 4] = 0;
        self.submission = [None; 4];
        self.completion = [None; 4];
        self.silent.clear();
        self.is_dead = false;
    }

    fn next_due_ns(&self) -> u64 {
        let all = self.late.iter().map(|late| late.due_ns);
        all.min().unwrap_or(u64::MAX)
    }

    fn answer_what_is_due(&mut self, now_ns: u64) {
        let mut at = 0;
        while at < self.late.len() {
            if self.late[at].due_ns > now_ns {
                at += 1;
                continue;
            }
            let Late {
                queue, id, status, ..
            } = self.late.remove(at);
            self.answer(queue, queue, id, status, 0, None);
        }
    }

    fn serve(&mut self, queue: usize, tail: u64, now_ns: u64) {
        while let Some(mut ring) = self.submission[queue]
            && ring.at != tail
        {
            let words: [u64; 8] = std::array::from_fn(|word| {
                self.load(ring.address + ring.at * 64 + word as u64 * 8)
            });
            ring.advance();
            self.submission[queue] = Some(ring);
            let id = (words[0] >> 16) as u16;
            if self.is_dead {
                continue;
            }
            let (status, result) = if queue == 0 {
                self.admin(&words)
            } else {
                match self.lie.take() {
                    None => (self.of_namespace(&words), 0),
                    Some(lie) => {
                        self.tell(lie, queue, id);
                        continue;
                    }
                }
            };
            match self.latency {
                Some(latency) if queue > 0 => {
                    let sectors = (words[6] & 0xffff) as usize + 1;
                    let due_ns = now_ns + latency.of(sectors * self.sector_len);
                    self.late.push(Late {
                        due_ns,
                        queue,
                        id,
                        status,
                    });
                }
                _ => self.answer(queue, queue, id, status, result, None),
            }
        }
    }

    fn tell(&mut self, lie: Lie, queue: usize, id: u16) {
        match lie {
            Lie::Silent => self.silent.push((queue, id)),
            Lie::Dead => self.is_dead = true,
            Lie::WrongId => self.answer(queue, queue, id ^ 1, 0, 0, None),
            Lie::ImpossibleId => self.answer(queue, queue, 0xffff, 0, 0, None),
            Lie::WrongQueue => self.answer(queue, queue + 1, id, 0, 0, None),
            Lie::WrongHead => self.answer(queue, queue, id, 0, 0, Some(64)),
            Lie::Twice => {
                self.answer(queue, queue, id, 0, 0, None);
                self.answer(queue, queue, id, 0, 0, None);
            }
            Lie::Fatal => self.registers[CSTS / 4] |= FATAL,
            Lie::Medium => self.answer(queue, queue, id, 0x281, 0, None),
        }
    }

    fn answer(
        &mut self,
        queue: usize,
        said: usize,
        id: u16,
        status: u16,
        result: u32,
        head: Option<u64>,
    ) {
        let Some(mut ring) = self.completion[queue] else {
            return;
        };
        let head = head
            .or(self.submission[queue].map(|ring| ring.at))
            .unwrap_or(0);
        let at = ring.address + ring.at * 16;
        self.store(at, u64::from(result));
        let second = head
            | (said as u64) << 16
            | u64::from(id) << 32
            | ring.phase << 48
            | u64::from(status) << 49;
        self.store(at + 8, second);
        ring.advance();
        self.completion[queue] = Some(ring);
    }

    fn admin(&mut self, words: &[u64; 8]) -> (u16, u32) {
        let (dword_10, dword_11) = (words[5] & 0xffff_ffff, words[5] >> 32);
        let (queue, entries) = ((dword_10 & 0xffff) as usize, (dword_10 >> 16) + 1);
        match words[0] as u8 {
            opcode::IDENTIFY => {
                let mut answer = if dword_10 == 1 {
                    answers::controller()
                } else {
                    let sectors = (self.disk.len() / self.sector_len) as u64;
                    answers::namespace(sectors, self.sector_len.ilog2() as u8)
                };
                if self.manners.bad_identity {
                    answer[128 + 4] = 8;
                    answer[512] = 0;
                }
                for (at, bytes) in (0..IDENTIFY_LEN).step_by(8).zip(answer.chunks_exact(8)) {
                    let word = u64::from_le_bytes(bytes.try_into().expect("eight"));
                    self.store(words[3] + at as u64, word);
                }
                (0, 0)
            }
            // One queue less than it has doorbells for.
            opcode::SET_FEATURES => (0, 1 | 1 << 16),
            opcode::CREATE_COMPLETION_QUEUE if !self.manners.refuses_queues => {
                if self.completion[queue].is_some() {
                    return (0x101, 0);
                }
                self.completion[queue] = Some(Ring::new(words[3], entries));
                (0, 0)
            }
            opcode::CREATE_SUBMISSION_QUEUE => {
                if self.submission[queue].is_some() || dword_11 >> 16 != queue as u64 {
                    return (0x101, 0);
                }
                self.submission[queue] = Some(Ring::new(words[3], entries));
                (0, 0)
            }
            opcode::DELETE_SUBMISSION_QUEUE => {
                self.silent.retain(|(of, _)| *of != queue);
                self.submission[queue] = None;
                (0, 0)
            }
            opcode::DELETE_COMPLETION_QUEUE => {
                self.completion[queue] = None;
                (0, 0)
            }
            opcode::ABORT => {
                self.aborts += 1;
                let id = (dword_10 >> 16) as u16;
                if let Some(at) = self.silent.iter().position(|it| *it == (queue, id)) {
                    self.silent.remove(at);
                    self.answer(queue, queue, id, 0x07, 0, None);
                }
                (0, 0)
            }
            _ => (0x01, 0),
        }
    }

    fn of_namespace(&mut self, words: &[u64; 8]) -> u16 {
        let kind = words[0] as u8;
        match kind {
            opcode::FLUSH => 0,
            opcode::DATASET_MANAGEMENT => {
                let (sectors, sector) = (self.load(words[3]) >> 32, self.load(words[3] + 8));
                let from = sector as usize * self.sector_len;
                let len = sectors as usize * self.sector_len;
                self.disk[from..from + len].fill(0);
                0
            }
            opcode::READ | opcode::WRITE => {
                let from = words[5] as usize * self.sector_len;
                let len = ((words[6] & 0xffff) as usize + 1) * self.sector_len;
                if from + len > self.disk.len() {
                    return 0x80;
                }
                let mut done = 0;
                while done < len {
                    let (address, piece) = self.page(words, len, done);
                    let at = self.pointer(address, piece);
                    let disk = &mut self.disk[from + done..from + done + piece];
                    // SAFETY: the memory is mapped, and nobody looks at it while the device has it.
                    let memory = unsafe { std::slice::from_raw_parts_mut(at.as_ptr(), piece) };
                    if kind == opcode::READ {
                        memory.copy_from_slice(disk);
                    } else {
                        disk.copy_from_slice(memory);
                    }
                    done += piece;
                }
                0
            }
            _ => 0x01,
        }
    }

    /// Where the bytes from `done` on are, as far as their page goes.
    fn page(&self, words: &[u64; 8], len: usize, done: usize) -> (u64, usize) {
        let offset = words[3] as usize % PAGE_LEN;
        if done == 0 {
            return (words[3], len.min(PAGE_LEN - offset));
        }
        let nth = (offset + done) / PAGE_LEN - 1;
        let pages = (offset + len).div_ceil(PAGE_LEN) - 1;
        let address = if pages == 1 {
            words[4]
        } else {
            self.load(words[4] + nth as u64 * 8)
        };
        assert_eq!(address % PAGE_LEN as u64, 0, "a whole page");
        (address, (len - done).min(PAGE_LEN))
    }

    fn pointer(&self, address: u64, len: usize) -> NonNull<u8> {
        let found = self.regions.iter().find_map(|(base, region)| {
            let offset = usize::try_from(address.checked_sub(*base)?).ok()?;
            // SAFETY: the offset is inside.
            (offset + len <= region.len()).then(|| unsafe { region.base().add(offset) })
        });
        found.unwrap_or_else(|| panic!("the IOMMU stops {address:#x}"))
    }

    fn word(&self, address: u64) -> &AtomicU64 {
        // SAFETY: mapped, aligned, and used as atomic words by both sides.
        unsafe { self.pointer(address, 8).cast::<AtomicU64>().as_ref() }
    }

    fn load(&self, address: u64) -> u64 {
        self.word(address).load(Ordering::Acquire)
    }

    fn store(&self, address: u64, value: u64) {
        self.word(address).store(value, Ordering::Release);
    }
}
