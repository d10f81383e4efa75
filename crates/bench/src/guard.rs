//! Programs that end when this one does, however it ends.
//!
//! ```text
//! coua-bench ──pipe──▶ coua-bench guard ─┐
//!     └─ starts ─▶ memcached, ab, …      ├ one process group
//!                  and what they start ──┘
//! ```
//!
//! The guard leads the group and reads a pipe whose other end only this process has. The pipe
//! closes when this process is gone, even by SIGKILL, and then the guard kills the group. If this
//! process is root, so is the guard, so that it can kill servers that have changed their user too.
//!
//! # Not here
//! Programs that leave the group, as daemons do: servers are started in the foreground.

use std::ffi::OsStr;
use std::io::{self, Read};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, PoisonError};

use rustix::process::{Signal, getpgrp, getpid, kill_current_process_group};

/// The argument that makes this program the guard.
const COMMAND: &str = "guard";

/// A command for a program that does not outlive this process. Its standard input is empty, and
/// signals from the terminal reach this process alone.
pub(crate) fn command(program: impl AsRef<OsStr>) -> io::Result<Command> {
    let mut command = Command::new(program);
    command.stdin(Stdio::null()).process_group(group()?);
    Ok(command)
}

/// The guard's process group; the first call starts the guard.
fn group() -> io::Result<i32> {
    /// It is never waited for, so no other process gets its number while this one lives.
    static GUARD: Mutex<Option<Child>> = Mutex::new(None);
    let mut guard = GUARD.lock().unwrap_or_else(PoisonError::into_inner);
    let child = match &mut *guard {
        Some(child) => child,
        none => none.insert(
            Command::new(std::env::current_exe()?)
                .arg(COMMAND)
                .stdin(Stdio::piped())
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .process_group(0)
                .spawn()?,
        ),
    };
    i32::try_from(child.id()).map_err(io::Error::other)
}

/// The guard's work: waits until the pipe at its standard input closes, and kills its group.
///
/// # Errors
/// If it does not lead a process group of its own.
pub(crate) fn stand() -> io::Result<()> {
    if getpgrp() != getpid() {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    let mut pipe = io::stdin().lock();
    while !matches!(pipe.read(&mut [0; 64]), Ok(0)) {}
    Ok(kill_current_process_group(Signal::KILL)?)
}
