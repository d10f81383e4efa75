//! Servers that are secured: by TLS, logins, a filter of system calls, and a limit of memory; and what clients need there.
//!
//! Clients' scripts read from the environment how they are to connect: `TLS_CA`, `TLS_CERTIFICATE` and `TLS_KEY` name
//! files, `LOGIN_USER` and `LOGIN_PASSWORD` are for SASL.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, id};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use anyhow::{Context as _, Result, ensure};

use super::certificates::Certificates;
use super::under_test::LIMIT;
use crate::commands::{program, read, root, run_within, under};
use crate::server::{Server, connect, free_port};

/// A user who may do everything, by password and by certificate.
const USERS: &str = "tester:open sesame\n\n[tester]\ncertificates = [\"CN:client\"]\n";

/// Where cgroups are, of both versions.
const CGROUPS: &str = "/sys/fs/cgroup";

/// The password of the files that Java reads, which guards nothing.
const STORE_PASSWORD: &str = "changeit";

/// How servers are secured, and what clients are told of it.
#[derive(Default)]
pub(crate) struct Guard {
    flags: Vec<String>,
    variables: Vec<(&'static str, String)>,
    /// Who has no certificate can log in by SASL alone.
    only_binary: bool,
    group: Option<Group>,
    /// The files of the flags and variables.
    certificates: Option<Certificates>,
}

impl Guard {
    /// TLS; `asks` also demands certificates of clients.
    pub(crate) fn with_tls(mut self, asks: bool) -> Result<Guard> {
        let certificates = Certificates::make("secured")?;
        let options = certificates.options(if asks { 2 } else { 0 });
        self.flags.extend(["-Z", "-o", &options].map(str::to_owned));
        self.variables.push(("TLS_CA", certificates.file("ca.pem")));
        let store = |name: &str| certificates.file(name);
        let mut import = program("keytool");
        import.args(["-importcert", "-noprompt", "-alias", "authority", "-file"]);
        import
            .arg(store("ca.pem"))
            .arg("-keystore")
            .arg(store("ca.p12"));
        read(import.args(["-storetype", "PKCS12", "-storepass", STORE_PASSWORD]))?;
        let mut java = vec![
            format!("-Djavax.net.ssl.trustStore={}", store("ca.p12")),
            format!("-Djavax.net.ssl.trustStorePassword={STORE_PASSWORD}"),
        ];
        if asks {
            let own = ["client.pem", "client.key"].map(store);
            let [certificate, key] = own;
            self.variables.push(("TLS_CERTIFICATE", certificate));
            self.variables.push(("TLS_KEY", key));
            let words = "pkcs12 -export -in client.pem -inkey client.key -out client.p12 -passout";
            let password = format!("pass:{STORE_PASSWORD}");
            read(certificates.openssl(words).arg(password))?;
            java.push(format!("-Djavax.net.ssl.keyStore={}", store("client.p12")));
            java.push(format!("-Djavax.net.ssl.keyStorePassword={STORE_PASSWORD}"));
        }
        self.variables.push(("JAVA_TOOL_OPTIONS", java.join(" ")));
        self.certificates = Some(certificates);
        Ok(self)
    }

    /// Logins. Without TLS that asks for certificates only those who speak binary can log in.
    pub(crate) fn with_users(mut self) -> Result<Guard> {
        let certificates = match self.certificates.take() {
            Some(certificates) => certificates,
            None => Certificates::make("users")?,
        };
        let asks = self.variables.iter().any(|(name, _)| *name == "TLS_KEY");
        let file = certificates.file("users");
        // Certificates are asked of nobody without TLS.
        let users = match asks {
            true => USERS,
            false => USERS
                .split_once('[')
                .map_or(USERS, |(passwords, _)| passwords),
        };
        fs::write(&file, users)?;
        self.flags.extend(["-Y", &file, "-S"].map(str::to_owned));
        self.variables.push(("LOGIN_USER", "tester".to_owned()));
        self.variables
            .push(("LOGIN_PASSWORD", "open sesame".to_owned()));
        // pylibmc brings libsasl along, but none of its mechanisms.
        let libraries =
            fs::read_dir("/usr/lib")?.filter_map(|entry| Some(entry.ok()?.path().join("sasl2")));
        if let Some(folder) = libraries.into_iter().find(|path| path.is_dir()) {
            self.variables
                .push(("SASL_PATH", folder.display().to_string()));
        }
        self.only_binary = !asks;
        self.certificates = Some(certificates);
        Ok(self)
    }

