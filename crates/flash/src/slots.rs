//! Requests that a device has, by the number that it knows them by.

use crate::{Buffer, Command, Completion, Failure};

/// A request under way.
pub(crate) struct InFlight {
    /// The caller's token.
    pub(crate) token: u64,
    /// The memory that the device uses.
    pub(crate) buffer: Option<Buffer>,
    /// Memory of the driver's own that the device uses for this request.
    pub(crate) scratch: Option<Buffer>,
    /// Bytes that shall be transferred.
    pub(crate) len: usize,
    /// When it was pushed, for drivers that notice timeouts themselves.
    pub(crate) since_ns: u64,
    /// Whether it shall be aborted.
    pub(crate) is_aborted: bool,
}

impl InFlight {
    /// Of a request.
    pub(crate) fn of(token: u64, command: Command) -> InFlight {
        let len = match &command {
            Command::Read(transfer) | Command::Write(transfer) => transfer.len,
            Command::Flush | Command::Discard { .. } => 0,
        };
        InFlight {
            token,
            buffer: command.into_buffer(),
            scratch: None,
            len,
            since_ns: 0,
            is_aborted: false,
        }
    }

    /// Its end.
    pub(crate) fn completed(self, result: Result<(), Failure>) -> Completion {
        Completion {
            token: self.token,
            buffer: self.buffer,
            result,
        }
    }
}

/// A fixed number of places for requests under way.
pub(crate) struct Slots {
    entries: Box<[Option<InFlight>]>,
    free: Vec<u16>,
}

impl Slots {
    /// Places for `depth` requests.
    ///
    /// # Panics
    /// Where `depth` has more than 16 bits.
    pub(crate) fn new(depth: usize) -> Slots {
        let last = u16::try_from(depth).expect("a depth of 16 bits");
        Slots {
            entries: (0..depth).map(|_| None).collect(),
            free: (0..last).rev().collect(),
        }
    }

    /// Taken places.
    pub(crate) fn in_flight(&self) -> usize {
        self.entries.len() - self.free.len()
    }

    /// The number that the next request gets.
    ///
    /// # Panics
    /// Where there is no room.
    pub(crate) fn next_id(&self) -> u16 {
        *self.free.last().expect("the caller looks for room")
    }

    /// Puts a request into a place, and gives its number.
    ///
    /// # Panics
    /// Where there is no room.
    pub(crate) fn insert(&mut self, request: InFlight) -> u16 {
        let id = self.free.pop().expect("the caller looks for room");
        self.entries[usize::from(id)] = Some(request);
        id
    }

    /// What a device calls by `id`, where that names anything: a device may say what it likes.
    pub(crate) fn take(&mut self, id: u64) -> Option<InFlight> {
        let index = usize::try_from(id).ok()?;
        let request = self.entries.get_mut(index)?.take()?;
        self.free.push(u16::try_from(id).ok()?);
        Some(request)
    }

    /// All requests under way, with their numbers.
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (u16, &mut InFlight)> {
        let numbered = (0u16..).zip(&mut self.entries);
        numbered.filter_map(|(id, request)| Some((id, request.as_mut()?)))
    }

    /// Any request under way.
    pub(crate) fn take_any(&mut self) -> Option<InFlight> {
        let id = self.iter_mut().next()?.0;
        self.take(u64::from(id))
    }

    /// Never gives the buffers back that a device may still write to.
    pub(crate) fn leak(&mut self) {
        for request in &mut self.entries {
            std::mem::forget(request.take());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_that_name_nothing_take_nothing() {
        let mut slots = Slots::new(2);
        let id = slots.insert(InFlight::of(9, Command::Flush));
        assert_eq!(slots.in_flight(), 1);
        for lie in [u64::from(id) ^ 1, 2, u64::MAX] {
            assert!(slots.take(lie).is_none(), "{lie}");
        }
        assert_eq!(slots.take(u64::from(id)).map(|it| it.token), Some(9));
        assert!(slots.take(u64::from(id)).is_none(), "each completes once");
        assert_eq!(slots.in_flight(), 0);
    }
}
