//! Requests that are refused although their body has to come: it is passed over, and the answer follows it.

use super::{FRONT, Parser, State, Step, held};
use crate::op::{Op, StoreRefused};
use crate::request::line::Refusal;

impl Parser {
    /// The head of a request has been read that is refused, and answered behind the `rest` bytes of
    /// its body.
    pub(super) fn refused(
        &mut self,
        store: Option<StoreRefused>,
        refusal: Refusal,
        consumed: u32,
        rest: u32,
    ) -> Step {
        let refusal = Some(refusal);
        self.state = State::Swallow { rest, refusal };
        match store.map(Op::StoreRefused) {
            Some(op) => Step::Op { consumed, op },
            None => Step::Skip { consumed },
        }
    }

    /// Passes over what is there of such a body.
    pub(super) fn swallow(&mut self, rest: u32, refusal: Option<Refusal>, input: &[u8]) -> Step {
        let consumed = held(input).min(rest);
        let rest = rest - consumed;
        self.state = match rest {
            0 => FRONT,
            rest => State::Swallow { rest, refusal },
        };
        match refusal {
            Some(refusal) if rest == 0 => Step::Op {
                consumed,
                op: refusal.op(),
            },
            _ => Step::Skip { consumed },
        }
    }
}
