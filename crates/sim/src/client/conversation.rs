//! One connection of a client, from its first byte to its end.

use std::collections::VecDeque;

use coua_transport::simulated::{Got, Peer};

use super::{Ending, Keys, Role};
use crate::codec;
use crate::dice::Dice;
use crate::request::{Answer, Form, Request, SentRequest};
use crate::scene::Scene;
use crate::script;

/// What the server answers to connections beyond its limit.
const TOO_MANY: &[u8] = b"ERROR Too many open connections\r\n";

/// Bytes of requests that a client prepares beyond what the connection takes.
const AHEAD: usize = 256 << 10;

/// How a connection ended, and what that says about its requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Over {
    /// Every request was answered, or will never be executed.
    Settled,
    /// It is not known how many of the waiting requests were executed.
    Doubtful,
    /// There were too many connections.
    Rejected,
}

/// See the module.
pub(super) struct Conversation {
    number: u32,
    role: Role,
    peer: Peer,
    is_binary: bool,
    ending: Ending,
    requests_left: usize,
    /// The most requests that may wait for answers.
    depth: usize,
    /// The most bytes received at once.
    read_max: usize,
    to_send: Vec<u8>,
    /// Bytes of `to_send` that the connection has taken.
    gone: usize,
    /// Bytes of all requests so far.
    asked_total: u64,
    sent_total: u64,
    /// Bytes that had not arrived when last looked at.
    under_way: usize,
    received: Vec<u8>,
    /// Bytes of `received` that were read as answers.
    read: usize,
    waiting: VecDeque<SentRequest>,
    opaque: u32,
    answers: u64,
    has_answers: bool,
    stalls_until: u64,
    has_quit: bool,
    has_ended: bool,
    /// The turns that its worker had taken when the witness's request arrived.
    arrived_at_turn: Option<u64>,
    pub(super) turns_waited_max: u64,
}

