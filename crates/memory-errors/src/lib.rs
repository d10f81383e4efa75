//! Keeps the process alive when memory fails under it.
//!
//! A DIMM can lose more bits of a word than its code corrects. The processor then raises a machine
//! check, and Linux takes the page out of use, unmaps it, and sends `SIGBUS`, which ends a process.
//! A cache can do better: what it lost was a copy. The handler of this crate puts a fresh page of
//! zeros in the place of the lost one, notes the range, counts, and lets the interrupted instruction
//! go on. What the zeros mean is the business of whoever keeps data there: it looks at the count
//! before an answer leaves, and takes the ranges from a list.
//!
//! ```no_run
//! # #![allow(unsafe_code)]
//! use std::ptr::NonNull;
//! use coua_memory_errors::{Backing, events_seen, install, install_thread, register};
//!
//! # fn map() -> NonNull<u8> { NonNull::dangling() }
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let mut events = install()?; // main, before it starts threads
//! let _stack = install_thread()?; // and each thread at its start
//! let arena = map();
//! // SAFETY: one private anonymous mapping, whose readers take zeros for any bytes.
//! let _arena = unsafe { register(arena, 1 << 30, 4096, Backing::Anonymous) }?;
//!
//! let before = events_seen(); // a turn of a worker: before it reads …
//! if events_seen() != before { // … and before its replies leave
//!     for lost in events.take().lost { /* drop what lay there, and answer anew */ }
//! }
//! # Ok(())
//! # }
//! ```
//!
//! # How a page is replaced
//!
//! The handler asks the kernel by `MADV_POPULATE_READ` whether the page is lost: of two threads that
//! touch it at the same time the second finds that it can be read again, and goes on. A lost page of
//! private memory goes by `MADV_DONTNEED`, which leaves the mapping whole: its advice, its locks, its
//! memory policy. Mapping a new page over it would make three mappings of one, for each error. A
//! file's page is first taken out of the file by `MADV_REMOVE`, which is `fallocate` with
//! `PUNCH_HOLE` by address. Where that does not give a page that can be read, since the pool of huge
//! pages is empty or the file system knows no holes, private small pages are mapped over the range;
//! for a file that is [`Lost::is_detached`].
//!
//! What Linux 6.1, 6.12 and 7.3 do with each kind (`cargo xtask test lab` shows it for the first and the last):
//!
//! | memory | what is lost | without a touch (AO) | fresh page by |
//! |---|---|---|---|
//! | anonymous | 4 KiB | yes | `MADV_DONTNEED` |
//! | transparent huge page | 4 KiB: the kernel splits it | yes | `MADV_DONTNEED` |
//! | the same, pinned by a device or io_uring | 2 MiB from 6.12 on; 6.1 reports nothing and leaves it mapped | | `MADV_DONTNEED` |
//! | hugetlb, anonymous | the huge page | yes | `MADV_DONTNEED`; small pages if the pool is empty |
//! | tmpfs, memfd | 4 KiB, in transparent huge pages too | yes | `MADV_REMOVE`, then `MADV_DONTNEED`: neither is enough, and nor is a new mapping |
//! | hugetlbfs | the huge page | yes | `MADV_REMOVE`; private small pages if the pool is empty |
//! | file on a disk, as on the disk | nothing: the kernel reads it again | no signal | |
//! | file on a disk, written since | 4 KiB; with 7.3 the block that the kernel keeps it in, 128 KiB and more | yes | `MADV_REMOVE` (6.1 refuses once with EIO), then `MADV_DONTNEED`. Without the hole the file's old bytes come back |
//! | DAX on ext4 | 4 KiB, and the kernel leaves it mapped | yes, and as AR to a thread that runs at that moment | `MADV_REMOVE` |
//!
//! Before Linux 5.14 the kernel does not say whether a page is lost, so threads that touch one at
//! the same time lose it more than once; before 5.18 new memory is mapped instead of `MADV_DONTNEED`.
//! `MADV_HWPOISON` by the thread that has asked for early reports signals AO with 6.1 and AR from
//! 6.12 on.
//!
//! # What zeros would harm
//!
//! The owner of a region may be its [`Keeper`]: it says of each lost range whether it turns to zeros, is
//! written anew from what the keeper has elsewhere, or ends the process. A page that is restored is
//! seen whole or not at all: private memory is prepared elsewhere and moved over the lost page by
//! `mremap`; into a file it is written while the page tables still have the lost page. What turns to zeros
//! the keeper can put on record first, for a process that takes the memory over.
//!
//! # What is not repaired
//!
//! - Memory that is not registered: code, stacks, the heap. Who touches it ends the process as if
//!   there were no handler; a report of a page that nobody has touched is counted
//!   ([`Taken::elsewhere`]) and lets it live, as the kernel does by default.
//! - System calls do not signal. They answer `EFAULT` where they read or write a lost page, or do the
//!   part before it; data that a socket was to deliver there stays in the socket. [`check()`] has the
//!   handler repair what a call has met; then it can be made again.
//! - Memory that was pinned: buffers registered with io_uring, the memory of an AF_XDP socket, of
//!   DPDK or RDMA. The process has a fresh page, and the device goes on reading and writing the old
//!   one, whatever it holds, until the memory is registered with it anew. [`WatchedMemory`] knows
//!   for ever which of its pages that is.
//! - A fault of the handler's own stack, or within the handler.
//!
//! # Invariants
//!
//! - Of a page that is lost a reader sees the old bytes, or zeros after the count has moved.
//! - Each loss is counted once, and is in the list or has made it overflow. (Of DAX, and of huge pages
//!   that could not be split: at least once.)
//! - The handler allocates nothing and takes no lock but one, whose holders mask signals.
//!
//! # Concurrency
//!
//! All shared state is behind a lock (`lock.rs`) that handlers take too, but the count, which
//! readers load without it (`seen.rs` says in which order). A repair is a few system calls: 5 to
//! 10 microseconds for 4 KiB from the touch to the loaded value, and 70 to 95 for 2 MiB, by
//! `examples/repair_time.rs` without the machine check itself.
//!
//! # Not here
//!
//! What becomes of items, index and tables that lay in a lost range; when errors are so many that the
//! process had better end is for whoever asks a [`Limit`].

