//! One of many users of a server. They behave as a web application does, and now and then badly.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt, SeedableRng};

use super::{Counts, Plan, value};
use crate::client::{Client, Error};

/// Requests after which a user adds its latencies to the shared counts.
const BATCH: usize = 200;

/// How long a server may refuse connections before a user gives up.
const PATIENCE: Duration = Duration::from_secs(10);

/// A user.
pub(super) struct User<'p> {
    plan: &'p Plan,
    random: Xoshiro256PlusPlus,
    /// A part of each value, so that no two stored values are the same.
    stamp: u64,
    /// The name of this user's own counter, and its last value.
    counter: (String, Option<u64>),
    took: Vec<u64>,
    gets: u64,
    hits: u64,
    line: Vec<u8>,
    request: Vec<u8>,
}

impl<'p> User<'p> {
    pub(super) fn new(number: usize, plan: &'p Plan) -> User<'p> {
        User {
            plan,
            random: Xoshiro256PlusPlus::seed_from_u64(number as u64),
            stamp: (number as u64) << 48,
            counter: (format!("counter{number}"), None),
            took: Vec::with_capacity(BATCH),
            gets: 0,
            hits: 0,
            line: Vec::new(),
            request: Vec::new(),
        }
    }

    /// Uses the server until told to stop; an error says what was wrong.
    pub(super) fn use_until(
        mut self,
        stop: &AtomicBool,
        counts: &Mutex<Counts>,
    ) -> Result<(), String> {
        while !stop.load(Relaxed) {
            let mut client = self.connect().map_err(|error| error.to_string())?;
            for _ in 0..self.random.random_range(1..5000) {
                if stop.load(Relaxed) {
                    return Ok(());
                }
                let begun = Instant::now();
                self.ask(&mut client)?;
                let took = begun.elapsed().as_micros();
                self.took.push(u64::try_from(took).unwrap_or(u64::MAX));
                if self.took.len() >= BATCH {
                    self.tell(counts);
                }
            }
            self.leave(client);
        }
        Ok(())
    }

    fn connect(&self) -> std::io::Result<Client> {
        let begun = Instant::now();
        loop {
            match Client::connect(&self.plan.target) {
                Err(_) if begun.elapsed() < PATIENCE => {
                    std::thread::sleep(Duration::from_millis(10));
                }
                connected => return connected,
            }
        }
    }

    fn tell(&mut self, counts: &Mutex<Counts>) {
        let mut counts = counts.lock().unwrap_or_else(PoisonError::into_inner);
        for took in self.took.drain(..) {
            counts.latency.saturating_record(took);
        }
        counts.gets += std::mem::take(&mut self.gets);
        counts.hits += std::mem::take(&mut self.hits);
    }

    /// Disconnects in good order, or in the middle of a request.
    fn leave(&mut self, mut client: Client) {
        let last: &[u8] = match self.random.random_range(0..4) {
            0 => b"set half 0 0 100000\r\nabc",
            1 => b"get not-the-who",
            2 => b"quit\r\n",
            _ => b"",
        };
        // The server may be gone too.
        let _ = client.send(last);
    }

    fn ask(&mut self, client: &mut Client) -> Result<(), String> {
        let done = match self.random.random_range(0..100) {
            0..55 => self.get(client, 1),
            55..60 => self.get(client, 20),
            60..90 => self.store(client),
            90..93 => self.delete(client),
            93..96 => self.touch(client),
            _ => self.count(client),
        };
        done.map_err(|error| match error {
            Failure::Wrong(what) => what,
            Failure::Client(error) => error.to_string(),
        })
    }

    /// Draws a key: a few are asked for often, and each of the others now and then.
    fn key(&mut self) -> u32 {
        let spread: f64 = self.random.random();
        let share = spread.powi(4) * f64::from(self.plan.keys);
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "below the number of keys"
        )]
        let key = share as u32;
        key
    }

    fn get(&mut self, client: &mut Client, keys: usize) -> Result<(), Failure> {
        let keys: Vec<u32> = (0..keys).map(|_| self.key()).collect();
        let touches = self.random.random_range(0..20) == 0;
        self.request.clear();
        self.request.extend(match touches {
            true => &b"gat 300"[..],
            false => b"get",
        });
        for key in &keys {
            self.request.extend(format!(" key{key}").bytes());
        }
        self.request.extend(b"\r\n");
        client.send(&self.request)?;
        self.gets += keys.len() as u64;
        let mut asked = keys.iter();
        while let Some(found) = client.read_value()? {
            let name = found.key.as_slice();
            let key = asked.find(|key| format!("key{key}").as_bytes() == name);
            let Some(&key) = key else {
                let shown = name.escape_ascii();
                return Err(Failure::Wrong(format!("{shown} was not asked for here")));
            };
            if let Some(fault) = value::fault(key, &found.value) {
                return Err(Failure::Wrong(fault));
            }
            self.hits += 1;
        }
        Ok(())
    }

    fn store(&mut self, client: &mut Client) -> Result<(), Failure> {
        let key = self.key();
        let len = match self.random.random_range(0..1000) {
            0 => self.random.random_range(200_000..1_000_000),
            1..20 => self.random.random_range(5_000..100_000),
            _ => self.random.random_range(24..800),
        };
        let expiry = match self.random.random_range(0..4) {
            0 => self.random.random_range(1..30),
            1 => self.random.random_range(60..600),
            _ => 0,
        };
        let command = match self.random.random_range(0..10) {
            0 => "add",
            1 => "replace",
            _ => "set",
        };
        self.stamp += 1;
        let mut body = Vec::with_capacity(len);
        value::write(key, self.stamp, len, &mut body);
        self.request.clear();
        let line = format!("{command} key{key} 0 {expiry} {}\r\n", body.len());
        self.request.extend(line.bytes());
        self.request.extend(&body);
        self.request.extend(b"\r\n");
        client.send(&self.request)?;
        self.expect(client, &[b"STORED", b"NOT_STORED"])
    }

    fn delete(&mut self, client: &mut Client) -> Result<(), Failure> {
        let key = self.key();
        client.send(format!("delete key{key}\r\n").as_bytes())?;
        self.expect(client, &[b"DELETED", b"NOT_FOUND"])
    }

    fn touch(&mut self, client: &mut Client) -> Result<(), Failure> {
        let (key, expiry) = (self.key(), self.random.random_range(0..100));
        client.send(format!("touch key{key} {expiry}\r\n").as_bytes())?;
        self.expect(client, &[b"TOUCHED", b"NOT_FOUND"])
    }

    /// Increments this user's own counter; it goes up by one, unless it has been evicted.
    fn count(&mut self, client: &mut Client) -> Result<(), Failure> {
        let (name, last) = self.counter.clone();
        client.send(format!("incr {name} 1\r\n").as_bytes())?;
        client.read_line(&mut self.line)?;
        if self.line == b"NOT_FOUND" {
            client.send(format!("set {name} 0 0 1\r\n0\r\n").as_bytes())?;
            self.counter.1 = Some(0);
            return self.expect(client, &[b"STORED"]);
        }
        let text = String::from_utf8_lossy(&self.line).into_owned();
        let now: Option<u64> = text.parse().ok();
        self.counter.1 = now;
        match (last, now) {
            (Some(last), Some(now)) if now == last + 1 => Ok(()),
            // A counter that an earlier soak left behind.
            (None, Some(_)) => Ok(()),
            _ => Err(Failure::Wrong(format!("{name} was {last:?}, now {text}"))),
        }
    }

    fn expect(&mut self, client: &mut Client, lines: &[&[u8]]) -> Result<(), Failure> {
        client.read_line(&mut self.line)?;
        match lines.contains(&self.line.as_slice()) {
            true => Ok(()),
            false => Err(Failure::Client(Error::unexpected(&self.line))),
        }
    }
}

/// Why a request failed.
enum Failure {
    Wrong(String),
    Client(Error),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        Failure::Client(error)
    }
}
