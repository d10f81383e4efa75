//! UDP datagrams (RFC 768).
//!
//! A frame without tags, options or extension headers has all fields at fixed offsets:
//!
//! ```text
//! 0          14            34 (54)   42 (62)
//! Ethernet   IPv4 (IPv6)   UDP       payload
//! ```
//! Such a frame is read as a [`PredictedDatagram`]. Frames are written as an [`Envelope`] around a
//! payload.

use super::checksum::Sum;
use super::ethernet::{self, EtherType};
use super::ip::{self, Protocol, V4_HEADER_LEN, V6_HEADER_LEN};
use super::predicted::Front;
use super::{Malformed, put, u16_at};
use crate::nic::{Layout, Mac, Offload};
use crate::wire::four_tuple::FourTuple;

/// Bytes of a header.
pub const HEADER_LEN: usize = 8;

/// Bytes of the Ethernet header without and with a VLAN tag.
const LINK_LEN: usize = 14;
const TAGGED_LEN: usize = 18;

/// A datagram's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The source port.
    pub source: u16,
    /// The destination port.
    pub destination: u16,
    /// Bytes of payload.
    pub payload_len: usize,
    /// The checksum; 0 if the sender computed none.
    pub checksum: u16,
}

impl Header {
    /// Reads the header of a datagram; the payload follows after [`HEADER_LEN`] bytes.
    ///
    /// # Errors
    /// Where it is shorter than its own headers say, or a field has a value that it must not have.
    #[inline]
    pub fn read(datagram: &[u8]) -> Result<Header, Malformed> {
        let head = datagram
            .first_chunk::<HEADER_LEN>()
            .ok_or(Malformed::Length)?;
        let len = usize::from(u16_at(head, 4));
        if len < HEADER_LEN || datagram.len() < len {
            return Err(Malformed::Length);
        }
        Ok(Header {
            source: u16_at(head, 0),
            destination: u16_at(head, 2),
            payload_len: len - HEADER_LEN,
            checksum: u16_at(head, 6),
        })
    }

    /// Writes it to the beginning of a datagram.
    #[inline]
    pub fn write(&self, datagram: &mut [u8]) {
        let len = u16::try_from(HEADER_LEN + self.payload_len).unwrap_or(u16::MAX);
        put(datagram, 0, &self.source.to_be_bytes());
        put(datagram, 2, &self.destination.to_be_bytes());
        put(datagram, 4, &len.to_be_bytes());
        put(datagram, 6, &self.checksum.to_be_bytes());
    }
}

/// A datagram whose fields stand at fixed places, behind a [`Front`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PredictedDatagram {
    /// Where it came from.
    pub(crate) mac: Mac,
    pub(crate) tuple: FourTuple,
    /// Where in the frame its payload begins, and how many bytes it has.
    pub(crate) start: u16,
    pub(crate) len: u16,
}

impl PredictedDatagram {
    /// Reads a frame. `None` if it is something else, is for another host, is malformed or has
    /// wrong checksums. With `is_verified` the checksums are not checked.
    #[inline]
    pub(crate) fn at(bytes: &[u8], own: Mac, is_verified: bool) -> Option<PredictedDatagram> {
        let front = Front::at(bytes, own, Protocol::UDP, is_verified)?;
        let datagram = bytes.get(front.start..front.end)?;
        let header = Header::read(datagram).ok()?;
        let len = HEADER_LEN + header.payload_len;
        // IPv6 requires a checksum (RFC 8200, section 8.1); with IPv4 it may be left out.
        if !is_verified && (header.checksum != 0 || !front.source.is_v4()) {
            let sum = front.sum.with_u16(u16::from(Protocol::UDP.0));
            let sum = sum.with_u16(u16::try_from(len).ok()?);
            if !sum.with(&datagram[..len]).is_right() {
                return None;
            }
        }
        Some(PredictedDatagram {
            mac: front.mac,
            tuple: FourTuple {
                local: front.destination,
                remote: front.source,
                local_port: header.destination,
                remote_port: header.source,
            },
            start: u16::try_from(front.start + HEADER_LEN).ok()?,
            len: u16::try_from(header.payload_len).ok()?,
        })
    }
}

