//! Two stacks get the same segments, and their users do the same. One takes the fast path wherever
//! it can, the other never: its frames have a VLAN tag, with which no segment takes it.
//! What leaves must be the same bytes, tag aside, and so must what the users see.
#![no_main]

#[path = "tcp/card.rs"]
mod card;
#[path = "tcp/input.rs"]
mod input;

use std::time::Duration;

use card::{Card, TAG_AT};
use coua_tcp::config::Config;
use coua_tcp::nic::Nic;
use coua_tcp::seq::SeqNumber;
use coua_tcp::stack::{ConnectionId, Received, Stack};
use coua_tcp::time::Instant;
use coua_tcp::wire::tcp::{Flags, Header, Options, Timestamps};
use coua_tcp::wire::{ethernet, ip};
use input::Input;
use libfuzzer_sys::fuzz_target;

const PORTS: (u16, u16) = (1000, 11211);

/// The tag of the frames of the one without a fast path: of a VLAN that is not its own.
const TAG: [u8; 4] = [0x81, 0, 0, 7];

/// Bytes of a segment at most.
const SEGMENT_MAX: usize = 1448;

/// Segments that an input has at most.
const SEGMENTS_MAX: usize = 400;

fuzz_target!(|data: &[u8]| {
    let mut input = Input(data);
    let what = input.byte();
    let mut sides = [Side::new(false, what), Side::new(true, what)];
    let mut peer = Peer::open(&mut sides, what & 0x10 != 0);
    let mut segments = 0;
    while !input.0.is_empty() && segments < SEGMENTS_MAX {
        let what = input.byte();
        if what & 7 == 0 {
            // Some microseconds, or up to some seconds.
            let step = u64::from(input.word());
            peer.now_us += if what & 8 == 0 { step } else { step * 64 };
        } else {
            let (header, len, mark) = peer.segment(what, &mut input);
            for side in &mut sides {
                side.put(&header, len, mark);
            }
            segments += 1;
            if what & 0x80 != 0 && sides[0].card.inbox.len() < 16 {
                // More segments for the same burst.
                continue;
            }
        }
        let act = input.byte();
        let len = usize::from(input.byte()) * if act & 0x40 == 0 { 1 } else { 40 };
        peer.now_us += 1;
        for side in &mut sides {
            side.turn(peer.now_us, act, len);
        }
        let [fast, slow] = &sides;
        assert_eq!(fast.seen, slow.seen, "what the users see");
        assert_eq!(fast.in_order(), slow.in_order(), "what leaves");
        assert_eq!(fast.stack.counters(), slow.stack.counters());
        assert_eq!(fast.stack.buffers_in_use(), slow.stack.buffers_in_use());
        peer.look_at(&fast.card.left);
    }
});

/// The peer of both: its numbers, and what it has seen of theirs.
struct Peer {
    now_us: u64,
    /// The next number that it sends, and the next that it expects.
    seq: u32,
    ack: u32,
    /// The stack's timestamp that it saw last, and its own clock.
    echo: u32,
    clock: u32,
}

impl Peer {
    /// Opens a connection to both.
    fn open(sides: &mut [Side; 2], has_ecn: bool) -> Peer {
        let mut peer = Peer {
            now_us: 0,
            seq: 1000,
            ack: 0,
            echo: 0,
            clock: 1,
        };
        let mut syn = peer.header(Flags::SYN, 1000, 0, u16::MAX);
        syn.options.mss = Some(1460);
        syn.options.sack_permitted = true;
        syn.options.window_scale = Some(2);
        if has_ecn {
            syn.flags = Flags::SYN.and(Flags::ECE).and(Flags::CWR);
        }
        for side in sides.iter_mut() {
            side.put(&syn, 0, 0);
            side.turn(1, 0, 0);
        }
        assert_eq!(sides[0].card.left, sides[1].card.left);
        peer.look_at(&sides[0].card.left);
        peer.seq += 1;
        let last = peer.header(Flags::ACK, peer.seq, peer.ack, u16::MAX);
        for side in sides.iter_mut() {
            side.put(&last, 0, 0);
            side.turn(100, 0, 0);
            assert!(side.id.is_some(), "a connection");
        }
        peer.now_us = 100;
        peer
    }

