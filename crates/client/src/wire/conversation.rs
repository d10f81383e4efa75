//! One connection's requests and answers, as bytes.

use std::collections::VecDeque;

use coua_protocol::response::{LINE_LEN_MAX, Part, ResponseStep, Responses};

use crate::key::{self, KeyForm};
use crate::wire::answer::{
    Expected, MultiKeys, Partial, Shape, Ticket, VALUE_CAPACITY_MAX, Whole, checked, line_part,
    value_end, whole_value,
};
use crate::wire::encode::{self, Dialect, encode};
use crate::wire::error::{Effect, ProtocolError, RequestError};
use crate::wire::limits::Limits;
use crate::wire::reply::{Refusal, Reply, ReplyFlags};
use crate::wire::request::Request;

/// Bytes of answers that a conversation holds before they are read.
const INPUT_LEN: usize = 32 << 10;

/// A request and its answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Completion {
    /// The request.
    pub ticket: Ticket,
    /// The answer.
    pub reply: Reply,
}

/// A request whose answer will not come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Abandoned {
    /// The request.
    pub ticket: Ticket,
    /// What may have become of it.
    pub effect: Effect,
}

/// One connection's requests and answers.
///
/// # Contract
/// Push requests; write [`Conversation::output`] to the connection and say with [`Conversation::sent`]
/// how much of it was taken. Read into [`Conversation::space`], say with [`Conversation::received`] how
/// much came, and then call [`Conversation::poll`] until it gives `None`. Answers come in the order of
/// the requests. After an error, or when the connection is lost, [`Conversation::abandon`] tells what is
/// known of each request without an answer; the conversation takes nothing more.
#[derive(Debug)]
pub struct Conversation {
    dialect: Dialect,
    limits: Limits,
    output: Vec<u8>,
    /// What of `output` the connection has taken.
    output_front: usize,
    /// Bytes that the connection has taken since its beginning.
    sent: u64,
    input: Box<[u8]>,
    front: usize,
    end: usize,
    responses: Responses,
    expected: VecDeque<Expected>,
    next_ticket: Ticket,
    partial: Partial,
    /// The keys of multi-gets without an answer, oldest first.
    multi_keys: VecDeque<MultiKeys>,
    /// The first error line within the quiet multi-get that is being answered.
    refusal: Option<Refusal>,
    over: Option<ProtocolError>,
}

/// What [`Conversation::step`] came to.
enum Step {
    More,
    On,
    Done(Completion),
}

impl Conversation {
    /// At the beginning of a connection.
    #[must_use]
    pub fn new(dialect: Dialect, limits: Limits) -> Self {
        Conversation {
            dialect,
            limits,
            output: Vec::new(),
            output_front: 0,
            sent: 0,
            input: vec![0; INPUT_LEN.max(2 * LINE_LEN_MAX)].into_boxed_slice(),
            front: 0,
            end: 0,
            responses: Responses::new(),
            expected: VecDeque::new(),
            next_ticket: 0,
            partial: Partial::None,
            multi_keys: VecDeque::new(),
            refusal: None,
            over: None,
        }
    }

    /// How requests are written from here on.
    #[must_use]
    pub fn dialect(&self) -> Dialect {
        self.dialect
    }

    /// Changes how requests are written. Those under way are not touched.
    pub fn set_dialect(&mut self, dialect: Dialect) {
        self.dialect = dialect;
    }

    /// Takes a request and says which ticket its answer will have.
    ///
    /// # Errors
    /// When it cannot be sent, or too many are in flight; nothing is taken then.
    pub fn push(&mut self, request: &Request<'_>) -> Result<Ticket, RequestError> {
        self.check_room(1)?;
        encode(request, self.dialect, &self.limits, &mut self.output)?;
        let shape = Shape::of(request, self.dialect);
        Ok(self.expect(shape, request.reads_only(), request.has_body()))
    }

