//! Answers of any length, a part at a time.
//!
//! # Not here
//! [`produce`](crate::stats::produce) sends the parts to the client.

mod listing;

use std::io::Write;

use coua_protocol::BinaryRequestId;
use coua_store::Burst;

use crate::clock::Now;
use crate::prefixes::Prefixes;
use crate::shared::Shared;
use crate::watch::Watch;
use listing::Listing;

/// How many parts a part of a list of items counts for: it looks at many items, or at a large part
/// of an empty index.
const LISTING_PARTS: usize = 16;

/// Bytes of a watcher's lines in a part.
const WATCH_LEN: usize = 4 << 10;

/// How far a long answer has got.
pub struct Dump {
    position: Position,
    /// The text before the answer, until that has been produced.
    head: &'static [u8],
    /// The binary request that it answers, if it is one.
    pub asked: Option<BinaryRequestId>,
}

enum Position {
    Listeners,
    Connections { worker: usize, slot: usize },
    Prefixes { after: Option<Box<[u8]>> },
    Items(Listing),
    Segments { next: u32 },
    Watch(Watch),
    End,
}

impl Dump {
    /// `stats conns`.
    pub fn connections() -> Dump {
        Dump::of(Position::Listeners, b"")
    }

    /// `stats detail dump`.
    pub fn prefixes() -> Dump {
        Dump::of(Position::Prefixes { after: None }, b"")
    }

    /// `stats extstore`.
    pub fn segments() -> Dump {
        Dump::of(Position::Segments { next: 0 }, b"")
    }

    /// `lru_crawler metadump`.
    pub fn metadump() -> Dump {
        Dump::of(Position::Items(Listing::metadump()), b"OK\r\n")
    }

    /// `lru_crawler mgdump`.
    pub fn mgdump() -> Dump {
        Dump::of(Position::Items(Listing::mgdump()), b"OK\r\n")
    }

    /// `stats cachedump` of so many items, or of all for 0.
    pub fn cachedump(limit: u32) -> Dump {
        Dump::of(Position::Items(Listing::cachedump(limit)), b"")
    }

    /// `watch`: it has no end.
    pub fn watch(watch: Watch) -> Dump {
        Dump::of(Position::Watch(watch), b"")
    }

    /// The place among those who watch, if the answer is to `watch`.
    pub fn as_watch(&self) -> Option<&Watch> {
        match &self.position {
            Position::Watch(watch) => Some(watch),
            _ => None,
        }
    }

    /// `stats bigkeys`.
    pub fn largest() -> Dump {
        Dump::of(Position::Items(Listing::largest()), b"")
    }

    fn of(position: Position, head: &'static [u8]) -> Dump {
        Dump {
            position,
            head,
            asked: None,
        }
    }

    /// Whether the answer is a list of items, for which the binary protocol has no form.
    pub fn is_of_items(&self) -> bool {
        matches!(self.position, Position::Items(_))
    }

    /// The same as answers to a binary request.
    pub fn packed(self, asked: BinaryRequestId) -> Dump {
        Dump {
            asked: Some(asked),
            ..self
        }
    }

    /// Appends the next part of the answer: a few hundred bytes, or more with a very long path, or
    /// some ten thousand for items. `asker` is the descriptor of the connection that asks. Returns how
    /// many parts it counts for; `None` at the end, or where no line waits for who watches.
    pub fn next(
        &mut self,
        shared: &Shared,
        asker: i32,
        now: Now,
        burst: &Burst<'_>,
        text: &mut Vec<u8>,
    ) -> Option<usize> {
        text.clear();
        text.extend_from_slice(std::mem::take(&mut self.head));
        let mut end: &[u8] = b"END\r\n";
        let mut parts = 1;
        match std::mem::replace(&mut self.position, Position::End) {
            Position::Listeners => {
                listeners(shared, now, text);
                self.position = Position::Connections { worker: 0, slot: 0 };
            }
            Position::Connections { worker, slot } => {
                self.position = connection(shared, asker, now, (worker, slot), text);
            }
            Position::Prefixes { after } => {
                self.position = prefix(&shared.prefixes, after.as_deref(), text);
            }
            Position::Segments { next } => self.position = segments(shared, next, text),
            Position::Items(mut listing) => {
                end = listing.end();
                parts = LISTING_PARTS;
                if listing.next(burst, shared, now, text) {
                    self.position = Position::Items(listing);
                }
            }
            Position::Watch(watch) => {
                watch.take(WATCH_LEN, text);
                self.position = Position::Watch(watch);
                if text.is_empty() {
                    return None;
                }
            }
            Position::End => return None,
        }
        if matches!(self.position, Position::End) {
            text.extend_from_slice(end);
        }
        Some(parts)
    }
}

