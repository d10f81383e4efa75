//! `cargo xtask setup`: installs what the tests need and this machine lacks.

mod clients;
pub(crate) mod packages;

use std::env;
use std::path::PathBuf;

use anyhow::{Context, Result};

use crate::commands::{cargo, program, read, root, run as run_command, target};

/// Where things are after the set-up.
#[derive(Clone)]
pub(crate) struct Tools {
    /// A Python with the clients of `tests/clients/requirements.txt`.
    pub(crate) python: PathBuf,
    /// A folder of jars: the clients of `tests/clients/java/pom.xml`.
    pub(crate) jars: PathBuf,
    /// Another one: the clients of `tests/clients/java/discovery/pom.xml`.
    pub(crate) discovery_jars: PathBuf,
    /// A `node_modules` with the clients of `tests/clients/memjs/package.json`.
    pub(crate) node_modules: PathBuf,
    /// Where Ruby finds Dalli.
    pub(crate) dalli: PathBuf,
    /// The memcached to compare with.
    pub(crate) memcached: PathBuf,
    /// cargo-fuzz.
    pub(crate) cargo_fuzz: PathBuf,
}

/// Installs what is missing. A second call finds everything and takes no time.
///
/// # Errors
/// If this process may not install something: one sentence for the person who must do it.
pub(crate) fn run() -> Result<Tools> {
    packages::install(packages::OF_TESTS)?;
    Ok(Tools {
        python: clients::python()?,
        jars: clients::jars("tests/clients/java/pom.xml", "clients/java")?,
        discovery_jars: clients::jars(
            "tests/clients/java/discovery/pom.xml",
            "clients/java-discovery",
        )?,
        node_modules: clients::node_modules()?,
        dalli: clients::dalli()?,
        memcached: memcached()?,
        cargo_fuzz: cargo_tool("cargo-fuzz")?,
    })
}

fn memcached() -> Result<PathBuf> {
    if let Some(named) = env::var_os("MEMCACHED_BIN") {
        return Ok(named.into());
    }
    let path = read(&mut program(root().join("scripts/memcached-current")))
        .context("no current memcached to compare with; set MEMCACHED_BIN to a memcached 1.6.45")?;
    Ok(path.into())
}

/// A cargo subcommand, installed into the target folder if it is not there yet.
///
/// # Errors
/// If it cannot be installed.
pub(crate) fn cargo_tool(name: &str) -> Result<PathBuf> {
    let folder = target().join("tools");
    let path = folder.join("bin").join(name);
    if !path.is_file() {
        run_command(
            cargo()
                .args(["install", "--quiet", "--locked", name, "--root"])
                .arg(&folder),
        )?;
    }
    Ok(path)
}
