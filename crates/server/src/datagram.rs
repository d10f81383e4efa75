//! Requests that come in UDP datagrams: what is sent back, and how much of it an address gets.
//!
//! All requests in a datagram are answered together, in one message of as many datagrams as it
//! needs.
//!
//! # Use as an amplifier
//! A request whose source address is forged makes the server send its reply to somebody who did not
//! ask. So an address is sent at most [`FACTOR`] times what came from it, and beyond that what its
//! [`Allowance`] holds. Nothing is answered to ports below [`PORT_MIN`], nor to the server's own:
//! two servers could be made to answer each other's answers for ever.

use std::net::{IpAddr, SocketAddr};

use coua_protocol::datagram::{FRAME_LEN, Frame, parts};
use coua_transport::Sender;

use crate::gathered::Gathered;

/// What an address is sent for what comes from it, in any case.
const FACTOR: u64 = 4;

/// Bytes that IP and UDP add to a datagram.
const HEADERS_LEN: u64 = 28;

/// Lower ports are those of services, which send no requests.
const PORT_MIN: u16 = 1024;

/// A request's datagram, and what is to be sent back.
#[derive(Debug)]
pub struct Datagram {
    /// The socket it came by, among the worker's.
    pub socket: usize,
    /// Bytes of the reply in each datagram of it at most.
    part_len: usize,
    from: Sender,
    frame: Frame,
    /// What is to be sent back.
    pub gathered: Gathered,
}

impl Datagram {
    /// A place for a datagram that has not come yet. `part_len` is not 0.
    pub fn vacant(socket: usize, part_len: usize) -> Datagram {
        Datagram {
            socket,
            part_len,
            from: SocketAddr::from(([0, 0, 0, 0], 0)).into(),
            frame: Frame { request_id: 0 },
            // Few replies take more than one datagram.
            gathered: Gathered::with_room(part_len),
        }
    }

    /// Begins with what came from somebody. The request stands behind the bytes that are
    /// returned; `None` where it is none, or not one that is answered.
    #[inline]
    pub fn begin(&mut self, bytes: &[u8], from: Sender, own_port: u16) -> Option<usize> {
        let (frame, request) = Frame::read(bytes)?;
        let port = from.address().port();
        if port < PORT_MIN || port == own_port {
            return None;
        }
        self.from = from;
        self.frame = frame;
        self.gathered.begin();
        Some(bytes.len() - request.len())
    }

    /// The reply as far as it has been gathered.
    pub fn reply(&self) -> &[u8] {
        self.gathered.bytes()
    }

    /// Where the reply goes.
    #[inline]
    pub fn from(&self) -> &Sender {
        &self.from
    }

    /// One of 64 bits for whoever sent it: the same whenever he sends, and seldom another's.
    pub fn sender_bit(&self) -> u64 {
        let from = self.from.address();
        let hash = hash(from.ip()).wrapping_add(u64::from(from.port()).wrapping_mul(SPREADING));
        1 << (hash >> 58)
    }

    /// What sending a reply of `len` bytes costs of an allowance, in bytes.
    #[inline]
    pub fn cost(&self, len: usize) -> u64 {
        len as u64 + parts(len, self.part_len) as u64 * (FRAME_LEN as u64 + HEADERS_LEN)
    }

    /// The frame of a reply of `len` bytes that one datagram takes; `None` where it takes more.
    #[inline]
    pub fn alone(&self, len: usize) -> Option<[u8; FRAME_LEN]> {
        (len <= self.part_len).then(|| self.frame.alone())
    }

    /// The datagrams of a reply: frame and part of each.
    pub fn parts<'r>(&self, reply: &'r [u8]) -> impl Iterator<Item = ([u8; FRAME_LEN], &'r [u8])> {
        self.frame.parts(reply, self.part_len)
    }
}

/// What addresses may still be sent. Addresses that share a place by chance share its allowance.
pub struct Allowances {
    places: Box<[Allowance]>,
    /// Bytes a second that each gains.
    rate: u64,
}

#[derive(Clone, Copy)]
struct Allowance {
    bytes: u64,
    since_ms: u64,
}

impl Allowances {
    const PLACES: usize = 4096;

    /// Each place holds a second's worth at most, and does so now.
    pub fn new(rate: u64) -> Allowances {
        let full = Allowance {
            bytes: rate,
            since_ms: 0,
        };
        Allowances {
            places: vec![full; Self::PLACES].into_boxed_slice(),
            rate,
        }
    }

    /// Whether `to` may be sent what costs `cost`; then it is taken off.
    pub fn take(&mut self, to: IpAddr, cost: u64, now_ms: u64) -> bool {
        let rate = self.rate;
        let place = self.place(to);
        let passed_ms = now_ms.saturating_sub(place.since_ms).min(1000);
        // A sender's credit may stand above what time alone gives.
        place.bytes = place
            .bytes
            .max(rate.min(place.bytes + rate * passed_ms / 1000));
        place.since_ms = now_ms;
        let may = place.bytes >= cost;
        if may {
            place.bytes -= cost;
        }
        may
    }

