//! `--check`: whether a server would start with these settings, and what would be on. Nothing is left
//! behind, and a server that runs with the same settings is not disturbed.
//!
//! # Not here
//! Flags and file are checked before ([`crate::flags`]), with what they name of certificates and users.
//! Whether a port is free, and whether a card can be taken, shows only a start.

use std::fmt::Write;
use std::net::{IpAddr, UdpSocket};
use std::path::Path;

use rustix::fs::{Access, access};

use crate::flags::{Driver, FlagError, Settings};
use crate::host::{Host, conditions};
use crate::process;
use crate::server::userspace;

/// What would be on.
///
/// # Errors
/// A line for each thing that would keep the server from starting.
pub fn check(settings: &Settings) -> Result<String, Vec<FlagError>> {
    let mut wrong = Vec::new();
    let mut complain = |line: String| wrong.push(settings.sources.locate(FlagError::new(line)));
    if let Err(error) = process::find_user(settings.user.as_deref()) {
        complain(error.to_string());
    }
    // This process ends at once, so raising its limits touches nobody.
    match process::raise_limits(settings) {
        Ok(_) => {}
        Err(error) => complain(error.to_string()),
    }
    for listen in settings.listen.iter().chain(&settings.listen_udp) {
        if let Err(error) = has_address(listen.address.ip())
            && !listen.is_optional
        {
            let ip = listen.address.ip();
            complain(format!("-l: this machine has no address {ip}: {error}"));
        }
    }
    if let Some(address) = settings.metrics
        && let Err(error) = has_address(address.ip())
    {
        let ip = address.ip();
        complain(format!(
            "--metrics: this machine has no address {ip}: {error}"
        ));
    }
    let net = settings.net.as_ref();
    if let Some(Driver::Xdp(interface) | Driver::Packet(interface)) = net.map(|net| &net.driver)
        && !Host::this()
            .path(&format!("/sys/class/net/{interface}"))
            .exists()
    {
        complain(format!("--net: there is no interface {interface}"));
    }
    let socket = settings.unix_socket.as_ref().map(|socket| &socket.path);
    for (flag, path) in [
        ("-e", settings.memory_file.as_ref()),
        // Where a server listens already, the next one takes the socket over.
        ("-s", socket.filter(|path| !path.exists())),
        ("--pcap", net.and_then(|net| net.trace.as_ref())),
    ] {
        if let Some(Err(why)) = path.map(|path| can_be_made(path)) {
            complain(format!("{flag}: {why}"));
        }
    }
    match wrong.is_empty() {
        true => Ok(summary(settings)),
        false => Err(wrong),
    }
}

/// Whether the machine has the address. A socket is bound, to a port of the kernel's choice, and closed.
fn has_address(ip: IpAddr) -> std::io::Result<()> {
    UdpSocket::bind((ip, 0)).map(drop)
}

/// Whether the file is there and can be written to, or can be made.
fn can_be_made(path: &Path) -> Result<(), String> {
    let whole = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let place = match whole.exists() {
        true => &whole,
        false => whole.parent().unwrap_or(Path::new("/")),
    };
    access(place, Access::WRITE_OK).map_err(|errno| {
        format!(
            "{} cannot be written: {}: {}",
            path.display(),
            place.display(),
            std::io::Error::from(errno)
        )
    })
}

/// What would be on, a line for each.
fn summary(settings: &Settings) -> String {
    let mut text = format!("coua {} would start with\n", crate::version::BUILD);
    let mut line = |name: &str, value: String| {
        // Writing to a string does not fail.
        let _ = writeln!(text, "  {name:<12} {value}");
    };
    if let Some(file) = settings.sources.file() {
        line(
            "settings",
            format!("{} and the command line", file.display()),
        );
    }
    let mut memory = format!(
        "{} MiB for items up to {} KiB",
        settings.memory >> 20,
        settings.limits.item_size_max >> 10
    );
    if settings.memory_max > settings.memory {
        memory += &format!(
            ", up to {} MiB by cache_memlimit",
            settings.memory_max >> 20
        );
    }
    if let Some(file) = &settings.memory_file {
        memory += &format!(", in {}", file.display());
    }
    if !settings.evict {
        memory += ", without evictions";
    }
    line("memory", memory);
    let beside = conditions::memory_wanted(settings) - settings.memory as u64;
    line(
        "beside it",
        format!("up to {} MiB", beside.div_ceil(1 << 20)),
    );
    line(
        "threads",
        format!("{} on cores {}", settings.workers, settings.cores_text()),
    );
    line(
        "connections",
        format!("{} at most", settings.connections_max),
    );
    for (name, all) in [("TCP", &settings.listen), ("UDP", &settings.listen_udp)] {
        let all = all.iter().map(|listen| match listen.tls {
            Some(_) => format!("{} with TLS", listen.address),
            None => listen.address.to_string(),
        });
        let all: Vec<String> = all.collect();
        if !all.is_empty() {
            line(name, all.join(", "));
        }
    }
    if let Some(socket) = &settings.unix_socket {
        let mask = settings.unix_mask;
        line(
            "unix socket",
            format!("{} ({mask:o})", socket.path.display()),
        );
    }
    if let Some(net) = &settings.net {
        line("own stack", userspace::name(&net.driver).to_owned());
    }
    if let Some(rdma) = &settings.rdma {
        let text = format!(
            "{} by {}, {} clients",
            rdma.address, rdma.provider, rdma.clients
        );
        line("RDMA", text);
    }
    line("protocol", settings.protocol_name.to_owned());
    if let Some(users) = &settings.users {
        line("logins", format!("{users:?}"));
    }
    if let Some(address) = settings.metrics {
        line("metrics", format!("http://{address}/"));
    }
    if let Some(user) = &settings.user {
        line("user", user.clone());
    }
    for note in settings.without_effect.iter().chain(&settings.unmet) {
        line("note", note.clone());
    }
    if let Some(Err(why)) = settings.pid_file.as_deref().map(can_be_made) {
        // A server starts all the same.
        line("warning", format!("-P: {why}"));
    }
    for warning in conditions::warnings(&Host::this(), settings) {
        line("warning", warning);
    }
    text
}
