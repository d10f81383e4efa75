//! The thread that keeps a client's servers up to date.

use std::net::ToSocketAddrs;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Weak};
use std::thread;

use crate::address::Address;
use crate::batch::outcome;
use crate::blocking::servers::Servers;
use crate::config::Config;
use crate::discovery::{Discovery, Listed, NO_LIST, Source, requests, told};
use crate::error::Error;
use crate::fleet::Fleet;
use crate::health::Admission;
use crate::outcome::Value;

/// Ends the thread when the last client of a fleet goes.
pub(super) type Follower = Arc<Sender<()>>;

/// What the thread knows.
struct Follow {
    discovery: Discovery,
    /// Those whom the settings name, to ask them for the list.
    sources: Servers,
    last: Listed,
    fleet: Weak<Fleet<Servers>>,
    end: Receiver<()>,
}

/// Finds the servers, and follows what becomes of them.
pub(super) fn follow(
    sources: Servers,
    discovery: Discovery,
) -> Result<(Arc<Fleet<Servers>>, Follower), Error> {
    let listed = ask(&sources, discovery.source)?;
    let servers = Servers::new(
        listed.settings(&sources.config),
        Arc::clone(&sources.connect),
    );
    let fleet = Arc::new(Fleet::followed(servers));
    let (follower, end) = channel();
    let follow = Follow {
        discovery,
        sources,
        last: listed,
        fleet: Arc::downgrade(&fleet),
        end,
    };
    let thread = thread::Builder::new().name("coua-discovery".to_owned());
    let begun = thread.spawn(move || follow.run());
    begun.map_err(|error| Error::Discovery {
        server: "this process".into(),
        reason: format!("no thread begins: {error}"),
    })?;
    Ok((fleet, Arc::new(follower)))
}

impl Follow {
    fn run(mut self) {
        while self.end.recv_timeout(self.discovery.interval) == Err(RecvTimeoutError::Timeout) {
            let Some(fleet) = self.fleet.upgrade() else {
                return;
            };
            // Without an answer all stays as it is.
            let listed = ask(&self.sources, self.discovery.source).or_else(|error| {
                match self.discovery.source {
                    Source::Cluster => ask(&fleet.now(), Source::Cluster),
                    Source::Names => Err(error),
                }
            });
            if let Ok(listed) = listed
                && listed.is_newer(&self.last, self.discovery.source)
            {
                let servers = fleet.now().with(&listed);
                fleet.replace(servers);
                self.last = listed;
            }
        }
    }
}

/// The servers that there are now, or the last error.
fn ask(sources: &Servers, source: Source) -> Result<Listed, Error> {
    if source == Source::Names {
        return lookup(&sources.config);
    }
    let mut last = None;
    for server in &sources.list {
        for request in requests() {
            let reply = sources.attempt(server, Admission::Live, &request);
            let value = reply
                .and_then(|reply| outcome::<Option<Value>>(reply, &server.name, request.effect()));
            let list = |value: Option<Value>| value.as_ref().map_or(Err(NO_LIST), Listed::parse);
            match value.and_then(|value| told(&server.name, list(value))) {
                Ok(listed) => return Ok(listed),
                Err(error) => {
                    let is_answer =
                        matches!(error, Error::Refused { .. } | Error::Discovery { .. });
                    last = Some(error);
                    if !is_answer {
                        break;
                    }
                }
            }
        }
    }
    last.map_or_else(|| told("nobody", Err("there is nobody to ask")), Err)
}

/// All addresses of all names.
fn lookup(config: &Config) -> Result<Listed, Error> {
    let mut addresses = Vec::new();
    for (server, _) in &config.servers {
        let name = server.to_string();
        let Address::Tcp { host, port } = server else {
            return told(&name, Err("a unix socket has no name to look up"));
        };
        match (host.as_str(), *port).to_socket_addrs() {
            Ok(found) => addresses.extend(found),
            Err(error) => return told(&name, Err(&error.to_string())),
        }
    }
    told(&Config::names(&config.servers), Listed::resolved(addresses))
}
