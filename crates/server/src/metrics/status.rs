//! `/status.json`: what the page of `/` and `coua-top` show, as counts since the start. Who reads it
//! twice has rates.
//!
//! It is made at most four times a second, whoever asks how often. Hot keys are left out where clients
//! may not list keys or must log in: whoever reaches the listener may read them.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::closing::CloseCause;
use crate::latency::Latencies;
use crate::process::{cpu_seconds, resident_bytes};
use crate::shared::Shared;
use crate::uri;
use crate::version::BUILD;

/// For how long one answer is given.
const KEPT: Duration = Duration::from_millis(250);

/// Hot keys that are shown.
const HOT_KEYS: usize = 12;

/// What a server counts at one moment. Bytes and nanoseconds, and counts since its start.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Status {
    /// The build.
    pub version: String,
    /// Milliseconds since the start.
    pub uptime_ms: u64,
    /// It is ending.
    pub stopping: bool,
    /// Seconds of processors.
    pub cpu_seconds: f64,
    /// Memory of the process that is in RAM.
    pub resident_bytes: u64,
    /// Each worker.
    pub workers: Vec<WorkerStatus>,
    /// Commands.
    pub commands: CommandStatus,
    /// How long requests took.
    pub latency: LatencyStatus,
    /// Connections.
    pub connections: ConnectionStatus,
    /// Items stored.
    pub items: u64,
    /// Their bytes.
    pub items_bytes: u64,
    /// Bytes of memory for all that is kept.
    pub memory_limit: u64,
    /// Bytes of it that are left to others under memory pressure.
    pub memory_held_back: u64,
    /// That memory by what it is used for.
    pub memory: MemoryStatus,
    /// Items that the server has removed by itself.
    pub removed: RemovedStatus,
    /// Seconds for which the item that was evicted last had not been read.
    pub evicted_idle_s: u64,
    /// Flash; `None` without.
    #[serde(default)]
    pub flash: Option<FlashStatus>,
    /// What went wrong, by cause.
    pub errors: BTreeMap<String, u64>,
    /// The keys that are asked for most; `None` where they must not be shown.
    pub hot_keys: Option<Vec<HotKeyStatus>>,
}

/// One worker.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct WorkerStatus {
    /// Requests executed.
    pub requests: u64,
    /// Open connections.
    pub connections: u64,
    /// Bytes received.
    pub received_bytes: u64,
    /// Bytes sent.
    pub sent_bytes: u64,
}

/// Commands.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct CommandStatus {
    /// Keys that were found.
    pub get_hits: u64,
    /// Keys that were not.
    pub get_misses: u64,
    /// Store commands.
    pub sets: u64,
    /// Deletes that found their key.
    pub delete_hits: u64,
}

/// A histogram.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct LatencyStatus {
    /// Where each bucket ends, in nanoseconds.
    pub le_ns: Vec<u64>,
    /// Requests in it, those of the buckets before left out.
    pub counts: Vec<u64>,
}

/// Connections.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct ConnectionStatus {
    /// Open now.
    pub open: u64,
    /// May be open at a time.
    pub max: u64,
    /// Accepted.
    pub accepted: u64,
}

/// Bytes of memory by what they are used for.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct MemoryStatus {
    /// Items.
    pub segments: u64,
    /// Nothing.
    pub free: u64,
    /// The index.
    pub index: u64,
    /// Tables.
    pub tables: u64,
    /// Requests and replies under way.
    pub connections: u64,
    /// The server's own TCP stacks.
    pub stacks: u64,
}

/// Items that the server has removed by itself.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct RemovedStatus {
    /// To make room.
    pub evicted: u64,
    /// Dead when they were found.
    pub reclaimed: u64,
    /// Dead, and found by cleaning.
    pub crawled: u64,
}

/// What is on flash, and what became of items there.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct FlashStatus {
    /// Items on flash.
    pub items: u64,
    /// Bytes of all segments.
    pub bytes: u64,
    /// Bytes of those that are free.
    pub free_bytes: u64,
    /// Lookups that flash has answered.
    pub hits: u64,
    /// Records that were read.
    pub reads: u64,
    /// Reads that have failed.
    pub failed: u64,
    /// Items that went there, and their bytes.
    pub written: u64,
    /// See `written`.
    pub written_bytes: u64,
    /// Items that were dropped with the oldest segments.
    pub dropped: u64,
    /// Items that were evicted because it could not take them at that moment.
    pub refused: u64,
    /// Items that were evicted because the rules of admission left them out.
    pub rejected: u64,
    /// Devices.
    pub devices: u64,
    /// Devices that are gone.
    pub devices_gone: u64,
}

/// A key that is asked for often.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct HotKeyStatus {
    /// The key, encoded as in `lru_crawler metadump`.
    pub key: String,
    /// Requests a second.
    pub rate: f64,
    /// Bytes of values a second.
    pub bytes_rate: f64,
    /// Its part of all requests with a key, from 0 to 1.
    pub share: f64,
}

/// The last answer.
#[derive(Debug, Default)]
pub(super) struct Kept(Mutex<Option<(Instant, String)>>);

impl Kept {
    /// What is answered now. Whoever asks while it is made waits for it.
    pub(super) fn text(&self, shared: &Shared) -> String {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match &*kept {
            Some((made, text)) if made.elapsed() < KEPT => text.clone(),
            _ => {
                // Numbers and texts can always be written.
                let text = serde_json::to_string(&Status::of(shared)).unwrap_or_default();
                kept.insert((Instant::now(), text)).1.clone()
            }
        }
    }
}

