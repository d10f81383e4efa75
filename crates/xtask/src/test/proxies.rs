//! Proxies that spread keys over two servers, with a client in front of them.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Result;

use super::under_test::{FLAGS, LIMIT, coua};
use super::{Context, Outcome};
use crate::commands::{program, read, run_within, target};
use crate::server::{Server, connect, free_port};

/// nutcracker (twemproxy).
pub(crate) fn nutcracker(context: &Context) -> Result<Outcome> {
    let servers = Servers::start(context)?;
    let (port, stats_port) = (free_port()?, free_port()?);
    let settings = settings(
        "nutcracker.yml",
        &format!(
            "pool:\n  listen: 127.0.0.1:{port}\n  hash: fnv1a_64\n  distribution: ketama\n  auto_eject_hosts: false\n  \
             servers:\n   - 127.0.0.1:{}:1\n   - 127.0.0.1:{}:1\n",
            servers.first.port, servers.second.port
        ),
    )?;
    let log = target().join("clients/nutcracker.log");
    let mut command = program("nutcracker");
    command.arg("-c").arg(settings).arg("-o").arg(log).args([
        "-a",
        "127.0.0.1",
        "-s",
        &stats_port.to_string(),
    ]);
    let proxy = Server::start_as(&mut command, port, || connect(port).is_some())?;
    servers.are_well_behind("nutcracker", &proxy, context)
}

/// memcached's own proxy, with the routes of the library that is built into it.
pub(crate) fn memcached_proxy(context: &Context) -> Result<Outcome> {
    let memcached = &context.tools.memcached;
    if !has_proxy(memcached)? {
        return Ok(Outcome::LeftOut(format!(
            "{} is built without its proxy",
            memcached.display()
        )));
    }
    let servers = Servers::start(context)?;
    let routes = settings(
        "memcached-proxy.lua",
        &format!(
            "pools{{ both = {{ backends = {{ \"127.0.0.1:{}\", \"127.0.0.1:{}\" }} }} }}\n\
             routes{{ default = route_direct{{ child = \"both\" }} }}\n",
            servers.first.port, servers.second.port
        ),
    )?;
    let option = format!("proxy_config=routelib,proxy_arg={}", routes.display());
    let proxy = Server::start(memcached, &["-o", &option])?;
    servers.are_well_behind("memcached", &proxy, context)
}

/// Whether this memcached has its proxy and the library of routes.
pub(super) fn has_proxy(memcached: &Path) -> Result<bool> {
    Ok(read(program(memcached).arg("-h"))?.contains("proxy_config=routelib"))
}

/// The two that the keys are spread over.
struct Servers {
    first: Server,
    second: Server,
}

impl Servers {
    fn start(context: &Context) -> Result<Self> {
        let path = coua(context)?;
        Ok(Self {
            first: Server::start(&path, FLAGS)?,
            second: Server::start(&path, FLAGS)?,
        })
    }

    fn are_well_behind(&self, name: &str, proxy: &Server, context: &Context) -> Result<Outcome> {
        let ports = [proxy.port, self.first.port, self.second.port].map(|port| port.to_string());
        let [port, first, second] = &ports;
        run_within(
            LIMIT,
            program(&context.tools.python).args([
                "tests/clients/proxy/client.py",
                name,
                "127.0.0.1",
                port,
                first,
                second,
            ]),
        )?;
        Ok(Outcome::Passed)
    }
}

fn settings(name: &str, text: &str) -> Result<PathBuf> {
    let folder = target().join("clients");
    fs::create_dir_all(&folder)?;
    let path = folder.join(name);
    fs::write(&path, text)?;
    Ok(path)
}
