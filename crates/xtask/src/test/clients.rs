//! Real clients over real sockets, each against a coua of its own in the release profile.

use std::env;
use std::fs;
use std::path::PathBuf;

use anyhow::{Result, ensure};

use super::{Context, Outcome};
use crate::commands::{cargo, is_installed, program, root, run, target};
use crate::server::{Server, free_port};

const FLAGS: &[&str] = &["-m", "256", "-t", "2"];

/// pymemcache: pure Python, the text protocol.
pub(crate) fn pymemcache(context: &Context) -> Result<Outcome> {
    python(context, "pymemcache_client.py")
}

/// pylibmc: libmemcached, the library under most clients in C, PHP and Python.
pub(crate) fn pylibmc(context: &Context) -> Result<Outcome> {
    python(context, "pylibmc_client.py")
}

/// gomemcache: the client of most programs in Go.
pub(crate) fn gomemcache(_: &Context) -> Result<Outcome> {
    if !is_installed("go") {
        return Ok(Outcome::LeftOut(
            "there is no go on this machine".to_owned(),
        ));
    }
    let server = Server::start(&coua()?, FLAGS)?;
    let folder = root().join("tests/clients/go");
    run(program("go")
        .args(["run", ".", "127.0.0.1", &server.port.to_string()])
        .current_dir(folder))?;
    Ok(Outcome::Passed)
}

/// memccapable's text half: coua must pass and fail exactly what memcached passes and fails.
pub(crate) fn memccapable(context: &Context) -> Result<Outcome> {
    let ours = capabilities(&Server::start(&coua()?, FLAGS)?)?;
    let theirs = capabilities(&Server::start(&context.tools.memcached, FLAGS)?)?;
    ensure!(
        theirs.len() > 20,
        "memccapable ran only {} tests on memcached",
        theirs.len()
    );
    for (our, their) in ours.iter().zip(&theirs) {
        ensure!(our == their, "memccapable: coua: {our}; memcached: {their}");
    }
    ensure!(
        ours.len() == theirs.len(),
        "memccapable ran {} tests, {} on memcached",
        ours.len(),
        theirs.len()
    );
    println!(
        "  the same {} results as memcached, {} passed",
        ours.len(),
        passes(&ours)
    );
    Ok(Outcome::Passed)
}

/// nutcracker in front of two servers.
pub(crate) fn nutcracker(context: &Context) -> Result<Outcome> {
    let path = coua()?;
    let (first, second) = (Server::start(&path, FLAGS)?, Server::start(&path, FLAGS)?);
    let (port, stats_port) = (free_port()?, free_port()?);
    let settings = target().join("clients/nutcracker.yml");
    fs::create_dir_all(target().join("clients"))?;
    fs::write(
        &settings,
        format!(
            "pool:\n  listen: 127.0.0.1:{port}\n  hash: fnv1a_64\n  distribution: ketama\n  auto_eject_hosts: false\n  \
             servers:\n   - 127.0.0.1:{}:1\n   - 127.0.0.1:{}:1\n",
            first.port, second.port
        ),
    )?;
    let log = target().join("clients/nutcracker.log");
    let mut command = program("nutcracker");
    command.arg("-c").arg(&settings).arg("-o").arg(log).args([
        "-a",
        "127.0.0.1",
        "-s",
        &stats_port.to_string(),
    ]);
    let proxy = Server::start_as(&mut command, port, |_| true)?;
    let ports = [proxy.port, first.port, second.port].map(|port| port.to_string());
    run(program(&context.tools.python)
        .args(["tests/clients/through_nutcracker.py", "127.0.0.1"])
        .args(ports))?;
    Ok(Outcome::Passed)
}

fn python(context: &Context, script: &str) -> Result<Outcome> {
    let server = Server::start(&coua()?, FLAGS)?;
    let script = root().join("tests/clients").join(script);
    run(program(&context.tools.python)
        .arg(script)
        .args(["127.0.0.1", &server.port.to_string()]))?;
    Ok(Outcome::Passed)
}

/// The lines of memccapable, without the blanks in them.
fn capabilities(server: &Server) -> Result<Vec<String>> {
    let port = server.port.to_string();
    // It exits with 1 where a test fails, as some do on every memcached since 1.6.
    let output = program("memccapable")
        .args(["-h", "127.0.0.1", "-p", &port, "-a"])
        .output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    Ok(text
        .lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
        .collect())
}

fn passes(lines: &[String]) -> usize {
    lines.iter().filter(|line| line.contains("[pass]")).count()
}

/// Builds the program that is shipped, which is cheap when it is there; `COUA_BIN` names another in its place.
fn coua() -> Result<PathBuf> {
    if let Some(named) = env::var_os("COUA_BIN") {
        return Ok(named.into());
    }
    run(cargo().args(["build", "--quiet", "--release", "-p", "coua"]))?;
    Ok(target().join("release/coua"))
}
