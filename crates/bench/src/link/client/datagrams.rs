//! Clients that ask by UDP. Each request and each reply is one datagram, with the frame header of
//! memcached's protocol.txt.
//!
//! Each client has one request in flight and compares every byte of the reply. If no reply arrives,
//! it repeats the request after a time.

use anyhow::{bail, ensure};
use coua_tcp::nic::{Frame, Mac, Nic, Offload};
use coua_tcp::wire::checksum::Sum;
use coua_tcp::wire::ethernet::{self, EtherType};
use coua_tcp::wire::ip::{self, Protocol};
use coua_tcp::wire::{Address, udp};

use super::dialogue::{Ask, Dialogue, Progress, Step};
use super::pace::Pace;
use super::requests::Kind;
use super::{SWEEP, Settings, Stretch, TIMEOUT};
use crate::segments::{address_of, number_of};

/// Bytes of memcached's header of a datagram: request number, number and count of datagrams, zero.
const FRAME_HEADER_LEN: usize = 8;
const LINK_LEN: usize = 14;
const TRANSPORT_AT: usize = LINK_LEN + ip::V4_HEADER_LEN;

/// One client.
#[derive(Clone, Copy, Default)]
struct Asker {
    ask: Ask,
    /// The number of its last request.
    number: u16,
    is_waiting: bool,
    asked_at: u64,
    sent_at: u64,
}

/// All clients.
pub(crate) struct Datagrams {
    dialogue: Dialogue,
    askers: Vec<Asker>,
    idle: Vec<u32>,
    pace: Pace,
    server: (Address, u16),
    server_mac: Mac,
    own_mac: Mac,
    request: Vec<u8>,
    now: u64,
    swept_at: u64,
    stretch: Stretch,
}

impl Datagrams {
    /// As many clients as the settings have connections. Depth and outstanding requests apply only
    /// to TCP.
    pub(crate) fn new(settings: Settings, server_mac: Mac, own_mac: Mac) -> Datagrams {
        let Settings {
            requests,
            keys,
            values,
            answers,
            ..
        } = settings;
        let clients = u32::try_from(settings.connections).expect("at most 2^20 clients");
        Datagrams {
            dialogue: Dialogue::new(requests, keys, values, answers),
            askers: vec![Asker::default(); settings.connections],
            idle: (0..clients).collect(),
            pace: Pace::Rest,
            server: settings.server,
            server_mac,
            own_mac,
            request: Vec::new(),
            now: 0,
            swept_at: 0,
            stretch: Stretch::new(),
        }
    }

    /// As [`Clients::begin`](super::Clients::begin).
    pub(crate) fn begin(&mut self, pace: Pace) -> Stretch {
        self.pace = pace;
        std::mem::replace(&mut self.stretch, Stretch::new())
    }

    /// As [`Clients::turn`](super::Clients::turn).
    ///
    /// # Errors
    /// If a reply is wrong.
    pub(crate) fn turn(&mut self, nic: &mut impl Nic, now: u64) -> anyhow::Result<()> {
        self.now = now;
        let count = nic.receive();
        for at in 0..count {
            self.take(&nic.frame(at))?;
        }
        nic.release();
        while let Some(client) = self.idle.last().copied() {
            if self.pace.take(now).is_none() {
                break;
            }
            let Some(ask) = self.dialogue.draw() else {
                bail!("the keys are at their end");
            };
            let asker = &mut self.askers[client as usize];
            asker.ask = ask;
            asker.number = asker.number.wrapping_add(1);
            asker.asked_at = now;
            if !self.send(nic, client as usize) {
                break;
            }
            self.askers[client as usize].is_waiting = true;
            self.idle.pop();
        }
        if now.saturating_sub(self.swept_at) >= SWEEP {
            self.swept_at = now;
            self.ask_again(nic);
        }
        nic.flush();
        Ok(())
    }

    /// Repeats requests that have had no reply for a long time.
    fn ask_again(&mut self, nic: &mut impl Nic) {
        for client in 0..self.askers.len() {
            let asker = &self.askers[client];
            if asker.is_waiting && self.now.saturating_sub(asker.sent_at) >= TIMEOUT {
                self.stretch.retransmitted += 1;
                self.send(nic, client);
            }
        }
    }

