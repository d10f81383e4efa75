//! One queue, as a [`Nic`].

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use coua_tcp::nic::{Features, Frame, LINK_HEADER_LEN, Nic, Offload};
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::time::{TimerfdClockId, TimerfdFlags, Timespec, timerfd_create};

use super::client::set_timer;
use super::control::{Control, ready};
use super::frames::Frames;
use super::mailbox::{Mailbox, QueueLink};

/// Receives between two looks at the control channel by a worker that never sleeps: a fraction of a
/// millisecond where nothing comes.
const RECEIVES_PER_LOOK: u32 = 4096;

/// Bursts that a peer is given at most before it is looked whether it wants to be woken for them.
pub(super) const BURSTS_PER_WAKING: u8 = 4;

/// How long after events were asked for the ring is looked at once more.
const SECOND_LOOK: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 1_000_000,
};

/// What has passed through a queue since it was opened, in frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueCounters {
    /// Frames that came.
    pub received: u64,
    /// Frames that came and were dropped: longer than the MTU allows, too short to be any, in an
    /// unfinished piece, or not where their descriptor said.
    pub received_unfit: u64,
    /// Frames that the peer has been given.
    pub sent: u64,
    /// Frames dropped because there was no peer.
    pub without_link: u64,
    /// Frames dropped because the peer's buffers were too short, or not where it said.
    pub sent_unfit: u64,
    /// Times that there was no slot.
    pub without_slot: u64,
    /// Events by which the peer was woken.
    pub events: u64,
}

/// A queue of a memif link.
///
/// A peer may come and go: without one nothing comes, and what is sent is dropped and counted.
///
/// # Sleeping
/// [`MemifNic::arm`] has the descriptor become readable when frames come, or are there already.
///
/// The peer sends in two steps: it moves its index, then looks whether events are wanted. This side
/// asks for events, then looks at the index. Either sees the other's step, were it not that the
/// peer's store may take a while to leave its core, and peers do not wait for that, this driver
/// included. So the descriptor becomes readable once more after a millisecond, by when any store has
/// come over, with events asked for all the while; they are until a frame has come.
///
/// # Waking the peer
/// Whether the peer wants events stands in a line that the peer writes all the time while it is awake,
/// so that looking means to wait for the other core. While frames come the peer is awake, likely:
/// then this looks only after every fourth burst, otherwise at the first `receive` that finds nothing,
/// and in [`MemifNic::arm`]. Whoever sends must so go on to call one of both.
pub struct MemifNic {
    link: Option<QueueLink>,
    received: Frames,
    pending: Frames,
    is_open: bool,
    /// Frames of the last receive, until their replies' room has been asked for.
    replies: usize,
    /// Bursts that the peer has been given since it was last looked whether it wants to be woken.
    untold: u8,
    /// The peer has been asked for events.
    asks_for_events: bool,
    receives_left: u32,
    features: Features,
    counters: QueueCounters,
    mailbox: Arc<Mailbox>,
    version: u32,
    set: OwnedFd,
    timer: OwnedFd,
    /// The first queue of a link has it.
    control: Option<Box<Control>>,
}

/// What makes a queue's descriptor readable.
const ARRIVAL: u64 = 0;
const BELL: u64 = 1;
const TIMER: u64 = 2;
const CONTROL: u64 = 3;

impl MemifNic {
    pub(super) fn new(
        features: Features,
        mailbox: Arc<Mailbox>,
        control: Option<Control>,
    ) -> io::Result<MemifNic> {
        let set = epoll::create(CreateFlags::CLOEXEC)?;
        watch(&set, mailbox.bell(), BELL)?;
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        let timer = timerfd_create(TimerfdClockId::Monotonic, flags)?;
        watch(&set, &timer, TIMER)?;
        if let Some(control) = &control {
            epoll::add(&set, control, EventData::new_u64(CONTROL), EventFlags::IN)?;
        }
        let frame_len = LINK_HEADER_LEN + usize::from(features.mtu);
        Ok(MemifNic {
            link: None,
            received: Frames::new(frame_len),
            pending: Frames::new(frame_len),
            is_open: false,
            replies: 0,
            untold: 0,
            asks_for_events: false,
            receives_left: 0,
            features,
            counters: QueueCounters::default(),
            version: mailbox.version(),
            mailbox,
            set,
            timer,
            control: control.map(Box::new),
        })
    }

    /// Whether a peer is there and has rings for this queue.
    pub fn has_link(&self) -> bool {
        self.link.is_some()
    }

    /// What has passed.
    pub fn counters(&self) -> QueueCounters {
        self.counters
    }

    /// Has the descriptor become readable when a frame comes, or has come.
    pub fn arm(&mut self) {
        self.wake_peer();
        let Some(link) = &self.link else { return };
        if !self.asks_for_events {
            self.asks_for_events = true;
            link.consumer.ask_for_events(true);
            // The descriptor is a timer, and the time is one.
            let _ = set_timer(&self.timer, SECOND_LOOK);
        }
        if link.consumer.is_waiting() {
            self.mailbox.bell().ring();
        }
    }

