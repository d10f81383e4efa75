//! Records of flash that requests wait for: which reads are under way, and what they have brought, by session.
//!
//! A request whose item is on flash is executed again when its session's reads have ended. What was read is kept here
//! until the request has used it. A session has a list of its reads ([`FetchList`]); when it closes, reads that are
//! under way lose their session, and what they bring is given back.
//!
//! # Invariants
//! - A place is free, or in one session's list, or its read is under way for nobody.
//! - The table has its size from the start, so as many records are held by a worker at most; by a session at most
//!   [`PER_SESSION_MAX`].

use coua_store::{Burst, FetchStart, Fetched, FlashPlace, FlashRead, NoRecord};

use crate::fetch_list::{FetchList, NONE};
use crate::session::{SessionId, Sessions};

/// Reads that one session may have under way, or hold the records of.
pub const PER_SESSION_MAX: usize = 128;

/// A worker's reads, and what they have brought.
pub struct Fetches {
    places: Vec<Fetch>,
    free: Vec<u32>,
    /// Records that nobody needs any more.
    returned: Vec<Fetched>,
}

struct Fetch {
    /// How many reads had this place before: a read that ends late is not taken for a later one.
    generation: u32,
    session: Option<SessionId>,
    of: Option<FlashPlace>,
    state: State,
    /// The next of its session.
    next: u32,
}

enum State {
    Vacant,
    UnderWay,
    Ended(Result<Fetched, NoRecord>),
    /// It has been answered with, and may be again until the session's part of the batch is over.
    Used(Result<Fetched, NoRecord>),
}

/// What there is of a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// None was begun.
    Nothing,
    /// It is under way.
    UnderWay,
    /// It has ended; [`Fetches::record`] says what it has brought.
    Ended(u32),
}

impl Fetch {
    /// Whether the machine has lost the memory of what it has brought: then it is as if nobody had asked.
    fn is_lost(&self) -> bool {
        match &self.state {
            State::Ended(Ok(fetched)) | State::Used(Ok(fetched)) => fetched.is_lost(),
            _ => false,
        }
    }
}

impl Fetches {
    /// A table for so many reads; none where there is no flash.
    pub fn new(most: usize) -> Fetches {
        let count = u32::try_from(most).expect("a number of reads");
        Fetches {
            places: (0..count)
                .map(|_| Fetch {
                    generation: 0,
                    session: None,
                    of: None,
                    state: State::Vacant,
                    next: NONE,
                })
                .collect(),
            free: (0..count).rev().collect(),
            returned: Vec::with_capacity(most),
        }
    }

    /// Bytes of a table for so many reads.
    pub const fn memory(most: usize) -> usize {
        most * (size_of::<Fetch>() + size_of::<u32>() + size_of::<Fetched>())
    }

    /// What the session has of a place.
    pub fn find(&self, list: &FetchList, place: FlashPlace) -> Found {
        let mut at = list.first;
        while let Some(fetch) = self.places.get(at as usize) {
            if fetch.of == Some(place) && !fetch.is_lost() {
                return match fetch.state {
                    State::UnderWay => Found::UnderWay,
                    _ => Found::Ended(at),
                };
            }
            at = fetch.next;
        }
        Found::Nothing
    }

    /// Begins a read for a session.
    pub fn begin(
        &mut self,
        burst: &mut Burst<'_>,
        id: SessionId,
        list: &mut FetchList,
        place: FlashPlace,
    ) -> FetchStart {
        if usize::from(list.len) >= PER_SESSION_MAX {
            return FetchStart::Busy;
        }
        let Some(&at) = self.free.last() else {
            return FetchStart::Busy;
        };
        let fetch = &mut self.places[at as usize];
        let token = u64::from(fetch.generation) << 32 | u64::from(at);
        let started = burst.fetch(place, token);
        if started == FetchStart::UnderWay {
            self.free.pop();
            fetch.session = Some(id);
            fetch.of = Some(place);
            fetch.state = State::UnderWay;
            fetch.next = std::mem::replace(&mut list.first, at);
            list.under_way += 1;
            list.len += 1;
        }
        started
    }