    fn header(&self, flags: Flags, seq: u32, ack: u32, window: u16) -> Header {
        Header {
            source: PORTS.0,
            destination: PORTS.1,
            seq: SeqNumber(seq),
            ack: SeqNumber(ack),
            flags,
            window,
            options: Options {
                timestamps: Some(Timestamps {
                    value: self.clock,
                    echo: self.echo,
                }),
                ..Options::default()
            },
        }
    }

    /// Mostly the segment that is expected; now and then one that is not.
    fn segment(&mut self, what: u8, input: &mut Input<'_>) -> (Header, usize, u8) {
        let mut mark = 0;
        let len = match what >> 3 & 3 {
            0 => 0,
            1 => usize::from(input.byte() & 31),
            2 => usize::from(input.byte()),
            _ => usize::from(input.word()) % (SEGMENT_MAX + 1),
        };
        self.clock = self.clock.wrapping_add(u32::from(what & 1));
        let mut header = self.header(Flags::ACK.and(Flags::PSH), self.seq, self.ack, 60_000);
        if what & 0x60 == 0x60 {
            // Something about it is odd.
            let odd = input.byte();
            let near =
                |number: u32, step: u8| number.wrapping_add(u32::from(step)).wrapping_sub(128);
            match odd & 15 {
                0..=2 => header.seq = SeqNumber(near(self.seq, input.byte())),
                3 => header.seq = SeqNumber(self.seq.wrapping_add(u32::from(input.word()))),
                4..=5 => header.ack = SeqNumber(near(self.ack, input.byte())),
                6 => header.ack = SeqNumber(self.ack.wrapping_sub(u32::from(input.word()))),
                7..=8 => header.window = input.word(),
                9 => header.flags = Flags(input.byte()),
                10 => header.options.timestamps = None,
                11 => {
                    let value = self.clock.wrapping_sub(u32::from(input.byte()));
                    let echo = self.echo.wrapping_sub(u32::from(input.byte()));
                    header.options.timestamps = Some(Timestamps { value, echo });
                }
                12..=13 => {
                    let from = self.ack.wrapping_sub(u32::from(input.word() & 0x3fff));
                    let to = from.wrapping_add(u32::from(input.word() & 0xfff));
                    header.options.sack.push((SeqNumber(from), SeqNumber(to)));
                    header.ack = SeqNumber(self.ack.wrapping_sub(u32::from(input.word() & 0x3fff)));
                }
                14 => header.flags = header.flags.and(Flags::FIN),
                // A queue has marked it, or the peer tells of marks.
                _ => match input.byte() & 3 {
                    0 => header.flags = header.flags.and(Flags::ECE),
                    1 => header.flags = header.flags.and(Flags::CWR),
                    2 => mark = 2,
                    _ => mark = 3,
                },
            }
            // Lost on its way to nobody: the next has these numbers too.
            if odd & 0x10 == 0 {
                return (header, len, mark);
            }
        }
        if header.seq.0 == self.seq {
            self.seq = self.seq.wrapping_add(len as u32);
        }
        (header, len, mark)
    }

    /// Takes in what the stacks have sent.
    fn look_at(&mut self, frames: &[Vec<u8>]) {
        for frame in frames {
            let Some(header) = segment_of(frame) else {
                continue;
            };
            let (len, flags) = (payload_len(frame), header.flags);
            let end = header
                .seq
                .0
                .wrapping_add(len)
                .wrapping_add(u32::from(flags.has(Flags::SYN.and(Flags::FIN))));
            let is_next = self.ack == 0 || end.wrapping_sub(self.ack) < 1 << 31;
            if is_next && !flags.has(Flags::RST) {
                self.ack = end;
            }
            if let Some(timestamps) = header.options.timestamps {
                self.echo = timestamps.value;
            }
        }
    }
}

fn segment_of(frame: &[u8]) -> Option<Header> {
    let (_, at) = ethernet::Header::read(frame).ok()?;
    let (packet, len) = ip::Header::read_v4(&frame[at..], false).ok()?;
    let segment = &frame[at + len..][..packet.payload_len];
    Some(Header::read(segment).ok()?.0)
}

