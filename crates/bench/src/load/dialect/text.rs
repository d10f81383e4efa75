//! Requests of the classic text dialect.

use super::super::plan::{Plan, append_decimal};
use crate::workload::Op;

/// Appends a request.
#[inline]
pub(super) fn append(plan: &Plan, op: Op, numbers: &[u32], ttl: u32, out: &mut Vec<u8>) {
    out.extend_from_slice(op.name().as_bytes());
    if op == Op::Gat {
        out.push(b' ');
        append_decimal(ttl.into(), out);
    }
    for &number in numbers {
        out.push(b' ');
        plan.append_key(op, number, out);
    }
    match op {
        Op::Set | Op::Add | Op::Replace => {
            let value = plan.values.of(numbers[0]);
            out.extend_from_slice(b" 0 ");
            append_decimal(ttl.into(), out);
            out.push(b' ');
            append_decimal(value.len() as u64, out);
            out.extend_from_slice(b"\r\n");
            out.extend_from_slice(value);
        }
        Op::Incr | Op::Decr => out.extend_from_slice(b" 1"),
        Op::Touch => {
            out.push(b' ');
            append_decimal(ttl.into(), out);
        }
        Op::Get | Op::Gets | Op::Gat | Op::Delete => {}
    }
    out.extend_from_slice(b"\r\n");
}
