//! The segments of one stream, in whatever order and cut, beside a receiver that is as simple as can
//! be: a list of which bytes of the stream have come. What the user reads, what is acknowledged,
//! what is told by SACK and what window is offered must be what that receiver says.
//!
//! All segments agree about the stream's bytes, since what a sender means by two versions of a byte
//! no receiver can know. What goes beyond the right edge of the window is cut off.
#![no_main]

#[path = "tcp/card.rs"]
mod card;
#[path = "tcp/input.rs"]
mod input;

use std::time::Duration;

use card::Card;
use coua_tcp::config::Config;
use coua_tcp::nic::Nic;
use coua_tcp::seq::SeqNumber;
use coua_tcp::stack::{ConnectionId, Received, Stack};
use coua_tcp::time::Instant;
use coua_tcp::wire::tcp::{Flags, Header, Options};
use input::Input;
use libfuzzer_sys::fuzz_target;

const PORTS: (u16, u16) = (1000, 11211);

/// Bytes of a stream at most.
const STREAM_MAX: usize = 40_000;

/// Segments of an input at most: the stack keeps some hundred pieces beyond gaps.
const SEGMENTS_MAX: usize = 300;

/// Bytes of a segment at most.
const SEGMENT_MAX: usize = 1460;

fuzz_target!(|data: &[u8]| {
    let mut input = Input(data);
    let mut peer = Peer::new(&mut input);
    let mut segments = 0;
    while !input.0.is_empty() && segments < SEGMENTS_MAX {
        let what = input.byte();
        if what & 3 == 0 {
            peer.now_us += u64::from(input.word()) * 16;
        } else {
            let at = peer.place(what, &mut input);
            let len = match what >> 4 & 3 {
                0 => usize::from(input.byte() & 7),
                1 => SEGMENT_MAX,
                _ => usize::from(input.word()) % (SEGMENT_MAX + 1),
            };
            peer.put(at, len);
            segments += 1;
            if what & 0x40 != 0 && peer.card.inbox.len() < 32 {
                // More segments for the same burst.
                continue;
            }
        }
        let reads = if what & 0x80 != 0 { 0 } else { input.word() };
        peer.turn(usize::from(reads));
    }
    // At last all comes in order, to a user who reads.
    for _ in 0..STREAM_MAX {
        peer.turn(STREAM_MAX);
        if peer.has_ended {
            break;
        }
        peer.put(peer.next, SEGMENT_MAX);
    }
    assert!(peer.has_ended && peer.read == peer.stream_len);
    assert_eq!(peer.stack.counters().dropped_memory, 0);
    peer.stack.abort(peer.id);
    peer.stack.end(&mut peer.card);
    assert_eq!(
        (peer.stack.connections(), peer.stack.buffers_in_use()),
        (0, 0)
    );
});

/// The byte at a place of the stream.
fn byte_at(at: usize) -> u8 {
    (at.wrapping_mul(0x9e37_79b1) >> 13) as u8
}

/// Who sends the stream, knows what has come of it, and turns the receiving stack.
struct Peer {
    stack: Stack,
    card: Card,
    id: ConnectionId,
    now_us: u64,
    /// The number of the stream's first byte.
    first: SeqNumber,
    /// That of the stack's first byte, of which it sends none.
    theirs: SeqNumber,
    stream_len: usize,
    /// Which bytes have come within the window.
    has_come: Vec<bool>,
    /// The first that has not.
    next: usize,
    /// Segments that come with the next burst: the first byte's place, and how many.
    underway: Vec<(usize, usize)>,
    /// Where the window ends: what is beyond is not taken.
    edge: usize,
    /// Bytes that the user has.
    read: usize,
    has_ended: bool,
}

impl Peer {
    /// A connection, opened.
    fn new(input: &mut Input<'_>) -> Peer {
        let mut config = Config::new(vec!["192.0.2.1/24".parse().expect("an address")], [9; 32]);
        config.connections_max = 4;
        config.memory_max = 1 << 20;
        config.receive_len_max = 3000 + u32::from(input.word() % 30_000);
        config.keep_alive = None;
        config.user_timeout = Duration::from_secs(100_000);
        config.trusts_link = true;
        let stream_len = usize::from(input.word()) % STREAM_MAX + 1;
        // Numbers go round within the stream, or near it.
        let first = SeqNumber(u32::from(input.word()).wrapping_sub(1 << 15));
        let mut card = Card::new();
        let mut stack = Stack::new(config, card.features(), Instant::default());
        stack.listen(PORTS.1);
        let mut opening =
            Peer::header(SeqNumber(first.0.wrapping_sub(1)), SeqNumber(0), Flags::SYN);
        opening.options.mss = Some(1460);
        opening.options.sack_permitted = true;
        card.inbox.push(card::frame(&opening, &[]));
        stack.begin(Instant::from_micros(1), &mut card);
        stack.end(&mut card);
        let theirs = card.last.expect("an answer").seq + 1;
        card.inbox
            .push(card::frame(&Peer::header(first, theirs, Flags::ACK), &[]));
        stack.begin(Instant::from_micros(2), &mut card);
        let id = stack.next_accepted().expect("a connection");
        stack.end(&mut card);
        let last = card.last.expect("an answer");
        Peer {
            edge: usize::from(last.window),
            stack,
            card,
            id,
            now_us: 2,
            first,
            theirs,
            stream_len,
            has_come: vec![false; stream_len],
            next: 0,
            underway: Vec::new(),
            read: 0,
            has_ended: false,
        }
    }