fn payload_len(frame: &[u8]) -> u32 {
    let (_, at) = ethernet::Header::read(frame).expect("a frame");
    let (packet, len) = ip::Header::read_v4(&frame[at..], false).expect("a packet");
    let segment = &frame[at + len..][..packet.payload_len];
    (segment.len() - Header::read(segment).expect("a segment").1) as u32
}

/// One of the two stacks, with its user.
struct Side {
    stack: Stack,
    card: Card,
    is_tagged: bool,
    id: Option<ConnectionId>,
    /// All that the user has seen.
    seen: Vec<String>,
    written: usize,
    came: usize,
}

impl Side {
    fn new(is_tagged: bool, what: u8) -> Side {
        let mut config = Config::new(vec!["192.0.2.1/24".parse().expect("an address")], [9; 32]);
        config.connections_max = 4;
        config.memory_max = 1 << 20;
        config.receive_len_max = 3000 + u32::from(what & 15) * 4000;
        config.send_len_max = 60_000;
        config.keep_alive = Some(Duration::from_secs(10));
        let card = Card::never_full(is_tagged.then_some(TAG));
        let mut stack = Stack::new(config, card.features(), Instant::default());
        stack.listen(PORTS.1);
        Side {
            stack,
            card,
            is_tagged,
            id: None,
            seen: Vec::new(),
            written: 0,
            came: 0,
        }
    }

    /// Has a segment come with the next burst.
    fn put(&mut self, header: &Header, len: usize, mark: u8) {
        let payload: Vec<u8> = (self.came..self.came + len).map(|at| at as u8).collect();
        self.came += len;
        let mut frame = card::frame(header, &payload);
        // The ECN field of IPv4; its checksum is not looked at.
        frame[15] |= mark;
        if self.is_tagged {
            frame.splice(TAG_AT..TAG_AT, TAG);
        }
        self.card.inbox.push(frame);
    }

    /// What has left, with what belongs to no connection at the end: what leaves at once is before
    /// it, and all else behind it.
    fn in_order(&self) -> Vec<&Vec<u8>> {
        let is_reset =
            |frame: &&Vec<u8>| segment_of(frame).is_some_and(|header| header.flags.has(Flags::RST));
        let mut frames: Vec<&Vec<u8>> = self.card.left.iter().collect();
        frames.sort_by_key(is_reset);
        frames
    }

    /// A turn in which the user reads, writes and closes as it is told.
    fn turn(&mut self, now_us: u64, act: u8, len: usize) {
        self.card.clear();
        self.seen.clear();
        self.stack
            .begin(Instant::from_micros(now_us), &mut self.card);
        while let Some(id) = self.stack.next_accepted() {
            self.id = Some(id);
        }
        while let Some((_, readiness)) = self.stack.next_ready() {
            self.seen.push(format!("{readiness:?}"));
        }
        if let Some(id) = self.id {
            self.act(id, act, len);
            self.seen.push(format!("{:?}", self.stack.describe(id)));
        }
        self.stack.end(&mut self.card);
        let described = self.id.map(|id| self.stack.describe(id));
        self.seen
            .push(format!("{described:?} {:?}", self.stack.deadline()));
    }

    fn act(&mut self, id: ConnectionId, act: u8, len: usize) {
        let mut space = vec![0; len.max(1)];
        if act & 1 != 0 {
            while let Received::Bytes(count) = self.stack.receive(&self.card, id, &mut space) {
                self.seen.push(format!("{:?}", &space[..count]));
                if act & 2 != 0 {
                    break;
                }
            }
        }
        let bytes: Vec<u8> = (self.written..self.written + len)
            .map(|at| at as u8)
            .collect();
        let sent = match act & 12 {
            // The one without a fast path has nothing that leaves at once: that is the difference.
            4 => self.stack.send_now(&mut self.card, id, &bytes).ok(),
            8 => self.stack.send(id, &bytes).ok(),
            _ => None,
        };
        self.written += sent.unwrap_or(0);
        self.seen.push(format!("{sent:?}"));
        // What leaves at once has nothing behind it in its turn, no end either.
        if act & 0xb0 == 0xb0 && act & 12 != 4 {
            self.stack.shut_down(id);
        }
    }
}
