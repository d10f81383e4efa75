//! The server under test.

use std::path::PathBuf;
use std::time::Duration;
use std::{env, fs};

use anyhow::Result;

use super::Context;
use crate::commands::{cargo, program, run, succeeds, target};

/// The flags of every server in these tests.
pub(super) const FLAGS: &[&str] = &["-m", "256", "-t", "2"];
/// A client that waits longer for an answer is stopped.
pub(super) const LIMIT: Duration = Duration::from_secs(180);

/// The program of this run: the one that is shipped, which is quickly built if it exists already;
/// or the one that `COUA_BIN` names.
pub(super) fn coua(context: &Context) -> Result<PathBuf> {
    match (&context.coua, env::var_os("COUA_BIN")) {
        (Some(path), _) => Ok(path.clone()),
        (None, Some(named)) => Ok(named.into()),
        (None, None) => {
            run(cargo().args(["build", "--quiet", "--release", "-p", "coua"]))?;
            Ok(target().join("release/coua"))
        }
    }
}

/// The program with DPDK, or the one that `COUA_BIN` names if it has DPDK; otherwise why there is
/// none.
pub(super) fn coua_with_dpdk() -> Result<Result<PathBuf, String>> {
    if let Some(named) = env::var_os("COUA_BIN") {
        // It ends at once, because it has no address or no DPDK.
        let output = program(&named).args(["--net", "dpdk"]).output()?;
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        return Ok(match said.contains("--address") {
            true => Ok(named.into()),
            false => Err(format!(
                "COUA_BIN has no DPDK: {}",
                said.lines().next().unwrap_or_default()
            )),
        });
    }
    if !succeeds(program("pkg-config").args(["--exists", "libdpdk"])) {
        return Ok(Err("there is no libdpdk-dev on this machine".to_owned()));
    }
    run(cargo()
        .args(["build", "--quiet", "--release", "-p", "coua"])
        .args(["--features", "dpdk"]))?;
    // The next build without DPDK would replace it.
    let path = target().join("clients/coua-dpdk");
    fs::create_dir_all(target().join("clients"))?;
    fs::copy(target().join("release/coua"), &path)?;
    Ok(Ok(path))
}
