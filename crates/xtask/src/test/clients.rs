//! Real clients over real sockets, each against its own coua in the release profile: on loopback,
//! and some on coua's own TCP/IP stack.
//!
//! A client's script is in a folder of `tests/clients`. It takes host, port and, if it speaks
//! several, the dialect. Its status is not 0 if anything is not as expected.

use std::fs;
use std::process::Command;
use std::sync::Arc;

use anyhow::{Result, bail, ensure};

use super::capabilities::memccapable;
use super::guard::Guard;
use super::site::{Cable, Site};
use super::under_test::{FLAGS, LIMIT, coua, coua_with_dpdk};
use super::{Context, Outcome};
use crate::commands::{program, read, root, run, run_within, target};
use crate::server::{Server, connect, free_port};

const TEXT: &[&str] = &["text"];
const BINARY: &[&str] = &["binary"];
const BOTH: &[&str] = &["text", "binary"];

/// pymemcache: pure Python, the text protocol.
pub(crate) fn pymemcache(context: &Context) -> Result<Outcome> {
    in_each(context, TEXT, || python(context, "pymemcache/client.py"))
}

/// pylibmc: libmemcached, the library under most clients in C, PHP and Python.
pub(crate) fn pylibmc(context: &Context) -> Result<Outcome> {
    in_each(context, BOTH, || python(context, "pylibmc/client.py"))
}

/// python-binary-memcached: pure Python, the binary protocol.
pub(crate) fn bmemcached(context: &Context) -> Result<Outcome> {
    in_each(context, BINARY, || python(context, "bmemcached/client.py"))
}

/// aiomcache: asyncio, the text protocol, many requests in flight.
pub(crate) fn aiomcache(context: &Context) -> Result<Outcome> {
    in_each(context, TEXT, || python(context, "aiomcache/client.py"))
}

/// meta-memcache: the meta commands with leases, stale items and recaching.
pub(crate) fn meta_memcache(context: &Context) -> Result<Outcome> {
    in_each(context, &["meta"], || {
        python(context, "meta_memcache/client.py")
    })
}

/// gomemcache: the client of most programs in Go.
pub(crate) fn gomemcache(context: &Context) -> Result<Outcome> {
    // Where the client runs, there may be no network to fetch it from.
    let binary = target().join("clients/gomemcache");
    let mut build = program("go");
    build.args(["build", "-o"]).arg(&binary).arg(".");
    run(build.current_dir(root().join("tests/clients/gomemcache")))?;
    in_each(context, TEXT, || program(&binary))
}

