//! Questions to the kernel about interfaces, addresses, routes and neighbours, over rtnetlink.
//!
//! The kernel answers within the system call `send`, so the answer is there when that returns.
//! Nothing here waits for anything but the kernel's own lock over its network settings.
//!
//! ```text
//! message    ┌ len u32 ┬ kind u16 ┬ flags u16 ┬ sequence u32 ┬ port u32 ┬ body, attributes … ┐
//! attribute  ┌ len u16 ┬ kind u16 ┬ value … ┬ padding to 4 bytes ┐
//! ```
//!
//! # Not here
//! What the numbers mean: each caller names those that it uses.

use std::io;
use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, bind, recv, sendto, socket_with,
};

const HEADER_LEN: usize = 16;
const ERROR: u16 = 2;
const DONE: u16 = 3;
const FLAG_REQUEST: u16 = 0x1;
const FLAG_ACK: u16 = 0x4;
const FLAG_DUMP_INTERRUPTED: u16 = 0x10;
const FLAG_DUMP: u16 = 0x300;

/// Create the object if it does not exist.
pub(super) const FLAG_CREATE: u16 = 0x400;

/// The kernel uses at most this much of the room that it is offered.
const ROOM_LEN: usize = 32 << 10;

/// How often to try again when a change of the settings interrupts a dump.
const ATTEMPTS: usize = 8;

/// A question.
pub(super) struct Request {
    bytes: Vec<u8>,
}

impl Request {
    /// About one object, or a change; `flags` are added to those that every question has.
    pub(super) fn new(kind: u16, flags: u16, body: &[u8]) -> Request {
        Request::with_flags(kind, flags | FLAG_REQUEST | FLAG_ACK, body)
    }

    /// All objects of a kind.
    pub(super) fn dump(kind: u16, body: &[u8]) -> Request {
        Request::with_flags(kind, FLAG_REQUEST | FLAG_DUMP, body)
    }

    fn with_flags(kind: u16, flags: u16, body: &[u8]) -> Request {
        let mut bytes = vec![0; HEADER_LEN];
        bytes[4..6].copy_from_slice(&kind.to_ne_bytes());
        bytes[6..8].copy_from_slice(&flags.to_ne_bytes());
        bytes.extend_from_slice(body);
        Request { bytes }
    }

    /// Adds an attribute.
    ///
    /// # Panics
    /// If the value is longer than an attribute can be, 64 KiB.
    pub(super) fn attribute(mut self, kind: u16, value: &[u8]) -> Request {
        let len = u16::try_from(value.len() + 4).expect("an attribute's value is short");
        self.bytes.extend_from_slice(&len.to_ne_bytes());
        self.bytes.extend_from_slice(&kind.to_ne_bytes());
        self.bytes.extend_from_slice(value);
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
        self
    }

    fn seal(&mut self, sequence: u32) {
        let len = u32::try_from(self.bytes.len()).expect("a request is short");
        self.bytes[0..4].copy_from_slice(&len.to_ne_bytes());
        self.bytes[8..12].copy_from_slice(&sequence.to_ne_bytes());
    }
}

/// One object of an answer.
pub(super) struct Message {
    body: Vec<u8>,
}

impl Message {
    /// The first `N` bytes, which describe the object; `None` if there are fewer.
    pub(super) fn head<const N: usize>(&self) -> Option<[u8; N]> {
        self.body.first_chunk::<N>().copied()
    }

    /// The attributes after a head of `head_len` bytes.
    pub(super) fn attributes(&self, head_len: usize) -> Attributes<'_> {
        Attributes(self.body.get(head_len..).unwrap_or_default())
    }
}

/// Kinds and values in order; they end at the first one that is malformed.
#[derive(Clone, Copy)]
pub(super) struct Attributes<'m>(pub(super) &'m [u8]);

impl<'m> Attributes<'m> {
    /// The first of a kind.
    pub(super) fn find_kind(mut self, wanted: u16) -> Option<&'m [u8]> {
        self.find(|(kind, _)| *kind == wanted)
            .map(|(_, value)| value)
    }

    /// The first of a kind, as a number.
    pub(super) fn find_u32(self, wanted: u16) -> Option<u32> {
        let value = self.find_kind(wanted)?;
        Some(u32::from_ne_bytes(*value.first_chunk()?))
    }
}

