//! The card of a worker, whatever its driver.

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

/// One queue of a card, of any driver. The variant never changes, so the branch is predicted well.
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
    /// Any other source and sink of frames on this thread, for tests and measurements.
    Other(Box<dyn OtherCard + Send>),
    /// A card whose frames are also written to a file.
    Traced(Box<TracedCard>),
}

/// Any other source and sink of frames on a worker's thread, which may be able to wake the worker.
pub trait OtherCard: Nic {
    /// A descriptor that becomes readable when a frame arrives; `None` if the card can only be
    /// polled.
    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// Makes the descriptor report frames from now on. Returns true if it may miss a frame that has
    /// already arrived, so that the caller must receive once more before it sleeps.
    fn arm(&mut self) -> bool {
        false
    }

    /// Tells the card that the worker is awake.
    fn disarm(&mut self) {}
}

/// A card whose frames are written to a file, with the time of day.
type TracedCard = Traced<Card, File, fn() -> u64>;

/// Applies the same expression to whichever card it is.
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
    /// The same card; from now on its frames are written to a file: see [`Traced`].
    ///
    /// # Errors
    /// If the file cannot be written to.
    pub fn traced(self, file: File) -> io::Result<Card> {
        let traced = Traced::new(self, file, unix_ns as fn() -> u64)?;
        Ok(Card::Traced(Box::new(traced)))
    }

    /// The error that ended the writing of frames to a file, if there was one; returned once.
    pub(super) fn take_trace_error(&mut self) -> Option<io::Error> {
        match self {
            Card::Traced(card) => card.take_error(),
            _ => None,
        }
    }

    /// A descriptor that is readable while frames are waiting; `None` if the card can only be
    /// polled.
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

    /// Before the worker sleeps: makes the descriptor report frames from now on. Returns true if it
    /// may miss a frame that has already arrived, so that the caller must receive once more first.
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
            // These stay readable for as long as a frame is waiting.
            Card::Packet(_) | Card::Tap(_) | Card::Xdp(_) => false,
        }
    }

    /// Tells the card that the worker is awake.
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

/// What a stack does with its card. The variant is matched here, once, and not for each frame.
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

    /// As [`Stack::answer`]. A long reply may fill the card's queue; frames that have left make
    /// room.
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
