//! The program `coua`: reads the flags, sets the process up, runs the server until a signal.

use std::io::Write;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use coua::allocator;
use coua::check;
use coua::doctor;
use coua::flags::{self, FlagError, Invocation, Settings};
use coua::flash::Flash;
use coua::hand_over::{self, Successor, is_successor};
use coua::log;
use coua::pressure;
use coua::process::{self, EX_OSERR, PidFile, ProcessError};
use coua::reload::{self, Reloader};
use coua::sandbox;
use coua::server::{Server, Sockets};
use coua::service_manager;
use coua::shared::Shared;
use coua_memory_errors::{Events, InstallError};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1, SIGUSR2};
use signal_hook::iterator::Signals;

/// How often it is looked whether the certificates have changed.
const FILES_LOOKED_AT: Duration = Duration::from_secs(2);

fn main() -> ExitCode {
    if let Some(words) = doctor::asked(std::env::args_os()) {
        return match doctor::run(words) {
            Ok((text, is_well)) => {
                print(&text);
                ExitCode::from(u8::from(!is_well))
            }
            Err(error) => refuse(&[error]),
        };
    }
    allocator::share();
    end_with_any_thread();
    // Before there are other threads, which then ask for the same.
    let events = coua_memory_errors::install();
    let _stack = coua_memory_errors::install_thread();
    let settings = match flags::read(std::env::args_os()) {
        Ok(Invocation::Serve(settings)) => *settings,
        Ok(Invocation::Check(settings)) => {
            return match check::check(&settings) {
                Ok(found) => print(&found),
                Err(errors) => refuse(&errors),
            };
        }
        Ok(Invocation::Print(text)) => return print(&text),
        Err(refused) => return refuse(refused.errors()),
    };
    if settings.daemon && !process::is_in_background() {
        return match process::start_in_background() {
            Ok(status) => ExitCode::from(status),
            Err(error) => complain(&error, error.exit_status()),
        };
    }
    log::start(settings.verbosity, settings.log_format);
    match run(settings, events) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let status = error
                .downcast_ref::<ProcessError>()
                .map_or(EX_OSERR, ProcessError::exit_status);
            complain(&error, status)
        }
    }
}

/// Makes a panic in any thread end the program, as it does in release builds anyway. A server that
/// has lost a worker would look alive and answer only some of its clients.
fn end_with_any_thread() {
    let tell = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        tell(panic);
        std::process::abort();
    }));
}

/// Everything that needs root's rights is done before the server becomes another user. Files are
/// made after that, so that they belong to that user. The pid file is the exception, since it may
/// lie in a folder of root's.
fn run(mut settings: Settings, events: Result<Events, InstallError>) -> anyhow::Result<()> {
    // Found at once: when the sockets are open there may be no descriptor left to look with.
    let user = process::find_user(settings.user.as_deref())?;
    if settings.daemon {
        // A program that took another's place has left it already.
        if !is_successor() {
            process::leave_terminal()?;
        }
        if let Some(path) = &mut settings.memory_file {
            *path = std::path::absolute(&*path)?;
        }
        if let Some(path) = &mut settings.auth_file {
            *path = std::path::absolute(&*path)?;
        }
        if let Some(socket) = &mut settings.unix_socket {
            // The folder changes before the socket is removed.
            socket.path = std::path::absolute(&socket.path)?;
        }
        for place in settings.flash.iter_mut().flat_map(|it| &mut it.places) {
            if let Some(path) = place.path_mut() {
                *path = std::path::absolute(&*path)?;
            }
        }
        if let Some(net) = &mut settings.net {
            for path in [net.driver.path_mut(), net.trace.as_mut()]
                .into_iter()
                .flatten()
            {
                *path = std::path::absolute(&*path)?;
            }
        }
    }
    // Signals that come while the server starts are waiting when it has started.
    let signals = Signals::new([SIGTERM, SIGINT, SIGUSR1, SIGUSR2, SIGHUP]).map_err(|source| {
        ProcessError::System {
            action: "watch for signals",
            source,
        }
    })?;
    let shortage = process::raise_limits(&settings)?;
    let mut sockets = Sockets::open(&settings)?;
    let mut pid_file = settings.pid_file.as_deref().map(PidFile::prepare);
    let mut flash = Flash::open_devices(&mut settings)?;
    process::drop_root(user.as_ref(), &settings)?;
    if let Some(flash) = &mut flash {
        flash.open_files(&settings)?;
    }
    sockets.open_unix(&settings)?;
    sockets.trace(&settings)?;
    let successor = Arc::new(Successor::find().map_err(|source| ProcessError::System {
        action: "find the program",
        source,
    })?);
    // Only a complete server is announced.
    let (tell_signals, started) = channel();
    let reloader = Reloader::new(&settings);
    stop_at_signal(signals, started, Arc::clone(&successor), reloader)?;
    let events = events
        .inspect_err(|error| tracing::warn!("an error of memory ends the server: {error}"))
        .ok();
    let server = Server::start_with(settings, sockets, flash, events)?;
    if let Some(shortage) = shortage {
        tracing::warn!("{shortage}");
    }
    let shared = Arc::clone(server.shared());
    watch_files(&shared)?;
    // The thread is there as long as this one is.
    let _ = tell_signals.send(Arc::clone(&shared));
    if let Some(file) = &mut pid_file {
        file.write();
    }
    pressure::watch(&shared).map_err(|source| ProcessError::System {
        action: "watch the memory pressure (-o memory_pressure)",
        source,
    })?;
    if shared.settings.daemon {
        // It opens a file to write to.
        process::tell_ready(&shared.settings);
        drop_privileges(&shared)?;
    } else {
        drop_privileges(&shared)?;
        service_manager::tell_ready();
        service_manager::feed_watchdog(&shared);
    }
    server.wait();
    if shared.cut_off() > 0 {
        tracing::warn!(
            "{} connections were cut off: they had not finished after {} s (-o drain_timeout)",
            shared.cut_off(),
            shared.live.drain_timeout_s()
        );
    }
    if let Some(path) = &shared.settings.memory_file {
        tracing::info!("{}: left for the next process", path.display());
        shared.store.leave();
    }
    if shared.is_handing_over() {
        // The process keeps its number, so the file stays right.
        std::mem::forget(pid_file);
        let source = successor.take_place(&shared.listening.kept);
        return Err(ProcessError::System {
            action: "execute the program anew",
            source,
        }
        .into());
    }
    drop(pid_file);
    if shared.has_failed() {
        anyhow::bail!("stopped, since the machine's memory fails (-o mce_limit)");
    }
    tracing::info!("stopped");
    Ok(())
}

