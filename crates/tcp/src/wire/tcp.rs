//! TCP segments (RFC 9293, section 3.1) and their options (RFC 7323, RFC 2018).
//!
//! ```text
//! 0        2             4    8    12      13     14      16        18      20
//! source   destination   seq  ack  offset  flags  window  checksum  urgent  options … payload
//! ```

use super::{Malformed, put, u16_at, u32_at};
use crate::seq::SeqNumber;

/// Bytes of a header without options.
pub const HEADER_LEN: usize = 20;

/// Bytes of the timestamps option with its two bytes of padding.
pub const TIMESTAMPS_LEN: usize = 12;

/// The most blocks in a SACK option.
pub const SACK_BLOCKS_MAX: usize = 4;

/// The header's one-bit flags.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub struct Flags(pub u8);

impl Flags {
    /// The sender has sent everything.
    pub const FIN: Flags = Flags(0x01);
    /// Opens a connection.
    pub const SYN: Flags = Flags(0x02);
    /// Resets the connection.
    pub const RST: Flags = Flags(0x04);
    /// The receiver should deliver the data without waiting for more.
    pub const PSH: Flags = Flags(0x08);
    /// The acknowledgment number counts.
    pub const ACK: Flags = Flags(0x10);
    /// The urgent pointer counts. It is neither sent nor evaluated here (RFC 6093).
    pub const URG: Flags = Flags(0x20);
    /// A packet with a CE mark has arrived (RFC 3168); on a SYN: its sender supports ECN.
    pub const ECE: Flags = Flags(0x40);
    /// The sender has reduced its congestion window (RFC 3168); on a SYN: it asks for ECN.
    pub const CWR: Flags = Flags(0x80);

    /// Whether any of these is set.
    #[inline]
    pub const fn has(self, flags: Flags) -> bool {
        self.0 & flags.0 != 0
    }

    /// With these set as well.
    #[inline]
    #[must_use]
    pub const fn and(self, flags: Flags) -> Flags {
        Flags(self.0 | flags.0)
    }
}

impl std::fmt::Debug for Flags {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let letters = ["F", "S", "R", "P", ".", "U", "E", "C"];
        let set = letters
            .iter()
            .enumerate()
            .filter(|(bit, _)| self.0 >> bit & 1 != 0);
        set.map(|(_, letter)| *letter).collect::<String>().fmt(f)
    }
}

/// The two numbers of the timestamps option (RFC 7323, section 3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Timestamps {
    /// The sender's clock.
    pub value: u32,
    /// The receiver's timestamp that it saw last.
    pub echo: u32,
}

/// A range received beyond a gap: from the first number to before the second.
pub type SackBlock = (SeqNumber, SeqNumber);

/// Blocks of a SACK option.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Sack {
    blocks: [SackBlock; SACK_BLOCKS_MAX],
    len: u8,
}

impl Sack {
    /// No blocks.
    pub const NONE: Sack = Sack {
        blocks: [(SeqNumber(0), SeqNumber(0)); SACK_BLOCKS_MAX],
        len: 0,
    };

    /// Adds a block if there is room.
    pub fn push(&mut self, block: SackBlock) {
        if let Some(place) = self.blocks.get_mut(usize::from(self.len)) {
            *place = block;
            self.len += 1;
        }
    }

    /// All blocks.
    #[inline]
    pub fn blocks(&self) -> &[SackBlock] {
        &self.blocks[..usize::from(self.len)]
    }
}

/// The options of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Options {
    /// On a SYN: bytes of payload that its sender takes in one segment.
    pub mss: Option<u16>,
    /// On a SYN: bits by which its sender's windows are shifted.
    pub window_scale: Option<u8>,
    /// On a SYN: its sender understands SACK.
    pub sack_permitted: bool,
    /// Timestamps.
    pub timestamps: Option<Timestamps>,
    /// What has been received beyond gaps.
    pub sack: Sack,
}

/// A segment's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Header {
    /// The source port.
    pub source: u16,
    /// The destination port.
    pub destination: u16,
    /// The sequence number of the first byte, or of SYN or FIN.
    pub seq: SeqNumber,
    /// The sequence number that the sender expects next.
    pub ack: SeqNumber,
    /// Flags.
    pub flags: Flags,
    /// The window, not scaled.
    pub window: u16,
    /// Options.
    pub options: Options,
}

