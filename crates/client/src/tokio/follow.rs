//! The task that keeps a client's servers up to date.

use std::sync::{Arc, Weak};

use ::tokio::net::lookup_host;
use ::tokio::sync::oneshot;
use ::tokio::time::timeout;

use crate::address::Address;
use crate::config::Config;
use crate::discovery::{Discovery, Listed, NO_LIST, Source, requests, told};
use crate::error::Error;
use crate::fleet::Fleet;
use crate::health::Admission;
use crate::outcome::Value;
use crate::tokio::servers::Servers;

/// Ends the task when the last client of a fleet goes.
pub(super) type Follower = Arc<oneshot::Sender<()>>;

/// What the task knows.
struct Follow {
    discovery: Discovery,
    /// Those whom the settings name, to ask them for the list.
    sources: Servers,
    last: Listed,
    fleet: Weak<Fleet<Servers>>,
    end: oneshot::Receiver<()>,
}

/// Finds the servers, and follows what becomes of them.
pub(super) async fn follow(
    sources: Servers,
    discovery: Discovery,
) -> Result<(Arc<Fleet<Servers>>, Follower), Error> {
    let listed = ask(&sources, discovery.source).await?;
    let fleet = Arc::new(Fleet::followed(Servers::of(&listed, &sources)));
    let (follower, end) = oneshot::channel();
    let follow = Follow {
        discovery,
        sources,
        last: listed,
        fleet: Arc::downgrade(&fleet),
        end,
    };
    ::tokio::spawn(follow.run());
    Ok((fleet, Arc::new(follower)))
}

impl Follow {
    async fn run(mut self) {
        while timeout(self.discovery.interval, &mut self.end)
            .await
            .is_err()
        {
            let Some(fleet) = self.fleet.upgrade() else {
                return;
            };
            let source = self.discovery.source;
            // Without an answer all stays as it is.
            let listed = match ask(&self.sources, source).await {
                Err(_) if source == Source::Cluster => ask(&fleet.now(), source).await,
                listed => listed,
            };
            if let Ok(listed) = listed
                && listed.is_newer(&self.last, source)
            {
                let servers = Servers::of(&listed, &fleet.now());
                fleet.replace(servers);
                self.last = listed;
            }
        }
    }
}

/// The servers that there are now, or the last error.
async fn ask(sources: &Servers, source: Source) -> Result<Listed, Error> {
    if source == Source::Names {
        return lookup(&sources.config).await;
    }
    let mut last = None;
    for server in 0..sources.len() {
        for request in requests() {
            let answered = sources.attempt(server, Admission::Live, &request).await;
            let value = answered.and_then(|answered| answered.outcome::<Option<Value>>());
            let name = sources.name(server);
            match value
                .and_then(|value| told(name, value.as_ref().map_or(Err(NO_LIST), Listed::parse)))
            {
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
async fn lookup(config: &Config) -> Result<Listed, Error> {
    let mut addresses = Vec::new();
    for (server, _) in &config.servers {
        let name = server.to_string();
        let Address::Tcp { host, port } = server else {
            return told(&name, Err("a unix socket has no name to look up"));
        };
        match lookup_host((host.as_str(), *port)).await {
            Ok(found) => addresses.extend(found),
            Err(error) => return told(&name, Err(&error.to_string())),
        }
    }
    told(&Config::names(&config.servers), Listed::resolved(addresses))
}
