//! Requests that take as long as `-o slow_us` says, or longer.
//!
//! A request counts from the beginning of the turn in which it is executed, or from when it began to
//! wait for memory, until it has been executed. So one that had to wait behind others of its turn is
//! slow as well; what it took itself is told beside it. Each is counted and told to who watches; the
//! log has the first of each second, which is the one that the others waited for.

use std::time::Duration;

use coua_protocol::{AdminCommand, BinaryCommand, Op, StoreMode};

use crate::execute::Answers;
use crate::log::Limit;
use crate::session::Session;
use crate::shared::Shared;
use crate::watch::lines::SlowLine;
use crate::watch::{LogStreams, lines};

/// Limits the log lines.
static SLOW: Limit = Limit::new();

/// What makes a request of this turn a slow one. Times are since the server's start.
pub(super) struct SlowRequests {
    limit: Duration,
    turn_began: Duration,
}

/// When a request began.
pub(super) struct Started {
    /// To be executed.
    itself: Duration,
    /// To wait for that.
    waiting: Duration,
}

/// How long a slow request took.
pub(super) struct Took {
    /// With what it waited.
    all: Duration,
    itself: Duration,
}

impl SlowRequests {
    /// For a turn that has begun at `turn_began`; `None` without `-o slow_us`.
    pub(super) fn of_turn(shared: &Shared, turn_began: Duration) -> Option<SlowRequests> {
        let slow_us = shared.settings.slow_us?;
        Some(SlowRequests {
            limit: Duration::from_micros(slow_us),
            turn_began,
        })
    }

    /// A request of `session` is about to be executed.
    pub(super) fn start(&self, session: &Session, shared: &Shared) -> Started {
        let waits_since = session.waits_since_ms().map(Duration::from_millis);
        Started {
            itself: shared.clock.since_start(),
            waiting: waits_since.map_or(self.turn_began, |since| since.min(self.turn_began)),
        }
    }

    /// How long a request has taken that has been executed, if it was a slow one.
    pub(super) fn took(&self, started: &Started, shared: &Shared) -> Option<Took> {
        let ended = shared.clock.since_start();
        let all = ended.saturating_sub(started.waiting);
        (all >= self.limit).then(|| Took {
            all,
            itself: ended.saturating_sub(started.itself),
        })
    }
}

impl Took {
    /// Counts a slow request of `session`, tells of it who watches, and perhaps logs it.
    pub(super) fn tell(
        self,
        command: &'static str,
        key: &[u8],
        session: &Session,
        answers: &Answers<'_>,
    ) {
        answers.counters.slow_requests.add(1);
        let us = |time: Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        let line = SlowLine {
            command,
            key,
            elapsed_us: us(self.all),
            own_us: us(self.itself),
        };
        let connection = &session.connection;
        (answers.shared.watchers).tell(LogStreams::SLOW, |text| {
            lines::slow(text, &line, connection.descriptor);
        });
        if let Some(others) = SLOW.pass(answers.now.since_start_ms) {
            tracing::warn!(
                "slow request (-o slow_us): {command} {} from {} took {} us, {} of them itself \
                 ({others} more since the last such line)",
                key.escape_ascii(),
                connection.peer,
                line.elapsed_us,
                line.own_us,
            );
        }
    }
}

/// What an operation is called.
pub(super) fn name_of(op: &Op) -> &'static str {
    match op {
        Op::Get { .. } | Op::GetEnd => "get",
        Op::Store(store) | Op::StoreStream(store) => name_of_store(store.mode),
        Op::StoreBody { .. } | Op::StoreEnd { .. } => "value",
        Op::StoreRefused(refused) => name_of_store(refused.mode),
        Op::GetAndTouch { .. } => "gat",
        Op::Delete { .. } => "delete",
        Op::Arithmetic(arithmetic) => match arithmetic.decrement {
            true => "decr",
            false => "incr",
        },
        Op::Touch { .. } => "touch",
        Op::MetaGet(_) => "mg",
        Op::MetaDelete(_) => "md",
        Op::MetaArithmetic(_) => "ma",
        Op::MetaDebug { .. } => "me",
        Op::MetaNoop => "mn",
        Op::FlushAll { .. } => "flush_all",
        Op::Version => "version",
        Op::Verbosity { .. } => "verbosity",
        Op::Quit => "quit",
        Op::Stats { .. } => "stats",
        Op::Shutdown { .. } => "shutdown",
        Op::Admin { command, .. } => match command {
            AdminCommand::Slabs => "slabs",
            AdminCommand::Lru => "lru",
            AdminCommand::LruCrawler => "lru_crawler",
            AdminCommand::CacheMemlimit => "cache_memlimit",
            AdminCommand::RefreshCerts => "refresh_certs",
            AdminCommand::Config => "config",
            AdminCommand::Watch => "watch",
            AdminCommand::Poison => "poison",
            AdminCommand::Extstore => "extstore",
            AdminCommand::Rdma => "rdma",
        },
        Op::Login(_) => "login",
        Op::Error { .. } => "error",
        Op::Binary(binary) => match binary.command {
            BinaryCommand::Get { .. } => "get",
            BinaryCommand::Delete { .. } => "delete",
            BinaryCommand::Arithmetic { .. } => "incr",
            BinaryCommand::FlushAll { .. } => "flush_all",
            BinaryCommand::Stats { .. } => "stats",
            _ => "binary",
        },
    }
}

fn name_of_store(mode: StoreMode) -> &'static str {
    match mode {
        StoreMode::Set => "set",
        StoreMode::Add => "add",
        StoreMode::Replace => "replace",
        StoreMode::Append | StoreMode::AppendVivify => "append",
        StoreMode::Prepend | StoreMode::PrependVivify => "prepend",
        StoreMode::Cas => "cas",
    }
}
