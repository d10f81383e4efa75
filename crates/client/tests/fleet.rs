//! Three servers under load: one is killed, comes back empty, and a fourth one is added. What moves, fails and is
//! missed has to follow from the ring.

mod support;

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use coua_client::{Client, Config, Error, Expiry};
use support::{Over, Program, Server, poll};

const KEYS: usize = 6000;
const THREADS: usize = 3;
/// Points of a server on the ring.
const POINTS: f64 = 160.0;

fn key(number: usize) -> String {
    format!("item:{number:05}")
}

fn client(servers: &[&Server]) -> Client {
    let list: Vec<&str> = servers.iter().map(|it| it.address.as_str()).collect();
    let config = Config::new(&list.join(","))
        .expect("addresses")
        // So long that only a server that is gone is taken for one.
        .operation_timeout(Duration::from_secs(30))
        .ejection_wait(Duration::from_millis(200), Duration::from_millis(400));
    Client::new(config)
}

/// Stores a new value for each key, however often it takes, and says which server has it.
fn holders(cache: &Client, servers: &[&Server], value: &str) -> Vec<usize> {
    for number in 0..KEYS {
        poll("a key is stored", || {
            cache.set(key(number), value, Expiry::NEVER).ok()
        });
    }
    let mut found = vec![usize::MAX; KEYS];
    for (at, server) in servers.iter().enumerate() {
        let alone = client(&[server]);
        for (number, holder) in found.iter_mut().enumerate() {
            let Ok(Some(there)) = alone.get(key(number)) else {
                continue;
            };
            if there.bytes == value.as_bytes() {
                assert_eq!(*holder, usize::MAX, "{} is on two servers", key(number));
                *holder = at;
            }
        }
    }
    assert!(!found.contains(&usize::MAX), "a key is on no server");
    found
}

fn moved(before: &[usize], after: &[usize]) -> HashSet<usize> {
    (0..KEYS).filter(|&at| before[at] != after[at]).collect()
}

/// A server's share, give or take six standard deviations of the draw of keys and of the points on the ring.
#[allow(clippy::cast_precision_loss, reason = "some thousands")]
fn has_its_share(holders: &[usize], server: usize, servers: usize) {
    let wanted = 1.0 / servers as f64;
    let share = holders.iter().filter(|&&it| it == server).count() as f64 / KEYS as f64;
    let variance = wanted * (1.0 - wanted);
    let variance = variance / KEYS as f64 + variance / (servers as f64 * POINTS + 1.0);
    let bound = 6.0 * variance.sqrt();
    assert!(
        (share - wanted).abs() <= bound,
        "server {server} has {share:.3} of the keys, not {wanted:.3} ± {bound:.3}"
    );
}

/// What a load has seen.
#[derive(Default)]
struct Seen {
    errors: HashMap<usize, u32>,
    misses: HashMap<usize, u32>,
    /// Values older than the last one that was stored for certain.
    stale: HashMap<usize, u32>,
}

/// Each thread reads and writes keys of its own, so that it knows each one's last value.
fn load(cache: &Client, stop: &AtomicBool, requests: &AtomicU64, thread: usize) -> Seen {
    let mut seen = Seen::default();
    // The last value that was sent, and the last one that was stored for certain.
    let mut last: HashMap<usize, u64> = HashMap::new();
    let mut stored: HashMap<usize, u64> = HashMap::new();
    let mut chance = thread as u64 + 1;
    let store =
        |number: usize, last: &mut HashMap<usize, u64>, stored: &mut HashMap<usize, u64>| {
            let next = last.get(&number).copied().unwrap_or_default() + 1;
            last.insert(number, next);
            cache.set(key(number), format!("{number}={next}"), Expiry::NEVER)?;
            stored.insert(number, next);
            Ok(())
        };
    while !stop.load(Ordering::Relaxed) {
        // xorshift64
        chance ^= chance << 13;
        chance ^= chance >> 7;
        chance ^= chance << 17;
        let number =
            usize::try_from(chance % (KEYS / THREADS) as u64).expect("small") * THREADS + thread;
        let result: Result<(), Error> =
            match (chance >> 40).is_multiple_of(3) || !stored.contains_key(&number) {
                true => store(number, &mut last, &mut stored),
                false => match cache.get(key(number)) {
                    Ok(Some(value)) => {
                        let text = String::from_utf8(value.bytes).expect("text");
                        let (name, at) = text.split_once('=').expect("a value of this test");
                        assert_eq!(name, number.to_string(), "another key's value");
                        let at: u64 = at.parse().expect("a number");
                        assert!(at <= last[&number], "a value from the future");
                        if at < stored[&number] {
                            *seen.stale.entry(number).or_default() += 1;
                        }
                        Ok(())
                    }
                    Ok(None) => {
                        *seen.misses.entry(number).or_default() += 1;
                        store(number, &mut last, &mut stored)
                    }
                    Err(error) => Err(error),
                },
            };
        if result.is_err() {
            *seen.errors.entry(number).or_default() += 1;
        }
        requests.fetch_add(1, Ordering::Relaxed);
    }
    seen
}

