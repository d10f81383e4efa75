//! TLS with OpenSSL's client and those of Python, Go and Java: whom a server asks for certificates, as memcached does in
//! each mode; and new certificates while clients come and go.

use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;

use anyhow::{Context as _, Result, bail, ensure};

use super::certificates::Certificates;
use super::under_test::{FLAGS, LIMIT, coua};
use super::{Context, Outcome};
use crate::commands::{program, read, root, run, target};
use crate::server::{Server, connect, free_port};

/// Who is served without a certificate, with their own, and with one of another authority, by `ssl_verify_mode`.
const MODES: &[(u8, [bool; 3])] = &[
    (0, [true, true, true]),
    (1, [true, true, false]),
    (2, [false, true, false]),
    (3, [false, true, false]),
];

/// Which certificate a client shows.
const SHOWN: [&str; 3] = ["none", "client", "foreign"];

const VERSIONS: [&str; 2] = ["1.2", "1.3"];

/// Both, for all clients.
pub(crate) fn tls(context: &Context) -> Result<Outcome> {
    let certificates = Certificates::make("tls")?;
    let clients = clients(context)?;
    let ours = coua(context)?;
    for &(mode, served) in MODES {
        let due = expected(served);
        for path in [&ours, &context.tools.memcached] {
            let server = start(path, &certificates.options(mode))?;
            let asked = |name: &str, said: String| {
                let name = format!("{name} at {} with ssl_verify_mode={mode}", path.display());
                ensure!(said == due, "{name}:\n{said}\ninstead of\n{due}");
                Ok(())
            };
            asked("openssl", s_clients(&certificates, server.port)?)?;
            for (name, client) in &clients {
                let mut client = with_words(client, "modes", server.port, &certificates);
                asked(name, read(&mut client)?)?;
            }
        }
    }
    new_certificates_under_load(&ours, &certificates, &clients)?;
    Ok(Outcome::Passed)
}

