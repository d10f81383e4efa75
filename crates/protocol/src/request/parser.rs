//! A connection's place in its input.

use crate::binary::REQUEST_MAGIC;
use crate::error_line::ErrorLine;
use crate::limits::Limits;
use crate::op::{Op, Store, StoreReply};
use crate::request::fast;
use crate::request::keys::{Keys, Lookup, space_len};
use crate::request::line::{Line, Parsed, Refusal};
use crate::request::step::{CloseReason, GetKey, Step};
use crate::request::{classic, command, meta};
use crate::span::Span;

/// The parser of one connection.
///
/// # Contract
/// Call [`Parser::next`] with all bytes that are there, the oldest unused one
/// first. After [`Step::Op`] and [`Step::Skip`] drop the bytes consumed and call
/// again; after [`Step::More`] call again with the same bytes and more behind
/// them; after [`Step::Close`] do not call again. A buffer that holds
/// [`Limits::gather_max`] and [`Limits::line_max`] bytes (at least
/// [`Limits::LINE_MAX_FLOOR`] + 1) never fills up without a step forward.
///
/// # Differences from memcached 1.6.45
/// - A `get` with a key that is too long is answered one error line. Memcached
///   puts an empty line after it and drops the replies to earlier requests that
///   it has not sent yet, which puts a pipelining client out of step.
/// - Such a key is found before any key of its line is looked up; `gat` there
///   touches the keys before it.
/// - A `get` or `gets` line over [`Limits::line_max`] is answered as it arrives,
///   in bounded memory, so that the error line for a bad key follows the values
///   of the keys before it.
/// - `mg` and `ma` with an opaque that is too long do nothing but answer the
///   error line; there they act first.
/// - The flag `t` of an item that has ended already is 0
///   ([`crate::expiry::TtlWalk::ttl_shown`]); there it wraps round below 2^32.
/// - Words of a line beyond its first 65534 bytes count like the others.
/// - What follows the key of a binary request that takes no value is passed over.
///   Memcached takes it for the next request; where the opcode is unknown it
///   passes over as many bytes more as extras and key have.
/// - A binary request whose lengths cannot be is refused when its header is there.
#[derive(Clone, Copy, Debug)]
pub struct Parser {
    dialect: Dialect,
    state: State,
}

/// What a connection speaks; its first byte decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    /// Nothing has come yet.
    Unknown,
    /// Classic text and meta, mixed at will.
    Text,
    /// The binary protocol.
    Binary,
}

/// What a connection waits for whose input has been parsed as far as it goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Awaited {
    /// A request, or the rest of its line.
    Request,
    /// The value of a store request whose line has come.
    Value,
    /// A value that has been refused.
    RefusedValue,
}

/// How many spaces may stand before a `get` that is not whole.
const LEADING_SPACES_MAX: usize = 100;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// At the front of a request, whose first `scanned` bytes hold no line end.
    Line { scanned: u32 },
    /// At the front of a store request that takes `need` bytes.
    Gather { need: u32 },
    /// At the next key of a line that is there as a whole.
    Keys(Keys),
    /// At the next key of a `get` that is answered as it arrives; `any` has been
    /// found.
    LongGet { lookup: Lookup, any: bool },
    /// Inside of a line that ends with an error.
    Discard { error: ErrorLine },
    /// Inside of a streamed value of which `rest` bytes are left, or at its end.
    Body { rest: u32 },
    /// At the front of a request of somebody who has not logged in, of which `need` bytes must be there.
    Locked { need: u32, stage: Stage },
    /// Inside of a body that nobody wants, of which `rest` bytes are left, its end
    /// included and never 0. `refusal` is answered behind it.
    Swallow { rest: u32, refusal: Option<Refusal> },
}

/// At the front of a request of which nothing is known.
const FRONT: State = State::Line { scanned: 0 };

/// Bytes behind a value.
const VALUE_END: &[u8] = b"\r\n";

/// [`VALUE_END`] in bytes.
const VALUE_END_LEN: u32 = 2;

impl Parser {
    /// A parser at the beginning of a connection.
    #[must_use]
    pub const fn new() -> Self {
        Parser::of(Dialect::Unknown)
    }

    /// A parser at the beginning of a connection that may speak only `dialect`.
    #[must_use]
    pub const fn of(dialect: Dialect) -> Self {
        Parser {
            dialect,
            state: FRONT,
        }
    }

    /// A parser at the beginning of `input`, which is all there is: a datagram's requests.
    #[inline]
    #[must_use]
    pub fn at_start_of(dialect: Dialect, input: &[u8]) -> Self {
        let mut parser = Self::of(dialect);
        if let Some(&first) = input.first() {
            parser.decide(first);
        }
        parser
    }

    /// What the connection speaks.
    #[must_use]
    pub const fn dialect(&self) -> Dialect {
        self.dialect
    }

