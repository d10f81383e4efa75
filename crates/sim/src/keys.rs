//! The keys of a client: those of its own, whose values it knows, and those that all share.

use std::collections::VecDeque;
use std::rc::Rc;

use crate::dice::Dice;
use crate::model::{Flushes, Laxity, Model};
use crate::request::{Answer, Found, KeyNumber, Request, SentRequest};
use crate::values;
use crate::window::Window;

/// Keys that all clients share, beside the counter.
const SHARED: usize = 4;

/// Names and states of keys. Keys of numbers come first, then keys of other values, then shared
/// keys, then the shared counter.
pub(crate) struct Keys {
    names: Vec<Vec<u8>>,
    own: usize,
    writer: u32,
    version: u32,
    model: Model,
    laxity: Laxity,
    flushes: Flushes,
    /// The longest that each key's value can be, whichever requests under way are executed.
    bounds: Vec<usize>,
    /// The highest value of the counter that was seen.
    counted: Option<u64>,
    /// Increments of the counter that were answered, and others that may have happened.
    pub(crate) counts: (u64, u64),
}

impl Keys {
    /// Fresh keys. If `epoch` is new, none of them has ever been used.
    pub(crate) fn new(
        writer: u32,
        epoch: u32,
        own: usize,
        laxity: Laxity,
        flushes: Flushes,
    ) -> Keys {
        let own_name = |number: usize| {
            let mut name = format!("c{writer}.{epoch}.{number}").into_bytes();
            // Some are as long as a key may be.
            if number % 7 == 3 {
                name.resize(250, b'k');
            }
            name
        };
        let shared = (0..SHARED).map(|number| format!("shared{number}").into_bytes());
        Keys {
            names: (0..own)
                .map(own_name)
                .chain(shared)
                .chain([b"counter".to_vec()])
                .collect(),
            own,
            writer,
            version: 0,
            model: Model::new(own, laxity, Rc::clone(&flushes)),
            flushes,
            laxity,
            bounds: vec![0; own + SHARED + 1],
            counted: None,
            counts: (0, 0),
        }
    }

    /// The same client's keys of another epoch: what the old keys hold no longer matters.
    pub(crate) fn renew(&mut self, epoch: u32) {
        let flushes = Rc::clone(&self.flushes);
        let fresh = Keys::new(self.writer, epoch, self.own, self.laxity, flushes);
        *self = Keys {
            version: self.version,
            counted: self.counted,
            counts: self.counts,
            ..fresh
        };
    }

    pub(crate) fn names(&self) -> &[Vec<u8>] {
        &self.names
    }

    pub(crate) fn name(&self, key: KeyNumber) -> &[u8] {
        &self.names[key]
    }

    /// How many keys, from the first on, hold numbers.
    pub(crate) fn numbers(&self) -> usize {
        self.own.div_ceil(4)
    }

    pub(crate) fn is_number(&self, key: KeyNumber) -> bool {
        key < self.numbers()
    }

    pub(crate) fn any_own(&self, dice: &mut Dice) -> KeyNumber {
        dice.below(self.own)
    }

    pub(crate) fn any_shared(&self, dice: &mut Dice) -> KeyNumber {
        self.own + dice.below(SHARED)
    }

    pub(crate) fn counter(&self) -> KeyNumber {
        self.own + SHARED
    }

    pub(crate) fn cas(&self, key: KeyNumber) -> Option<u64> {
        self.model.cas(key)
    }

    pub(crate) fn bound(&self, key: KeyNumber) -> usize {
        self.bounds[key]
    }

    pub(crate) fn raise_bound(&mut self, key: KeyNumber, len: usize) {
        self.bounds[key] = self.bounds[key].max(len);
    }

    /// Nothing is under way, so the lengths of values are known exactly.
    pub(crate) fn lower_bounds(&mut self) {
        for key in 0..self.own {
            self.bounds[key] = self.model.value_len_max(key);
        }
    }

    /// A value that nobody has stored before.
    pub(crate) fn new_value(&mut self, key: KeyNumber, len: usize) -> Rc<[u8]> {
        self.version += 1;
        values::value(&self.names[key], self.writer, self.version, len)
    }