    /// Takes a multi-get, and says which ticket its first key has. The keys have tickets one after another;
    /// behind them is one more, whose answer says that the rest are misses. If the server cannot read some
    /// item, that last answer is a refusal, and which of the rest are missing is not known.
    ///
    /// It is one classic `get`, which both dialects have and servers answer in the least time; with a
    /// binary key among them it is a quiet `mg` for each key and one `mn`.
    ///
    /// # Errors
    /// As [`Conversation::push`]; [`RequestError::NeedsMeta`] for a binary key in classic text.
    pub fn push_multi_get<'k, K>(&mut self, keys: K, cas: bool) -> Result<Ticket, RequestError>
    where
        K: ExactSizeIterator<Item = &'k [u8]> + Clone,
    {
        let too_many = |_| RequestError::Full;
        let count = u32::try_from(keys.len()).map_err(too_many)?;
        self.check_room(keys.len() + 1)?;
        let mut is_plain = count > 0;
        for key in keys.clone() {
            is_plain &= key::form(key, self.limits.binary_keys)? == KeyForm::Plain;
        }
        if is_plain {
            self.output
                .extend_from_slice(if cas { b"gets " } else { b"get " });
            let begin = self.output.len();
            for key in keys {
                self.output.extend_from_slice(key);
                self.output.push(b' ');
            }
            self.output.pop();
            let keys = self.output[begin..].into();
            self.multi_keys.push_back(MultiKeys::new(keys));
            self.output.extend_from_slice(b"\r\n");
        } else if self.dialect == Dialect::Classic {
            return Err(RequestError::NeedsMeta("a binary key"));
        } else {
            for (index, key) in (0..count).zip(keys) {
                let form = key::form(key, self.limits.binary_keys)?;
                encode::quiet_get(key, form, cas, index, &mut self.output);
            }
            self.output.extend_from_slice(b"mn\r\n");
        }
        let first = self.next_ticket;
        self.next_ticket += u64::from(count);
        let shape = match is_plain {
            true => Shape::MultiGet { count },
            false => Shape::Quiet { count, next: 0 },
        };
        self.expect(shape, true, false);
        Ok(first)
    }

    fn check_room(&self, count: usize) -> Result<(), RequestError> {
        match self.expected.len() + count <= self.limits.in_flight_max && self.over.is_none() {
            true => Ok(()),
            false => Err(RequestError::Full),
        }
    }

    fn expect(&mut self, shape: Shape, reads_only: bool, has_body: bool) -> Ticket {
        let ticket = self.next_ticket;
        self.next_ticket += 1;
        self.expected.push_back(Expected {
            ticket,
            shape,
            reads_only,
            has_body,
            ends_at: self.sent + self.output().len() as u64,
        });
        ticket
    }

    /// The bytes to send.
    #[must_use]
    pub fn output(&self) -> &[u8] {
        &self.output[self.output_front..]
    }

    /// The connection has taken this many bytes of [`Conversation::output`].
    ///
    /// # Panics
    /// When there are not so many.
    pub fn sent(&mut self, len: usize) {
        assert!(len <= self.output().len(), "more was sent than there is");
        self.output_front += len;
        self.sent += len as u64;
        if self.output_front == self.output.len() {
            self.output_front = 0;
            self.output.clear();
            // What one large value took is not kept for good.
            self.output.shrink_to(VALUE_CAPACITY_MAX);
        }
    }

    /// Requests without an answer; a multi-get is one.
    #[must_use]
    pub fn pending(&self) -> usize {
        self.expected.len()
    }

