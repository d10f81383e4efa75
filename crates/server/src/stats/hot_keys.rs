//! `stats hotkeys`: the keys that are asked for most; see [`crate::hot_keys`].

use super::Stats;
use crate::clock::Now;
use crate::output::Output;
use crate::shared::Shared;
use crate::uri;

/// Keys that are shown.
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
