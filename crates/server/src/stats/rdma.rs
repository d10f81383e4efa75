//! `stats rdma`: clients over RDMA (`--rdma`). Empty without it. Workers publish these numbers ten times a second.

use super::Stats;
use crate::clock::Now;
use crate::output::Output;
use crate::rdma_report::RdmaReport;
use crate::shared::Shared;

/// Connections that are listed one by one, so that the answer is bounded.
const LISTED_MAX: usize = 128;

pub(super) fn write(shared: &Shared, _now: Now, output: &mut Output) {
    let mut stats = Stats::new(output);
    let reports: Vec<RdmaReport> = shared.rdma_reports().collect();
    if !reports.is_empty() {
        let sum = |of: fn(&RdmaReport) -> u64| reports.iter().map(of).sum::<u64>();
        stats.add("connections", sum(|it| it.connections));
        stats.add("total_connections", sum(|it| it.counts.connections));
        stats.add("refused", sum(|it| it.refused));
        stats.add("misbehaved", sum(|it| it.counts.misbehaved));
        stats.add("requests", sum(|it| it.counts.requests));
        stats.add("requests_under_way", sum(|it| it.under_way));
        stats.add("replies_copied", sum(|it| it.counts.replies_copied));
        stats.add("replies_in_place", sum(|it| it.counts.replies_gathered));
        stats.add("replies_too_long", sum(|it| it.counts.too_long));
        stats.add("bytes_written", sum(|it| it.counts.bytes_written));
        stats.add("values_read", sum(|it| it.counts.fetched));
        stats.add("bytes_read", sum(|it| it.counts.bytes_read));
        stats.add("bytes_early", sum(|it| it.counts.bytes_early));
        stats.add("memory", sum(|it| it.memory));
        stats.add("staging_bytes", sum(|it| it.staged));
        stats.add("registrations", sum(|it| it.registrations));
        stats.add("frames_free", sum(|it| it.frames_free));
    }
    let listed = reports.iter().flat_map(|report| &report.listed);
    for connection in listed.take(LISTED_MAX) {
        let number = connection.descriptor;
        let of = [
            ("requests", connection.counts.requests),
            ("bytes_written", connection.counts.bytes_written),
            ("bytes_read", connection.counts.bytes_read),
        ];
        stats.add(&format!("{number}:addr"), &connection.peer);
        for (name, count) in of {
            stats.add(&format!("{number}:{name}"), count);
        }
    }
    stats.end();
}