fn listeners(shared: &Shared, now: Now, text: &mut Vec<u8>) {
    for socket in &shared.listening.sockets {
        let (number, address) = (socket.descriptor, &socket.address);
        // memcached has one more line for UDP, and the state of a connection.
        let state = match socket.is_udp {
            true => {
                text.extend_from_slice(format!("STAT {number}:UDP UDP\r\n").as_bytes());
                "conn_read"
            }
            false => "conn_listening",
        };
        // Writing to memory does not fail.
        let _ = write!(
            text,
            "STAT {number}:addr {address}\r\nSTAT {number}:state {state}\r\n\
             STAT {number}:secs_since_last_cmd {}\r\n",
            now.since_start_ms / 1000,
        );
    }
}

fn connection(
    shared: &Shared,
    asker: i32,
    now: Now,
    (worker, slot): (usize, usize),
    text: &mut Vec<u8>,
) -> Position {
    let Some((at, connection)) = shared.registry.next(worker, slot) else {
        return match worker + 1 {
            next if next < shared.registry.workers() => Position::Connections {
                worker: next,
                slot: 0,
            },
            _ => Position::End,
        };
    };
    let number = connection.descriptor;
    // Writing to memory does not fail.
    let _ = write!(
        text,
        "STAT {number}:addr {}\r\nSTAT {number}:listen_addr {}\r\nSTAT {number}:state {}\r\n\
         STAT {number}:secs_since_last_cmd {}\r\n",
        connection.peer,
        connection.local,
        match number == asker {
            true => "conn_parse_cmd",
            false => connection.state_name(),
        },
        now.unix.0.saturating_sub(connection.last_request().0),
    );
    Position::Connections {
        worker,
        slot: at + 1,
    }
}

/// Segments of flash in a part of a list.
const SEGMENTS_AT_ONCE: u32 = 16;

/// memcached's pages are segments here, all of one bucket. What is alive in each is not counted, so `bytes` is what can be
/// read of it: all or nothing.
fn segments(shared: &Shared, next: u32, text: &mut Vec<u8>) -> Position {
    let Some(volume) = shared.flash_volume() else {
        return Position::End;
    };
    let end = volume.segments().min(next + SEGMENTS_AT_ONCE);
    for segment in next..end {
        let sequence = volume.sequence_of(segment);
        let len = if sequence == 0 {
            0
        } else {
            volume.segment_len()
        };
        // Writing to memory does not fail.
        let _ = write!(
            text,
            "STAT {segment}:version {sequence}\r\nSTAT {segment}:bytes {len}\r\nSTAT {segment}:bucket 0\r\n\
             STAT {segment}:free_bucket 0\r\n",
        );
    }
    match end < volume.segments() {
        true => Position::Segments { next: end },
        false => Position::End,
    }
}

fn prefix(prefixes: &Prefixes, after: Option<&[u8]>, text: &mut Vec<u8>) -> Position {
    let Some((prefix, counts)) = prefixes.next(after) else {
        return Position::End;
    };
    // Keys need not be UTF-8: a prefix is shown as it was sent.
    text.extend_from_slice(b"PREFIX ");
    text.extend_from_slice(&prefix);
    // Writing to memory does not fail.
    let _ = write!(
        text,
        " get {} hit {} set {} del {}\r\n",
        counts.gets, counts.hits, counts.sets, counts.deletes,
    );
    Position::Prefixes {
        after: Some(prefix),
    }
}
