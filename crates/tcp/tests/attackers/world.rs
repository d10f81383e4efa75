//! An attacked host, an honest client and an attacker at one switch, and time.

use std::time::Duration;

use coua_tcp::config::Config;
use coua_tcp::counters::Counters;
use coua_tcp::nic::{Mac, Nic};
use coua_tcp::simulated::{Card, Faults, Switch};
use coua_tcp::time::Instant;
use coua_tcp::wire::Address;

use crate::client::{Client, Report};
use crate::forger::{Forger, Heard};
use crate::service::Service;

/// The attacked host's card.
pub(crate) const SERVER_MAC: Mac = Mac([2, 0, 0, 0, 0, 1]);

/// The honest client's.
pub(crate) const CLIENT_MAC: Mac = Mac([2, 0, 0, 0, 0, 2]);

/// Microseconds between two acts of an attacker.
const TICK_US: u64 = 1000;

/// Microseconds that the attacked host takes for a burst of 64 frames.
const BURST_US: u64 = 64;

/// Microseconds of a cable: there and back over two is a millisecond.
const DELAY_US: u64 = 250;

/// The address 192.0.2.`host`.
pub(crate) fn address(host: u8) -> Address {
    Address::v4([192, 0, 2, host])
}

/// Somebody who means no good.
pub(crate) trait Attack {
    /// What it does each millisecond.
    fn act(&mut self, forger: &mut Forger, now_us: u64);

    /// What it does about a segment that has come.
    fn hear(&mut self, _forger: &mut Forger, _heard: &Heard) {}
}

/// What has come of an attack.
pub(crate) struct Outcome {
    /// The honest client.
    pub(crate) honest: Report,
    /// The attacked host's counts.
    pub(crate) counters: Counters,
    /// The most buffers and connections that it had at once, and the connections at the end.
    pub(crate) buffers_max: usize,
    pub(crate) connections_max: usize,
    pub(crate) connections: usize,
    /// Segments of the attacker, and those that came back.
    pub(crate) sent: u64,
    pub(crate) heard: u64,
}

/// The settings of the attacked host, which has little of everything.
pub(crate) fn little() -> Config {
    Config {
        connections_max: 64,
        half_open_max: 32,
        memory_max: 4 << 20,
        user_timeout: Duration::from_secs(20),
        ..config(1)
    }
}

fn config(host: u8) -> Config {
    let own = format!("192.0.2.{host}/24").parse().expect("an address");
    Config::new(vec![own], [host; 32])
}

/// Lets an honest client work for some seconds while an attack goes on, if there is one.
pub(crate) fn run(config: Config, seconds: u64, mut attack: Option<&mut dyn Attack>) -> Outcome {
    let cards = [1, 2, 3].map(|last| {
        let mut card = Card::new(Mac([2, 0, 0, 0, 0, last]));
        (card.receive_len_max, card.send_len_max) = (8192, 8192);
        card
    });
    let cable = Faults {
        delay_us: DELAY_US,
        ..Faults::NONE
    };
    let (switch, ends) = Switch::new(1, &cards, cable);
    let [server, client, attacker] = ends.try_into().ok().expect("three ends");
    let honest = Config {
        time_wait: Duration::from_millis(100),
        ..self::config(2)
    };
    let mut service = Service::new(config, server);
    let mut client = Client::new(honest, client);
    let mut forger = Forger::new(attacker);
    let (mut now_us, mut tick_us) = (0, 0);
    let end_us = seconds * 1_000_000;
    while now_us < end_us {
        switch.advance_to(now_us);
        service.turn(now_us);
        client.turn(now_us);
        let heard = forger.hear();
        if let Some(attack) = attack.as_deref_mut() {
            heard
                .iter()
                .for_each(|heard| attack.hear(&mut forger, heard));
            if tick_us <= now_us {
                attack.act(&mut forger, now_us);
                tick_us = now_us + TICK_US;
            }
            forger.card.flush();
        }
        let deadline = service.stack.deadline().map(Instant::micros);
        let ticks = attack.is_some().then_some(tick_us);
        let next = [
            deadline,
            client.next_us(now_us),
            switch.next_event_us(),
            ticks,
        ];
        let next = next
            .into_iter()
            .flatten()
            .min()
            .expect("the client goes on");
        now_us = match service.card.arrived() {
            0 => next.max(now_us + 1),
            _ => now_us + BURST_US,
        };
    }
    Outcome {
        honest: client.report(now_us),
        counters: *service.stack.counters(),
        buffers_max: service.buffers_max,
        connections_max: service.connections_max,
        connections: service.stack.connections(),
        sent: forger.sent,
        heard: forger.heard,
    }
}
