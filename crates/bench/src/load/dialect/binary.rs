//! The binary protocol.
//!
//! A header of 24 bytes, then extras, key and value; numbers are big-endian.
//!
//! ```text
//! byte 0       1        2        3
//!   0  magic   opcode   length of the key
//!   4  extras  type     status (replies)
//!   8  length of all that follows the header
//!  12  opaque: the key's number, which the reply repeats
//!  16  CAS
//! ```
//! A multi-get is a quiet get for each key, whose misses get no reply, and a no-op, whose reply is
//! the end.

use super::super::measured::Measured;
use super::super::plan::Plan;
use super::{Front, Heard, Unexpected};
use crate::workload::Op;

const HEADER: usize = 24;
const REQUEST: u8 = 0x80;
const REPLY: u8 = 0x81;
const NOOP: u8 = 0x0a;
/// Quiet forms of reads.
const GET_QUIET: u8 = 0x09;
const GAT_QUIET: u8 = 0x1e;
/// Statuses that are outcomes, not errors.
const DONE: u16 = 0;
const NOT_FOUND: u16 = 1;
const EXISTS: u16 = 2;
const NOT_STORED: u16 = 5;

fn opcode(op: Op, many: bool) -> u8 {
    match op {
        Op::Get | Op::Gets if many => GET_QUIET,
        Op::Gat if many => GAT_QUIET,
        Op::Get | Op::Gets => 0x00,
        Op::Gat => 0x1d,
        Op::Set => 0x01,
        Op::Add => 0x02,
        Op::Replace => 0x03,
        Op::Delete => 0x04,
        Op::Incr => 0x05,
        Op::Decr => 0x06,
        Op::Touch => 0x1c,
    }
}

/// Appends a request.
pub(super) fn append(plan: &Plan, op: Op, numbers: &[u32], ttl: u32, out: &mut Vec<u8>) {
    let many = plan.keys_of(op) > 1;
    for &number in numbers {
        let start = out.len();
        out.extend_from_slice(&[0; HEADER]);
        match op {
            Op::Set | Op::Add | Op::Replace => {
                out.extend_from_slice(&0u32.to_be_bytes());
                out.extend_from_slice(&ttl.to_be_bytes());
            }
            // Adds or subtracts one; a missing counter begins at 0 and does not expire.
            Op::Incr | Op::Decr => {
                out.extend_from_slice(&1u64.to_be_bytes());
                out.extend_from_slice(&0u64.to_be_bytes());
                out.extend_from_slice(&0u32.to_be_bytes());
            }
            Op::Touch | Op::Gat => out.extend_from_slice(&ttl.to_be_bytes()),
            Op::Get | Op::Gets | Op::Delete => {}
        }
        let key = out.len();
        plan.append_key(op, number, out);
        let end = out.len();
        if op.stores() {
            out.extend_from_slice(plan.values.of(number));
        }
        let header = Header {
            magic: REQUEST,
            opcode: opcode(op, many),
            key: end - key,
            extras: key - start - HEADER,
            status: 0,
            body: out.len() - start - HEADER,
            opaque: number,
        };
        header.write(&mut out[start..start + HEADER]);
    }
    if many {
        let start = out.len();
        out.extend_from_slice(&[0; HEADER]);
        let header = Header {
            magic: REQUEST,
            opcode: NOOP,
            ..Header::default()
        };
        header.write(&mut out[start..]);
    }
}

/// See [`super::Replies::next`]. A reply is read once all of it has arrived.
pub(super) fn next(
    plan: &Plan,
    front: &mut Front<'_>,
    input: &[u8],
    measured: &mut Measured,
) -> Result<Heard, Unexpected> {
    let Some((header, rest)) = input.split_first_chunk::<HEADER>() else {
        return Ok(Heard::More);
    };
    let header = Header::read(header);
    let (op, many) = (front.asked.op, front.asked.many);
    let end = many && header.opcode == NOOP;
    if header.magic != REPLY || (!end && header.opcode != opcode(op, many)) {
        return Err(Unexpected);
    }
    let Some(body) = rest.get(..header.body) else {
        return Ok(Heard::More);
    };
    let payload = body.get(header.key + header.extras..).ok_or(Unexpected)?;
    let consumed = HEADER + header.body;
    if end {
        front.miss_rest(measured);
        return Ok(Heard::Reply(consumed));
    }
    match header.status {
        DONE if op.reads() => {
            let number = front.find(measured, |number| number == header.opaque)?;
            let right = plan.values.of(number) == payload;
            measured.value(plan, number, right);
        }
        DONE if op.stores() => measured.stored += 1,
        NOT_FOUND | EXISTS | NOT_STORED if op.stores() => measured.not_stored += 1,
        DONE => measured.hits += 1,
        NOT_FOUND => measured.misses += 1,
        _ => measured.error(op, payload),
    }
    if many {
        return Ok(Heard::Part(consumed));
    }
    front.drop_rest();
    Ok(Heard::Reply(consumed))
}

/// A header; lengths in bytes.
#[derive(Clone, Copy, Debug, Default)]
struct Header {
    magic: u8,
    opcode: u8,
    key: usize,
    extras: usize,
    status: u16,
    body: usize,
    opaque: u32,
}

impl Header {
    fn read(bytes: &[u8; HEADER]) -> Header {
        let short = |at: usize| u16::from_be_bytes([bytes[at], bytes[at + 1]]);
        let long = |at: usize| u32::from(short(at)) << 16 | u32::from(short(at + 2));
        Header {
            magic: bytes[0],
            opcode: bytes[1],
            key: short(2).into(),
            extras: bytes[4].into(),
            status: short(6),
            body: long(8) as usize,
            opaque: long(12),
        }
    }

    #[expect(
        clippy::cast_possible_truncation,
        reason = "keys have up to 250 bytes, extras 20, and bodies less than 2^32"
    )]
    fn write(&self, bytes: &mut [u8]) {
        bytes[0] = self.magic;
        bytes[1] = self.opcode;
        bytes[2..4].copy_from_slice(&(self.key as u16).to_be_bytes());
        bytes[4] = self.extras as u8;
        bytes[8..12].copy_from_slice(&(self.body as u32).to_be_bytes());
        bytes[12..16].copy_from_slice(&self.opaque.to_be_bytes());
    }
}