    /// The highest value of the counter that was seen.
    pub(crate) fn counted(&self) -> Option<u64> {
        self.counted
    }

    /// Takes note of an answer.
    ///
    /// # Errors
    /// Where it is wrong.
    pub(crate) fn settle(
        &mut self,
        asked: &SentRequest,
        answer: &Answer,
        window: Window,
    ) -> Result<(), String> {
        match self.shared_key(&asked.request) {
            None => self.model.settle(asked, answer, window, &self.names),
            Some(key) if key == self.counter() => self.settle_counter(&asked.request, answer),
            Some(key) => self.settle_shared(key, answer),
        }
        .map_err(|why| {
            let name = asked.request.name();
            let (form, opaque) = (asked.form, asked.opaque);
            format!("{form:?} {name} (opaque {opaque}, {window:?}): {why}")
        })
    }

    /// Takes note that some of `waiting`, from the first on, were executed by second `to` and
    /// `round`. How many is not known.
    pub(crate) fn doubt(&mut self, waiting: &VecDeque<SentRequest>, to: u32, round: u64) {
        let is_shared = |asked: &&SentRequest| self.shared_key(&asked.request).is_some();
        let is_count = |asked: &&SentRequest| matches!(asked.request, Request::Count { .. });
        let counts = waiting.iter().filter(is_shared).filter(is_count).count();
        self.counts.1 += counts as u64;
        let own = self.own;
        let is_own = |asked: &&SentRequest| key_beyond(own, &asked.request).is_none();
        self.model.doubt(waiting.iter().filter(is_own), to, round);
    }

    fn shared_key(&self, request: &Request) -> Option<KeyNumber> {
        key_beyond(self.own, request)
    }

    fn settle_counter(&mut self, request: &Request, answer: &Answer) -> Result<(), String> {
        let loses = self.laxity.loses;
        match (request, answer) {
            (_, Answer::NoMemory) if self.laxity.refuses => {}
            (Request::Count { .. }, Answer::Number(number, _)) => {
                if !loses && self.counted.is_some_and(|before| before >= *number) {
                    return Err(format!("{number} after {:?}", self.counted));
                }
                self.counted = Some(*number);
                self.counts.0 += 1;
            }
            (Request::Count { .. }, Answer::Silence) => self.counts.1 += 1,
            (Request::Count { .. }, Answer::NotFound) if loses || self.counted.is_none() => {}
            (Request::Store { .. }, Answer::Stored(_)) if loses || self.counted.is_none() => {}
            (Request::Store { .. }, Answer::NotStored | Answer::Silence) => {}
            _ => return Err(format!("{answer:?}, and it is at {:?}", self.counted)),
        }
        Ok(())
    }

    /// What other clients do to a shared key is not known, but its value must be one that some
    /// client stored, whole.
    fn settle_shared(&self, key: KeyNumber, answer: &Answer) -> Result<(), String> {
        match answer {
            Answer::Values(found) => found.iter().try_for_each(|item| self.check(key, item)),
            Answer::NoMemory if !self.laxity.refuses => Err("no memory".to_owned()),
            Answer::TooLarge | Answer::NotNumeric => Err(format!("{answer:?}")),
            _ => Ok(()),
        }
    }

    fn check(&self, key: KeyNumber, item: &Found) -> Result<(), String> {
        let Some(value) = &item.value else {
            return Ok(());
        };
        let version = values::check(&self.names[key], value)?;
        if item.flags.is_some_and(|flags| flags != version) {
            return Err(format!("version {version} with flags {:?}", item.flags));
        }
        Ok(())
    }
}

/// The key of a request, if it is not one of the client's first `own` keys.
fn key_beyond(own: usize, request: &Request) -> Option<KeyNumber> {
    let key = match request {
        Request::Get { keys, .. } => *keys.first()?,
        Request::Store { key, .. } | Request::Count { key, .. } | Request::Delete { key } => *key,
        _ => return None,
    };
    (key >= own).then_some(key)
}
