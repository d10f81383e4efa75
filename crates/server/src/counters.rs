//! What a worker counts.
//!
//! # Concurrency
//! Each worker writes only its own [`Counters`] and no other thread writes them, so an addition is
//! a load and a store. A thread that answers `stats` adds the workers' values up and may see one
//! worker a little later than another.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// A number that one thread increments and others read.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds to it. Only the owner may call this.
    #[inline]
    pub fn add(&self, count: u64) {
        self.0
            .store(self.0.load(Relaxed).wrapping_add(count), Relaxed);
    }

    /// Sets it to a value, which may also fall. Only the owner may call this.
    #[inline]
    pub fn set(&self, value: u64) {
        self.0.store(value, Relaxed);
    }

    /// Its value at this moment.
    pub fn value(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

macro_rules! counters {
    ($($(#[doc = $doc:literal])* $name:ident,)*) => {
        /// One worker's counters, alone on their cache lines.
        #[derive(Debug, Default)]
        #[repr(align(128))]
        pub struct Counters {
            $($(#[doc = $doc])* pub $name: Counter,)*
        }

        /// The workers' counters added up.
        #[derive(Clone, Copy, Debug, Default)]
        pub struct Totals {
            $($(#[doc = $doc])* pub $name: u64,)*
        }

        impl Totals {
            /// Adds one worker's counters.
            pub fn add(&mut self, counters: &Counters) {
                $(self.$name = self.$name.wrapping_add(counters.$name.value());)*
            }

            /// What has been counted since `before`.
            pub fn since(&self, before: &Totals) -> Totals {
                Totals { $($name: self.$name.wrapping_sub(before.$name),)* }
            }
        }
    };
}

counters! {
    /// Keys looked up by get, gets and mg.
    cmd_get,
    /// Store commands that came as far as asking for memory.
    cmd_set,
    /// flush_all commands.
    cmd_flush,
    /// touch, gat and mg with T.
    cmd_touch,
    /// me commands.
    cmd_meta,
    /// Lookups that found the key.
    get_hits,
    /// Of these, lookups that were answered from flash.
    get_flash_hits,
    /// Lookups that did not.
    get_misses,
    /// Lookups that found an expired item.
    get_expired,
    /// Lookups that found a flushed item.
    get_flushed,
    /// Lookups that found an item of a tag that was invalidated.
    get_invalidated,
    /// Deletes of a missing key, or of another CAS.
    delete_misses,
    /// Deletes that succeeded.
    delete_hits,
    /// Increments of a missing key.
    incr_misses,
    /// Increments.
    incr_hits,
    /// Decrements of a missing key.
    decr_misses,
    /// Decrements.
    decr_hits,
    /// cas of a missing key.
    cas_misses,
    /// cas that stored.
    cas_hits,
    /// cas whose CAS was not the item's.
    cas_badval,
    /// Touches that found the key.
    touch_hits,
    /// Touches that did not find the key.
    touch_misses,
    /// Values that were too large.
    store_too_large,
    /// Values for which no memory was found.
    store_no_memory,
    /// Attempts to log in.
    auth_cmds,
    /// Attempts to log in that failed.
    auth_errors,
    /// Connections that a certificate has logged in.
    certificate_logins,
    /// Requests that their users may not make.
    requests_denied,
    /// Bytes received.
    bytes_read,
    /// Bytes sent.
    bytes_written,
    /// Times that a connection had used up its share of a turn, with requests left.
    conn_yields,
    /// Connections accepted.
    total_connections,
    /// Connections refused because there were too many.
    rejected_connections,
    /// Connections that their clients have ended.
    closed_by_client,
    /// Connections that were reset, or timed out.
    closed_reset,
    /// Connections closed because their clients asked for it.
    closed_quit,
    /// Connections closed for being idle.
    idle_kicks,
    /// Connections closed because their input was not a request.
    closed_protocol,
    /// Connections closed because too many logins had failed at once.
    closed_login,
    /// Connections closed for lack of memory.
    closed_memory,
    /// Connections closed because the machine has lost bytes of theirs.
    closed_loss,
    /// Connections closed because the kernel does not let the server poll them.
    closed_system,
    /// Times that accepting was paused.
    listen_disabled,
    /// Microseconds for which accepting was paused.
    listen_disabled_us,
    /// Connections closed because connection buffers had used up their share of memory.
    connections_shed,
    /// Long values that were not sent because connections held as much memory as they may.
    values_refused,
    /// Datagrams that held requests.
    udp_requests,
    /// Datagrams that held none, came from an address that is not answered, or found no room.
    udp_dropped,
    /// Replies that were not sent as datagrams: too long, or beyond the address's allowance.
    udp_replies_dropped,
    /// Requests put off to a later turn because memory was being cleaned.
    requests_deferred,
    /// Requests that took as long as `-o slow_us` says, or longer.
    slow_requests,
    /// Turns of the worker's loop.
    turns,
    /// Requests executed.
    requests,
    /// Times that a request waited for a read of flash.
    flash_waits,
    /// Requests that gave up because too many others read flash.
    flash_given_up,
    /// Bytes that were read from flash.
    flash_bytes_read,
    /// Reads of flash that are under way, or whose records are held.
    flash_reads_under_way,
    /// Blocks of connection buffers in use.
    buffer_blocks,
}