    fn header(seq: SeqNumber, ack: SeqNumber, flags: Flags) -> Header {
        Header {
            source: PORTS.0,
            destination: PORTS.1,
            seq,
            ack,
            flags,
            window: 65_535,
            options: Options::default(),
        }
    }

    /// The place where a segment begins: the next byte, one near it, or any.
    fn place(&self, what: u8, input: &mut Input<'_>) -> usize {
        let at = match what & 12 {
            0 => self.next,
            4 => (self.next + usize::from(input.byte())).saturating_sub(64),
            8 => (self.next + usize::from(input.word() % 8192)).saturating_sub(1024),
            _ => usize::from(input.word()),
        };
        at.min(self.stream_len)
    }

    /// Has a segment come with the next burst. The stream's last carries its end.
    fn put(&mut self, at: usize, len: usize) {
        let end = (at + len).min(self.stream_len);
        let payload: Vec<u8> = (at..end).map(byte_at).collect();
        let mut flags = Flags::ACK;
        if end == self.stream_len {
            flags = flags.and(Flags::FIN);
        }
        let seq = self.first + u32::try_from(at).expect("short");
        let header = Peer::header(seq, self.theirs, flags);
        self.card.inbox.push(card::frame(&header, &payload));
        self.underway.push((at, end));
    }

    /// A turn in which the user reads so many bytes, and none where `reads` is 0.
    fn turn(&mut self, reads: usize) {
        for (at, end) in std::mem::take(&mut self.underway) {
            let end = end.min(self.edge);
            // Numbers wholly outside of the window count for nothing (RFC 9293, section 3.10.7.4).
            if at < end {
                self.has_come[at..end].fill(true);
            }
        }
        while self.has_come.get(self.next) == Some(&true) {
            self.next += 1;
        }
        self.now_us += 1;
        self.stack
            .begin(Instant::from_micros(self.now_us), &mut self.card);
        while self.stack.next_ready().is_some() {}
        let mut left = reads;
        let mut space = [0; 2000];
        while left > 0 {
            let len = left.min(space.len());
            match self.stack.receive(&self.card, self.id, &mut space[..len]) {
                Received::Bytes(len) => {
                    let expected = (self.read..self.read + len).map(byte_at);
                    assert!(expected.eq(space[..len].iter().copied()));
                    self.read += len;
                    assert!(self.read <= self.next, "bytes that have not come");
                    left -= len;
                }
                Received::Nothing => {
                    assert_eq!(self.read, self.next, "bytes that have come");
                    break;
                }
                Received::Ended => {
                    assert_eq!(self.read, self.stream_len, "the end before its time");
                    self.has_ended = true;
                    break;
                }
                Received::Failed(why) => panic!("{why:?}"),
            }
        }
        self.stack.end(&mut self.card);
        for header in std::mem::take(&mut self.card.sent) {
            self.look_at(&header);
        }
    }

    /// What the stack says of the stream is true.
    fn look_at(&mut self, header: &Header) {
        assert!(!header.flags.has(Flags::RST.and(Flags::SYN)), "{header:?}");
        let acknowledged = header.ack.since(self.first) as usize;
        let next = self.next;
        let with_end = next == self.stream_len && acknowledged == next + 1;
        assert!(acknowledged == next || with_end, "{acknowledged} of {next}");
        for &(from, to) in header.options.sack.blocks() {
            let told = from.since(self.first) as usize..to.since(self.first) as usize;
            assert!(
                !told.is_empty() && told.end <= self.stream_len + 1,
                "{told:?}"
            );
            // The end of the stream has a number too.
            let bytes = &self.has_come[told.start..told.end.min(self.stream_len)];
            assert!(bytes.iter().all(|&has_come| has_come), "{told:?}");
        }
        let edge = acknowledged + usize::from(header.window);
        assert!(edge >= self.edge, "the edge goes back to {edge}");
        self.edge = edge;
    }
}
