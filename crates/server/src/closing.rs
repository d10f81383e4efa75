//! Why connections close: the one list of causes for counters and log.

use crate::connections::ConnectionInfo;
use crate::counters::{Counter, Counters, Totals};
use crate::log::Limit;

/// Why a connection closes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CloseCause {
    /// The client has ended it.
    Client,
    /// The client, or a host in between, has reset it, or it has timed out.
    Reset,
    /// The client has asked for it: `quit`, or `shutdown`.
    Quit,
    /// No request came for the time that `-o idle_timeout` sets, or no handshake of TLS within ten seconds.
    Idle,
    /// The input is not a request, and nothing tells where the next one begins.
    Protocol,
    /// A login has failed, and as many connections wait after one as there may be.
    Login,
    /// There was no memory for its replies, or others needed the memory that it held.
    Memory,
    /// The machine has lost bytes of its requests or replies.
    Loss,
    /// The kernel does not let the server poll it.
    System,
}

impl CloseCause {
    /// All causes, and what `stats` calls their counts.
    pub const ALL: [(CloseCause, &'static str); 9] = [
        (CloseCause::Client, "coua_close_client"),
        (CloseCause::Reset, "coua_close_reset"),
        (CloseCause::Quit, "coua_close_quit"),
        (CloseCause::Idle, "coua_close_idle"),
        (CloseCause::Protocol, "coua_close_protocol"),
        (CloseCause::Login, "coua_close_login"),
        (CloseCause::Memory, "coua_close_memory"),
        (CloseCause::Loss, "coua_close_memory_error"),
        (CloseCause::System, "coua_close_system"),
    ];

    /// How many connections have closed for this cause.
    pub fn count_in(self, totals: &Totals) -> u64 {
        match self {
            CloseCause::Client => totals.closed_by_client,
            CloseCause::Reset => totals.closed_reset,
            CloseCause::Quit => totals.closed_quit,
            CloseCause::Idle => totals.idle_kicks,
            CloseCause::Protocol => totals.closed_protocol,
            CloseCause::Login => totals.closed_login,
            CloseCause::Memory => totals.closed_memory,
            CloseCause::Loss => totals.closed_loss,
            CloseCause::System => totals.closed_system,
        }
    }

    /// Counts and logs a connection that closes for this cause.
    pub fn note(self, connection: &ConnectionInfo, counters: &Counters, since_start_ms: u64) {
        self.counter(counters).add(1);
        let (number, peer) = (connection.descriptor, &connection.peer);
        tracing::trace!("<{number} connection closed: {peer}");
        let (why, limit) = match self {
            CloseCause::Client | CloseCause::Quit => return,
            CloseCause::Reset => ("it was reset", &RESET),
            CloseCause::Idle => (
                "no request for longer than -o idle_timeout, or no handshake of TLS",
                &IDLE,
            ),
            CloseCause::Protocol => ("what it sent is not a request", &PROTOCOL),
            CloseCause::Login => ("too many logins have failed at once", &LOGIN),
            CloseCause::Memory => (
                "no memory for its replies or its unfinished requests",
                &MEMORY,
            ),
            CloseCause::Loss => (
                "the machine has lost memory that held its requests or replies",
                &LOSS,
            ),
            CloseCause::System => ("the system cannot watch its socket", &SYSTEM),
        };
        limit.debug(
            since_start_ms,
            format_args!("connection from {peer} closed: {why}"),
        );
    }

    fn counter(self, counters: &Counters) -> &Counter {
        match self {
            CloseCause::Client => &counters.closed_by_client,
            CloseCause::Reset => &counters.closed_reset,
            CloseCause::Quit => &counters.closed_quit,
            CloseCause::Idle => &counters.idle_kicks,
            CloseCause::Protocol => &counters.closed_protocol,
            CloseCause::Login => &counters.closed_login,
            CloseCause::Memory => &counters.closed_memory,
            CloseCause::Loss => &counters.closed_loss,
            CloseCause::System => &counters.closed_system,
        }
    }
}

static RESET: Limit = Limit::new();
static IDLE: Limit = Limit::new();
static PROTOCOL: Limit = Limit::new();
static LOGIN: Limit = Limit::new();
static MEMORY: Limit = Limit::new();
static LOSS: Limit = Limit::new();
static SYSTEM: Limit = Limit::new();
