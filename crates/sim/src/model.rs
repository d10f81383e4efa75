//! What a client knows of its keys.
//!
//! A key has a list of states that it may be in: one as a rule, several where an expiry passed
//! while a request was under way, where a connection broke before an answer came, or where memory
//! is short and items may be evicted. An answer is right where some state allows it, and leaves the
//! states that it allows.

use std::rc::Rc;

use crate::request::{Answer, Asked, Found, KeyNumber, Mode, Request};

/// More seconds than that are a point in time.
const RELATIVE_MAX: i32 = 60 * 60 * 24 * 30;

/// A key that may be in more states than that may be in any.
const STATES_MAX: usize = 64;

/// The seconds between which a request was executed, both included.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Window {
    pub(crate) from: u32,
    pub(crate) to: u32,
}

/// What the server may do beyond what it was asked.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Laxity {
    /// Items may go at any moment.
    pub(crate) loses: bool,
    /// Memory may be refused.
    pub(crate) refuses: bool,
    /// The longest value that a key of 250 bytes can have, in bytes.
    pub(crate) value_len_max: usize,
    /// When the server started.
    pub(crate) started: u32,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum State {
    Absent,
    Item(Item),
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Item {
    value: Rc<[u8]>,
    flags: u32,
    /// The seconds between which it ends, both included; `None` for never.
    ends: Option<(u32, u32)>,
    cas: Option<u64>,
}

/// The keys of one client.
pub(crate) struct Model {
    /// The states that each key may be in; none where it may be in any.
    keys: Vec<Vec<State>>,
    laxity: Laxity,
}

impl Model {
    /// Keys of which none is stored.
    pub(crate) fn new(keys: usize, laxity: Laxity) -> Model {
        Model {
            keys: vec![vec![State::Absent]; keys],
            laxity,
        }
    }

    /// The CAS of a key, where it is known.
    pub(crate) fn cas(&self, key: KeyNumber) -> Option<u64> {
        match self.keys[key].as_slice() {
            [State::Item(item)] => item.cas,
            _ => None,
        }
    }

    /// Bytes that the value of a key may have at most; very many where nothing is known.
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
        asked: &Asked,
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
                self.doubt(std::iter::once(asked), window.to);
                Ok(())
            }
            Request::Flush { delay } if matches!(answer, Answer::Done | Answer::Silence) => {
                if *delay == 0 {
                    self.keys.fill(vec![State::Absent]);
                }
                Ok(())
            }
            request => {
                let Some(key) = key_of(request) else {
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
                    for (expected, next) in self.outcomes(&state, request, window) {
                        if allows(asked, &expected, answer) {
                            note(&mut after, taught(next, answer));
                        }
                    }
                }
                self.replace(key, after, answer)
            }
        }
    }

    /// Takes note that the first of `waiting`, nobody knows how many, were executed until `to`.
    pub(crate) fn doubt<'a>(&mut self, waiting: impl Iterator<Item = &'a Asked>, to: u32) {
        let mut reached = self.keys.clone();
        for asked in waiting {
            let from = asked.at;
            let window = Window {
                from,
                to: to.max(from),
            };
            let touched: Vec<KeyNumber> = match &asked.request {
                Request::Get { keys, touch, .. } => touch.map_or(Vec::new(), |_| keys.clone()),
                Request::Flush { .. } => (0..self.keys.len()).collect(),
                request => key_of(request).into_iter().collect(),
            };
            for key in touched {
                let mut after = Vec::new();
                for state in self.now(key, window) {
                    for next in self.followers(state, &asked.request, window) {
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

    /// The states that a request can leave a key in.
    fn followers(&self, state: State, request: &Request, window: Window) -> Vec<State> {
        match request {
            Request::Get { touch, .. } => match touch {
                Some(exptime) => vec![with_end(state, self.ends(*exptime, window))],
                None => vec![state],
            },
            Request::Flush { delay: 0 } => vec![State::Absent],
            Request::Flush { .. } => vec![state],
            request => {
                let outcomes = self.outcomes(&state, request, window);
                outcomes.into_iter().map(|(_, next)| next).collect()
            }
        }
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
                            Some(exptime) => with_end(next, self.ends(exptime, window)),
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
            let states: Vec<String> = self.keys[key].iter().map(described).collect();
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

    /// What an answer tells of a key of which nothing is known.
    fn find_out(&mut self, key: KeyNumber, request: &Request, answer: &Answer, window: Window) {
        let Some(after) = (match (request, answer) {
            (Request::Store { mode, .. }, Answer::Stored(_)) if *mode == Mode::Set => {
                let outcomes = self.store_outcomes(&State::Absent, request, window);
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
        for state in &self.keys[key] {
            match state {
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

    /// Between which seconds an item ends that is given this expiry. Second 0 is long past.
    fn ends(&self, exptime: i32, window: Window) -> Option<(u32, u32)> {
        match exptime {
            0 => None,
            1..=RELATIVE_MAX => {
                let seconds = exptime.unsigned_abs();
                Some((window.from + seconds, window.to + seconds))
            }
            i32::MIN..0 => Some((0, 0)),
            _ if exptime.unsigned_abs() <= self.laxity.started => Some((0, 0)),
            _ => Some((exptime.unsigned_abs(), exptime.unsigned_abs())),
        }
    }

    /// What a request with one key can come to in a state.
    fn outcomes(&self, state: &State, request: &Request, window: Window) -> Vec<(Answer, State)> {
        let same = || state.clone();
        let mut outcomes = Vec::new();
        match (request, state) {
            (Request::Store { .. }, _) => return self.store_outcomes(state, request, window),
            (Request::Delete { .. }, State::Item(_)) => {
                outcomes.push((Answer::Done, State::Absent));
            }
            (Request::Touch { exptime, .. }, State::Item(_)) => {
                let touched = with_end(same(), self.ends(*exptime, window));
                outcomes.push((Answer::Done, touched));
            }
            (Request::Delete { .. } | Request::Touch { .. }, State::Absent) => {
                outcomes.push((Answer::NotFound, same()));
            }
            (Request::Count { initial, .. }, State::Absent) => match initial {
                None => outcomes.push((Answer::NotFound, same())),
                Some((number, exptime)) => {
                    let item = Item {
                        value: number.to_string().into_bytes().into(),
                        flags: 0,
                        ends: self.ends(*exptime, window),
                        cas: None,
                    };
                    outcomes.push((Answer::Number(*number, None), State::Item(item)));
                }
            },
            (
                Request::Count {
                    delta, decrement, ..
                },
                State::Item(item),
            ) => match number(&item.value) {
                None => outcomes.push((Answer::NotNumeric, same())),
                Some(number) => {
                    let number = match decrement {
                        true => number.saturating_sub(*delta),
                        false => number.wrapping_add(*delta),
                    };
                    // A number that became shorter is filled up with blanks.
                    let text = format!("{number:<width$}", width = item.value.len());
                    let item = Item {
                        value: text.into_bytes().into(),
                        cas: None,
                        ..item.clone()
                    };
                    outcomes.push((Answer::Number(number, None), State::Item(item)));
                }
            },
            // The others have none or many keys.
            _ => {}
        }
        if self.laxity.refuses && matches!(request, Request::Count { .. }) {
            outcomes.push((Answer::NoMemory, same()));
        }
        outcomes
    }

    fn store_outcomes(
        &self,
        state: &State,
        request: &Request,
        window: Window,
    ) -> Vec<(Answer, State)> {
        let Request::Store {
            mode,
            value,
            flags,
            exptime,
            ..
        } = request
        else {
            return Vec::new();
        };
        let same = || state.clone();
        if value.len() > self.laxity.value_len_max {
            // What is there goes, so that an old value does not outlive the attempt.
            return vec![(Answer::TooLarge, State::Absent)];
        }
        let new = State::Item(Item {
            value: Rc::clone(value),
            flags: *flags,
            ends: self.ends(*exptime, window),
            cas: None,
        });
        let stored = (Answer::Stored(None), new);
        let mut outcomes = match (mode, state) {
            (Mode::Set, _) | (Mode::Add, State::Absent) | (Mode::Replace, State::Item(_)) => {
                vec![stored]
            }
            (Mode::Add, State::Item(_)) | (Mode::Replace, State::Absent) => {
                vec![(Answer::NotStored, same())]
            }
            (Mode::Append | Mode::Prepend, State::Absent) => vec![(Answer::NotStored, same())],
            (Mode::Append | Mode::Prepend, State::Item(item)) => {
                let parts = match mode {
                    Mode::Append => [&item.value[..], value],
                    _ => [&value[..], &item.value],
                };
                let item = Item {
                    value: parts.concat().into(),
                    cas: None,
                    ..item.clone()
                };
                vec![(Answer::Stored(None), State::Item(item))]
            }
            (Mode::Cas(_), State::Absent) => vec![(Answer::NotFound, same())],
            (Mode::Cas(cas), State::Item(item)) => match item.cas {
                Some(known) if known == *cas => vec![stored],
                Some(_) => vec![(Answer::Exists, same())],
                None => vec![stored, (Answer::Exists, same())],
            },
        };
        if self.laxity.refuses {
            outcomes.push((Answer::NoMemory, State::Absent));
            outcomes.push((Answer::NoMemory, same()));
        }
        outcomes
    }
}

fn key_of(request: &Request) -> Option<KeyNumber> {
    match request {
        Request::Store { key, .. }
        | Request::Delete { key }
        | Request::Count { key, .. }
        | Request::Touch { key, .. } => Some(*key),
        _ => None,
    }
}

/// Whether an answer is what was expected, or its being left out.
fn allows(asked: &Asked, expected: &Answer, answer: &Answer) -> bool {
    let silent = match asked.quiet {
        true => asked.request.is_silent(asked.form, expected),
        false => Some(false),
    };
    match (expected, answer) {
        (_, Answer::Silence) => silent != Some(false),
        _ if silent == Some(true) => false,
        (Answer::Stored(_), Answer::Stored(_)) => true,
        (Answer::Number(expected, _), Answer::Number(number, _)) => expected == number,
        _ => expected == answer,
    }
}

/// A state with the CAS that the answer tells of.
fn taught(state: State, answer: &Answer) -> State {
    match (state, answer) {
        (State::Item(item), Answer::Stored(cas) | Answer::Number(_, cas)) => {
            State::Item(Item { cas: *cas, ..item })
        }
        (state, _) => state,
    }
}

fn with_end(state: State, ends: Option<(u32, u32)>) -> State {
    match state {
        State::Item(item) => State::Item(Item { ends, ..item }),
        State::Absent => State::Absent,
    }
}

fn note(states: &mut Vec<State>, state: State) {
    if !states.contains(&state) {
        states.push(state);
    }
}

/// Whether an answer shows just this item.
fn is_shown(known: &Item, item: &Found, touch: Option<i32>, window: Window) -> bool {
    let ttl_is_right = item.ttl.is_none_or(|ttl| match known.ends {
        _ if touch.is_some() => true,
        None => ttl < 0,
        Some((first, last)) => (i64::from(first) - i64::from(window.to)
            ..=i64::from(last) - i64::from(window.from))
            .contains(&ttl),
    });
    item.value
        .as_ref()
        .is_none_or(|value| *value == known.value)
        && item.flags.is_none_or(|flags| flags == known.flags)
        && (item.cas.is_none() || known.cas.is_none() || item.cas == known.cas)
        && ttl_is_right
}

/// A decimal number below 2^64, perhaps with blanks behind it.
fn number(value: &[u8]) -> Option<u64> {
    if value.len() > 20 {
        return None;
    }
    let text = std::str::from_utf8(value).ok()?.trim_end_matches(' ');
    if !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    text.parse().ok()
}

fn described(state: &State) -> String {
    match state {
        State::Absent => "absent".to_owned(),
        State::Item(item) => format!(
            "{} bytes {} with flags {}, CAS {:?}, that end {:?}",
            item.value.len(),
            start(&item.value),
            item.flags,
            item.cas,
            item.ends
        ),
    }
}

fn start(value: &[u8]) -> String {
    value[..value.len().min(24)].escape_ascii().to_string()
}
