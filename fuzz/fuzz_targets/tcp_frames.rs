//! A stack with open connections gets whatever frames: no panic, memory within its bounds, and
//! nothing left over once everybody is gone. Half of the frames are segments whose numbers are near
//! those that count, since others are dropped at the door.
#![no_main]

use std::time::Duration;

use coua_tcp::config::Config;
use coua_tcp::nic::{Features, Frame, Mac, Nic, Offload};
use coua_tcp::seq::SeqNumber;
use coua_tcp::stack::{ConnectionId, Received, Stack};
use coua_tcp::time::Instant;
use coua_tcp::wire::Address;
use coua_tcp::wire::ethernet::{self, EtherType};
use coua_tcp::wire::ip::{self, Protocol};
use coua_tcp::wire::tcp::{Flags, Header, Options, Timestamps};
use libfuzzer_sys::fuzz_target;

const OURS: Address = Address::v4([192, 0, 2, 1]);
const PEER: Address = Address::v4([192, 0, 2, 2]);
const OUR_MAC: Mac = Mac([2, 0, 0, 0, 0, 1]);
const PEER_MAC: Mac = Mac([2, 0, 0, 0, 0, 2]);
const PORT: u16 = 11211;

/// Frames in a burst at most, and out of one.
const OUT_MAX: usize = 8;

/// A card without a cable: what is put into it comes, and what leaves is looked at.
struct Card {
    inbox: Vec<Vec<u8>>,
    slot: Vec<u8>,
    out: usize,
    /// What the stack said last: where it is, and what it has.
    last: Option<Header>,
}

impl Nic for Card {
    fn features(&self) -> Features {
        Features {
            mac: OUR_MAC,
            mtu: 1500,
            fills_checksums: false,
            segmentation_len_max: 0,
        }
    }

    fn receive(&mut self) -> usize {
        self.out = 0;
        self.inbox.len()
    }

    fn frame(&self, at: usize) -> Frame<'_> {
        Frame {
            bytes: &self.inbox[at],
            is_verified: true,
        }
    }

    fn release(&mut self) {
        self.inbox.clear();
    }

    fn slot(&mut self) -> Option<&mut [u8]> {
        (self.out < OUT_MAX).then_some(&mut self.slot[..])
    }

    fn commit(&mut self, len: usize, _: Offload) {
        self.out += 1;
        assert!(len <= 1518, "a frame of {len} bytes");
        // What leaves must be readable.
        let (link, at) = ethernet::Header::read(&self.slot[..len]).expect("a frame");
        if link.ether_type == EtherType::IPV4 {
            let (packet, header_len) =
                ip::Header::read_v4(&self.slot[at..len], false).expect("a packet");
            if packet.protocol == Protocol::TCP {
                let at = at + header_len;
                self.last = Some(Header::read(&self.slot[at..len]).expect("a segment").0);
            }
        }
    }

    fn flush(&mut self) {}
}

/// Takes numbers from the input; zeros at its end.
struct Input<'d>(&'d [u8]);

impl Input<'_> {
    fn byte(&mut self) -> u8 {
        match self.0.split_first() {
            Some((&first, rest)) => {
                self.0 = rest;
                first
            }
            None => 0,
        }
    }

    fn word(&mut self) -> u16 {
        u16::from_be_bytes([self.byte(), self.byte()])
    }

    fn bytes(&mut self, len: usize) -> &[u8] {
        let (taken, rest) = self.0.split_at(len.min(self.0.len()));
        self.0 = rest;
        taken
    }
}

fuzz_target!(|data: &[u8]| {
    let mut input = Input(data);
    let mut config = Config::new(vec!["192.0.2.1/24".parse().expect("an address")], [9; 32]);
    config.connections_max = 16;
    config.half_open_max = 3;
    config.memory_max = 1 << 20;
    config.receive_len_max = 20_000;
    config.send_len_max = 20_000;
    config.keep_alive = Some(Duration::from_secs(10));
    config.trusts_link = true;
    let mut card = Card {
        inbox: Vec::new(),
        slot: vec![0; 1518],
        out: 0,
        last: None,
    };
    let mut stack = Stack::new(config, card.features(), Instant::default());
    stack.listen(PORT);
    stack.listen_for_datagrams(PORT);
    let mut now_us = 0u64;
    let mut ids: Vec<ConnectionId> = Vec::new();
    while !input.0.is_empty() {
        let what = input.byte();
        match what % 8 {
            0 => now_us += u64::from(input.word()) * u64::from(input.word()),
            1 => {
                let len = usize::from(input.word() % 1600);
                let mut frame = input.bytes(len).to_vec();
                // For us, so that it is looked at.
                if let Some(destination) = frame.first_chunk_mut::<6>() {
                    *destination = OUR_MAC.0;
                }
                card.inbox.push(frame);
            }
            2 if ids.len() < 8 => {
                let to = "192.0.2.2:80".parse().expect("an address");
                ids.extend(stack.connect(to, |_| true).ok());
            }
            _ => {
                let frame = segment(&mut input, card.last);
                card.inbox.push(frame);
            }
        }
        if what & 0x40 != 0 && card.inbox.len() < 64 {
            // More frames for the same burst.
            continue;
        }
        now_us += 1;
        turn(&mut stack, &mut card, now_us, &mut ids, what);
        assert!(stack.connections() <= 16);
    }
    for &id in &ids {
        stack.abort(id);
    }
    // Every timer fires sooner or later.
    for _ in 0..64 {
        now_us += 60_000_000;
        card.out = 0;
        turn(&mut stack, &mut card, now_us, &mut ids, 0x80);
    }
    assert_eq!((stack.connections(), stack.buffers_in_use()), (0, 0));
});

