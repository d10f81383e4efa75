//! The process around the server: user, limits, background, pid file.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use nix::errno::Errno;
use nix::sys::resource::{UsageWho, getrusage};
use nix::unistd::{Uid, User};
use rustix::process::{DumpableBehavior, Pid, Resource, Rlimit, getrlimit, setrlimit};

use crate::flags::{FlagError, Settings};

/// sysexits.h: the command line is wrong.
const EX_USAGE: u8 = 64;

/// sysexits.h: there is no such user.
const EX_NOUSER: u8 = 67;

/// sysexits.h: the system refuses.
pub const EX_OSERR: u8 = 71;

/// sysexits.h: a file of settings is wrong.
const EX_CONFIG: u8 = 78;

/// Set in the environment of the process that `-d` starts.
const BACKGROUND_MARK: &str = "COUA_IN_BACKGROUND";

/// Descriptors beside those of connections and workers: standard streams, signals, files.
const DESCRIPTORS: u64 = 32;

/// Descriptors of each worker beside those of connections: listeners, epoll set, waker.
const DESCRIPTORS_PER_WORKER: u64 = 8;

/// Descriptors of each worker for each device of flash: rings and what signals them.
const DESCRIPTORS_PER_DEVICE: u64 = 4;

/// Why the process cannot be set up.
#[derive(Debug, thiserror::Error)]
pub enum ProcessError {
    /// Root named no user to become.
    #[error("-u: must add '-u root' to start as root, or better another user")]
    RootWithoutUser,
    /// No such user.
    #[error("-u: can't find the user {0} to switch to")]
    NoSuchUser(String),
    /// Fewer descriptors than connections.
    #[error(
        "-c {connections} needs {needed} descriptors, and the system grants {granted}: \
         raise the limit (ulimit -n), start as root, or give a smaller -c"
    )]
    Descriptors {
        /// Connections asked for.
        connections: usize,
        /// Descriptors for them and all else.
        needed: u64,
        /// Descriptors that there may be.
        granted: u64,
    },
    /// The limit on core files is zero.
    #[error(
        "-r: the system allows no core files: raise the hard limit (ulimit -c) or leave it out"
    )]
    CoreFiles,
    /// The system refuses something else.
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
            ProcessError::RootWithoutUser => EX_USAGE,
            ProcessError::NoSuchUser(_) => EX_NOUSER,
            ProcessError::Descriptors { .. }
            | ProcessError::CoreFiles
            | ProcessError::System { .. } => EX_OSERR,
        }
    }
}

/// The status to exit with for flags that are wrong, or for a file of `--config` that is.
pub fn exit_status_of(errors: &[FlagError]) -> u8 {
    match errors.iter().all(FlagError::is_in_file) {
        true => EX_CONFIG,
        false => EX_USAGE,
    }
}

fn failed<E: Into<io::Error>>(action: &'static str) -> impl FnOnce(E) -> ProcessError {
    move |source| ProcessError::System {
        action,
        source: source.into(),
    }
}

/// Raises the limits that are too low for the settings. To be called before root's rights are given
/// up. Returns a warning for the log if a limit is lower than it should be but will do.
///
/// # Errors
/// [`ProcessError`]: a limit cannot be raised to what the settings need.
pub fn raise_limits(settings: &Settings) -> Result<Option<String>, ProcessError> {
    if settings.core_dumps {
        raise_core_limit()?;
    }
    if settings.lock_memory || settings.flash.is_some() {
        // If it cannot be raised, locking itself shows whether it was high enough. io_uring counts registered memory as
        // locked, once a worker; without it a read costs a little more.
        let _ = setrlimit(Resource::Memlock, WITHOUT_LIMIT);
    }
    raise_descriptor_limit(settings)
}

const WITHOUT_LIMIT: Rlimit = Rlimit {
    current: None,
    maximum: None,
};

fn raise_core_limit() -> Result<(), ProcessError> {
    if setrlimit(Resource::Core, WITHOUT_LIMIT).is_err() {
        let maximum = getrlimit(Resource::Core).maximum;
        let highest = Rlimit {
            current: maximum,
            maximum,
        };
        setrlimit(Resource::Core, highest)
            .map_err(failed("raise the limit on core files for -r"))?;
    }
    match getrlimit(Resource::Core).current {
        Some(0) => Err(ProcessError::CoreFiles),
        _ => Ok(()),
    }
}