impl Header {
    /// Reads the header of a segment, and returns where the payload begins. The caller verifies the
    /// checksum.
    ///
    /// # Errors
    /// If it is shorter than its own headers say.
    #[inline]
    pub fn read(segment: &[u8]) -> Result<(Header, usize), Malformed> {
        let head = segment
            .first_chunk::<HEADER_LEN>()
            .ok_or(Malformed::Length)?;
        let header_len = usize::from(head[12] >> 4) * 4;
        if header_len < HEADER_LEN || segment.len() < header_len {
            return Err(Malformed::Length);
        }
        let header = Header {
            source: u16_at(head, 0),
            destination: u16_at(head, 2),
            seq: SeqNumber(u32_at(head, 4)),
            ack: SeqNumber(u32_at(head, 8)),
            flags: Flags(head[13]),
            window: u16_at(head, 14),
            options: Options::read(&segment[HEADER_LEN..header_len]),
        };
        Ok((header, header_len))
    }

    /// Bytes that it takes, options included.
    #[inline]
    pub fn size(&self) -> usize {
        HEADER_LEN + self.options.size()
    }

    /// Writes it to the beginning of a segment, with a checksum of zero.
    #[inline]
    pub fn write(&self, segment: &mut [u8]) {
        let len = self.size();
        let head = &mut segment[..len];
        put(head, 0, &self.source.to_be_bytes());
        put(head, 2, &self.destination.to_be_bytes());
        put(head, 4, &self.seq.0.to_be_bytes());
        put(head, 8, &self.ack.0.to_be_bytes());
        // At most 60 bytes.
        #[expect(
            clippy::cast_possible_truncation,
            reason = "at most 60 bytes, 15 words"
        )]
        put(head, 12, &[((len / 4) << 4) as u8, self.flags.0]);
        put(head, 14, &self.window.to_be_bytes());
        put(head, 16, &[0; 4]);
        self.options.write(&mut head[HEADER_LEN..]);
    }
}

mod kind {
    pub(super) const END: u8 = 0;
    pub(super) const NOTHING: u8 = 1;
    pub(super) const MSS: u8 = 2;
    pub(super) const WINDOW_SCALE: u8 = 3;
    pub(super) const SACK_PERMITTED: u8 = 4;
    pub(super) const SACK: u8 = 5;
    pub(super) const TIMESTAMPS: u8 = 8;
}

/// The first option bytes of nearly every segment (RFC 7323, appendix A).
const TIMESTAMPS_HEAD: [u8; 4] = [kind::NOTHING, kind::NOTHING, kind::TIMESTAMPS, 10];

impl Options {
    /// Reads all known options, and stops at a malformed one.
    #[inline]
    fn read(bytes: &[u8]) -> Options {
        if let Some(plain) = bytes.first_chunk::<TIMESTAMPS_LEN>()
            && bytes.len() == TIMESTAMPS_LEN
            && plain[..4] == TIMESTAMPS_HEAD
        {
            return Options {
                timestamps: Some(Timestamps {
                    value: u32_at(plain, 4),
                    echo: u32_at(plain, 8),
                }),
                ..Options::default()
            };
        }
        Options::read_all(bytes)
    }

    fn read_all(mut bytes: &[u8]) -> Options {
        let mut options = Options::default();
        while let Some((&kind, rest)) = bytes.split_first() {
            match kind {
                kind::END => break,
                kind::NOTHING => {
                    bytes = rest;
                    continue;
                }
                _ => {}
            }
            let len = rest.first().map_or(0, |&len| usize::from(len));
            if len < 2 || bytes.len() < len {
                break;
            }
            options.take(kind, &bytes[2..len]);
            bytes = &bytes[len..];
        }
        options
    }

    fn take(&mut self, kind: u8, value: &[u8]) {
        match (kind, value.len()) {
            (kind::MSS, 2) => self.mss = Some(u16_at(value, 0)),
            (kind::WINDOW_SCALE, 1) => self.window_scale = Some(value[0]),
            (kind::SACK_PERMITTED, 0) => self.sack_permitted = true,
            (kind::TIMESTAMPS, 8) => {
                self.timestamps = Some(Timestamps {
                    value: u32_at(value, 0),
                    echo: u32_at(value, 4),
                });
            }
            (kind::SACK, len) if len % 8 == 0 => {
                for block in value.chunks_exact(8) {
                    let (from, to) = (u32_at(block, 0), u32_at(block, 4));
                    self.sack.push((SeqNumber(from), SeqNumber(to)));
                }
            }
            _ => {}
        }
    }