/// A segment whose numbers are near those that the stack goes by.
fn segment(input: &mut Input<'_>, last: Option<Header>) -> Vec<u8> {
    let flags = Flags(input.byte());
    let ports = input.byte();
    let (mut seq, mut ack) = (u32::from(input.word()), u32::from(input.word()));
    if let Some(last) = last {
        let near = |number: u32, step: u32| number.wrapping_add(step).wrapping_sub(1 << 15);
        let exact = |number: u32, step: u32| {
            if step < 1 << 14 {
                number
            } else {
                near(number, step)
            }
        };
        (seq, ack) = (exact(last.ack.0, seq), exact(last.seq.0, ack));
        if last.flags.has(Flags::SYN) {
            ack = ack.wrapping_add(1);
        }
    }
    let mut options = Options::default();
    let kinds = input.byte();
    if kinds & 1 != 0 {
        options.mss = Some(input.word());
    }
    if kinds & 2 != 0 {
        options.window_scale = Some(input.byte());
    }
    options.sack_permitted = kinds & 4 != 0;
    if kinds & 8 != 0 {
        let echo = last
            .and_then(|last| last.options.timestamps)
            .map_or(0, |own| own.value);
        options.timestamps = Some(Timestamps {
            value: u32::from(input.word()),
            echo,
        });
    }
    if kinds & 0x10 != 0 && kinds & 7 == 0 {
        let base = last.map_or(0, |last| last.seq.0);
        for _ in 0..=kinds >> 7 {
            let from = base.wrapping_add(u32::from(input.word()));
            options.sack.push((
                SeqNumber(from),
                SeqNumber(from.wrapping_add(u32::from(input.word()))),
            ));
        }
    }
    let len = usize::from(input.word() % 1400);
    let header = Header {
        // A few ports, so that segments meet connections.
        source: match last {
            Some(last) if ports & 0x80 != 0 => last.destination,
            _ => 1000 + u16::from(ports & 7),
        },
        destination: match last {
            Some(last) if ports & 0x80 != 0 => last.source,
            _ => PORT,
        },
        seq: SeqNumber(seq),
        ack: SeqNumber(ack),
        flags,
        window: input.word(),
        options,
    };
    let payload = vec![b'x'; len];
    let link = ethernet::Header {
        destination: OUR_MAC,
        source: PEER_MAC,
        vlan: 0,
        ether_type: EtherType::IPV4,
    };
    let packet = ip::Header::new(PEER, OURS, Protocol::TCP, header.size() + len);
    let mut frame = vec![0; 34 + header.size()];
    link.write(&mut frame);
    packet.write(&mut frame[14..], false);
    header.write(&mut frame[34..]);
    frame.extend(payload);
    frame
}

/// A turn of a user who reads, writes and closes as the input has it.
fn turn(stack: &mut Stack, card: &mut Card, now_us: u64, ids: &mut Vec<ConnectionId>, what: u8) {
    stack.begin(Instant::from_micros(now_us), card);
    while let Some(id) = stack.next_accepted() {
        ids.push(id);
    }
    let mut space = [0; 3000];
    while let Some((id, readiness)) = stack.next_ready() {
        if what & 0x20 == 0 {
            while let Received::Bytes(len) = stack.receive(card, id, &mut space) {
                assert!(space[..len].iter().all(|&byte| byte == b'x') || what % 8 == 1);
                let _ = stack.send(id, &space[..len]);
            }
        }
        if readiness.failure.is_some() || readiness.ended || what & 0x80 != 0 {
            match what & 0x10 {
                0 => stack.close(id),
                _ => stack.shut_down(id),
            }
        }
    }
    while let Some(datagram) = stack.next_datagram() {
        let len = datagram.bytes(card).len();
        stack.answer(card, &datagram, &[&space[..len.min(1000)]]);
    }
    while stack.next_notice().is_some() {}
    ids.retain(|&id| stack.describe(id).is_some());
    if what & 0x80 != 0 {
        for id in ids.drain(..) {
            stack.close(id);
        }
    }
    stack.end(card);
}
