//! How many times the machine has lost a part of this process's memory.

#[cfg(not(loom))]
pub(crate) use coua_memory_errors::events_seen;

/// loom knows no errors.
#[cfg(loom)]
#[inline]
pub(crate) fn events_seen() -> u64 {
    0
}
