//! Peers that have the stack look through what it has sent: the shortest segments that it makes, as
//! many of them as it keeps, and blocks that begin anew with each acknowledgment.

use coua_tcp::seq::SeqNumber;
use coua_tcp::stack::Stack;
use coua_tcp::wire::tcp::{Options, Sack};

use crate::forger::World;

/// Buffers that one acknowledgment may have the stack look at: three times those that a connection
/// may have waiting, for what has arrived, for what is lost, and for what goes again.
const STEPS_MAX: u64 = 3 * 512;

/// A peer with so long segments at most, and a large window; as much as there is room for is on its
/// way to it. Gives its number, the oldest that is not acknowledged, and how much is on its way.
fn open_sacking(world: &mut World, mss: u16) -> (usize, SeqNumber, u32) {
    world.window_shift = Some(4);
    let (number, id) = world.open(65_535, mss);
    let id = id.expect("there is room");
    let fill =
        |stack: &mut Stack| while stack.send(id, &[7; 65_536]).is_ok_and(|taken| taken > 0) {};
    // The congestion window grows.
    for _ in 0..600 {
        world.turn(1000, |stack, _| fill(stack));
        world.send(number, 0, Options::default(), b"");
    }
    let una = world.peers[number].ack;
    world.turn(1000, |stack, _| fill(stack));
    (number, una, world.peers[number].ack.since(una))
}

/// The buffers that are looked at because of an acknowledgment with these blocks, which count from
/// `una` on.
fn steps(world: &mut World, number: usize, una: SeqNumber, blocks: &[(u32, u32)]) -> u64 {
    let mut sack = Sack::NONE;
    for (from, to) in blocks {
        sack.push((una + *from, una + *to));
    }
    let options = Options {
        sack,
        ..Options::default()
    };
    let before = world.stack.counters().queue_steps;
    let ack = std::mem::replace(&mut world.peers[number].ack, una);
    world.send(number, 0, options, b"");
    world.peers[number].ack = ack;
    world.turn(100, |_, _| {});
    world.stack.counters().queue_steps - before
}

/// Single segments have arrived, it is said, in four places far from one another, and others with
/// each acknowledgment.
#[test]
fn short_segments_do_not_make_long_walks() {
    let mut world = World::new(100, 64 << 20);
    let (number, una, sent) = open_sacking(&mut world, 64);
    assert!(sent > 100_000, "{sent} bytes are on their way");
    let quarter = sent / 4 / 64 * 64;
    let most = (0..quarter / 128).map(|step| {
        let block = |part| {
            (
                quarter * part + step * 128,
                quarter * part + step * 128 + 64,
            )
        };
        steps(&mut world, number, una, &[3, 2, 1, 0].map(block))
    });
    let most = most.max().expect("some");
    assert!(most <= STEPS_MAX, "{most} buffers for one acknowledgment");
}

/// One segment is missing, and what follows it is told as one block that grows: what has been told
/// before is not looked at again.
#[test]
fn a_block_that_grows_is_walked_once() {
    const MSS: u32 = 536;
    let mut world = World::new(100, 64 << 20);
    let (number, una, sent) = open_sacking(&mut world, 536);
    let count = sent / MSS - 1;
    assert!(count > 100);
    let sum: u64 = (2..count)
        .map(|end| steps(&mut world, number, una, &[(MSS, end * MSS)]))
        .sum();
    // A few each: the first, which is missing, the last that was told and the new one.
    assert!(sum <= u64::from(count) * 12, "{sum} for {count}");
}

/// Replies of five bytes, each in a turn of its own, of which none is acknowledged: no more than so
/// many wait.
#[test]
fn short_replies_are_bounded_in_number() {
    let mut world = World::new(100, 64 << 20);
    let (_, id) = world.open(65_535, 1460);
    let id = id.expect("there is room");
    let mut taken = 0;
    for _ in 0..2000 {
        world.turn(10, |stack, _| {
            taken += stack.send(id, b"END\r\n").expect("open")
        });
    }
    let buffers = world.stack.buffers_in_use();
    assert!(buffers <= 512, "{buffers} wait");
    assert!(taken >= 512 * 5, "{taken} bytes were taken");
}
