//! The formats of what travels: headers read and written where they are in a frame.
//!
//! Reading never trusts a length: what does not fit is `None` or a [`Malformed`]. Writing takes
//! room of exactly the size that it needs.

pub mod address;
pub mod arp;
pub mod checksum;
pub mod ethernet;
pub mod four_tuple;
pub mod icmp;
pub mod ip;
pub mod mld;
pub(crate) mod predicted;
pub mod tcp;
pub mod udp;

pub use address::Address;

/// Why a frame or a part of it cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Malformed {
    /// It is shorter than its own headers say.
    Length,
    /// A checksum is wrong.
    Checksum,
    /// It is a fragment, which this stack does not put together.
    Fragment,
    /// A field has a value that it must not have.
    Field,
}

/// Two bytes at `at`, which must be there.
#[inline]
pub(crate) fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

/// Four bytes at `at`, which must be there.
#[inline]
pub(crate) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

/// Writes at `at`, where there must be room.
#[inline]
pub(crate) fn put(bytes: &mut [u8], at: usize, value: &[u8]) {
    bytes[at..at + value.len()].copy_from_slice(value);
}
