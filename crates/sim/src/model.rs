//! What a client knows of its keys.
//!
//! A key has a list of states that it may be in. As a rule it is one. It is several where an expiry
//! passed while a request was under way, where a connection broke before an answer came, or where
//! memory is short and items may be evicted. An answer is right if some state allows it. It leaves
//! the states that allow it.

mod states;

use std::cell::RefCell;
use std::rc::Rc;

use crate::request::{Answer, Found, KeyNumber, Mode, Request, SentRequest};
use crate::window::Window;
pub(crate) use states::Laxity;
use states::{Item, State, allows, is_flushed, is_shown, note, taught};

/// A key that may be in more states than this may be in any.
const STATES_MAX: usize = 64;

/// The flushes that were answered, of all clients.
pub(crate) type Flushes = Rc<RefCell<Vec<Window>>>;

/// The keys of one client.
pub(crate) struct Model {
    /// The states that each key may be in; an empty list means any state.
    keys: Vec<Vec<State>>,
    laxity: Laxity,
    flushes: Flushes,
}

impl Model {
    /// Keys that are not stored.
    pub(crate) fn new(keys: usize, laxity: Laxity, flushes: Flushes) -> Model {
        Model {
            keys: vec![vec![State::Absent]; keys],
            laxity,
            flushes,
        }
    }

    /// The CAS of a key, where it is known.
    pub(crate) fn cas(&self, key: KeyNumber) -> Option<u64> {
        match self.keys[key].as_slice() {
            [State::Item(item)] => item.cas,
            _ => None,
        }
    }

    /// The longest that a key's value may be, in bytes; very long where nothing is known.
    pub(crate) fn value_len_max(&self, key: KeyNumber) -> usize {
        let lens = self.keys[key].iter().map(|state| match state {
            State::Absent => 0,
            State::Item(item) => item.value.len(),
        });
        lens.max().unwrap_or(usize::MAX / 2)
    }

    /// Takes note of an answer.
    ///
    /// # Errors
    /// Where no state allows it.
    pub(crate) fn settle(
        &mut self,
        asked: &SentRequest,
        answer: &Answer,
        window: Window,
        names: &[Vec<u8>],
    ) -> Result<(), String> {
        if let (Request::Get { keys, touch, .. }, Answer::Values(_) | Answer::Silence) =
            (&asked.request, answer)
        {
            let found: &[Found] = match answer {
                Answer::Values(found) => found,
                _ => &[],
            };
            return self.settle_get(keys, *touch, found, window, names);
        }
        match &asked.request {
            Request::Get { .. } if *answer == Answer::NoMemory && self.laxity.refuses => {
                // It may have been touched.
                self.doubt(std::iter::once(asked), window.to, window.answered);
                Ok(())
            }
            Request::Flush { delay } if matches!(answer, Answer::Done | Answer::Silence) => {
                if *delay == 0 {
                    self.keys.fill(vec![State::Absent]);
                    self.flushes.borrow_mut().push(window);
                }
                Ok(())
            }
            request => {
                let Some(key) = request.key() else {
                    let name = request.name();
                    return match answer {
                        Answer::Fixed => Ok(()),
                        answer => Err(format!("{answer:?} is no answer to {name}")),
                    };
                };
                if self.keys[key].is_empty() {
                    self.find_out(key, request, answer, window);
                    return Ok(());
                }
                let mut after = Vec::new();
                for state in self.now(key, window) {
                    for (expected, next) in self.laxity.outcomes(&state, request, window) {
                        if allows(asked, &expected, answer) {
                            note(&mut after, taught(next, answer));
                        }
                    }
                }
                self.replace(key, after, answer)
            }
        }
    }

