//! What a poller tells.

/// What the caller registered a descriptor under; comes back with its events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Token(pub u64);

/// What has happened to a descriptor since the last report.
#[derive(Clone, Copy, Debug)]
pub struct Readiness {
    /// Which descriptor.
    pub token: Token,
    /// There is something to receive or accept, or an error to be told by receiving.
    pub readable: bool,
    /// There is room to send.
    pub writable: bool,
    /// The peer sends no more; what it sent before can still be received.
    pub end_of_stream: bool,
}
