//! `-e`: what a process has answered outlives it.
//!
//! The real program serves clients who keep books of what they were told and of what they still wait
//! for. It is ended at a random moment, mostly by SIGKILL, and started again on the same file.
//! `COUA_RESTARTS` says how often (15 where it says nothing).
//!
//! # Not here
//! Kills before each single store of the store's own steps: `coua-store`'s `tests/killed.rs`.

mod book;
mod content;
mod drain;
mod ends;
mod hand_over;
mod kills;
mod refused;
mod small;
mod sockets;
mod user;

#[path = "../support/process.rs"]
mod process;
#[path = "../support/mod.rs"]
#[allow(dead_code, reason = "these tests need the program alone")]
mod support;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// A file in memory for a server. It goes when this is dropped.
struct MemoryFile(PathBuf);

impl MemoryFile {
    /// A path at which nothing is.
    fn new() -> MemoryFile {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("coua-restart-{}-{number}", std::process::id());
        let path = Path::new("/dev/shm").join(name);
        let _ = std::fs::remove_file(&path);
        MemoryFile(path)
    }

    /// As a flag takes it.
    fn text(&self) -> &str {
        self.0.to_str().expect("the name is made of ASCII")
    }
}

impl Drop for MemoryFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}
