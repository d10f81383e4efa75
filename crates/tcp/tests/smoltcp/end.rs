//! One end of a stream, on whichever stack: what it sends, what it expects, and at what pace.

use rand::RngExt;
use rand::rngs::Xoshiro256PlusPlus;

/// The user's side of a connection.
pub(crate) trait Socket {
    /// Copies out what has come.
    fn receive(&mut self, space: &mut [u8]) -> Result<Came, String>;
    /// Takes bytes to be sent, and says how many.
    fn send(&mut self, bytes: &[u8]) -> Result<usize, String>;
    /// Nothing more is sent.
    fn shut_down(&mut self);
}

/// What an attempt to receive came to.
pub(crate) enum Came {
    Bytes(usize),
    Nothing,
    /// The peer has ended, and everything is read.
    End,
}

/// How one end behaves.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Manner {
    /// Bytes that it sends.
    pub(crate) len: u64,
    /// It sends only when the peer has ended.
    pub(crate) waits_for_end: bool,
    pub(crate) reading: Reading,
}

/// At what pace an end reads.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reading {
    /// It does not read before, in microseconds.
    pub(crate) from_us: u64,
    /// Bytes at once.
    len_max: usize,
    /// Microseconds in between.
    pause_us: u64,
}

impl Reading {
    /// Everything at once.
    const EAGERLY: Reading = Reading {
        from_us: 0,
        len_max: 16 << 10,
        pause_us: 0,
    };
    /// Nothing for half a minute, so that probes back off.
    pub(crate) const AFTER_A_WHILE: Reading = Reading {
        from_us: 30_000_000,
        ..Reading::EAGERLY
    };
    /// A few bytes now and then.
    pub(crate) const SLOWLY: Reading = Reading {
        from_us: 0,
        len_max: 100,
        pause_us: 10_000,
    };
}

impl Manner {
    /// It sends so many bytes and then ends, and reads what comes.
    pub(crate) fn sends(len: u64) -> Manner {
        Manner {
            len,
            waits_for_end: false,
            reading: Reading::EAGERLY,
        }
    }

    /// Any manner, of no more bytes than that. It does not wait: two that do would wait for ever.
    pub(crate) fn drawn(dice: &mut Xoshiro256PlusPlus, len_max: u64) -> Manner {
        let mut manner = Manner::sends(dice.random_range(0..=len_max));
        if dice.random_bool(0.3) {
            manner.reading = Reading {
                // smoltcp throws away what was not read when TIME-WAIT ends, after ten seconds.
                from_us: dice.random_range(0..3_000_000),
                len_max: dice.random_range(1000..5000),
                pause_us: dice.random_range(0..30_000),
            };
        }
        manner
    }
}

/// The byte at a place of the stream that one of both sides sends.
fn byte(side: u8, at: u64) -> u8 {
    let mixed = (at + 1).wrapping_mul(0xd6e8_feb8_6659_fd93 + 2 * u64::from(side));
    (mixed >> 56) as u8
}

/// One end.
#[derive(Debug)]
pub(crate) struct End {
    /// Whose bytes it sends.
    side: u8,
    manner: Manner,
    expected: u64,
    sent: u64,
    received: u64,
    has_ended: bool,
    peer_has_ended: bool,
    reads_at_us: u64,
}

impl End {
    /// One that sends the bytes of `side`, to whom the other sends `expected` bytes.
    pub(crate) fn new(side: u8, manner: Manner, expected: u64) -> End {
        End {
            side,
            manner,
            expected,
            sent: 0,
            received: 0,
            has_ended: false,
            peer_has_ended: false,
            reads_at_us: manner.reading.from_us,
        }
    }

    /// It has sent and received everything.
    pub(crate) fn is_done(&self) -> bool {
        self.has_ended && self.peer_has_ended
    }

    /// When it reads on by itself, in microseconds.
    pub(crate) fn next_us(&self, now_us: u64) -> Option<u64> {
        (!self.peer_has_ended && self.reads_at_us > now_us).then_some(self.reads_at_us)
    }

    /// Does what it can.
    pub(crate) fn act(&mut self, socket: &mut impl Socket, now_us: u64) -> Result<(), String> {
        self.read(socket, now_us)?;
        if self.manner.waits_for_end && !self.peer_has_ended {
            return Ok(());
        }
        self.write(socket)
    }

    fn read(&mut self, socket: &mut impl Socket, now_us: u64) -> Result<(), String> {
        let reading = self.manner.reading;
        let mut space = vec![0; reading.len_max];
        while !self.peer_has_ended && self.reads_at_us <= now_us {
            match socket.receive(&mut space)? {
                Came::Bytes(count) => {
                    self.check(&space[..count])?;
                    self.reads_at_us = now_us + reading.pause_us;
                }
                Came::Nothing => return Ok(()),
                Came::End if self.received == self.expected => self.peer_has_ended = true,
                Came::End => return Err(format!("the end came early: {self:?}")),
            }
        }
        Ok(())
    }

    fn check(&mut self, bytes: &[u8]) -> Result<(), String> {
        for &found in bytes {
            let right = byte(1 - self.side, self.received);
            if found != right || self.received == self.expected {
                return Err(format!("{found} came instead of {right}: {self:?}"));
            }
            self.received += 1;
        }
        Ok(())
    }

    fn write(&mut self, socket: &mut impl Socket) -> Result<(), String> {
        while self.sent < self.manner.len {
            let until = self.manner.len.min(self.sent + 3000);
            let bytes: Vec<u8> = (self.sent..until).map(|at| byte(self.side, at)).collect();
            let taken = socket.send(&bytes)?;
            self.sent += taken as u64;
            if taken < bytes.len() {
                return Ok(());
            }
        }
        if !self.has_ended {
            self.has_ended = true;
            socket.shut_down();
        }
        Ok(())
    }
}
