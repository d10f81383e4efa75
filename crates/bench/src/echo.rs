//! The bare server: it moves the bytes that a cache would move and does nothing else.
//!
//! One thread, one epoll set. A request is a number of line ends; each request is answered with the
//! same prepared reply, and all replies of a wake-up leave in one write. Or everything that comes
//! is sent back as it is. No key is looked at. Whatever more time a cache needs is its own work.

use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};

use rustix::event::epoll;
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketType, bind, listen, recv, send, socket, sockopt,
};

/// What the server answers.
#[derive(Clone, Debug)]
pub(crate) enum Reply {
    /// Whatever came.
    Mirror,
    /// The same bytes for each request.
    Same {
        /// Line ends of a request.
        lines: usize,
        /// The reply.
        reply: Vec<u8>,
    },
}

/// A bare server on one listener.
#[derive(Debug)]
pub(crate) struct Echo {
    listener: TcpListener,
    epoll: rustix::fd::OwnedFd,
    /// By the number in their epoll events.
    peers: Vec<Option<Peer>>,
    answer: Answer,
    input: Box<[u8]>,
}

impl Echo {
    const LISTENER: u64 = u64::MAX;
    const READ: usize = 256 << 10;

    /// The most connections that may wait to be accepted.
    const BACKLOG: i32 = 1024;

    /// Listens. If the address is `shared`, other servers may listen on it too, and the kernel
    /// distributes connections among them.
    pub(crate) fn bind(address: SocketAddr, shared: bool, reply: &Reply) -> io::Result<Echo> {
        let family = match address {
            SocketAddr::V4(_) => AddressFamily::INET,
            SocketAddr::V6(_) => AddressFamily::INET6,
        };
        let listener = socket(family, SocketType::STREAM, None)?;
        sockopt::set_socket_reuseaddr(&listener, true)?;
        sockopt::set_socket_reuseport(&listener, shared)?;
        bind(&listener, &address)?;
        listen(&listener, Self::BACKLOG)?;
        let listener = TcpListener::from(listener);
        listener.set_nonblocking(true)?;
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let data = epoll::EventData::new_u64(Self::LISTENER);
        epoll::add(&epoll, &listener, data, epoll::EventFlags::IN)?;
        let input = vec![0; Self::READ].into();
        Ok(Echo {
            listener,
            epoll,
            peers: Vec::new(),
            answer: Answer::new(reply),
            input,
        })
    }

    #[cfg(test)]
    fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Serves all peers until the listener fails.
    pub(crate) fn serve(&mut self) -> io::Result<()> {
        let mut events = Vec::with_capacity(1024);
        loop {
            events.clear();
            match epoll::wait(
                &self.epoll,
                rustix::buffer::spare_capacity(&mut events),
                None,
            ) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            for event in &events {
                match event.data.u64() {
                    Self::LISTENER => self.accept()?,
                    index => self.turn(usize::try_from(index).expect("an index was registered")),
                }
            }
        }
    }

    fn accept(&mut self) -> io::Result<()> {
        loop {
            let stream = match self.listener.accept() {
                Ok((stream, _)) => stream,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => continue,
                Err(error) => return Err(error),
            };
            stream.set_nonblocking(true)?;
            stream.set_nodelay(true)?;
            let free = self.peers.iter().position(Option::is_none);
            let index = free.unwrap_or_else(|| {
                self.peers.push(None);
                self.peers.len() - 1
            });
            let flags = epoll::EventFlags::IN | epoll::EventFlags::OUT | epoll::EventFlags::ET;
            epoll::add(
                &self.epoll,
                &stream,
                epoll::EventData::new_u64(index as u64),
                flags,
            )?;
            self.peers[index] = Some(Peer {
                stream,
                lines: 0,
                owed: 0,
                kept: Vec::new(),
            });
        }
    }

    fn turn(&mut self, index: usize) {
        let Some(peer) = &mut self.peers[index] else {
            return;
        };
        if peer.turn(&mut self.input, &self.answer).is_err() {
            self.peers[index] = None;
        }
    }
}

#[derive(Debug)]
struct Peer {
    stream: TcpStream,
    /// Line ends of an unfinished request.
    lines: usize,
    /// Bytes of replies that the socket has not taken.
    owed: usize,
    /// What a mirror received; its last `owed` bytes have still to be sent back.
    kept: Vec<u8>,
}

impl Peer {
    /// How many bytes may be owed before reading stops.
    const OWED_MAX: usize = 16 << 20;

