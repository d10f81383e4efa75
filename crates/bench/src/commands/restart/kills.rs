//! `coua-bench restart --kills N`: a server on a file is killed at random moments, under load, so often.
//!
//! All keys are stored before, and the load only replaces them. So after each kill every key must be
//! there with the right value, and a marker that was stored just before the kill must have its last
//! value. Which of two values a key of the load has is not checked: those of `tests/restart` keep books.

use std::fmt::Display;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt, SeedableRng};
use rustix::process::{Pid, Signal, kill_process};
use serde::Serialize;

use super::{Case, Flags, KEY_LEN, Running};
use crate::client::Client;
use crate::cpu;
use crate::load::{Engine, Measured, Requests};
use crate::process::MemoryFile;
use crate::report::{self, ProgressLine};
use crate::workload::{KeyFormat, Sampler, Values};

/// The longest that a server serves before it is killed.
const LIFE_MAX: Duration = Duration::from_millis(1000);
/// The share of the load's requests that store.
const SETS: f64 = 0.5;
/// How long a stretch of load lasts whose outcome counts as a whole; what a broken one has read is
/// not looked at.
const STRETCH: Duration = Duration::from_millis(20);

/// What a server logs that takes over from one that was killed.
const KILLED_BEFORE: &str = "after a process that was killed";

/// The outcome.
#[derive(Debug, Default, Serialize)]
struct Outcome {
    load_average: String,
    kills: u32,
    /// Requests that were answered before a kill.
    answered: u64,
    /// Of these, values that were stored.
    stored: u64,
    /// Wrong values before a kill.
    wrong_before: u64,
    /// After a kill: keys with the right value, without one, with a wrong one.
    right: u64,
    missing: u64,
    wrong: u64,
    /// Markers whose last acknowledged value was not there.
    markers_lost: u32,
    evictions: u64,
    /// Values that came from flash after a kill, and records there that were not what was written.
    from_flash: u64,
    damaged: u64,
    /// Items that were written to flash before a kill, as far as it was seen.
    written_to_flash: u64,
    first_answer_longest_s: f64,
    mended_starts: u32,
}

/// What the server has counted in a life.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    evictions: u64,
    written_to_flash: u64,
}

impl Seen {
    fn of(client: &mut Client) -> anyhow::Result<Seen> {
        let stats = client.stats()?;
        Ok(Seen {
            evictions: stats.number("evictions"),
            written_to_flash: stats.number("extstore_objects_written"),
        })
    }
}

impl Display for Outcome {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        writeln!(
            f,
            "{} kills under load (load average before: {}). {} requests were answered before them, of which \
             {} stored a value; {} values were wrong.",
            self.kills, self.load_average, self.answered, self.stored, self.wrong_before
        )?;
        writeln!(
            f,
            "After them {} values were right, {} missing, {} wrong; {} of {} markers lost; {} evictions. \
             {} starts said that a process was killed; the longest time to a first answer was {:.3} s.",
            self.right,
            self.missing,
            self.wrong,
            self.markers_lost,
            self.kills,
            self.evictions,
            self.mended_starts,
            self.first_answer_longest_s
        )?;
        if self.from_flash > 0 {
            writeln!(
                f,
                "{} of the values came from flash, {} records there were damaged; {} items were written to it.",
                self.from_flash, self.damaged, self.written_to_flash
            )?;
        }
        Ok(())
    }
}

