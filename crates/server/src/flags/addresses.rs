//! Where `-l` and `-p` say to listen.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs};

use super::FlagError;

/// A TCP address to listen on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Listen {
    /// The address; port 0 takes any free port.
    pub address: SocketAddr,
    /// Nobody asked for this very address: where the machine has none of its kind, it is left out.
    pub is_optional: bool,
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
    })
    .collect()
}

/// The addresses that one `-l` names, with `port` where they name none.
pub(super) fn parse(text: &str, port: u16) -> Result<Vec<Listen>, FlagError> {
    let mut all = Vec::new();
    for part in text.split(',').filter(|part| !part.is_empty()) {
        all.extend(parse_one(part, port)?);
    }
    if all.is_empty() {
        return Err(FlagError::new("-l needs an address"));
    }
    Ok(all)
}

fn parse_one(text: &str, port: u16) -> Result<Vec<Listen>, FlagError> {
    let takes = "an address such as 127.0.0.1, 127.0.0.1:11311, [::1]:11311 or localhost";
    let wrong = || FlagError::value("-l", text, takes);
    let listen = |address| Listen {
        address,
        is_optional: false,
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
    let found = (host, port).to_socket_addrs().map_err(|error| {
        FlagError::new(format!(
            "-l cannot be '{text}': no address of {host} is known ({error})"
        ))
    })?;
    Ok(found.map(listen).collect())
}

fn port_of(text: &str) -> Option<u16> {
    text.parse().ok()
}
