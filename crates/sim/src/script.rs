//! Which request comes next.

use std::rc::Rc;

use crate::dice::Dice;
use crate::keys::Keys;
use crate::plan::Plan;
use crate::request::{Form, KeyNumber, Mode, Request};
use crate::values::{self, HEAD_LEN};

/// About how many bytes of values one request asks for.
const VALUES_LEN_MAX: usize = 1 << 20;

/// Values up to this length, in bytes, are copied where they cannot be sent in place.
const COPIED_LEN_MAX: usize = 64 << 10;

/// Requests whose answer never varies, with the answer.
const FIXED: [(&[u8], &[u8]); 8] = [
    (b"mn\r\n", b"MN\r\n"),
    (b"nonsense\r\n", b"ERROR\r\n"),
    (b"get\r\n", b"CLIENT_ERROR bad command line format\r\n"),
    (b"incr a\r\n", b"CLIENT_ERROR bad command line format\r\n"),
    (
        b"set bad 0 0 -1\r\n",
        b"CLIENT_ERROR bad command line format\r\n",
    ),
    (
        b"set bad 0 0 3\r\nabcd\r\n",
        b"CLIENT_ERROR bad data chunk\r\nCLIENT_ERROR bad command line format\r\n",
    ),
    (b"ms bad 3\r\nabc\rx", b"CLIENT_ERROR bad data chunk\r\n"),
    (b"mg bad z\r\n", b"CLIENT_ERROR invalid flag\r\n"),
];

/// The next request of a client, its form, and whether it is quiet.
pub(crate) fn next(
    dice: &mut Dice,
    plan: &Plan,
    keys: &mut Keys,
    is_binary: bool,
) -> (Request, Form, bool) {
    let request = choose(dice, plan, keys, is_binary);
    let has_meta_form = match &request {
        Request::Get { keys, .. } => keys.len() == 1,
        Request::Store { .. } | Request::Delete { .. } => true,
        // Only the meta form creates an item.
        Request::Count { .. } => true,
        _ => false,
    };
    let needs_meta = matches!(
        request,
        Request::Count {
            initial: Some(_),
            ..
        }
    );
    let form = match () {
        () if is_binary => Form::Binary,
        () if has_meta_form && (needs_meta || dice.one_in(2)) => Form::Meta,
        () => Form::Classic,
    };
    let can_be_quiet = match (form, &request) {
        (_, Request::Fixed { .. } | Request::Lines { .. } | Request::Quit) => false,
        (Form::Binary, Request::Touch { .. }) => false,
        (Form::Binary, _) => true,
        (Form::Classic, Request::Get { .. }) => false,
        (Form::Classic, _) => true,
        // An error line does not say which quiet request it answers.
        (Form::Meta, request) => {
            !plan.laxity.refuses
                && match request {
                    Request::Store { value, .. } => value.len() <= plan.laxity.value_len_max,
                    Request::Count { key, .. } => keys.is_number(*key),
                    _ => true,
                }
        }
    };
    (request, form, can_be_quiet && dice.one_in(4))
}

fn choose(dice: &mut Dice, plan: &Plan, keys: &mut Keys, is_binary: bool) -> Request {
    if dice.one_in(12) {
        return shared(dice, keys);
    }
    let key = keys.any_own(dice);
    match dice.below(24) {
        0..8 => {
            let touch = dice.one_in(6).then(|| expiry(dice, plan, is_binary));
            let count = match touch {
                _ if is_binary || dice.one_in(2) => 1,
                // Where one of several values is refused for lack of memory, a client cannot tell where
                // the answer ends.
                _ if plan.laxity.refuses && plan.value_len > COPIED_LEN_MAX => 1,
                None => dice.size(1, (VALUES_LEN_MAX / plan.value_len).clamp(1, 40)),
                // Only lines of get and gets may be longer than 2048 bytes.
                Some(_) => dice.size(1, 7),
            };
            Request::Get {
                keys: (0..count).map(|_| keys.any_own(dice)).collect(),
                cas: dice.one_in(2),
                touch,
            }
        }
        8..16 => store(dice, plan, keys, key, is_binary),
        16..18 => Request::Delete { key },
        18..21 => {
            let key = match dice.one_in(4) {
                true => key,
                false => dice.below(keys.numbers()),
            };
            let is_short = !keys.is_number(key) && keys.bound(key) < 24;
            Request::Count {
                key: if is_short { 0 } else { key },
                delta: dice.size(1, 1_000_000) as u64,
                decrement: dice.one_in(2),
                initial: dice.one_in(3).then(|| (7, expiry(dice, plan, is_binary))),
            }
        }
        21 => Request::Touch {
            key,
            exptime: expiry(dice, plan, is_binary),
        },
        22 if plan.flushes && dice.one_in(3) => Request::Flush {
            delay: if dice.one_in(6) { 2 } else { 0 },
        },
        22 if dice.one_in(4) => Request::Lines {
            send: dice.pick(&[&b"stats settings"[..], b"stats conns"]),
        },
        _ => {
            let (send, answer) = if is_binary {
                FIXED[0]
            } else {
                dice.pick(&FIXED)
            };
            Request::Fixed {
                send: send.to_vec(),
                answer: answer.to_vec(),
            }
        }
    }
}

