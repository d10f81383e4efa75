//! `coua-bench restart`: how soon a server answers again, with what it held before.
//!
//! A server is filled, ended by a signal, and started again with the same file (`-e`). The first
//! answer is that to a get of an item from before; its time counts from the start of the process. A
//! short load after it shows whether answers are slow at first. memcached takes items over after
//! SIGUSR1 only, and keeps what it needs for that in a second file.
//!
//! With `--kills` coua is killed under load instead, again and again, and all is read back each time.

mod kills;

use std::fmt::Display;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use clap::Args;
use rustix::process::{Pid, Signal, kill_process};
use serde::Serialize;

use super::programs::{CoreFlags, CouaFlag, OptionalMemcachedFlag};
use crate::client::Client;
use crate::cpu;
use crate::guard;
use crate::load::{Engine, Measured, Requests};
use crate::process::{self, MemoryFile, free_address};
use crate::report::{self, Table, require};
use crate::target::Target;
use crate::workload::{KeyFormat, Sampler, Values};

/// Measures how soon a server that is ended and started again answers, and with how many items
#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Flags {
    #[command(flatten)]
    coua: CouaFlag,
    #[command(flatten)]
    memcached: OptionalMemcachedFlag,
    /// -m, in MiB; the machine needs so much memory and a tenth more
    #[arg(long, default_value_t = 1024, value_parser = clap::value_parser!(u64).range(64..=1 << 22))]
    memory: u64,
    /// Items to store [default: as many as fill two thirds of -m, with 60 bytes beside each]
    #[arg(long)]
    items: Option<u32>,
    /// Bytes per value
    #[arg(long, default_value_t = 100)]
    value_size: usize,
    /// Kill coua so often under load, and read everything back after each time; nothing is measured. The
    /// exit status is 1 if a value is wrong, or one that was stored is missing
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    kills: Option<u32>,
    /// With --kills: items also lie on flash, in a file of so many MiB; there are half as many items again as
    /// memory holds
    #[arg(long, value_name = "MIB", requires = "kills", value_parser = clap::value_parser!(u64).range(64..=1 << 22))]
    flash: Option<u64>,
    /// Folder for the file of --flash
    #[arg(long, value_name = "FOLDER", default_value = "/var/tmp")]
    flash_folder: PathBuf,
    /// Seconds of load after the first answer
    #[arg(long, default_value_t = 2.0)]
    seconds: f64,
    /// Folder for the file, in memory
    #[arg(long, value_name = "FOLDER", default_value = "/dev/shm")]
    folder: PathBuf,
    #[command(flatten)]
    cores: CoreFlags,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "\
Examples:
  coua and memcached with 1 GiB of items
    coua-bench restart
  coua alone, with 10 GiB
    coua-bench restart --memory 10240 --no-memcached
  A hundred kills
    coua-bench restart --kills 100 --memory 256
  With items on flash
    coua-bench restart --kills 100 --memory 64 --flash 512 --value-size 1000";

/// Bytes of a key.
const KEY_LEN: usize = 16;
/// Bytes of memory that an item takes beside its key and value, at most.
const OVERHEAD_LEN: u64 = 60;
/// Time between the end of a server and its next start.
const PAUSE: Duration = Duration::from_secs(3);
/// How long a server may take from start to first answer, or from signal to end.
const PATIENCE: Duration = Duration::from_secs(300);

/// The outcome.
#[derive(Debug, Serialize)]
struct Outcome {
    memory: u64,
    value_size: usize,
    load_average: String,
    rows: Vec<Row>,
}

/// One restart.
#[derive(Debug, Serialize)]
struct Row {
    server: &'static str,
    signal: &'static str,
    items_before: u64,
    items_after: u64,
    /// From the signal to the end of the process.
    end_s: f64,
    /// From the start of the process to its first answer.
    first_answer_s: f64,
    /// What the server logs about its own start.
    said: String,
    /// Gets a second in the load after it.
    gets_per_second: f64,
    wrong: u64,
    misses: u64,
    p99_us: f64,
    longest_us: f64,
    /// The longest answer of as much load again after that, when the server is warm.
    longest_later_us: f64,
}