    fn turn(&mut self, input: &mut [u8], answer: &Answer) -> Result<(), Errno> {
        loop {
            self.write(answer)?;
            if self.owed >= Self::OWED_MAX {
                return Ok(());
            }
            match recv(&self.stream, &mut *input, RecvFlags::empty()) {
                Ok((0, _)) => return Err(Errno::CONNRESET),
                Ok((bytes, _)) => {
                    self.owe(&input[..bytes], answer);
                    if bytes < input.len() {
                        return self.write(answer);
                    }
                }
                Err(Errno::AGAIN) => return Ok(()),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error),
            }
        }
    }

    fn owe(&mut self, input: &[u8], answer: &Answer) {
        match answer {
            Answer::Mirror => {
                self.kept.extend_from_slice(input);
                self.owed += input.len();
            }
            Answer::Same { lines, size, .. } => {
                self.lines += memchr::memchr_iter(b'\n', input).count();
                self.owed += self.lines / lines * size;
                self.lines %= lines;
            }
        }
    }

    fn write(&mut self, answer: &Answer) -> Result<(), Errno> {
        while self.owed > 0 {
            let next = match answer {
                Answer::Mirror => &self.kept[self.kept.len() - self.owed..],
                // The next byte is the one after which whole replies are left.
                Answer::Same { size, replies, .. } => {
                    let start = (size - self.owed % size) % size;
                    &replies[start..replies.len().min(start + self.owed)]
                }
            };
            match send(&self.stream, next, SendFlags::NOSIGNAL) {
                Ok(bytes) => self.owed -= bytes,
                Err(Errno::AGAIN) => return Ok(()),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error),
            }
        }
        self.kept.clear();
        Ok(())
    }
}

#[derive(Debug)]
enum Answer {
    Mirror,
    Same {
        /// Line ends in a request.
        lines: usize,
        /// Bytes in a reply.
        size: usize,
        /// The reply, over and over.
        replies: Vec<u8>,
    },
}

impl Answer {
    /// Bytes of replies that one write can send.
    const PREPARED: usize = 256 << 10;

    fn new(reply: &Reply) -> Answer {
        match reply {
            Reply::Mirror => Answer::Mirror,
            Reply::Same { lines, reply } => {
                let size = reply.len().max(1);
                Answer::Same {
                    lines: (*lines).max(1),
                    size,
                    replies: reply.repeat(Self::PREPARED / size + 1),
                }
            }
        }
    }
}

/// The answer to a get of `keys` keys that are all there; the sizes are real, keys and values are
/// made up.
pub(crate) fn canned_hit(key_size: usize, value_size: usize, keys: usize) -> Vec<u8> {
    let (key, value) = ("k".repeat(key_size), "v".repeat(value_size));
    let block = format!("VALUE {key} 0 {value_size}\r\n{value}\r\n");
    (block.repeat(keys) + "END\r\n").into_bytes()
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::Ipv4Addr;

    use super::*;

    fn echo(reply: &Reply) -> TcpStream {
        let mut echo = Echo::bind((Ipv4Addr::LOCALHOST, 0).into(), false, reply).unwrap();
        let address = echo.address().unwrap();
        std::thread::spawn(move || echo.serve());
        TcpStream::connect(address).unwrap()
    }

    #[test]
    fn a_request_of_two_lines_has_one_reply() {
        let mut stream = echo(&Reply::Same {
            lines: 2,
            reply: b"STORED\r\n".to_vec(),
        });
        stream
            .write_all(b"set a 0 0 1\r\nx\r\nset b 0 0 1\r")
            .unwrap();
        let mut reply = [0; 8];
        stream.read_exact(&mut reply).unwrap();
        stream.write_all(b"\nx\r\n").unwrap();
        stream.read_exact(&mut reply).unwrap();
        assert_eq!(&reply, b"STORED\r\n");
    }

    #[test]
    fn a_slow_reader_gets_every_byte_in_order() {
        let reply: Vec<u8> = (0..100_003u32)
            .map(|at| b'a' + u8::try_from(at % 23).unwrap())
            .collect();
        let mut stream = echo(&Reply::Same {
            lines: 1,
            reply: reply.clone(),
        });
        stream.write_all(&[b'\n'; 100]).unwrap();
        let mut got = vec![0; reply.len() * 100];
        stream.read_exact(&mut got).unwrap();
        assert!(got.chunks(reply.len()).all(|chunk| chunk == reply));
    }

    #[test]
    fn a_mirror_sends_back_what_came() {
        let mut stream = echo(&Reply::Mirror);
        // More than the sockets hold, so that the writer has to be read from meanwhile.
        let sent: Vec<u8> = (0..20_000_003u32)
            .map(|at| u8::try_from(at % 251).unwrap())
            .collect();
        let mut writer = stream.try_clone().unwrap();
        let copy = sent.clone();
        let writing = std::thread::spawn(move || writer.write_all(&copy).unwrap());
        let mut got = vec![0; sent.len()];
        stream.read_exact(&mut got).unwrap();
        writing.join().unwrap();
        assert!(got == sent);
    }
}