    /// Bytes that they take, padded to whole words.
    #[inline]
    pub fn size(&self) -> usize {
        let mut len = 0;
        if self.timestamps.is_some() {
            len += TIMESTAMPS_LEN;
        }
        if self.sack.len > 0 {
            len += 4 + 8 * usize::from(self.sack.len);
        }
        len + 4 * usize::from(self.mss.is_some())
            + 4 * usize::from(self.window_scale.is_some())
            + 4 * usize::from(self.sack_permitted)
    }

    #[inline]
    fn write(&self, bytes: &mut [u8]) {
        let mut at = 0;
        if let Some(mss) = self.mss {
            let [high, low] = mss.to_be_bytes();
            put(bytes, at, &[kind::MSS, 4, high, low]);
            at += 4;
        }
        if self.sack_permitted {
            put(
                bytes,
                at,
                &[kind::NOTHING, kind::NOTHING, kind::SACK_PERMITTED, 2],
            );
            at += 4;
        }
        if let Some(Timestamps { value, echo }) = self.timestamps {
            put(bytes, at, &TIMESTAMPS_HEAD);
            put(bytes, at + 4, &value.to_be_bytes());
            put(bytes, at + 8, &echo.to_be_bytes());
            at += TIMESTAMPS_LEN;
        }
        if let Some(shift) = self.window_scale {
            put(bytes, at, &[kind::NOTHING, kind::WINDOW_SCALE, 3, shift]);
            at += 4;
        }
        if self.sack.len > 0 {
            put(
                bytes,
                at,
                &[
                    kind::NOTHING,
                    kind::NOTHING,
                    kind::SACK,
                    2 + 8 * self.sack.len,
                ],
            );
            at += 4;
            for (from, to) in self.sack.blocks() {
                put(bytes, at, &from.0.to_be_bytes());
                put(bytes, at + 4, &to.0.to_be_bytes());
                at += 8;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn written(header: &Header) -> Vec<u8> {
        let mut bytes = vec![0; header.size()];
        header.write(&mut bytes);
        bytes
    }

    proptest! {
        #[test]
        fn headers_are_read_as_they_were_written(
            (ports, seq, ack, flags, window) in any::<((u16, u16), u32, u32, u8, u16)>(),
            syn in any::<Option<(u16, u8, bool)>>(),
            timestamps in any::<Option<(u32, u32)>>(),
            sack in proptest::collection::vec(any::<(u32, u32)>(), 0..3),
        ) {
            let mut options = Options {
                timestamps: timestamps.map(|(value, echo)| Timestamps { value, echo }),
                ..Options::default()
            };
            if let Some((mss, shift, permitted)) = syn {
                options.mss = Some(mss);
                options.window_scale = Some(shift);
                options.sack_permitted = permitted;
            } else {
                for (from, to) in sack {
                    options.sack.push((SeqNumber(from), SeqNumber(to)));
                }
            }
            let header = Header {
                source: ports.0,
                destination: ports.1,
                seq: SeqNumber(seq),
                ack: SeqNumber(ack),
                flags: Flags(flags),
                window,
                options,
            };
            let bytes = written(&header);
            prop_assert!(bytes.len().is_multiple_of(4) && bytes.len() <= 60);
            prop_assert_eq!(Header::read(&bytes), Ok((header, bytes.len())));
        }

        #[test]
        fn anything_can_be_read(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
            if let Ok((_, len)) = Header::read(&bytes) {
                prop_assert!(len <= bytes.len());
            }
        }
    }

    #[test]
    fn lengths_are_checked() {
        let bytes = written(&Header::default());
        for len in 0..HEADER_LEN {
            assert_eq!(Header::read(&bytes[..len]), Err(Malformed::Length));
        }
        for offset in [0, 4, 6, 15] {
            let mut bytes = bytes.clone();
            bytes[12] = offset << 4;
            assert_eq!(
                Header::read(&bytes),
                Err(Malformed::Length),
                "offset {offset}"
            );
        }
    }

    #[test]
    fn options_that_are_unknown_or_broken_do_no_harm() {
        let read = |bytes: &[u8]| Options::read(bytes);
        // An unknown one is passed over.
        assert_eq!(read(&[200, 4, 1, 2, 2, 4, 5, 0x78]).mss, Some(1400));
        // One of length 0 or 1 would never end, one that is too long lies.
        for broken in [&[2, 0, 1, 1][..], &[2, 1, 1, 1], &[2, 5, 1, 1], &[8]] {
            assert_eq!(read(broken), Options::default());
        }
        // A length that its kind does not have.
        assert_eq!(read(&[2, 3, 1, 0]), Options::default());
        // Behind the end nothing counts.
        assert_eq!(read(&[0, 2, 4, 5, 0x78]), Options::default());
    }
}