    /// Gives `from` credit for a datagram of `len` bytes.
    pub fn credit(&mut self, from: IpAddr, len: usize) {
        let rate = self.rate;
        let place = self.place(from);
        place.bytes = (place.bytes + FACTOR * (len as u64 + HEADERS_LEN)).min(2 * rate);
    }

    fn place(&mut self, address: IpAddr) -> &mut Allowance {
        // Who chooses addresses to collide harms those that he chose.
        &mut self.places[(hash(address) >> 52) as usize]
    }
}

/// What numbers are multiplied with so that neighbours spread over the upper bits.
const SPREADING: u64 = 0x9e37_79b9_7f4a_7c15;

/// A hash of an address, of IPv6 that of its network, whose upper bits are good.
#[inline]
fn hash(address: IpAddr) -> u64 {
    match address {
        IpAddr::V4(address) => u64::from(address.to_bits()),
        IpAddr::V6(address) => (address.to_bits() >> 64) as u64,
    }
    .wrapping_mul(SPREADING)
}

#[cfg(test)]
mod tests {
    use coua_protocol::datagram::PART_LEN;

    use super::*;
    use crate::gathered::{REPLIES_LEN_MAX, REPLY_LEN_MAX};

    const CLIENT: ([u8; 4], u16) = ([192, 0, 2, 1], 40_000);

    fn client() -> Sender {
        SocketAddr::from(CLIENT).into()
    }

    #[test]
    fn services_and_the_server_itself_are_not_answered() {
        let request = b"\x12\x34\0\0\0\x01\0\0get a\r\n";
        let mut datagram = Datagram::vacant(0, PART_LEN);
        assert_eq!(datagram.begin(request, client(), 11211), Some(8));
        assert_eq!(datagram.begin(&request[..8], client(), 11211), None);
        for (port, own_port) in [(1023, 11211), (40_000, 40_000)] {
            let from = SocketAddr::from((CLIENT.0, port)).into();
            assert_eq!(datagram.begin(request, from, own_port), None, "{port}");
        }
    }

    #[test]
    fn a_reply_is_gathered_until_it_is_too_long() {
        let mut datagram = Datagram::vacant(0, PART_LEN);
        datagram.begin(b"\x12\x34\0\0\0\x01\0\0x", client(), 0);
        let reply = [b'r'; 3000];
        let all = REPLIES_LEN_MAX;
        let mut room = all;
        assert!(
            datagram
                .gathered
                .gather([&reply[..100], &reply[100..]].into_iter(), &mut room)
        );
        assert_eq!(room, all - 3000);
        assert_eq!(datagram.reply(), &reply[..]);
        assert_eq!(
            datagram
                .parts(&reply)
                .map(|part| part.1.len())
                .sum::<usize>(),
            3000
        );
        assert_eq!(datagram.cost(3000), 3000 + 3 * 36);
        assert_eq!((datagram.cost(0), datagram.cost(1392)), (0, 1392 + 36));
        assert!(datagram.alone(1393).is_none());
        assert_eq!(datagram.alone(1392), Some(*b"\x12\x34\0\0\0\x01\0\0"));
        datagram.part_len = 1000;
        assert_eq!(
            (datagram.parts(&reply).count(), datagram.cost(3000)),
            (3, 3 * 1036)
        );
        datagram.part_len = 999;
        assert_eq!(datagram.parts(&reply).count(), 4);
        datagram.gathered.clear(&mut room);
        assert_eq!((datagram.reply().len(), room), (0, all));
        assert!(
            !datagram
                .gathered
                .gather(std::iter::repeat_n(&reply[..], 1000), &mut room)
        );
        assert!(
            !datagram
                .gathered
                .gather([&b"more"[..]].into_iter(), &mut room)
        );
        assert_eq!((datagram.reply().len(), room), (0, all));
    }

    #[test]
    fn replies_together_take_no_more_than_there_is_room() {
        let mut datagrams: Vec<Datagram> = (0..8).map(|_| Datagram::vacant(0, PART_LEN)).collect();
        let reply = vec![b'r'; REPLY_LEN_MAX];
        let mut room = REPLIES_LEN_MAX;
        let fit = datagrams
            .iter_mut()
            .filter_map(|datagram| {
                let fits = datagram
                    .gathered
                    .gather(std::iter::once(&reply[..]), &mut room);
                fits.then_some(())
            })
            .count();
        assert_eq!(fit, REPLIES_LEN_MAX / REPLY_LEN_MAX);
        datagrams[0].gathered.clear(&mut room);
        assert_eq!(room, REPLY_LEN_MAX);
    }

    #[test]
    fn an_address_gets_its_rate_and_a_multiple_of_what_it_sends() {
        let mut allowances = Allowances::new(1000);
        let client = IpAddr::from(CLIENT.0);
        assert!(allowances.take(client, 600, 0));
        assert!(!allowances.take(client, 600, 100));
        assert!(allowances.take(client, 500, 100));
        assert!(!allowances.take(client, 500, 100));
        allowances.credit(client, 100);
        assert!(allowances.take(client, 512, 100));
        assert!(
            !allowances.take(client, 1001, 60_000),
            "no more than a second's worth"
        );
        assert!(allowances.take(client, 1000, 60_000));
        let other = IpAddr::from([192, 0, 2, 2]);
        assert!(allowances.take(other, 1000, 60_000));
    }
}