/// The headers of a frame before the payload of a datagram.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Envelope<'t> {
    /// Our MAC address, and that of the next hop.
    pub(crate) source: Mac,
    pub(crate) destination: Mac,
    /// The VLAN; 0 for no tag.
    pub(crate) vlan: u16,
    /// From the local end to the remote one.
    pub(crate) tuple: &'t FourTuple,
    /// The card fills in checksums.
    pub(crate) fills_checksums: bool,
    /// Nobody looks at that of UDP.
    pub(crate) trusts_link: bool,
}

impl Envelope<'_> {
    /// Where the IP header begins, and where the payload does.
    #[inline]
    pub(crate) fn places(&self) -> (usize, usize) {
        let network_at = match self.vlan {
            0 => LINK_LEN,
            _ => TAGGED_LEN,
        };
        let network_len = match self.tuple.local.is_v4() {
            true => V4_HEADER_LEN,
            false => V6_HEADER_LEN,
        };
        (network_at, network_at + network_len + HEADER_LEN)
    }

    /// Writes it to the beginning of a frame that already contains the payload, up to its end.
    /// Returns what is left to the card.
    #[inline]
    pub(crate) fn write(&self, frame: &mut [u8]) -> Offload {
        // Each case has lengths that the compiler knows, so no bounds check and no call remains.
        match (self.tuple.local.is_v4(), self.vlan) {
            (true, 0) => self.write_at::<14, 42>(frame),
            (true, _) => self.write_at::<18, 46>(frame),
            (false, 0) => self.write_at::<14, 62>(frame),
            (false, _) => self.write_at::<18, 66>(frame),
        }
    }

    #[inline]
    fn write_at<const NETWORK_AT: usize, const PAYLOAD_AT: usize>(
        &self,
        frame: &mut [u8],
    ) -> Offload {
        let (head, payload) = frame
            .split_first_chunk_mut::<PAYLOAD_AT>()
            .expect("room for the headers");
        let FourTuple {
            local,
            remote,
            local_port,
            remote_port,
        } = *self.tuple;
        let link = ethernet::Header {
            destination: self.destination,
            source: self.source,
            vlan: self.vlan,
            ether_type: EtherType::of(local),
        };
        link.write(head);
        let len = HEADER_LEN + payload.len();
        let packet = ip::Header::new(local, remote, Protocol::UDP, len);
        packet.write(&mut head[NETWORK_AT..], self.fills_checksums);
        let transport_at = PAYLOAD_AT - HEADER_LEN;
        let header = Header {
            source: local_port,
            destination: remote_port,
            payload_len: payload.len(),
            checksum: 0,
        };
        header.write(&mut head[transport_at..]);
        if self.trusts_link {
            return Offload::None;
        }
        let sum = Sum::pseudo_header(local, remote, Protocol::UDP.0, len);
        let (checksum, offload) = if self.fills_checksums {
            let short = |at: usize| u8::try_from(at).expect("66 at most");
            let layout = Layout {
                network: short(NETWORK_AT),
                transport: short(transport_at),
                payload: short(PAYLOAD_AT),
                is_ipv6: !local.is_v4(),
                is_udp: true,
            };
            (sum.folded(), Offload::Checksum(layout))
        } else {
            let header: &[u8; HEADER_LEN] =
                head[transport_at..].first_chunk().expect("it is there");
            let sum = sum.with_array(header).with(payload);
            // Zero would mean that there is no checksum.
            let checksum = match sum.checksum() {
                0 => 0xffff,
                checksum => checksum,
            };
            (checksum, Offload::None)
        };
        put(head, transport_at + 6, &checksum.to_be_bytes());
        offload
    }
}

#[cfg(test)]
mod tests;
