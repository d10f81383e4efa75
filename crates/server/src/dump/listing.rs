//! Items as lists of them show them: `lru_crawler metadump` and `mgdump`, `stats cachedump` and `stats
//! bigkeys`.

use std::io::Write;

use coua_protocol::{KEY_LEN_MAX, base64};
use coua_store::{Burst, Item, ScanPosition};

use crate::clock::Now;
use crate::shared::Shared;
use crate::uri;

/// Buckets of the index that one part of a list covers: about a hundred items.
const PART_BUCKETS: u32 = 32;

/// Bytes of a `stats cachedump` at most, as memcached has it.
const CACHEDUMP_LEN_MAX: usize = 2 << 20;

/// What memcached keeps free of these for the end: `END\r\n` and a zero.
const CACHEDUMP_END_LEN: usize = 6;

/// How many items `stats bigkeys` shows.
const LARGEST: usize = 20;

/// A list of all items, and how far it has got.
pub(super) struct Listing {
    form: Form,
    at: ScanPosition,
}

/// How an item is shown.
enum Form {
    /// With what is known of it.
    Metadump,
    /// As a command that looks it up.
    Mgdump,
    /// With its length and expiry.
    Cachedump { items_left: u32, bytes_left: usize },
    /// At the end, those with the largest values: the largest first.
    Largest(Vec<Large>),
}

/// An item with a large value.
struct Large {
    key: Box<[u8]>,
    value_len: usize,
    /// Seconds that it has left; -1 for ever.
    ttl: i64,
}

impl Listing {
    /// `lru_crawler metadump`.
    pub(super) fn metadump() -> Listing {
        Listing::of(Form::Metadump)
    }

    /// `lru_crawler mgdump`.
    pub(super) fn mgdump() -> Listing {
        Listing::of(Form::Mgdump)
    }

    /// `stats cachedump` of so many items, or of all for 0.
    pub(super) fn cachedump(limit: u32) -> Listing {
        Listing::of(Form::Cachedump {
            items_left: match limit {
                0 => u32::MAX,
                limit => limit,
            },
            bytes_left: CACHEDUMP_LEN_MAX - CACHEDUMP_END_LEN,
        })
    }

    /// `stats bigkeys`.
    pub(super) fn largest() -> Listing {
        Listing::of(Form::Largest(Vec::with_capacity(LARGEST + 1)))
    }

    fn of(form: Form) -> Listing {
        Listing {
            form,
            at: ScanPosition::START,
        }
    }

    /// The line behind the last item.
    pub(super) fn end(&self) -> &'static [u8] {
        match self.form {
            Form::Mgdump => b"EN\r\n",
            Form::Metadump | Form::Cachedump { .. } | Form::Largest(_) => b"END\r\n",
        }
    }

    /// Appends the next part. False where that was the last.
    pub(super) fn next(
        &mut self,
        burst: &Burst<'_>,
        shared: &Shared,
        now: Now,
        text: &mut Vec<u8>,
    ) -> bool {
        let form = &mut self.form;
        let next = burst.scan(self.at, PART_BUCKETS, &mut |item| {
            form.show(item, shared, now, text);
        });
        match next {
            Some(at) if !self.form.is_full() => {
                self.at = at;
                true
            }
            _ => {
                self.form.finish(text);
                false
            }
        }
    }
}

impl Form {
    /// Whether no more items are to be shown.
    fn is_full(&self) -> bool {
        matches!(self, Form::Cachedump { items_left: 0, .. })
    }

    fn show(&mut self, item: &Item<'_>, shared: &Shared, now: Now, text: &mut Vec<u8>) {
        match self {
            Form::Metadump => metadump(item, shared, now, text),
            Form::Mgdump => mgdump(item, text),
            Form::Cachedump {
                items_left,
                bytes_left,
            } if *items_left > 0 && !item.key_is_binary() => {
                let start = text.len();
                cachedump(item, text);
                match bytes_left.checked_sub(text.len() - start) {
                    Some(left) => {
                        *bytes_left = left;
                        *items_left -= 1;
                    }
                    None => {
                        text.truncate(start);
                        *items_left = 0;
                    }
                }
            }
            Form::Cachedump { .. } => {}
            Form::Largest(largest) => note_large(largest, item, now),
        }
    }

    /// Appends what is shown behind the last item.
    fn finish(&self, text: &mut Vec<u8>) {
        let Form::Largest(largest) = self else { return };
        for (rank, large) in largest.iter().enumerate() {
            let rank = rank + 1;
            // Writing to memory does not fail.
            let _ = write!(text, "STAT {rank}:key ");
            uri::encode(&large.key, text);
            let _ = write!(
                text,
                "\r\nSTAT {rank}:bytes {}\r\nSTAT {rank}:ttl {}\r\n",
                large.value_len, large.ttl
            );
        }
    }
}

/// Puts an item into its place among the largest, if it has one.
fn note_large(largest: &mut Vec<Large>, item: &Item<'_>, now: Now) {
    let value_len = item.value_len();
    // An item that was replaced meanwhile is seen again.
    largest.retain(|large| *large.key != *item.key());
    let place = largest.partition_point(|large| large.value_len >= value_len);
    if place == LARGEST {
        return;
    }
    let expiry = item.expiry().second();
    let now = i64::from(now.unix.0);
    let large = Large {
        key: item.key().into(),
        value_len,
        ttl: expiry.map_or(-1, |second| i64::from(second.0) - now),
    };
    largest.insert(place, large);
    largest.truncate(LARGEST);
}

fn metadump(item: &Item<'_>, shared: &Shared, now: Now, text: &mut Vec<u8>) {
    text.extend_from_slice(b"key=");
    uri::encode(item.key(), text);
    text.extend_from_slice(b" exp=");
    // Writing to memory does not fail.
    let _ = match item.expiry().second() {
        Some(second) => write!(text, "{}", second.0),
        None => write!(text, "-1"),
    };
    let _ = writeln!(
        text,
        " la={} cas={} fetch={} cls=1 size={} flags={} ",
        now.unix.0.saturating_sub(item.idle_seconds(now.unix)),
        match shared.settings.limits.cas {
            true => item.cas(),
            false => 0,
        },
        match item.fetched() {
            true => "yes",
            false => "no",
        },
        item.stored_len(),
        item.client_flags(),
    );
}

fn mgdump(item: &Item<'_>, text: &mut Vec<u8>) {
    text.extend_from_slice(b"mg ");
    if item.key_is_binary() {
        let mut room = [0; base64::encoded_len(KEY_LEN_MAX)];
        let len = base64::encode(item.key(), &mut room).expect("room for the longest key");
        text.extend_from_slice(&room[..len]);
        text.extend_from_slice(b" b");
    } else {
        text.extend_from_slice(item.key());
    }
    text.extend_from_slice(b"\r\n");
}

fn cachedump(item: &Item<'_>, text: &mut Vec<u8>) {
    text.extend_from_slice(b"ITEM ");
    text.extend_from_slice(item.key());
    // Writing to memory does not fail.
    let _ = write!(
        text,
        " [{} b; {} s]\r\n",
        item.value_len(),
        item.expiry().second().map_or(0, |second| second.0),
    );
}