impl Display for Outcome {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        writeln!(
            f,
            "-m {} with values of {} bytes. Load average before: {}.\n",
            self.memory, self.value_size, self.load_average
        )?;
        let mut table = Table::new([
            "",
            "signal",
            "items before",
            "items after",
            "end, s",
            "first answer, s",
            "gets/s",
            "p99, us",
            "longest, us",
            "longest later, us",
            "misses",
            "wrong",
        ]);
        for row in &self.rows {
            table.row([
                row.server.to_owned(),
                row.signal.to_owned(),
                row.items_before.to_string(),
                row.items_after.to_string(),
                format!("{:.3}", row.end_s),
                format!("{:.3}", row.first_answer_s),
                format!("{:.0}", row.gets_per_second),
                format!("{:.0}", row.p99_us),
                format!("{:.0}", row.longest_us),
                format!("{:.0}", row.longest_later_us),
                row.misses.to_string(),
                row.wrong.to_string(),
            ]);
        }
        writeln!(f, "{table}")?;
        for row in self.rows.iter().filter(|row| !row.said.is_empty()) {
            writeln!(f, "{} after {}: {}", row.server, row.signal, row.said)?;
        }
        Ok(())
    }
}

/// Measures every restart and prints what came of it.
pub(crate) fn run(flags: &Flags) -> anyhow::Result<()> {
    require!(
        flags.seconds.is_finite() && flags.seconds > 0.0 && flags.seconds <= 3600.0,
        "--seconds takes a number above 0, up to 3600"
    );
    if let Some(kills) = flags.kills {
        return kills::run(flags, kills);
    }
    let mut outcome = Outcome {
        memory: flags.memory,
        value_size: flags.value_size,
        load_average: std::fs::read_to_string("/proc/loadavg")?.trim().to_owned(),
        rows: Vec::new(),
    };
    let coua = flags.coua.path()?;
    let mut cases = vec![
        ("coua", coua.clone(), "SIGKILL", Signal::KILL),
        ("coua", coua, "SIGUSR1", Signal::USR1),
    ];
    if let Some(memcached) = flags.memcached.path() {
        cases.push(("memcached", memcached, "SIGUSR1", Signal::USR1));
    }
    for (server, program, name, signal) in cases {
        report::progress(format_args!("{server}, {name}"));
        outcome.rows.push(
            Case {
                flags,
                server,
                program: &program,
                flash: None,
            }
            .measure(name, signal)?,
        );
    }
    Ok(report::show(&outcome, flags.json)?)
}

/// A server to measure.
struct Case<'a> {
    flags: &'a Flags,
    server: &'static str,
    program: &'a Path,
    /// The file for items on flash.
    flash: Option<MemoryFile>,
}

/// A server that runs; it is killed when this is dropped.
struct Running {
    child: Child,
    target: Target,
    began: Instant,
    said: Option<JoinHandle<String>>,
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Case<'_> {
    fn measure(&self, name: &'static str, signal: Signal) -> anyhow::Result<Row> {
        let file = MemoryFile::new(&self.flags.folder);
        let keys = KeyFormat::new(KEY_LEN, u32::MAX)?;
        let values = Arc::new(Values::new(self.flags.value_size));
        let items = self.items()?;
        let before = self.start(&file)?;
        let mut client = before.first_answer(0)?.1;
        self.drive(
            &before,
            |engine| engine.finish(),
            || Requests::filling(keys, values.clone(), 0..items),
        )?;
        let items_before = client.stats()?.number("curr_items");
        drop(client);
        let (end_s, _) = before.end(signal)?;

        // memcached may begin empty if it is started again at once.
        std::thread::sleep(PAUSE);
        let after = self.start(&file)?;
        let (first_answer, mut client) = after.first_answer(items - 1)?;
        let items_after = client.stats()?.number("curr_items");
        let seconds = Duration::from_secs_f64(self.flags.seconds);
        let gets = |seed| {
            let values = values.clone();
            move || {
                let sampler = Sampler::draws(0..items, u64::MAX, seed);
                Requests::new(keys, values.clone(), sampler, 1, 0.0)
            }
        };
        let first = self.drive(&after, |engine| engine.run(seconds), gets(5))?;
        let later = self.drive(&after, |engine| engine.run(seconds), gets(6))?;
        drop(client);
        let (_, said) = after.end(Signal::TERM)?;
        let line = said.lines().find_map(|line| {
            let coua = line.split_once("the cache ").map(|(_, rest)| rest);
            coua.or_else(|| line.strip_prefix("[restart] "))
        });
        Ok(Row {
            server: self.server,
            signal: name,
            items_before,
            items_after,
            end_s: end_s.as_secs_f64(),
            first_answer_s: first_answer.as_secs_f64(),
            said: line.unwrap_or_default().to_owned(),
            gets_per_second: first.gets as f64 / first.elapsed.as_secs_f64(),
            wrong: first.wrong + later.wrong,
            misses: first.misses + later.misses,
            p99_us: first.latency_ns.value_at_quantile(0.99) as f64 / 1e3,
            longest_us: first.latency_ns.max() as f64 / 1e3,
            longest_later_us: later.latency_ns.max() as f64 / 1e3,
        })
    }

