//! The server under test.

use std::path::PathBuf;
use std::time::Duration;
use std::{env, fs};

use anyhow::Result;

use super::Context;
use crate::commands::{cargo, program, run, succeeds, target};

/// What every server of these tests is started with.
pub(super) const FLAGS: &[&str] = &["-m", "256", "-t", "2"];
/// A client that waits for an answer that does not come is ended.
pub(super) const LIMIT: Duration = Duration::from_secs(180);

/// The program of this run, or the one that is shipped, which is cheap to build when it is there; `COUA_BIN` names another
/// in its place.
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

/// The program with DPDK, or `COUA_BIN` in its place where that has it too; else why there is none.
pub(super) fn coua_with_dpdk() -> Result<Result<PathBuf, String>> {
    if let Some(named) = env::var_os("COUA_BIN") {
        // It ends at once, for want of an address or of DPDK.
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
    // The next build without it takes its place.
    let path = target().join("clients/coua-dpdk");
    fs::create_dir_all(target().join("clients"))?;
    fs::copy(target().join("release/coua"), &path)?;
    Ok(Ok(path))
}