/// What clients print.
fn expected(served: [bool; 3]) -> String {
    let line = |version: &str, what: &str, is_served: bool| {
        let outcome = if is_served { "served" } else { "refused" };
        format!("{version} {what} {outcome}")
    };
    let lines = VERSIONS.iter().flat_map(|version| {
        let shown = SHOWN.iter().zip(served);
        let shown = shown.map(|(what, is_served)| line(version, what, is_served));
        shown.chain([line(version, "distrust", false)])
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// Commands that take what to do, host, port and folder.
fn clients(context: &Context) -> Result<Vec<(&'static str, Command)>> {
    let folder = root().join("tests/clients/tls");
    let binary = target().join("clients/tls-modes");
    let mut build = program("go");
    run(build
        .args(["build", "-o"])
        .arg(&binary)
        .arg("modes.go")
        .current_dir(&folder))?;
    let mut python = program(&context.tools.python);
    python.arg(folder.join("modes.py"));
    let mut java = program("java");
    java.arg(folder.join("Modes.java"));
    Ok(vec![
        ("python", python),
        ("go", program(binary)),
        ("java", java),
    ])
}

fn with_words(client: &Command, what: &str, port: u16, certificates: &Certificates) -> Command {
    let mut command = program(client.get_program());
    command.args(client.get_args());
    command.args([what, "127.0.0.1", &port.to_string()]);
    command.arg(certificates.folder());
    command
}

fn start(path: &std::path::Path, options: &str) -> Result<Server> {
    let port = free_port()?;
    let mut command = program(path);
    command.args(["-l", "127.0.0.1", "-p", &port.to_string(), "-u", "root"]);
    command.args(FLAGS).args(["-Z", "-o", options]);
    Server::start_as(&mut command, port, || connect(port).is_some())
}

/// What OpenSSL's clients come to, told as the others tell it.
fn s_clients(certificates: &Certificates, port: u16) -> Result<String> {
    let mut lines = Vec::new();
    for version in VERSIONS {
        for (what, authority, shown) in [
            ("none", "ca", "none"),
            ("client", "ca", "client"),
            ("foreign", "ca", "foreign"),
            ("distrust", "strangers", "client"),
        ] {
            let said = s_client(
                certificates,
                port,
                version,
                authority,
                shown,
                "mn\r\nquit\r\n",
            )?;
            let is_served = said.contains("MN\r\n");
            let outcome = if is_served { "served" } else { "refused" };
            lines.push(format!("{version} {what} {outcome}"));
        }
    }
    Ok(lines.join("\n"))
}

/// What OpenSSL's client prints that sends this.
fn s_client(
    certificates: &Certificates,
    port: u16,
    version: &str,
    authority: &str,
    shown: &str,
    input: &str,
) -> Result<String> {
    let version = version.replace('.', "_");
    let own = match shown {
        "none" => String::new(),
        name => format!("-cert {name}.pem -key {name}.key"),
    };
    let words = format!(
        "s_client -connect 127.0.0.1:{port} -tls{version} -CAfile {authority}.pem -verify_return_error \
         -verify_hostname localhost -ign_eof {own}"
    );
    let mut command = certificates.openssl(&words);
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    let mut child = command.spawn().context("openssl")?;
    let mut pipe = child.stdin.take().context("a pipe")?;
    // Who is refused may have hung up.
    let _ = pipe.write_all(input.as_bytes());
    let output = child.wait_with_output()?;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Clients that connect again and again see each new certificate, and none of them is refused.
fn new_certificates_under_load(
    ours: &std::path::Path,
    certificates: &Certificates,
    clients: &[(&'static str, Command)],
) -> Result<()> {
    let server = start(ours, &certificates.options(2))?;
    let mut loads = Vec::new();
    for (name, client) in clients {
        let command = with_words(client, "load", server.port, certificates);
        loads.push(Load::start(name, command)?);
    }
    for count in 1..=4 {
        for load in &mut loads {
            load.wait_for(&format!("seen {count}"))?;
        }
        match count {
            // They are seen by themselves.
            1 => certificates.replace_server()?,
            2 => {
                certificates.replace_server()?;
                server.signal("HUP")?;
            }
            3 => {
                certificates.replace_server()?;
                let asked = "refresh_certs\r\nquit\r\n";
                let said = s_client(certificates, server.port, "1.3", "ca", "client", asked)?;
                ensure!(said.contains("OK\r\n"), "refresh_certs: {said}");
            }
            _ => std::fs::write(certificates.folder().join("stop"), "")?,
        }
    }
    for load in loads {
        load.end()?;
    }
    Ok(())
}

/// A client that connects again and again. Dropping it ends the client.
struct Load {
    name: &'static str,
    child: std::process::Child,
    lines: Receiver<String>,
}

impl Load {
    fn start(name: &'static str, mut command: Command) -> Result<Load> {
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        let mut child = command.spawn().with_context(|| format!("{command:?}"))?;
        let pipe = child.stdout.take().context("a pipe")?;
        let (sender, lines) = mpsc::channel();
        thread::spawn(move || {
            for line in BufReader::new(pipe).lines().map_while(Result::ok) {
                // Nobody listens after the test.
                let _ = sender.send(line);
            }
        });
        Ok(Load { name, child, lines })
    }

    fn wait_for(&mut self, due: &str) -> Result<()> {
        match self.lines.recv_timeout(LIMIT) {
            Ok(line) if line == due => Ok(()),
            Ok(line) => bail!("{} says {line:?} instead of {due:?}", self.name),
            Err(_) => bail!("{} does not come to say {due:?}", self.name),
        }
    }

    fn end(mut self) -> Result<()> {
        let line = self.lines.recv_timeout(LIMIT);
        let line = line.with_context(|| format!("{} does not stop", self.name))?;
        let status = self.child.wait()?;
        ensure!(
            status.success() && line.ends_with(" connections"),
            "{} says {line:?} and ends with {status}",
            self.name
        );
        println!("  {}: {line}", self.name);
        Ok(())
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
