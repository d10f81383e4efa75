//! No protocol at all: a request is nothing but its keys, and a bare service sends them back.

use super::super::measured::Measured;
use super::super::plan::Plan;
use super::{Front, Heard, Unexpected};
use crate::workload::KeyFormat;

/// Appends a request.
#[inline]
pub(super) fn append(plan: &Plan, numbers: &[u32], out: &mut Vec<u8>) {
    for &number in numbers {
        plan.keys.append(number, out);
    }
}

/// See [`super::Replies::next`].
#[inline]
pub(super) fn next(
    plan: &Plan,
    front: &mut Front<'_>,
    input: &[u8],
    measured: &mut Measured,
) -> Result<Heard, Unexpected> {
    let &number = front.numbers.front().ok_or(Unexpected)?;
    let mut buffer = [0; KeyFormat::SIZE_MAX];
    let key = plan.keys.write(number, &mut buffer);
    let Some(came) = input.get(..key.len()) else {
        return Ok(Heard::More);
    };
    front.pop().ok_or(Unexpected)?;
    measured.value(plan, number, came == key);
    Ok(match front.asked.left {
        0 => Heard::Reply(came.len()),
        _ => Heard::Part(came.len()),
    })
}
