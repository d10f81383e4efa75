//! The binary protocol.
//!
//! ```text
//! byte 0       1        2       4        5        6        8        12       16    24
//!      +-------+--------+-------+--------+--------+--------+--------+--------+-----+------+
//!      | magic | opcode |  key  | extras | (zero) | status |  body  | opaque | CAS | body |
//!      |       |        |  len  |  len   |        |        |  len   |        |     |      |
//!      +-------+--------+-------+--------+--------+--------+--------+--------+-----+------+
//! ```

use std::collections::VecDeque;

use super::Read;
use crate::request::{Answer, Found, Mode, Request, SentRequest};

const HEAD_LEN: usize = 24;
const REQUEST: u8 = 0x80;
const RESPONSE: u8 = 0x81;

/// The expiry that says that `incr` on a miss creates no item.
const NOT_MADE: u32 = u32::MAX;

pub(super) fn write(asked: &SentRequest, names: &[Vec<u8>]) -> Vec<u8> {
    let quiet = asked.quiet;
    let pick = |loud: u8, silent: u8| if quiet { silent } else { loud };
    let mut extras = Vec::new();
    let mut value: &[u8] = &[];
    let mut key: &[u8] = &[];
    let mut cas = 0;
    let opcode = match &asked.request {
        Request::Get {
            keys,
            cas: with_key,
            touch,
        } => {
            key = &names[keys[0]];
            if let Some(exptime) = touch {
                extras.extend(exptime.to_be_bytes());
            }
            match (touch, with_key) {
                (None, false) => pick(0x00, 0x09),
                (None, true) => pick(0x0c, 0x0d),
                (Some(_), false) => pick(0x1d, 0x1e),
                (Some(_), true) => pick(0x23, 0x24),
            }
        }
        Request::Store {
            key: number,
            mode,
            value: bytes,
            flags,
            exptime,
        } => {
            (key, value) = (&names[*number], &bytes[..]);
            if !matches!(mode, Mode::Append | Mode::Prepend) {
                extras.extend(flags.to_be_bytes());
                extras.extend(exptime.to_be_bytes());
            }
            if let Mode::Cas(compare) = mode {
                cas = *compare;
            }
            match mode {
                Mode::Set | Mode::Cas(_) => pick(0x01, 0x11),
                Mode::Add => pick(0x02, 0x12),
                Mode::Replace => pick(0x03, 0x13),
                Mode::Append => pick(0x0e, 0x19),
                Mode::Prepend => pick(0x0f, 0x1a),
            }
        }
        Request::Delete { key: number } => {
            key = &names[*number];
            pick(0x04, 0x14)
        }
        Request::Count {
            key: number,
            delta,
            decrement,
            initial,
        } => {
            key = &names[*number];
            let (first, exptime) = match initial {
                Some((first, exptime)) => (*first, exptime.cast_unsigned()),
                None => (0, NOT_MADE),
            };
            extras.extend(delta.to_be_bytes());
            extras.extend(first.to_be_bytes());
            extras.extend(exptime.to_be_bytes());
            match decrement {
                false => pick(0x05, 0x15),
                true => pick(0x06, 0x16),
            }
        }
        Request::Touch {
            key: number,
            exptime,
        } => {
            key = &names[*number];
            extras.extend(exptime.to_be_bytes());
            0x1c
        }
        Request::Flush { delay } => {
            extras.extend(delay.to_be_bytes());
            pick(0x08, 0x18)
        }
        Request::Fixed { .. } => 0x0a,
        Request::Lines { .. } => {
            key = b"settings";
            0x10
        }
        Request::Quit => 0x07,
    };
    let body_len = extras.len() + key.len() + value.len();
    let mut out = Vec::with_capacity(HEAD_LEN + body_len);
    out.extend([REQUEST, opcode]);
    out.extend(u16::try_from(key.len()).unwrap_or(u16::MAX).to_be_bytes());
    out.push(u8::try_from(extras.len()).unwrap_or(u8::MAX));
    out.extend([0; 3]);
    out.extend(u32::try_from(body_len).unwrap_or(u32::MAX).to_be_bytes());
    out.extend(asked.opaque.to_be_bytes());
    out.extend(cas.to_be_bytes());
    for part in [&extras[..], key, value] {
        out.extend(part);
    }
    out
}

