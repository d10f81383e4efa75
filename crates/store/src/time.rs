//! Wall-clock time as items carry it: whole seconds.

/// Seconds since the Unix epoch, as the caller's clock has them. The store never reads a clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UnixSeconds(pub u32);

/// When an item dies: a second since the Unix epoch, or never.
///
/// An item is dead from the second on that its expiry names (`expiry <= now`), as in memcached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Expiry(u32);

impl Expiry {
    /// The item stays until it is evicted, deleted or flushed.
    pub const NEVER: Expiry = Expiry(0);

    /// Dies at `second`. Zero stands for [`Expiry::NEVER`].
    pub const fn at(second: UnixSeconds) -> Expiry {
        Expiry(second.0)
    }

    /// The second at which the item dies, or `None` where it never does.
    pub const fn second(self) -> Option<UnixSeconds> {
        if self.0 == 0 {
            None
        } else {
            Some(UnixSeconds(self.0))
        }
    }

    /// Whether the item is dead at `now`.
    pub const fn is_past(self, now: UnixSeconds) -> bool {
        self.0 != 0 && self.0 <= now.0
    }

    /// Itself, or `None` for [`Expiry::NEVER`]: what an item needs room for.
    pub(crate) const fn given(self) -> Option<Expiry> {
        if self.0 == 0 { None } else { Some(self) }
    }

    pub(crate) const fn raw(self) -> u32 {
        self.0
    }

    pub(crate) const fn from_raw(raw: u32) -> Expiry {
        Expiry(raw)
    }
}
