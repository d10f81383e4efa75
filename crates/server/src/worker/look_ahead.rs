//! Looking ahead in a burst.
//!
//! Before a request is executed its buckets and then its item have been asked for from memory,
//! while requests before it were executed, so that the waiting times for memory overlap. Requests
//! advance together, a group at a time:
//!
//! ```text
//! group i + 3   hash the keys, prefetch their first buckets
//! group i + 2   look into these, prefetch the items, or else the second buckets
//! group i + 1   look into those, prefetch the items
//! group i       execute
//! ```
//! All that is a hint; a request's answer looks at the store as it is when it is executed.

use coua_protocol::Op;
use coua_store::{Ahead, Burst, Intent, KeyHash};

use super::burst::{Planned, What};
use crate::execute::{key_of, stored_key};

/// Requests of a group.
const GROUP: usize = 8;

/// Requests that are under way: those that are executed and those that are looked at.
const WINDOW: usize = 4 * GROUP;

/// Bursts shorter than this are executed without a look ahead, which would find nothing to
/// overlap with.
const LEN_MIN: usize = 2;

/// What is known of a request before it is executed.
#[derive(Clone, Copy)]
pub(super) struct Seen {
    /// Its key's hash, and what is going to be done to the key; `None` where it has no key.
    key: Option<(KeyHash, Intent)>,
    /// What the look ahead has seen.
    pub(super) ahead: Ahead,
}

impl Seen {
    const NOTHING: Seen = Seen {
        key: None,
        ahead: Ahead::NONE,
    };

    /// Its key's hash.
    #[inline]
    pub(super) fn hash(&self) -> Option<KeyHash> {
        self.key.map(|(hash, _)| hash)
    }
}

/// The look ahead over one burst.
pub(super) struct LookAhead<'p> {
    plan: &'p [Planned],
    ops: &'p [Op],
    /// What the plan's spans point into.
    bytes: &'p [u8],
    /// The group to begin with next.
    front: usize,
    /// Request `i` stands at `i % WINDOW`.
    seen: [Seen; WINDOW],
}

impl<'p> LookAhead<'p> {
    /// Begins at the front of `plan`.
    pub(super) fn new(plan: &'p [Planned], ops: &'p [Op], bytes: &'p [u8]) -> LookAhead<'p> {
        LookAhead {
            plan,
            ops,
            bytes,
            front: 0,
            seen: [Seen::NOTHING; WINDOW],
        }
    }

    /// What is known of request `at`, which comes behind the one of the last call.
    #[inline]
    pub(super) fn seen(&mut self, burst: &Burst<'_>, at: usize) -> Seen {
        while self.front <= at + 3 * GROUP {
            self.advance(burst, self.front);
            self.front += GROUP;
        }
        self.seen[at % WINDOW]
    }

    /// Begins with the group at `front`, and takes those before it one step further.
    fn advance(&mut self, burst: &Burst<'_>, front: usize) {
        let prefetches = self.plan.len() >= LEN_MIN;
        for (planned, seen) in self
            .plan
            .iter()
            .skip(front)
            .zip(group(&mut self.seen, front))
        {
            let input = &self.bytes[planned.base as usize..];
            let mut room = None;
            let (key, intent) = match planned.what {
                What::Get { key, .. } => (key.of(input), Intent::Read),
                What::Other { op } => match key_of(&self.ops[usize::from(op)]) {
                    Some((key, base64, intent)) => {
                        (stored_key(key, base64, input, &mut room), intent)
                    }
                    None => {
                        *seen = Seen::NOTHING;
                        continue;
                    }
                },
            };
            let hash = burst.key(key).hash;
            *seen = Seen {
                key: Some((hash, intent)),
                ahead: if prefetches {
                    burst.prefetch(hash, intent)
                } else {
                    Ahead::NONE
                },
            };
        }
        if !prefetches {
            return;
        }
        self.step(front.checked_sub(GROUP), |hash, intent, ahead| {
            burst.look(hash, intent, ahead)
        });
        self.step(front.checked_sub(2 * GROUP), |hash, intent, ahead| {
            burst.look_again(hash, intent, ahead)
        });
    }

    /// Takes the keys of the group that begins with request `at`, if there is one, a step further.
    #[inline]
    fn step(&mut self, at: Option<usize>, look: impl Fn(KeyHash, Intent, Ahead) -> Ahead) {
        let Some(at) = at else { return };
        let left = self.plan.len().saturating_sub(at);
        for seen in group(&mut self.seen, at).iter_mut().take(left) {
            if let Some((hash, intent)) = seen.key {
                seen.ahead = look(hash, intent, seen.ahead);
            }
        }
    }
}

/// The places of the group that begins with request `at`.
#[inline]
fn group(seen: &mut [Seen; WINDOW], at: usize) -> &mut [Seen] {
    &mut seen[at % WINDOW..][..GROUP]
}