pub(super) fn read(bytes: &[u8], waiting: &VecDeque<SentRequest>) -> Result<Option<Read>, String> {
    let Some(head) = bytes.first_chunk::<HEAD_LEN>() else {
        return Ok(None);
    };
    let number = |at: usize, len: usize| {
        let bytes = head[at..at + len].iter();
        bytes.fold(0_u64, |number, &byte| number << 8 | u64::from(byte))
    };
    let opaque = number(12, 4);
    let to = waiting
        .iter()
        .position(|asked| u64::from(asked.opaque) == opaque);
    let Some(to) = to.filter(|_| head[0] == RESPONSE) else {
        return Err(format!("nothing asked for this: {}", head.escape_ascii()));
    };
    let asked = &waiting[to];
    let body_len = usize::try_from(number(8, 4)).unwrap_or(usize::MAX);
    let Some(body) = bytes.get(HEAD_LEN..HEAD_LEN + body_len) else {
        return Ok(None);
    };
    let (extras_len, key_len) = (usize::from(head[4]), head[3].into());
    let Some((extras, rest)) = body.split_at_checked(extras_len) else {
        return Err("an answer shorter than its parts".to_owned());
    };
    let Some((key, value)) = rest.split_at_checked(key_len) else {
        return Err("an answer shorter than its parts".to_owned());
    };
    let answer = answer(
        &asked.request,
        number(6, 2),
        number(16, 8),
        extras,
        key,
        value,
    )
    .map_err(|why| {
        let name = asked.request.name();
        format!("{why} as an answer to {name}: {}", head.escape_ascii())
    })?;
    let Some(answer) = answer else {
        return read_lines(bytes, to, asked.opaque);
    };
    let len = HEAD_LEN + body_len;
    Ok(Some(Read { to, answer, len }))
}

/// The answer that a status and a body stand for; `None` where it is only a part of one.
fn answer(
    request: &Request,
    status: u64,
    cas: u64,
    extras: &[u8],
    key: &[u8],
    value: &[u8],
) -> Result<Option<Answer>, &'static str> {
    let plain = extras.is_empty() && key.is_empty() && value.is_empty();
    Ok(Some(match (request, status) {
        (_, 0x82) => Answer::NoMemory,
        (Request::Store { .. }, 0x03) => Answer::TooLarge,
        (Request::Count { .. }, 0x06) => Answer::NotNumeric,
        (Request::Get { cas: with_key, .. }, 0) => {
            let flags = extras.try_into().map_err(|_| "no flags")?;
            Answer::Values(vec![Found {
                key: with_key.then(|| key.to_vec()),
                value: Some(value.into()),
                flags: Some(u32::from_be_bytes(flags)),
                cas: Some(cas),
                ttl: None,
            }])
        }
        (Request::Get { .. }, 0x01) => Answer::Values(Vec::new()),
        (Request::Store { .. }, 0) if plain => Answer::Stored(Some(cas)),
        (Request::Store { mode, .. }, status) => match (mode, status) {
            (Mode::Set, _) => return Err("no answer to a set"),
            (Mode::Add, 0x02) | (Mode::Replace, 0x01) | (Mode::Append | Mode::Prepend, 0x05) => {
                Answer::NotStored
            }
            (Mode::Cas(_), 0x02) => Answer::Exists,
            (Mode::Cas(_), 0x01) => Answer::NotFound,
            _ => return Err("no such status"),
        },
        (Request::Count { .. }, 0) => {
            let number = value.try_into().map_err(|_| "no number")?;
            Answer::Number(u64::from_be_bytes(number), Some(cas))
        }
        (Request::Delete { .. } | Request::Touch { .. } | Request::Count { .. }, 0x01) => {
            Answer::NotFound
        }
        (Request::Delete { .. } | Request::Flush { .. }, 0) if plain => Answer::Done,
        (Request::Touch { .. }, 0) => Answer::Done,
        (Request::Fixed { .. } | Request::Quit, 0) if plain => Answer::Fixed,
        (Request::Lines { .. }, 0) => return Ok(None),
        _ => return Err("no such status"),
    }))
}

/// Statistics: one answer for each, and an empty one at the end.
fn read_lines(bytes: &[u8], to: usize, opaque: u32) -> Result<Option<Read>, String> {
    let mut at = 0;
    loop {
        let Some(head) = bytes[at..].first_chunk::<HEAD_LEN>() else {
            return Ok(None);
        };
        let [.., a, b, c, d] = head[..12] else {
            return Ok(None);
        };
        let body_len = u32::from_be_bytes([a, b, c, d]) as usize;
        if head[12..16] != opaque.to_be_bytes() || head[1] != 0x10 {
            return Err(format!("no statistics: {}", head.escape_ascii()));
        }
        at += HEAD_LEN + body_len;
        if at > bytes.len() {
            return Ok(None);
        }
        if body_len == 0 {
            return Ok(Some(Read {
                to,
                answer: Answer::Fixed,
                len: at,
            }));
        }
    }
}
