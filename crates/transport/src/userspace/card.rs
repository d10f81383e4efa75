//! Whichever card a worker has.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{SystemTime, UNIX_EPOCH};

use coua_tcp::nic::{Features, Frame, Nic, Offload};
use coua_tcp::stack::{ConnectionId, Datagram, Failure, Received, Stack};
use coua_tcp::time::Instant;

use super::af_xdp::XdpNic;
#[cfg(feature = "dpdk")]
use super::dpdk::Queue;
use super::memif::MemifNic;
use super::packet::{PacketSocket, Tap};
use super::pcap::Traced;

/// One queue of a card, by any driver. Which one it is was decided at the start, so that the branch
/// is always the same.
pub enum Card {
    /// A packet socket.
    Packet(Box<PacketSocket>),
    /// A TAP device.
    Tap(Box<Tap>),
    /// AF_XDP.
    Xdp(Box<XdpNic>),
    /// Memory shared with another process.
    Memif(Box<MemifNic>),
    /// DPDK.
    #[cfg(feature = "dpdk")]
    Dpdk(Box<Queue>),
    /// Whatever else brings frames to this thread and takes them, for tests and measurements.
    Other(Box<dyn OtherCard + Send>),
    /// One of the others, whose frames are written to a file.
    Traced(Box<TracedCard>),
}

/// Whatever else brings frames to a worker's thread and takes them, and perhaps wakes it.
pub trait OtherCard: Nic {
    /// What becomes readable when a frame comes; `None` where the card can only be asked.
    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// Has the descriptor tell of frames from now on. True where it may not tell of one that has
    /// come already, so that the caller must receive once more before it sleeps.
    fn arm(&mut self) -> bool {
        false
    }

    /// The worker is awake.
    fn disarm(&mut self) {}
}

/// A card whose frames are written to a file, with the time of day.
type TracedCard = Traced<Card, File, fn() -> u64>;

/// Does the same with whichever it is.
macro_rules! whichever {
    ($self:ident, $card:ident => $does:expr) => {
        match $self {
            Card::Packet($card) => $does,
            Card::Tap($card) => $does,
            Card::Xdp($card) => $does,
            Card::Memif($card) => $does,
            #[cfg(feature = "dpdk")]
            Card::Dpdk($card) => $does,
            Card::Other($card) => $does,
            Card::Traced($card) => $does,
        }
    };
}

impl Card {
    /// The same card, whose frames are written to a file from here on: see [`Traced`].
    ///
    /// # Errors
    /// Where the file cannot be written to.
    pub fn traced(self, file: File) -> io::Result<Card> {
        let traced = Traced::new(self, file, unix_ns as fn() -> u64)?;
        Ok(Card::Traced(Box::new(traced)))
    }

    /// Why the frames are no longer written to a file, once, where that is so.
    pub(super) fn take_trace_error(&mut self) -> Option<io::Error> {
        match self {
            Card::Traced(card) => card.take_error(),
            _ => None,
        }
    }

    /// What is readable while frames are there; `None` where the card can only be asked.
    pub fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        match self {
            Card::Packet(card) => Some(card.as_fd()),
            Card::Tap(card) => Some(card.as_fd()),
            Card::Xdp(card) => Some(card.as_fd()),
            Card::Memif(card) => Some(card.as_fd()),
            #[cfg(feature = "dpdk")]
            Card::Dpdk(card) => card.descriptor(),
            Card::Other(card) => card.descriptor(),
            Card::Traced(card) => card.card().descriptor(),
        }
    }

    /// Has the descriptor tell of frames from now on: before sleeping. True where it may not tell of
    /// one that has come already, so that the caller must receive once more before it sleeps.
    #[must_use]
    pub(super) fn arm(&mut self) -> bool {
        match self {
            Card::Memif(card) => {
                card.arm();
                false
            }
            #[cfg(feature = "dpdk")]
            Card::Dpdk(card) => card.arm(),
            Card::Other(card) => card.arm(),
            Card::Traced(card) => card.inner().arm(),
            // These are readable for as long as a frame is there.
            Card::Packet(_) | Card::Tap(_) | Card::Xdp(_) => false,
        }
    }

    /// The worker is awake.
    pub(super) fn disarm(&mut self) {
        match self {
            Card::Memif(card) => card.disarm(),
            #[cfg(feature = "dpdk")]
            Card::Dpdk(card) => card.disarm(),
            Card::Other(card) => card.disarm(),
            Card::Traced(card) => card.inner().disarm(),
            _ => {}
        }
    }
}

/// What a stack does with its card. Which card that is is asked once here, and not for each frame.
impl Card {
    /// As [`Stack::begin`].
    #[inline]
    pub(super) fn begin(&mut self, stack: &mut Stack, now: Instant) {
        whichever!(self, card => stack.begin(now, card));
    }

    /// As [`Stack::receive`].
    #[inline]
    pub(super) fn read(&self, stack: &mut Stack, id: ConnectionId, space: &mut [u8]) -> Received {
        whichever!(self, card => stack.receive(card, id, space))
    }

    /// As [`Stack::send_now`].
    #[inline]
    pub(super) fn send_now(
        &mut self,
        stack: &mut Stack,
        id: ConnectionId,
        bytes: &[u8],
    ) -> Result<usize, Failure> {
        whichever!(self, card => stack.send_now(card, id, bytes))
    }

    /// As [`Stack::answer`]. A long reply fills the card's queue; what has left makes room.
    #[inline]
    pub(super) fn answer(&mut self, stack: &mut Stack, to: &Datagram, pieces: [&[u8]; 2]) -> bool {
        whichever!(self, card => {
            if card.slot().is_none() {
                card.flush();
            }
            stack.answer(card, to, &pieces)
        })
    }

    /// As [`Stack::end`].
    #[inline]
    pub(super) fn end(&mut self, stack: &mut Stack) {
        whichever!(self, card => stack.end(card));
    }
}

/// Nanoseconds since 1970-01-01 00:00 UTC.
fn unix_ns() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| {
        u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
    })
}

impl Nic for Card {
    fn features(&self) -> Features {
        whichever!(self, card => card.features())
    }

    #[inline]
    fn receive(&mut self) -> usize {
        whichever!(self, card => card.receive())
    }

    #[inline]
    fn frame(&self, at: usize) -> Frame<'_> {
        whichever!(self, card => card.frame(at))
    }

    #[inline]
    fn release(&mut self) {
        whichever!(self, card => card.release());
    }

    #[inline]
    fn slot(&mut self) -> Option<&mut [u8]> {
        whichever!(self, card => card.slot())
    }

    #[inline]
    fn commit(&mut self, len: usize, offload: Offload) {
        whichever!(self, card => card.commit(len, offload));
    }

    #[inline]
    fn flush(&mut self) {
        whichever!(self, card => card.flush());
    }
}
