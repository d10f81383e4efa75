//! An honest client: requests and replies over some connections that stay, and over new ones.

use coua_tcp::config::Config;
use coua_tcp::nic::Nic;
use coua_tcp::simulated::End;
use coua_tcp::stack::{ConnectionId, Received, Stack};
use coua_tcp::time::Instant;

/// Connections that stay.
const LASTING: usize = 4;

/// Microseconds between a reply and the next request of a connection.
const THINKS_US: u64 = 5_000;

/// The lengths of replies, in turns.
const LENS: [usize; 4] = [100, 1000, 4000, 20_000];

/// One connection.
struct Line {
    id: ConnectionId,
    /// It asks once, and is replaced.
    is_brief: bool,
    /// When it asked, for how much, and how much is missing.
    asked_us: u64,
    missing: usize,
    is_waiting: bool,
    next_us: u64,
}

/// What came of it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Report {
    /// Replies on connections that stay, and on new ones.
    pub(crate) replies: u64,
    pub(crate) brief: u64,
    pub(crate) bytes: u64,
    /// The longest that a reply has taken, the opening included on a new connection, in
    /// microseconds; also one that has not come yet.
    pub(crate) longest_us: u64,
    /// Connections that failed.
    pub(crate) failures: u64,
}

/// The client.
pub(crate) struct Client {
    pub(crate) stack: Stack,
    pub(crate) card: End,
    lines: Vec<Line>,
    asked: usize,
    report: Report,
}

impl Client {
    pub(crate) fn new(config: Config, card: End) -> Client {
        let stack = Stack::new(config, card.features(), Instant::default());
        Client {
            stack,
            card,
            lines: Vec::new(),
            asked: 0,
            report: Report::default(),
        }
    }

    fn open(&mut self, is_brief: bool, now_us: u64) {
        let to = "192.0.2.1:11211".parse().expect("an address");
        let id = self.stack.connect(to, |_| true).expect("there is room");
        self.lines.push(Line {
            id,
            is_brief,
            asked_us: now_us,
            missing: 0,
            is_waiting: false,
            next_us: now_us,
        });
    }

    pub(crate) fn turn(&mut self, now_us: u64) {
        self.stack
            .begin(Instant::from_micros(now_us), &mut self.card);
        if self.lines.is_empty() {
            (0..LASTING).for_each(|_| self.open(false, now_us));
            self.open(true, now_us);
        }
        while self.stack.next_ready().is_some() {}
        let mut lines = std::mem::take(&mut self.lines);
        lines.retain_mut(|line| self.go_on(line, now_us));
        let (mut lasting, mut brief) = (LASTING, 1);
        for line in &lines {
            *(if line.is_brief {
                &mut brief
            } else {
                &mut lasting
            }) -= 1;
        }
        self.lines.extend(lines);
        (0..lasting).for_each(|_| self.open(false, now_us));
        (0..brief).for_each(|_| self.open(true, now_us + THINKS_US));
        self.stack.end(&mut self.card);
    }

    /// False where the connection is over.
    fn go_on(&mut self, line: &mut Line, now_us: u64) -> bool {
        if !line.is_waiting && line.next_us <= now_us {
            let len = LENS[self.asked % LENS.len()];
            let request = format!("get {len}\n");
            match self.stack.send(line.id, request.as_bytes()) {
                Ok(taken) if taken == request.len() => {
                    self.asked += 1;
                    (line.is_waiting, line.missing) = (true, len);
                    line.asked_us = line.next_us;
                }
                Ok(_) => {}
                Err(_) => return self.give_up(line, now_us),
            }
        }
        let mut space = [0; 8192];
        while line.is_waiting {
            match self.stack.receive(&self.card, line.id, &mut space) {
                Received::Bytes(len) => {
                    assert!(len <= line.missing, "nothing else is sent");
                    line.missing -= len;
                    self.report.bytes += len as u64;
                    if line.missing == 0 {
                        let took_us = now_us - line.asked_us;
                        self.report.longest_us = self.report.longest_us.max(took_us);
                        (line.is_waiting, line.next_us) = (false, now_us + THINKS_US);
                        if line.is_brief {
                            self.report.brief += 1;
                            self.stack.close(line.id);
                            return false;
                        }
                        self.report.replies += 1;
                    }
                }
                Received::Nothing => break,
                Received::Ended | Received::Failed(_) => return self.give_up(line, now_us),
            }
        }
        true
    }

    fn give_up(&mut self, line: &Line, now_us: u64) -> bool {
        self.report.failures += 1;
        self.report.longest_us = self.report.longest_us.max(now_us - line.asked_us);
        self.stack.close(line.id);
        false
    }

    /// When it asks next, or its stack has something to do.
    pub(crate) fn next_us(&self, now_us: u64) -> Option<u64> {
        let asks = self.lines.iter().filter(|line| !line.is_waiting);
        let asks = asks.map(|line| line.next_us).filter(|at| *at > now_us);
        let deadline = self.stack.deadline().map(Instant::micros);
        asks.chain(deadline).min()
    }

    /// What came of it until now.
    pub(crate) fn report(&self, now_us: u64) -> Report {
        let waiting = self.lines.iter().filter(|line| line.is_waiting);
        let waits = waiting.map(|line| now_us.saturating_sub(line.asked_us));
        let opening = self.lines.iter().filter(|line| !line.is_waiting);
        let opening = opening.map(|line| now_us.saturating_sub(line.next_us));
        let longest_us = waits.chain(opening).max().unwrap_or(0);
        Report {
            longest_us: longest_us.max(self.report.longest_us),
            ..self.report
        }
    }
}