    /// What a read that has ended has brought; `None` if that is nothing.
    pub fn record(&self, at: u32) -> Option<&Fetched> {
        match &self.places[at as usize].state {
            State::Ended(Ok(fetched)) | State::Used(Ok(fetched)) => Some(fetched),
            _ => None,
        }
    }

    /// A request has been answered with what a read has brought. It can be used until it is let go of.
    pub fn note_used(&mut self, at: u32) {
        let state = &mut self.places[at as usize].state;
        *state = match std::mem::replace(state, State::Vacant) {
            State::Ended(result) | State::Used(result) => State::Used(result),
            other => other,
        };
    }

    /// A read has ended. Returns its session if that has no other under way.
    pub fn end(&mut self, read: FlashRead, sessions: &mut Sessions) -> Option<SessionId> {
        #[expect(
            clippy::cast_possible_truncation,
            reason = "the halves are taken apart"
        )]
        let (at, generation) = (read.token as u32, (read.token >> 32) as u32);
        let fetch = self.places.get_mut(at as usize);
        let Some(fetch) = fetch.filter(|fetch| fetch.generation == generation) else {
            self.returned.extend(read.result);
            return None;
        };
        let session = fetch.session.and_then(|id| Some((id, sessions.get(id)?)));
        let Some((id, session)) = session else {
            self.vacate(at);
            self.returned.extend(read.result);
            return None;
        };
        fetch.state = State::Ended(read.result);
        session.fetches.under_way -= 1;
        if session.is_blocked() {
            // Its client may never read: what was read for it is read again when it does.
            self.release(&mut session.fetches, false);
        }
        (!session.fetches.is_waiting()).then_some(id)
    }

    /// Lets go of a session's records: of those that have been used, or of all that are not under way.
    pub fn release(&mut self, list: &mut FetchList, only_used: bool) {
        let (mut at, mut kept) = (list.first, NONE);
        while at != NONE {
            let fetch = &mut self.places[at as usize];
            let next = fetch.next;
            let is_kept = match fetch.state {
                State::UnderWay => true,
                State::Ended(_) => only_used,
                State::Used(_) | State::Vacant => false,
            };
            if is_kept {
                fetch.next = std::mem::replace(&mut kept, at);
            } else {
                self.vacate(at);
                list.len -= 1;
            }
            at = next;
        }
        list.first = kept;
    }

    /// Lets go of all of a session's records but one.
    pub fn release_but(&mut self, list: &mut FetchList, kept: u32) {
        let mut at = list.first;
        while let Some(fetch) = self.places.get(at as usize) {
            let next = fetch.next;
            if at != kept {
                self.note_used(at);
            }
            at = next;
        }
        self.release(list, true);
    }

    /// Lets go of everything of a session that closes.
    pub fn abandon(&mut self, list: &mut FetchList) {
        self.release(list, false);
        let mut at = std::mem::take(list).first;
        while let Some(fetch) = self.places.get_mut(at as usize) {
            fetch.session = None;
            at = std::mem::replace(&mut fetch.next, NONE);
        }
    }

    /// Reads that are under way, or whose records are held.
    pub fn held(&self) -> usize {
        self.places.len() - self.free.len()
    }

    /// Whether every place is free: nothing is under way and nothing held.
    pub fn is_idle(&self) -> bool {
        self.free.len() == self.places.len()
    }

    /// Takes the records whose memory is to be given back to the store.
    pub fn take_returned(&mut self) -> impl Iterator<Item = Fetched> {
        self.returned.drain(..)
    }

    fn vacate(&mut self, at: u32) {
        let fetch = &mut self.places[at as usize];
        fetch.generation = fetch.generation.wrapping_add(1);
        (fetch.session, fetch.of, fetch.next) = (None, None, NONE);
        self.free.push(at);
        if let State::Ended(Ok(fetched)) | State::Used(Ok(fetched)) =
            std::mem::replace(&mut fetch.state, State::Vacant)
        {
            self.returned.push(fetched);
        }
    }
}
