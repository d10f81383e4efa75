//! What frames and immediates say.
//!
//! ```text
//! request     at 0  kind 1, generation, slot (2)      early   at 0  kind 2, generation, slot (2)
//!                4  command's length                             4  where in the value
//!                8  value's length                               8  bytes …
//!               12  how much of it comes in frames
//!               16  how much of it is ready to be read   ready   at 0  kind 3, generation, slot (2)
//!               20  the reply's area: offset, length             4  how much of the value is ready
//!               32  the value's key (8), address (8)
//!               48  command, then the value's beginning
//!
//! immediate  31     30         29      24 23      12 11       0
//!            ┌──────┬──────────┬──────────┬──────────┬──────────┐
//!            │ last │ too long │generation│   slot   │   part   │
//!            └──────┴──────────┴──────────┴──────────┴──────────┘
//! ```
//! With "too long" and "last" the client's area holds the reply's length, in eight bytes; an empty reply is sent so, too.
//! With "too long" alone it holds
//! grants: address (8), key (8) and length (8) of memory that the client may write the rest of its value to. A grant of
//! nothing says that the server will read the value.
//!
//! All numbers are little-endian. Whatever comes from the other side is checked before it is used.

use thiserror::Error;

use crate::fabric::Remote;
use crate::limits::FRAME_LEN;

/// Bytes in front of a request's command.
pub(crate) const REQUEST_LEN: usize = 48;
/// Bytes in front of what an early frame carries.
pub(crate) const EARLY_LEN: usize = 8;
/// Bytes of a frame that says how much of a value is ready.
pub(crate) const READY_LEN: usize = 8;

const REQUEST: u8 = 1;
const EARLY: u8 = 2;
const READY: u8 = 3;

/// Bytes of a grant.
pub(crate) const GRANT_LEN: usize = 24;
/// Grants that one value may need.
pub(crate) const GRANTS_MAX: usize = 8;

/// Generations of a slot, before they begin anew.
pub(crate) const GENERATIONS: u8 = 64;
/// Slots that a client may have.
pub(crate) const SLOTS_MAX: usize = 1 << 12;
/// Parts that a reply may have.
pub(crate) const REPLY_PARTS_MAX: usize = 1 << 12;

/// The fixed part of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestHeader {
    /// The client's number for it, which the reply's immediates repeat.
    pub slot: u16,
    /// How often the slot was used before, modulo 64.
    pub generation: u8,
    /// Bytes of a value that does not stand in the command.
    pub value_len: u32,
    /// How many of them, from the beginning, come in frames.
    pub early_len: u32,
    /// How many of them can be read already.
    pub ready_len: u32,
    /// Where the value is to be read.
    pub source: Remote,
    /// Where the reply goes: bytes from the beginning of the client's memory.
    pub area_offset: u32,
    /// How long it may be.
    pub area_len: u32,
}

/// A frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Frame<'f> {
    /// A request, perhaps with the beginning of its value.
    Request {
        /// What it says beside its command.
        header: RequestHeader,
        /// The command, as it would be sent over TCP; with its value unless the header names one.
        command: &'f [u8],
        /// The beginning of the value.
        early: &'f [u8],
    },
    /// More of a value.
    Early {
        /// Of which request.
        slot: u16,
        /// See [`RequestHeader::generation`].
        generation: u8,
        /// Where in the value.
        offset: u32,
        /// The bytes.
        bytes: &'f [u8],
    },
    /// More of a value can be read.
    Ready {
        /// Of which request.
        slot: u16,
        /// See [`RequestHeader::generation`].
        generation: u8,
        /// How many bytes from its beginning.
        ready_len: u32,
    },
}

/// Why a frame is none.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum BadFrame {
    /// Shorter than its kind is.
    #[error("a frame is cut short")]
    Short,
    /// A kind that there is not.
    #[error("a frame is of no known kind")]
    Kind,
    /// Lengths that contradict each other.
    #[error("lengths in a frame contradict each other")]
    Lengths,
}