/// Dalli: the client of Ruby on Rails.
pub(crate) fn dalli(context: &Context) -> Result<Outcome> {
    in_each(context, &["binary", "meta"], || {
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
    in_each(context, BOTH, || java(context, "Spymemcached.java"))
}

/// `XMemcached`: Java, with requests that want no reply.
pub(crate) fn xmemcached(context: &Context) -> Result<Outcome> {
    in_each(context, BOTH, || java(context, "Xmemcached.java"))
}

/// folsom: Spotify's client in Java.
pub(crate) fn folsom(context: &Context) -> Result<Outcome> {
    in_each(context, BOTH, || java(context, "Folsom.java"))
}

/// AWS's client and `XMemcached`'s find two servers, one of which has the list of both.
pub(crate) fn discovery(context: &Context) -> Result<Outcome> {
    let path = coua(context)?;
    let folder = target().join("clients");
    fs::create_dir_all(&folder)?;
    let list = folder.join("cluster");
    fs::write(&list, "1\n127.0.0.1||1\n")?;
    let option = format!("cluster_config={}", list.display());
    let first = Server::start(&path, &[FLAGS, &["-o", &option]].concat())?;
    let second = Server::start(&path, FLAGS)?;
    let mut command = program("java");
    command
        .arg("-cp")
        .arg(context.tools.discovery_jars.join("*"))
        .arg(root().join("tests/clients/java/discovery/Discovery.java"))
        .args(["127.0.0.1", &first.port.to_string()])
        .args(["127.0.0.1", &second.port.to_string()])
        .arg(&list);
    run_within(LIMIT, &command)?;
    Ok(Outcome::Passed)
}

/// memjs: Node, the binary protocol.
pub(crate) fn memjs(context: &Context) -> Result<Outcome> {
    in_each(context, BINARY, || {
        let mut command = program("node");
        command
            .arg("tests/clients/memjs/client.js")
            .env("NODE_PATH", &context.tools.node_modules);
        command
    })
}

/// `Cache::Memcached::Fast`: Perl with C, the text protocol.
pub(crate) fn perl(context: &Context) -> Result<Outcome> {
    in_each(context, TEXT, || script("perl", "perl/client.pl"))
}

/// PHP's extension, which is libmemcached's newest release.
pub(crate) fn php(context: &Context) -> Result<Outcome> {
    in_each(context, BOTH, || script("php", "php/client.php"))
}

/// libmemcached's command-line tools, including its two load generators.
pub(crate) fn libmemcached_tools(context: &Context) -> Result<Outcome> {
    in_each(context, BOTH, || script("bash", "libmemcached/tools.sh"))
}

/// Clients that log in, by a pretended `set` and by SASL: in the open, and over TLS.
pub(crate) fn logins(context: &Context) -> Result<Outcome> {
    let path = coua(context)?;
    let folder = target().join("clients");
    fs::create_dir_all(&folder)?;
    let (certificate, key) = (folder.join("login.pem"), folder.join("login.key"));
    let words = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 \
                 -subj /CN=localhost -addext subjectAltName=IP:127.0.0.1";
    let mut openssl = program("openssl");
    openssl.args(words.split_whitespace());
    read(
        openssl
            .arg("-out")
            .arg(&certificate)
            .arg("-keyout")
            .arg(&key),
    )?;
    for is_encrypted in [false, true] {
        let port = free_port()?;
        let mut command = program(&path);
        command.args(["-l", "127.0.0.1", "-p", &port.to_string(), "-u", "root"]);
        command
            .args(FLAGS)
            .arg("-S")
            .arg("-Y")
            .arg(root().join("tests/clients/users"));
        if is_encrypted {
            let (certificate, key) = (certificate.display(), key.display());
            let options = format!("ssl_chain_cert={certificate},ssl_key={key}");
            command.args(["-Z", "-o", &options]);
        }
        // It answers nobody who has not logged in.
        let _server = Server::start_as(&mut command, port, || connect(port).is_some())?;
        for script in ["pymemcache/login.py", "bmemcached/login.py"] {
            let mut client = python(context, script);
            client.args(["127.0.0.1", &port.to_string()]);
            if is_encrypted {
                client.arg(&certificate);
            }
            run_within(LIMIT, &client)?;
        }
    }
    Ok(Outcome::Passed)
}

/// A client's step, in the order of [`EVERYWHERE`].
type Client = fn(&Context) -> Result<Outcome>;

/// The clients of the most used languages.
const EVERYWHERE: &[(&str, Client)] = &[
    ("pymemcache", pymemcache),
    ("pylibmc", pylibmc),
    ("gomemcache", gomemcache),
    ("dalli", dalli),
    ("spymemcached", spymemcached),
    ("memccapable", memccapable),
];

/// The same clients on the kernel's TCP, with servers on coua's own stack: on AF_XDP, and one on a
/// packet socket.
pub(crate) fn userspace_clients(context: &Context) -> Result<Outcome> {
    if let Some(why) = missing_for_cables() {
        return Ok(Outcome::LeftOut(why));
    }
    let mut failures = over_cable(context, "xdp", EVERYWHERE)?;
    failures.extend(over_cable(context, "packet", &EVERYWHERE[..1])?);
    conclude(&failures)
}

/// All of them, with servers on DPDK, whose device is a packet socket.
pub(crate) fn userspace_clients_dpdk(context: &Context) -> Result<Outcome> {
    if let Some(why) = missing_for_cables() {
        return Ok(Outcome::LeftOut(why));
    }
    let path = match coua_with_dpdk()? {
        Ok(path) => path,
        Err(why) => return Ok(Outcome::LeftOut(why)),
    };
    let context = Context {
        coua: Some(path),
        ..context.clone()
    };
    conclude(&over_cable(&context, "dpdk", EVERYWHERE)?)
}

/// Those that speak TLS.
const ENCRYPTED: &[(&str, Client)] = &[
    ("pymemcache", pymemcache),
    ("bmemcached", bmemcached),
    ("gomemcache", gomemcache),
    ("dalli", dalli),
    ("folsom", folsom),
];

/// Those that log in by SASL.
const BY_PASSWORD: &[(&str, Client)] = &[
    ("pylibmc", pylibmc),
    ("bmemcached", bmemcached),
    ("dalli", dalli),
    ("spymemcached", spymemcached),
];

/// Clients at servers that are secured: over TLS; with logins by password, a filter of system calls and a limit of memory,
/// which is full; and with all of it at once, where a certificate logs in.
pub(crate) fn secured_clients(context: &Context) -> Result<Outcome> {
    let guards: [(_, Guard, &[(&str, Client)]); 3] = [
        ("over TLS", Guard::default().with_tls(false)?, ENCRYPTED),
        (
            "with a password, under seccomp and a limit of memory",
            (Guard::default().with_users()?)
                .with_filter()
                .with_memory_limit(),
            BY_PASSWORD,
        ),
        (
            "the same over TLS, with a certificate",
            (Guard::default().with_tls(true)?.with_users()?)
                .with_filter()
                .with_memory_limit(),
            ENCRYPTED,
        ),
    ];
    let mut failures = Vec::new();
    for (how, guard, clients) in guards {
        println!("-- {how}");
        failures.extend(at(context, Site::Guarded(guard), how, clients)?);
    }
    conclude(&failures)
}

/// What this machine lacks for a cable between two namespaces, if anything.
fn missing_for_cables() -> Option<String> {
    let needs = "network namespaces need root, or CAP_NET_ADMIN and CAP_SYS_ADMIN, and the programs ip and ethtool";
    (!Cable::can_be_laid()).then(|| needs.to_owned())
}

/// Runs clients at one end of a cable and servers at the other.
fn over_cable(
    context: &Context,
    driver: &'static str,
    clients: &[(&str, Client)],
) -> Result<Vec<String>> {
    let site = Site::Cable(Cable::lay(driver)?);
    at(context, site, &format!("on {driver}"), clients)
}

/// Runs clients at a site. Runs all of them, and names those that fail.
fn at(context: &Context, site: Site, how: &str, clients: &[(&str, Client)]) -> Result<Vec<String>> {
    let context = Context {
        site: Arc::new(site),
        test_filter: None,
        ..context.clone()
    };
    let mut failures = Vec::new();
    for (name, client) in clients {
        match client(&context) {
            Ok(Outcome::Passed) => {}
            Ok(Outcome::LeftOut(why)) => println!("  {name} is left out: {why}"),
            Err(error) => {
                println!("  {name} {how}: {error:#}");
                failures.push(format!("{name} {how}"));
            }
        }
    }
    if let Err(error) = context.site.conclude() {
        failures.push(format!("{error:#} ({how})"));
    }
    Ok(failures)
}

fn conclude(failures: &[String]) -> Result<Outcome> {
    ensure!(
        failures.is_empty(),
        "it fails with {}",
        failures.join(" and ")
    );
    Ok(Outcome::Passed)
}

/// Runs the client once in each dialect, against a fresh server. Runs all of them, also after a
/// failure.
fn in_each(context: &Context, dialects: &[&str], client: impl Fn() -> Command) -> Result<Outcome> {
    let path = coua(context)?;
    let mut failures = Vec::new();
    for dialect in dialects
        .iter()
        .filter(|dialect| context.site.takes(dialect))
    {
        let server = context.site.start(&path, FLAGS)?;
        let mut command = client();
        command.args([context.site.host(), &server.port.to_string(), dialect]);
        if let Err(error) = run_within(LIMIT, &context.site.client(command)) {
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