/// Fewer descriptors than wanted will do if there is one for each connection: the last connections
/// may then have to wait. memcached asks for no more. Connections on the server's own stack take
/// none.
fn raise_descriptor_limit(settings: &Settings) -> Result<Option<String>, ProcessError> {
    let connections = settings.connections_max as u64;
    let devices = settings.flash.as_ref().map_or(0, |it| it.places.len()) as u64;
    let per_worker = DESCRIPTORS_PER_WORKER + DESCRIPTORS_PER_DEVICE * devices;
    let others = DESCRIPTORS + devices + per_worker * settings.workers as u64;
    let needed = connections + others;
    let now = getrlimit(Resource::Nofile);
    if now.current.is_none_or(|current| current >= needed) {
        return Ok(None);
    }
    let raised = Rlimit {
        current: Some(needed),
        maximum: now.maximum.map(|maximum| maximum.max(needed)),
    };
    if setrlimit(Resource::Nofile, raised).is_ok() {
        return Ok(None);
    }
    let granted = now.maximum.unwrap_or(needed);
    if granted < connections && settings.net.is_none() {
        return Err(ProcessError::Descriptors {
            connections: settings.connections_max,
            needed,
            granted,
        });
    }
    let highest = Rlimit {
        current: now.maximum,
        maximum: now.maximum,
    };
    setrlimit(Resource::Nofile, highest)
        .map_err(failed("raise the limit on open files (ulimit -n) for -c"))?;
    Ok(Some(format!(
        "-c {connections} needs {needed} descriptors, and the system grants {granted}: the last \
         connections may have to wait"
    )))
}

/// The user to become. `None` if this process is not root's, or if root asked to stay root.
///
/// # Errors
/// [`ProcessError`]: the system knows no such user.
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

/// Stops being root, if [`find_user`] has found another user. To be called before any thread is
/// started, and after privileged ports are bound.
///
/// # Errors
/// [`ProcessError`]: the system refuses a step.
pub fn drop_root(user: Option<&User>, settings: &Settings) -> Result<(), ProcessError> {
    let Some(user) = user else {
        return Ok(());
    };
    become_user(user).map_err(failed("assume the identity of the user (-u)"))?;
    if settings.core_dumps {
        // A process that has changed its user writes no core files unless it asks to.
        rustix::process::set_dumpable_behavior(DumpableBehavior::Dumpable)
            .map_err(failed("allow core files (-r) beside another user (-u)"))?;
    }
    Ok(())
}

fn become_user(user: &User) -> io::Result<()> {
    match nix::unistd::setgroups(&[]) {
        // A process that may not drop its groups has few rights to lose.
        Ok(()) | Err(Errno::EPERM) => {}
        Err(errno) => return Err(errno.into()),
    }
    nix::unistd::setgid(user.gid)?;
    nix::unistd::setuid(user.uid)?;
    Ok(())
}

/// CPU time of this process, in seconds.
pub fn cpu_seconds() -> f64 {
    getrusage(UsageWho::RUSAGE_SELF).map_or(0.0, |usage| {
        let (user, system) = (usage.user_time(), usage.system_time());
        (user.tv_sec() + system.tv_sec()) as f64 + (user.tv_usec() + system.tv_usec()) as f64 / 1e6
    })
}

/// Bytes of this process that are in RAM; `None` where the system does not tell.
pub fn resident_bytes() -> Option<u64> {
    let statm = std::fs::read_to_string("/proc/self/statm").ok()?;
    let pages: u64 = statm.split(' ').nth(1)?.parse().ok()?;
    Some(pages * rustix::param::page_size() as u64)
}

/// `program` under the name and with the arguments that this process was started with.
pub fn with_same_arguments(program: &Path) -> Command {
    let mut arguments = std::env::args_os();
    let mut command = Command::new(program);
    if let Some(name) = arguments.next() {
        command.arg0(name);
    }
    command.args(arguments);
    command
}

/// Whether this is the process that [`start_in_background`] has started.
pub fn is_in_background() -> bool {
    std::env::var_os(BACKGROUND_MARK).is_some()
}

/// Starts the same program once more and waits until that is ready or has ended. The new process
/// calls [`leave_terminal`] and [`tell_ready`]. Returns the status to exit with, so that whoever
/// starts a service knows at once whether it runs.
///
/// # Errors
/// [`ProcessError`]: the program cannot be found or started.
pub fn start_in_background() -> Result<u8, ProcessError> {
    let program = std::env::current_exe().map_err(failed("find the program for -d"))?;
    let mut child = with_same_arguments(&program)
        .env(BACKGROUND_MARK, "1")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(failed("start in the background (-d)"))?;
    let mut word = [0];
    let is_ready = child
        .stdout
        .take()
        .is_some_and(|mut pipe| pipe.read_exact(&mut word).is_ok());
    if is_ready {
        return Ok(0);
    }
    let status = child
        .wait()
        .map_err(failed("wait for the process in the background (-d)"))?;
    // A process that was killed has no status, and 0 would be wrong.
    let code = status.code().filter(|code| *code != 0);
    Ok(code
        .and_then(|code| u8::try_from(code).ok())
        .unwrap_or(EX_OSERR))
}

