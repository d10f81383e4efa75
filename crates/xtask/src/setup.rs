//! `cargo xtask setup`: installs what the tests need and is not there.

use std::env;
use std::path::PathBuf;

use anyhow::{Context, Result, bail};

use crate::commands::{
    cargo, is_installed, program, read, root, run as run_command, succeeds, target,
};

/// Program and the Debian package that holds it.
const PACKAGES: [(&str, &str); 2] = [
    ("memccapable", "libmemcached-tools"),
    ("nutcracker", "nutcracker"),
];

/// What lies where after the set-up.
pub(crate) struct Tools {
    /// A Python with pymemcache and pylibmc.
    pub(crate) python: PathBuf,
    /// The memcached to compare with.
    pub(crate) memcached: PathBuf,
    /// cargo-fuzz.
    pub(crate) cargo_fuzz: PathBuf,
}

/// Installs what is missing. A second call finds everything there and takes no time.
///
/// # Errors
/// One sentence for the person who must install by hand, when this process may not.
pub(crate) fn run() -> Result<Tools> {
    packages()?;
    Ok(Tools {
        python: python()?,
        memcached: memcached()?,
        cargo_fuzz: cargo_fuzz()?,
    })
}

fn packages() -> Result<()> {
    let mut missing: Vec<&str> = PACKAGES
        .iter()
        .filter(|(name, _)| !is_installed(name))
        .map(|(_, it)| *it)
        .collect();
    if !succeeds(program("python3").args(["-c", "import venv, ensurepip"])) {
        missing.push("python3-venv");
    }
    if !is_installed("cc") {
        missing.push("build-essential");
    }
    if missing.is_empty() {
        return Ok(());
    }
    let by_hand = format!(
        "apt-get install --no-install-recommends {}",
        missing.join(" ")
    );
    if !is_installed("apt-get") {
        bail!(
            "this machine has no apt-get; the tests need {}",
            missing.join(", ")
        );
    }
    let prefix: &[&str] = if read(program("id").arg("-u"))? == "0" {
        &[]
    } else if succeeds(program("sudo").args(["-n", "true"])) {
        &["sudo", "-n"]
    } else {
        bail!("the tests need packages that only root may install: run `sudo {by_hand}`");
    };
    let apt = |words: &[&str]| {
        let all: Vec<&str> = [
            prefix,
            &["env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "-q"],
            words,
        ]
        .concat();
        run_command(program(all[0]).args(&all[1..]))
    };
    apt(&["-o", "DPkg::Lock::Timeout=300", "update"])
        .and_then(|()| {
            let install = [
                "-o",
                "DPkg::Lock::Timeout=300",
                "install",
                "-y",
                "--no-install-recommends",
            ];
            apt(&[install.as_slice(), &missing].concat())
        })
        .with_context(|| format!("packages could not be installed; try `{by_hand}` by hand"))
}

fn python() -> Result<PathBuf> {
    let folder = target().join("clients/venv");
    let python = folder.join("bin/python");
    if !succeeds(program(&python).args(["-c", "import pymemcache, pylibmc"])) {
        run_command(
            program("python3")
                .args(["-m", "venv", "--clear"])
                .arg(&folder),
        )?;
        let packages = root().join("tests/clients/requirements.txt");
        run_command(
            program(&python)
                .args(["-m", "pip", "install", "--quiet", "--requirement"])
                .arg(packages),
        )
        .context(
            "Python's memcached clients could not be installed; pip needs PyPI or a mirror of it",
        )?;
    }
    Ok(python)
}

fn memcached() -> Result<PathBuf> {
    if let Some(named) = env::var_os("MEMCACHED_BIN") {
        return Ok(named.into());
    }
    let path = read(&mut program(root().join("scripts/memcached-current")))
        .context("no current memcached to compare with; set MEMCACHED_BIN to a memcached 1.6.45")?;
    Ok(path.into())
}

fn cargo_fuzz() -> Result<PathBuf> {
    let folder = target().join("tools");
    let path = folder.join("bin/cargo-fuzz");
    if !path.is_file() {
        run_command(
            cargo()
                .args(["install", "--quiet", "--locked", "cargo-fuzz", "--root"])
                .arg(&folder),
        )?;
    }
    Ok(path)
}
