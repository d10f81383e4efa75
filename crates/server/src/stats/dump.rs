//! Answers of any length, produced in parts as the client reads them.

use std::io::Write;

use coua_protocol::Asked;

use super::packets;
use super::prefixes::Prefixes;
use crate::buffers::Pool;
use crate::clock::Now;
use crate::execute::Outcome;
use crate::output::{Flushed, Output};
use crate::server::Shared;
use crate::session::Session;

/// How far a long answer has got.
pub struct Dump {
    position: Position,
    /// The binary request that it answers, if it is one.
    asked: Option<Asked>,
}

enum Position {
    Listeners,
    Connections { worker: usize, slot: usize },
    Prefixes { after: Option<Box<[u8]>> },
    End,
}

impl Dump {
    /// `stats conns`.
    pub fn connections() -> Dump {
        Dump {
            position: Position::Listeners,
            asked: None,
        }
    }

    /// `stats detail dump`.
    pub fn prefixes() -> Dump {
        Dump {
            position: Position::Prefixes { after: None },
            asked: None,
        }
    }

    /// The same as answers to a binary request.
    pub fn packed(self, asked: Asked) -> Dump {
        Dump {
            asked: Some(asked),
            ..self
        }
    }

    /// The next piece of the answer, a few hundred bytes at most unless it tells of a very long
    /// path; `None` at the end.
    fn next(&mut self, shared: &Shared, now: Now, text: &mut Vec<u8>) -> bool {
        text.clear();
        match std::mem::replace(&mut self.position, Position::End) {
            Position::Listeners => {
                listeners(shared, now, text);
                self.position = Position::Connections { worker: 0, slot: 0 };
            }
            Position::Connections { worker, slot } => {
                self.position = connection(shared, now, worker, slot, text);
            }
            Position::Prefixes { after } => {
                self.position = prefix(&shared.prefixes, after.as_deref(), text);
            }
            Position::End => return false,
        }
        if matches!(self.position, Position::End) {
            text.extend_from_slice(b"END\r\n");
        }
        true
    }
}

/// Produces as much of a session's answer as the client takes.
pub fn produce(
    shared: &Shared,
    now: Now,
    output: &mut Output,
    session: &mut Session,
    pool: &mut Pool,
) -> Outcome {
    let Some(mut dump) = session.dump.take() else {
        return Outcome::Done;
    };
    let mut text = Vec::new();
    while dump.next(shared, now, &mut text) {
        match dump.asked {
            Some(asked) => _ = packets::pack(output, asked, &text),
            None => text
                .chunks(4 << 10)
                .for_each(|piece| output.reply(|reply| reply.bytes(piece))),
        }
        if !output.has_room() {
            match output.flush(session, pool) {
                Flushed::All => {}
                Flushed::Blocked => {
                    session.dump = Some(dump);
                    return Outcome::Blocked;
                }
                lost => return lost.into(),
            }
        }
    }
    Outcome::Done
}

fn listeners(shared: &Shared, now: Now, text: &mut Vec<u8>) {
    for (number, address) in &shared.listening {
        // Writing to memory does not fail.
        let _ = write!(
            text,
            "STAT {number}:addr {address}\r\nSTAT {number}:state conn_listening\r\n\
             STAT {number}:secs_since_last_cmd {}\r\n",
            now.since_start_ms / 1000,
        );
    }
}

fn connection(
    shared: &Shared,
    now: Now,
    worker: usize,
    slot: usize,
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
    let number = connection.stream.descriptor();
    // Writing to memory does not fail.
    let _ = write!(
        text,
        "STAT {number}:addr {}\r\nSTAT {number}:listen_addr {}\r\nSTAT {number}:state {}\r\n\
         STAT {number}:secs_since_last_cmd {}\r\n",
        connection.stream.peer(),
        connection.stream.local(),
        connection.state_name(),
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
