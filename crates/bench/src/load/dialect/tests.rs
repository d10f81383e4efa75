//! Replies that must be accepted, however they are cut, and those that must be refused.

use std::sync::Arc;

use super::*;
use crate::load::requests::Requests;
use crate::workload::{Keys, Mix, Sampler, Sizes, Ttls, Values};

fn plan(dialect: Dialect, op: Op, keys_per_get: u32) -> Plan {
    Plan {
        dialect,
        keys: Keys::new(Sizes::Fixed(4), 4096).unwrap(),
        values: Arc::new(Values::new(3)),
        mix: Mix::only(op),
        ttls: Ttls::never(),
        keys_per_get,
        canned: false,
    }
}

/// The outcome of a connection's replies when they arrive in pieces of `piece` bytes, and how many
/// requests are left.
fn hear(plan: &Plan, requests: u32, input: &[u8], piece: usize) -> Result<(Measured, usize), ()> {
    let keys = requests * plan.keys_of(Op::Get);
    let mut source = Requests::planned(plan.clone().into(), Sampler::Sequence(1..1 + keys), 1);
    let (mut out, mut numbers) = (Vec::new(), VecDeque::new());
    let mut asked: VecDeque<PendingRequest> =
        std::iter::from_fn(|| source.append(0, &mut out, &mut numbers)).collect();
    let mut replies = Replies::new(plan.dialect);
    let mut measured = Measured::new();
    let (mut at, mut end) = (0, 0);
    while let Some(front) = asked.front_mut() {
        let mut front = Front {
            asked: front,
            numbers: &mut numbers,
        };
        match replies.next(plan, &mut front, &input[at..end], &mut measured) {
            Ok(Heard::More) if end == input.len() => break,
            Ok(Heard::More) => end = input.len().min(end + piece),
            Ok(Heard::Part(bytes)) => at += bytes,
            Ok(Heard::Reply(bytes)) => {
                assert_eq!(front.asked.left, 0, "all keys have an outcome");
                at += bytes;
                asked.pop_front();
            }
            Err(Unexpected) => return Err(()),
        }
    }
    Ok((measured, asked.len()))
}

fn value(number: u32) -> String {
    String::from_utf8(Values::new(3).of(number).to_vec()).unwrap()
}

#[test]
fn every_cut_of_a_reply_means_the_same() {
    let text = format!(
        "VALUE 0001 0 3\r\n{}\r\nVALUE 0003 0 3\r\nxyz\r\nEND\r\nEND\r\n",
        value(1)
    );
    let meta = format!(
        "VA 3 k0001\r\n{}\r\nVA 3 k0003\r\nxyz\r\nMN\r\nMN\r\n",
        value(1)
    );
    for (dialect, input) in [(Dialect::Text, text), (Dialect::Meta, meta)] {
        let plan = plan(dialect, Op::Get, 3);
        for piece in 1..input.len() {
            let (measured, left) = hear(&plan, 2, input.as_bytes(), piece).unwrap();
            let counts = (measured.hits, measured.misses, measured.wrong, left);
            assert_eq!(counts, (1, 4, 1, 0), "{dialect:?} in pieces of {piece}");
        }
    }
}

#[test]
fn a_mirror_is_held_to_every_byte() {
    let plan = plan(Dialect::Mirror, Op::Get, 2);
    for piece in 1..16 {
        let (measured, left) = hear(&plan, 2, b"00010002000300o4", piece).unwrap();
        assert_eq!((measured.hits, measured.wrong, left), (3, 1, 0));
    }
    assert_eq!(hear(&plan, 2, b"000100020003000", 99).unwrap().1, 1);
}

#[test]
fn outcomes_of_each_operation_are_told_apart() {
    let outcome = |dialect, op, reply: &str| {
        let (measured, left) = hear(&plan(dialect, op, 1), 1, reply.as_bytes(), 99).unwrap();
        assert_eq!(left, 0, "{reply:?} is a whole reply");
        (
            measured.hits,
            measured.misses,
            measured.stored,
            measured.not_stored,
            measured.refused,
        )
    };
    for (dialect, op, reply, expected) in [
        (Dialect::Text, Op::Set, "STORED\r\n", (0, 0, 1, 0, 0)),
        (Dialect::Text, Op::Add, "NOT_STORED\r\n", (0, 0, 0, 1, 0)),
        (
            Dialect::Text,
            Op::Set,
            "SERVER_ERROR full\r\n",
            (0, 0, 0, 0, 1),
        ),
        (
            Dialect::Text,
            Op::Get,
            "SERVER_ERROR full\r\n",
            (0, 0, 0, 0, 1),
        ),
        (Dialect::Text, Op::Delete, "DELETED\r\n", (1, 0, 0, 0, 0)),
        (Dialect::Text, Op::Delete, "NOT_FOUND\r\n", (0, 1, 0, 0, 0)),
        (Dialect::Text, Op::Incr, "17\r\n", (1, 0, 0, 0, 0)),
        (Dialect::Text, Op::Touch, "TOUCHED\r\n", (1, 0, 0, 0, 0)),
        (Dialect::Meta, Op::Set, "HD\r\n", (0, 0, 1, 0, 0)),
        (Dialect::Meta, Op::Add, "NS\r\n", (0, 0, 0, 1, 0)),
        (Dialect::Meta, Op::Get, "EN\r\n", (0, 1, 0, 0, 0)),
        (Dialect::Meta, Op::Incr, "NF\r\n", (0, 1, 0, 0, 0)),
        (Dialect::Meta, Op::Touch, "HD\r\n", (1, 0, 0, 0, 0)),
    ] {
        assert_eq!(outcome(dialect, op, reply), expected, "{op:?} {reply:?}");
    }
}

#[test]
fn what_no_request_asked_for_is_refused() {
    for (dialect, op, reply) in [
        (Dialect::Text, Op::Get, "VALUE 0009 0 3\r\nabc\r\nEND\r\n"),
        (Dialect::Text, Op::Get, "STORED\r\n"),
        (Dialect::Text, Op::Set, "END\r\n"),
        (Dialect::Text, Op::Delete, "VALUE 0001 0 3\r\nabc\r\n"),
        (Dialect::Meta, Op::Set, "VA 3\r\nabc\r\n"),
        (Dialect::Binary, Op::Get, "STORED\r\n                      "),
    ] {
        let heard = hear(&plan(dialect, op, 1), 1, reply.as_bytes(), 99);
        assert!(heard.is_err(), "{dialect:?} {op:?} {reply:?}");
    }
}
