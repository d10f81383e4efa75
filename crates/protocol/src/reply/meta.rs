//! The answers of the meta dialect.

use super::{Cursor, Full, Reply};
use crate::base64;
use crate::flags::{Flags, TagNames};
use crate::limits::KEY_LEN_MAX;

/// How a meta answer begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetaHead {
    /// `VA`: a value of this many bytes follows.
    Value(usize),
    /// `HD`: the command is done, or the item exists and its value is not sent.
    Done,
    /// `EN`: a miss of `mg`.
    Miss,
    /// `NF`: no item has the key.
    NotFound,
    /// `EX`: the CAS differs.
    Exists,
    /// `NS`: not stored.
    NotStored,
}

/// The key in the answer to the flag `k`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MetaKey<'a> {
    /// The key as it is stored, decoded; at most [`KEY_LEN_MAX`] bytes.
    pub bytes: &'a [u8],
    /// Answer in base64. For a hit of `mg` and for `ms` this is whether the item was
    /// stored by `ms` with `b`. For a miss of `mg`, for `md` and for `ma` this is
    /// whether the request has `b`.
    pub base64: bool,
}

/// The numbers of an item's tags, then zeros.
pub type TagNumbers = [u32; TagNames::COUNT_MAX];

/// The facts from which the flags of a request are answered.
///
/// A command does not answer a flag whose fact is `None`. A hit of `mg` answers all
/// flags, a miss only `O` and `k` (the key is always known). `ms` answers `c` and `s`
/// as well, `ma` answers `c` and `t` as well, and both `G` questions `g`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MetaFacts<'a> {
    /// `k`
    pub key: MetaKey<'a>,
    /// `c`: the CAS after the command; 0 if `ms` stored nothing.
    pub cas: Option<u64>,
    /// `s`: bytes in the value.
    pub value_len: Option<u32>,
    /// `f`: the client's flags.
    pub client_flags: Option<u32>,
    /// `t`: seconds left, negative for unlimited.
    pub ttl: Option<i64>,
    /// `tms`: milliseconds left, negative for unlimited.
    pub ttl_ms: Option<i64>,
    /// `g`: the numbers of the item's tags.
    pub tags: Option<TagNumbers>,
    /// `l`: seconds since the last access.
    pub idle: Option<u32>,
    /// `h`: the item has been fetched before.
    pub fetched: Option<bool>,
    /// Ends with `Z`: another client has won.
    pub token_sent: bool,
    /// Ends with `X`: the item is stale.
    pub stale: bool,
    /// Ends with `W`: this client has won.
    pub won: bool,
}

/// What `me` tells about an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MetaDebug<'a> {
    /// The key; in base64 if it was stored with `b`.
    pub key: MetaKey<'a>,
    /// Seconds left, negative for unlimited.
    pub ttl: i64,
    /// Seconds since the last access.
    pub idle: u32,
    /// The CAS.
    pub cas: u64,
    /// The item has been fetched.
    pub fetched: bool,
    /// The size class.
    pub class: u32,
    /// All bytes that the item takes.
    pub size: u64,
    /// Its tags.
    pub tags: TagNumbers,
}

impl Reply<'_> {
    /// Appends a meta answer without a value: the head, then the facts that the request
    /// asked for, in the order of `flags`. After [`MetaHead::Value`] the value and a
    /// line end must follow.
    ///
    /// # Errors
    /// [`Full`](crate::reply::Full) if the reply does not fit; nothing of it has been written.
    pub fn meta(
        &mut self,
        head: MetaHead,
        flags: Flags<'_>,
        facts: &MetaFacts<'_>,
    ) -> Result<(), Full> {
        self.write(|out| out.meta_line(head, flags, facts))
    }

    /// Appends a meta answer with a value.
    ///
    /// # Errors
    /// [`Full`](crate::reply::Full) if the reply does not fit; nothing of it has been written.
    pub fn meta_value(
        &mut self,
        flags: Flags<'_>,
        facts: &MetaFacts<'_>,
        value: &[u8],
    ) -> Result<(), Full> {
        self.write(|out| {
            out.meta_line(MetaHead::Value(value.len()), flags, facts);
            out.put(value);
            out.put(b"\r\n");
        })
    }

    /// Appends a meta answer whose value is a number, for `ma`.
    ///
    /// # Errors
    /// [`Full`](crate::reply::Full) if the reply does not fit; nothing of it has been written.
    pub fn meta_number(
        &mut self,
        flags: Flags<'_>,
        facts: &MetaFacts<'_>,
        number: u64,
    ) -> Result<(), Full> {
        let digits = super::Digits::of(number);
        self.meta_value(flags, facts, digits.as_bytes())
    }

    /// Appends the answer to `me`.
    ///
    /// # Errors
    /// [`Full`](crate::reply::Full) if the reply does not fit; nothing of it has been written.
    pub fn meta_debug(&mut self, item: &MetaDebug<'_>) -> Result<(), Full> {
        self.write(|out| {
            out.put(b"ME ");
            out.key(item.key);
            out.put(b" exp=");
            out.signed(item.ttl);
            out.put(b" la=");
            out.number(u64::from(item.idle));
            out.put(b" cas=");
            out.number(item.cas);
            out.put(if item.fetched {
                b" fetch=yes"
            } else {
                b" fetch=no"
            });
            out.put(b" cls=");
            out.number(u64::from(item.class));
            out.put(b" size=");
            out.number(item.size);
            if item.tags[0] != 0 {
                out.put(b" tags=");
                out.tags(&item.tags);
            }
            out.put(b"\r\n");
        })
    }
}

