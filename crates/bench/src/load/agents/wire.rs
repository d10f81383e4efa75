//! Messages between driver and agent, and the connection they travel on.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::net::sockopt;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use thiserror::Error as ThisError;

use super::job::Job;
use crate::load::measured::Measured;
use crate::load::order::Order;

/// The version of the messages and their meaning. Both sides must have the same.
pub(in crate::load) const VERSION: u32 = 2;

/// What a driver sends.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(in crate::load) enum ToAgent {
    /// The first line.
    Hello {
        /// The driver's [`VERSION`].
        version: u32,
    },
    /// What to prepare; the numbers of its keys follow.
    Job(Box<Job>),
    /// What to do now.
    Order(Order),
}

/// What an agent sends.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(in crate::load) enum ToDriver {
    /// The first line.
    Hello {
        /// The agent's [`VERSION`].
        version: u32,
    },
    /// All connections are open.
    Ready,
    /// Progress of the order.
    Progress {
        /// Replies so far.
        replies: u64,
    },
    /// The outcome of the order; its histograms follow.
    Done {
        /// All but the histograms.
        measured: Box<Measured>,
        /// Bytes of the histograms.
        histogram: usize,
    },
    /// The last line, if something went wrong.
    Failed {
        /// The reason, in words.
        reason: String,
    },
}

/// Why a conversation is over.
#[derive(Debug, ThisError)]
pub(in crate::load) enum Fault {
    /// The other side has closed the connection, or died.
    #[error("the connection has ended")]
    Left,
    /// The other side sends nothing.
    #[error("no message for {} s", .0.as_secs())]
    Silent(Duration),
    /// This side gives up.
    #[error("stopped")]
    Stopped,
    /// It sends more than is allowed.
    #[error("a message of {0} is longer than allowed")]
    Long(&'static str),
    /// It sends what cannot be understood, or at the wrong moment.
    #[error("{0}")]
    Wrong(String),
    /// The connection fails.
    #[error(transparent)]
    Io(io::Error),
}

impl From<io::Error> for Fault {
    fn from(error: io::Error) -> Fault {
        match error.kind() {
            io::ErrorKind::ConnectionReset
            | io::ErrorKind::BrokenPipe
            | io::ErrorKind::UnexpectedEof
            // Keepalive got no answer.
            | io::ErrorKind::TimedOut => Fault::Left,
            io::ErrorKind::WouldBlock => Fault::Silent(Wire::PATIENCE),
            _ => Fault::Io(error),
        }
    }
}

/// One end of a connection.
#[derive(Debug)]
pub(in crate::load) struct Wire {
    stream: TcpStream,
    /// What has arrived after the message that was read last.
    input: Vec<u8>,
}

impl Wire {
    /// Most bytes of a line, including its end.
    const LINE_MAX: usize = 64 << 10;
    /// How long the other side may be silent when it is its turn.
    pub(in crate::load) const PATIENCE: Duration = Duration::from_secs(10);
    /// How often a wait checks whether it should stop.
    const LOOK: Duration = Duration::from_millis(100);

    /// Over a stream that is connected.
    pub(in crate::load) fn new(stream: TcpStream) -> io::Result<Wire> {
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(Self::LOOK))?;
        stream.set_write_timeout(Some(Self::PATIENCE))?;
        sockopt::set_socket_keepalive(&stream, true)?;
        sockopt::set_tcp_keepidle(&stream, Self::PATIENCE)?;
        sockopt::set_tcp_keepintvl(&stream, Self::PATIENCE)?;
        sockopt::set_tcp_keepcnt(&stream, 3)?;
        Ok(Wire {
            stream,
            input: Vec::new(),
        })
    }

    /// Sends a message.
    pub(in crate::load) fn send(&mut self, message: &impl Serialize) -> Result<(), Fault> {
        let line = serde_json::to_vec(message).map_err(|error| Fault::Wrong(error.to_string()))?;
        if line.len() >= Self::LINE_MAX {
            return Err(Fault::Long("64 KiB"));
        }
        self.send_payload(&[&line, &b"\n"[..]].concat())
    }

    /// Sends the payload of the last message, or a part of it.
    pub(in crate::load) fn send_payload(&mut self, bytes: &[u8]) -> Result<(), Fault> {
        Ok(self.stream.write_all(bytes)?)
    }

    /// Waits for the next message until `stop` is set, and `limit` at most.
    pub(in crate::load) fn receive<M: DeserializeOwned>(
        &mut self,
        limit: Option<Duration>,
        stop: &AtomicBool,
    ) -> Result<M, Fault> {
        let mut seen = 0;
        loop {
            if let Some(end) = memchr::memchr(b'\n', &self.input[seen..]) {
                let line: Vec<u8> = self.input.drain(..=seen + end).collect();
                return serde_json::from_slice(&line)
                    .map_err(|_| Fault::Wrong(format!("cannot make sense of {}", shown(&line))));
            }
            seen = self.input.len();
            if seen >= Self::LINE_MAX {
                return Err(Fault::Long("64 KiB"));
            }
            self.read(Self::LINE_MAX - seen, limit, stop)?;
        }
    }