// loom models the counter alone: everything else is system calls.
#![cfg_attr(loom, allow(dead_code, reason = "what uses the counter is left out"))]

mod seen;

#[cfg(not(loom))]
mod alternate_stack;
#[cfg(not(loom))]
mod check;
#[cfg(not(loom))]
mod events;
#[cfg(not(loom))]
mod handler;
#[cfg(not(loom))]
mod install;
#[cfg(not(loom))]
mod keeper;
#[cfg(not(loom))]
mod limit;
#[cfg(not(loom))]
mod lock;
#[cfg(not(loom))]
mod memory;
#[cfg(loom)]
mod memory_loom;
#[cfg(all(not(loom), feature = "poison"))]
pub mod poison;
#[cfg(not(loom))]
mod registration;
#[cfg(not(loom))]
mod replace;
#[cfg(not(loom))]
mod state;
#[cfg(not(loom))]
mod sys;

#[cfg(not(loom))]
pub use {
    alternate_stack::AlternateStack,
    check::check,
    events::{Events, events_seen, wait_for_events, wake_waiters},
    handler::InstallError,
    install::{install, install_thread},
    keeper::{FreshPage, Keeper, PAGE_BYTES, Remedy},
    limit::Limit,
    memory::{LossMark, WatchedMemory},
    registration::{Registration, register, register_kept},
    state::{Backing, EVENTS_MAX, Lost, REGIONS_MAX, RegisterError, Severity, Taken},
};

#[cfg(loom)]
pub use memory_loom::{LossMark, WatchedMemory, check};

/// What the handler and the functions that feed it share: a handler has no other place to look.
#[cfg(not(loom))]
static STATE: lock::SignalLock<state::State> = lock::SignalLock::new(state::State::new());

/// How many times memory was lost.
#[cfg(not(loom))]
static SEEN: seen::Seen = seen::Seen::new();
