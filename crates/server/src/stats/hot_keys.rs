//! `stats hotkeys`: the keys that are asked for most; `stats misses`: the prefixes under which most keys are
//! missed. See [`crate::hot_keys`].

use super::Stats;
use crate::clock::Now;
use crate::output::Output;
use crate::shared::Shared;
use crate::uri;

/// Keys or prefixes that are shown.
const SHOWN: usize = 20;

pub(super) fn write(shared: &Shared, now: Now, output: &mut Output) {
    let mut stats = Stats::new(output);
    let hottest = shared.hot_keys.hottest(now.since_start_ms, SHOWN);
    for (rank, hot) in hottest.into_iter().enumerate() {
        let rank = rank + 1;
        let mut key = Vec::new();
        uri::encode(&hot.key, &mut key);
        stats.add(&format!("{rank}:key"), String::from_utf8_lossy(&key));
        for (name, value) in [
            ("rate", hot.rate),
            ("rate_excess", hot.excess),
            ("bytes_rate", hot.bytes),
        ] {
            stats.add(&format!("{rank}:{name}"), format_args!("{value:.0}"));
        }
        stats.add(&format!("{rank}:share"), format_args!("{:.4}", hot.share));
    }
    stats.end();
}

pub(super) fn write_misses(shared: &Shared, now: Now, output: &mut Output) {
    let mut stats = Stats::new(output);
    let missed = shared.missed.hottest(now.since_start_ms, SHOWN);
    for (rank, missed) in missed.into_iter().enumerate() {
        let rank = rank + 1;
        let mut prefix = Vec::new();
        uri::encode(&missed.key, &mut prefix);
        // No prefix looks like this one, encoded as they are.
        if prefix.is_empty() {
            prefix.extend(b"(none)");
        }
        let prefix = String::from_utf8_lossy(&prefix);
        stats.add(&format!("{rank}:prefix"), prefix);
        for (name, value) in [("rate", missed.rate), ("rate_excess", missed.excess)] {
            stats.add(&format!("{rank}:{name}"), format_args!("{value:.0}"));
        }
        stats.add(
            &format!("{rank}:share"),
            format_args!("{:.4}", missed.share),
        );
    }
    stats.end();
}
