//! Items as lists of them show them: `lru_crawler metadump` and `mgdump`, and `stats cachedump`.

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
            Form::Metadump | Form::Cachedump { .. } => b"END\r\n",
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
            _ => false,
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
        }
    }
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
