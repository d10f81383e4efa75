//! The attacks: each is what one who means no good does with a card and a clock.

use coua_tcp::seq::SeqNumber;
use coua_tcp::wire::tcp::{Flags, Options, Sack};

use crate::forged::{Connections, ISS};
use crate::forger::{Forger, Heard, header};
use crate::world::Attack;

/// The attacker's own address, and the honest client's.
const OWN: u8 = 3;
const HONEST: u8 = 2;

/// A number that changes with each call: the same in each run.
#[derive(Clone, Copy)]
pub(crate) struct Dice(pub(crate) u64);

impl Dice {
    fn next(&mut self) -> u32 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 32) as u32
    }
}

fn sack_and(mss: u16, window_scale: u8) -> Options {
    Options {
        mss: Some(mss),
        window_scale: Some(window_scale),
        sack_permitted: true,
        ..Options::default()
    }
}

/// Bytes at every second number of the window, from its end to its beginning: 30,000 segments a
/// second, over some connections.
pub(crate) struct DescendingPieces {
    connections: Connections,
    opened: u16,
    place: u32,
}

impl DescendingPieces {
    const CONNECTIONS: u16 = 8;
    const TOP: u32 = 60_000;

    pub(crate) fn new() -> DescendingPieces {
        DescendingPieces {
            connections: Connections::new(sack_and(1460, 0), u16::MAX),
            opened: 0,
            place: 0,
        }
    }
}

impl Attack for DescendingPieces {
    fn act(&mut self, forger: &mut Forger, _: u64) {
        if self.place == 0 {
            let port = 5000 + self.opened % Self::CONNECTIONS;
            if !self.connections.has(OWN, port) {
                self.connections.open(forger, OWN, port);
            }
            self.opened += 1;
            self.place = Self::TOP;
        }
        let port = 5000 + (self.opened - 1) % Self::CONNECTIONS;
        let mut open = self.connections.open_ones();
        let Some(forged) = open.find(|forged| forged.port == port) else {
            return;
        };
        for _ in 0..30.min(self.place / 2) {
            let seq = forged.seq.wrapping_add(self.place);
            let header = header(port, Flags::ACK, seq, forged.ack, u16::MAX);
            forger.send(OWN, &header, b"g");
            self.place -= 2;
        }
    }

    fn hear(&mut self, forger: &mut Forger, heard: &Heard) {
        self.connections.hear(forger, heard, b"");
    }
}

/// Readers of large replies that acknowledge 64 bytes each four seconds.
pub(crate) struct SlowReaders {
    connections: Connections,
    count: u16,
    /// Connections that are opened each millisecond.
    pace: u16,
    /// Whether one that is reset is opened again.
    returns: bool,
    opened: u32,
}

impl SlowReaders {
    pub(crate) fn new(count: u16, window: u16, pace: u16, returns: bool) -> SlowReaders {
        let options = Options {
            mss: Some(1460),
            ..Options::default()
        };
        SlowReaders {
            connections: Connections::new(options, window),
            count,
            pace,
            returns,
            opened: 0,
        }
    }
}

impl Attack for SlowReaders {
    fn act(&mut self, forger: &mut Forger, now_us: u64) {
        for _ in 0..self.pace {
            if !self.returns && self.opened >= u32::from(self.count) {
                break;
            }
            let number = self.opened % u32::from(self.count);
            let port = 10_000 + u16::try_from(number).expect("below the count");
            if !self.connections.has(OWN, port) {
                self.connections.open(forger, OWN, port);
            }
            self.opened += 1;
        }
        // Each has its millisecond of four seconds.
        let turn = now_us / 1000 % 4000;
        for forged in self.connections.open_ones() {
            if u64::from(forged.port) % 4000 == turn && forged.unacknowledged() > 0 {
                forged.ack = forged.ack.wrapping_add(forged.unacknowledged().min(64));
                forged.send(forger, Flags::ACK, b"");
            }
        }
    }

