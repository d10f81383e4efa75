//! Peers that hold what others need: memory, and places in the table. Others are served all the
//! same, and what is held has a bound that each test states.

#[path = "../support/card.rs"]
mod card;
mod forger;
mod sack;

use coua_tcp::stack::ConnectionId;
use coua_tcp::wire::tcp::Options;
use forger::World;

const MEMORY: usize = 4 << 20;

/// The window that the stack offers at first, of which a test keeps clear of the end.
const WINDOW: u32 = 60_000;

/// A peer that asks for 4000 bytes and takes them at once gets them, within so many turns of a
/// millisecond.
fn is_served(world: &mut World, turns: usize) -> bool {
    let (number, Some(id)) = world.open(65_535, 1460) else {
        return false;
    };
    world.send(number, 0, Options::default(), b"get x\r\n");
    let mut left = 4000;
    for _ in 0..turns {
        world.turn(1000, |stack, card| {
            let mut space = [0; 100];
            let _ = stack.receive(card, id, &mut space);
            while stack.next_ready().is_some() {}
            left -= stack.send(id, &vec![7; left]).unwrap_or(0);
        });
        let peer = &mut world.peers[number];
        if peer.got > 0 && peer.seq.0 == 1000 {
            peer.seq += 7;
        }
        world.send(number, 0, Options::default(), b"");
        if world.peers[number].got == 4000 {
            world.turn(1000, |stack, _| stack.abort(id));
            return true;
        }
    }
    false
}

/// One byte in two, from the top of the window down: nothing of it can be read.
fn make_gaps(world: &mut World, number: usize) {
    for step in 0..WINDOW / 2 {
        world.send(number, WINDOW - 2 * step, Options::default(), b"x");
        if step % 64 == 0 {
            world.settle();
        }
    }
    world.settle();
}

/// No connection keeps more than 512 pieces beyond gaps, whatever their order.
#[test]
fn one_peer_with_gaps_holds_512_pieces() {
    let mut world = World::new(100, MEMORY);
    let (number, _) = world.open(65_535, 1460);
    make_gaps(&mut world, number);
    let buffers = world.stack.buffers_in_use();
    assert!(buffers <= 512, "{buffers} are held");
    assert!(is_served(&mut world, 10));
}

/// Many such peers cannot have the eighth of memory that opening and receiving in order need, and
/// when memory for sending has run out they lose what they hold after a while.
#[test]
fn many_peers_with_gaps_leave_memory_for_others() {
    let mut world = World::new(200, MEMORY);
    let peers: Vec<usize> = (0..60).map(|_| world.open(65_535, 1460).0).collect();
    let mut most = 0;
    for number in peers {
        for step in 0..59 {
            let offset = WINDOW - 1001 * step;
            world.send(number, offset, Options::default(), &[b'x'; 1000]);
        }
        world.settle();
        let memory = world.stack.memory_in_use();
        most = most.max(memory);
        assert!(memory <= MEMORY - MEMORY / 8, "{memory} bytes are held");
        assert!(is_served(&mut world, 3000), "{number} peers hold {memory}");
    }
    assert!(
        most > MEMORY / 2,
        "{most} bytes were held: that presses nobody"
    );
}

/// A peer opens a connection, and is given as much as there is room for. It acknowledges nothing by
/// itself.
fn open_greedy(world: &mut World) -> usize {
    let (number, id) = world.open(65_535, 1460);
    let id = id.expect("there is room");
    world.hold_back(number);
    world.turn(0, |stack, _| _ = stack.send(id, &[7; 20_000]));
    number
}

/// Peers that acknowledge 64 bytes each four seconds, which no limit on silence notices, take all
/// memory: those that drain too slowly what they hold are ended, and others get their replies of 4000
/// bytes.
#[test]
fn slow_readers_do_not_starve_others() {
    const SLOW: usize = 800;
    const OTHERS: usize = 20;
    let mut world = World::new(2000, MEMORY);
    for _ in 0..SLOW {
        open_greedy(&mut world);
    }
    // What each of the others is still to be given.
    let mut left: Vec<(ConnectionId, usize)> = Vec::new();
    for step in 1..2000 {
        if step > 1000 && left.len() < OTHERS {
            let (_, id) = world.open(65_535, 1460);
            let id = id.expect("there is room");
            world.turn(0, |stack, _| {
                left.push((id, 4000 - stack.send(id, &[7; 4000]).expect("open")))
            });
        }
        world.turn(10_000, |stack, _| {
            while let Some((id, readiness)) = stack.next_ready() {
                if readiness.failure.is_some() {
                    stack.close(id);
                } else if let Some((_, left)) = left.iter_mut().find(|other| other.0 == id) {
                    *left -= stack.send(id, &[7; 4000][..*left]).expect("open");
                } else if readiness.writable {
                    let _ = stack.send(id, &[7; 20_000]);
                }
            }
        });
        if step % 400 == 0 {
            (0..SLOW).for_each(|number| world.tell(number, 64));
        }
        for number in SLOW..world.peers.len() {
            world.send(number, 0, Options::default(), b"");
        }
        let memory = world.stack.memory_in_use();
        assert!(memory <= MEMORY, "{memory} bytes are held");
    }
    let got: Vec<u64> = world.peers[SLOW..].iter().map(|peer| peer.got).collect();
    assert_eq!(got, [4000; OTHERS]);
    assert!(world.peers[SLOW..].iter().all(|peer| !peer.is_reset));
    assert!(world.peers[..SLOW].iter().any(|peer| peer.is_reset));
}

