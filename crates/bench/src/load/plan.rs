//! What a load consists of, shared by all its connections.

use std::sync::Arc;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use crate::workload::{Keys, Mix, Op, Ttls, Values};

/// How requests are spelled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Dialect {
    /// The classic text protocol: get, set
    Text,
    /// The meta commands: mg, ms
    Meta,
    /// The binary protocol
    Binary,
    /// The text protocol in UDP datagrams, one per request
    Udp,
    /// No protocol: the bytes of the key alone, which coua-bench echo --mirror sends back
    Mirror,
}

/// Everything about the requests except which key comes next.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    /// The spelling.
    pub(crate) dialect: Dialect,
    /// Names of the keys.
    pub(crate) keys: Keys,
    /// Their values.
    pub(crate) values: Arc<Values>,
    /// What is done to them.
    pub(crate) mix: Mix,
    /// How long what is stored lives.
    pub(crate) ttls: Ttls,
    /// Keys that one request for values asks for, 1 at least.
    pub(crate) keys_per_get: u32,
    /// The server answers every get with the same made-up values; only their sizes are compared.
    pub(crate) canned: bool,
}

impl Plan {
    /// The suffix of the name of a key's counter, which is an item of its own.
    pub(super) const COUNTER: u8 = b'+';

    /// Appends the name of the item that `op` is about.
    #[inline]
    pub(super) fn append_key(&self, op: Op, number: u32, out: &mut Vec<u8>) {
        self.keys.append(number, out);
        if op.counts() {
            out.push(Self::COUNTER);
        }
    }

    /// Keys that a request of this kind asks for.
    #[inline]
    pub(super) fn keys_of(&self, op: Op) -> u32 {
        if op.reads() { self.keys_per_get } else { 1 }
    }
}

/// Appends a number in decimal digits.
#[inline]
pub(super) fn append_decimal(mut number: u64, out: &mut Vec<u8>) {
    let mut digits = [0u8; 20];
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b'0' + u8::try_from(number % 10).unwrap_or(0);
        number /= 10;
        if number == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[at..]);
}
