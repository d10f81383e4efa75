//! What clients may do.

/// What a client may do beyond reading and writing items.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Permissions {
    /// `shutdown` (`-A`).
    pub shutdown: bool,
    /// `flush_all` (unless `-F`).
    pub flush: bool,
    /// Commands that list keys (unless `-X`).
    pub dump: bool,
    /// `watch` (unless `-W`).
    pub watch: bool,
}