/// Who takes within some seconds what is there for it keeps its connection however short memory is,
/// also where it holds more than others, is far away, or is on a slow link.
#[test]
fn who_drains_in_time_is_not_ended() {
    /// Acknowledge all each half second: so long is the way.
    const FAR: usize = 10;
    const FAR_US: u64 = 500_000;
    /// Acknowledge 600 bytes each 400 milliseconds.
    const SLOW_LINK: usize = 10;
    /// Acknowledge nothing.
    const DEAF: usize = 900;
    let mut world = World::new(2000, MEMORY);
    for number in 0..FAR + SLOW_LINK + DEAF {
        world.trip_us = if number < FAR { FAR_US } else { 0 };
        open_greedy(&mut world);
    }
    for step in 1..3000 {
        world.turn(10_000, |stack, _| {
            while let Some((id, readiness)) = stack.next_ready() {
                match readiness.failure {
                    Some(_) => stack.close(id),
                    None => _ = stack.send(id, &[7; 20_000]),
                }
            }
        });
        if step % 50 == 0 {
            (0..FAR).for_each(|number| world.tell(number, u32::MAX));
        }
        if step % 40 == 0 {
            (FAR..FAR + SLOW_LINK).for_each(|number| world.tell(number, 600));
        }
    }
    let (honest, deaf) = world.peers.split_at(FAR + SLOW_LINK);
    assert!(honest.iter().all(|peer| !peer.is_reset));
    assert!(honest.iter().all(|peer| peer.got == 20_000));
    assert!(deaf.iter().filter(|peer| peer.is_reset).count() > DEAF / 4);
}

/// Who waits for memory is told when there is some, and not before.
#[test]
fn who_waits_for_memory_is_told_of_it_once() {
    let mut world = World::new(2000, 1 << 20);
    let reply = vec![7; 60_000];
    let mut ids = Vec::new();
    for _ in 0..400 {
        let (_, id) = world.open(100, 1460);
        let id = id.expect("there is room");
        world.turn(0, |stack, _| _ = stack.send(id, &reply));
        ids.push(id);
    }
    let mut told = 0;
    for _ in 0..1000 {
        world.turn(1000, |stack, _| {
            while let Some((id, _)) = stack.next_ready() {
                told += 1;
                // As often as it likes.
                for _ in 0..3 {
                    let _ = stack.send(id, &reply);
                }
            }
        });
    }
    assert!(told < 1000, "{told} times was somebody told");
}

/// Peers that ask, say good-bye and keep their windows closed, but answer each probe: what is kept for
/// them is bounded by the places that there are, and is given back within two minutes.
#[test]
fn closed_connections_hold_nothing_for_long() {
    const ORPHANS: usize = 300;
    let mut world = World::new(100, MEMORY);
    for _ in 0..ORPHANS {
        let (number, id) = world.open(0, 1460);
        let id = id.expect("an older one makes room");
        world.turn(0, |stack, _| {
            let _ = stack.send(id, &[7; 4000]);
            stack.close(id);
        });
        assert!(world.stack.connections() <= 100);
        let memory = world.stack.memory_in_use();
        // Three segments and a FIN each.
        assert!(
            memory <= 100 * (3 * 2048 + 128),
            "{memory} bytes at {number}"
        );
    }
    assert_eq!(world.stack.counters().evicted, ORPHANS as u64 - 100);
    for _ in 0..1300 {
        world.turn(100_000, |_, _| {});
        for number in 0..ORPHANS {
            if !world.peers[number].is_reset {
                world.send(number, 0, Options::default(), b"");
            }
        }
        world.settle();
    }
    assert_eq!(world.stack.connections(), 0);
    assert_eq!(world.stack.memory_in_use(), 0);
}
