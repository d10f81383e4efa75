//! UDP datagrams (RFC 768).

use super::{Malformed, put, u16_at};

/// Bytes of a header.
pub const HEADER_LEN: usize = 8;

/// A datagram's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// From which port.
    pub source: u16,
    /// To which port.
    pub destination: u16,
    /// Bytes of payload.
    pub payload_len: usize,
    /// The checksum; 0 where the sender made none.
    pub checksum: u16,
}

impl Header {
    /// Reads the header of a datagram; the payload follows behind [`HEADER_LEN`] bytes.
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
    pub fn write(&self, datagram: &mut [u8]) {
        let len = u16::try_from(HEADER_LEN + self.payload_len).unwrap_or(u16::MAX);
        put(datagram, 0, &self.source.to_be_bytes());
        put(datagram, 2, &self.destination.to_be_bytes());
        put(datagram, 4, &len.to_be_bytes());
        put(datagram, 6, &self.checksum.to_be_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_read_as_they_were_written() {
        let header = Header {
            source: 1000,
            destination: 11211,
            payload_len: 3,
            checksum: 7,
        };
        let mut bytes = [0; 12];
        header.write(&mut bytes);
        assert_eq!(Header::read(&bytes), Ok(header));
        assert_eq!(Header::read(&bytes[..10]), Err(Malformed::Length));
        bytes[5] = 7;
        assert_eq!(Header::read(&bytes), Err(Malformed::Length));
        assert_eq!(Header::read(&bytes[..7]), Err(Malformed::Length));
    }
}
