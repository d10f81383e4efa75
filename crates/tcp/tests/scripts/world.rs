//! A stack, the script at the other end of its card, and time.

use std::collections::VecDeque;

use coua_tcp::nic::Nic;
use coua_tcp::stack::{ConnectionId, Readiness, Stack};
use coua_tcp::time::Instant;

use crate::card::Card;
use crate::hosts::{Flow, Hosts, PORT};
use crate::notation::Notation;
use crate::settings::Settings;
use crate::{read, write};

/// How much later than it is due a frame may leave: timers go by ticks of about a millisecond.
const TICK_US: u64 = 2_100;

/// Turns without any passing of time; more of them never end.
const TURNS_MAX: usize = 10_000;

/// The port of the first peer; that of the next follows.
const PEER_PORT: u16 = 40_000;

/// What a script sees of one connection.
pub(crate) struct End {
    pub(crate) flow: Flow,
    pub(crate) id: Option<ConnectionId>,
    /// Where in its stream the stack's user is writing and reading.
    pub(crate) written: u32,
    pub(crate) read: u32,
    /// What the user was told of it last.
    pub(crate) told: Option<Readiness>,
}

pub(crate) struct World {
    pub(crate) hosts: Hosts,
    pub(crate) settings: Settings,
    stack: Option<Stack>,
    pub(crate) card: Card,
    now_us: u64,
    pub(crate) ends: Vec<End>,
    /// The connection of which the script speaks.
    pub(crate) current: usize,
    pub(crate) accepted: VecDeque<ConnectionId>,
}

/// When a line happens: so many microseconds after the one before, or between two numbers of them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wait {
    pub(crate) least_us: u64,
    pub(crate) most_us: u64,
}

impl World {
    pub(crate) fn new(is_v6: bool) -> World {
        let peer = "near".to_owned();
        let hosts = Hosts { is_v6, peer };
        let settings = Settings::new(&hosts);
        let mut world = World {
            card: Card::new(settings.mtu),
            settings,
            hosts,
            stack: None,
            now_us: 0,
            ends: Vec::new(),
            current: 0,
            accepted: VecDeque::new(),
        };
        world.ends.push(world.new_end(0));
        world
    }

    fn new_end(&self, number: usize) -> End {
        let offset = u16::try_from(number).expect("a few");
        End {
            flow: Flow {
                peer_port: PEER_PORT + offset,
                own_port: PORT,
                peer_iss: self.settings.peer_iss,
                own_iss: None,
                clock: None,
                own_end: 0,
                own_end_before: 0,
            },
            id: None,
            written: 1,
            read: 1,
            told: None,
        }
    }

    /// Speaks of another connection from now on.
    pub(crate) fn switch_to(&mut self, number: usize) {
        while self.ends.len() <= number {
            self.ends.push(self.new_end(self.ends.len()));
        }
        self.current = number;
    }

    /// A new connection begins with the same ends; the peer's numbers go on from there.
    pub(crate) fn renew(&mut self, peer_iss: u32) {
        let end = self.end();
        end.flow.peer_iss = peer_iss;
        end.flow.own_end_before = end.flow.own_end;
        (end.flow.own_iss, end.flow.clock) = (None, None);
        (end.id, end.written, end.read, end.told) = (None, 1, 1, None);
    }

    pub(crate) fn end(&mut self) -> &mut End {
        &mut self.ends[self.current]
    }

    pub(crate) fn id(&mut self) -> Result<ConnectionId, String> {
        self.end()
            .id
            .ok_or_else(|| "no connection was accepted or opened".to_owned())
    }

    /// The stack, made out of the settings where it is not there yet.
    pub(crate) fn stack(&mut self) -> &mut Stack {
        if self.stack.is_none() {
            self.begin();
        }
        self.stack.as_mut().expect("just made")
    }

    pub(crate) fn is_begun(&self) -> bool {
        self.stack.is_some()
    }

    fn begin(&mut self) {
        self.card = Card::new(self.settings.mtu);
        for end in &mut self.ends {
            end.flow.peer_iss = self.settings.peer_iss;
        }
        if let Some(iss) = self.settings.iss {
            // The number is a clock of 4 µs beside what nobody can guess, so it waits until then.
            let found = self.first_number();
            self.now_us += u64::from(iss.wrapping_sub(found)) * 4;
        }
        self.stack = Some(self.new_stack());
    }

    fn new_stack(&self) -> Stack {
        let now = Instant::from_micros(self.now_us);
        Stack::new(self.settings.config.clone(), self.card.features(), now)
    }