    /// Nothing is asked, nothing has come unasked, and the conversation can go on.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.expected.is_empty() && self.over.is_none() && self.front == self.end
    }

    /// Where the next bytes of the connection go; never empty after [`Conversation::poll`] gave `None`.
    pub fn space(&mut self) -> &mut [u8] {
        if self.front == self.end {
            (self.front, self.end) = (0, 0);
        } else if self.end == self.input.len() {
            self.input.copy_within(self.front..self.end, 0);
            (self.front, self.end) = (0, self.end - self.front);
        }
        &mut self.input[self.end..]
    }

    /// This many bytes have come into [`Conversation::space`].
    ///
    /// # Panics
    /// When there is no such room.
    pub fn received(&mut self, len: usize) {
        assert!(
            len <= self.input.len() - self.end,
            "more came than there is room for"
        );
        self.end += len;
    }

    /// The next answer that is whole.
    ///
    /// # Errors
    /// When what came cannot be the answer to the oldest request. Every later call says the same.
    pub fn poll(&mut self) -> Result<Option<Completion>, ProtocolError> {
        loop {
            if let Some(over) = &self.over {
                return Err(over.clone());
            }
            match self.step() {
                Ok(Step::More) => return Ok(None),
                Ok(Step::On) => {}
                Ok(Step::Done(completion)) => return Ok(Some(completion)),
                Err(error) => self.over = Some(error),
            }
        }
    }

    /// Ends the conversation and tells what is known of each request without an answer, oldest first. For
    /// a multi-get that is its last ticket.
    pub fn abandon(&mut self) -> Vec<Abandoned> {
        self.over.get_or_insert(ProtocolError::Unsolicited);
        let sent = self.sent;
        let abandoned = self.expected.drain(..).map(|expected| Abandoned {
            ticket: expected.ticket,
            effect: match expected {
                _ if expected.ends_at > sent => Effect::NotSent,
                _ if expected.reads_only => Effect::Reads,
                _ => Effect::Unknown,
            },
        });
        abandoned.collect()
    }

    fn step(&mut self) -> Result<Step, ProtocolError> {
        let input = &self.input[self.front..self.end];
        let (mut consumed, part) = match self.responses.next(input) {
            ResponseStep::More { .. } => return Ok(Step::More),
            ResponseStep::Bad => return Err(ProtocolError::Malformed),
            ResponseStep::Part { consumed, part, .. } => (consumed as usize, part),
        };
        let expected = self
            .expected
            .front_mut()
            .ok_or(ProtocolError::Unsolicited)?;
        let partial = &mut self.partial;
        let is_fresh = matches!(partial, Partial::None);
        let whole = match part {
            Part::Line { answer, line } => {
                let refusal = &mut self.refusal;
                line_part(
                    expected,
                    partial,
                    refusal,
                    answer,
                    line.of(input),
                    &self.limits,
                )?
            }
            Part::Value {
                client_flags,
                value_len,
                cas,
                key,
            } => {
                // `CONFIG` answers one request alone, and `VALUE` all others.
                let is_config = input.first() == Some(&b'C');
                let index = match expected.shape {
                    Shape::Cluster if is_config => Some(0),
                    _ if is_config => None,
                    Shape::ClassicGet => Some(0),
                    Shape::MultiGet { .. } => {
                        let keys = self.multi_keys.front_mut();
                        keys.and_then(|keys| keys.find(key.of(input)))
                    }
                    _ => None,
                };
                let index = index.filter(|_| is_fresh).ok_or(ProtocolError::Misplaced)?;
                let flags = ReplyFlags {
                    client_flags,
                    cas,
                    ..ReplyFlags::default()
                };
                begin_value(
                    (expected, partial),
                    &mut self.responses,
                    &self.limits,
                    (input, &mut consumed),
                    (flags, value_len, index),
                )?
            }
            Part::MetaValue { value_len, flags } => {
                let has_value = matches!(
                    expected.shape,
                    Shape::MetaGet | Shape::MetaArithmetic | Shape::Quiet { .. }
                );
                if !has_value || !is_fresh {
                    return Err(ProtocolError::Misplaced);
                }
                let flags = ReplyFlags::parse(flags.of(input)).ok_or(ProtocolError::Malformed)?;
                begin_value(
                    (expected, partial),
                    &mut self.responses,
                    &self.limits,
                    (input, &mut consumed),
                    (flags, value_len, 0),
                )?
            }
            Part::Body { bytes, last } => {
                let Partial::Value { value, .. } = partial else {
                    return Err(ProtocolError::Misplaced);
                };
                value.extend_from_slice(bytes.of(input));
                match last {
                    true => value_end(expected, partial)?,
                    false => None,
                }
            }
        };
        self.front += consumed;
        let Some((ticket, reply, over)) = whole else {
            return Ok(Step::On);
        };
        if over {
            let refused = matches!(
                &reply,
                Reply::Refused(Refusal::Client(_) | Refusal::Unknown(_))
            );
            if refused && expected.has_body {
                self.over = Some(ProtocolError::BodyRefused);
            }
            if let Shape::MultiGet { .. } = expected.shape {
                self.multi_keys.pop_front();
            }
            self.expected.pop_front();
        }
        Ok(Step::Done(Completion { ticket, reply }))
    }
}

/// Takes a value whose line has been read: all of it if it has come, which is what small ones do. Adds what
/// that is to `consumed`.
#[inline]
fn begin_value(
    (expected, partial): (&mut Expected, &mut Partial),
    responses: &mut Responses,
    limits: &Limits,
    (input, consumed): (&[u8], &mut usize),
    (flags, value_len, index): (ReplyFlags, u32, u32),
) -> Result<Option<Whole>, ProtocolError> {
    let len = checked(value_len, limits)?;
    let behind = &input[*consumed..];
    if behind.len() >= len + 2 {
        let ResponseStep::Part {
            consumed: of_body,
            part: Part::Body { bytes, last: true },
            ..
        } = responses.next(behind)
        else {
            // Behind the value is no end of a line.
            return Err(ProtocolError::Malformed);
        };
        *consumed += of_body as usize;
        let value = bytes.of(behind).to_vec();
        return whole_value(expected, partial, flags, value, index);
    }
    *partial = Partial::value(flags, value_len, index, limits)?;
    Ok(None)
}

#[cfg(test)]
mod tests;
