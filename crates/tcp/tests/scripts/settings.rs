//! What `set` says.

use std::time::Duration;

use coua_tcp::config::{Algorithm, Config};
use coua_tcp::wire::address::Network;

use crate::hosts::Hosts;
use crate::notation::{micros, small};

/// The settings of a case.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) config: Config,
    pub(crate) mtu: u16,
    /// The number that the first SYN is to have.
    pub(crate) iss: Option<u32>,
    pub(crate) peer_iss: u32,
    /// The script answers and asks for MAC addresses itself.
    pub(crate) does_neighbours: bool,
}

fn network(text: &str) -> Result<Network, String> {
    text.parse().map_err(|_| format!("{text} is no network"))
}

impl Settings {
    pub(crate) fn new(hosts: &Hosts) -> Settings {
        let prefix = if hosts.is_v6 { 64 } else { 24 };
        let own = hosts.address("ours").expect("known");
        let own = Network::new(own, prefix).expect("a network");
        Settings {
            config: Config {
                // What depends on time is to be seen alone.
                keep_alive: None,
                multicast_reports: false,
                ecn: false,
                // All of it is offered, also where windows are not scaled.
                receive_len_max: 65_535,
                ..Config::new(vec![own], [7; 32])
            },
            mtu: 1500,
            iss: None,
            peer_iss: 1_000_000,
            does_neighbours: false,
        }
    }

    /// Takes `set NAME VALUE…`.
    pub(crate) fn set(&mut self, hosts: &mut Hosts, words: &[String]) -> Result<(), String> {
        let [name, values @ ..] = words else {
            return Err("set what?".to_owned());
        };
        let value = values.first().ok_or("set it to what?")?.as_str();
        let time = || micros(value).map(Duration::from_micros);
        let is_on = || match value {
            "on" => Ok(true),
            "off" => Ok(false),
            _ => Err(format!("{value} is neither on nor off")),
        };
        let config = &mut self.config;
        match name.as_str() {
            "mtu" => self.mtu = small(value)?,
            "iss" => self.iss = Some(small(value)?),
            "peer_iss" => self.peer_iss = small(value)?,
            "peer" => value.clone_into(&mut hosts.peer),
            "neighbours" => self.does_neighbours = value == "by-hand",
            "gateway" => config.gateways.push(hosts.address(value)?.into()),
            "address" => {
                let prefix = if hosts.is_v6 { 64 } else { 24 };
                let own = Network::new(hosts.address(value)?, prefix).ok_or("no network")?;
                config.addresses.push(own);
            }
            "allow" => config.allow.push(match hosts.address(value) {
                Ok(host) => network(&host.to_string())?,
                Err(_) => network(value)?,
            }),
            "vlan" => config.vlan = small(value)?,
            "connections_max" => config.connections_max = small(value)?,
            "half_open_max" => config.half_open_max = small(value)?,
            "memory_max" => config.memory_max = small(value)?,
            "receive_len_max" => config.receive_len_max = small(value)?,
            "send_len_max" => config.send_len_max = small(value)?,
            "algorithm" => {
                config.algorithm = match value {
                    "cubic" => Algorithm::Cubic,
                    "newreno" => Algorithm::NewReno,
                    _ => return Err(format!("{value} is no algorithm")),
                }
            }
            "timestamps" => config.timestamps = is_on()?,
            "sack" => config.sack = is_on()?,
            "ecn" => config.ecn = is_on()?,
            "multicast_reports" => config.multicast_reports = is_on()?,
            "rto_min" => config.rto_min = time()?,
            "ack_delay" => config.ack_delay = time()?,
            "user_timeout" => config.user_timeout = time()?,
            "keep_alive" => config.keep_alive = Some(time()?),
            "time_wait" => config.time_wait = time()?,
            "ports" => {
                let last = values.get(1).ok_or("ports FIRST LAST")?;
                config.ephemeral_ports = (small(value)?, small(last)?);
            }
            _ => return Err(format!("{name} cannot be set")),
        }
        Ok(())
    }
}
