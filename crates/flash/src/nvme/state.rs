//! What becomes of a controller and its queues.

/// States of a queue as the controller knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(super) enum QueueState {
    /// Nobody has it.
    Absent,
    /// Its owner wants it made.
    Wanted,
    /// It works.
    Live,
    /// Its owner wants it taken away.
    Leaving,
    /// The controller refuses to make it.
    Refused,
}

impl QueueState {
    /// What [`QueueState`] as a number was.
    pub(super) fn of(value: u32) -> QueueState {
        let all = [
            QueueState::Absent,
            QueueState::Wanted,
            QueueState::Live,
            QueueState::Leaving,
        ];
        let known = all.into_iter().find(|state| *state as u32 == value);
        known.unwrap_or(QueueState::Refused)
    }
}

/// What becomes of the whole controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// It works, or will again.
    Well,
    /// It is gone and reaches no memory.
    Gone,
    /// It is gone, and may still write to memory.
    Wild,
}
