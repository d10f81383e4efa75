//! The bare service on coua's stack: what clients, link and stack cost without a cache.

use std::io;
use std::time::Instant as Moment;

use anyhow::ensure;
use coua_tcp::config::Config;
use coua_tcp::nic::Nic;
use coua_tcp::stack::{ConnectionId, Received, Stack};
use coua_tcp::time::Instant;
use coua_tcp::wire::address::Network;

use crate::echo::Reply;

/// A service that answers without looking at keys.
pub(crate) struct Echo {
    stack: Stack,
    started: Moment,
    reply: Reply,
    /// Line ends of each connection's unfinished request.
    lines: Vec<usize>,
    input: Box<[u8]>,
    output: Vec<u8>,
}

impl Echo {
    /// Bytes received at once: as many as a cache receives.
    const READ_LEN: usize = 64 << 10;

    /// Listens at these addresses, with room for so many connections.
    pub(crate) fn new(
        addresses: Vec<Network>,
        port: u16,
        connections_max: usize,
        reply: Reply,
        nic: &impl Nic,
    ) -> io::Result<Echo> {
        let mut config = Config::new(addresses, rand_secret()?);
        config.connections_max = connections_max;
        config.half_open_max = 1024;
        config.memory_max = 256 << 20;
        let mut stack = Stack::new(config, nic.features(), Instant::default());
        stack.listen(port);
        Ok(Echo {
            stack,
            started: Moment::now(),
            reply,
            lines: Vec::new(),
            input: vec![0; Self::READ_LEN].into(),
            output: Vec::new(),
        })
    }

    /// Serves until it is killed.
    pub(crate) fn serve(&mut self, nic: &mut impl Nic) -> anyhow::Result<()> {
        loop {
            let now = u64::try_from(self.started.elapsed().as_micros()).unwrap_or(u64::MAX);
            self.turn(nic, Instant::from_micros(now))?;
        }
    }

    /// One turn.
    ///
    /// # Errors
    /// If a client asks for more than fits while it waits, which the clients here do not.
    pub(crate) fn turn(&mut self, nic: &mut impl Nic, now: Instant) -> anyhow::Result<()> {
        self.stack.begin(now, nic);
        while self.stack.next_accepted().is_some() {}
        while let Some((id, news)) = self.stack.next_ready() {
            if news.ended || news.failure.is_some() {
                self.forget(id);
            } else if news.readable {
                self.answer(nic, id)?;
            }
        }
        self.stack.end(nic);
        Ok(())
    }

    #[cfg(test)]
    pub(crate) fn connections(&self) -> usize {
        self.stack.connections()
    }

    fn forget(&mut self, id: ConnectionId) {
        if let Some(lines) = self.lines.get_mut(place(id)) {
            *lines = 0;
        }
        self.stack.close(id);
    }

    #[inline]
    fn answer(&mut self, nic: &mut impl Nic, id: ConnectionId) -> anyhow::Result<()> {
        let mut is_more = true;
        while is_more && let Received::Bytes(len) = self.stack.receive(nic, id, &mut self.input) {
            is_more = len == self.input.len();
            let bytes = &self.input[..len];
            let reply = match &self.reply {
                Reply::Mirror => bytes,
                Reply::Same { lines, reply } => {
                    let place = place(id);
                    if self.lines.len() <= place {
                        self.lines.resize(place + 1, 0);
                    }
                    let seen = self.lines[place] + memchr::memchr_iter(b'\n', bytes).count();
                    self.lines[place] = seen % lines;
                    match seen / lines {
                        0 => continue,
                        1 => reply,
                        count => {
                            self.output.clear();
                            self.output.extend((0..count).flat_map(|_| reply));
                            &self.output
                        }
                    }
                }
            };
            let taken = self.stack.send_now(nic, id, reply).unwrap_or(reply.len());
            ensure!(
                taken == reply.len(),
                "a client sends more requests than it reads replies"
            );
        }
        Ok(())
    }
}

/// The place of a connection among all connections.
fn place(id: ConnectionId) -> usize {
    usize::try_from(id.to_bits() & u64::from(u32::MAX)).unwrap_or(usize::MAX)
}

fn rand_secret() -> io::Result<[u8; 32]> {
    let mut secret = [0; 32];
    rustix::rand::getrandom(&mut secret[..], rustix::rand::GetRandomFlags::empty())?;
    Ok(secret)
}
