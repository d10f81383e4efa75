//! The process around the server: user, limits, background, signals.

use std::ffi::CString;
use std::io;
use std::path::Path;
use std::process::{Command, Stdio};

use nix::unistd::{Uid, User};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::flags::{FlagError, Settings};

/// Set in the environment of the process that `-d` starts.
const BACKGROUND_MARK: &str = "COUA_IN_BACKGROUND";

/// Descriptors beside those of connections: standard streams, listeners, epoll sets, wakers.
const DESCRIPTORS_PER_WORKER: u64 = 8;

/// Why the process cannot be set up, and the status to exit with, as memcached has it.
#[derive(Debug, thiserror::Error)]
pub enum ProcessError {
    /// Root did not say whom to become.
    #[error("must add '-u root' to start as root")]
    RootWithoutUser,
    /// No such user.
    #[error("can't find the user {0} to switch to")]
    NoSuchUser(String),
    /// The system refuses.
    #[error("cannot {action}: {source}")]
    System {
        /// What was tried.
        action: &'static str,
        /// What the system said.
        source: io::Error,
    },
}

impl ProcessError {
    /// The status to exit with: those of sysexits.h that memcached uses.
    pub fn exit_status(&self) -> u8 {
        match self {
            ProcessError::RootWithoutUser => 64,
            ProcessError::NoSuchUser(_) => 67,
            ProcessError::System { .. } => 71,
        }
    }
}

/// The status to exit with for flags that cannot be followed.
pub fn exit_status_of(_: &FlagError) -> u8 {
    64
}

/// Lets the process open as many descriptors as the settings need.
pub fn raise_limits(settings: &Settings) -> Result<(), ProcessError> {
    let workers = settings.workers as u64;
    let needed = settings.connections_max as u64 + 32 + DESCRIPTORS_PER_WORKER * workers;
    let now = getrlimit(Resource::Nofile);
    if now.current.is_some_and(|current| current < needed) {
        let maximum = now.maximum.map(|maximum| maximum.max(needed));
        setrlimit(
            Resource::Nofile,
            Rlimit {
                current: Some(needed),
                maximum,
            },
        )
        .map_err(|errno| ProcessError::System {
            action: "raise the limit on open files: start as root or give a smaller -c",
            source: errno.into(),
        })?;
    }
    if settings.core_dumps {
        let maximum = getrlimit(Resource::Core).maximum;
        setrlimit(
            Resource::Core,
            Rlimit {
                current: maximum,
                maximum,
            },
        )
        .map_err(|errno| ProcessError::System {
            action: "raise the limit on core files",
            source: errno.into(),
        })?;
    }
    Ok(())
}

/// Whom to become: nobody else where this is not root, or where root said so.
pub fn find_user(user: Option<&str>) -> Result<Option<User>, ProcessError> {
    if !Uid::effective().is_root() {
        return Ok(None);
    }
    let Some(name) = user.filter(|name| !name.is_empty()) else {
        return Err(ProcessError::RootWithoutUser);
    };
    let found = User::from_name(name).ok().flatten();
    let user = found.ok_or_else(|| ProcessError::NoSuchUser(name.to_owned()))?;
    Ok(Some(user).filter(|user| !user.uid.is_root()))
}

/// Stops being root. Before any thread is started, and after privileged ports are bound.
pub fn drop_root(user: Option<&str>) -> Result<(), ProcessError> {
    match find_user(user)? {
        None => Ok(()),
        Some(user) => become_user(&user).map_err(|source| ProcessError::System {
            action: "assume the identity of the user",
            source,
        }),
    }
}

fn become_user(user: &User) -> io::Result<()> {
    nix::unistd::initgroups(&CString::new(user.name.as_str())?, user.gid)?;
    nix::unistd::setgid(user.gid)?;
    nix::unistd::setuid(user.uid)?;
    Ok(())
}

/// Carries on in the background: starts the same program once more, apart from the terminal, and
/// tells whether this process is to end. In that other process, does the rest and says no.
pub fn go_to_background(settings: &Settings) -> Result<bool, ProcessError> {
    let failed = |action| move |source| ProcessError::System { action, source };
    if std::env::var_os(BACKGROUND_MARK).is_some() {
        rustix::process::setsid()
            .map_err(io::Error::from)
            .map_err(failed("leave the terminal's session"))?;
        if let Some(path) = &settings.pid_file {
            write_pid_file(path).map_err(failed("write the file with the process number"))?;
        }
        return Ok(false);
    }
    let program = std::env::current_exe().map_err(failed("find the program"))?;
    let errors = if settings.verbosity > 0 {
        Stdio::inherit()
    } else {
        Stdio::null()
    };
    Command::new(program)
        .args(std::env::args_os().skip(1))
        .env(BACKGROUND_MARK, "1")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(errors)
        .spawn()
        .map_err(failed("start in the background"))?;
    Ok(true)
}

fn write_pid_file(path: &Path) -> io::Result<()> {
    std::fs::write(path, format!("{}\n", std::process::id()))
}
