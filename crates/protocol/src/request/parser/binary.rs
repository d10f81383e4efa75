//! Steps of a connection that speaks the binary protocol.

use super::{CloseReason, FRONT, Parser, State, Step, held};
use crate::limits::Limits;
use crate::op::{Op, Store};
use crate::request::binary;
use crate::span::Span;

impl Parser {
    /// As [`Parser::next`].
    pub(super) fn binary(&mut self, input: &[u8], limits: &Limits) -> Step {
        let held = held(input);
        match self.state {
            State::Gather { need } if held < need => return Step::More { at_least: need },
            State::Swallow { rest, refusal } => return self.swallow(rest, refusal, input),
            State::Locked { stage, .. } => return self.locked_binary(stage, input),
            State::Body { rest } => {
                let is_end = held >= rest;
                let consumed = held.min(rest);
                let bytes = Span {
                    start: 0,
                    len: consumed,
                };
                let (op, state) = match is_end {
                    true => (
                        Op::StoreEnd {
                            bytes,
                            terminated: true,
                        },
                        FRONT,
                    ),
                    false => (
                        Op::StoreBody { bytes },
                        State::Body {
                            rest: rest - consumed,
                        },
                    ),
                };
                self.state = state;
                return Step::Op { consumed, op };
            }
            _ => {}
        }
        match binary::front(input, limits) {
            binary::Front::More(at_least) => Step::More { at_least },
            binary::Front::Login { consumed, login } => self.locks(login, consumed),
            binary::Front::BadMagic => Step::Close {
                reason: CloseReason::BadMagic,
            },
            binary::Front::Store { consumed, store } => {
                self.binary_store(store, consumed, held, limits)
            }
            binary::Front::Op { consumed, op, rest } => {
                self.state = match rest {
                    0 => FRONT,
                    rest => State::Swallow {
                        rest,
                        refusal: None,
                    },
                };
                Step::Op { consumed, op }
            }
            binary::Front::Refused {
                consumed,
                store,
                refusal,
                rest,
            } => self.refused(store, refusal, consumed, rest),
        }
    }

    fn binary_store(
        &mut self,
        mut store: Store,
        head_len: u32,
        held: u32,
        limits: &Limits,
    ) -> Step {
        // Both are bounded far below 2^31.
        let need = head_len + store.value_len;
        if need > limits.gather_max && store.value_len > 0 {
            self.state = State::Body {
                rest: store.value_len,
            };
            return Step::Op {
                consumed: head_len,
                op: Op::StoreStream(store),
            };
        }
        if held < need {
            self.state = State::Gather { need };
            return Step::More { at_least: need };
        }
        self.state = FRONT;
        store.value = Span {
            start: head_len,
            len: store.value_len,
        };
        Step::Op {
            consumed: need,
            op: Op::Store(store),
        }
    }
}
