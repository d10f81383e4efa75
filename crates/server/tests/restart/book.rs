//! What may be stored under a key, by what was asked for and what was answered.

use crate::content::{self, Part};

/// Flags of counters.
const COUNTER_FLAGS: u32 = 7;

/// What is stored under a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Absent,
    Present {
        content: Content,
        flags: u32,
        /// Whether it has a time to live, which is longer than a test runs.
        is_mortal: bool,
    },
}

/// A value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Content {
    Parts(Vec<Part>),
    Counter(u64),
}

/// A request.
#[derive(Clone, Debug)]
pub(crate) enum Op {
    Set { content: Content, is_mortal: bool },
    Get,
    Delete,
    Append(Part),
    Incr(u64),
    Touch { is_mortal: bool },
}

/// An answer.
#[derive(Debug)]
pub(crate) enum Reply {
    Line(String),
    Value { flags: u32, bytes: Vec<u8> },
    Miss,
}

/// What an answer to a request must be.
enum Answer {
    Is(&'static str),
    Number(u64),
    Item,
    Miss,
}

/// What one key may hold. There is one possibility unless requests were lost or items are evicted.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) possible: Vec<State>,
    /// The version written last.
    pub(crate) version: u32,
    /// The item's CAS, where nothing has been asked since that could change it.
    pub(crate) cas: Option<u64>,
}

impl Content {
    /// The value's bytes.
    pub(crate) fn bytes(&self, key: u32) -> Vec<u8> {
        match self {
            Content::Counter(number) => number.to_string().into_bytes(),
            Content::Parts(parts) => {
                let mut bytes = Vec::new();
                for &part in parts {
                    content::write(key, part, &mut bytes);
                }
                bytes
            }
        }
    }

    /// The flags that go with it: those of the first version.
    pub(crate) fn flags(&self) -> u32 {
        match self {
            Content::Counter(_) => COUNTER_FLAGS,
            Content::Parts(parts) => parts.first().map_or(0, |part| part.version),
        }
    }
}

impl Op {
    /// Whether it may change the item's CAS.
    pub(crate) fn writes(&self) -> bool {
        !matches!(self, Op::Get | Op::Touch { .. })
    }

    /// What it makes of a state, and how it is answered.
    fn apply(&self, state: &State) -> (State, Answer) {
        let is_present = *state != State::Absent;
        let kept = |answer| (state.clone(), answer);
        match self {
            Op::Set { content, is_mortal } => {
                let state = State::Present {
                    flags: content.flags(),
                    content: content.clone(),
                    is_mortal: *is_mortal,
                };
                (state, Answer::Is("STORED"))
            }
            Op::Get if is_present => kept(Answer::Item),
            Op::Get => kept(Answer::Miss),
            Op::Delete if is_present => (State::Absent, Answer::Is("DELETED")),
            Op::Append(_) if !is_present => kept(Answer::Is("NOT_STORED")),
            Op::Delete | Op::Incr(_) | Op::Touch { .. } if !is_present => {
                kept(Answer::Is("NOT_FOUND"))
            }
            Op::Append(part) => {
                let mut state = state.clone();
                if let State::Present {
                    content: Content::Parts(parts),
                    ..
                } = &mut state
                {
                    parts.push(*part);
                }
                (state, Answer::Is("STORED"))
            }
            Op::Incr(by) => {
                let mut state = state.clone();
                let mut sum = 0;
                if let State::Present {
                    content: Content::Counter(number),
                    ..
                } = &mut state
                {
                    *number += by;
                    sum = *number;
                }
                (state, Answer::Number(sum))
            }
            Op::Touch { is_mortal: mortal } => {
                let mut state = state.clone();
                if let State::Present { is_mortal, .. } = &mut state {
                    *is_mortal = *mortal;
                }
                (state, Answer::Is("TOUCHED"))
            }
            Op::Delete => unreachable!("both cases stand above"),
        }
    }
}

impl Entry {
    /// Nothing has been stored.
    pub(crate) fn new() -> Entry {
        Entry {
            possible: vec![State::Absent],
            version: 0,
            cas: None,
        }
    }

    /// The item may have been evicted.
    fn may_be_evicted(&mut self) {
        add(&mut self.possible, State::Absent);
    }

    /// Notes an answer. An error says how it contradicts all that was possible.
    pub(crate) fn answered(
        &mut self,
        key: u32,
        op: &Op,
        reply: &Reply,
        evicts: bool,
    ) -> Result<(), String> {
        if evicts {
            self.may_be_evicted();
        }
        let mut next = Vec::new();
        let mut why = String::new();
        for state in &self.possible {
            let (after, answer) = op.apply(state);
            match fault(key, state, &answer, reply) {
                None => add(&mut next, after),
                Some(fault) => why = fault,
            }
        }
        if next.is_empty() {
            return Err(format!(
                "key {key}, {op:?}: {why}; possible: {:?}",
                self.possible
            ));
        }
        self.possible = next;
        Ok(())
    }

