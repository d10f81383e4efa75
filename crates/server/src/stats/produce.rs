//! Answers of any length, produced in parts as the client reads them.

use coua_store::Burst;

use super::packets;
use crate::buffers::Pool;
use crate::clock::Now;
use crate::outcome::Outcome;
use crate::output::{Flushed, Output};
use crate::session::Session;
use crate::shared::Shared;

/// The most bytes and parts of an answer that one turn produces for a connection, so that other
/// connections have their share.
const TURN_LEN: usize = 64 << 10;
const TURN_PARTS: usize = 256;

/// Bytes that are appended to the output at a time.
const PIECE_LEN: usize = 4 << 10;

/// Produces as much of a session's answer as the client takes and the turn allows. If it returns
/// [`Outcome::Blocked`] and the session's reply queue is empty, only the turn is over, or who watches
/// has all lines so far ([`Session::goes_on_dumping`]).
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
        let is_over = session.message.is_none() && (len >= TURN_LEN || parts >= TURN_PARTS);
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
    if dump.as_watch().is_none() {
        return Outcome::Done;
    }
    session.dump = Some(dump);
    match output.flush(session, pool) {
        Flushed::All => Outcome::Blocked,
        other => other.into(),
    }
}

/// Appends a text of any length. What the client does not take waits in its reply queue.
pub fn write(text: &[u8], output: &mut Output, session: &mut Session, pool: &mut Pool) -> Flushed {
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