    /// The number with which a stack would answer a SYN now.
    fn first_number(&mut self) -> u32 {
        let mut stack = self.new_stack();
        let words = ["SYN", "seq", "0"].map(str::to_owned);
        let line = Notation::read(&words).expect("a frame");
        let mut flow = self.end().flow.clone();
        let frame = write::frame(&line, &self.hosts, &flow).expect("a frame");
        self.card.arriving.push_back(frame);
        stack.listen(PORT);
        stack.begin(Instant::from_micros(self.now_us), &mut self.card);
        stack.end(&mut self.card);
        let left = self.card.left.pop_front().expect("an answer");
        read::frame(&left, &self.hosts, &mut flow).expect("a segment");
        flow.own_iss.expect("a SYN")
    }

    /// A turn in which `act` is the user's part, and those that are due at once after it.
    pub(crate) fn turn(
        &mut self,
        act: impl FnOnce(&mut World) -> Result<(), String>,
    ) -> Result<(), String> {
        self.single_turn(act)?;
        for _ in 0..TURNS_MAX {
            let due = self.stack().deadline().map_or(u64::MAX, Instant::micros);
            if due > self.now_us {
                return Ok(());
            }
            self.single_turn(|_| Ok(()))?;
        }
        Err("the stack has ever something to do".to_owned())
    }

    fn single_turn(
        &mut self,
        act: impl FnOnce(&mut World) -> Result<(), String>,
    ) -> Result<(), String> {
        self.stack();
        let mut stack = self.stack.take().expect("there");
        stack.begin(Instant::from_micros(self.now_us), &mut self.card);
        while let Some(id) = stack.next_accepted() {
            self.accepted.push_back(id);
        }
        while let Some((id, readiness)) = stack.next_ready() {
            if let Some(end) = self.ends.iter_mut().find(|end| end.id == Some(id)) {
                end.told = Some(readiness);
            }
        }
        self.stack = Some(stack);
        let acted = act(self);
        let mut stack = self.stack.take().expect("there");
        stack.end(&mut self.card);
        self.stack = Some(stack);
        acted?;
        match self.settings.does_neighbours {
            true => Ok(()),
            false => self.answer_neighbours(),
        }
    }

    /// Answers who asks for a MAC address, so that only scripts about that need do it.
    fn answer_neighbours(&mut self) -> Result<(), String> {
        let mut has_answered = false;
        for frame in std::mem::take(&mut self.card.left) {
            let mut flow = self.end().flow.clone();
            let line = read::frame(&frame, &self.hosts, &mut flow);
            match line {
                Ok(line) if line.has("who-has") => {
                    let host = line.what.last().expect("who").clone();
                    let mac = if host == "peer" { "peer" } else { &host };
                    let words = [line.what[0].as_str(), &host, "is-at", mac].map(str::to_owned);
                    let answer = Notation {
                        tags: vec![format!("from {host}")],
                        ..Notation::read(&words)?
                    };
                    let frame = write::frame(&answer, &self.hosts, &flow)?;
                    self.card.arriving.push_back(frame);
                    has_answered = true;
                }
                _ => self.card.left.push_back(frame),
            }
        }
        match has_answered {
            true => self.single_turn(|_| Ok(())),
            false => Ok(()),
        }
    }

    /// What the next frame that left says.
    pub(crate) fn next_left(&mut self) -> Result<Option<Notation>, String> {
        let Some(frame) = self.card.left.pop_front() else {
            return Ok(None);
        };
        let hosts = self.hosts.clone();
        read::frame(&frame, &hosts, &mut self.end().flow).map(Some)
    }

    /// Lets time pass, with a turn wherever one is due, and nothing leaving.
    pub(crate) fn pass(&mut self, wait: Wait) -> Result<(), String> {
        let until = self.now_us + wait.most_us;
        match self.pass_until_left(until)? {
            true => Err(format!(
                "it leaves {} ms too early",
                (until - self.now_us) / 1000
            )),
            false => Ok(()),
        }
    }

    /// Lets time pass until something leaves, which must be when it is due.
    pub(crate) fn pass_to_frame(&mut self, wait: Wait) -> Result<(), String> {
        let begin = self.now_us;
        if self.pass_until_left(begin + wait.most_us + TICK_US)? {
            let passed = self.now_us - begin;
            if passed < wait.least_us {
                return Err(format!("it leaves after {} ms", passed / 1000));
            }
        }
        Ok(())
    }

    /// True where something has left.
    fn pass_until_left(&mut self, until: u64) -> Result<bool, String> {
        for _ in 0..TURNS_MAX {
            if !self.card.left.is_empty() {
                return Ok(true);
            }
            let due = self.stack().deadline().map_or(u64::MAX, Instant::micros);
            if due > until {
                self.now_us = until;
                return Ok(false);
            }
            self.now_us = self.now_us.max(due);
            self.turn(|_| Ok(()))?;
        }
        Err("the stack has ever something to do".to_owned())
    }
}
