//! Tags: `G` and `g`, flags that only coua has. `docs/tags.md` describes them.

use coua_protocol::reply::{MetaFacts, MetaHead, MetaKey, TagNumbers};
use coua_protocol::{Flags, Meta, TagNames};
use coua_store::{Invalidation, Item, NO_TAGS, Tags};

use super::{Answers, Executor};
use crate::outcome::Outcome;

impl Executor<'_, '_> {
    /// `md <tag> G`
    pub(super) fn invalidate(&mut self, meta: &Meta, input: &[u8], name: &[u8]) -> Outcome {
        let how = match meta.set.has(b'I') {
            true => Invalidation::Stale,
            false => Invalidation::Gone,
        };
        self.burst.invalidate(self.burst.tag(name), how);
        match meta.quiet() {
            true => Outcome::Done,
            false => self.answers.tag(meta, input, name),
        }
    }
}

impl Answers<'_> {
    /// Answers for a tag, whose name is the request's key.
    pub(super) fn tag(&mut self, meta: &Meta, input: &[u8], name: &[u8]) -> Outcome {
        let tag = self.shared.store.tag(name);
        let facts = MetaFacts {
            key: MetaKey {
                bytes: name,
                base64: meta.key_base64(),
            },
            tags: Some([tag.number(), 0, 0, 0]),
            ..MetaFacts::default()
        };
        let flags = meta.flags(input);
        self.output
            .reply(|reply| reply.meta(MetaHead::Done, flags, &facts));
        Outcome::Done
    }

    /// The tags that the flag `G` gives an item.
    pub(super) fn tags(&self, flags: Flags<'_>) -> Tags {
        let mut tags = NO_TAGS;
        for (tag, name) in tags.iter_mut().zip(TagNames::of(flags)) {
            *tag = Some(self.shared.store.tag(name));
        }
        tags
    }

    /// As [`Answers::tags`], for a request that says at once whether it has the flag.
    pub(super) fn tags_if_given(&self, meta: &Meta, input: &[u8]) -> Tags {
        match meta.set.has(b'G') {
            true => self.tags(meta.flags(input)),
            false => NO_TAGS,
        }
    }
}

/// The numbers of an item's tags, for the flag `g`.
pub(super) fn tag_numbers(item: &Item<'_>) -> TagNumbers {
    let mut numbers = TagNumbers::default();
    for (place, number) in numbers.iter_mut().zip(item.tags()) {
        *place = number;
    }
    numbers
}
