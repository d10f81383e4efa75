//! A cache server to point real clients at.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use crate::commands::{program, run};

/// How long a server may take until its first answer.
const START_LIMIT: Duration = Duration::from_secs(20);

/// A child process that listens. Dropping it ends the process.
pub(crate) struct Server {
    /// Where it listens.
    pub(crate) port: u16,
    child: Child,
}

impl Server {
    /// Starts a memcached-compatible server on a free port and waits for its first answer.
    pub(crate) fn start(path: &Path, flags: &[&str]) -> Result<Self> {
        let port = free_port()?;
        let mut command = program(path);
        command
            .args(["-l", "127.0.0.1", "-p", &port.to_string(), "-u", "root"])
            .args(flags);
        Self::start_as(&mut command, port, || {
            let mut answer = [0; 4];
            connect(port).is_some_and(|mut stream| {
                stream.write_all(b"mn\r\n").is_ok()
                    && stream.read_exact(&mut answer).is_ok()
                    && &answer == b"MN\r\n"
            })
        })
    }

    /// Starts a program that listens at `port`, and waits until `is_up` says that it does.
    pub(crate) fn start_as(
        command: &mut Command,
        port: u16,
        is_up: impl Fn() -> bool,
    ) -> Result<Self> {
        let child = command
            .stdin(Stdio::null())
            .spawn()
            .with_context(|| format!("{command:?} cannot be run"))?;
        let mut server = Self { port, child };
        let deadline = Instant::now() + START_LIMIT;
        while Instant::now() < deadline {
            if let Some(status) = server.child.try_wait()? {
                bail!("{command:?} ends at once: {status}");
            }
            if is_up() {
                return Ok(server);
            }
            thread::sleep(Duration::from_millis(10));
        }
        bail!("{command:?} does not answer within {START_LIMIT:?}");
    }

    /// Sends it a signal, by its name.
    pub(crate) fn signal(&self, name: &str) -> Result<()> {
        run(program("kill").args([&format!("-{name}"), &self.child.id().to_string()]))
    }

    /// Asks it to end, and waits until it has ended.
    pub(crate) fn stop(mut self) -> Result<()> {
        run(program("kill").arg(self.child.id().to_string()))?;
        let status = self.child.wait()?;
        ensure!(status.success(), "a server that was to stop: {status}");
        Ok(())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended by itself; then the client's failure says more.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A connection to a port on loopback, if a server listens there.
pub(crate) fn connect(port: u16) -> Option<TcpStream> {
    let stream = TcpStream::connect(SocketAddr::from((Ipv4Addr::LOCALHOST, port))).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(2))).ok()?;
    Some(stream)
}

/// A port on loopback where nobody listens at the moment.
pub(crate) fn free_port() -> Result<u16> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?
        .local_addr()?
        .port())
}
