//! One end of a stream: what it sends, what it expects, and how it goes about it.

use coua_tcp::stack::{ConnectionId, Failure, Received, Stack};
use rand::RngExt;

use crate::plan::{Dice, Plan, sized};

/// The byte at a place of a stream that has a number.
fn byte(stream: u64, at: u64) -> u8 {
    let mixed =
        (at ^ stream.wrapping_mul(0x9e37_79b9_7f4a_7c15)).wrapping_mul(0xd6e8_feb8_6659_fd93);
    (mixed >> 56) as u8
}

/// How it stands with one end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    Goes,
    /// Both sides have sent and received everything.
    Done,
    Failed(Failure),
}

/// One end.
pub(crate) struct Stream {
    pub(crate) id: ConnectionId,
    dice: Dice,
    /// What it sends: the number of its bytes, how many, and how many are sent.
    own: Option<(u64, u64)>,
    sent: u64,
    /// Bytes before these by which the opener says what both send.
    head_len: u64,
    /// What it receives.
    expected: Option<(u64, u64)>,
    received: u64,
    has_ended: bool,
    peer_has_ended: bool,
    is_slow: bool,
    /// It does nothing until then.
    pub(crate) rests_until: u64,
    /// It has something to do beyond what it is told of.
    pub(crate) is_awake: bool,
    head: Vec<u8>,
    pub(crate) standing: Standing,
}

/// The opener begins with the number of its bytes, how many there are, and how many come back.
const HEAD_LEN: usize = 24;

impl Stream {
    /// The end that opens the connection: it says what both send.
    pub(crate) fn opener(id: ConnectionId, mut dice: Dice, plan: &Plan) -> Stream {
        let (number, len) = (dice.random(), sized(&mut dice, 0, plan.len_max));
        Stream {
            own: Some((number, len)),
            expected: Some((number ^ 1, sized(&mut dice, 0, plan.len_max))),
            head_len: HEAD_LEN as u64,
            ..Stream::accepter(id, dice, plan)
        }
    }

    /// The end that finds out by what it gets.
    pub(crate) fn accepter(id: ConnectionId, dice: Dice, plan: &Plan) -> Stream {
        Stream {
            id,
            dice,
            own: None,
            sent: 0,
            head_len: 0,
            expected: None,
            received: 0,
            has_ended: false,
            peer_has_ended: false,
            is_slow: plan.is_slow,
            rests_until: 0,
            is_awake: true,
            head: Vec::new(),
            standing: Standing::Goes,
        }
    }

    /// Bytes that it has received.
    pub(crate) fn received(&self) -> u64 {
        self.received
    }

    /// How far it has come.
    pub(crate) fn progress(&self) -> String {
        format!(
            "{:?}: sent {} of {:?}, received {} of {:?}, ended {}",
            self.standing, self.sent, self.own, self.received, self.expected, self.has_ended
        )
    }

    /// Does what it can.
    pub(crate) fn act(
        &mut self,
        stack: &mut Stack,
        nic: &coua_tcp::simulated::End,
        now_us: u64,
    ) -> Result<(), String> {
        self.is_awake = false;
        if self.is_slow && self.dice.random_bool(0.2) {
            self.rests_until = now_us + sized(&mut self.dice, 1, 300_000);
            self.is_awake = true;
            return Ok(());
        }
        self.read(stack, nic)?;
        self.write(stack);
        let is_sent = self
            .own
            .is_some_and(|(_, len)| self.sent == self.head_len + len);
        if is_sent && !self.has_ended {
            self.has_ended = true;
            stack.shut_down(self.id);
        }
        if self.peer_has_ended && self.has_ended && self.standing == Standing::Goes {
            self.standing = Standing::Done;
        }
        if self.standing != Standing::Goes {
            stack.close(self.id);
        }
        Ok(())
    }

    fn read(&mut self, stack: &mut Stack, nic: &coua_tcp::simulated::End) -> Result<(), String> {
        let mut space = [0; 5000];
        loop {
            let len = match self.is_slow {
                true => self.dice.random_range(1..5000),
                false => space.len(),
            };
            match stack.receive(nic, self.id, &mut space[..len]) {
                Received::Bytes(count) => self.take(&space[..count])?,
                Received::Nothing => return Ok(()),
                Received::Ended => {
                    let len = self.expected.map(|(_, len)| len);
                    if len != Some(self.received) {
                        return Err(format!("the end came early: {}", self.progress()));
                    }
                    self.peer_has_ended = true;
                    return Ok(());
                }
                Received::Failed(failure) => {
                    self.standing = Standing::Failed(failure);
                    return Ok(());
                }
            }
        }
    }

    fn take(&mut self, mut bytes: &[u8]) -> Result<(), String> {
        if self.expected.is_none() {
            let count = bytes.len().min(HEAD_LEN - self.head.len());
            self.head.extend(&bytes[..count]);
            bytes = &bytes[count..];
            if self.head.len() < HEAD_LEN {
                return Ok(());
            }
            let word = |at: usize| {
                u64::from_le_bytes(self.head[at..at + 8].try_into().expect("eight bytes"))
            };
            self.expected = Some((word(0), word(8)));
            self.own = Some((word(0) ^ 1, word(16)));
        }
        let (stream, len) = self.expected.expect("just found out");
        for &found in bytes {
            let right = byte(stream, self.received);
            if found != right || self.received >= len {
                return Err(format!(
                    "byte {} is {found}, not {right}: {}",
                    self.received,
                    self.progress()
                ));
            }
            self.received += 1;
        }
        Ok(())
    }

    fn write(&mut self, stack: &mut Stack) {
        let Some((number, len)) = self.own else {
            return;
        };
        if self.has_ended {
            return;
        }
        let back = self.expected.map_or(0, |(_, len)| len);
        let head = [number.to_le_bytes(), len.to_le_bytes(), back.to_le_bytes()].concat();
        let (head_len, all) = (self.head_len, self.head_len + len);
        while self.sent < all {
            let most = sized(&mut self.dice, 1, 4000).min(all - self.sent);
            let bytes: Vec<u8> = (self.sent..self.sent + most)
                .map(
                    |at| match usize::try_from(at).ok().and_then(|at| head.get(at)) {
                        Some(&byte) if at < head_len => byte,
                        _ => byte(number, at - head_len),
                    },
                )
                .collect();
            match stack.send(self.id, &bytes) {
                Ok(taken) => {
                    self.sent += taken as u64;
                    if taken < bytes.len() {
                        return;
                    }
                }
                Err(failure) => {
                    self.standing = Standing::Failed(failure);
                    return;
                }
            }
        }
    }
}
