//! The states of one key, and what each request can lead to in them.

use std::rc::Rc;

use crate::request::{Answer, Found, Mode, Request, SentRequest};
use crate::window::Window;

/// An expiry of more seconds than this is a point in time.
const RELATIVE_MAX: i32 = 60 * 60 * 24 * 30;

/// What the server may do that no request asked for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Laxity {
    /// Items may be evicted at any moment.
    pub(crate) loses: bool,
    /// Requests may be refused for lack of memory.
    pub(crate) refuses: bool,
    /// The longest value of a key of 250 bytes, in bytes.
    pub(crate) value_len_max: usize,
    /// When the server started.
    pub(crate) started: u32,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum State {
    Absent,
    Item(Item),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Item {
    pub(super) value: Rc<[u8]>,
    pub(super) flags: u32,
    /// The seconds between which it expires, both included; `None` for never.
    pub(super) ends: Option<(u32, u32)>,
    pub(super) cas: Option<u64>,
    /// The round from which on it certainly exists.
    pub(super) since: u64,
}

impl State {
    /// The same item with another expiry.
    pub(super) fn with_end(self, ends: Option<(u32, u32)>) -> State {
        match self {
            State::Item(item) => State::Item(Item { ends, ..item }),
            State::Absent => State::Absent,
        }
    }

    /// A short description, to explain a failure.
    pub(super) fn described(&self) -> String {
        match self {
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
}

impl Laxity {
    /// The seconds between which an item with this expiry expires. Second 0 is long past.
    pub(super) fn ends(&self, exptime: i32, window: Window) -> Option<(u32, u32)> {
        match exptime {
            0 => None,
            1..=RELATIVE_MAX => {
                let seconds = exptime.unsigned_abs();
                Some((window.from + seconds, window.to + seconds))
            }
            i32::MIN..0 => Some((0, 0)),
            _ if exptime.unsigned_abs() <= self.started => Some((0, 0)),
            _ => Some((exptime.unsigned_abs(), exptime.unsigned_abs())),
        }
    }

    /// The states that a request can leave a key in.
    pub(super) fn followers(&self, state: State, request: &Request, window: Window) -> Vec<State> {
        match request {
            Request::Get { touch, .. } => match touch {
                Some(exptime) => vec![state.with_end(self.ends(*exptime, window))],
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

    /// What a request with one key can lead to in a state.
    pub(super) fn outcomes(
        &self,
        state: &State,
        request: &Request,
        window: Window,
    ) -> Vec<(Answer, State)> {
        let same = || state.clone();
        let mut outcomes = Vec::new();
        match (request, state) {
            (Request::Store { .. }, _) => return self.store_outcomes(state, request, window),
            (Request::Delete { .. }, State::Item(_)) => {
                outcomes.push((Answer::Done, State::Absent));
            }
            (Request::Touch { exptime, .. }, State::Item(_)) => {
                let touched = same().with_end(self.ends(*exptime, window));
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
                        since: window.answered,
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
                        since: window.answered,
                        ..item.clone()
                    };
                    outcomes.push((Answer::Number(number, None), State::Item(item)));
                }
            },
            // The other requests have no key or many.
            _ => {}
        }
        if self.refuses && matches!(request, Request::Count { .. } | Request::Touch { .. }) {
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
        if value.len() > self.value_len_max {
            // The old item is removed, so that it does not outlive the failed store.
            return vec![(Answer::TooLarge, State::Absent)];
        }
        let new = State::Item(Item {
            value: Rc::clone(value),
            flags: *flags,
            ends: self.ends(*exptime, window),
            cas: None,
            since: window.answered,
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
                    since: window.answered,
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
        if self.refuses {
            outcomes.push((Answer::NoMemory, State::Absent));
            outcomes.push((Answer::NoMemory, same()));
        }
        outcomes
    }
}

/// Whether a flush was asked for after an item was there, and answered before it was asked for.
pub(super) fn is_flushed(item: &Item, flushes: &[Window], window: Window) -> bool {
    let lies_between = |flush: &Window| flush.asked > item.since && flush.answered < window.asked;
    flushes.iter().rev().any(lies_between)
}

/// Whether an answer is as expected, or is rightly left out.
pub(super) fn allows(asked: &SentRequest, expected: &Answer, answer: &Answer) -> bool {
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
pub(super) fn taught(state: State, answer: &Answer) -> State {
    match (state, answer) {
        (State::Item(item), Answer::Stored(cas) | Answer::Number(_, cas)) => {
            State::Item(Item { cas: *cas, ..item })
        }
        (state, _) => state,
    }
}

/// Whether an answer shows just this item.
pub(super) fn is_shown(known: &Item, item: &Found, touch: Option<i32>, window: Window) -> bool {
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

fn start(value: &[u8]) -> String {
    value[..value.len().min(24)].escape_ascii().to_string()
}

pub(super) fn note(states: &mut Vec<State>, state: State) {
    if !states.contains(&state) {
        states.push(state);
    }
}