    fn hear(&mut self, forger: &mut Forger, heard: &Heard) {
        let request = b"get 4000\n".repeat(6);
        if let Some(forged) = self.connections.hear(forger, heard, &request) {
            // What goes beyond the window is a probe, and wants to be answered.
            if heard.len == 0 && forged.unacknowledged() == 0 {
                return;
            }
            if heard.header.seq.0 != forged.ack {
                forged.send(forger, Flags::ACK, b"");
            }
        }
    }
}

/// One that says that it takes a byte in a segment, and wants a lot.
pub(crate) struct TinyMss {
    connections: Connections,
    opened: bool,
    /// Bytes that came, and segments with bytes.
    pub(crate) bytes: u64,
    pub(crate) segments: u64,
}

impl TinyMss {
    pub(crate) fn new() -> TinyMss {
        TinyMss {
            connections: Connections::new(sack_and(1, 7), u16::MAX),
            opened: false,
            bytes: 0,
            segments: 0,
        }
    }
}

impl Attack for TinyMss {
    fn act(&mut self, forger: &mut Forger, _: u64) {
        if !std::mem::replace(&mut self.opened, true) {
            self.connections.open(forger, OWN, 6000);
        }
        for forged in self.connections.open_ones() {
            if forged.unacknowledged() > 0 {
                forged.ack = forged.nxt;
                forged.send(forger, Flags::ACK, b"");
            }
        }
    }

    fn hear(&mut self, forger: &mut Forger, heard: &Heard) {
        self.bytes += u64::from(heard.len);
        self.segments += u64::from(heard.len > 0);
        self.connections.hear(forger, heard, b"get 1000000000\n");
    }
}

/// What an attacker tells of what it has of a long reply.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tells {
    /// Every second segment, from the end backwards, in 30,000 acknowledgments a second.
    Storm,
    /// Now this and now that, and nothing is ever acknowledged: it goes back on its word.
    Reneges,
}

/// One that takes the beginning of a long reply, and then tells lies about the rest.
pub(crate) struct Sacks {
    connections: Connections,
    tells: Tells,
    dice: Dice,
    opened: bool,
}

impl Sacks {
    const MSS: u32 = 536;

    pub(crate) fn new(tells: Tells) -> Sacks {
        Sacks {
            connections: Connections::new(sack_and(536, 7), u16::MAX),
            tells,
            dice: Dice(77),
            opened: false,
        }
    }
}

impl Attack for Sacks {
    fn act(&mut self, forger: &mut Forger, now_us: u64) {
        if !std::mem::replace(&mut self.opened, true) {
            self.connections.open(forger, OWN, 7000);
        }
        let count = match self.tells {
            Tells::Storm => 30,
            Tells::Reneges => 1,
        };
        let (tells, dice) = (self.tells, &mut self.dice);
        for forged in self.connections.open_ones() {
            if now_us < 500_000 {
                // The window grows first.
                forged.ack = forged.nxt;
                forged.send(forger, Flags::ACK, b"");
                continue;
            }
            let segments = forged.unacknowledged() / Self::MSS;
            for _ in 0..count {
                let mut header = header(7000, Flags::ACK, forged.seq, forged.ack, u16::MAX);
                let mut sack = Sack::NONE;
                for _ in 0..4 {
                    let from = match tells {
                        Tells::Storm => (dice.next() % segments.max(2)) | 1,
                        Tells::Reneges => dice.next() % segments.max(2) + 1,
                    };
                    let len = match tells {
                        Tells::Storm => 1,
                        Tells::Reneges => dice.next() % 8 + 1,
                    };
                    let at = |segment: u32| forged.ack.wrapping_add(segment * Self::MSS);
                    if from + len <= segments {
                        sack.push((SeqNumber(at(from)), SeqNumber(at(from + len))));
                    }
                }
                header.options.sack = sack;
                forger.send(OWN, &header, b"");
            }
        }
    }

    fn hear(&mut self, forger: &mut Forger, heard: &Heard) {
        self.connections.hear(forger, heard, b"get 1000000000\n");
    }
}

/// Connections that have the server close first, a thousand a second.
pub(crate) struct TimeWaits {
    connections: Connections,
    port: u16,
}

