//! The program `coua`: reads the flags, sets the process up, runs the server until a signal.

use std::io::Write;
use std::process::ExitCode;
use std::sync::Arc;

use coua::flags::{self, Asked, Settings};
use coua::server::{Server, Shared, Sockets};
use coua::{log, process};
use signal_hook::consts::{SIGINT, SIGTERM, SIGUSR1};
use signal_hook::iterator::Signals;

fn main() -> ExitCode {
    let settings = match flags::read(std::env::args_os()) {
        Ok(Asked::Serve(settings)) => *settings,
        Ok(Asked::Print(text)) => return print(&text),
        Err(error) => return complain(&error, process::exit_status_of(&error)),
    };
    match prepare(&settings) {
        Ok(true) => return ExitCode::SUCCESS,
        Ok(false) => {}
        Err(error) => return complain(&error, error.exit_status()),
    }
    log::start(settings.verbosity);
    match run(settings) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let status = error
                .downcast_ref::<process::ProcessError>()
                .map_or(71, process::ProcessError::exit_status);
            complain(&error, status)
        }
    }
}

/// Whether the server carries on elsewhere, so that this process is to end.
fn prepare(settings: &Settings) -> Result<bool, process::ProcessError> {
    process::find_user(settings.user.as_deref())?;
    process::raise_limits(settings)?;
    if settings.daemon {
        process::go_to_background(settings)
    } else {
        Ok(false)
    }
}

fn run(settings: Settings) -> anyhow::Result<()> {
    // Signals that come while the server starts are waiting when it has started.
    let signals = Signals::new([SIGTERM, SIGINT, SIGUSR1])?;
    let user = settings.user.clone();
    let pid_file = settings.pid_file.clone().filter(|_| settings.daemon);
    let sockets = Sockets::open(&settings)?;
    process::drop_root(user.as_deref())?;
    let server = Server::start(settings, sockets)?;
    stop_at_signal(signals, Arc::clone(server.shared()))?;
    server.wait();
    if let Some(path) = pid_file {
        // Another user's file stays, as it would with memcached.
        let _ = std::fs::remove_file(path);
    }
    tracing::info!("stopped");
    Ok(())
}

fn stop_at_signal(mut signals: Signals, shared: Arc<Shared>) -> anyhow::Result<()> {
    std::thread::Builder::new()
        .name("coua-signals".to_owned())
        .spawn(move || {
            if let Some(signal) = signals.forever().next() {
                tracing::info!("signal {signal}: stopping");
                shared.stop();
            }
        })?;
    Ok(())
}

fn print(text: &str) -> ExitCode {
    // A reader that has gone away wants no more.
    let _ = std::io::stdout().write_all(text.as_bytes());
    ExitCode::SUCCESS
}

fn complain(error: &dyn std::fmt::Display, status: u8) -> ExitCode {
    // Without standard error the status has to do.
    let _ = writeln!(std::io::stderr(), "coua: {error}");
    ExitCode::from(status)
}
