//! Kills at random moments, under load.

use std::net::SocketAddr;
use std::process::ExitStatus;
use std::thread;
use std::time::Duration;

use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt, SeedableRng};
use rustix::process::Signal;

use crate::MemoryFile;
use crate::process::{Client, Process, coua};
use crate::user::{Count, Sizes, User};

/// How often the server is ended, where `COUA_RESTARTS` does not say.
const RESTARTS: u32 = 15;

/// Restarts of one file; the next begins empty, and with the other sizes.
const RESTARTS_A_FILE: u32 = 5;

/// Client threads.
const USERS: u32 = 4;

/// Nothing is evicted, and as much is written as makes cleaning necessary.
const KEEPING: (&[&str], Sizes) = (
    &["-m", "64", "-M"],
    Sizes {
        keys: 8_000,
        large_one_in: 250,
        evicts: false,
    },
);

/// Much more than fits, of which many small items make the index grow.
const EVICTING: (&[&str], Sizes) = (
    &["-m", "16"],
    Sizes {
        keys: 20_000,
        large_one_in: 60,
        evicts: true,
    },
);

/// A server on a file that one process hands to the next.
struct Life {
    file: MemoryFile,
    flags: &'static [&'static str],
    random: Xoshiro256PlusPlus,
    mends: u64,
    evictions: u64,
}

impl Life {
    fn start(&mut self) -> Process {
        let workers = self.random.random_range(1..=4).to_string();
        let flags = ["-e", self.file.text(), "-t", &workers];
        Process::start(coua(&[self.flags, &flags].concat()))
    }

    /// Kills the next process while it takes over.
    fn kill_at_start(&mut self) {
        let process = self.start();
        thread::sleep(Duration::from_millis(self.random.random_range(0..40)));
        process.signal(Signal::KILL);
        process.end();
    }

    /// Waits until the process serves, and sees that it has taken over: from a process that was
    /// killed or not, where that is known.
    fn warm(&mut self, process: &Process, was_killed: Option<bool>) -> SocketAddr {
        let address = process.address();
        let line = process.hear("the cache begins");
        assert!(line.contains("begins with"), "{line}");
        let mends = line.split_once(" mends").map(|(text, _)| text);
        let mends = mends.and_then(|text| text.rsplit_once('(')?.1.parse::<u64>().ok());
        assert!(
            was_killed.is_none_or(|was_killed| was_killed == mends.is_some()),
            "{line}"
        );
        self.mends += mends.unwrap_or(0);
        address
    }
}

fn restarts() -> u32 {
    let named = std::env::var("COUA_RESTARTS");
    named.map_or(RESTARTS, |text| {
        text.parse().expect("COUA_RESTARTS is a number")
    })
}

#[test]
#[expect(clippy::print_stdout, reason = "a failure is told with its seed")]
fn what_was_answered_outlives_the_process() {
    let seed = chosen_seed();
    println!("seed {seed}");
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    let (mut done, mut number, mut total) = (0, 0, Count::default());
    let (mut mends, mut evictions) = (0, 0);
    while done < restarts() {
        let (flags, sizes) = [KEEPING, EVICTING][number % 2];
        let ends = RESTARTS_A_FILE.min(restarts() - done);
        let mut life = Life {
            file: MemoryFile::new(),
            flags,
            random: Xoshiro256PlusPlus::seed_from_u64(random.random()),
            mends: 0,
            evictions: 0,
        };
        let counts = live(&mut life, sizes, ends);
        for count in &counts {
            total.answered += count.answered;
            total.unanswered += count.unanswered;
            total.found += count.found;
            total.cas_compared += count.cas_compared;
        }
        (done, number) = (done + ends, number + 1);
        (mends, evictions) = (mends + life.mends, evictions + life.evictions);
    }
    println!("{done} restarts, {mends} mends, {evictions} evictions: {total:?}");
    assert!(evictions > 0 || number < 2);
    assert!(total.answered > 0 && total.found > 0 && total.cas_compared > 0);
}

/// Ends a server so often, and checks after each restart.
fn live(life: &mut Life, sizes: Sizes, ends: u32) -> Vec<Count> {
    let mut users: Vec<User> = (0..USERS)
        .map(|user| {
            let random = Xoshiro256PlusPlus::seed_from_u64(life.random.random());
            User::new(user * sizes.keys, sizes, random)
        })
        .collect();
    let mut process = life.start();
    let mut address = process.address();
    assert!(process.hear("the cache begins").contains("empty"));
    for _ in 0..ends {
        let mut lasts = Duration::from_millis(life.random.random_range(20..700));
        if life.random.random_bool(0.2) {
            assert_eq!(Client::connect(address).ask("flush_all\r\n"), "OK");
            users.iter_mut().for_each(User::flushed);
            if life.random.random_bool(0.5) {
                lasts = Duration::ZERO;
            }
        }
        let signal = match life.random.random_range(0..10) {
            0 => Signal::TERM,
            1 => Signal::USR1,
            _ => Signal::KILL,
        };
        let (status, evictions) = end_under_load(process, signal, lasts, address, &mut users);
        life.evictions += evictions;
        let mut was_killed = Some(signal == Signal::KILL);
        assert_eq!(status.success(), signal != Signal::KILL, "{status}");
        if life.random.random_bool(0.3) {
            life.kill_at_start();
            // It may have been killed before it took the file.
            was_killed = was_killed.filter(|&is_known| is_known);
        }
        process = life.start();
        address = life.warm(&process, was_killed);
        each(&mut users, |user| user.read_back(address));
    }
    assert!(
        sizes.evicts || life.evictions == 0,
        "{} evictions",
        life.evictions
    );
    users.iter().map(|user| user.count).collect()
}

/// Lets the users work, and ends the server meanwhile.
fn end_under_load(
    mut process: Process,
    signal: Signal,
    lasts: Duration,
    address: SocketAddr,
    users: &mut [User],
) -> (ExitStatus, u64) {
    thread::scope(|scope| {
        let ender = scope.spawn(move || {
            if !lasts.is_zero() {
                thread::sleep(lasts);
            }
            assert!(process.runs(), "it has ended by itself: {}", process.said());
            let evictions = Client::connect(address).stat("stats", "evictions");
            process.signal(signal);
            let end = process.end();
            assert!(!end.said.contains("panicked"), "{}", end.said);
            (end.status, evictions.parse().expect("a number"))
        });
        if !lasts.is_zero() {
            each(users, |user| user.work(address));
        }
        ender
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// Has all users do something at once.
fn each(users: &mut [User], work: impl Fn(&mut User) -> Result<(), String> + Sync) {
    let faults: Vec<String> = thread::scope(|scope| {
        let threads: Vec<_> = users
            .iter_mut()
            .map(|user| scope.spawn(|| work(user).err()))
            .collect();
        let ended = threads.into_iter().map(|thread| thread.join());
        ended
            .filter_map(|fault| fault.expect("no user panics"))
            .collect()
    });
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

fn chosen_seed() -> u64 {
    use std::hash::{BuildHasher, RandomState};
    let named = std::env::var("COUA_RESTART_SEED").ok();
    named
        .and_then(|text| text.parse().ok())
        .unwrap_or_else(|| RandomState::new().hash_one("seed"))
}
