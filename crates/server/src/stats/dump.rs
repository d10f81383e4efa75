//! Answers of any length, produced in parts as the client reads them.

use std::io::Write;

use coua_protocol::BinaryRequestId;
use coua_store::Burst;

use super::listing::Listing;
use super::packets;
use super::prefixes::Prefixes;
use crate::buffers::Pool;
use crate::clock::Now;
use crate::outcome::Outcome;
use crate::output::{Flushed, Output};
use crate::server::Shared;
use crate::session::Session;

/// Bytes and parts of an answer that one turn produces for a connection at most, so that others
/// have theirs.
const TURN_LEN: usize = 64 << 10;
const TURN_PARTS: usize = 256;

/// How many parts a part of a list of items counts for: it looks at many items, or at much of an
/// index that is empty.
const LISTING_PARTS: usize = 16;

/// Bytes that are appended to the output at a time.
const PIECE_LEN: usize = 4 << 10;

/// How far a long answer has got.
pub struct Dump {
    position: Position,
    /// What stands in front of it, until that has been said.
    head: &'static [u8],
    /// The binary request that it answers, if it is one.
    asked: Option<BinaryRequestId>,
}

enum Position {
    Listeners,
    Connections { worker: usize, slot: usize },
    Prefixes { after: Option<Box<[u8]>> },
    Items(Listing),
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

    fn of(position: Position, head: &'static [u8]) -> Dump {
        Dump {
            position,
            head,
            asked: None,
        }
    }

    /// Whether the answer is made of items, which the binary protocol has no form for.
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

    /// The next part of the answer: a few hundred bytes unless it tells of a very long path, or
    /// some ten thousand for items. `asker` is the descriptor of who asks. How many parts it counts for;
    /// `None` at the end.
    fn next(
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
            Position::Items(mut listing) => {
                end = listing.end();
                parts = LISTING_PARTS;
                if listing.next(burst, shared, now, text) {
                    self.position = Position::Items(listing);
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

/// Produces as much of a session's answer as the client takes and its turn allows. Where it is
/// [`Outcome::Blocked`] and the session's reply queue is empty, only the turn is over.
pub fn produce(
    shared: &Shared,
    now: Now,
    burst: &Burst<'_>,
    output: &mut Output,
    session: &mut Session,
    pool: &mut Pool,
) -> Outcome {
    let Some(mut dump) = session.dump.take() else {
        return Outcome::Done;
    };
    let mut text = Vec::new();
    let (mut len, mut parts) = (0, 0);
    let asker = session.connection.descriptor;
    while let Some(more) = dump.next(shared, asker, now, burst, &mut text) {
        let taken = match dump.asked {
            Some(asked) => {
                packets::pack(output, asked, &text);
                match output.has_room() {
                    true => Flushed::All,
                    false => output.flush(session, pool),
                }
            }
            None => write(&text, output, session, pool),
        };
        len += text.len();
        parts += more;
        // A datagram's answer has one turn, and a length that it may not exceed.
        let is_over = session.datagram.is_none() && (len >= TURN_LEN || parts >= TURN_PARTS);
        let taken = match taken {
            Flushed::All if is_over => output.flush(session, pool),
            taken => taken,
        };
        match taken {
            Flushed::All if !is_over => {}
            Flushed::All | Flushed::Blocked => {
                session.dump = Some(dump);
                return Outcome::Blocked;
            }
            lost => return lost.into(),
        }
    }
    Outcome::Done
}

/// Appends a text of any length. What the client does not take waits in its reply queue.
fn write(text: &[u8], output: &mut Output, session: &mut Session, pool: &mut Pool) -> Flushed {
    for (at, piece) in text.chunks(PIECE_LEN).enumerate() {
        if !output.has_room() {
            match output.flush(session, pool) {
                Flushed::All => {}
                Flushed::Blocked => {
                    let queue = session.queue.get_or_insert_default();
                    let queued = queue.push(pool, &text[at * PIECE_LEN..]);
                    return queued.map_or_else(Flushed::from, |()| Flushed::Blocked);
                }
                lost => return lost,
            }
        }
        output.reply(|reply| reply.bytes(piece));
    }
    Flushed::All
}

fn listeners(shared: &Shared, now: Now, text: &mut Vec<u8>) {
    for socket in &shared.listening {
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

fn prefix(prefixes: &Prefixes, after: Option<&[u8]>, text: &mut Vec<u8>) -> Position {
    let Some((prefix, counts)) = prefixes.next(after) else {
        return Position::End;
    };
    // Keys need not be UTF-8; a prefix is shown as it was sent.
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
