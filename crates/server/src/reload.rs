//! SIGHUP: what files say is read again, the file of `--config` among them.
//!
//! A setting that can change while the server runs does, with a line in the log for each. All others
//! are named in one line. A file that is wrong changes nothing.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

use crate::flags::{self, Settings, Sources};
use crate::process;
use crate::shared::Shared;

/// Settings that change while the server runs, by the names of flags, and with `extended.` in front by
/// those of options of `-o`.
const CHANGEABLE: [&str; 16] = [
    "conn-limit",
    "disable-dumping",
    "disable-flush-all",
    "disable-watch",
    "enable-shutdown",
    "extended.drain_timeout",
    "extended.idle_timeout",
    "extended.maxconns_fast",
    "extended.mce_limit",
    "extended.no_maxconns_fast",
    "extended.no_modern",
    "extended.poison_command",
    "max-reqs-per-event",
    "memory-limit",
    "verbose",
    "extended.modern",
];

/// Of these, what a connection may do: it keeps what it had when it was opened.
const OF_CONNECTIONS: [&str; 4] = [
    "disable-dumping",
    "disable-flush-all",
    "disable-watch",
    "enable-shutdown",
];

/// What was read last, and from where paths of the command line count.
pub struct Reloader {
    /// `None` where the system does not tell.
    folder: Option<PathBuf>,
    last: Mutex<Sources>,
    /// A thread is going to read the files, and has not begun.
    is_due: AtomicBool,
}

impl Reloader {
    /// To be made before a server in the background leaves its folder.
    pub fn new(settings: &Settings) -> Reloader {
        Reloader {
            folder: std::env::current_dir().ok(),
            last: Mutex::new(settings.sources.clone()),
            is_due: AtomicBool::new(false),
        }
    }
}

/// Reads the files again, on a thread of its own: names of hosts may take a while to be found.
pub fn start(shared: &Arc<Shared>, reloader: &Arc<Reloader>) {
    if reloader.is_due.swap(true, Relaxed) {
        // What it is going to read is as new as what this signal is about.
        return;
    }
    let due = reloader;
    let (shared, reloader) = (Arc::clone(shared), Arc::clone(reloader));
    let thread = std::thread::Builder::new().name("coua-reload".to_owned());
    let begun = thread.spawn(move || {
        // One after the other, and the last one holds.
        let mut last = reloader.last.lock().unwrap_or_else(PoisonError::into_inner);
        reloader.is_due.store(false, Relaxed);
        read_users_and_certificates(&shared);
        read_cluster(&shared, "SIGHUP");
        if let Some(file) = shared.settings.sources.file() {
            let folder = reloader.folder.as_deref().unwrap_or(Path::new("/"));
            read_settings(&shared, file, folder, &mut last);
        }
    });
    if let Err(error) = begun {
        due.is_due.store(false, Relaxed);
        tracing::error!("SIGHUP: cannot start a thread: {error}");
    }
}

fn read_users_and_certificates(shared: &Shared) {
    let file = shared.settings.auth_file.as_deref();
    let file = file.unwrap_or(Path::new(""));
    let has_tls = shared.refresh_certificates("SIGHUP").is_some();
    match shared.read_users() {
        Ok(None)
            if has_tls
                || shared.settings.cluster.is_some()
                || shared.settings.sources.file().is_some() => {}
        Ok(None) => tracing::info!("SIGHUP: ignored, there is no file of users to read again"),
        Ok(Some(users)) => {
            tracing::info!("SIGHUP: {} has {users:?}", file.display());
        }
        Err(error) => tracing::error!(
            "SIGHUP: {} {error}; who could log in before still can",
            file.display()
        ),
    }
}

/// Reads again which servers the fleet has; `why` says what asked for it. One line tells what is new.
pub fn read_cluster(shared: &Shared, why: &str) {
    let file = shared.settings.cluster_file.as_deref();
    let file = file.unwrap_or(Path::new("")).display();
    let (before, now) = match shared.read_cluster() {
        Ok(None) => return,
        Ok(Some([before, now])) => (before, now),
        Err(error) => {
            tracing::error!("{why}: {file} {error}; the servers of before stay");
            return;
        }
    };
    if now.value == before.value {
        return;
    }
    let (version, servers) = (now.version, now.servers);
    tracing::info!("{why}: {file} has version {version} of the fleet, {servers} servers");
    if version <= before.version {
        tracing::warn!(
            "{why}: {file} has other servers and no higher version than {}: clients may ignore it",
            before.version
        );
    }
}

/// Reads the file of `--config` again and follows it.
fn read_settings(shared: &Shared, file: &Path, folder: &Path, last: &mut Sources) {
    let mut settings = match flags::read_again(std::env::args_os(), folder) {
        Ok(settings) => settings,
        Err(refused) => {
            for error in refused.errors() {
                tracing::error!("SIGHUP: {error}");
            }
            tracing::error!(
                "SIGHUP: {}: nothing is changed; the settings of before hold",
                file.display()
            );
            return;
        }
    };
    let is_changeable = |name: &String| CHANGEABLE.contains(&name.as_str());
    let mut restart = settings.sources.changed_since(&shared.settings.sources);
    restart.retain(|name| !is_changeable(name));
    let mut changed = settings.sources.changed_since(last);
    changed.retain(is_changeable);
    changed.retain(|name| match follow(shared, name, &settings) {
        Ok(()) => true,
        // It is told of again the next time.
        Err(why) => {
            settings.sources.keep(name, last);
            restart.push(format!("{name} ({why})"));
            false
        }
    });
    shared.live.follow(&settings);
    let file = file.display();
    for name in &changed {
        let (now, before) = (settings.sources.text(name), last.text(name));
        let for_whom = match OF_CONNECTIONS.contains(&name.as_str()) {
            true if !shared.settings.listen_udp.is_empty() => {
                ", for new connections; for UDP after a restart"
            }
            true => ", for new connections",
            false => "",
        };
        tracing::info!("SIGHUP: {name}: {now}, before {before}{for_whom}");
    }
    if !restart.is_empty() {
        let restart = restart.join(", ");
        tracing::warn!("SIGHUP: {file}: these need a restart: {restart}");
    }
    if changed.is_empty() && restart.is_empty() {
        tracing::info!("SIGHUP: {file}: nothing has changed");
    }
    *last = settings.sources;
}

/// Follows one of the settings that [`crate::live::Live`] does not hold.
fn follow(shared: &Shared, name: &str, settings: &Settings) -> Result<(), String> {
    match name {
        "verbose" => shared.set_verbosity(settings.verbosity.into()),
        "memory-limit" => shared.limit_memory(settings.memory).map_err(|_| {
            format!(
                "up to {} MiB, --memory-max, without",
                shared.settings.memory_max >> 20
            )
        })?,
        "conn-limit" => {
            let before = shared.settings.connections_max;
            if shared.settings.net.is_some() && settings.connections_max > before {
                return Err(format!("with --net up to {before} without"));
            }
            process::raise_limits(settings).map_err(|error| error.to_string())?;
            shared.registry.set_open_max(settings.connections_max);
        }
        _ => {}
    }
    Ok(())
}