/// What a frame says.
///
/// # Errors
/// [`BadFrame`] if it cannot be believed.
pub fn decode(bytes: &[u8]) -> Result<Frame<'_>, BadFrame> {
    let head = bytes.get(..4).ok_or(BadFrame::Short)?;
    let generation = head[1];
    let slot = u16_at(head, 2);
    if generation >= GENERATIONS || usize::from(slot) >= SLOTS_MAX || bytes.len() > FRAME_LEN {
        return Err(BadFrame::Lengths);
    }
    match head[0] {
        REQUEST => decode_request(bytes, slot, generation),
        EARLY => {
            let fixed = bytes.get(..EARLY_LEN).ok_or(BadFrame::Short)?;
            Ok(Frame::Early {
                slot,
                generation,
                offset: u32_at(fixed, 4),
                bytes: &bytes[EARLY_LEN..],
            })
        }
        READY => {
            let fixed = bytes.get(..READY_LEN).ok_or(BadFrame::Short)?;
            Ok(Frame::Ready {
                slot,
                generation,
                ready_len: u32_at(fixed, 4),
            })
        }
        _ => Err(BadFrame::Kind),
    }
}

fn decode_request(bytes: &[u8], slot: u16, generation: u8) -> Result<Frame<'_>, BadFrame> {
    let fixed = bytes.get(..REQUEST_LEN).ok_or(BadFrame::Short)?;
    let header = RequestHeader {
        slot,
        generation,
        value_len: u32_at(fixed, 8),
        early_len: u32_at(fixed, 12),
        ready_len: u32_at(fixed, 16),
        area_offset: u32_at(fixed, 20),
        area_len: u32_at(fixed, 24),
        source: Remote {
            key: u64_at(fixed, 32),
            address: u64_at(fixed, 40),
        },
    };
    let command_len = usize::from(u16_at(fixed, 4));
    let body = &bytes[REQUEST_LEN..];
    if command_len > body.len() {
        return Err(BadFrame::Short);
    }
    let (command, early) = body.split_at(command_len);
    let is_possible = early.len() <= header.early_len as usize
        && header.early_len <= header.value_len
        && header.ready_len <= header.value_len
        && header
            .source
            .address
            .checked_add(u64::from(header.value_len))
            .is_some();
    if !is_possible {
        return Err(BadFrame::Lengths);
    }
    Ok(Frame::Request {
        header,
        command,
        early,
    })
}

/// Writes the fixed part of a request with a command of a length.
pub(crate) fn encode_request(header: &RequestHeader, command_len: usize) -> [u8; REQUEST_LEN] {
    let mut bytes = [0; REQUEST_LEN];
    let command_len = u16::try_from(command_len).expect("a command fits into a frame");
    bytes[..8].copy_from_slice(&head(
        REQUEST,
        header.slot,
        header.generation,
        u32::from(command_len),
    ));
    bytes[8..12].copy_from_slice(&header.value_len.to_le_bytes());
    bytes[12..16].copy_from_slice(&header.early_len.to_le_bytes());
    bytes[16..20].copy_from_slice(&header.ready_len.to_le_bytes());
    bytes[20..24].copy_from_slice(&header.area_offset.to_le_bytes());
    bytes[24..28].copy_from_slice(&header.area_len.to_le_bytes());
    bytes[32..40].copy_from_slice(&header.source.key.to_le_bytes());
    bytes[40..48].copy_from_slice(&header.source.address.to_le_bytes());
    bytes
}

/// Writes the fixed part of an early frame.
pub(crate) fn encode_early(slot: u16, generation: u8, offset: u32) -> [u8; EARLY_LEN] {
    head(EARLY, slot, generation, offset)
}

/// Writes a frame that says how much is ready.
pub(crate) fn encode_ready(slot: u16, generation: u8, ready_len: u32) -> [u8; READY_LEN] {
    head(READY, slot, generation, ready_len)
}

fn head(kind: u8, slot: u16, generation: u8, number: u32) -> [u8; 8] {
    let mut bytes = [0; 8];
    bytes[0] = kind;
    bytes[1] = generation;
    bytes[2..4].copy_from_slice(&slot.to_le_bytes());
    bytes[4..8].copy_from_slice(&number.to_le_bytes());
    bytes
}

/// What a write tells the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Immediate {
    /// The request's slot.
    pub slot: u16,
    /// See [`RequestHeader::generation`].
    pub generation: u8,
    /// Which part of the reply, from 0.
    pub part: u16,
    /// Nothing follows it.
    pub is_last: bool,
    /// With `is_last`: the reply does not fit. Without: these are grants.
    pub is_too_long: bool,
}