    /// Whether the connection stands between two requests, so that bytes that it
    /// has not sent yet are no part of an old one.
    #[must_use]
    pub fn is_between_requests(&self) -> bool {
        matches!(self.state, FRONT)
    }

    /// What the connection waits for, once [`Parser::next`] has used up what it can.
    #[must_use]
    pub const fn awaits(&self) -> Awaited {
        match self.state {
            State::Gather { .. } | State::Body { .. } => Awaited::Value,
            State::Swallow { .. } => Awaited::RefusedValue,
            State::Line { .. }
            | State::Keys(_)
            | State::LongGet { .. }
            | State::Discard { .. }
            | State::Locked { .. } => Awaited::Request,
        }
    }

    /// Does what [`Parser::next`] would where the fast path sees that the next step is
    /// a key of a `get` or `gets`; else does nothing. Most such keys are found so,
    /// but not all.
    #[inline(always)]
    pub fn next_get(&mut self, input: &[u8]) -> Option<GetKey> {
        // Other requests are told apart where this is called.
        if self.is_between_requests() && input.first() != Some(&b'g') {
            return None;
        }
        self.next_likely_get(input)
    }

    #[inline]
    fn next_likely_get(&mut self, input: &[u8]) -> Option<GetKey> {
        if let State::Keys(keys) = &mut self.state {
            if keys.lookup.touch.is_some() {
                return None;
            }
            let taken = keys.take(input)?;
            let cas = keys.lookup.cas;
            if taken.last {
                self.state = FRONT;
            }
            return Some(GetKey {
                consumed: taken.consumed,
                key: taken.key,
                cas,
                last: taken.last,
            });
        }
        if !self.is_between_requests() || self.dialect != Dialect::Text {
            return None;
        }
        fast::get(input)
    }

    /// Parses one step from the front of `input`.
    #[inline]
    pub fn next(&mut self, input: &[u8], limits: &Limits) -> Step {
        if let Some(get) = self.next_get(input) {
            let (key, cas, last) = (get.key, get.cas, get.last);
            return Step::Op {
                consumed: get.consumed,
                op: Op::Get { key, cas, last },
            };
        }
        if self.is_between_requests() && self.dialect == Dialect::Text {
            if let Some((len, store)) = fast::set(input) {
                let parsed = classic::sized(store, limits);
                return self.parsed(parsed, len, input, limits);
            }
            if let Some((consumed, meta)) = meta::fast_get(input) {
                let op = Op::MetaGet(meta);
                return Step::Op { consumed, op };
            }
            if let Some((len, store)) = meta::fast_set(input, limits) {
                return self.store(store, len, input, limits);
            }
        }
        self.step(input, limits)
    }

    /// How many of a streamed value's last bytes must come through the parser,
    /// for a server that receives the others by itself: in the binary protocol
    /// nothing follows a value that its end could be told by.
    #[must_use]
    pub const fn streamed_tail_len(&self) -> usize {
        match self.dialect {
            Dialect::Binary => 1,
            Dialect::Unknown | Dialect::Text => 0,
        }
    }

    /// The first byte of all says which dialect it is.
    #[inline]
    const fn decide(&mut self, first: u8) {
        if matches!(self.dialect, Dialect::Unknown) {
            self.dialect = match first {
                REQUEST_MAGIC => Dialect::Binary,
                _ => Dialect::Text,
            };
        }
    }

    fn step(&mut self, input: &[u8], limits: &Limits) -> Step {
        // Offsets have 32 bits; what lies beyond is parsed when its turn comes.
        let input = &input[..input.len().min(u32::MAX as usize)];
        let Some(&first) = input.first() else {
            return Step::More { at_least: 1 };
        };
        self.decide(first);
        if self.dialect == Dialect::Binary {
            return self.binary(input, limits);
        }
        match self.state {
            State::Line { scanned } => self.line(input, scanned, limits),
            State::Gather { need } if held(input) < need => Step::More { at_least: need },
            State::Gather { .. } => self.line(input, 0, limits),
            State::Keys(keys) => self.keys(keys, input),
            State::LongGet { lookup, any } => self.long_get(lookup, any, input),
            State::Discard { error } => self.discard(error, input),
            State::Body { rest: 0 } => self.body_end(input),
            State::Body { rest } => {
                let consumed = held(input).min(rest);
                let bytes = Span {
                    start: 0,
                    len: consumed,
                };
                self.state = State::Body {
                    rest: rest - consumed,
                };
                Step::Op {
                    consumed,
                    op: Op::StoreBody { bytes },
                }
            }
            State::Swallow { rest, refusal } => self.swallow(rest, refusal, input),
            State::Locked { need, stage } => self.locked_text(need, stage, input),
        }
    }