impl Status {
    /// Of a server that runs.
    pub fn of(shared: &Shared) -> Status {
        let counts = shared.totals();
        let store = shared.store.stats();
        let now = shared.clock.now();
        let workers = (0..shared.settings.workers).map(|worker| {
            let counters = shared.counters(worker);
            WorkerStatus {
                requests: counters.requests.value(),
                connections: shared.registry.share(worker) as u64,
                received_bytes: counters.bytes_read.value(),
                sent_bytes: counters.bytes_written.value(),
            }
        });
        let mut latencies = Latencies::default();
        for worker in 0..shared.settings.workers {
            latencies.add(shared.latency(worker));
        }
        let (le_ns, counts_by_time) = latencies.by_bucket().unzip();
        let segments = store.segments_small + store.segments_main;
        Status {
            version: BUILD.to_owned(),
            uptime_ms: now.since_start_ms,
            stopping: shared.is_stopping(),
            cpu_seconds: cpu_seconds(),
            resident_bytes: resident_bytes().unwrap_or_default(),
            workers: workers.collect(),
            commands: CommandStatus {
                get_hits: counts.get_hits,
                get_misses: counts.get_misses,
                sets: counts.cmd_set,
                delete_hits: counts.delete_hits,
            },
            latency: LatencyStatus {
                le_ns,
                counts: counts_by_time,
            },
            connections: ConnectionStatus {
                open: shared.registry.open() as u64,
                max: shared.registry.open_max() as u64,
                accepted: counts.total_connections,
            },
            items: store.items,
            items_bytes: store.bytes,
            memory_limit: shared.memory() as u64,
            memory_held_back: shared.memory_held_back() as u64,
            memory: MemoryStatus {
                segments: segments * store.segment_len,
                free: store.memory_free,
                index: store.memory_index,
                tables: store.memory_tables,
                connections: store.memory_lent,
                stacks: shared.settings.stacks_memory() as u64,
            },
            removed: RemovedStatus {
                evicted: store.totals.evicted,
                reclaimed: store.totals.reclaimed,
                crawled: store.totals.crawler_reclaimed,
            },
            evicted_idle_s: store.evicted_idle_s,
            flash: flash(shared, counts.get_flash_hits),
            errors: errors(shared),
            hot_keys: hot_keys(shared, now.since_start_ms),
        }
    }
}

fn flash(shared: &Shared, hits: u64) -> Option<FlashStatus> {
    let stats = shared.store.flash_stats()?;
    Some(FlashStatus {
        items: stats.items,
        bytes: stats.segments * stats.segment_len,
        free_bytes: stats.segments_free * stats.segment_len,
        hits,
        reads: stats.reads,
        failed: stats.failed + stats.damaged,
        written: stats.written,
        written_bytes: stats.bytes_appended,
        dropped: stats.dropped,
        refused: stats.refused,
        rejected: stats.rejected,
        devices: shared.flash_devices().len() as u64,
        devices_gone: shared.flash_devices_gone() as u64,
    })
}

fn errors(shared: &Shared) -> BTreeMap<String, u64> {
    let counts = shared.totals();
    let lost = |count: &AtomicU64| count.load(Relaxed);
    let mut errors = BTreeMap::new();
    for (name, count) in [
        ("connections: too many (-c)", counts.rejected_connections),
        ("accepting paused", counts.listen_disabled),
        ("values too large (-I)", counts.store_too_large),
        ("values without memory", counts.store_no_memory),
        ("values not sent, without memory", counts.values_refused),
        ("logins failed", counts.auth_errors),
        ("requests not permitted", counts.requests_denied),
        ("datagrams dropped", counts.udp_dropped),
        ("datagrams of replies dropped", counts.udp_replies_dropped),
        ("memory waited for", shared.store.stats().totals.waits),
        ("memory lost by the machine", lost(&shared.losses.losses)),
    ] {
        errors.insert(name.to_owned(), count);
    }
    for (cause, what) in [
        (CloseCause::Reset, "reset"),
        (CloseCause::Idle, "idle"),
        (CloseCause::Protocol, "not a request"),
        (CloseCause::Login, "logins"),
        (CloseCause::Memory, "memory"),
        (CloseCause::Loss, "memory lost"),
        (CloseCause::System, "the system"),
    ] {
        let name = format!("connections closed: {what}");
        errors.insert(name, cause.count_in(&counts));
    }
    if let Some(tls) = &shared.settings.tls {
        let failed = lost(&tls.tls.events.handshake_errors);
        errors.insert("handshakes of TLS failed".to_owned(), failed);
    }
    errors
}

fn hot_keys(shared: &Shared, since_start_ms: u64) -> Option<Vec<HotKeyStatus>> {
    if shared.settings.users.is_some() || !shared.live.permissions().dump {
        return None;
    }
    let hottest = shared.hot_keys.hottest(since_start_ms, HOT_KEYS);
    let hottest = hottest.into_iter().map(|hot| {
        let mut key = Vec::new();
        uri::encode(&hot.key, &mut key);
        HotKeyStatus {
            key: String::from_utf8_lossy(&key).into_owned(),
            rate: hot.rate,
            bytes_rate: hot.bytes,
            share: hot.share,
        }
    });
    Some(hottest.collect())
}
