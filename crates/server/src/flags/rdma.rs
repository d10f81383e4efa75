//! `--rdma`: where clients over RDMA connect to.

use std::net::{IpAddr, SocketAddr};

use super::{FlagError, Raw};

/// Clients over RDMA, unless the flag says how many.
const CLIENTS: usize = 64;

/// Clients at most: each has buffers of about 240 KiB.
const CLIENTS_MAX: usize = 4096;

/// What the flag says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RdmaSettings {
    /// Where the first worker listens; each of the others has the next port, or any free one where this is 0.
    pub address: SocketAddr,
    /// libfabric's name of the network.
    pub provider: String,
    /// Clients at most, of all workers.
    pub clients: usize,
}

impl RdmaSettings {
    /// What the flag says; `None` without it.
    pub(super) fn resolve(raw: &Raw) -> Result<Option<RdmaSettings>, FlagError> {
        raw.rdma.as_deref().map(parse).transpose()
    }
}

fn parse(text: &str) -> Result<RdmaSettings, FlagError> {
    let refused = |why: &str| {
        FlagError::new(format!(
            "--rdma cannot be '{text}': {why}; it takes ADDR, ADDR:PORT, and behind that ,provider=verbs or \
             ,provider=tcp and ,clients=NUM"
        ))
    };
    let mut parts = text.split(',');
    let address = parts.next().unwrap_or_default();
    let address = address
        .parse()
        .or_else(|_| {
            let ip = address.trim_start_matches('[').trim_end_matches(']');
            ip.parse::<IpAddr>().map(|ip| SocketAddr::new(ip, 0))
        })
        .map_err(|_| refused("there is no address of IP in front"))?;
    let mut settings = RdmaSettings {
        address,
        provider: "verbs".to_owned(),
        clients: CLIENTS,
    };
    for part in parts {
        match part.split_once('=') {
            Some(("provider", name @ ("verbs" | "tcp"))) => settings.provider = name.to_owned(),
            Some(("provider", _)) => return Err(refused("the provider is neither verbs nor tcp")),
            Some(("clients", number)) => {
                let clients = number.parse().ok();
                settings.clients = clients
                    .filter(|clients| (1..=CLIENTS_MAX).contains(clients))
                    .ok_or_else(|| refused("clients are 1 to 4096"))?;
            }
            _ => return Err(refused(&format!("'{part}' is not known"))),
        }
    }
    Ok(settings)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_and_what_follows_it() {
        let settings = parse("192.0.2.1").expect("an address");
        assert_eq!(settings.address, "192.0.2.1:0".parse().expect("an address"));
        assert_eq!(
            (&settings.provider[..], settings.clients),
            ("verbs", CLIENTS)
        );
        let settings = parse("[::1]:18515,provider=tcp,clients=7").expect("an address");
        assert_eq!(settings.address, "[::1]:18515".parse().expect("an address"));
        assert_eq!((&settings.provider[..], settings.clients), ("tcp", 7));
        assert_eq!(parse("::1").expect("an address").address.port(), 0);
    }

    #[test]
    fn what_cannot_be_is_named() {
        for (text, why) in [
            ("", "no address"),
            ("eth0", "no address"),
            ("192.0.2.1,provider=psm", "neither verbs nor tcp"),
            ("192.0.2.1,clients=0", "1 to 4096"),
            ("192.0.2.1,fast", "'fast' is not known"),
        ] {
            let error = parse(text).expect_err(text).to_string();
            assert!(
                error.starts_with("--rdma cannot be") && error.contains(why),
                "{error}"
            );
        }
    }
}
