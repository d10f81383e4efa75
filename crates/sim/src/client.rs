//! A client: one connection after another, each with requests, a behaviour and an end.

mod conversation;

use std::collections::VecDeque;
use std::rc::Rc;

use coua_transport::simulated::{Manner, Peer};

use crate::dice::Dice;
use crate::keys::Keys;
use crate::model::Flushes;
use crate::plan::Plan;
use crate::request::SentRequest;
use crate::scene::Scene;
use conversation::{Conversation, Over};

/// Within so many turns of its worker the witness's request must be answered.
const TURNS_MAX: u64 = 40;

/// How a client's connection ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// It asks the server to close.
    Quit,
    /// It ends its side when everything is sent, and reads the rest.
    HalfClose,
    /// The same in the middle of a request.
    CutOff,
    /// It closes when everything is answered.
    Close,
    /// It closes at any moment.
    Drop,
    /// It resets the connection at any moment.
    Reset,
}

/// The part that a client plays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// It does everything that a client can do.
    Actor,
    /// The witness: it sends one request at a time and must never wait for long. It stays until it
    /// is told to leave.
    Witness,
}

/// One client.
pub(crate) struct Client {
    number: u32,
    role: Role,
    dice: Dice,
    plan: Rc<Plan>,
    pub(crate) keys: Keys,
    epoch: u32,
    sessions_left: usize,
    conversation: Option<Conversation>,
    /// A connection whose last requests may or may not have been executed.
    past: Option<Past>,
    /// It does nothing until this round.
    rests_until: u64,
    /// The longest that the witness waited, in turns of its worker.
    pub(crate) turns_waited_max: u64,
    /// Answers so far.
    pub(crate) answers: u64,
}

struct Past {
    peer: Peer,
    waiting: VecDeque<SentRequest>,
}

impl Client {
    pub(crate) fn new(
        number: u32,
        role: Role,
        mut dice: Dice,
        plan: Rc<Plan>,
        flushes: Flushes,
    ) -> Client {
        let sessions_left = match role {
            Role::Actor => dice.within(1, plan.sessions),
            Role::Witness => usize::MAX,
        };
        Client {
            number,
            role,
            keys: Keys::new(number, 0, plan.keys, plan.laxity, flushes),
            epoch: 0,
            sessions_left,
            conversation: None,
            past: None,
            rests_until: match role {
                Role::Actor => dice.within(2, 40) as u64,
                Role::Witness => 0,
            },
            turns_waited_max: 0,
            answers: 0,
            dice,
            plan,
        }
    }

    /// Whether it has done everything that the plan asks of it.
    pub(crate) fn is_gone(&self) -> bool {
        self.sessions_left == 0 && self.conversation.is_none() && self.past.is_none()
    }

    /// Tells the witness to leave when it has its answer.
    pub(crate) fn dismiss(&mut self) {
        self.sessions_left = 0;
        if let Some(conversation) = &mut self.conversation {
            conversation.dismiss();
        }
    }

    /// What it is doing, to explain a failure.
    pub(crate) fn describe(&self) -> String {
        let conversation = match &self.conversation {
            Some(conversation) => conversation.describe(),
            None => "not connected".to_owned(),
        };
        format!(
            "client {} ({:?}), {} sessions left: {conversation}",
            self.number, self.role, self.sessions_left
        )
    }

    /// Takes one step. True where it got anywhere.
    ///
    /// # Errors
    /// Where the server did something wrong.
    pub(crate) fn step(&mut self, scene: &Scene, turns: &[u64]) -> Result<bool, String> {
        if scene.round.get() < self.rests_until {
            return Ok(false);
        }
        if let Some(past) = &mut self.past {
            if !past.peer.is_closed_by_server() {
                return Ok(false);
            }
            self.keys
                .doubt(&past.waiting, scene.second(), scene.round.get());
            self.past = None;
            return Ok(true);
        }
        let Some(conversation) = &mut self.conversation else {
            if self.sessions_left > 0 {
                self.connect(scene);
                return Ok(true);
            }
            return Ok(false);
        };
        let step = conversation.step(scene, &mut self.dice, &mut self.keys, turns);
        self.answers += conversation.take_answers();
        self.turns_waited_max = self.turns_waited_max.max(conversation.turns_waited_max);
        match step.map_err(|why| format!("client {}: {why}", self.number))? {
            (progress, None) => Ok(progress),
            (_, Some(over)) => {
                self.part(scene, over);
                Ok(true)
            }
        }
    }

    fn connect(&mut self, scene: &Scene) {
        let (dice, plan) = (&mut self.dice, &self.plan);
        let is_witness = self.role == Role::Witness;
        let ending = match dice.below(if plan.breaks { 6 } else { 3 }) {
            _ if is_witness => Ending::Close,
            0 => Ending::Quit,
            1 => Ending::HalfClose,
            2 => Ending::Close,
            3 => Ending::CutOff,
            4 => Ending::Drop,
            _ => Ending::Reset,
        };
        let is_binary = match plan.speak_binary {
            Some(is_binary) => is_binary,
            None => dice.one_in(4),
        };
        let manner = if is_witness {
            Manner::AMPLE
        } else {
            // A large value must not take too many rounds.
            let least = 16 + plan.value_len / 64;
            Manner {
                up_room: dice.size(least, 256 << 10),
                down_room: dice.size(least, 256 << 10),
                piece_max: dice.size(1 + plan.value_len / 64, 256 << 10),
                short_send_one_in: if dice.one_in(2) { 3 } else { 0 },
                refused_send_one_in: if dice.one_in(2) { 5 } else { 0 },
            }
        };
        let requests = match self.role {
            Role::Actor => dice.within(1, plan.requests),
            Role::Witness => usize::MAX,
        };
        scene.say(|| {
            let language = if is_binary { "binary" } else { "text" };
            format!(
                "client {} connects: {language}, {ending:?}, {manner:?}",
                self.number
            )
        });
        self.conversation = Some(Conversation::new(
            self.number,
            self.role,
            scene.network.connect(manner),
            is_binary,
            ending,
            requests,
            64 + plan.value_len / 64,
            dice,
        ));
    }

    /// Deals with the end of a connection.
    fn part(&mut self, scene: &Scene, over: Over) {
        let Some(conversation) = self.conversation.take() else {
            return;
        };
        scene.say(|| format!("client {} parts: {over:?}", self.number));
        let (peer, waiting) = conversation.into_parts();
        self.sessions_left = self.sessions_left.saturating_sub(1);
        if self.role == Role::Actor {
            self.rests_until = scene.round.get() + self.dice.below(50) as u64;
        }
        match over {
            Over::Settled => {}
            Over::Rejected => {
                // Nothing was executed. It connects again.
                self.sessions_left = self.sessions_left.saturating_add(1);
                self.rests_until += 20;
            }
            Over::Doubtful if self.dice.one_in(2) => {
                self.keys.doubt(&waiting, scene.second(), scene.round.get());
                self.epoch += 1;
                self.keys.renew(self.epoch);
            }
            Over::Doubtful => self.past = Some(Past { peer, waiting }),
        }
    }
}
