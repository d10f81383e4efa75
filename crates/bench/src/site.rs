//! A small web site: its pages show values that come from a cache, or from a database if the cache
//! does not have them.
//!
//! For each page, a thread draws keys, asks the cache for each, reads what is missing from the
//! database, stores that in the cache, and shows a table. A value that does not belong to its key
//! makes the page an error. If the cache goes away, pages become slower, and nothing else.
//!
//! # Concurrency
//! Each thread serves one connection at a time, and one page on each connection. It has its own
//! connection to the cache, and draws keys of its own.

mod cache;
mod database;
mod http;

use std::io;
use std::net::TcpListener;
use std::sync::Mutex;
use std::time::Duration;

use clap::Args;
use rand::SeedableRng;
use rand::rngs::Xoshiro256PlusPlus;
use serde::{Deserialize, Serialize};

use crate::target::Target;
use crate::workload::{Values, below};
use cache::{Cache, key};
use database::Database;
use http::Status;

/// What a page is made of.
#[derive(Args, Clone, Debug, Serialize)]
pub(crate) struct Plan {
    /// Rows in the database, one per key
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u32).range(1..=100_000_000))]
    pub(crate) items: u32,
    /// Keys per page, drawn uniformly
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) queries: u32,
    /// Bytes per value
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=65_536))]
    pub(crate) value_size: u32,
    /// Get all keys of a page by one multi-get, and all missing ones by one query, rather than one
    /// after the other
    #[arg(long)]
    pub(crate) batch: bool,
    /// Microseconds added to each query of the database. It is embedded in this process and answers
    /// within microseconds; a database behind a network takes hundreds
    #[arg(long, value_name = "MICROSECONDS", default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=1_000_000))]
    pub(crate) database_delay: u32,
}

impl Plan {
    /// The same plan as flags on a command line.
    pub(crate) fn arguments(&self) -> Vec<String> {
        let Plan { items, queries, .. } = self;
        let (size, delay) = (self.value_size, self.database_delay);
        let batch = if self.batch { " --batch" } else { "" };
        let text = format!(
            "--items {items} --queries {queries} --value-size {size} --database-delay {delay}{batch}"
        );
        text.split(' ').map(str::to_owned).collect()
    }
}

/// What a site has done so far, as `/stats` shows it.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize)]
pub(crate) struct Counters {
    /// Pages shown, right or wrong.
    pub(crate) pages: u64,
    /// Values that came from the cache.
    pub(crate) cache_hits: u64,
    /// Values that came from the database.
    pub(crate) database_reads: u64,
    /// Connections to the cache that broke or could not be made.
    pub(crate) cache_errors: u64,
    /// Values that were not those of their keys.
    pub(crate) wrong_values: u64,
}

impl Counters {
    /// What was done since `before`.
    pub(crate) fn since(&self, before: &Counters) -> Counters {
        Counters {
            pages: self.pages - before.pages,
            cache_hits: self.cache_hits - before.cache_hits,
            database_reads: self.database_reads - before.database_reads,
            cache_errors: self.cache_errors - before.cache_errors,
            wrong_values: self.wrong_values - before.wrong_values,
        }
    }

    fn add(&mut self, other: &Counters) {
        self.pages += other.pages;
        self.cache_hits += other.cache_hits;
        self.database_reads += other.database_reads;
        self.cache_errors += other.cache_errors;
        self.wrong_values += other.wrong_values;
    }
}

/// A site that is ready to serve.
pub(crate) struct Site {
    plan: Plan,
    cache: Option<Target>,
    values: Values,
    database: Database,
    counters: Mutex<Counters>,
}

impl Site {
    /// Fills the database, and the cache too if it is to be `warm`.
    pub(crate) fn open(plan: Plan, cache: Option<Target>, warm: bool) -> anyhow::Result<Site> {
        let values = Values::new(plan.value_size as usize);
        let delay = Duration::from_micros(plan.database_delay.into());
        let site = Site {
            database: Database::fill(plan.items, &values, delay)?,
            plan,
            cache,
            values,
            counters: Mutex::default(),
        };
        if warm {
            let mut cache = Cache::new(site.cache.clone());
            cache.connect();
            cache.set((0..site.plan.items).map(|number| (number, site.values.of(number))));
            anyhow::ensure!(cache.take_errors() == 0, "--warm: the cache takes no items");
        }
        Ok(site)
    }

