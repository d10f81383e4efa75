//! Stores items at a given rate, reads them back, and checks them.

use std::ops::Range;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};

use super::sides::Running;
use crate::client::Client;
use crate::report::ProgressLine;
use crate::workload::{KeyFormat, Values};

/// Items that are sent before their replies are read.
const WINDOW: u32 = 64;

/// Nothing more is written for so long: then it is settled. At most so long is waited for that.
const SILENCE: Duration = Duration::from_millis(1500);
const PATIENCE: Duration = Duration::from_secs(120);

/// Keys and values.
pub(super) struct Items<'v> {
    pub(super) keys: KeyFormat,
    pub(super) values: &'v Values,
}

impl Items<'_> {
    /// Stores the items of a range, so many a second at most; returns how many were refused.
    pub(super) fn fill(
        &self,
        client: &mut Client,
        range: Range<u32>,
        rate: u32,
    ) -> anyhow::Result<u64> {
        let (began, mut line) = (Instant::now(), Vec::new());
        let mut refused = 0;
        let mut progress = ProgressLine::new();
        for first in range.clone().step_by(WINDOW as usize) {
            let numbers = first..range.end.min(first.saturating_add(WINDOW));
            let mut request = Vec::new();
            for number in numbers.clone() {
                self.append_set(number, &mut request);
            }
            client.send(&request)?;
            for _ in numbers {
                client.read_line(&mut line)?;
                refused += u64::from(line != b"STORED");
            }
            progress.show(format_args!("{first} items stored"));
            let due = f64::from(first - range.start) / f64::from(rate);
            let due = Duration::from_secs_f64(due);
            thread::sleep(due.saturating_sub(began.elapsed()));
        }
        Ok(refused)
    }

    /// Asks for the items of a range, many at a time; returns how many are there.
    pub(super) fn found(&self, client: &mut Client, range: Range<u32>) -> anyhow::Result<u64> {
        let mut found = 0;
        for first in range.clone().step_by(WINDOW as usize) {
            let numbers: Vec<u32> = (first..range.end.min(first.saturating_add(WINDOW))).collect();
            found += self.get(client, &numbers)?.iter().filter(|it| **it).count() as u64;
        }
        Ok(found)
    }

    /// Asks for items at once; says which are there. Their values are compared.
    pub(super) fn get(&self, client: &mut Client, numbers: &[u32]) -> anyhow::Result<Vec<bool>> {
        let mut request = b"get".to_vec();
        for &number in numbers {
            request.push(b' ');
            self.keys.append(number, &mut request);
        }
        request.extend_from_slice(b"\r\n");
        client.send(&request)?;
        let mut found = vec![false; numbers.len()];
        let mut at = 0;
        while let Some(value) = client.read_value()? {
            let here = numbers[at..]
                .iter()
                .position(|&it| self.keys.is(it, &value.key));
            at += here.context("a value that was not asked for")?;
            ensure!(value.value == self.values.of(numbers[at]), "a wrong value");
            found[at] = true;
            at += 1;
        }
        Ok(found)
    }

    /// Appends a set of an item.
    pub(super) fn append_set(&self, number: u32, request: &mut Vec<u8>) {
        let value = self.values.of(number);
        request.extend_from_slice(b"set ");
        self.keys.append(number, request);
        request.extend_from_slice(format!(" 0 0 {}\r\n", value.len()).as_bytes());
        request.extend_from_slice(value);
        request.extend_from_slice(b"\r\n");
    }
}

/// Waits until nothing more goes to flash.
pub(super) fn settle(running: &Running) -> anyhow::Result<()> {
    let mut client = running.client()?;
    let began = Instant::now();
    let (mut before, mut since) = (None, Instant::now());
    loop {
        let written = client.stats()?.number("extstore_objects_written");
        if before.replace(written) != Some(written) {
            since = Instant::now();
        } else if since.elapsed() > SILENCE {
            return Ok(());
        }
        ensure!(began.elapsed() < PATIENCE, "it writes to flash for ever");
        thread::sleep(Duration::from_millis(100));
    }
}
