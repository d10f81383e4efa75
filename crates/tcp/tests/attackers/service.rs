//! What the attacked host does: it takes connections and answers `get LEN` with so many bytes, and
//! `quit` by closing.

use std::collections::BTreeMap;

use coua_tcp::config::Config;
use coua_tcp::nic::Nic;
use coua_tcp::simulated::End;
use coua_tcp::stack::{ConnectionId, Received, Stack};
use coua_tcp::time::Instant;

/// The port that it listens at.
pub(crate) const PORT: u16 = 11211;

/// The longest request.
const REQUEST_MAX: usize = 64;

/// A connection, as the service knows it.
#[derive(Default)]
struct Session {
    /// The beginning of a request.
    input: Vec<u8>,
    /// Bytes of the reply that are yet to be given to the stack.
    left: usize,
    is_over: bool,
}

/// The attacked host.
pub(crate) struct Service {
    pub(crate) stack: Stack,
    pub(crate) card: End,
    sessions: BTreeMap<u64, Session>,
    /// The most buffers and connections that there have been at once.
    pub(crate) buffers_max: usize,
    pub(crate) connections_max: usize,
}

impl Service {
    pub(crate) fn new(config: Config, card: End) -> Service {
        let mut stack = Stack::new(config, card.features(), Instant::default());
        stack.listen(PORT);
        Service {
            stack,
            card,
            sessions: BTreeMap::new(),
            buffers_max: 0,
            connections_max: 0,
        }
    }

    pub(crate) fn turn(&mut self, now_us: u64) {
        self.stack
            .begin(Instant::from_micros(now_us), &mut self.card);
        while let Some(id) = self.stack.next_accepted() {
            self.sessions.insert(id.to_bits(), Session::default());
            self.serve(id);
        }
        while let Some((id, _)) = self.stack.next_ready() {
            self.serve(id);
        }
        self.stack.end(&mut self.card);
        self.buffers_max = self.buffers_max.max(self.stack.buffers_in_use());
        self.connections_max = self.connections_max.max(self.stack.connections());
    }

    /// Answers one request after the other: nothing is read before the reply to what was is given.
    fn serve(&mut self, id: ConnectionId) {
        let Some(session) = self.sessions.get_mut(&id.to_bits()) else {
            return;
        };
        loop {
            while session.left > 0 {
                let bytes = [b'x'; 4096];
                let len = session.left.min(bytes.len());
                match self.stack.send(id, &bytes[..len]) {
                    Ok(0) => return,
                    Ok(taken) => session.left -= taken,
                    Err(_) => session.is_over = true,
                }
                if session.is_over {
                    break;
                }
            }
            let end = session.input.iter().position(|&byte| byte == b'\n');
            if let Some(end) = end.filter(|_| !session.is_over) {
                let line: Vec<u8> = session.input.drain(..=end).collect();
                let text = String::from_utf8_lossy(&line[..end]).into_owned();
                let len = text.strip_prefix("get ").and_then(|len| len.parse().ok());
                match len {
                    Some(len) => session.left = len,
                    None => session.is_over = true,
                }
                continue;
            }
            let mut space = [0; REQUEST_MAX];
            let received = match session.is_over || session.input.len() > REQUEST_MAX {
                true => Received::Ended,
                false => self.stack.receive(&self.card, id, &mut space),
            };
            match received {
                Received::Bytes(len) => session.input.extend(&space[..len]),
                Received::Nothing => return,
                Received::Ended | Received::Failed(_) => {
                    self.stack.close(id);
                    self.sessions.remove(&id.to_bits());
                    return;
                }
            }
        }
    }
}
