//! Another version of the program in this one's place, without an outage: `SIGUSR2`.
//!
//! The process executes the new program in its own place. It keeps its number and its listening
//! sockets; new connections wait in their queues meanwhile. The memory lies in a file (`-e`) and is
//! taken over from there, as after any end. Clients lose their connections, connect once more, and
//! find their items.
//!
//! ```text
//!  SIGUSR2 ─▶ does the program start? ─▶ workers end ─▶ execve ─▶ take over ─▶ serve
//!             (no: go on as before)       └─ connections wait in the sockets' queues ─┘
//! ```
#![allow(
    unsafe_code,
    reason = "descriptors that the process before has left open"
)]

use std::net::SocketAddr;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::{env, io};

use coua_transport::Listener;

use crate::process;

/// The environment variable with the process's own number and the descriptors that are left open:
/// `123:7,8`.
const SOCKETS: &str = "COUA_SOCKETS";

/// The program that takes this one's place.
pub struct Successor {
    program: PathBuf,
}

impl Successor {
    /// The program that this process was started as. To be asked at the start: an upgrade replaces
    /// the file.
    ///
    /// # Errors
    /// Where the system does not tell.
    pub fn find() -> io::Result<Successor> {
        Ok(Successor {
            program: env::current_exe()?,
        })
    }

    /// Whether the program is there and can be executed.
    ///
    /// # Errors
    /// Why not.
    pub fn check(&self) -> io::Result<()> {
        let output = Command::new(&self.program).arg("-V").output()?;
        if output.status.success() {
            Ok(())
        } else {
            Err(io::Error::other(output.status.to_string()))
        }
    }

    /// Becomes the program, and leaves it the sockets. Returns only if that fails.
    pub fn take_place(&self, sockets: &[Listener]) -> io::Error {
        let mut descriptors = Vec::new();
        for socket in sockets {
            match socket.keep_open() {
                Ok(descriptor) => descriptors.push(descriptor.to_string()),
                Err(error) => return error,
            }
        }
        let sockets = format!("{}:{}", std::process::id(), descriptors.join(","));
        process::with_same_arguments(&self.program)
            .env(SOCKETS, sockets)
            .exec()
    }
}

/// Listening sockets that the program before has left.
pub struct Inherited(Vec<Listener>);

impl Inherited {
    /// Takes them; a second call finds none. There are none either if this program was not started
    /// by [`Successor::take_place`].
    pub fn take() -> Inherited {
        static TAKEN: AtomicBool = AtomicBool::new(false);
        if TAKEN.swap(true, Ordering::Relaxed) {
            return Inherited(Vec::new());
        }
        let text = env::var(SOCKETS).unwrap_or_default();
        let descriptors = descriptors_in(&text, std::process::id());
        let sockets = descriptors.into_iter().map(|descriptor| {
            // SAFETY: the program that was this process before left the descriptor open and named
            // it with this process's number. Nothing else in this process has taken it: it was open
            // before `main`, and is taken once.
            unsafe { OwnedFd::from_raw_fd(descriptor) }
        });
        Inherited(sockets.filter_map(|fd| Listener::adopt(fd).ok()).collect())
    }

    /// The sockets that listen on `address`; port 0 stands for any port.
    pub fn listening_on(&mut self, address: SocketAddr) -> Vec<Listener> {
        let is_there = |listener: &Listener, port: u16| {
            let bound = listener.address();
            bound.is_some_and(|bound| bound.ip() == address.ip() && bound.port() == port)
        };
        let any = self.0.iter().filter_map(Listener::address);
        let port = match address.port() {
            0 => any
                .filter(|bound| bound.ip() == address.ip())
                .map(|bound| bound.port())
                .next(),
            port => Some(port),
        };
        let Some(port) = port else {
            return Vec::new();
        };
        let all = std::mem::take(&mut self.0);
        let (found, rest) = all
            .into_iter()
            .partition(|listener| is_there(listener, port));
        self.0 = rest;
        found
    }
}

/// The descriptors that the text names, if it is meant for process `own`.
fn descriptors_in(text: &str, own: u32) -> Vec<RawFd> {
    let Some((process, descriptors)) = text.split_once(':') else {
        return Vec::new();
    };
    if process.parse() != Ok(own) {
        return Vec::new();
    }
    let numbers = descriptors.split(',').filter_map(|text| text.parse().ok());
    // Standard streams are not among them, whatever the text says.
    let mut numbers: Vec<RawFd> = numbers.filter(|number| *number > 2).collect();
    numbers.sort_unstable();
    numbers.dedup();
    numbers
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptors_are_those_of_this_process() {
        assert_eq!(descriptors_in("12:7,8,7", 12), [7, 8]);
        assert_eq!(descriptors_in("12:7,8", 13), []);
        assert_eq!(descriptors_in("12:", 12), []);
        assert_eq!(descriptors_in("12:-1,0,2,x,9", 12), [9]);
        assert_eq!(descriptors_in("", 12), []);
    }
}