impl<'m> Iterator for Attributes<'m> {
    type Item = (u16, &'m [u8]);

    fn next(&mut self) -> Option<(u16, &'m [u8])> {
        let [a, b, c, d] = *self.0.first_chunk::<4>()?;
        let len = usize::from(u16::from_ne_bytes([a, b]));
        // The two upper bits say how the value is encoded, not what it is.
        let kind = u16::from_ne_bytes([c, d]) & 0x3fff;
        let value = self.0.get(4..len)?;
        self.0 = self.0.get(len.next_multiple_of(4)..).unwrap_or_default();
        Some((kind, value))
    }
}

/// A socket to the kernel's network settings, in the network namespace of the thread that opens it.
pub(super) struct Netlink {
    fd: OwnedFd,
    sequence: u32,
    room: Vec<u8>,
}

impl Netlink {
    /// Opens the socket.
    pub(super) fn open() -> io::Result<Netlink> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        // NETLINK_ROUTE is protocol 0.
        let fd = socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, None)?;
        bind(&fd, &SocketAddrNetlink::new(0, 0))?;
        Ok(Netlink {
            fd,
            sequence: 0,
            room: vec![0; ROOM_LEN],
        })
    }

    /// Asks, and returns all objects of the answer.
    pub(super) fn ask(&mut self, mut request: Request) -> io::Result<Vec<Message>> {
        for _ in 0..ATTEMPTS {
            self.sequence = self.sequence.wrapping_add(1);
            request.seal(self.sequence);
            let kernel = SocketAddrNetlink::new(0, 0);
            sendto(&self.fd, &request.bytes, SendFlags::empty(), &kernel)?;
            if let Some(messages) = self.answer()? {
                return Ok(messages);
            }
        }
        Err(io::ErrorKind::Interrupted.into())
    }

    /// The answer, or `None` if the kernel says that it is inconsistent.
    fn answer(&mut self) -> io::Result<Option<Vec<Message>>> {
        let mut messages = Vec::new();
        let mut is_torn = false;
        loop {
            let len = match recv(&self.fd, &mut self.room[..], RecvFlags::empty()) {
                Ok((_, len)) => len,
                Err(Errno::INTR) => continue,
                Err(errno) => return Err(errno.into()),
            };
            let mut rest = &self.room[..len];
            while let Some(header) = rest.first_chunk::<HEADER_LEN>() {
                let [a, b, c, d, e, f, g, h, i, j, k, l, ..] = *header;
                let len = u32::from_ne_bytes([a, b, c, d]) as usize;
                let (kind, flags) = (u16::from_ne_bytes([e, f]), u16::from_ne_bytes([g, h]));
                let Some(body) = rest.get(HEADER_LEN..len) else {
                    return Err(io::ErrorKind::InvalidData.into());
                };
                rest = rest.get(len.next_multiple_of(4)..).unwrap_or_default();
                // Left over from an earlier question that was broken off.
                if u32::from_ne_bytes([i, j, k, l]) != self.sequence {
                    continue;
                }
                is_torn |= flags & FLAG_DUMP_INTERRUPTED != 0;
                match kind {
                    ERROR | DONE => {
                        let code = body
                            .first_chunk()
                            .map_or(0, |code| i32::from_ne_bytes(*code));
                        return match code {
                            0 => Ok((!is_torn).then_some(messages)),
                            code => Err(io::Error::from_raw_os_error(code.saturating_neg())),
                        };
                    }
                    _ => messages.push(Message {
                        body: body.to_vec(),
                    }),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_come_back_and_torn_ones_end_the_list() {
        let request = Request::new(1, 0, &[])
            .attribute(3, b"abcde")
            .attribute(7 | 0x8000, &9u32.to_ne_bytes());
        let attributes = Attributes(&request.bytes[HEADER_LEN..]);
        assert_eq!(attributes.find_kind(3), Some(&b"abcde"[..]));
        assert_eq!(attributes.find_u32(7), Some(9));
        assert_eq!(attributes.find_u32(8), None);
        let torn = &request.bytes[HEADER_LEN..HEADER_LEN + 7];
        assert_eq!(Attributes(torn).count(), 0);
        assert_eq!(Attributes(&[2, 0, 1, 0]).count(), 0);
    }

    #[test]
    fn the_kernel_tells_of_the_loopback_interface() {
        let mut netlink = Netlink::open().expect("netlink needs no rights");
        // RTM_GETLINK of interface 1.
        let mut head = [0u8; 16];
        head[4..8].copy_from_slice(&1i32.to_ne_bytes());
        let answer = netlink
            .ask(Request::new(18, 0, &head))
            .expect("it is there");
        assert_eq!(answer.len(), 1);
        let name = answer[0].attributes(16).find_kind(3);
        assert_eq!(name, Some(&b"lo\0"[..]));
        let all = netlink.ask(Request::dump(18, &[0; 16])).expect("a dump");
        assert!(!all.is_empty());
        head[4..8].copy_from_slice(&i32::MAX.to_ne_bytes());
        let none = netlink.ask(Request::new(18, 0, &head)).err();
        let none = none.and_then(|error| error.raw_os_error());
        assert_eq!(none, Some(Errno::NODEV.raw_os_error()));
    }
}
