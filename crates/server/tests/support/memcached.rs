//! The memcached that coua is compared with.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The root of the repository.
pub(crate) fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The memcached to compare with: `MEMCACHED_BIN`, or what `scripts/memcached-current` fetches.
///
/// # Panics
/// When there is none to be had: a comparison that is left out in silence would look like a pass.
pub(crate) fn memcached_program() -> PathBuf {
    if let Some(program) = env::var_os("MEMCACHED_BIN") {
        return program.into();
    }
    let script = repository().join("scripts/memcached-current");
    let output = Command::new(&script)
        .output()
        .expect("scripts/memcached-current can be run");
    assert!(
        output.status.success(),
        "coua is compared with a current memcached, and {} could not fetch one \
         (set MEMCACHED_BIN to a memcached 1.6.45): {}",
        script.display(),
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8_lossy(&output.stdout).trim().into()
}