    /// Waits for a payload of `bytes` bytes, at most [`PATIENCE`](Self::PATIENCE) for each part of
    /// it.
    pub(in crate::load) fn receive_payload(
        &mut self,
        bytes: usize,
        stop: &AtomicBool,
    ) -> Result<Vec<u8>, Fault> {
        while self.input.len() < bytes {
            self.read(bytes - self.input.len(), Some(Self::PATIENCE), stop)?;
        }
        let rest = self.input.split_off(bytes);
        Ok(std::mem::replace(&mut self.input, rest))
    }

    /// Waits until something arrives, and reads it, up to `most` bytes.
    fn read(
        &mut self,
        most: usize,
        limit: Option<Duration>,
        stop: &AtomicBool,
    ) -> Result<(), Fault> {
        let mut bytes = [0; 16 << 10];
        let most = most.min(bytes.len());
        let began = Instant::now();
        loop {
            if stop.load(Ordering::Relaxed) {
                return Err(Fault::Stopped);
            }
            match self.stream.read(&mut bytes[..most]) {
                Ok(0) => return Err(Fault::Left),
                Ok(count) => {
                    self.input.extend_from_slice(&bytes[..count]);
                    return Ok(());
                }
                Err(error) if waits(&error) => {}
                Err(error) => return Err(error.into()),
            }
            if let Some(limit) = limit.filter(|&limit| began.elapsed() >= limit) {
                return Err(Fault::Silent(limit));
            }
        }
    }

    /// Tells the driver the reason, and closes. Reads what still arrives for a moment: closing with
    /// unread bytes resets the connection, and the driver might never see the reason.
    pub(in crate::load) fn refuse(mut self, reason: &str) {
        let reason = reason.chars().take(500).collect();
        let told = self.send(&ToDriver::Failed { reason });
        if told.is_err() || self.stream.shutdown(Shutdown::Write).is_err() {
            return;
        }
        let began = Instant::now();
        let mut bytes = [0; 16 << 10];
        while began.elapsed() < Duration::from_secs(1) {
            match self.stream.read(&mut bytes) {
                Ok(0) => return,
                Ok(_) => {}
                Err(error) if waits(&error) => {}
                Err(_) => return,
            }
        }
    }
}

fn waits(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
    )
}

/// The beginning of a line that was not understood.
fn shown(line: &[u8]) -> String {
    let text = String::from_utf8_lossy(&line[..line.len().min(60)]);
    format!("{:?}", text.trim_end())
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    fn pair() -> (Wire, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (Wire::new(listener.accept().unwrap().0).unwrap(), near)
    }

    static GO: AtomicBool = AtomicBool::new(false);

    #[test]
    fn messages_and_payloads_alternate() {
        let (mut far, near) = pair();
        let mut near = Wire::new(near).unwrap();
        let payload: Vec<u8> = (0..100_000u32).flat_map(u32::to_le_bytes).collect();
        let copy = payload.clone();
        let sender = std::thread::spawn(move || {
            for replies in 0..3 {
                near.send(&ToDriver::Progress { replies }).unwrap();
                near.send_payload(&copy).unwrap();
            }
        });
        for expected in 0..3 {
            let message = far.receive(None, &GO).unwrap();
            assert!(matches!(message, ToDriver::Progress { replies } if replies == expected));
            let came = far.receive_payload(payload.len(), &GO).unwrap();
            assert_eq!(came, payload);
        }
        sender.join().unwrap();
        let end = far.receive::<ToDriver>(None, &GO);
        assert!(matches!(end, Err(Fault::Left)), "{end:?}");
    }

    #[test]
    fn what_is_no_message_ends_the_conversation() {
        for (text, expected) in [
            ("x".repeat(70_000), "longer"),
            ("GET / HTTP/1.1\r\n".to_owned(), "GET / HTTP/1.1"),
            ("{\"bye\":1}\n".to_owned(), "bye"),
        ] {
            let (mut far, mut near) = pair();
            near.write_all(text.as_bytes()).unwrap();
            let fault = far.receive::<ToDriver>(None, &GO).unwrap_err().to_string();
            assert!(fault.contains(expected), "{fault}");
        }
    }

    #[test]
    fn waiting_has_an_end() {
        let (mut far, _near) = pair();
        let limit = Some(Duration::from_millis(150));
        let silent = far.receive::<ToDriver>(limit, &GO);
        assert!(matches!(silent, Err(Fault::Silent(_))), "{silent:?}");
        let stopped = far.receive::<ToDriver>(None, &AtomicBool::new(true));
        assert!(matches!(stopped, Err(Fault::Stopped)), "{stopped:?}");
    }
}
