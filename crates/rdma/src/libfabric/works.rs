//! Names of what is under way: work, and buffers that receive. A name is not used twice for a long time, so that what comes
//! late is not taken for something else.

/// What a completion's context names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Named {
    /// Work, by its place.
    Work(usize),
    /// A buffer, by its number.
    Frame(usize),
    /// Room for a word that comes with a write.
    Word,
    /// Nothing that is still there.
    Nothing,
}

/// One piece of work.
#[derive(Clone, Copy, Debug)]
pub(super) struct Work {
    pub(super) peer: u32,
    pub(super) token: u64,
}

#[derive(Default)]
struct Place {
    generation: u32,
    work: Option<Work>,
}

/// All work that is under way.
#[derive(Default)]
pub(super) struct Works {
    places: Vec<Place>,
    free: Vec<usize>,
}

/// No generation has the highest bit. With all bits set, the provider `verbs` would not report it.
const WORD: u64 = 1 << 63;

impl Works {
    /// Notes work, and says where, and what it is called.
    pub(super) fn insert(&mut self, work: Work) -> (usize, u64) {
        let at = self.free.pop().unwrap_or_else(|| {
            self.places.push(Place::default());
            self.places.len() - 1
        });
        self.places[at].work = Some(work);
        (
            at,
            u64::from(self.places[at].generation) << 32 | (at as u64) << 1,
        )
    }

    /// Takes work out.
    pub(super) fn remove(&mut self, at: usize) -> Option<Work> {
        let place = self.places.get_mut(at)?;
        let work = place.work.take()?;
        place.generation = (place.generation + 1) & 0x7fff_ffff;
        self.free.push(at);
        Some(work)
    }

    /// All work of a connection.
    pub(super) fn of(&self, peer: u32) -> Vec<usize> {
        let is_its = |(_, place): &(usize, &Place)| place.work.is_some_and(|it| it.peer == peer);
        self.places
            .iter()
            .enumerate()
            .filter(is_its)
            .map(|(at, _)| at)
            .collect()
    }

    /// How much is under way.
    pub(super) fn len(&self) -> usize {
        self.places.len() - self.free.len()
    }

    /// What a context names; `frame` knows the generation of a buffer.
    pub(super) fn named(&self, context: u64, frame: impl Fn(usize) -> Option<u32>) -> Named {
        if context == WORD {
            return Named::Word;
        }
        let generation = u32::try_from(context >> 32).expect("32 bits");
        let at = usize::try_from(context & 0xffff_ffff).expect("32 bits") >> 1;
        let is_frame = context & 1 == 1;
        if is_frame && frame(at) == Some(generation) {
            return Named::Frame(at);
        }
        let is_there = !is_frame
            && self
                .places
                .get(at)
                .is_some_and(|place| place.generation == generation && place.work.is_some());
        if is_there {
            Named::Work(at)
        } else {
            Named::Nothing
        }
    }
}

/// The context of a buffer.
pub(super) fn frame_context(number: usize, generation: u32) -> u64 {
    u64::from(generation) << 32 | (number as u64) << 1 | 1
}

/// The context of room for a word.
pub(super) fn word_context() -> u64 {
    WORD
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_come_back_is_not_named_again() {
        let mut works = Works::default();
        let nothing = |_: usize| None;
        let (_, first) = works.insert(Work { peer: 1, token: 7 });
        assert_eq!(works.named(first, nothing), Named::Work(0));
        assert_eq!((works.of(1), works.of(2)), (vec![0], vec![]));
        assert_eq!(works.remove(0).map(|work| work.token), Some(7));
        assert!(works.remove(0).is_none());
        let (_, second) = works.insert(Work { peer: 2, token: 8 });
        assert_eq!(works.named(first, nothing), Named::Nothing);
        assert_eq!(works.named(second, nothing), Named::Work(0));
        assert_eq!(works.len(), 1);
        let frame = frame_context(5, 3);
        assert_eq!(works.named(frame, |_| Some(3)), Named::Frame(5));
        assert_eq!(works.named(frame, |_| Some(4)), Named::Nothing);
        assert_eq!(works.named(word_context(), nothing), Named::Word);
    }
}
