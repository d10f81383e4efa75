//! How bytes reach a server: a seam over sockets and whatever wraps them.

use std::fmt;
use std::io;
use std::net::{TcpStream, ToSocketAddrs};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, retry_on_intr};
use rustix::net::{
    self, AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType, sockopt,
};

use crate::address::Address;

/// One connection to a server: what a [`Client`](crate::Client) reads from and writes to.
///
/// [`Sockets`] makes plain ones. A wrapper, for encryption for one, implements this over another
/// transport.
pub trait Transport: fmt::Debug + Send {
    /// Takes as much of `bytes` as it can without waiting.
    ///
    /// # Errors
    /// [`io::ErrorKind::WouldBlock`] when it can take none; others end the connection.
    fn send(&mut self, bytes: &[u8]) -> io::Result<usize>;

    /// Gives bytes that have come, and waits for the first of them up to `timeout`. 0 bytes mean that the
    /// server has closed the connection.
    ///
    /// # Errors
    /// [`io::ErrorKind::TimedOut`] when none came; with a timeout of 0 that is at once. Others end the
    /// connection.
    fn receive(&mut self, into: &mut [u8], timeout: Duration) -> io::Result<usize>;

    /// Waits up to `timeout` until it can take bytes or has some to give.
    ///
    /// # Errors
    /// [`io::ErrorKind::TimedOut`] when neither happened.
    fn wait(&mut self, timeout: Duration) -> io::Result<()>;

    /// Everything that was asked has been answered. A transport that is two in one can change over now.
    ///
    /// # Errors
    /// They end the connection; what was answered stays so.
    fn all_answered(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Opens connections.
pub trait Connect: fmt::Debug + Send + Sync {
    /// Opens a connection within `timeout`.
    ///
    /// # Errors
    /// When there is none.
    fn connect(&self, address: &Address, timeout: Duration) -> io::Result<Box<dyn Transport>>;
}

/// Opens plain sockets: TCP without Nagle's delay, and unix sockets.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sockets;

impl Connect for Sockets {
    /// Tries each address of a host in turn. Resolving its name is the system's, and has its own limits of
    /// time.
    fn connect(&self, address: &Address, timeout: Duration) -> io::Result<Box<dyn Transport>> {
        let fd = match address {
            Address::Tcp { host, port } => tcp(host, *port, timeout)?.into(),
            Address::Unix(path) => unix(path, timeout)?.into(),
        };
        let timeout = Duration::ZERO;
        Ok(Box::new(Socket { fd, timeout }))
    }
}

fn tcp(host: &str, port: u16, timeout: Duration) -> io::Result<TcpStream> {
    let deadline = Instant::now() + timeout;
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the host has no address");
    for address in (host, port).to_socket_addrs()? {
        let rest = deadline.saturating_duration_since(Instant::now());
        match TcpStream::connect_timeout(&address, rest.max(Duration::from_millis(1))) {
            Ok(stream) => {
                stream.set_nodelay(true)?;
                return Ok(stream);
            }
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// A full queue of the listener makes `connect` wait; a timeout for sending bounds that.
fn unix(path: &Path, timeout: Duration) -> io::Result<UnixStream> {
    let address = SocketAddrUnix::new(path)?;
    let (family, kind) = (AddressFamily::UNIX, SocketType::STREAM);
    let fd = net::socket_with(family, kind, SocketFlags::CLOEXEC, None)?;
    let timeout = timeout.max(Duration::from_millis(1));
    sockopt::set_socket_timeout(&fd, sockopt::Timeout::Send, Some(timeout))?;
    match retry_on_intr(|| net::connect(&fd, &address)) {
        Ok(()) => Ok(UnixStream::from(fd)),
        Err(Errno::AGAIN) => Err(io::ErrorKind::TimedOut.into()),
        Err(error) => Err(error.into()),
    }
}

/// A socket that blocks only where it is asked to.
#[derive(Debug)]
struct Socket {
    fd: OwnedFd,
    /// What the socket is set to wait for bytes; zero before it is set.
    timeout: Duration,
}

/// Timeouts are rounded up to this, so that nearly every wait finds the socket set as it needs it. It is
/// finer for short ones.
const TIMEOUT_STEP: Duration = Duration::from_millis(50);

fn rounded(timeout: Duration) -> Duration {
    let step = match timeout <= 4 * TIMEOUT_STEP {
        true => Duration::from_millis(1),
        false => TIMEOUT_STEP,
    };
    let step = step.as_nanos();
    let nanoseconds = timeout.as_nanos().div_ceil(step).max(1) * step;
    Duration::from_nanos(u64::try_from(nanoseconds).unwrap_or(u64::MAX))
}

impl Transport for Socket {
    fn send(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        Ok(retry_on_intr(|| net::send(&self.fd, bytes, flags))?)
    }

    fn receive(&mut self, into: &mut [u8], timeout: Duration) -> io::Result<usize> {
        let mut flags = RecvFlags::empty();
        if timeout.is_zero() {
            flags |= RecvFlags::DONTWAIT;
        } else {
            let timeout = rounded(timeout);
            if timeout != self.timeout {
                sockopt::set_socket_timeout(&self.fd, sockopt::Timeout::Recv, Some(timeout))?;
                self.timeout = timeout;
            }
        }
        match retry_on_intr(|| net::recv(&self.fd, &mut *into, flags)) {
            Ok((received, _)) => Ok(received),
            Err(Errno::AGAIN) => Err(io::ErrorKind::TimedOut.into()),
            Err(error) => Err(error.into()),
        }
    }

    fn wait(&mut self, timeout: Duration) -> io::Result<()> {
        let mut fds = [PollFd::new(&self.fd, PollFlags::IN | PollFlags::OUT)];
        let timeout = Timespec::try_from(timeout).map_err(|_| io::ErrorKind::InvalidInput)?;
        match retry_on_intr(|| poll(&mut fds, Some(&timeout)))? {
            0 => Err(io::ErrorKind::TimedOut.into()),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timeouts_are_rounded_up() {
        let milliseconds = Duration::from_millis;
        for (timeout, expected) in [(1, 1), (199, 199), (201, 250), (2499, 2500), (2500, 2500)] {
            assert_eq!(rounded(milliseconds(timeout)), milliseconds(expected));
        }
        assert_eq!(rounded(Duration::from_nanos(1)), milliseconds(1));
        assert_eq!(
            rounded(milliseconds(2500) - Duration::from_nanos(1)),
            milliseconds(2500)
        );
    }
}
