//! What a seed makes of a run.

use std::time::Duration;

use coua_tcp::config::{Algorithm, Config};
use coua_tcp::nic::Mac;
use coua_tcp::simulated::{Card, Faults};
use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt, SeedableRng};

pub(crate) type Dice = Xoshiro256PlusPlus;

/// The plan of one run.
pub(crate) struct Plan {
    pub(crate) configs: [Config; 2],
    pub(crate) cards: [Card; 2],
    /// Of each direction.
    pub(crate) faults: [Faults; 2],
    pub(crate) streams: usize,
    /// Bytes that each side of a stream sends at most.
    pub(crate) len_max: u64,
    /// Users that read slowly.
    pub(crate) is_slow: bool,
    pub(crate) is_v6: bool,
}

pub(crate) fn dice(seed: u64) -> Dice {
    Dice::seed_from_u64(seed)
}

/// Between both, with small numbers as likely as large ones.
pub(crate) fn sized(dice: &mut Dice, least: u64, most: u64) -> u64 {
    let bits = 64 - (most - least + 1).leading_zeros();
    let cut = dice.random_range(0..=bits);
    let span = (1u64 << cut.min(62)).min(most - least);
    least + dice.random_range(0..=span)
}

impl Plan {
    pub(crate) fn new(dice: &mut Dice) -> Plan {
        let is_v6 = dice.random_bool(0.3);
        let mtu = [1280, 1500, 1500, 4000, 9000][dice.random_range(0..5)];
        let configs = [1, 2].map(|host| config(dice, is_v6, host));
        let cards = [1, 2].map(|host| {
            let mut card = Card::new(Mac([2, 0, 0, 0, 0, host]));
            card.mtu = mtu;
            if dice.random_bool(0.3) {
                card.full = 0.1;
                card.send_len_max = dice.random_range(1..40);
                card.receive_len_max = dice.random_range(8..100);
            }
            if dice.random_bool(0.4) {
                card.segmentation_len_max = dice.random_range(2000..60_000);
            }
            card
        });
        let both = faults(dice);
        let other = if dice.random_bool(0.5) {
            faults(dice)
        } else {
            both
        };
        let is_fast = both.rate == 0 && both.delay_us < 5000 && other.delay_us < 5000;
        Plan {
            configs,
            cards,
            faults: [both, other],
            streams: dice.random_range(1..5),
            len_max: if is_fast { 200_000 } else { 40_000 },
            is_slow: dice.random_bool(0.3),
            is_v6,
        }
    }
}

fn config(dice: &mut Dice, is_v6: bool, host: u8) -> Config {
    let address = match is_v6 {
        false => format!("192.0.2.{host}/24"),
        true => format!("2001:db8::{host}/64"),
    };
    let address = address.parse().expect("an address");
    let mut config = Config::new(vec![address], [host; 32]);
    config.connections_max = 32;
    config.half_open_max = if dice.random_bool(0.2) { 0 } else { 16 };
    config.receive_len_max = u32::try_from(sized(dice, 3000, 300_000)).expect("small");
    config.send_len_max = u32::try_from(sized(dice, 1000, 300_000)).expect("small");
    config.memory_max = match dice.random_bool(0.2) {
        true => dice.random_range(128..512) << 10,
        false => 16 << 20,
    };
    if dice.random_bool(0.3) {
        config.algorithm = Algorithm::NewReno;
    }
    config.sack = !dice.random_bool(0.2);
    config.timestamps = !dice.random_bool(0.2);
    config.user_timeout = Duration::from_secs(600);
    if dice.random_bool(0.2) {
        config.keep_alive = Some(Duration::from_secs(1));
    } else if config.half_open_max == 0 {
        // A late copy of the segment that proved a cookie proves it again, when its connection is
        // over. Only asking shows that nobody is there.
        config.keep_alive = Some(Duration::from_secs(300));
    }
    config
}

fn faults(dice: &mut Dice) -> Faults {
    let mut faults = Faults {
        delay_us: sized(dice, 0, 50_000),
        ..Faults::NONE
    };
    let mut often = |most: f64| match dice.random_bool(0.4) {
        true => dice.random_range(0.0..most),
        false => 0.0,
    };
    faults.loss = often(0.1);
    faults.duplication = often(0.1);
    faults.reordering = often(0.2);
    faults.corruption = often(0.05);
    faults.truncation = often(0.05);
    faults.garbage = often(0.05);
    faults.outage = often(0.002);
    faults.haste = often(0.1);
    faults.reordering_us = sized(dice, 1, 20_000);
    faults.outage_us = sized(dice, 1, 2_000_000);
    if dice.random_bool(0.3) {
        faults.jitter_us = sized(dice, 1, 10_000);
    }
    if dice.random_bool(0.3) {
        faults.rate = sized(dice, 1_000_000, 1_000_000_000);
        faults.queue_len_max = sized(dice, 10_000, 200_000);
    }
    if dice.random_bool(0.1) {
        // Longer packets vanish; IPv6 lets 1280 pass everywhere.
        faults.frame_len_max = 1300 + dice.random_range(0..300);
    }
    faults
}