    /// Takes note that some of `waiting`, from the first on, were executed by second `to` and
    /// `round`. How many is not known.
    pub(crate) fn doubt<'a>(
        &mut self,
        waiting: impl Iterator<Item = &'a SentRequest>,
        to: u32,
        round: u64,
    ) {
        let mut reached = self.keys.clone();
        for asked in waiting {
            let window = asked.window(to, round);
            let touched: Vec<KeyNumber> = match &asked.request {
                Request::Get { keys, touch, .. } => touch.map_or(Vec::new(), |_| keys.clone()),
                Request::Flush { .. } => (0..self.keys.len()).collect(),
                request => request.key().into_iter().collect(),
            };
            for key in touched {
                let mut after = Vec::new();
                for state in self.now(key, window) {
                    for next in self.laxity.followers(state, &asked.request, window) {
                        note(&mut after, next);
                    }
                }
                for state in &after {
                    note(&mut reached[key], state.clone());
                }
                if after.is_empty() || reached[key].is_empty() || reached[key].len() > STATES_MAX {
                    reached[key].clear();
                    after.clear();
                }
                self.keys[key] = after;
            }
        }
        self.keys = reached;
    }

    fn settle_get(
        &mut self,
        keys: &[KeyNumber],
        touch: Option<i32>,
        found: &[Found],
        window: Window,
        names: &[Vec<u8>],
    ) -> Result<(), String> {
        let mut found = found.iter().peekable();
        for &key in keys {
            let is_it = |item: &&Found| item.key.as_ref().is_none_or(|name| *name == names[key]);
            let item = found.next_if(is_it);
            if self.keys[key].is_empty() {
                continue;
            }
            let mut after = Vec::new();
            for state in self.now(key, window) {
                match (state, item) {
                    (State::Absent, None) => note(&mut after, State::Absent),
                    (State::Item(known), Some(item)) if is_shown(&known, item, touch, window) => {
                        let cas = item.cas.or(known.cas);
                        let next = State::Item(Item { cas, ..known });
                        let next = match touch {
                            Some(exptime) => next.with_end(self.laxity.ends(exptime, window)),
                            None => next,
                        };
                        note(&mut after, next);
                    }
                    _ => {}
                }
            }
            self.replace(key, after, &item)?;
        }
        match found.next() {
            None => Ok(()),
            Some(item) => Err(format!("an item that was not asked for: {item:?}")),
        }
    }

    fn replace(
        &mut self,
        key: KeyNumber,
        mut after: Vec<State>,
        answer: &dyn std::fmt::Debug,
    ) -> Result<(), String> {
        if after.is_empty() {
            let states: Vec<String> = self.keys[key].iter().map(State::described).collect();
            return Err(format!(
                "key {key} is one of [{}], which the answer {answer:?} does not allow",
                states.join("; ")
            ));
        }
        if after.len() > STATES_MAX {
            after.clear();
        }
        self.keys[key] = after;
        Ok(())
    }

    /// What an answer tells about a key of which nothing is known.
    fn find_out(&mut self, key: KeyNumber, request: &Request, answer: &Answer, window: Window) {
        let Some(after) = (match (request, answer) {
            (Request::Store { mode, .. }, Answer::Stored(_)) if *mode == Mode::Set => {
                let outcomes = self.laxity.outcomes(&State::Absent, request, window);
                outcomes.into_iter().next().map(|(_, item)| item)
            }
            (Request::Delete { .. }, Answer::Done | Answer::NotFound) => Some(State::Absent),
            _ => None,
        }) else {
            return;
        };
        self.keys[key] = vec![taught(after, answer)];
    }

    /// The states of a key in a window of time.
    fn now(&self, key: KeyNumber, window: Window) -> Vec<State> {
        let mut states = Vec::new();
        let flushes = self.flushes.borrow();
        for state in &self.keys[key] {
            match state {
                // Another client's flush removes the item too.
                State::Item(item) if is_flushed(item, &flushes, window) => {
                    note(&mut states, State::Absent);
                }
                State::Item(Item {
                    ends: Some((first, last)),
                    ..
                }) => {
                    if window.from < *last {
                        note(&mut states, state.clone());
                    }
                    if window.to >= *first {
                        note(&mut states, State::Absent);
                    }
                }
                state => note(&mut states, state.clone()),
            }
        }
        if self.laxity.loses && !states.is_empty() {
            note(&mut states, State::Absent);
        }
        states
    }
}