/// Kills coua so often, and reads everything back after each time.
pub(super) fn run(flags: &Flags, kills: u32) -> anyhow::Result<()> {
    let program = flags.coua.path()?;
    let case = Case {
        flags,
        server: "coua",
        program: &program,
        flash: flags.flash.map(|_| MemoryFile::new(&flags.flash_folder)),
    };
    let file = MemoryFile::new(&flags.folder);
    let items = match (flags.items, flags.flash) {
        (Some(items), _) => items,
        // So few that nothing has to be evicted.
        (None, None) => case.items()? / 2,
        // More than memory holds.
        (None, Some(_)) => case.items()?.saturating_mul(9) / 4,
    };
    let load = Load {
        case: &case,
        keys: KeyFormat::new(KEY_LEN, u32::MAX)?,
        values: Arc::new(Values::new(flags.value_size)),
        items: items.max(1),
    };
    let mut outcome = Outcome {
        load_average: std::fs::read_to_string("/proc/loadavg")?.trim().to_owned(),
        ..Outcome::default()
    };
    let mut random = Xoshiro256PlusPlus::seed_from_u64(rand::random());
    let mut server = case.start(&file)?;
    server.first_answer(0)?;
    case.drive(
        &server,
        |engine| engine.finish(),
        || Requests::filling(load.keys, load.values.clone(), 0..load.items),
    )?;
    let mut line = ProgressLine::new();
    for kill in 1..=kills {
        line.show(format_args!("kill {kill} of {kills}"));
        let life = LIFE_MAX.mul_f64(random.random_range(0.02..1.0));
        let (answered, last, seen) = load.until_killed(&server, life, kill)?;
        outcome.evictions += seen.evictions;
        outcome.written_to_flash += seen.written_to_flash;
        outcome.answered += answered.replies;
        outcome.stored += answered.stored;
        outcome.wrong_before += answered.wrong;
        let (_, said) = server.end(Signal::KILL)?;
        ensure!(!said.contains("panicked"), "{said}");
        outcome.mended_starts += u32::from(said.contains(KILLED_BEFORE));
        server = case.start(&file)?;
        let (first_answer, mut client) = server.first_answer(0)?;
        let longest = &mut outcome.first_answer_longest_s;
        *longest = longest.max(first_answer.as_secs_f64());
        outcome.markers_lost += u32::from(read_marker(&mut client)? != last);
        let found = case.drive(
            &server,
            |engine| engine.finish(),
            || Requests::new(load.keys, load.values.clone(), load.all(), 32, 0.0),
        )?;
        let stats = client.stats()?;
        outcome.from_flash += stats.number("get_extstore");
        outcome.damaged += stats.number("badcrc_from_extstore");
        outcome.right += found.hits;
        outcome.missing += found.misses;
        outcome.wrong += found.wrong;
        outcome.kills = kill;
        ensure!(
            outcome.evictions > 0
                || flags.flash.is_some()
                || found.hits + found.misses + found.wrong == u64::from(load.items),
            "not all keys were asked for"
        );
    }
    drop(line);
    let (_, said) = server.end(Signal::TERM)?;
    outcome.mended_starts += u32::from(said.contains(KILLED_BEFORE));
    report::show(&outcome, flags.json)?;
    let wrong = outcome.wrong + outcome.wrong_before;
    ensure!(wrong == 0, "{wrong} values are wrong");
    ensure!(
        outcome.markers_lost == 0,
        "{} acknowledged values are lost",
        outcome.markers_lost
    );
    if flags.flash.is_some() {
        // A set over a slot on flash drops it unread, and now and then that is another key's.
        ensure!(
            outcome.missing * 100 <= outcome.right || outcome.evictions > 0,
            "{} values are missing, of {} that are there",
            outcome.missing,
            outcome.right
        );
        ensure!(
            outcome.from_flash > 0,
            "nothing came from flash: give more --items"
        );
        return Ok(());
    }
    ensure!(
        outcome.missing == 0 || outcome.evictions > 0,
        "{} values are missing though nothing was evicted",
        outcome.missing
    );
    Ok(())
}

/// What the load asks for.
struct Load<'c> {
    case: &'c Case<'c>,
    keys: KeyFormat,
    values: Arc<Values>,
    items: u32,
}

impl Load<'_> {
    fn all(&self) -> Sampler {
        Sampler::Sequence(0..self.items)
    }

    /// Loads a server until it is killed, after so long. Returns what was answered, the last marker that
    /// was acknowledged, and what the server has counted.
    fn until_killed(
        &self,
        server: &Running,
        life: Duration,
        kill: u32,
    ) -> anyhow::Result<(Measured, u64, Seen)> {
        let requests = || {
            let sampler = Sampler::draws(0..self.items, u64::MAX, kill.into());
            Requests::new(self.keys, self.values.clone(), sampler, 1, SETS)
        };
        let pid = Pid::from_child(&server.child);
        std::thread::scope(|scope| {
            let killer = scope.spawn(move || mark_and_kill(server, pid, life, kill));
            let measured = self.load_until_it_breaks(server, requests);
            let (marker, seen) = killer.join().expect("the killer does not panic")?;
            Ok((measured?, marker, seen))
        })
    }

    fn load_until_it_breaks(
        &self,
        server: &Running,
        requests: impl FnOnce() -> Requests,
    ) -> anyhow::Result<Measured> {
        const CONNECTIONS: usize = 8;
        const DEPTH: usize = 8;
        cpu::pinned(self.case.flags.cores.load_core, || {
            let requests = requests();
            let mut all = Measured::new();
            let mut engine = Engine::connect(&server.target, CONNECTIONS, DEPTH, &requests)?;
            let began = Instant::now();
            loop {
                match engine.run(STRETCH) {
                    Ok(measured) => all.add(&measured),
                    Err(crate::load::Error::Io(_)) => return Ok(all),
                    Err(other) => return Err(other.into()),
                }
                ensure!(began.elapsed() < 60 * LIFE_MAX, "it is not killed");
            }
        })?
    }
}

const MARKER: &str = "the-marker";

/// Stores one marker after the other, and kills the server at the moment after an answer.
fn mark_and_kill(
    server: &Running,
    pid: Pid,
    life: Duration,
    kill: u32,
) -> anyhow::Result<(u64, Seen)> {
    let mut client = Client::connect(&server.target)?;
    let (began, mut line) = (Instant::now(), Vec::new());
    let mut marker = u64::from(kill) << 32;
    let mut seen = Seen::of(&mut client)?;
    loop {
        marker += 1;
        client.send(format!("set {MARKER} 0 0 20\r\n{marker:020}\r\n").as_bytes())?;
        client.read_line(&mut line)?;
        ensure!(line == b"STORED", "{}", String::from_utf8_lossy(&line));
        if began.elapsed() >= life {
            kill_process(pid, Signal::KILL)?;
            return Ok((marker, seen));
        }
        if marker.is_multiple_of(256) {
            seen = Seen::of(&mut client)?;
        }
    }
}

/// The marker that is there; 0 if there is none.
fn read_marker(client: &mut Client) -> anyhow::Result<u64> {
    client.send(format!("get {MARKER}\r\n").as_bytes())?;
    let mut marker = 0;
    while let Some(found) = client.read_value()? {
        let text = std::str::from_utf8(&found.value)?;
        marker = text.parse().context("a marker is a number")?;
    }
    Ok(marker)
}