impl TimeWaits {
    pub(crate) fn new() -> TimeWaits {
        let options = Options {
            mss: Some(1460),
            ..Options::default()
        };
        TimeWaits {
            connections: Connections::new(options, u16::MAX),
            port: 0,
        }
    }
}

impl Attack for TimeWaits {
    fn act(&mut self, forger: &mut Forger, _: u64) {
        self.port = self.port % 60_000 + 1;
        self.connections.open(forger, OWN, 1024 + self.port);
    }

    fn hear(&mut self, forger: &mut Forger, heard: &Heard) {
        let ends = heard.header.flags.has(Flags::FIN);
        if let Some(forged) = self.connections.hear(forger, heard, b"quit\n")
            && ends
        {
            forged.ack = forged.nxt;
            forged.send(forger, Flags::ACK.and(Flags::FIN), b"");
            let port = forged.port;
            self.connections.forget(OWN, port);
        }
    }
}

/// Connections that are over for the server's user, with replies that their peers never take; the
/// peers answer every probe.
pub(crate) struct Orphans {
    connections: Connections,
    opened: u16,
}

impl Orphans {
    const CONNECTIONS: u16 = 40;

    pub(crate) fn new() -> Orphans {
        let options = Options {
            mss: Some(1460),
            ..Options::default()
        };
        Orphans {
            connections: Connections::new(options, 0),
            opened: 0,
        }
    }
}

impl Attack for Orphans {
    fn act(&mut self, forger: &mut Forger, _: u64) {
        if self.opened < Self::CONNECTIONS {
            self.connections.open(forger, OWN, 8000 + self.opened);
            self.opened += 1;
        }
    }

    fn hear(&mut self, forger: &mut Forger, heard: &Heard) {
        let is_opening = heard.header.flags.has(Flags::SYN);
        let request = b"get 2000\nquit\n";
        if let Some(forged) = self.connections.hear(forger, heard, request)
            && !is_opening
            && heard.header.seq.0 != forged.ack
        {
            forged.send(forger, Flags::ACK, b"");
        }
    }
}

/// Segments in the honest client's name whose numbers are guessed, from beyond a router: 20,000 a
/// second.
pub(crate) struct Blind {
    dice: Dice,
}

impl Blind {
    pub(crate) fn new() -> Blind {
        Blind { dice: Dice(5) }
    }
}

impl Attack for Blind {
    fn act(&mut self, forger: &mut Forger, now_us: u64) {
        forger.is_router = true;
        // Few: each that begins something is answered, and the honest client resets that.
        let syns = (now_us / 1000).is_multiple_of(20);
        for round in 0..20 {
            let port = 49_152 + u16::try_from(self.dice.next() % 16_384).expect("short");
            let (seq, ack) = (self.dice.next(), self.dice.next());
            let (flags, payload): (Flags, &[u8]) = match round % 4 {
                0 => (Flags::RST, b""),
                1 if syns => (Flags::SYN, b""),
                2 => (Flags::RST.and(Flags::ACK), b""),
                _ => (Flags::ACK, b"quit\n"),
            };
            forger.send(HONEST, &header(port, flags, seq, ack, 1000), payload);
        }
    }
}

/// A stack that has lost its place: it answers each acknowledgment with one that is out of the
/// window, as does the other.
pub(crate) struct AckLoop {
    connections: Connections,
    opened: u16,
}

impl AckLoop {
    pub(crate) const CONNECTIONS: u16 = 10;

    pub(crate) fn new() -> AckLoop {
        AckLoop {
            connections: Connections::new(sack_and(1460, 0), u16::MAX),
            opened: 0,
        }
    }
}

impl Attack for AckLoop {
    fn act(&mut self, forger: &mut Forger, _: u64) {
        if self.opened < Self::CONNECTIONS {
            self.connections.open(forger, OWN, 9000 + self.opened);
            self.opened += 1;
        }
    }

    fn hear(&mut self, forger: &mut Forger, heard: &Heard) {
        if let Some(forged) = self.connections.hear(forger, heard, b"") {
            let seq = ISS.wrapping_sub(1 << 20);
            let lost = header(forged.port, Flags::ACK, seq, forged.ack, u16::MAX);
            forger.send(OWN, &lost, b"");
        }
    }
}
