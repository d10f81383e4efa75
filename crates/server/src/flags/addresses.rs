//! Where `-l` and `-p` say to listen.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs};

use coua_transport::tls::ClientCertificate;

use super::FlagError;
use super::tls::TlsSettings;

/// A TCP address to listen on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Listen {
    /// The address; port 0 takes any free port.
    pub address: SocketAddr,
    /// Nobody asked for this very address: where the machine has none of its kind, it is left out.
    pub is_optional: bool,
    /// No address was asked for at all: where another server has this one, it is left out as long as
    /// there is another, and the log says so.
    pub is_unasked: bool,
    /// What TLS asks of its clients; `None` for no TLS.
    pub tls: Option<ClientCertificate>,
}

/// All addresses of the machine, at one port.
pub(super) fn everywhere(port: u16) -> Vec<Listen> {
    [
        IpAddr::from(Ipv4Addr::UNSPECIFIED),
        IpAddr::from(Ipv6Addr::UNSPECIFIED),
    ]
    .into_iter()
    .map(|ip| Listen {
        address: SocketAddr::new(ip, port),
        is_optional: ip.is_ipv6(),
        is_unasked: false,
        tls: None,
    })
    .collect()
}

/// What `-l` says.
#[derive(Debug, Default)]
pub(super) struct Addresses {
    /// Where to listen; none of them twice.
    pub(super) listen: Vec<Listen>,
    /// Some carry a tag, which only a proxy has a use for.
    pub(super) have_tags: bool,
}

impl Addresses {
    /// Reads addresses with commas between them, with `port` for those that name none.
    /// `protocol` is what `-B` says.
    pub(super) fn parse(
        text: &str,
        port: u16,
        protocol: &str,
        tls: Option<&TlsSettings>,
    ) -> Result<Addresses, FlagError> {
        let mut all = Addresses::default();
        for part in text.split([',', ';']).filter(|part| !part.is_empty()) {
            let (of_clients, behind) = secured(part, tls)?;
            let untagged = all.take_prefixes(behind, protocol)?;
            for mut listen in parse_one(untagged, port)? {
                listen.tls = of_clients;
                let is_new = all.listen.iter().all(|one| one.address != listen.address);
                // Each port 0 is another port.
                if is_new || listen.address.port() == 0 {
                    all.listen.push(listen);
                }
            }
        }
        if all.listen.is_empty() {
            return Err(FlagError::new("-l needs an address"));
        }
        Ok(all)
    }

    /// Reads what memcached takes in front of an address, and gives the address.
    fn take_prefixes<'t>(&mut self, text: &'t str, protocol: &str) -> Result<&'t str, FlagError> {
        let mut rest = text;
        if let Some((name, behind)) = prefix(rest, "proto", &[('[', ']')]) {
            let ours = if protocol == "auto" {
                "negotiating"
            } else {
                protocol
            };
            if name != ours {
                return Err(FlagError::new(format!(
                    "-l cannot be '{text}': coua speaks the same on all addresses; leave \
                     proto[{name}]: out and see -B"
                )));
            }
            rest = behind;
        }
        if let Some((name, behind)) = prefix(rest, "tag", &[('[', ']'), ('_', '_')]) {
            if !(1..=8).contains(&name.len()) {
                let line = format!("-l cannot be '{text}': a tag has 1 to 8 letters");
                return Err(FlagError::new(line));
            }
            self.have_tags = true;
            rest = behind;
        }
        Ok(rest)
    }
}

/// What TLS asks of the clients of an address, and the address without the prefix that says so.
fn secured<'t>(
    text: &'t str,
    tls: Option<&TlsSettings>,
) -> Result<(Option<ClientCertificate>, &'t str), FlagError> {
    let prefix = ["notls:", "btls:", "mtls:"]
        .into_iter()
        .find(|prefix| text.starts_with(prefix));
    let (Some(prefix), Some(tls)) = (prefix, tls) else {
        return match prefix {
            None => Ok((tls.map(|tls| tls.of_clients), text)),
            Some(prefix) => Err(FlagError::new(format!(
                "-l cannot be '{text}': there is no TLS without -Z; leave {prefix} out"
            ))),
        };
    };
    let of_clients = match prefix {
        "notls:" => None,
        "btls:" => Some(ClientCertificate::Ignored),
        _ if tls.tls.has_authorities() => Some(ClientCertificate::Required),
        _ => {
            return Err(FlagError::new(format!(
                "-l cannot be '{text}': give the authorities of clients' certificates: -o ssl_ca_cert=FILE"
            )));
        }
    };
    Ok((of_clients, &text[prefix.len()..]))
}

/// What stands between the brackets of a prefix such as `tag[name]:`, and what stands behind it.
fn prefix<'t>(text: &'t str, kind: &str, brackets: &[(char, char)]) -> Option<(&'t str, &'t str)> {
    let rest = text.strip_prefix(kind)?;
    brackets.iter().find_map(|(open, close)| {
        let (name, behind) = rest.strip_prefix(*open)?.split_once(*close)?;
        Some((name, behind.strip_prefix(':')?))
    })
}

fn parse_one(text: &str, port: u16) -> Result<Vec<Listen>, FlagError> {
    let takes = "an address such as 127.0.0.1, 127.0.0.1:11311, [::1]:11311 or localhost";
    let wrong = || FlagError::value("-l", text, takes);
    let listen = |address| Listen {
        address,
        is_optional: false,
        is_unasked: false,
        tls: None,
    };
    if let Ok(ip) = text.parse::<IpAddr>() {
        return Ok(vec![listen(SocketAddr::new(ip, port))]);
    }
    if text == "*" {
        return Ok(everywhere(port));
    }
    if let Some(rest) = text.strip_prefix('[') {
        let (ip, rest) = rest.split_once(']').ok_or_else(wrong)?;
        let ip: Ipv6Addr = ip.parse().map_err(|_| wrong())?;
        let port = match rest {
            "" => port,
            _ => port_of(rest.strip_prefix(':').ok_or_else(wrong)?).ok_or_else(wrong)?,
        };
        return Ok(vec![listen(SocketAddr::new(ip.into(), port))]);
    }
    let (host, port) = match text.split_once(':') {
        Some((host, own)) => (host, port_of(own).ok_or_else(wrong)?),
        None => (text, port),
    };
    if host == "*" {
        return Ok(everywhere(port));
    }
    if host.contains(['[', ']']) {
        return Err(wrong());
    }
    let found = (host, port).to_socket_addrs().map_err(|error| {
        FlagError::new(format!(
            "-l cannot be '{text}': no address of {host} is known ({error})"
        ))
    })?;
    let mut found: Vec<Listen> = found.map(listen).collect();
    // The name of a machine may have an address of a kind that is switched off.
    let has_ipv4 = found.iter().any(|listen| listen.address.is_ipv4());
    for listen in &mut found {
        listen.is_optional = has_ipv4 && listen.address.is_ipv6();
    }
    Ok(found)
}

fn port_of(text: &str) -> Option<u16> {
    match text {
        "-1" => Some(0),
        _ => text.parse().ok(),
    }
}
