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

/// A worker that never sleeps handles the control channel once in so many receives. If nothing
/// arrives, that is a fraction of a millisecond.
const RECEIVES_PER_LOOK: u32 = 4096;

/// The most bursts that a peer is given before its wish to be woken is checked.
pub(super) const BURSTS_PER_WAKING: u8 = 4;

/// How long after events were asked for the ring is checked once more.
const SECOND_LOOK: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 1_000_000,
};

/// Frames that have passed through a queue since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueCounters {
    /// Frames received.
    pub received: u64,
    /// Received frames that were dropped: longer than the MTU allows, too short to be a frame,
    /// incomplete, or not where their descriptor said.
    pub received_unfit: u64,
    /// Frames that the peer has been given.
    pub sent: u64,
    /// Frames dropped because there was no peer.
    pub without_link: u64,
    /// Frames dropped because the peer's buffers were too short or not where the peer said.
    pub sent_unfit: u64,
    /// How often there was no slot.
    pub without_slot: u64,
    /// How often the peer was woken by an event.
    pub events: u64,
}

/// A queue of a memif link.
///
/// Peers may come and go. Without one, nothing arrives, and what is sent is dropped and counted.
///
/// # Sleeping
/// [`MemifNic::arm`] makes the descriptor report frames that arrive or have already arrived.
///
/// The peer sends in two steps: it moves its index, and then checks whether events are wanted. This
/// side asks for events, and then checks the index. So one side would see the other's step, if the
/// peer's store did not take a while to leave its core. Peers do not wait for that, nor does this
/// driver. So the descriptor becomes readable once more after a millisecond, by which time any
/// store has arrived. Events are asked for until a frame has arrived.
///
/// # Waking the peer
/// Whether the peer wants events is written in a cache line that an awake peer writes all the time,
/// so reading it means waiting for the other core. While frames arrive, the peer is probably awake.
/// So this is checked only after every fourth burst, at the first `receive` that finds nothing, and
/// in [`MemifNic::arm`]. Whoever sends must therefore go on to call one of the latter two.
pub struct MemifNic {
    link: Option<QueueLink>,
    received: Frames,
    pending: Frames,
    is_open: bool,
    /// The frames of the last receive, until the room for their replies has been prefetched.
    replies: usize,
    /// Bursts given to the peer since its wish to be woken was last checked.
    untold: u8,
    /// Whether the peer has been asked for events.
    asks_for_events: bool,
    receives_left: u32,
    features: Features,
    counters: QueueCounters,
    mailbox: Arc<Mailbox>,
    version: u32,
    set: OwnedFd,
    timer: OwnedFd,
    /// Only the first queue of a link has it.
    control: Option<Box<Control>>,
}

/// The key of the event that makes a queue's descriptor readable.
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

    /// What has passed through.
    pub fn counters(&self) -> QueueCounters {
        self.counters
    }

    /// Makes the descriptor report a frame that arrives or has already arrived.
    pub fn arm(&mut self) {
        self.wake_peer();
        let Some(link) = &self.link else { return };
        if !self.asks_for_events {
            self.asks_for_events = true;
            link.consumer.ask_for_events(true);
            // It cannot fail: the descriptor is a timer and the time is valid.
            let _ = set_timer(&self.timer, SECOND_LOOK);
        }
        if link.consumer.is_waiting() {
            self.mailbox.bell().ring();
        }
    }

    /// Clears the reasons for which the descriptor was readable.
    pub fn disarm(&mut self) {
        let mut room = [const { MaybeUninit::uninit() }; 4];
        for key in ready(&self.set, &mut room) {
            if key == CONTROL {
                self.receives_left = 0;
            }
        }
    }

    /// Handles the control channel, and what came of it.
    #[cold]
    fn look(&mut self) {
        // If the worker never sleeps, nobody else clears them.
        self.disarm();
        self.receives_left = RECEIVES_PER_LOOK;
        if let Some(control) = &mut self.control {
            control.look();
        }
    }

    /// Takes the link that was posted.
    #[cold]
    fn change(&mut self) {
        self.version = self.mailbox.version();
        self.drop_link();
        self.link = self.mailbox.take();
        self.asks_for_events = false;
        if let Some(link) = &self.link {
            // If the system cannot watch it, the second check has to do.
            let _ = watch(&self.set, &link.arrival, ARRIVAL);
        }
    }

    fn drop_link(&mut self) {
        if let Some(link) = self.link.take() {
            // The peer has the event too, so closing it would not remove it from the set.
            let _ = epoll::delete(&self.set, &link.arrival);
        }
    }

    /// The peer's indices are out of range.
    #[cold]
    fn break_off(&mut self) {
        self.drop_link();
        self.mailbox.complain();
        // Another worker may handle the channel; it does so in its own time.
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

    /// Wakes the peer if it wants that for what it has been given.
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
            // What is written into it will be dropped.
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

/// Edge-triggered: each edge is reported, and nobody reads what is watched.
fn watch(set: &OwnedFd, event: impl AsFd, key: u64) -> io::Result<()> {
    let flags = EventFlags::IN | EventFlags::ET;
    Ok(epoll::add(set, event, EventData::new_u64(key), flags)?)
}