    /// Sends a client's request. False if the card has no room.
    fn send(&mut self, nic: &mut impl Nic, client: usize) -> bool {
        let Some(slot) = nic.slot() else {
            return false;
        };
        let asker = &mut self.askers[client];
        asker.sent_at = self.now;
        self.request.clear();
        self.dialogue.append(asker.ask, &mut self.request);
        let (address, port) = address_of(client);
        let (server, server_port) = self.server;
        let payload_len = FRAME_HEADER_LEN + self.request.len();
        let link = ethernet::Header {
            destination: self.server_mac,
            source: self.own_mac,
            vlan: 0,
            ether_type: EtherType::IPV4,
        };
        link.write(slot);
        let len = udp::HEADER_LEN + payload_len;
        let packet = ip::Header::new(address, server, Protocol::UDP, len);
        packet.write(&mut slot[LINK_LEN..], false);
        let datagram = &mut slot[TRANSPORT_AT..][..len];
        let header = udp::Header {
            source: port,
            destination: server_port,
            payload_len,
            checksum: 0,
        };
        header.write(datagram);
        let [high, low] = asker.number.to_be_bytes();
        let (head, request) = datagram[udp::HEADER_LEN..].split_at_mut(FRAME_HEADER_LEN);
        head.copy_from_slice(&[high, low, 0, 0, 0, 1, 0, 0]);
        request.copy_from_slice(&self.request);
        let sum = Sum::pseudo_header(address, server, Protocol::UDP.0, len).with(datagram);
        datagram[6..8].copy_from_slice(&sum.checksum().to_be_bytes());
        nic.commit(TRANSPORT_AT + len, Offload::None);
        true
    }

    fn take(&mut self, frame: &Frame<'_>) -> anyhow::Result<()> {
        let Some((client, number, reply)) = self.read(frame) else {
            return Ok(());
        };
        let Some(asker) = self.askers.get_mut(client) else {
            return Ok(());
        };
        if !asker.is_waiting || asker.number != number {
            // The reply to a request that was repeated.
            return Ok(());
        }
        let ask = asker.ask;
        let mut progress = Progress::default();
        let Step::Reply(len, is_miss) = self.dialogue.compare(ask, &mut progress, reply)? else {
            bail!("client {client} got a reply in several datagrams");
        };
        ensure!(
            len == reply.len(),
            "client {client} got a reply without a request"
        );
        asker.is_waiting = false;
        let measured = &mut self.stretch.measured;
        let is_get = ask.kind() == Kind::Get;
        measured.gets += u64::from(is_get);
        measured.hits += u64::from(is_get && !is_miss);
        measured.record(self.now.saturating_sub(asker.asked_at), 1);
        measured.replies += 1;
        self.idle
            .push(u32::try_from(client).expect("at most 2^20 clients"));
        Ok(())
    }

    /// The client whose reply a frame is, the number of the request, and the reply's text.
    fn read<'f>(&self, frame: &Frame<'f>) -> Option<(usize, u16, &'f [u8])> {
        let (link, at) = ethernet::Header::read(frame.bytes).ok()?;
        if link.ether_type != EtherType::IPV4 {
            return None;
        }
        let bytes = &frame.bytes[at..];
        let (packet, at) = ip::Header::read_v4(bytes, frame.is_verified).ok()?;
        if packet.source != self.server.0 || packet.protocol != Protocol::UDP {
            return None;
        }
        let datagram = &bytes[at..][..packet.payload_len];
        let header = udp::Header::read(datagram).ok()?;
        if !frame.is_verified {
            let (from, to) = (packet.source, packet.destination);
            let sum = Sum::pseudo_header(from, to, Protocol::UDP.0, datagram.len());
            if !sum.with(datagram).is_right() {
                return None;
            }
        }
        let payload = &datagram[udp::HEADER_LEN..][..header.payload_len];
        let (head, reply) = payload.split_first_chunk::<FRAME_HEADER_LEN>()?;
        let is_whole = head[2..] == [0, 0, 0, 1, 0, 0];
        let client = number_of(packet.destination, header.destination)?;
        is_whole.then_some((client, u16::from_be_bytes([head[0], head[1]]), reply))
    }
}