    /// Serves with `threads` threads until the listener fails.
    pub(crate) fn serve(&self, listener: &TcpListener, threads: u32) -> io::Result<()> {
        std::thread::scope(|scope| {
            let others = 1..threads;
            for number in others {
                scope.spawn(move || Worker::new(self, number).serve(listener));
            }
            Worker::new(self, 0).serve(listener)
        })
    }

    fn counters(&self) -> std::sync::MutexGuard<'_, Counters> {
        self.counters
            .lock()
            .unwrap_or_else(|error| error.into_inner())
    }
}

/// One thread of a site.
struct Worker<'a> {
    site: &'a Site,
    cache: Cache,
    random: Xoshiro256PlusPlus,
}

impl<'a> Worker<'a> {
    fn new(site: &'a Site, number: u32) -> Worker<'a> {
        Worker {
            site,
            cache: Cache::new(site.cache.clone()),
            random: Xoshiro256PlusPlus::seed_from_u64(number.into()),
        }
    }

    fn serve(&mut self, listener: &TcpListener) -> io::Result<()> {
        loop {
            let (stream, _) = listener.accept()?;
            // A client that goes away, or is silent for too long, gets no answer.
            let _ = http::answer(stream, |path| self.answer(path));
        }
    }

    fn answer(&mut self, path: &str) -> (Status, Vec<u8>) {
        match path {
            "/" => self.page(),
            "/stats" => match serde_json::to_vec(&*self.site.counters()) {
                Ok(text) => (Status::Ok, text),
                Err(error) => (Status::Failed, error.to_string().into_bytes()),
            },
            _ => (Status::NotFound, b"there is / and /stats\n".to_vec()),
        }
    }

    fn page(&mut self) -> (Status, Vec<u8>) {
        let Plan { items, queries, .. } = self.site.plan;
        let numbers = (0..queries).map(|_| below(items, &mut self.random));
        let numbers: Vec<u32> = numbers.collect();
        let mut counters = Counters {
            pages: 1,
            ..Counters::default()
        };
        self.cache.connect();
        let outcome = self.values(&numbers, &mut counters);
        counters.cache_errors = self.cache.take_errors();
        let answer = match outcome {
            Ok(values) => self.check(&numbers, &values, &mut counters),
            Err(error) => (Status::Failed, format!("the database: {error}\n").into()),
        };
        self.site.counters().add(&counters);
        answer
    }

    /// The values of the keys, from the cache or else from the database; the cache gets what it
    /// lacked.
    fn values(
        &mut self,
        numbers: &[u32],
        counters: &mut Counters,
    ) -> Result<Vec<Vec<u8>>, redb::Error> {
        let step = if self.site.plan.batch {
            numbers.len()
        } else {
            1
        };
        let mut values = Vec::with_capacity(numbers.len());
        for numbers in numbers.chunks(step) {
            let found = self.cache.get(numbers);
            let absent = numbers
                .iter()
                .zip(&found)
                .filter(|(_, found)| found.is_none());
            let absent: Vec<u32> = absent.map(|(number, _)| *number).collect();
            let mut rows = Vec::new();
            if !absent.is_empty() {
                rows = self.site.database.read(&absent)?;
                let rows = rows.iter().map(Vec::as_slice);
                self.cache.set(absent.iter().copied().zip(rows));
            }
            counters.database_reads += absent.len() as u64;
            counters.cache_hits += (numbers.len() - absent.len()) as u64;
            let mut rows = rows.into_iter();
            values.extend(
                found
                    .into_iter()
                    .map(|found| found.or_else(|| rows.next()).unwrap_or_default()),
            );
        }
        Ok(values)
    }

    /// The page, unless a value is wrong.
    fn check(
        &self,
        numbers: &[u32],
        values: &[Vec<u8>],
        counters: &mut Counters,
    ) -> (Status, Vec<u8>) {
        let mut page = b"<!doctype html><title>Values</title><table>\n".to_vec();
        for (&number, value) in numbers.iter().zip(values) {
            if value != self.site.values.of(number) {
                counters.wrong_values += 1;
                continue;
            }
            for part in [&b"<tr><td>"[..], &key(number), b"<td>", value, b"\n"] {
                page.extend(part);
            }
        }
        page.extend(b"</table>\n");
        match counters.wrong_values {
            0 => (Status::Ok, page),
            wrong => (
                Status::Failed,
                format!("{wrong} values are not those of their keys\n").into(),
            ),
        }
    }
}
