//! Cases that fail as things stand.

/// A case that fails, and why. One that passes must go from here.
pub(crate) struct Known {
    pub(crate) file: &'static str,
    pub(crate) name: &'static str,
    pub(crate) why: &'static str,
}

/// All of them.
pub(crate) const KNOWN: &[Known] = &[];
