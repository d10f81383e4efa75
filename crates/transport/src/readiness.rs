//! What a poller reports.

/// The name that the caller registered a descriptor under; it comes with the descriptor's events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Token(pub u64);

/// What has happened to a descriptor since the last report.
#[derive(Clone, Copy, Debug)]
pub struct Readiness {
    /// Which descriptor.
    pub token: Token,
    /// There is something to receive or accept, or an error that receiving returns.
    pub readable: bool,
    /// There is room to send.
    pub writable: bool,
    /// The peer sends no more; what it sent before can still be received.
    pub end_of_stream: bool,
}
