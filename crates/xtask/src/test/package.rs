//! The Debian packages: Debian's own checks of them, and what they do in a fresh Debian.
//!
//! `packaging/test/check` runs in a container: first as a single program with this machine's
//! network, to fetch what the packages depend on; then under the container's own systemd, which
//! starts, restarts and stops the service as on any machine.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};

use super::{Context, Outcome};
use crate::commands::{program, read, root, run, run_within, succeeds, target, under};
use crate::package;
use crate::setup::packages::{self, Package};

/// What the step needs besides what builds the packages.
const NEEDED: &[Package] = &[
    (&["lintian"], "lintian"),
    (&["mmdebstrap"], "mmdebstrap"),
    (&["systemd-nspawn"], "systemd-container"),
];

/// What the script needs in the fresh Debian and the packages do not bring. Nothing more, or a
/// missing dependency of the packages would not be noticed.
const INCLUDED: &str = "--include=systemd-sysv,iproute2,ethtool";

/// Where the packages and the script are in the container.
const FOLDER: &str = "packages";

/// A container that takes longer is stopped.
const LIMIT: Duration = Duration::from_secs(1200);

/// Runs a command while the machine has huge pages for DPDK, one such command at a time.
const HUGE_PAGES: &str =
    "setting=/proc/sys/vm/nr_hugepages; before=$(cat $setting); echo 128 >$setting
\"$@\"; status=$?; echo $before >$setting; exit $status";

/// Builds the packages, and tries them on a system that never had them.
pub(crate) fn package(_: &Context) -> Result<Outcome> {
    if read(program("id").arg("-u"))? != "0" {
        let why = "only root may run a container with systemd";
        return Ok(Outcome::LeftOut(why.to_owned()));
    }
    packages::install(NEEDED)?;
    let built = package::run(&package::Flags::QUICK)?;
    run(program("lintian")
        .arg("--fail-on=error,warning")
        .args(&built))?;

    let debian = Debian::install()?;
    if !succeeds(debian.container().args(["--pipe", "true"])) {
        let why = "systemd-nspawn starts no container here";
        return Ok(Outcome::LeftOut(why.to_owned()));
    }
    let folder = debian.root.join(FOLDER);
    fs::create_dir(&folder)?;
    let script = root().join("packaging/test/check");
    for path in built.iter().chain([&script]) {
        fs::copy(path, folder.join(path.file_name().context("a file")?))?;
    }
    debian.check(debian.container().args(["--pipe", "/packages/check"]))?;

    // The rights to load filters for AF_XDP, and what DPDK reads.
    let mut booted = debian.container();
    booted.args([
        "--private-network",
        "--capability=CAP_BPF",
        "--system-call-filter=bpf",
        "--bind-ro=/sys/module",
        "--console=pipe",
        "--boot",
        "systemd.run=/packages/check",
        "systemd.run_success_action=exit",
        "systemd.run_failure_action=exit",
    ]);
    let lock = env::temp_dir().join("coua-huge-pages.lock");
    let lock = lock.to_string_lossy();
    debian.check(&under(
        "flock",
        &[&lock, "sh", "-c", HUGE_PAGES, "sh"],
        &booted,
    ))?;
    Ok(Outcome::Passed)
}

/// A Debian of this machine's release, in a folder. Dropping it deletes the folder.
struct Debian {
    root: PathBuf,
}

impl Debian {
    /// Fetches and unpacks it from where this machine's packages come from.
    fn install() -> Result<Self> {
        let root = target().join("package-test");
        if root.exists() {
            fs::remove_dir_all(&root)?;
        }
        let system = fs::read_to_string("/etc/os-release").context("/etc/os-release")?;
        let suite = system
            .lines()
            .find_map(|line| line.strip_prefix("VERSION_CODENAME="))
            .context("/etc/os-release names no release")?;
        let sources = ["sources.list.d/debian.sources", "sources.list"];
        let sources = sources.map(|name| Path::new("/etc/apt").join(name));
        let sources = sources.iter().find(|path| path.is_file());
        let debian = Self { root };
        run(program("mmdebstrap")
            // The lists of packages stay, for what the packages depend on.
            .args(["--quiet", "--variant=minbase", "--skip=cleanup/apt"])
            .arg(INCLUDED)
            .arg(suite)
            .arg(&debian.root)
            .args(sources))?;
        Ok(debian)
    }

    /// The command that runs a program in it; the program's words are appended.
    fn container(&self) -> Command {
        let mut command = program("systemd-nspawn");
        command.arg(format!("--directory={}", self.root.display()));
        // No service of this machine needs to know about it.
        command.args(["--quiet", "--register=no", "--keep-unit"]);
        command.arg("--machine=coua-package");
        command
    }

    /// Runs the script, and prints its output.
    fn check(&self, command: &Command) -> Result<()> {
        let log = self.root.join(FOLDER).join("log");
        fs::write(&log, "")?;
        let result = run_within(LIMIT, command);
        let log = fs::read_to_string(&log)?;
        if let Err(error) = result {
            let lines: Vec<&str> = log.lines().collect();
            for line in &lines[lines.len().saturating_sub(40)..] {
                println!("{line}");
            }
            let why = lines.iter().find(|line| line.starts_with("FAILED: "));
            bail!("{}", why.map_or(error.to_string(), |&why| why.to_owned()));
        }
        for step in log.lines().filter(|line| line.starts_with("-- ")) {
            println!("{step}");
        }
        Ok(())
    }
}

impl Drop for Debian {
    fn drop(&mut self) {
        // What cannot be deleted now is deleted by the next run.
        let _ = fs::remove_dir_all(&self.root);
    }
}
