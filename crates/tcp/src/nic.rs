//! The seam to a network card.
//!
//! A [`Nic`] is one receive queue and one transmit queue, owned by one stack. Frames are read where
//! the card has put them, and written where the card takes them from:
//!
//! ```text
//! receive → frame(0), frame(1), …  → release
//! slot → (write) → commit, slot → commit, … → flush
//! ```
//!
//! Frames begin with the Ethernet header and end before the frame check sequence. VLAN tags are in
//! the frame: a card that strips them must be told not to.

/// The most frames that one [`Nic::receive`] offers.
pub const BURST_LEN: usize = 64;

/// Bytes of Ethernet header before the IP packet, with one VLAN tag.
pub const LINK_HEADER_LEN: usize = 18;

/// A MAC address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Mac(pub [u8; 6]);

impl Mac {
    /// All stations.
    pub const BROADCAST: Mac = Mac([0xff; 6]);

    /// Whether it is a multicast or broadcast address; no station has one as its own.
    pub const fn is_group(self) -> bool {
        self.0[0] & 1 != 0
    }
}

impl std::fmt::Display for Mac {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

/// What a card is and does itself; constant while it is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Features {
    /// Its own address.
    pub mac: Mac,
    /// Bytes of the longest IP packet, at least 1280 (RFC 8200).
    pub mtu: u16,
    /// It fills in the checksums of TCP, UDP and IPv4 in frames that ask for it.
    pub fills_checksums: bool,
    /// The most bytes of TCP payload in one frame that it cuts into segments itself, in frames that
    /// ask for it; 0 if it cannot. Such frames may be longer than `mtu`.
    pub segmentation_len_max: u32,
}

/// A received frame.
#[derive(Clone, Copy, Debug)]
pub struct Frame<'n> {
    /// The frame from its Ethernet header on. Its length is that on the wire, padding included.
    pub bytes: &'n [u8],
    /// The card, or the kernel on the same machine, vouches for the checksums of the IPv4 header
    /// and of TCP or UDP.
    pub is_verified: bool,
}

/// What the card has to do to a frame before it leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Offload {
    /// The frame is complete.
    None,
    /// The card fills in the checksums. The field of IPv4 is zero; that of TCP or UDP holds the sum
    /// of the pseudo header, not inverted.
    Checksum(Layout),
    /// Like `Checksum`, but the pseudo header's sum lacks the length, and the card cuts the payload
    /// into segments of this many bytes.
    Segment(Layout, u16),
}

/// Where the headers of a frame are, in bytes from its beginning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Where the IP header begins.
    pub network: u8,
    /// Where the TCP or UDP header begins.
    pub transport: u8,
    /// Where the payload begins.
    pub payload: u8,
    /// IPv6, not IPv4.
    pub is_ipv6: bool,
    /// UDP, not TCP.
    pub is_udp: bool,
}

/// One receive queue and one transmit queue of a network card.
///
/// # Contract
/// - `frame(i)` is valid for `i` below the number that the last `receive` returned, until
///   `release`. `receive` releases frames that have not been released.
/// - At most one slot is open: `slot` returns the same room again if nothing was committed.
/// - A frame leaves at `flush` at the latest; it may leave earlier.
/// - If the card takes no more frames, `slot` returns `None` until a later `flush` or `receive` has
///   made room. Nothing waits, nothing blocks.
pub trait Nic {
    /// What the card is and can do.
    fn features(&self) -> Features;

    /// Takes over received frames, at most [`BURST_LEN`], and returns how many.
    fn receive(&mut self) -> usize;

    /// One of the frames of the last `receive`.
    ///
    /// # Panics
    /// If `at` is not below their number.
    fn frame(&self, at: usize) -> Frame<'_>;

    /// Gives all frames of the last `receive` back to the card.
    fn release(&mut self);

    /// Room for a frame to send: at least [`LINK_HEADER_LEN`] plus the MTU, and at least
    /// [`Features::segmentation_len_max`] plus its headers. `None` if there is none now.
    fn slot(&mut self) -> Option<&mut [u8]>;

    /// Queues the first `len` bytes of the open slot to be sent.
    ///
    /// # Panics
    /// If no slot is open, or `len` is more than its length.
    fn commit(&mut self, len: usize, offload: Offload);

    /// Hands everything committed to the card, and rings its doorbell: a store or a system call that
    /// tells it of new frames.
    fn flush(&mut self);
}

impl<N: Nic + ?Sized> Nic for Box<N> {
    fn features(&self) -> Features {
        N::features(self)
    }

    #[inline]
    fn receive(&mut self) -> usize {
        N::receive(self)
    }

    #[inline]
    fn frame(&self, at: usize) -> Frame<'_> {
        N::frame(self, at)
    }

    #[inline]
    fn release(&mut self) {
        N::release(self);
    }

    #[inline]
    fn slot(&mut self) -> Option<&mut [u8]> {
        N::slot(self)
    }

    #[inline]
    fn commit(&mut self, len: usize, offload: Offload) {
        N::commit(self, len, offload);
    }

    #[inline]
    fn flush(&mut self) {
        N::flush(self);
    }
}