/// Has the kernel filter system calls, where that is asked for.
fn drop_privileges(shared: &Shared) -> Result<(), ProcessError> {
    if shared.settings.drops_privileges {
        sandbox::enter().map_err(|source| ProcessError::System {
            action: "filter system calls (-o drop_privileges)",
            source,
        })?;
        tracing::info!("-o drop_privileges: system calls are filtered");
    }
    Ok(())
}

/// Stops the server that is `started` at a signal, on a thread of its own.
fn stop_at_signal(
    mut signals: Signals,
    started: Receiver<Arc<Shared>>,
    successor: Arc<Successor>,
    reloader: Reloader,
) -> Result<(), ProcessError> {
    std::thread::Builder::new()
        .name("coua-signals".to_owned())
        .spawn(move || {
            // There is none if the server could not start.
            let Ok(shared) = started.recv() else { return };
            let _stack = coua_memory_errors::install_thread();
            let reloader = Arc::new(reloader);
            for signal in signals.forever() {
                match signal {
                    SIGHUP => reload::start(&shared, &reloader),
                    SIGUSR2 => begin_hand_over(&shared, &successor),
                    _ if shared.is_stopping() && !shared.is_handing_over() => {
                        tracing::info!("signal {signal}: stopping at once");
                        shared.stop_at_once();
                    }
                    _ => {
                        tracing::info!("signal {signal}: stopping");
                        service_manager::tell_stopping();
                        shared.stop_without_successor();
                    }
                }
            }
        })
        .map(drop)
        .map_err(|source| ProcessError::System {
            action: "start a thread",
            source,
        })
}

/// Reads the certificates and the fleet's servers again when their files have changed, on a thread of its own.
fn watch_files(shared: &Arc<Shared>) -> Result<(), ProcessError> {
    if shared.settings.tls.is_none() && shared.settings.cluster_file.is_none() {
        return Ok(());
    }
    let shared = Arc::clone(shared);
    let watch = move || {
        let mut cluster_seen = None;
        while !shared.is_stopping() {
            std::thread::sleep(FILES_LOOKED_AT);
            let tls = shared.settings.tls.as_ref();
            if tls.is_some_and(|tls| tls.tls.is_outdated()) {
                shared.refresh_certificates("the files have changed");
            }
            let cluster = shared.settings.cluster_file.as_ref();
            let cluster = cluster.and_then(|file| std::fs::metadata(file).ok());
            // What changes while it is read is seen by the next look.
            let cluster = cluster.map(|file| (file.modified().ok(), file.len()));
            if cluster.is_some() && cluster != cluster_seen {
                reload::read_cluster(&shared, "the file has changed");
                cluster_seen = cluster;
            }
        }
    };
    let thread = std::thread::Builder::new().name("coua-files".to_owned());
    thread
        .spawn(watch)
        .map(drop)
        .map_err(|source| ProcessError::System {
            action: "start a thread",
            source,
        })
}

/// Stops the server for the program that takes its place, if that can be; on a thread of its own,
/// since slow connections may keep it waiting.
fn begin_hand_over(shared: &Arc<Shared>, successor: &Arc<Successor>) {
    if shared.is_stopping() || !shared.begin_hand_over() {
        return;
    }
    let (server, next) = (Arc::clone(shared), Arc::clone(successor));
    let begun = std::thread::Builder::new()
        .name("coua-hand-over".to_owned())
        .spawn(move || {
            if let Err(why) = try_hand_over(&server, &next) {
                server.end_hand_over();
                tracing::warn!("SIGUSR2: ignored; {why}");
            }
        });
    if let Err(error) = begun {
        shared.end_hand_over();
        tracing::error!("SIGUSR2: cannot start a thread: {error}");
    }
}

fn try_hand_over(shared: &Shared, successor: &Successor) -> Result<(), String> {
    if let Some(obstacle) = hand_over::obstacle(&shared.settings) {
        return Err(obstacle.to_owned());
    }
    successor
        .check(&shared.settings)
        .map_err(|error| format!("the new program does not start: {error}"))?;
    tracing::info!("SIGUSR2: handing over to a new program");
    service_manager::tell_reloading();
    shared.stop_for_successor();
    Ok(())
}

fn print(text: &str) -> ExitCode {
    // If the reader has gone away, nobody wants the rest.
    let _ = std::io::stdout().write_all(text.as_bytes());
    ExitCode::SUCCESS
}

/// A line for each thing that is wrong with flags or file.
fn refuse(errors: &[FlagError]) -> ExitCode {
    let status = process::exit_status_of(errors);
    for error in errors {
        complain(error, status);
    }
    ExitCode::from(status)
}

fn complain(error: &dyn std::fmt::Display, status: u8) -> ExitCode {
    // Without standard error only the exit status tells.
    let _ = writeln!(std::io::stderr(), "coua: {error}");
    ExitCode::from(status)
}
