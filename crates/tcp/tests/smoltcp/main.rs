//! smoltcp, a TCP/IP stack of other people, as the peer: over a simulated cable, in simulated time,
//! without and with what networks do to frames. Every byte is right, both sides end cleanly, and
//! nothing is left over. Each finds the other by ARP or neighbour discovery.
//!
//! `COUA_TCP_SEED` is one seed alone:
//!
//! ```sh
//! COUA_TCP_SEED=17 cargo test -p coua-tcp --test smoltcp streams_over_a_bad_cable
//! ```
//!
//! # Not here
//! Two stacks of ours over every fault: the test `streams`.

mod case;
mod end;
mod ours;
mod theirs;

use std::cell::Cell;

use coua_tcp::simulated::Faults;
use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt, SeedableRng};

use case::{Case, Seen};
use end::{Manner, Reading};

/// Bytes that one side of a stream sends, more than buffers and windows hold.
const LEN: u64 = 100_000;

/// Seeds of faults, each played in every constellation.
const SEEDS: u64 = 200;

/// Ours as client and as server, over IPv4 and IPv6, with and without the peer's timestamps.
fn constellations(case: &Case) -> Vec<Case> {
    let mut all = Vec::new();
    for number in 0..8u8 {
        all.push(Case {
            is_v6: number & 1 != 0,
            ours_connects: number & 2 != 0,
            has_timestamps: number & 4 != 0,
            ..*case
        });
    }
    all
}

/// Plays a case in every constellation, and shows what was seen to a judge.
fn play(case: &Case, judge: impl Fn(&Seen)) {
    for case in constellations(case) {
        match case.play() {
            Ok(seen) => judge(&seen),
            Err(why) => panic!("{why}\nin {case:#?}"),
        }
    }
}

#[test]
fn streams_both_ways() {
    let case = Case::new(Manner::sends(LEN), Manner::sends(LEN + 1));
    play(&case, |seen| {
        assert_eq!(seen.ours.segments_retransmitted, 0, "nothing was lost");
        assert_eq!(seen.ours.dropped_checksum, 0, "nothing was spoilt");
    });
}

#[test]
fn who_has_nothing_to_say() {
    for (ours, theirs) in [(0, 0), (0, 1), (1, 0), (LEN, 0), (0, LEN)] {
        let case = Case::new(Manner::sends(ours), Manner::sends(theirs));
        play(&case, |_| ());
    }
}

/// One side ends at once, and the other sends everything after it has seen that.
#[test]
fn half_closed_connections() {
    let mut late = Manner::sends(LEN);
    late.waits_for_end = true;
    for (ours, theirs) in [(Manner::sends(5000), late), (late, Manner::sends(5000))] {
        play(&Case::new(ours, theirs), |_| ());
    }
}

/// A reader of theirs that closes its window, and whose word that it is open again is lost: ours
/// asks.
#[test]
fn their_window_closes() {
    let mut theirs = Manner::sends(1000);
    theirs.reading = Reading::AFTER_A_WHILE;
    let opens_us = theirs.reading.from_us;
    let mut case = Case::new(Manner::sends(LEN), theirs);
    case.cut_us = (opens_us, opens_us + 1_000_000);
    play(&case, |seen| {
        assert!(seen.ours.window_probes > 0, "the window was closed");
    });
}

/// A reader of ours that closes its window: they keep within it, and learn when it opens.
#[test]
fn our_window_closes() {
    let mut ours = Manner::sends(1000);
    ours.reading = Reading::AFTER_A_WHILE;
    play(&Case::new(ours, Manner::sends(LEN)), |seen| {
        assert_eq!(seen.unread_max, u64::from(case::RECEIVE_LEN_MAX));
        assert!(
            seen.ours.dropped_window > 0,
            "they asked with bytes beyond it"
        );
        // Not when they ask the next time, a second later.
        let took_us = seen.done_us - Reading::AFTER_A_WHILE.from_us;
        assert!(took_us < 500_000, "{took_us} µs after it has opened");
    });
}

/// Readers that take a few bytes now and then: neither side is led to send tiny segments.
#[test]
fn slow_readers() {
    let mut slow = Manner::sends(LEN);
    slow.reading = Reading::SLOWLY;
    play(&Case::new(slow, slow), |seen| {
        let segments = 2 * LEN / u64::from(case::MSS_LEAST);
        assert!(
            seen.ours.segments_sent < segments * 4,
            "{} segments",
            seen.ours.segments_sent
        );
    });
}

#[test]
fn streams_over_a_bad_cable() {
    let seeds = match std::env::var("COUA_TCP_SEED") {
        Ok(seed) => {
            let seed = seed.parse().expect("COUA_TCP_SEED is a number");
            seed..seed + 1
        }
        Err(_) => 0..SEEDS,
    };
    let is_everything = seeds.end - seeds.start == SEEDS;
    let sum = [const { Cell::new(0u64) }; 4];
    for seed in seeds {
        let mut dice = Xoshiro256PlusPlus::seed_from_u64(seed);
        // Ours reads what comes: where a window closes, smoltcp sends a lost segment again with more
        // than was lost of it, beyond the window, and then never what is missing (0.14.0).
        let ours = Manner::sends(dice.random_range(0..LEN / 2));
        let mut case = Case::new(ours, Manner::drawn(&mut dice, LEN / 2));
        case.seed = seed;
        case.faults = faults(&mut dice);
        play(&case, |seen| {
            let counted = [
                seen.ours.segments_retransmitted,
                seen.ours.dropped_checksum,
                seen.ours.recoveries,
                seen.ours.window_probes,
            ];
            for (sum, count) in sum.iter().zip(counted) {
                sum.set(sum.get() + count);
            }
        });
    }
    let is_reached = sum.iter().all(|sum| sum.get() > 0);
    assert!(!is_everything || is_reached, "never: {sum:?}");
}

/// Faults that a handshake survives, since smoltcp gives up none, and ours only after minutes.
fn faults(dice: &mut Xoshiro256PlusPlus) -> Faults {
    let mut often = |most: f64| match dice.random_bool(0.5) {
        true => dice.random_range(0.0..most),
        false => 0.0,
    };
    Faults {
        loss: often(0.05),
        duplication: often(0.1),
        reordering: often(0.1),
        corruption: often(0.05),
        truncation: often(0.03),
        garbage: often(0.03),
        reordering_us: dice.random_range(1..20_000),
        delay_us: dice.random_range(0..30_000),
        jitter_us: dice.random_range(0..5000),
        ..Faults::NONE
    }
}