    /// A filter of system calls.
    pub(crate) fn with_filter(mut self) -> Guard {
        self.flags
            .extend(["-o", "drop_privileges"].map(str::to_owned));
        self
    }

    /// A limit of memory, if this process may set one, and memory that is full. The limit is what
    /// `docs/operating.md` says: `-m`, 32 MiB, 2 MiB a thread, and 32 KiB for each of 1024 connections.
    pub(crate) fn with_memory_limit(mut self) -> Guard {
        self.group = Group::make((256 + 32 + 2 * 2 + 32) << 20);
        if self.group.is_none() {
            println!("  no limit of memory: this process may not make a cgroup with one");
        }
        self
    }

    pub(super) fn start(&self, path: &Path, flags: &[&str]) -> Result<Server> {
        let port = free_port()?;
        let mut command = program(path);
        command.args(["-l", "127.0.0.1", "-p", &port.to_string(), "-u", "root"]);
        command.args(flags).args(&self.flags);
        if let Some(group) = &self.group {
            command = group.within(&command);
        }
        let server = Server::start_as(&mut command, port, || connect(port).is_some())?;
        if self.group.is_some() {
            let mut fill = program("python3");
            fill.arg(root().join("tests/clients/fill.py"));
            fill.args(["127.0.0.1", &port.to_string()]);
            run_within(LIMIT, &self.client(fill))?;
        }
        Ok(server)
    }

    pub(super) fn client(&self, mut command: Command) -> Command {
        command.envs(self.variables.iter().map(|(name, value)| (name, value)));
        command
    }

    pub(super) fn takes(&self, dialect: &str) -> bool {
        !self.only_binary || dialect == "binary"
    }

    pub(super) fn conclude(&self) -> Result<()> {
        match &self.group {
            Some(group) => group.conclude(),
            None => Ok(()),
        }
    }
}

/// A cgroup with a limit of memory. Dropping it deletes it.
struct Group {
    folder: PathBuf,
    /// The file that says how often the limit has killed.
    events: &'static str,
}

impl Group {
    /// `None` where none can be made.
    fn make(limit: u64) -> Option<Group> {
        static MADE: AtomicU32 = AtomicU32::new(0);
        let name = format!("coua-test-{}-{}", id(), MADE.fetch_add(1, Relaxed));
        let has_memory = |path: PathBuf| {
            let text = fs::read_to_string(path).unwrap_or_default();
            text.split_whitespace().any(|word| word == "memory")
        };
        let (parent, file, events) =
            match has_memory(Path::new(CGROUPS).join("cgroup.subtree_control")) {
                true => (PathBuf::from(CGROUPS), "memory.max", "memory.events"),
                false => {
                    let own = fs::read_to_string("/proc/self/cgroup").ok()?;
                    let own = own.lines().find_map(|line| line.split_once(":memory:"))?.1;
                    let parent = Path::new(CGROUPS).join("memory");
                    let parent = parent.join(own.trim_start_matches('/'));
                    (parent, "memory.limit_in_bytes", "memory.oom_control")
                }
            };
        let folder = parent.join(name);
        fs::create_dir(&folder).ok()?;
        let group = Group { folder, events };
        fs::write(group.folder.join(file), limit.to_string()).ok()?;
        Some(group)
    }

    /// The command, in the group.
    fn within(&self, command: &Command) -> Command {
        let procs = self.folder.join("cgroup.procs").display().to_string();
        let join = "echo $$ >\"$0\" && exec \"$@\"";
        under("sh", &["-c", join, &procs], command)
    }

    fn conclude(&self) -> Result<()> {
        let path = self.folder.join(self.events);
        let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        let kills = text.lines().find_map(|line| line.strip_prefix("oom_kill "));
        let kills = kills.with_context(|| format!("{}: no oom_kill", path.display()))?;
        ensure!(kills == "0", "{kills} servers were killed for their memory");
        Ok(())
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // Its servers have ended.
        let _ = fs::remove_dir(&self.folder);
    }
}