    fn items(&self) -> anyhow::Result<u32> {
        let each = (KEY_LEN + self.flags.value_size) as u64 + OVERHEAD_LEN;
        let filling = (self.flags.memory << 20) / 3 * 2 / each;
        let items = self.flags.items.map_or(filling, u64::from);
        u32::try_from(items.max(1)).context("more items than there are numbers: give --items")
    }

    fn start(&self, file: &MemoryFile) -> anyhow::Result<Running> {
        let address = free_address()?;
        let mut more = vec!["-e".to_owned(), file.path().display().to_string()];
        if let (Some(mib), Some(flash)) = (self.flags.flash, &self.flash) {
            let path = flash.path().display();
            more.extend([
                "-o".to_owned(),
                format!("ext_path={path}:{mib}m,ext_item_size=1"),
            ]);
        }
        let flags = process::Flags {
            memory: self.flags.memory,
            item_size_max: None,
            more,
        };
        let arguments = flags.arguments(address);
        let mut command = guard::command(self.program)?;
        command
            .args(arguments)
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        let began = Instant::now();
        let mut child = cpu::pinned(self.flags.cores.server_core, || command.spawn())?
            .with_context(|| format!("{:?} cannot be started", self.program))?;
        let pipe = child.stderr.take().context("standard error is a pipe")?;
        let said = std::thread::spawn(move || {
            let lines = BufReader::new(pipe).lines().map_while(Result::ok);
            lines.collect::<Vec<_>>().join("\n")
        });
        let target = Target::Tcp(address);
        Ok(Running {
            child,
            target,
            began,
            said: Some(said),
        })
    }

    fn drive(
        &self,
        server: &Running,
        load: impl FnOnce(&mut Engine) -> Result<Measured, crate::load::Error>,
        requests: impl FnOnce() -> Requests,
    ) -> anyhow::Result<Measured> {
        const CONNECTIONS: usize = 8;
        const DEPTH: usize = 4;
        let measured = cpu::pinned(self.flags.cores.load_core, || {
            let requests = requests();
            load(&mut Engine::connect(
                &server.target,
                CONNECTIONS,
                DEPTH,
                &requests,
            )?)
        })??;
        Ok(measured)
    }
}

impl Running {
    /// Waits until a get is answered; returns how long after the start that was.
    fn first_answer(&self, item: u32) -> anyhow::Result<(Duration, Client)> {
        let mut key = vec![0; KEY_LEN];
        KeyFormat::new(KEY_LEN, u32::MAX)?.write(item, &mut key);
        let request = [b"get ", &key[..], b"\r\n"].concat();
        loop {
            if let Ok(mut client) = Client::connect(&self.target) {
                client.send(&request)?;
                while client.read_value()?.is_some() {}
                return Ok((self.began.elapsed(), client));
            }
            ensure!(self.began.elapsed() < PATIENCE, "no answer in {PATIENCE:?}");
            std::thread::sleep(Duration::from_micros(500));
        }
    }

    /// Ends the server by this signal; returns how long that took, and all that it has logged.
    fn end(mut self, signal: Signal) -> anyhow::Result<(Duration, String)> {
        let sent = Instant::now();
        kill_process(Pid::from_child(&self.child), signal)?;
        while self.child.try_wait()?.is_none() {
            ensure!(sent.elapsed() < PATIENCE, "no end in {PATIENCE:?}");
            std::thread::sleep(Duration::from_micros(500));
        }
        let took = sent.elapsed();
        let said = self.said.take().and_then(|reader| reader.join().ok());
        Ok((took, said.unwrap_or_default()))
    }
}
