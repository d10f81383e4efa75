//! The lines that the exporter reads, by the question that brings them.

/// What a line must hold behind [`TRAFFIC`]; where it is a class's line, all classes together.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Holds {
    /// A text without blanks.
    Text,
    /// A number of any size.
    Number,
    /// This number.
    Exactly(u64),
    /// This number or more.
    AtLeast(u64),
    /// Seconds, one dot, six digits of microseconds.
    Seconds,
}

use Holds::{AtLeast, Exactly, Number, Seconds, Text};

/// The lines of `stats` that it reads. It takes `total_malloced` from whichever answer has it.
pub(crate) const GENERAL: &[(&str, Holds)] = &[
    ("uptime", Number),
    ("time", AtLeast(1_700_000_000)),
    ("version", Text),
    ("rusage_user", Seconds),
    ("rusage_system", Seconds),
    ("curr_connections", AtLeast(1)),
    ("total_connections", AtLeast(1)),
    ("rejected_connections", Exactly(0)),
    ("conn_yields", Number),
    ("listen_disabled_num", Exactly(0)),
    ("accepting_conns", Exactly(1)),
    ("bytes", AtLeast(3)),
    ("limit_maxbytes", Exactly(64 << 20)),
    ("curr_items", Exactly(3)),
    ("total_items", AtLeast(5)),
    ("bytes_read", AtLeast(2_000_000)),
    ("bytes_written", AtLeast(100)),
    ("evictions", Exactly(0)),
    ("reclaimed", Number),
    ("store_too_large", Exactly(1)),
    ("store_no_memory", Exactly(0)),
    ("direct_reclaims", Exactly(0)),
    ("lru_crawler_starts", Number),
    ("crawler_items_checked", Number),
    ("crawler_reclaimed", Number),
    ("moves_to_cold", Number),
    ("moves_to_warm", Number),
    ("moves_within_lru", Number),
    ("total_malloced", AtLeast(3)),
    ("cmd_set", Exactly(7)),
    ("cmd_flush", Exactly(1)),
    ("get_hits", Exactly(4)),
    ("get_misses", Exactly(1)),
    ("delete_hits", Exactly(1)),
    ("delete_misses", Exactly(1)),
    ("incr_hits", Exactly(2)),
    ("incr_misses", Exactly(1)),
    ("decr_hits", Exactly(1)),
    ("decr_misses", Exactly(1)),
    ("cas_hits", Exactly(1)),
    ("cas_misses", Exactly(1)),
    ("cas_badval", Exactly(1)),
    ("touch_hits", Exactly(2)),
    ("touch_misses", Exactly(1)),
];

/// The lines `N:name` of `stats slabs` that it reads.
pub(crate) const SLABS: &[(&str, Holds)] = &[
    ("chunk_size", AtLeast(1)),
    ("chunks_per_page", AtLeast(1)),
    ("total_pages", AtLeast(1)),
    ("total_chunks", AtLeast(3)),
    ("used_chunks", AtLeast(3)),
    ("free_chunks", AtLeast(1)),
    ("free_chunks_end", Exactly(0)),
    ("get_hits", Exactly(4)),
    ("cmd_set", Exactly(7)),
    ("delete_hits", Exactly(1)),
    ("incr_hits", Exactly(2)),
    ("decr_hits", Exactly(1)),
    ("cas_hits", Exactly(1)),
    ("cas_badval", Exactly(1)),
    ("touch_hits", Exactly(2)),
];

/// The lines `items:N:name` of `stats items` that it reads.
pub(crate) const ITEMS: &[(&str, Holds)] = &[
    ("number", Exactly(3)),
    ("age", Number),
    ("hits_to_hot", Number),
    ("hits_to_warm", Number),
    ("hits_to_cold", Number),
    ("hits_to_temp", Number),
    ("evicted", Exactly(0)),
    ("evicted_nonzero", Exactly(0)),
    ("evicted_time", Exactly(0)),
    ("evicted_unfetched", Exactly(0)),
    ("expired_unfetched", Exactly(0)),
    ("outofmemory", Exactly(0)),
    ("reclaimed", Number),
    ("crawler_reclaimed", Number),
    ("tailrepairs", Exactly(0)),
    ("mem_requested", AtLeast(3)),
    ("moves_to_cold", Number),
    ("moves_to_warm", Number),
    ("moves_within_lru", Number),
    ("number_hot", Number),
    ("number_warm", Number),
    ("number_cold", Number),
    ("age_hot", Number),
    ("age_warm", Number),
];

/// The lines of `stats settings` that it reads where `lru_crawler` is `yes`, besides `maxconns`.
pub(crate) const LRU_SETTINGS: [&str; 6] = [
    "lru_crawler_sleep",
    "lru_crawler_tocrawl",
    "hot_lru_pct",
    "warm_lru_pct",
    "hot_max_factor",
    "warm_max_factor",
];
