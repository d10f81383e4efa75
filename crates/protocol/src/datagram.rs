//! The frame around requests and replies in UDP datagrams.
//!
//! ```text
//! byte 0          2           4           6           8
//!      +----------+-----------+-----------+-----------+--------
//!      | request  | number of | datagrams | reserved  | request, or
//!      |   id     | this one  | in all    |           | its part of the reply
//!      +----------+-----------+-----------+-----------+--------
//! ```
//! Numbers are big-endian. A request takes one datagram, a reply as many as it needs; each has the
//! request's id.

/// Bytes of the frame.
pub const FRAME_LEN: usize = 8;

/// Bytes of a reply that one datagram carries if it has room for them. With its frame that is 1400
/// bytes, as in memcached, which fits Ethernet's MTU.
pub const PART_LEN: usize = 1400 - FRAME_LEN;

/// How many datagrams a reply of `len` bytes takes, if each carries at most `part_len` bytes of it;
/// `part_len` is not 0.
#[inline]
#[must_use]
pub const fn parts(len: usize, part_len: usize) -> usize {
    // Nearly all replies take one, which needs no division.
    match len <= part_len {
        true => (len > 0) as usize,
        false => len.div_ceil(part_len),
    }
}

/// A request's frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame {
    /// The reply repeats it.
    pub request_id: u16,
}

impl Frame {
    /// Reads a datagram: the frame, and the bytes after it, which are not empty. `None` if it is
    /// not a whole request; such datagrams are not answered.
    #[inline]
    #[must_use]
    pub fn read(datagram: &[u8]) -> Option<(Frame, &[u8])> {
        let (frame, request) = datagram.split_first_chunk::<FRAME_LEN>()?;
        let [i0, i1, _, _, 0, 1, _, _] = *frame else {
            return None;
        };
        let request_id = u16::from_be_bytes([i0, i1]);
        (!request.is_empty()).then_some((Frame { request_id }, request))
    }

    /// The frame of a reply that fits one datagram.
    #[inline]
    #[must_use]
    pub const fn alone(self) -> [u8; FRAME_LEN] {
        let [i0, i1] = self.request_id.to_be_bytes();
        [i0, i1, 0, 0, 0, 1, 0, 0]
    }

    /// The frame and the part of each of the reply's datagrams, each with at most `part_len` bytes
    /// of it, which is not 0. Parts beyond the 65535th are left out.
    pub fn parts(
        self,
        reply: &[u8],
        part_len: usize,
    ) -> impl Iterator<Item = ([u8; FRAME_LEN], &[u8])> {
        let count = u16::try_from(parts(reply.len(), part_len)).unwrap_or(u16::MAX);
        let [i0, i1] = self.request_id.to_be_bytes();
        let [c0, c1] = count.to_be_bytes();
        (0..count)
            .zip(reply.chunks(part_len))
            .map(move |(number, part)| {
                let [n0, n1] = number.to_be_bytes();
                ([i0, i1, n0, n1, c0, c1, 0, 0], part)
            })
    }
}

#[cfg(test)]
mod tests {
    use std::vec::Vec;

    use super::*;

    #[test]
    fn only_whole_requests_are_read() {
        let request = b"\x12\x34\0\0\0\x01\0\0get a\r\n";
        let frame = Frame { request_id: 0x1234 };
        assert_eq!(Frame::read(request), Some((frame, &b"get a\r\n"[..])));
        let others: [&[u8]; 5] = [
            b"",
            &request[..7],
            &request[..8],
            b"\0\0\0\0\0\x02\0\0get a\r\n",
            b"\0\0\0\0\x01\x01\0\0get a\r\n",
        ];
        for datagram in others {
            assert_eq!(Frame::read(datagram), None, "{datagram:?}");
        }
    }

    #[test]
    fn a_reply_is_cut_into_numbered_parts() {
        let frame = Frame { request_id: 0x1234 };
        let reply: Vec<u8> = (0..3000u32).map(|at| at.to_be_bytes()[3]).collect();
        let parts: Vec<_> = frame.parts(&reply, PART_LEN).collect();
        for (number, (frame, part)) in (0..).zip(&parts) {
            assert_eq!(*frame, [0x12, 0x34, 0, number, 0, 3, 0, 0]);
            assert!(part.len() <= 1392);
        }
        let joined: Vec<u8> = parts.iter().flat_map(|part| part.1).copied().collect();
        assert_eq!(joined, reply);
        assert_eq!(frame.parts(b"", PART_LEN).count(), 0);
        let mut parts = frame.parts(&reply[..1392], PART_LEN);
        assert_eq!(parts.next(), Some((frame.alone(), &reply[..1392])));
        assert_eq!(parts.next(), None);
        assert_eq!(frame.parts(&reply, 1000).count(), 3);
        assert!(
            frame
                .parts(&reply, 1000)
                .all(|(_, part)| part.len() == 1000)
        );
        assert_eq!(frame.parts(&[0; 70_000], 1).count(), 65_535);
    }
}
