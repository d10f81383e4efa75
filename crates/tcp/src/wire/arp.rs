//! ARP: whose MAC address an IPv4 address has (RFC 826; RFC 5227).

use super::{Address, Malformed, put, u16_at};
use crate::nic::Mac;

/// Bytes of a packet.
pub const LEN: usize = 28;

/// Ethernet and IPv4, with addresses of 6 and 4 bytes.
const KINDS: [u8; 6] = [0, 1, 8, 0, 6, 4];

/// An ARP packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet {
    /// It answers; else it asks.
    pub is_reply: bool,
    /// Who sent it.
    pub sender_mac: Mac,
    /// As which address; `0.0.0.0` where the sender tries whether an address is free.
    pub sender: Address,
    /// To whom it answers.
    pub target_mac: Mac,
    /// Which address is meant.
    pub target: Address,
}

impl Packet {
    /// Reads a frame's payload.
    ///
    /// # Errors
    /// Where it is too short, or is not about IPv4 on Ethernet.
    pub fn read(bytes: &[u8]) -> Result<Packet, Malformed> {
        let bytes = bytes.first_chunk::<LEN>().ok_or(Malformed::Length)?;
        let (kinds, rest) = bytes.split_first_chunk::<6>().ok_or(Malformed::Length)?;
        if *kinds != KINDS {
            return Err(Malformed::Field);
        }
        let is_reply = match u16_at(rest, 0) {
            1 => false,
            2 => true,
            _ => return Err(Malformed::Field),
        };
        let mac = |at: usize| Mac(std::array::from_fn(|index| rest[at + index]));
        let address = |at: usize| Address::v4(std::array::from_fn(|index| rest[at + index]));
        Ok(Packet {
            is_reply,
            sender_mac: mac(2),
            sender: address(8),
            target_mac: mac(12),
            target: address(18),
        })
    }

    /// Writes it to the beginning of a frame's payload.
    pub fn write(&self, bytes: &mut [u8]) {
        put(bytes, 0, &KINDS);
        put(bytes, 6, &[0, if self.is_reply { 2 } else { 1 }]);
        put(bytes, 8, &self.sender_mac.0);
        put(bytes, 14, &self.sender.v4_octets());
        put(bytes, 18, &self.target_mac.0);
        put(bytes, 24, &self.target.v4_octets());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_are_read_as_they_were_written() {
        for is_reply in [false, true] {
            let packet = Packet {
                is_reply,
                sender_mac: Mac([1, 2, 3, 4, 5, 6]),
                sender: Address::v4([192, 0, 2, 1]),
                target_mac: Mac([7, 8, 9, 10, 11, 12]),
                target: Address::v4([192, 0, 2, 2]),
            };
            let mut bytes = [0; LEN];
            packet.write(&mut bytes);
            assert_eq!(Packet::read(&bytes), Ok(packet));
            assert_eq!(Packet::read(&bytes[1..]), Err(Malformed::Length));
            for at in 0..8 {
                let mut bytes = bytes;
                bytes[at] ^= 0x40;
                assert_eq!(Packet::read(&bytes), Err(Malformed::Field), "byte {at}");
            }
        }
    }
}
