//! Ethernet frames, with at most one VLAN tag (IEEE 802.1Q).
//!
//! ```text
//! 0            6            12       (14       16)        payload
//! destination  source       [0x8100  priority, VLAN]  type
//! ```

use super::{Address, Malformed, put, u16_at};
use crate::nic::Mac;

/// What a frame carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EtherType(pub u16);

impl EtherType {
    /// IPv4.
    pub const IPV4: EtherType = EtherType(0x0800);
    /// ARP.
    pub const ARP: EtherType = EtherType(0x0806);
    /// IPv6.
    pub const IPV6: EtherType = EtherType(0x86dd);

    /// That of packets from and to such an address.
    #[inline]
    pub const fn of(address: Address) -> EtherType {
        match address.is_v4() {
            true => EtherType::IPV4,
            false => EtherType::IPV6,
        }
    }
}

/// What stands before the VLAN tag.
const TAGGED: u16 = 0x8100;

/// Bits of the tag that number the VLAN.
const VLAN_MASK: u16 = 0x0fff;

/// A frame's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// To whom.
    pub destination: Mac,
    /// From whom.
    pub source: Mac,
    /// The VLAN; 0 where there is none.
    pub vlan: u16,
    /// What follows.
    pub ether_type: EtherType,
}

impl Header {
    /// Reads the header of a frame, and says where the payload begins.
    ///
    /// # Errors
    /// Where it is shorter than its header.
    #[inline]
    pub fn read(frame: &[u8]) -> Result<(Header, usize), Malformed> {
        let head = frame.first_chunk::<14>().ok_or(Malformed::Length)?;
        let mut header = Header {
            destination: Mac(*head.first_chunk().ok_or(Malformed::Length)?),
            source: Mac([head[6], head[7], head[8], head[9], head[10], head[11]]),
            vlan: 0,
            ether_type: EtherType(u16_at(head, 12)),
        };
        if header.ether_type.0 != TAGGED {
            return Ok((header, 14));
        }
        if frame.len() < 18 {
            return Err(Malformed::Length);
        }
        header.vlan = u16_at(frame, 14) & VLAN_MASK;
        header.ether_type = EtherType(u16_at(frame, 16));
        Ok((header, 18))
    }

    /// Bytes that it takes.
    #[inline]
    pub const fn size(&self) -> usize {
        if self.vlan == 0 { 14 } else { 18 }
    }

    /// Writes it to the beginning of a frame.
    #[inline]
    pub fn write(&self, frame: &mut [u8]) {
        put(frame, 0, &self.destination.0);
        put(frame, 6, &self.source.0);
        if self.vlan == 0 {
            put(frame, 12, &self.ether_type.0.to_be_bytes());
        } else {
            put(frame, 12, &TAGGED.to_be_bytes());
            put(frame, 14, &self.vlan.to_be_bytes());
            put(frame, 16, &self.ether_type.0.to_be_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_read_as_they_were_written() {
        for vlan in [0, 7, 4095] {
            let header = Header {
                destination: Mac([1, 2, 3, 4, 5, 6]),
                source: Mac([7, 8, 9, 10, 11, 12]),
                vlan,
                ether_type: EtherType::IPV6,
            };
            let mut frame = [0; 20];
            header.write(&mut frame);
            assert_eq!(Header::read(&frame), Ok((header, header.size())));
            for len in 0..header.size() {
                assert_eq!(Header::read(&frame[..len]), Err(Malformed::Length));
            }
        }
    }
}
