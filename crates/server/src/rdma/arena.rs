//! The store's memory, as the network reads it.

#![allow(
    unsafe_code,
    reason = "hands the store's memory to the network by its address"
)]

use std::sync::Arc;

use coua_rdma::libfabric::{Driver, Error, Memory};
use coua_store::Store;

/// Adds the store's memory to a network that needs no registration of what it reads. With one that does, the memory would
/// be pinned as it is now, while the store gives memory back and replaces what the machine has lost: there, values are
/// copied.
pub(super) fn add(driver: &mut Driver, store: &Arc<Store>) -> Result<Option<(u32, usize)>, Error> {
    if driver.registers_own() {
        return Ok(None);
    }
    let (base, len) = store.memory_range();
    // SAFETY: the memory is mapped as long as the store is there, which this owns. The network reads values that are
    // pinned, so that nobody writes there.
    let memory = unsafe { Memory::of_another(base, len, Box::new(Arc::clone(store))) };
    let span = driver.add_outside(memory)?;
    Ok(Some((span.region, base.as_ptr().addr())))
}
