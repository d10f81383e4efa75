//! What can go wrong with a volume as a whole.

use crate::device::{Failure, OpenError};

/// Why a volume was not opened or closed.
#[derive(Debug, thiserror::Error)]
pub enum VolumeError {
    /// Segments are not of whole MiB, or a device has no room for one beside what is reserved.
    #[error("a device is too small, or segments are not of whole MiB")]
    Layout,
    /// A device cannot be used.
    #[error("{device}: {error}")]
    Queue {
        /// Its name.
        device: String,
        /// Why.
        error: OpenError,
    },
    /// A device fails where the volume's beginning lies.
    #[error("{device}: {failure}")]
    Device {
        /// Its name.
        device: String,
        /// How.
        failure: Failure,
    },
    /// A device loses what is written to it.
    #[error("{device} does not keep what is written to it")]
    Forgets {
        /// Its name.
        device: String,
    },
    /// Workers still use it.
    #[error("workers still use the volume")]
    InUse,
    /// It keeps no tombstones, or was not closed.
    #[error("what is newest cannot be told")]
    NotProvable,
}
