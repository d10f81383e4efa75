//! An attacker beside an honest client, on one stack: what the client notices of it.
//!
//! The client asks and is answered for as long as the attack goes on. Its longest wait and its
//! replies are held against those without the attack, in the simulation's time and in counts, and
//! what the attacked host keeps stays within bounds.
//!
//! ```sh
//! cargo test -p coua-tcp --test attackers -- --nocapture     # tells what came of each
//! ```

#![expect(clippy::print_stderr, reason = "tests tell what they saw")]

mod attacks;
mod client;
mod forged;
mod forger;
mod service;
mod world;

use coua_tcp::config::Config;

use attacks::{
    AckLoop, Blind, DescendingPieces, Orphans, Sacks, SlowReaders, Tells, TimeWaits, TinyMss,
};
use world::{Attack, Outcome, little, run};

/// What the honest client may notice.
#[derive(Clone, Copy)]
struct Notices {
    /// Microseconds by which an answer may take longer.
    longer_us: u64,
    /// Tenths that it gets at least of what it gets without the attack.
    tenths: u64,
}

/// As good as nothing.
const NOTHING: Notices = Notices {
    longer_us: 20_000,
    tenths: 9,
};

/// Lets an attack go on for some seconds, of which the honest client notices nothing.
fn withstands(what: &str, config: Config, seconds: u64, attack: &mut dyn Attack) -> Outcome {
    withstands_within(NOTHING, what, config, seconds, attack)
}

/// As [`withstands`], but for so much.
fn withstands_within(
    notices: Notices,
    what: &str,
    config: Config,
    seconds: u64,
    attack: &mut dyn Attack,
) -> Outcome {
    let without = run(config.clone(), seconds, None);
    let with = run(config, seconds, Some(attack));
    let (before, after) = (without.honest, with.honest);
    eprintln!(
        "{what}: {} of {} replies, {} of {} on new connections, {} of {} bytes; the longest took {} ms, {} without; \
         {} failures; {} buffers, {} connections at most, {} at the end; {} segments sent, {} heard, {} cookies, {} shed, {} buffers looked at",
        after.replies,
        before.replies,
        after.brief,
        before.brief,
        after.bytes,
        before.bytes,
        after.longest_us / 1000,
        before.longest_us / 1000,
        after.failures,
        with.buffers_max,
        with.connections_max,
        with.connections,
        with.sent,
        with.heard,
        with.counters.cookies_sent,
        with.counters.shed,
        with.counters.queue_steps,
    );
    assert!(
        before.replies > 50 * seconds && before.brief > 10 * seconds,
        "{before:?}"
    );
    assert_eq!(
        (before.failures, after.failures),
        (0, 0),
        "{what}: {after:?}"
    );
    for (before, after) in [
        (before.replies, after.replies),
        (before.brief, after.brief),
        (before.bytes, after.bytes),
    ] {
        assert!(
            10 * after >= notices.tenths * before,
            "{what}: {after} of {before}"
        );
    }
    assert!(
        after.longest_us <= before.longest_us + notices.longer_us,
        "{what}: {} ms",
        after.longest_us / 1000
    );
    with
}

/// Out-of-order memory is bounded for each connection, whatever the order.
#[test]
fn pieces_in_descending_order() {
    let mut attack = DescendingPieces::new();
    let outcome = withstands("descending pieces", little(), 10, &mut attack);
    assert!(
        outcome.buffers_max < 6000,
        "{} buffers",
        outcome.buffers_max
    );
}

/// The attacked host where it has as many places as slow readers want.
fn many_places() -> Config {
    Config {
        connections_max: 1024,
        half_open_max: 1024,
        ..little()
    }
}

/// Where memory is not plenty a connection is given little more than its peer has ever offered to take:
/// tiny windows hold little.
#[test]
fn tiny_windows() {
    let attack = &mut SlowReaders::new(800, 64, 1, false);
    let outcome = withstands("tiny windows", many_places(), 20, attack);
    assert!(
        outcome.connections > 700,
        "they are not in anybody's way: {} are left",
        outcome.connections
    );
}

/// Memory for what is sent goes to those who take it, as soon as it is known who does. Who has shown
/// no round trip longer than that is given half a second.
#[test]
fn slow_readers() {
    let notices = Notices {
        longer_us: 700_000,
        tenths: 8,
    };
    for (what, pace) in [("slow readers", 1), ("slow readers at once", 40)] {
        let attack = &mut SlowReaders::new(800, u16::MAX, pace, false);
        let outcome = withstands_within(notices, what, many_places(), 20, attack);
        assert!(outcome.counters.shed > 0, "memory was not short");
    }
}

/// The same where each of them comes back at once.
#[test]
fn slow_readers_that_return() {
    let notices = Notices {
        longer_us: 1_000_000,
        tenths: 5,
    };
    let attack = &mut SlowReaders::new(800, u16::MAX, 1, true);
    withstands_within(notices, "returning slow readers", many_places(), 20, attack);
}

/// Segments are not cut as small as a peer wishes.
#[test]
fn tiny_mss() {
    let mut attack = TinyMss::new();
    withstands("a tiny MSS", little(), 4, &mut attack);
    let mean = attack.bytes / attack.segments.max(1);
    assert!(mean >= 500, "{mean} bytes in a segment");
}

#[test]
fn storms_of_blocks() {
    withstands(
        "a storm of SACK",
        little(),
        4,
        &mut Sacks::new(Tells::Storm),
    );
}

/// Who goes back on its word gets what it is owed, or is given up after the user timeout.
#[test]
fn reneging() {
    let attack = &mut Sacks::new(Tells::Reneges);
    let outcome = withstands("reneging", little(), 40, attack);
    // The honest client's, those of its that are in TIME-WAIT included.
    assert!(outcome.connections <= 10, "{}", outcome.connections);
}

/// What waits for old segments makes room for new connections.
#[test]
fn floods_of_time_wait() {
    withstands("TIME-WAIT", little(), 10, &mut TimeWaits::new());
}

/// What nobody waits for is forgotten, also where its peer answers probes for ever.
#[test]
fn orphans_with_closed_windows() {
    let outcome = withstands("orphans", little(), 600, &mut Orphans::new());
    assert!(outcome.connections <= 10, "{}", outcome.connections);
}

/// Who does not see the numbers changes nothing.
#[test]
fn blind_injection() {
    withstands("blind segments", little(), 10, &mut Blind::new());
}

/// Two that disagree about numbers do not go on about it: one answer in half a second for each
/// connection.
#[test]
fn loops_of_acknowledgments() {
    let seconds = 10;
    let outcome = withstands("loops", little(), seconds, &mut AckLoop::new());
    let most = u64::from(AckLoop::CONNECTIONS) * (2 * seconds + 10);
    assert!(outcome.heard <= most, "{} answers", outcome.heard);
    assert!(
        outcome.heard >= u64::from(AckLoop::CONNECTIONS),
        "it is answered"
    );
}
