//! Replies of both text dialects.

use coua_protocol::Span;
use coua_protocol::response::{Answer, Part, ResponseStep, Responses};

use super::super::measured::Measured;
use super::super::plan::{Dialect, Plan};
use super::{Front, Heard, Unexpected};
use crate::workload::Op;

/// How far one connection has read its replies.
#[derive(Debug)]
pub(in super::super) struct Lines {
    responses: Responses,
    value: Value,
}

/// The value that is being received.
#[derive(Clone, Copy, Debug, Default)]
struct Value {
    number: u32,
    /// Bytes of it that have arrived.
    at: usize,
    /// Whether all of them were right.
    right: bool,
}

impl Lines {
    pub(super) fn new() -> Lines {
        Lines {
            responses: Responses::new(),
            value: Value::default(),
        }
    }

    /// See [`super::Replies::next`].
    #[inline]
    pub(super) fn next(
        &mut self,
        plan: &Plan,
        front: &mut Front<'_>,
        input: &[u8],
        measured: &mut Measured,
    ) -> Result<Heard, Unexpected> {
        let (consumed, part, complete) = match self.responses.next(input) {
            ResponseStep::More { .. } => return Ok(Heard::More),
            ResponseStep::Bad => return Err(Unexpected),
            ResponseStep::Part {
                consumed,
                part,
                complete,
            } => (consumed as usize, part, complete),
        };
        // A meta multi-get ends with the answer to its `mn`, whatever came before.
        let open_ended = front.asked.many && plan.dialect == Dialect::Meta;
        let over = match part {
            Part::Value { key, value_len, .. } if front.asked.op.reads() => {
                let number = front.find_key(plan, bytes(key, input), measured)?;
                self.expect(plan, number, value_len);
                false
            }
            Part::MetaValue { value_len, flags } if front.asked.op.reads() => {
                let number = if open_ended {
                    let key = key_flag(bytes(flags, input)).ok_or(Unexpected)?;
                    front.find_key(plan, key, measured)?
                } else {
                    front.pop().ok_or(Unexpected)?
                };
                self.expect(plan, number, value_len);
                false
            }
            Part::Body { bytes: body, last } => {
                self.compare(plan, bytes(body, input), last, measured);
                complete && !open_ended
            }
            Part::Line { answer, line } => {
                judge(front, answer, bytes(line, input), open_ended, measured)?;
                !open_ended || answer == Answer::MetaNoop
            }
            Part::Value { .. } | Part::MetaValue { .. } => return Err(Unexpected),
        };
        Ok(match over {
            true => Heard::Reply(consumed),
            false => Heard::Part(consumed),
        })
    }

    #[inline]
    fn expect(&mut self, plan: &Plan, number: u32, value_len: u32) {
        self.value = Value {
            number,
            at: 0,
            right: plan.values.of(number).len() == value_len as usize,
        };
    }

    #[inline]
    fn compare(&mut self, plan: &Plan, body: &[u8], last: bool, measured: &mut Measured) {
        let value = &mut self.value;
        let expected = plan.values.of(value.number);
        let same = expected.get(value.at..value.at + body.len()) == Some(body);
        value.right &= same || plan.canned;
        value.at += body.len();
        if last {
            measured.value(plan, value.number, value.right);
        }
    }
}

#[inline]
fn bytes(span: Span, input: &[u8]) -> &[u8] {
    &input[span.start as usize..][..span.len as usize]
}

/// The key among the flags of a meta hit.
fn key_flag(flags: &[u8]) -> Option<&[u8]> {
    let mut words = flags.split(|&byte| byte == b' ');
    words.find_map(|word| word.strip_prefix(b"k"))
}

/// Counts the outcome in a line for the request at the front. After an error, `open_ended` replies
/// go on.
#[inline]
fn judge(
    front: &mut Front<'_>,
    answer: Answer,
    line: &[u8],
    open_ended: bool,
    measured: &mut Measured,
) -> Result<(), Unexpected> {
    use Answer::{
        ClientError, Deleted, End, Error, MetaDone, MetaMiss, MetaNoop, MetaNotFound,
        MetaNotStored, NotFound, NotStored, Number, ServerError, Stored, Touched,
    };
    let op = front.asked.op;
    match (op, answer) {
        (_, Error | ClientError | ServerError) => {
            measured.error(op, line);
            if !open_ended {
                front.drop_rest();
            }
        }
        (Op::Get | Op::Gets | Op::Gat, End | MetaMiss | MetaNoop) => front.miss_rest(measured),
        (Op::Set | Op::Add | Op::Replace, Stored | MetaDone) => {
            measured.stored += 1;
            front.drop_rest();
        }
        (Op::Set | Op::Add | Op::Replace, NotStored | MetaNotStored) => {
            measured.not_stored += 1;
            front.drop_rest();
        }
        (Op::Delete, Deleted | MetaDone)
        | (Op::Touch, Touched | MetaDone)
        | (Op::Incr | Op::Decr, Number(_) | MetaDone) => {
            measured.hits += 1;
            front.drop_rest();
        }
        (Op::Delete | Op::Touch | Op::Incr | Op::Decr, NotFound | MetaNotFound | MetaMiss) => {
            front.miss_rest(measured);
        }
        _ => return Err(Unexpected),
    }
    Ok(())
}
