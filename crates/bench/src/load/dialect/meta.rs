//! Requests of the meta dialect.
//!
//! A multi-get is one quiet `mg` for each key, whose misses get no reply and whose hits name their
//! key, and then an `mn`, whose reply is the end.

use super::super::plan::{Plan, append_decimal};
use crate::workload::Op;

/// Appends a request.
#[inline]
pub(super) fn append(plan: &Plan, op: Op, numbers: &[u32], ttl: u32, out: &mut Vec<u8>) {
    if op.reads() {
        return append_gets(plan, op, numbers, ttl, out);
    }
    let number = numbers[0];
    out.extend_from_slice(match op {
        Op::Delete => b"md ",
        Op::Incr | Op::Decr => b"ma ",
        Op::Touch => b"mg ",
        _ => b"ms ",
    });
    plan.append_key(op, number, out);
    if op.stores() {
        out.push(b' ');
        append_decimal(plan.values.of(number).len() as u64, out);
    }
    // Missing counters begin at 0.
    match op {
        Op::Add => out.extend_from_slice(b" ME"),
        Op::Replace => out.extend_from_slice(b" MR"),
        Op::Incr => out.extend_from_slice(b" N0 J0"),
        Op::Decr => out.extend_from_slice(b" N0 J0 MD"),
        _ => {}
    }
    if op == Op::Touch || op.stores() && ttl > 0 {
        out.extend_from_slice(b" T");
        append_decimal(ttl.into(), out);
    }
    out.extend_from_slice(b"\r\n");
    if op.stores() {
        out.extend_from_slice(plan.values.of(number));
        out.extend_from_slice(b"\r\n");
    }
}

fn append_gets(plan: &Plan, op: Op, numbers: &[u32], ttl: u32, out: &mut Vec<u8>) {
    let many = plan.keys_of(op) > 1;
    for &number in numbers {
        out.extend_from_slice(b"mg ");
        plan.append_key(op, number, out);
        out.extend_from_slice(if many { b" v k q" } else { b" v" });
        match op {
            Op::Gets => out.extend_from_slice(b" c"),
            Op::Gat => {
                out.extend_from_slice(b" T");
                append_decimal(ttl.into(), out);
            }
            _ => {}
        }
        out.extend_from_slice(b"\r\n");
    }
    if many {
        out.extend_from_slice(b"mn\r\n");
    }
}