fn store(
    dice: &mut Dice,
    plan: &Plan,
    keys: &mut Keys,
    key: KeyNumber,
    is_binary: bool,
) -> Request {
    let flags = dice.pick(&[0, 0, 1, u32::MAX]);
    let exptime = if dice.one_in(2) {
        0
    } else {
        expiry(dice, plan, is_binary)
    };
    if keys.is_number(key) {
        let number = dice.number() >> dice.below(64);
        let value: Rc<[u8]> = number.to_string().into_bytes().into();
        return Request::Store {
            key,
            mode: dice.pick(&[Mode::Set, Mode::Set, Mode::Add, Mode::Replace]),
            value,
            flags,
            exptime,
        };
    }
    let len = match dice.below(12) {
        0 => 0,
        1..4 => plan.value_len,
        _ => dice.size(1, plan.value_len),
    };
    let room = plan.laxity.value_len_max / 2;
    let (mode, len) = match dice.below(12) {
        0 => (Mode::Add, len),
        1 => (Mode::Replace, len),
        2 | 3 if keys.bound(key) + len <= room => {
            keys.raise_bound(key, keys.bound(key) + len);
            (dice.pick(&[Mode::Append, Mode::Prepend]), len)
        }
        // Where no CAS is known, any that was never given out will do.
        4 | 5 => (Mode::Cas(keys.cas(key).unwrap_or(3)), len),
        // Where the plan's values are short, the network's pieces may be short too, and a long value
        // would take too many rounds.
        6 if dice.one_in(6) && plan.value_len > plan.laxity.value_len_max / 16 => {
            let above = plan.laxity.value_len_max + 1000;
            (Mode::Set, dice.size(above, 2 * above))
        }
        _ => (Mode::Set, len),
    };
    if len <= plan.laxity.value_len_max {
        keys.raise_bound(key, len);
    }
    Request::Store {
        key,
        mode,
        value: keys.new_value(key, len),
        flags,
        exptime,
    }
}

/// A request about a key that all clients use.
fn shared(dice: &mut Dice, keys: &mut Keys) -> Request {
    if dice.one_in(3) {
        let key = keys.counter();
        let request = Request::Count {
            key,
            delta: 1,
            decrement: false,
            initial: None,
        };
        let make = Request::Store {
            key,
            mode: Mode::Add,
            value: b"1000"[..].into(),
            flags: 0,
            exptime: 0,
        };
        return if dice.one_in(3) { make } else { request };
    }
    let key = keys.any_shared(dice);
    match dice.below(8) {
        0..4 => Request::Get {
            keys: vec![key],
            cas: dice.one_in(2),
            touch: None,
        },
        4 => Request::Delete { key },
        _ => {
            let len = dice.size(HEAD_LEN, 4000);
            let value = keys.new_value(key, len);
            let version = values::check(keys.name(key), &value).unwrap_or(0);
            Request::Store {
                key,
                mode: dice.pick(&[Mode::Set, Mode::Add, Mode::Replace]),
                value,
                flags: version,
                exptime: 0,
            }
        }
    }
}

/// An expiry as it is sent. The binary protocol has no negative expiry.
fn expiry(dice: &mut Dice, plan: &Plan, is_binary: bool) -> i32 {
    let started = i32::try_from(plan.laxity.started).unwrap_or(i32::MAX);
    match dice.below(12) {
        0 => 0,
        1 if !is_binary => -1,
        2 => started + i32::try_from(dice.size(1, 10_000_000)).unwrap_or(1),
        3 => 60 * 60 * 24 * 30,
        4 => started - 5,
        _ => i32::try_from(dice.size(1, 1000)).unwrap_or(1),
    }
}