/// Runs the load while `change` makes a change, and returns what all threads have seen.
fn under_load(cache: &Client, change: impl FnOnce(&dyn Fn(u64))) -> Seen {
    let (stop, requests) = (AtomicBool::new(false), AtomicU64::new(0));
    let more = |count: u64| {
        let enough = requests.load(Ordering::Relaxed) + count;
        poll("the load goes on", || {
            (requests.load(Ordering::Relaxed) >= enough).then_some(())
        });
    };
    thread::scope(|scope| {
        let (stop, requests) = (&stop, &requests);
        let threads: Vec<_> = (0..THREADS)
            .map(|at| scope.spawn(move || load(cache, stop, requests, at)))
            .collect();
        more(300);
        change(&more);
        more(1000);
        stop.store(true, Ordering::Relaxed);
        let mut all = Seen::default();
        for thread in threads {
            let seen = thread.join().expect("no value is wrong");
            all.errors.extend(seen.errors);
            all.misses.extend(seen.misses);
            all.stale.extend(seen.stale);
        }
        all
    })
}

fn only(seen: &HashMap<usize, u32>, keys: &HashSet<usize>, what: &str) {
    let others: Vec<_> = seen.keys().filter(|at| !keys.contains(at)).collect();
    assert!(
        others.is_empty(),
        "{what} of keys that have nothing to do with it: {others:?}"
    );
}

#[test]
fn a_server_goes_returns_and_another_one_is_added() {
    let start = || Server::start(Program::Coua, Over::Tcp);
    let (one, mut two, three) = (start(), start(), start());
    let cache = client(&[&one, &two, &three]);
    let before = holders(&cache, &[&one, &two, &three], "before");
    (0..3).for_each(|at| has_its_share(&before, at, 3));
    let of_victim: HashSet<usize> = (0..KEYS).filter(|&at| before[at] == 1).collect();

    let seen = under_load(&cache, |more| {
        two.kill();
        more(1000);
    });
    only(&seen.errors, &of_victim, "errors");
    only(&seen.misses, &of_victim, "misses");
    assert!(seen.stale.is_empty(), "stale values: {:?}", seen.stale);
    let without = holders(&cache, &[&one, &three], "without");
    // The places behind the dead server's have moved up.
    let without: Vec<usize> = without.iter().map(|&at| at * 2).collect();
    assert_eq!(
        moved(&before, &without),
        of_victim,
        "keys of servers that live have moved"
    );

    let seen = under_load(&cache, |_| two.restart());
    only(&seen.errors, &of_victim, "errors");
    only(&seen.misses, &of_victim, "misses");
    // A trial that fails sends a key elsewhere once more, where an older value may lie.
    only(&seen.stale, &of_victim, "stale values");
    let servers = [&one, &two, &three];
    poll("all keys are where they were", || {
        // A trial that comes too early sends keys elsewhere once more.
        let text = format!("again {}", next_number());
        let holders = holders(&cache, &servers, &text);
        moved(&before, &holders).is_empty().then_some(())
    });

    let four = start();
    let servers = [&one, &two, &three, &four];
    let grown = client(&servers);
    let after = holders(&grown, &servers, "after");
    let gone = moved(&before, &after);
    assert!(
        gone.iter().all(|&at| after[at] == 3),
        "keys have moved between servers that stay"
    );
    (0..4).for_each(|at| has_its_share(&after, at, 4));
}

/// A number that no other call has given.
fn next_number() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed)
}