impl Immediate {
    /// As it is sent.
    pub fn encode(self) -> u32 {
        u32::from(self.is_last) << 31
            | u32::from(self.is_too_long) << 30
            | u32::from(self.generation & (GENERATIONS - 1)) << 24
            | (u32::from(self.slot) & 0xfff) << 12
            | u32::from(self.part) & 0xfff
    }

    /// What one says.
    pub fn decode(immediate: u32) -> Immediate {
        let field = |shift: u32, mask: u32| (immediate >> shift) & mask;
        let short = |value: u32| u16::try_from(value).expect("12 bits");
        Immediate {
            slot: short(field(12, 0xfff)),
            generation: u8::try_from(field(24, 0x3f)).expect("6 bits"),
            part: short(field(0, 0xfff)),
            is_last: field(31, 1) == 1,
            is_too_long: field(30, 1) == 1,
        }
    }
}

/// Writes a grant.
pub(crate) fn encode_grant(to: Remote, len: usize) -> [u8; GRANT_LEN] {
    let mut bytes = [0; GRANT_LEN];
    bytes[..8].copy_from_slice(&to.address.to_le_bytes());
    bytes[8..16].copy_from_slice(&to.key.to_le_bytes());
    bytes[16..].copy_from_slice(&(len as u64).to_le_bytes());
    bytes
}

/// What a grant says.
pub(crate) fn decode_grant(bytes: &[u8]) -> (Remote, usize) {
    let to = Remote {
        address: u64_at(bytes, 0),
        key: u64_at(bytes, 8),
    };
    let len = usize::try_from(u64_at(bytes, 16)).unwrap_or(usize::MAX);
    (to, len)
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from(u16_at(bytes, at)) | u32::from(u16_at(bytes, at + 2)) << 16
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from(u32_at(bytes, at)) | u64::from(u32_at(bytes, at + 4)) << 32
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_request_is_read_as_it_was_written(
            slot in 0u16..4096, generation in 0u8..64, value_len in 0u32..1 << 20, ready in 0u32..1 << 20,
            key: u64, address in 0u64..1 << 62, area_offset: u32, area_len: u32,
            command in proptest::collection::vec(any::<u8>(), 0..300),
            early in proptest::collection::vec(any::<u8>(), 0..300),
        ) {
            let value_len = value_len.max(u32::try_from(early.len()).expect("short"));
            let header = RequestHeader {
                slot, generation, value_len, early_len: u32::try_from(early.len()).expect("short"),
                ready_len: ready.min(value_len), source: Remote { key, address }, area_offset, area_len,
            };
            let mut bytes = encode_request(&header, command.len()).to_vec();
            bytes.extend(&command);
            bytes.extend(&early);
            let expected = Frame::Request { header, command: &command, early: &early };
            prop_assert_eq!(decode(&bytes), Ok(expected));
        }

        #[test]
        fn any_bytes_are_a_frame_or_none(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            match decode(&bytes) {
                Ok(Frame::Request { header, command, early }) => {
                    prop_assert!(command.len() + early.len() + REQUEST_LEN == bytes.len());
                    prop_assert!(early.len() <= header.early_len as usize && header.early_len <= header.value_len);
                }
                Ok(Frame::Early { bytes: rest, .. }) => prop_assert_eq!(rest.len() + EARLY_LEN, bytes.len()),
                Ok(Frame::Ready { .. }) | Err(_) => {}
            }
        }

        #[test]
        fn an_immediate_is_read_as_it_was_written(slot in 0u16..4096, part in 0u16..4096, generation in 0u8..64,
            is_last: bool, is_too_long: bool) {
            let immediate = Immediate { slot, generation, part, is_last, is_too_long };
            prop_assert_eq!(Immediate::decode(immediate.encode()), immediate);
        }
    }

    #[test]
    fn short_frames_of_each_kind_are_told() {
        let early = encode_early(1, 2, 3);
        let ready = encode_ready(1, 2, 3);
        assert_eq!(decode(&early[..7]), Err(BadFrame::Short));
        assert_eq!(decode(&ready[..7]), Err(BadFrame::Short));
        assert_eq!(decode(&[1; 47]).err(), Some(BadFrame::Short));
        assert_eq!(decode(&[9, 0, 0, 0, 0]), Err(BadFrame::Kind));
        assert_eq!(decode(&[2, 64, 0, 0, 0]), Err(BadFrame::Lengths));
    }
}