impl Conversation {
    #[expect(
        clippy::too_many_arguments,
        reason = "each is drawn by another part of the plan"
    )]
    pub(super) fn new(
        number: u32,
        role: Role,
        peer: Peer,
        is_binary: bool,
        ending: Ending,
        requests: usize,
        read_min: usize,
        dice: &mut Dice,
    ) -> Conversation {
        let is_witness = role == Role::Witness;
        Conversation {
            number,
            role,
            peer,
            is_binary,
            ending,
            requests_left: requests,
            depth: if is_witness { 1 } else { dice.size(1, 300) },
            read_max: match is_witness {
                true => 1 << 20,
                false => dice.size(read_min, 256 << 10),
            },
            to_send: Vec::new(),
            gone: 0,
            asked_total: 0,
            sent_total: 0,
            under_way: 0,
            received: Vec::new(),
            read: 0,
            waiting: VecDeque::new(),
            opaque: 0,
            answers: 0,
            has_answers: false,
            stalls_until: 0,
            has_quit: false,
            has_ended: false,
            arrived_at_turn: None,
            turns_waited_max: 0,
        }
    }

    /// Makes no more requests.
    pub(super) fn dismiss(&mut self) {
        self.requests_left = 0;
    }

    pub(super) fn take_answers(&mut self) -> u64 {
        std::mem::take(&mut self.answers)
    }

    pub(super) fn into_parts(self) -> (Peer, VecDeque<SentRequest>) {
        (self.peer, self.waiting)
    }

    pub(super) fn describe(&self) -> String {
        let first = self.waiting.front().map(|asked| {
            let sent = if asked.end <= self.sent_total {
                "sent"
            } else {
                "not all sent"
            };
            format!("{:?} {} ({sent})", asked.form, asked.request.name())
        });
        format!(
            "{} requests left, {} wait ({first:?} first), {} bytes to send, {} on their way, {} \
             received and not read, {:?}, ended: {}, quit: {}, stalls until round {}",
            self.requests_left,
            self.waiting.len(),
            self.to_send.len() - self.gone,
            self.peer.under_way(),
            self.received.len() - self.read,
            self.ending,
            self.has_ended,
            self.has_quit,
            self.stalls_until
        )
    }

    /// Takes one step. Tells whether it got anywhere, and how the connection ended, if it did.
    ///
    /// # Errors
    /// Where the server did something wrong.
    pub(super) fn step(
        &mut self,
        scene: &Scene,
        dice: &mut Dice,
        keys: &mut Keys,
        turns: &[u64],
    ) -> Result<(bool, Option<Over>), String> {
        let asked = self.ask(scene, dice, keys);
        let mut progress = asked | self.send(dice);
        progress |= self.see_to_ending(scene, dice);
        let under_way = self.peer.under_way();
        progress |= std::mem::replace(&mut self.under_way, under_way) != under_way;
        self.watch_turns(turns)?;
        if self.is_broken_off(dice) {
            return Ok((true, Some(Over::Doubtful)));
        }
        if scene.round.get() < self.stalls_until {
            return Ok((progress, None));
        }
        if self.role == Role::Actor && dice.one_in(150) {
            self.stalls_until = scene.round.get() + dice.size(4, 200) as u64;
        }
        let most = match self.role {
            Role::Actor => dice.size(1, self.read_max),
            Role::Witness => self.read_max,
        };
        match self.peer.receive(&mut self.received, most) {
            Got::Nothing => {}
            Got::Ended => return Ok((true, Some(self.end_seen(scene, keys)?))),
            Got::Bytes(count) => {
                let new = &self.received[self.received.len() - count..];
                scene.record.take(&self.number.to_le_bytes());
                scene.record.take(new);
                self.read_answers(scene, keys)?;
                progress = true;
            }
        }
        let is_done = self.requests_left == 0 && self.gone == self.to_send.len();
        if self.ending == Ending::Close && is_done && self.waiting.is_empty() {
            return Ok((true, Some(Over::Settled)));
        }
        Ok((progress, None))
    }

    /// Makes requests.
    fn ask(&mut self, scene: &Scene, dice: &mut Dice, keys: &mut Keys) -> bool {
        let before = self.asked_total;
        while self.requests_left > 0
            && !self.has_ended
            && self.waiting.len() < self.depth
            && self.to_send.len() - self.gone < AHEAD
        {
            // Clients pause now and then, the witness most of the time.
            if dice.one_in(8) || self.role == Role::Witness && !dice.one_in(8) {
                break;
            }
            if self.waiting.is_empty() {
                keys.lower_bounds();
            }
            self.requests_left -= 1;
            // After quiet requests one must be answered, or nobody learns of their execution.
            let is_last = self.requests_left == 0;
            let (request, form, quiet) = if is_last || self.role == Role::Witness {
                self.noop()
            } else {
                script::next(dice, &scene.plan, keys, self.is_binary)
            };
            self.push(scene, keys.names(), request, form, quiet);
        }
        let waits_in_vain = self.waiting.iter().all(|asked| asked.quiet);
        if self.waiting.len() >= self.depth && waits_in_vain && !self.has_ended {
            let (request, form, quiet) = self.noop();
            self.push(scene, keys.names(), request, form, quiet);
        }
        self.asked_total > before
    }

    fn noop(&self) -> (Request, Form, bool) {
        let request = Request::Fixed {
            send: b"mn\r\n".to_vec(),
            answer: b"MN\r\n".to_vec(),
        };
        let form = if self.is_binary {
            Form::Binary
        } else {
            Form::Classic
        };
        (request, form, false)
    }

    fn push(
        &mut self,
        scene: &Scene,
        names: &[Vec<u8>],
        request: Request,
        form: Form,
        quiet: bool,
    ) {
        self.opaque += 1;
        let mut asked = SentRequest {
            request,
            form,
            quiet,
            opaque: self.opaque,
            at: scene.second(),
            round: scene.round.get(),
            end: 0,
        };
        let bytes = codec::write(&asked, names);
        self.asked_total += bytes.len() as u64;
        asked.end = self.asked_total;
        if self.role == Role::Actor {
            scene.say(|| {
                let front = &bytes[..bytes.len().min(60)];
                let silently = if quiet { ", quietly" } else { "" };
                let front = front.escape_ascii();
                format!("client {} asks{silently}: {front}", self.number)
            });
        }
        self.to_send.extend(bytes);
        self.waiting.push_back(asked);
    }

    fn send(&mut self, dice: &mut Dice) -> bool {
        let rest = &self.to_send[self.gone..];
        if rest.is_empty() || self.has_ended {
            return false;
        }
        let count = match self.role {
            Role::Actor => dice.size(1, rest.len()),
            Role::Witness => rest.len(),
        };
        // Where the connection is broken, receiving tells so.
        let sent = self.peer.send(&rest[..count]).unwrap_or(0);
        self.gone += sent;
        self.sent_total += sent as u64;
        if self.gone == self.to_send.len() {
            self.to_send.clear();
            self.gone = 0;
        }
        sent > 0
    }

    /// When no request is left, ends the connection in the chosen way.
    fn see_to_ending(&mut self, scene: &Scene, dice: &mut Dice) -> bool {
        if self.requests_left > 0 || self.has_ended {
            return false;
        }
        let all_sent = self.to_send.is_empty();
        match self.ending {
            Ending::Quit if !self.has_quit => {
                self.has_quit = true;
                let form = self.noop().1;
                self.push(scene, &[], Request::Quit, form, false);
            }
            Ending::HalfClose if all_sent => self.has_ended = true,
            Ending::CutOff if all_sent || dice.one_in(3) => self.has_ended = true,
            _ => return false,
        }
        if self.has_ended {
            self.to_send.clear();
            self.gone = 0;
            self.peer.end();
            scene.say(|| format!("client {} ends its side", self.number));
        }
        true
    }

    fn is_broken_off(&mut self, dice: &mut Dice) -> bool {
        if self.requests_left > 0 && !dice.one_in(200) || !dice.one_in(3) {
            return false;
        }
        match self.ending {
            Ending::Reset => self.peer.reset(),
            Ending::Drop => self.peer.close(),
            _ => return false,
        }
        true
    }

    fn read_answers(&mut self, scene: &Scene, keys: &mut Keys) -> Result<(), String> {
        if !self.has_answers && self.received.starts_with(b"ERROR Too") {
            return Ok(());
        }
        while self.read < self.received.len() {
            let bytes = &self.received[self.read..];
            let read = codec::read(bytes, &self.waiting, self.is_binary).map_err(|why| {
                let first = self.waiting.front().map(|asked| &asked.request);
                let first: String = format!("{first:?}").chars().take(200).collect();
                format!("{why}; the first that waits is {first}")
            })?;
            let Some(read) = read else {
                break;
            };
            if self.role == Role::Actor {
                scene.say(|| {
                    let front = &bytes[..read.len.min(60)];
                    let front = front.escape_ascii();
                    format!("client {} is answered: {front}", self.number)
                });
            }
            self.read += read.len;
            self.has_answers = true;
            self.answers += 1;
            for _ in 0..read.to {
                self.settle_first(scene, keys, &Answer::Silence)?;
            }
            self.settle_first(scene, keys, &read.answer)?;
            self.note_turns();
        }
        if self.read > self.received.len() / 2 {
            self.received.drain(..self.read);
            self.read = 0;
        }
        Ok(())
    }

    fn settle_first(
        &mut self,
        scene: &Scene,
        keys: &mut Keys,
        answer: &Answer,
    ) -> Result<(), String> {
        let Some(asked) = self.waiting.pop_front() else {
            return Ok(());
        };
        let window = asked.window(scene.second(), scene.round.get());
        keys.settle(&asked, answer, window)
    }

    /// The server has closed, and everything that it sent has been received.
    fn end_seen(&mut self, scene: &Scene, keys: &mut Keys) -> Result<Over, String> {
        let rest = &self.received[self.read..];
        // The server tries once to send the line, and a part of it may get through.
        if !self.has_answers
            && !rest.is_empty()
            && TOO_MANY.starts_with(rest)
            && scene.excuses_closing()
        {
            return Ok(Over::Rejected);
        }
        let rest_len = rest.len();
        let is_quit = |asked: &SentRequest| matches!(asked.request, Request::Quit);
        // A text quit is not answered.
        if self.has_quit && self.waiting.len() == 1 && self.waiting.iter().any(is_quit) {
            self.waiting.clear();
        }
        let expected = self.has_ended || self.has_quit && self.to_send.is_empty();
        let all_answered = self
            .waiting
            .iter()
            .all(|asked| asked.quiet || asked.end > self.sent_total);
        if expected && all_answered && rest_len == 0 {
            // If it may have been closed for another reason, silence is no proof of success.
            let is_sure = !scene.may_have_closed();
            while is_sure
                && let Some(asked) = self.waiting.front()
                && asked.end <= self.sent_total
            {
                self.settle_first(scene, keys, &Answer::Silence)?;
            }
            // A request that was cut off gets no answer, but it may have been executed.
            if !self.waiting.is_empty() {
                return Ok(Over::Doubtful);
            }
            return Ok(Over::Settled);
        }
        if scene.excuses_closing() {
            return Ok(Over::Doubtful);
        }
        Err(format!(
            "the server closed the connection: {}; {rest_len} bytes are no whole answer",
            self.describe()
        ))
    }

    /// How many turns the worker has taken since the witness's request arrived.
    fn watch_turns(&mut self, turns: &[u64]) -> Result<(), String> {
        if self.role == Role::Actor || self.waiting.is_empty() {
            return Ok(());
        }
        let Some(worker) = self.peer.poller().filter(|_| self.peer.under_way() == 0) else {
            return Ok(());
        };
        let since = *self.arrived_at_turn.get_or_insert(turns[worker]);
        let waited = turns[worker] - since;
        self.turns_waited_max = self.turns_waited_max.max(waited);
        if waited > super::TURNS_MAX {
            return Err(format!(
                "one small request has not been answered for {waited} turns"
            ));
        }
        Ok(())
    }

    fn note_turns(&mut self) {
        self.arrived_at_turn = None;
    }
}