impl Cursor<'_> {
    fn meta_line(&mut self, head: MetaHead, flags: Flags<'_>, facts: &MetaFacts<'_>) {
        match head {
            MetaHead::Value(len) => {
                self.put(b"VA ");
                self.number(len as u64);
            }
            MetaHead::Done => self.put(b"HD"),
            MetaHead::Miss => self.put(b"EN"),
            MetaHead::NotFound => self.put(b"NF"),
            MetaHead::Exists => self.put(b"EX"),
            MetaHead::NotStored => self.put(b"NS"),
        }
        for (letter, argument) in flags {
            self.fact(letter, argument, facts);
        }
        for (mark, text) in [
            (facts.token_sent, b" Z"),
            (facts.stale, b" X"),
            (facts.won, b" W"),
        ] {
            if mark {
                self.put(text);
            }
        }
        self.put(b"\r\n");
    }

    fn fact(&mut self, letter: u8, argument: &[u8], facts: &MetaFacts<'_>) {
        match letter {
            b'O' => {
                self.put(b" O");
                self.put(argument);
            }
            b'k' => {
                self.put(b" k");
                self.key(facts.key);
                if facts.key.base64 {
                    self.put(b" b");
                }
            }
            b'c' => self.fact_number(b" c", facts.cas),
            b's' => self.fact_number(b" s", facts.value_len.map(u64::from)),
            b'f' => self.fact_number(b" f", facts.client_flags.map(u64::from)),
            b'l' => self.fact_number(b" l", facts.idle.map(u64::from)),
            b'h' => self.fact_number(b" h", facts.fetched.map(u64::from)),
            b'g' => {
                if let Some(tags) = &facts.tags {
                    self.put(b" g");
                    self.tags(tags);
                }
            }
            b't' if argument == b"ms" => {
                if let Some(ttl) = facts.ttl_ms {
                    self.put(b" t");
                    self.signed(ttl);
                    self.put(if ttl < 0 { b"" } else { b"ms" });
                }
            }
            b't' => {
                if let Some(ttl) = facts.ttl {
                    self.put(b" t");
                    self.signed(ttl);
                }
            }
            _ => {}
        }
    }

    #[inline]
    fn fact_number(&mut self, name: &[u8], number: Option<u64>) {
        if let Some(number) = number {
            self.put(name);
            self.number(number);
        }
    }

    /// Tags as numbers of eight hexadecimal digits, with commas between them.
    fn tags(&mut self, tags: &TagNumbers) {
        for (place, tag) in tags.iter().take_while(|&&tag| tag != 0).enumerate() {
            if place > 0 {
                self.put(b",");
            }
            for digit in (0..8).rev().map(|digit| tag >> (4 * digit) & 15) {
                self.put(&b"0123456789abcdef"[digit as usize..][..1]);
            }
        }
    }

    /// A negative number of seconds means unlimited and is written as -1.
    fn signed(&mut self, seconds: i64) {
        match u64::try_from(seconds) {
            Ok(seconds) => self.number(seconds),
            Err(_) => self.put(b"-1"),
        }
    }

    fn key(&mut self, key: MetaKey<'_>) {
        if !key.base64 {
            self.put(key.bytes);
            return;
        }
        let mut text = [0; base64::encoded_len(KEY_LEN_MAX)];
        if let Some(len) = base64::encode(key.bytes, &mut text) {
            self.put(&text[..len]);
        }
    }
}