    /// Forgets why the descriptor was readable.
    pub fn disarm(&mut self) {
        let mut room = [const { MaybeUninit::uninit() }; 4];
        for key in ready(&self.set, &mut room) {
            if key == CONTROL {
                self.receives_left = 0;
            }
        }
    }

    /// Looks after the control channel, and at what it has brought.
    #[cold]
    fn look(&mut self) {
        // Where the worker never sleeps, nobody else forgets.
        self.disarm();
        self.receives_left = RECEIVES_PER_LOOK;
        if let Some(control) = &mut self.control {
            control.look();
        }
    }

    /// Goes on with what was posted.
    #[cold]
    fn change(&mut self) {
        self.version = self.mailbox.version();
        self.drop_link();
        self.link = self.mailbox.take();
        self.asks_for_events = false;
        if let Some(link) = &self.link {
            // Where the system does not, the second look has to do.
            let _ = watch(&self.set, &link.arrival, ARRIVAL);
        }
    }

    fn drop_link(&mut self) {
        if let Some(link) = self.link.take() {
            // The peer has the event too: closing it would not take it out of the set.
            let _ = epoll::delete(&self.set, &link.arrival);
        }
    }

    /// The peer's indices are of no use.
    #[cold]
    fn break_off(&mut self) {
        self.drop_link();
        self.mailbox.complain();
        // Whoever looks after the channel may be another worker, and does so within its time.
        self.receives_left = 0;
    }

    fn send_pending(&mut self) {
        match &mut self.link {
            Some(link) => {
                let given = link.producer.send(&self.pending);
                self.counters.sent += given.sent;
                self.counters.sent_unfit += given.unfit;
                self.untold += u8::from(given.sent > 0);
            }
            None => self.counters.without_link += self.pending.len() as u64,
        }
        self.pending.clear();
        if self.untold >= BURSTS_PER_WAKING {
            self.wake_peer();
        }
    }

    /// Wakes the peer, if it wants that for what it has been given.
    #[inline]
    fn wake_peer(&mut self) {
        if std::mem::take(&mut self.untold) == 0 {
            return;
        }
        if let Some(link) = &self.link
            && link.producer.wants_event()
        {
            link.departure.ring();
            self.counters.events += 1;
        }
    }

    /// Whether a slot can be opened.
    #[inline]
    fn has_room(&mut self) -> bool {
        if self.pending.is_full() {
            self.send_pending();
        }
        let Some(link) = &mut self.link else {
            // What is written into it is dropped.
            return true;
        };
        match link.producer.has_room(self.pending.len()) {
            Ok(has_room) => {
                if self.replies > 0 {
                    self.replies = 0;
                    link.producer.look_ahead();
                }
                has_room
            }
            Err(_) => {
                self.break_off();
                true
            }
        }
    }
}

impl Nic for MemifNic {
    fn features(&self) -> Features {
        self.features
    }

    #[inline]
    fn receive(&mut self) -> usize {
        self.received.clear();
        if self.receives_left == 0 {
            self.look();
        }
        self.receives_left -= 1;
        if self.mailbox.version() != self.version {
            self.change();
        }
        let Some(link) = &mut self.link else {
            return 0;
        };
        let Ok(taken) = link.consumer.receive(&mut self.received) else {
            self.break_off();
            return 0;
        };
        let count = self.received.len();
        self.counters.received_unfit += taken.unfit;
        if count > 0 {
            self.counters.received += count as u64;
            link.producer.ask_ahead(count);
            self.replies = count;
            if self.asks_for_events {
                self.asks_for_events = false;
                link.consumer.ask_for_events(false);
            }
        } else {
            self.wake_peer();
        }
        count
    }

    #[inline]
    fn frame(&self, at: usize) -> Frame<'_> {
        Frame {
            bytes: self.received.get(at),
            is_verified: false,
        }
    }

    #[inline]
    fn release(&mut self) {
        self.received.clear();
    }

    #[inline]
    fn slot(&mut self) -> Option<&mut [u8]> {
        if !self.is_open {
            if !self.has_room() {
                self.counters.without_slot += 1;
                return None;
            }
            self.is_open = true;
        }
        Some(self.pending.room())
    }

    #[inline]
    fn commit(&mut self, len: usize, offload: Offload) {
        assert!(self.is_open, "a slot is opened before it is committed");
        assert_eq!(offload, Offload::None, "memif does nothing to a frame");
        self.is_open = false;
        if let Some(link) = &self.link {
            link.producer.expect(self.pending.len(), len);
        }
        self.pending.push(len);
    }

    #[inline]
    fn flush(&mut self) {
        if self.pending.len() > 0 {
            self.send_pending();
        }
    }
}

impl AsFd for MemifNic {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.set.as_fd()
    }
}

/// Each edge counts, and nobody reads what is watched.
fn watch(set: &OwnedFd, event: impl AsFd, key: u64) -> io::Result<()> {
    let flags = EventFlags::IN | EventFlags::ET;
    Ok(epoll::add(set, event, EventData::new_u64(key), flags)?)
}
