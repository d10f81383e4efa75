//! Other people's clients that Debian does not have, or not in a recent version. Each kind comes
//! from its own registry, in the versions that a manifest in `tests/clients` pins, and into its own
//! folder in `target/clients`. What was downloaded once stays in the cache of the tool that did it.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::commands::{program, read, root, run, target};

/// Python's clients in a virtual environment; returns its Python.
pub(super) fn python() -> Result<PathBuf> {
    let packages = root().join("tests/clients/requirements.txt");
    let folder = target().join("clients/venv");
    let python = folder.join("bin/python");
    kept(&folder, &packages, || {
        run(program("python3")
            .args(["-m", "venv", "--clear"])
            .arg(&folder))?;
        run(program(&python)
            .args(["-m", "pip", "install", "--quiet", "--requirement"])
            .arg(&packages))
    })
    .context(
        "Python's memcached clients could not be installed; pip needs PyPI or a mirror of it",
    )?;
    Ok(python)
}

/// Java's clients of a manifest and what they need, in one folder of jars.
pub(super) fn jars(manifest: &str, folder: &str) -> Result<PathBuf> {
    const COPY: &str = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies";
    let manifest = root().join(manifest);
    let folder = target().join(folder);
    kept(&folder, &manifest, || {
        run(program("mvn")
            .args(["--quiet", "--batch-mode", "-Dstyle.color=never", "--file"])
            .arg(&manifest)
            .arg(COPY)
            .arg(format!("-DoutputDirectory={}", folder.display())))
    })
    .context(
        "Java's memcached clients could not be installed; mvn needs Maven Central or a mirror of it",
    )?;
    Ok(folder)
}

/// Node's clients; returns the folder for `NODE_PATH`.
pub(super) fn node_modules() -> Result<PathBuf> {
    let manifest = root().join("tests/clients/memjs/package.json");
    let lock = root().join("tests/clients/memjs/package-lock.json");
    let folder = target().join("clients/memjs");
    kept(&folder, &lock, || {
        fs::copy(&manifest, folder.join("package.json"))?;
        fs::copy(&lock, folder.join("package-lock.json"))?;
        run(program("npm")
            .args(["ci", "--silent", "--no-audit", "--no-fund"])
            .current_dir(&folder))
    })
    .context(
        "Node's memcached clients could not be installed; npm needs its registry or a mirror of it",
    )?;
    Ok(folder.join("node_modules"))
}

/// A Dalli that speaks both binary and meta, which Debian 12's does not.
pub(super) fn dalli() -> Result<PathBuf> {
    let path = read(&mut program(root().join("tests/clients/dalli/fetch")))
        .context("ruby-dalli could not be fetched; apt needs an archive of Debian 13")?;
    Ok(path.into())
}

/// Calls `install` with an empty folder, unless the folder was filled from the same manifest
/// before.
fn kept(folder: &Path, manifest: &Path, install: impl FnOnce() -> Result<()>) -> Result<()> {
    let wanted = fs::read(manifest)?;
    let stamp = folder.join("installed-manifest");
    if fs::read(&stamp).is_ok_and(|there| there == wanted) {
        return Ok(());
    }
    if folder.exists() {
        fs::remove_dir_all(folder)?;
    }
    fs::create_dir_all(folder)?;
    install()?;
    Ok(fs::write(stamp, wanted)?)
}
