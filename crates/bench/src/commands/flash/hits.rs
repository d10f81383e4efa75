//! Hits on streams of requests, with the same memory and a file of the same length.
//!
//! A key that is asked for and missed is stored. Some keys are asked for at once, as a page does; a second request for
//! a key among them that was missed counts as a hit, since one after the other it would be one.

use std::collections::HashSet;

use anyhow::Context;

use super::filling::{Items, settle};
use super::outcome::Hits;
use super::sides::{Programs, Running, Set, Side};
use super::{Flags, KEY_LEN};
use crate::commands::hits::trace_files;
use crate::hits::Misses;
use crate::hits::stream::{Request, Stream};
use crate::hits::synthetic::Recipe;
use crate::hits::trace;
use crate::report;
use crate::workload::{KeyFormat, Values};

/// Requests that are sent at once.
const WINDOW: usize = 16;

/// The shortest and the longest values. Longer ones would not go to flash everywhere.
const VALUE_MIN: u64 = 200;
const VALUE_MAX: u64 = 15_000;

/// Bytes that an item takes beside its value, roughly.
const OVERHEAD: u64 = 70;

/// How many times as long as memory flash is.
const FLASH_TIMES: u64 = 4;

/// The synthetic streams.
const SYNTHETIC: [&str; 4] = [
    "zipf 0.8",
    "zipf 0.99",
    "zipf 0.8, scans",
    "zipf 0.99, 10 % sets",
];

/// Replays all streams on both.
pub(super) fn measure(flags: &Flags, programs: &Programs) -> anyhow::Result<Vec<Hits>> {
    let mut rows = Vec::new();
    for path in trace_files(&flags.traces)? {
        let stream = trace::read(&path).with_context(|| path.display().to_string())?;
        rows.extend(on(flags, programs, &stream)?);
    }
    for recipe in Recipe::all() {
        if SYNTHETIC.contains(&recipe.name().as_str()) {
            let stream = recipe.stream(flags.keys, flags.requests);
            rows.extend(on(flags, programs, &stream)?);
        }
    }
    Ok(rows)
}

fn on(flags: &Flags, programs: &Programs, stream: &Stream) -> anyhow::Result<Vec<Hits>> {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a share above 0 of a length"
    )]
    let all = ((flags.memory << 20) as f64 * 100.0 / flags.memory_percent) as u64;
    let each = all / u64::from(stream.keys.max(1));
    let value_size = each.saturating_sub(OVERHEAD);
    if !(VALUE_MIN..=VALUE_MAX).contains(&value_size) {
        report::progress(format_args!(
            "{}: values would have {value_size} bytes, left out",
            stream.name
        ));
        return Ok(Vec::new());
    }
    let values = Values::new(usize::try_from(value_size)?);
    let items = Items {
        keys: KeyFormat::new(KEY_LEN, u32::MAX)?,
        values: &values,
    };
    let set = Set {
        memory: flags.memory,
        flash: flags.memory * FLASH_TIMES,
        workers: 1,
        cores: vec![flags.cores.server_core],
    };
    let mut rows = Vec::new();
    for side in Side::BOTH {
        report::progress(format_args!(
            "{}: {}, values of {value_size} bytes",
            side.name(),
            stream.name
        ));
        let running = Running::start(side, programs, flags, &set)?;
        let misses = replay(&items, &running, stream)?;
        settle(&running)?;
        let stats = running.stats()?;
        rows.push(Hits {
            side,
            stream: stream.name.clone(),
            keys: stream.keys,
            value_size,
            gets: misses.gets,
            misses: misses.misses,
            from_flash: stats.number("get_extstore"),
            bytes_written: running.bytes_written()?,
            resident_kib: running.resident_kib(),
        });
    }
    Ok(rows)
}

/// Replays a stream on one connection; counts gets after the warm-up.
fn replay(items: &Items<'_>, running: &Running, stream: &Stream) -> anyhow::Result<Misses> {
    let mut client = running.client()?;
    let mut misses = Misses::default();
    let mut line = Vec::new();
    for (nth, requests) in stream.requests.chunks(WINDOW).enumerate() {
        let is_counted = nth * WINDOW >= stream.warm_up;
        let asked: Vec<u32> = keys(requests, false);
        let found = match asked.as_slice() {
            [] => Vec::new(),
            asked => items.get(&mut client, asked)?,
        };
        // memcached answers a key that is asked for twice, twice: each key is asked for once here.
        let missed: Vec<u32> = asked
            .iter()
            .zip(&found)
            .filter(|it| !it.1)
            .map(|it| *it.0)
            .collect();
        if is_counted {
            misses.gets += requests.iter().filter(|request| !request.set).count() as u64;
            misses.misses += missed.len() as u64;
        }
        let mut request = Vec::new();
        let stored: Vec<u32> = missed.into_iter().chain(keys(requests, true)).collect();
        for &key in &stored {
            items.append_set(key, &mut request);
        }
        client.send(&request)?;
        for _ in stored {
            // One that is refused is missed the next time.
            client.read_line(&mut line)?;
        }
    }
    Ok(misses)
}

/// The distinct keys that are asked for, or that are set, in the order of their first requests.
fn keys(requests: &[Request], set: bool) -> Vec<u32> {
    let mut seen = HashSet::new();
    let of = requests.iter().filter(|request| request.set == set);
    of.map(|request| request.key)
        .filter(|key| seen.insert(*key))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_asked_for_once() {
        let request = |key, set| Request { key, set };
        let requests = [
            request(3, false),
            request(1, true),
            request(3, false),
            request(2, false),
        ];
        assert_eq!(keys(&requests, false), [3, 2]);
        assert_eq!(keys(&requests, true), [1]);
    }
}
