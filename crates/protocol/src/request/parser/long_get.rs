//! A `get` whose line is too long to be waited for: it is answered as it arrives.

use super::{FRONT, Parser, State, Step, held};
use crate::error_line::ErrorLine;
use crate::limits::KEY_LEN_MAX;
use crate::op::Op;
use crate::request::keys::{Lookup, space_len};
use crate::span::Span;

impl Parser {
    /// The next key of the line.
    pub(super) fn long_get(&mut self, lookup: Lookup, any: bool, input: &[u8]) -> Step {
        let spaces = space_len(input);
        let text = &input[spaces..];
        let Some(len) = memchr::memchr2(b' ', b'\n', text) else {
            // The last byte may be the carriage return of the line's end.
            if text.len() > KEY_LEN_MAX + 1 {
                self.state = State::Discard {
                    error: ErrorLine::BadFormat,
                };
                return Step::Skip {
                    consumed: held(input),
                };
            }
            return match spaces {
                0 => Step::More {
                    at_least: held(input) + 1,
                },
                _ => Step::Skip {
                    consumed: Span::between(0, spaces).len,
                },
            };
        };
        let ended = text[len] == b'\n';
        let word = match (ended, text[..len].strip_suffix(b"\r")) {
            (true, Some(word)) => word,
            _ => &text[..len],
        };
        let consumed = Span::between(0, spaces + len + 1).len;
        self.state = match ended {
            true => FRONT,
            false => State::LongGet { lookup, any: true },
        };
        if word.len() > KEY_LEN_MAX || word.is_empty() && !any {
            let error = ErrorLine::BadFormat;
            if !ended {
                self.state = State::Discard { error };
                return Step::Skip { consumed };
            }
            let noreply = false;
            return Step::Op {
                consumed,
                op: Op::Error { error, noreply },
            };
        }
        let key = Span::between(spaces, spaces + word.len());
        Step::Op {
            consumed,
            op: match word.is_empty() {
                true => Op::GetEnd,
                false => lookup.op(key, ended),
            },
        }
    }
}

/// Before the first key of a `get`, or with the CAS of a `gets`.
pub(super) fn begin(cas: bool) -> State {
    State::LongGet {
        lookup: Lookup { touch: None, cas },
        any: false,
    }
}
