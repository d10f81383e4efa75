//! Fills memory before the clients start.

use crate::codec;
use crate::dice::Dice;
use crate::request::{Form, Mode, Request, SentRequest};
use crate::values;

/// The largest value, in bytes: every seed's `-I` allows it.
const VALUE_LEN_MAX: usize = 3 << 10;

/// Quiet stores with `len` bytes of values in total, and one request that is answered.
pub(crate) fn requests(dice: &mut Dice, len: usize, is_binary: bool) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(len + len / 8);
    let mut filled = 0;
    let mut number = 0;
    let form = if is_binary {
        Form::Binary
    } else {
        Form::Classic
    };
    let mut push = |request, quiet, name: Vec<u8>| {
        let asked = SentRequest {
            request,
            form,
            quiet,
            opaque: 0,
            at: 0,
            round: 0,
            end: 0,
        };
        bytes.extend(codec::write(&asked, &[name]));
    };
    while filled < len {
        let name = format!("filling{number}").into_bytes();
        let value = values::value(&name, 0, number, dice.size(256, VALUE_LEN_MAX));
        filled += value.len();
        number += 1;
        let store = Request::Store {
            key: 0,
            mode: Mode::Set,
            value,
            flags: 0,
            exptime: dice.pick(&[0, 0, 0, 5, 100]),
        };
        push(store, true, name);
    }
    let noop = Request::Fixed {
        send: b"mn\r\n".to_vec(),
        answer: Vec::new(),
    };
    push(noop, false, Vec::new());
    bytes
}
