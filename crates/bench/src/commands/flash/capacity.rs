//! How many items can be retrieved, and what memory they take.

use super::filling::{Items, settle};
use super::outcome::Capacity;
use super::sides::{Programs, Running, Set, Side};
use super::{Flags, KEY_LEN};
use crate::report;
use crate::workload::{KeyFormat, Values};

/// Fills both with more than either can hold, and reads everything back.
pub(super) fn measure(flags: &Flags, programs: &Programs) -> anyhow::Result<Vec<Capacity>> {
    let values = Values::new(flags.capacity_value_size);
    let items = Items {
        keys: KeyFormat::new(KEY_LEN, u32::MAX)?,
        values: &values,
    };
    let set = Set {
        memory: flags.memory,
        flash: flags.flash,
        workers: 1,
        cores: vec![flags.cores.server_core],
    };
    let mut rows = Vec::new();
    for side in Side::BOTH {
        report::progress(format_args!("{}: capacity", side.name()));
        let running = Running::start(side, programs, flags, &set)?;
        let resident_empty = running.resident_kib();
        let mut client = running.client()?;
        let count = flags.capacity_items;
        let refused = items.fill(&mut client, 0..count, flags.fill_rate)?;
        settle(&running)?;
        let stats = running.stats()?;
        let resident = running.resident_kib();
        let written = running.bytes_written()?;
        // The newest first would move more; in the order of storing, most are on flash when they are asked for.
        let retrievable = items.found(&mut client, 0..count)?;
        rows.push(Capacity {
            side,
            stored: count,
            refused,
            retrievable,
            on_flash: stats.number("extstore_objects_used"),
            evictions: stats.number("evictions"),
            flash_used: stats.number("extstore_bytes_used"),
            resident_empty_kib: resident_empty,
            resident_kib: resident,
            bytes_written: written,
            index_bytes: (side == Side::Coua).then(|| stats.number("coua_memory_index")),
        });
    }
    Ok(rows)
}
