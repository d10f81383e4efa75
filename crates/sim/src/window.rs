//! When a request was executed, as far as can be told.

/// When a request was executed: between these seconds and rounds, all included.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Window {
    /// The first second of the simulated wall clock.
    pub(crate) from: u32,
    /// The last second of the simulated wall clock.
    pub(crate) to: u32,
    /// The round in which the request was sent.
    pub(crate) asked: u64,
    /// The round in which its answer was read.
    pub(crate) answered: u64,
}
