//! When a request was executed, as far as can be told.

/// When a request was executed: between these seconds and rounds, all included.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Window {
    pub(crate) from: u32,
    pub(crate) to: u32,
    pub(crate) asked: u64,
    pub(crate) answered: u64,
}