/// Leaves the session of the terminal from which the server was started.
///
/// # Errors
/// [`ProcessError`]: the system refuses, as it does for the leader of a process group.
pub fn leave_terminal() -> Result<(), ProcessError> {
    rustix::process::setsid()
        .map(drop)
        .map_err(failed("leave the terminal's session (-d)"))
}

/// Tells the process in the foreground that the server is ready. Then leaves its folder, unless
/// core files are to be written there, and its standard streams, unless the log goes there.
pub fn tell_ready(settings: &Settings) {
    let mut pipe = io::stdout();
    // That process may have been killed meanwhile, which does not matter.
    let _ = pipe.write_all(b"\n").and_then(|()| pipe.flush());
    if !settings.core_dumps {
        // A process in the folder would keep its file system from being unmounted.
        let _ = std::env::set_current_dir("/");
    }
    match File::options().read(true).write(true).open("/dev/null") {
        Ok(null) => {
            // This fails only for lack of memory. Then the streams stay as they are.
            let _ = rustix::stdio::dup2_stdout(&null);
            if settings.verbosity == 0 {
                let _ = rustix::stdio::dup2_stderr(&null);
            }
        }
        Err(error) => tracing::warn!("-d: cannot open /dev/null: {error}"),
    }
}

/// The pid file. Dropping it removes the file, or empties it if the user may not remove it. A file
/// that has become another process's is left alone.
pub struct PidFile {
    path: PathBuf,
    /// The file, opened with root's rights if the server becomes another user, who may have no right
    /// to its folder.
    opened: Option<File>,
}

impl PidFile {
    /// Prepares the file to be written later. To be called before root's rights are given up, and
    /// before a process in the background changes its folder.
    pub fn prepare(path: &Path) -> PidFile {
        let is_root = Uid::effective().is_root();
        let open = || {
            let mut options = File::options();
            options.write(true).create(true).truncate(false);
            // No symbolic link is followed: others could make root write elsewhere by it.
            options.custom_flags(libc::O_NOFOLLOW).open(path).ok()
        };
        PidFile {
            path: std::path::absolute(path).unwrap_or_else(|_| path.to_owned()),
            opened: is_root.then(open).flatten(),
        }
    }

    /// Writes the number at once, so that others never find a part of it. If the system refuses, the
    /// log says so and there is no file: the cache is of use without it.
    pub fn write(&mut self) {
        if number_in(&self.path).is_some_and(|pid| pid.as_raw_nonzero() == own_pid()) {
            // The program before this one has written it, perhaps with more rights.
            return;
        }
        let path = self.path.display();
        if let Some(other) = running(&self.path) {
            tracing::warn!("-P: {path} holds the number of a running process, {other}");
        }
        let number = format!("{}\n", std::process::id());
        if let Err(error) = self.replace(&number).or_else(|_| self.fill(&number)) {
            tracing::warn!("-P: cannot write {path}: {error}");
        }
    }

    /// Puts a new file in the place of what is there.
    fn replace(&self, number: &str) -> io::Result<()> {
        let mut unfinished = self.path.clone().into_os_string();
        unfinished.push(".tmp");
        std::fs::write(&unfinished, number)?;
        std::fs::rename(&unfinished, &self.path)
    }

    /// Writes into the file that has been opened before.
    fn fill(&self, number: &str) -> io::Result<()> {
        let mut file = match &self.opened {
            Some(file) => file,
            None => &File::options().write(true).open(&self.path)?,
        };
        file.set_len(0)?;
        file.write_all(number.as_bytes())
    }
}

impl Drop for PidFile {
    fn drop(&mut self) {
        let text = std::fs::read_to_string(&self.path).unwrap_or_default();
        // It is empty if nothing has been written to it yet.
        let is_own = match number_in(&self.path) {
            Some(pid) => pid.as_raw_nonzero() == own_pid(),
            None => self.opened.is_some() && text.is_empty(),
        };
        if is_own
            && std::fs::remove_file(&self.path).is_err()
            && let Some(file) = &self.opened
        {
            // It has to stay if the folder is not the user's.
            let _ = file.set_len(0);
        }
    }
}

fn own_pid() -> std::num::NonZeroI32 {
    rustix::process::getpid().as_raw_nonzero()
}

/// The number in the file, if it is that of another process that runs.
fn running(path: &Path) -> Option<i32> {
    let pid = number_in(path)?;
    let runs = pid.as_raw_nonzero() != own_pid() && rustix::process::test_kill_process(pid).is_ok();
    runs.then(|| pid.as_raw_nonzero().get())
}

fn number_in(path: &Path) -> Option<Pid> {
    let text = std::fs::read_to_string(path).ok()?;
    Pid::from_raw(text.trim().parse().ok()?)
}
