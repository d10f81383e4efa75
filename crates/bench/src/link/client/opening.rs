//! How connections are opened.

use anyhow::bail;
use coua_tcp::nic::Nic;
use coua_tcp::wire::tcp::Flags;

use super::connection::Stage;
use super::turn::number;
use super::wire::{Incoming, Numbers};
use super::{Clients, OPENING_MAX, TIMEOUT};

impl Clients {
    /// Handles a segment of a handshake, or one for a connection that is not open.
    #[cold]
    pub(super) fn take_opening(&mut self, incoming: &Incoming<'_>) -> anyhow::Result<()> {
        let (client, flags) = (incoming.client, incoming.flags);
        let connection = &mut self.connections[client];
        match connection.stage {
            Stage::Opening if flags.has(Flags::SYN) => {
                connection.stage = Stage::Open;
                for ours in [
                    &mut connection.acknowledged,
                    &mut connection.next,
                    &mut connection.end,
                ] {
                    *ours = incoming.ack;
                }
                connection.theirs = incoming.seq + 1;
                connection.told = incoming.seq + 1;
                connection.echo = incoming.clock.unwrap_or(0);
                connection.timeouts = 0;
                self.shift = incoming.window_scale.unwrap_or(0);
                connection.window = u32::from(incoming.window);
                self.open += 1;
                self.idle.push(number(client));
                self.to_acknowledge.push((number(client), true));
            }
            // The server remembers a connection of a client that has died.
            Stage::Opening if flags.has(Flags::ACK) && !flags.has(Flags::RST) => {
                self.stale.push((number(client), incoming.ack));
            }
            // The server does not know yet that the connection is open.
            Stage::Open if flags.has(Flags::SYN) => {
                self.to_acknowledge.push((number(client), true));
            }
            Stage::Open => bail!("the server has reset connection {client}"),
            Stage::New | Stage::Opening => {}
        }
        Ok(())
    }

    /// Opens connections, a few at a time.
    #[inline]
    pub(super) fn open_some(&mut self, nic: &mut impl Nic) {
        if self.are_open() {
            return;
        }
        if !self.knows_server {
            if self.asked_at == 0 || self.now - self.asked_at > TIMEOUT {
                self.asked_at = self.now.max(1);
                self.wire.send_question(nic);
            }
            return;
        }
        while let Some((client, ack)) = self.stale.pop() {
            let numbers = Numbers {
                seq: ack,
                ..self.numbers(client as usize)
            };
            self.wire.send(nic, &numbers, Flags::RST, &[]);
        }
        while self.begun < self.connections.len() && self.begun - self.open < OPENING_MAX {
            if !self.send_syn(nic, self.begun) {
                return;
            }
            self.begun += 1;
        }
    }

    pub(super) fn send_syn(&mut self, nic: &mut impl Nic, client: usize) -> bool {
        let is_sent = self.wire.send_syn(nic, &self.numbers(client));
        if is_sent {
            let connection = &mut self.connections[client];
            connection.stage = Stage::Opening;
            connection.sent_at = self.now;
        }
        is_sent
    }
}
