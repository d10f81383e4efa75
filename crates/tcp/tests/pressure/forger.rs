//! A stack, and peers whose frames a test makes.

use coua_tcp::config::Config;
use coua_tcp::nic::{Mac, Nic};
use coua_tcp::seq::SeqNumber;
use coua_tcp::stack::{ConnectionId, Stack};
use coua_tcp::time::Instant;
use coua_tcp::wire::ethernet::{self, EtherType};
use coua_tcp::wire::ip::{self, Protocol};
use coua_tcp::wire::tcp::{Flags, Header, Options};
use coua_tcp::wire::{Address, tcp};

use crate::card::{Card, OWN_MAC};

const PEER_MAC: Mac = Mac([2, 0, 0, 0, 0, 2]);
const OWN: Address = Address::v4([192, 0, 2, 1]);

/// The port at which the stack listens.
const PORT: u16 = 11211;

/// The other end of a connection, as it sees it.
#[derive(Clone, Debug)]
pub(crate) struct Peer {
    pub(crate) address: Address,
    pub(crate) port: u16,
    /// The next to be sent.
    pub(crate) seq: SeqNumber,
    /// Up to where all has come, and what is acknowledged.
    pub(crate) ack: SeqNumber,
    /// Up to where it acknowledges, where that is not all that has come.
    pub(crate) told: Option<SeqNumber>,
    pub(crate) window: u16,
    /// Bytes that have come in order.
    pub(crate) got: u64,
    /// The stack has reset it.
    pub(crate) is_reset: bool,
}

/// A stack with forged peers.
pub(crate) struct World {
    pub(crate) stack: Stack,
    pub(crate) card: Card,
    pub(crate) now_us: u64,
    pub(crate) peers: Vec<Peer>,
    /// Microseconds after which peers that open from now on answer the stack's SYN.
    pub(crate) trip_us: u64,
    /// By which the windows of peers that open from now on are shifted.
    pub(crate) window_shift: Option<u8>,
}

impl World {
    /// A stack that listens, with so many connections and so much memory at most.
    pub(crate) fn new(connections_max: usize, memory_max: usize) -> World {
        let card = Card::new(1500);
        let mut config = Config::new(vec!["192.0.2.1/8".parse().expect("an address")], [7; 32]);
        config.connections_max = connections_max;
        config.half_open_max = connections_max;
        config.memory_max = memory_max;
        // Frames are not summed up.
        config.trusts_link = true;
        let mut stack = Stack::new(config, card.features(), Instant::default());
        stack.listen(PORT);
        World {
            stack,
            card,
            now_us: 0,
            peers: Vec::new(),
            trip_us: 0,
            window_shift: None,
        }
    }

    /// Has a segment come from a peer's address, whatever the peer says.
    pub(crate) fn forge(&mut self, peer: &Peer, header: Header, payload: &[u8]) {
        let header = Header {
            source: peer.port,
            destination: PORT,
            ..header
        };
        let size = header.size();
        let packet = ip::Header::new(peer.address, OWN, Protocol::TCP, size + payload.len());
        let link = ethernet::Header {
            destination: OWN_MAC,
            source: PEER_MAC,
            vlan: 0,
            ether_type: EtherType::IPV4,
        };
        let (network, transport) = (link.size(), link.size() + packet.size());
        let mut frame = vec![0; transport + size];
        link.write(&mut frame);
        packet.write(&mut frame[network..], false);
        header.write(&mut frame[transport..]);
        frame.extend_from_slice(payload);
        self.card.arriving.push_back(frame);
    }

    /// Has a segment come that a peer sends, `offset` bytes beyond what comes next.
    pub(crate) fn send(&mut self, number: usize, offset: u32, options: Options, payload: &[u8]) {
        let peer = self.peers[number].clone();
        let header = Header {
            seq: peer.seq + offset,
            ack: peer.told.unwrap_or(peer.ack),
            flags: Flags::ACK,
            window: peer.window,
            options,
            ..Header::default()
        };
        self.forge(&peer, header, payload);
    }

    /// From now on a peer acknowledges no more than it has until now.
    pub(crate) fn hold_back(&mut self, number: usize) {
        let peer = &mut self.peers[number];
        peer.told = Some(peer.ack);
    }

    /// A peer that holds back acknowledges so many bytes more of what has come, in a segment.
    pub(crate) fn tell(&mut self, number: usize, len: u32) {
        let peer = &mut self.peers[number];
        let told = peer.told.unwrap_or(peer.ack);
        peer.told = Some(told + len.min(peer.ack.since(told)));
        self.send(number, 0, Options::default(), b"");
    }

    /// Lets time pass and has the stack go on: `act` is its user's part of the turn. Peers take what
    /// comes in order, and do not acknowledge it by themselves.
    pub(crate) fn turn(&mut self, passed_us: u64, act: impl FnOnce(&mut Stack, &mut Card)) {
        self.now_us += passed_us;
        self.stack
            .begin(Instant::from_micros(self.now_us), &mut self.card);
        act(&mut self.stack, &mut self.card);
        self.stack.end(&mut self.card);
        while let Some(frame) = self.card.left.pop_front() {
            self.take(&frame);
        }
    }

    /// As [`World::turn`], until all that was sent has come.
    pub(crate) fn settle(&mut self) {
        loop {
            self.turn(10, |_, _| {});
            if self.card.arriving.is_empty() {
                return;
            }
        }
    }

    fn take(&mut self, frame: &[u8]) {
        let (link, at) = ethernet::Header::read(frame).expect("a frame");
        if link.ether_type != EtherType::IPV4 {
            return;
        }
        let (packet, len) = ip::Header::read_v4(&frame[at..], true).expect("a packet");
        let segment = &frame[at + len..][..packet.payload_len];
        let (header, len) = tcp::Header::read(segment).expect("a segment");
        let is_its = |peer: &&mut Peer| {
            peer.port == header.destination && peer.address == packet.destination
        };
        let Some(peer) = self.peers.iter_mut().find(is_its) else {
            return;
        };
        peer.is_reset |= header.flags.has(Flags::RST);
        if header.flags.has(Flags::SYN) {
            peer.ack = header.seq + 1;
        } else if header.seq == peer.ack {
            let len = segment.len() - len;
            peer.ack += u32::try_from(len).expect("short");
            peer.got += len as u64;
        }
    }

    /// A peer opens a connection with a window and an MSS. Gives its number among the peers, and
    /// the stack's name where it has one.
    pub(crate) fn open(&mut self, window: u16, mss: u16) -> (usize, Option<ConnectionId>) {
        let number = self.peers.len();
        let [_, _, high, low] = u32::try_from(number).expect("few").to_be_bytes();
        let peer = Peer {
            address: Address::v4([192, 1, high, low]),
            port: 40_000,
            seq: SeqNumber(1000),
            ack: SeqNumber(0),
            told: None,
            window,
            got: 0,
            is_reset: false,
        };
        let options = Options {
            mss: Some(mss),
            window_scale: self.window_shift,
            sack_permitted: true,
            ..Options::default()
        };
        let syn = Header {
            seq: SeqNumber(999),
            flags: Flags::SYN,
            window,
            options,
            ..Header::default()
        };
        self.forge(&peer, syn, b"");
        self.peers.push(peer);
        self.settle();
        self.turn(self.trip_us, |_, _| {});
        self.send(number, 0, Options::default(), b"");
        self.settle();
        (number, self.stack.next_accepted())
    }
}
