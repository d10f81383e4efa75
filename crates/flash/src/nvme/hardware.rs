//! What the driver needs of the machine: registers, memory that the device reaches, interrupts.

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use crate::Region;

/// A controller's registers and what belongs to them.
pub(super) trait Hardware: Send + Sync {
    /// Reads a register of 32 bits, `at` bytes from the beginning. A device that is gone reads as ones.
    fn load(&self, at: usize) -> u32;

    /// Writes a register. What was stored to memory before it is seen by the device after it.
    fn store(&self, at: usize, value: u32);

    /// Bytes of registers that are there.
    fn len(&self) -> usize;

    /// Lets the device read and write a region, once for its whole life, and gives the address that it knows it by.
    fn map(&self, region: &Arc<Region>) -> io::Result<u64>;

    /// What becomes readable when a vector interrupts, where the device has so many.
    fn signal(&self, vector: u16) -> Option<BorrowedFd<'_>>;

    /// Lets a vector interrupt, or keeps it from doing so.
    fn set_signalled(&self, vector: u16, is_signalled: bool) -> io::Result<()>;

    /// Whether the system wants the device back, as before it is pulled out.
    fn is_wanted_back(&self) -> bool;

    /// Resets the device from outside; afterwards it reaches no memory.
    fn reset(&self) -> io::Result<()>;
}