    fn line(&mut self, input: &[u8], scanned: u32, limits: &Limits) -> Step {
        let scanned = scanned as usize;
        let fresh = input.get(scanned..).unwrap_or_default();
        match memchr::memchr(b'\n', fresh) {
            None => self.unfinished(input, limits),
            Some(at) => {
                let line = Line::new(&input[..=scanned + at]);
                self.parsed(command::parse(&line, limits), line.len, input, limits)
            }
        }
    }

    /// No line end yet.
    fn unfinished(&mut self, input: &[u8], limits: &Limits) -> Step {
        let len = held(input);
        if len > Limits::LINE_MAX_FLOOR {
            let spaces = space_len(input);
            let command = &input[spaces..];
            let cas = command.starts_with(b"gets ");
            if spaces > LEADING_SPACES_MAX || !(cas || command.starts_with(b"get ")) {
                return Step::Close {
                    reason: CloseReason::LineTooLong,
                };
            }
            if len >= limits.line_max {
                // With a space in front it is no command, however it goes on.
                let error = ErrorLine::Unknown;
                let (state, consumed) = match spaces {
                    0 => (long_get::begin(cas), 3 + u32::from(cas)),
                    _ => (State::Discard { error }, len),
                };
                self.state = state;
                return Step::Skip { consumed };
            }
        }
        self.state = State::Line { scanned: len };
        Step::More {
            at_least: len.saturating_add(1),
        }
    }

    /// A line of `len` bytes has been read.
    #[inline]
    fn parsed(&mut self, parsed: Parsed, len: u32, input: &[u8], limits: &Limits) -> Step {
        match parsed {
            Parsed::Op(op) => {
                self.state = FRONT;
                Step::Op { consumed: len, op }
            }
            Parsed::Store(store) => self.store(store, len, input, limits),
            Parsed::Refused(refused) => {
                let rest = refused.value_len + VALUE_END_LEN;
                self.refused(refused.store, refused.refusal, len, rest)
            }
            Parsed::Keys(keys) => self.keys(keys, input),
            Parsed::Close(reason) => Step::Close { reason },
        }
    }

    #[inline]
    fn store(&mut self, mut store: Store, line_len: u32, input: &[u8], limits: &Limits) -> Step {
        let need = u64::from(line_len) + u64::from(store.value_len) + u64::from(VALUE_END_LEN);
        let need = match u32::try_from(need) {
            Ok(need) if need <= limits.gather_max => need,
            _ => {
                self.state = State::Body {
                    rest: store.value_len,
                };
                return Step::Op {
                    consumed: line_len,
                    op: Op::StoreStream(store),
                };
            }
        };
        store.value = Span {
            start: line_len,
            len: store.value_len,
        };
        let Some(request) = input.get(..need as usize) else {
            self.state = State::Gather { need };
            return Step::More { at_least: need };
        };
        self.state = FRONT;
        Step::Op {
            consumed: need,
            op: match request.ends_with(VALUE_END) {
                true => Op::Store(store),
                false => Op::Error {
                    error: ErrorLine::BadDataChunk,
                    noreply: store.reply == StoreReply::None,
                },
            },
        }
    }

    #[inline]
    fn keys(&mut self, mut keys: Keys, input: &[u8]) -> Step {
        let at_least = keys.rest;
        let Some(taken) = keys.take(input) else {
            return Step::More { at_least };
        };
        self.state = match taken.last {
            true => FRONT,
            false => State::Keys(keys),
        };
        Step::Op {
            consumed: taken.consumed,
            op: keys.lookup.op(taken.key, taken.last),
        }
    }

    fn discard(&mut self, error: ErrorLine, input: &[u8]) -> Step {
        let Some(at) = memchr::memchr(b'\n', input) else {
            return Step::Skip {
                consumed: held(input),
            };
        };
        self.state = FRONT;
        Step::Op {
            consumed: Span::between(0, at + 1).len,
            op: Op::Error {
                error,
                noreply: false,
            },
        }
    }

    fn body_end(&mut self, input: &[u8]) -> Step {
        let Some(end) = input.get(..VALUE_END.len()) else {
            return Step::More {
                at_least: VALUE_END_LEN,
            };
        };
        self.state = FRONT;
        Step::Op {
            consumed: VALUE_END_LEN,
            op: Op::StoreEnd {
                bytes: Span::default(),
                terminated: end == VALUE_END,
            },
        }
    }
}

impl Default for Parser {
    fn default() -> Self {
        Self::new()
    }
}

pub use front::Front;
use locked::Stage;

mod binary;
mod front;
mod locked;
mod long_get;
mod refused;
#[cfg(test)]
mod tests;

/// Bytes in the input, which has been cut to what 32 bits can count.
fn held(input: &[u8]) -> u32 {
    u32::try_from(input.len()).unwrap_or(u32::MAX)
}