    /// Notes requests that were sent, in this order, and not answered: each may have been carried
    /// out if all before it were.
    pub(crate) fn unanswered(&mut self, ops: &[Op]) {
        let mut now = self.possible.clone();
        for op in ops {
            let mut after = Vec::new();
            for state in &now {
                add(&mut after, op.apply(state).0);
            }
            for state in &after {
                add(&mut self.possible, state.clone());
            }
            now = after;
        }
    }

    /// Notes what is found after a restart: nothing, or an item with its flags, CAS and time to live
    /// in seconds (-1 for ever).
    pub(crate) fn found(
        &mut self,
        key: u32,
        item: Option<(u32, u64, i64, &[u8])>,
        evicts: bool,
    ) -> Result<(), String> {
        if evicts {
            self.may_be_evicted();
        }
        let Some((flags, cas, ttl, bytes)) = item else {
            if !self.possible.contains(&State::Absent) {
                return Err(format!("key {key} is lost; possible: {:?}", self.possible));
            }
            self.possible = vec![State::Absent];
            self.cas = None;
            return Ok(());
        };
        if ttl == 0 || ttl < -1 {
            return Err(format!("key {key} has {ttl} s to live"));
        }
        let mut why = format!("{} bytes where nothing was stored", bytes.len());
        let mut is_as_found = |state: &State| match state {
            State::Absent => false,
            State::Present {
                content,
                flags: own_flags,
                is_mortal,
            } => {
                let expected = content.bytes(key);
                if expected != bytes {
                    why = content::difference(&expected, bytes);
                } else if (flags, ttl > 0) != (*own_flags, *is_mortal) {
                    why = format!("flags {flags} and {ttl} s to live");
                } else {
                    return true;
                }
                false
            }
        };
        let state = self
            .possible
            .iter()
            .find(|state| is_as_found(state))
            .cloned();
        let Some(state) = state else {
            return Err(format!("key {key}: {why}; possible: {:?}", self.possible));
        };
        if let Some(before) = self.cas
            && cas != before
        {
            return Err(format!(
                "key {key}, untouched, had CAS {before} and has {cas}"
            ));
        }
        self.possible = vec![state];
        self.cas = Some(cas);
        Ok(())
    }
}

fn add(states: &mut Vec<State>, state: State) {
    if !states.contains(&state) {
        states.push(state);
    }
}

/// What is wrong with the answer, where this was stored.
fn fault(key: u32, state: &State, answer: &Answer, reply: &Reply) -> Option<String> {
    match (answer, reply, state) {
        (Answer::Is(expected), Reply::Line(line), _) if line == expected => None,
        (Answer::Number(number), Reply::Line(line), _) if *line == number.to_string() => None,
        (Answer::Miss, Reply::Miss, _) => None,
        (Answer::Item, Reply::Value { flags, bytes }, State::Present { content, .. }) => {
            let expected = content.bytes(key);
            if *bytes != expected {
                return Some(content::difference(&expected, bytes));
            }
            (*flags != content.flags()).then(|| format!("flags {flags}"))
        }
        (_, Reply::Line(line), _) => Some(format!("the answer {line:?}")),
        (_, Reply::Value { bytes, .. }, _) => Some(format!("a value of {} bytes", bytes.len())),
        (_, Reply::Miss, _) => Some("a miss".to_owned()),
    }
}

#[test]
fn lost_requests_leave_prefixes_possible() {
    let part = |version| Part { version, len: 10 };
    let set = |version| Op::Set {
        content: Content::Parts(vec![part(version)]),
        is_mortal: false,
    };
    let mut entry = Entry::new();
    let stored = Reply::Line("STORED".to_owned());
    entry
        .answered(1, &set(1), &stored, false)
        .expect("it is right");
    entry.unanswered(&[Op::Delete, set(2), Op::Append(part(3))]);
    let value = |versions: &[u32]| {
        Content::Parts(versions.iter().map(|&version| part(version)).collect()).bytes(1)
    };
    for (versions, flags, is_possible) in [
        (&[1][..], 1, true),
        (&[2], 2, true),
        (&[2, 3], 2, true),
        (&[1, 3], 1, false),
        (&[3], 3, false),
    ] {
        let bytes = value(versions);
        let found = entry.clone().found(1, Some((flags, 9, -1, &bytes)), false);
        assert_eq!(found.is_ok(), is_possible, "{versions:?}: {found:?}");
    }
    assert!(entry.clone().found(1, None, false).is_ok());
    let mut kept = entry.clone();
    kept.found(1, Some((1, 9, -1, &value(&[1]))), false)
        .expect("it is right");
    assert!(
        kept.found(1, Some((1, 10, -1, &value(&[1]))), false)
            .is_err()
    );
    assert!(kept.found(1, None, false).is_err());
    kept.found(1, None, true).expect("it may have been evicted");
    assert!(kept.found(1, Some((1, 9, -1, &value(&[1]))), true).is_err());
}
