//! Real clients over real sockets, each against a coua of its own in the release profile.
//!
//! A client's script lies in a folder of `tests/clients`, takes host, port and, where it speaks several, the dialect,
//! and ends with another status than 0 at the first surprise.

use std::env;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use anyhow::{Result, bail};

use super::{Context, Outcome};
use crate::commands::{cargo, is_installed, program, root, run, run_within, target};
use crate::server::Server;

/// What every server of these tests is started with.
pub(super) const FLAGS: &[&str] = &["-m", "256", "-t", "2"];
/// A client that waits for an answer that does not come is ended.
pub(super) const LIMIT: Duration = Duration::from_secs(180);

const TEXT: &[&str] = &["text"];
const BINARY: &[&str] = &["binary"];
const BOTH: &[&str] = &["text", "binary"];

/// pymemcache: pure Python, the text protocol.
pub(crate) fn pymemcache(context: &Context) -> Result<Outcome> {
    in_each(TEXT, || python(context, "pymemcache/client.py"))
}

/// pylibmc: libmemcached, the library under most clients in C, PHP and Python.
pub(crate) fn pylibmc(context: &Context) -> Result<Outcome> {
    in_each(BOTH, || python(context, "pylibmc/client.py"))
}

/// python-binary-memcached: pure Python, the binary protocol.
pub(crate) fn bmemcached(context: &Context) -> Result<Outcome> {
    in_each(BINARY, || python(context, "bmemcached/client.py"))
}

/// aiomcache: asyncio, the text protocol, many requests in flight.
pub(crate) fn aiomcache(context: &Context) -> Result<Outcome> {
    in_each(TEXT, || python(context, "aiomcache/client.py"))
}

/// meta-memcache: the meta commands with leases, stale items and recaching.
pub(crate) fn meta_memcache(context: &Context) -> Result<Outcome> {
    in_each(&["meta"], || python(context, "meta_memcache/client.py"))
}

/// gomemcache: the client of most programs in Go.
pub(crate) fn gomemcache(_: &Context) -> Result<Outcome> {
    if !is_installed("go") {
        return Ok(Outcome::LeftOut(
            "there is no go on this machine".to_owned(),
        ));
    }
    in_each(TEXT, || {
        let mut command = program("go");
        command
            .args(["run", "."])
            .current_dir(root().join("tests/clients/gomemcache"));
        command
    })
}

/// Dalli: the client of Ruby on Rails.
pub(crate) fn dalli(context: &Context) -> Result<Outcome> {
    in_each(&["binary", "meta"], || {
        let mut command = program("ruby");
        command
            .arg("-I")
            .arg(&context.tools.dalli)
            .arg("tests/clients/dalli/client.rb");
        command
    })
}

/// spymemcached: the oldest client in Java that is in use.
pub(crate) fn spymemcached(context: &Context) -> Result<Outcome> {
    in_each(BOTH, || java(context, "Spymemcached.java"))
}

/// `XMemcached`: Java, with orders that want no reply.
pub(crate) fn xmemcached(context: &Context) -> Result<Outcome> {
    in_each(BOTH, || java(context, "Xmemcached.java"))
}

/// folsom: Spotify's client in Java.
pub(crate) fn folsom(context: &Context) -> Result<Outcome> {
    in_each(BOTH, || java(context, "Folsom.java"))
}

/// memjs: Node, the binary protocol.
pub(crate) fn memjs(context: &Context) -> Result<Outcome> {
    in_each(BINARY, || {
        let mut command = program("node");
        command
            .arg("tests/clients/memjs/client.js")
            .env("NODE_PATH", &context.tools.node_modules);
        command
    })
}

/// `Cache::Memcached::Fast`: Perl with C, the text protocol.
pub(crate) fn perl(_: &Context) -> Result<Outcome> {
    in_each(TEXT, || script("perl", "perl/client.pl"))
}

/// PHP's extension, which is libmemcached's newest release.
pub(crate) fn php(_: &Context) -> Result<Outcome> {
    in_each(BOTH, || script("php", "php/client.php"))
}

/// libmemcached's tools for the command line, its two load generators among them.
pub(crate) fn libmemcached_tools(_: &Context) -> Result<Outcome> {
    in_each(BOTH, || script("bash", "libmemcached/tools.sh"))
}

/// Runs the client once in each dialect, against a fresh server; one that fails does not hide the next.
fn in_each(dialects: &[&str], client: impl Fn() -> Command) -> Result<Outcome> {
    let path = coua()?;
    let mut failures = Vec::new();
    for dialect in dialects {
        let server = Server::start(&path, FLAGS)?;
        let mut command = client();
        command.args(["127.0.0.1", &server.port.to_string(), dialect]);
        if let Err(error) = run_within(LIMIT, &command) {
            println!("  {dialect}: {error:#}");
            failures.push(*dialect);
        }
    }
    if failures.is_empty() {
        return Ok(Outcome::Passed);
    }
    bail!("it fails in {}", failures.join(" and "));
}

fn python(context: &Context, path: &str) -> Command {
    let mut command = program(&context.tools.python);
    command.arg(root().join("tests/clients").join(path));
    command
}

/// A Java program of one file, which `java` compiles by itself.
fn java(context: &Context, name: &str) -> Command {
    let mut command = program("java");
    command
        .arg("-cp")
        .arg(context.tools.jars.join("*"))
        .arg(root().join("tests/clients/java").join(name));
    command
}

fn script(interpreter: &str, path: &str) -> Command {
    let mut command = program(interpreter);
    command.arg(root().join("tests/clients").join(path));
    command
}

/// Builds the program that is shipped, which is cheap when it is there; `COUA_BIN` names another in its place.
pub(super) fn coua() -> Result<PathBuf> {
    if let Some(named) = env::var_os("COUA_BIN") {
        return Ok(named.into());
    }
    run(cargo().args(["build", "--quiet", "--release", "-p", "coua"]))?;
    Ok(target().join("release/coua"))
}
