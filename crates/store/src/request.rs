//! What can be asked of the store, and what it answers.
//!
//! The shapes follow memcached's semantics (classic and meta); the words on the wire are the
//! server's. Every operation that may need memory can answer [`Refused::Wait`]: nothing happened,
//! and the caller ends its burst and asks again in a later one.

use crate::item::Item;
use crate::time::Expiry;

/// How a read touches what it finds.
#[derive(Clone, Copy, Debug)]
pub struct Access {
    /// Counts as an access: frequency, access time, "fetched". `mg u` and `me` do not.
    pub bump: bool,
    /// The caller hands the item's CAS to a client, so it must survive the item's moves.
    pub cas: bool,
}

impl Default for Access {
    fn default() -> Access {
        Access {
            bump: true,
            cas: false,
        }
    }
}

/// Why a lookup found nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Miss {
    /// No item of that key.
    Absent,
    /// There was one; its expiry has passed.
    Expired,
    /// There was one; a flush killed it.
    Flushed,
}

/// Which existing items a store operation replaces, extends or respects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Stores whether or not the key exists.
    Set,
    /// Stores only where the key does not exist; otherwise counts as an access to the old item.
    Add,
    /// Stores only where the key exists.
    Replace,
    /// Stores only where the item's CAS is [`Put::compare`].
    Cas,
    /// Puts the value behind the existing one, whose client flags and expiry stay.
    Append,
    /// Puts the value before the existing one, whose client flags and expiry stay.
    Prepend,
    /// As [`Mode::Append`]; stores as [`Mode::Set`] where the key does not exist.
    AppendOrSet,
    /// As [`Mode::Prepend`]; stores as [`Mode::Set`] where the key does not exist.
    PrependOrSet,
}

/// A store operation, all but key and value.
#[derive(Clone, Copy, Debug)]
pub struct Put {
    /// What becomes of an existing item.
    pub mode: Mode,
    /// The CAS that the existing item must have; 0 means none was given. With [`Mode::Cas`] a
    /// 0 matches nothing. Append and prepend honour it too; the other modes ignore it.
    pub compare: u64,
    /// `ms I`: with [`Mode::Cas`], a `compare` below the item's CAS stores as well, marks the item
    /// stale and keeps its expiry and win token.
    pub allow_stale: bool,
    /// `ms E`: the CAS that the new item gets; `None` lets the store choose.
    pub cas: Option<u64>,
    /// The caller hands the new CAS to a client (`ms c`).
    pub return_cas: bool,
    /// The client's 32 opaque bits.
    pub client_flags: u32,
    /// When the item dies.
    pub expiry: Expiry,
    /// The key came in base64 (`ms b`) and is shown so.
    pub key_is_binary: bool,
}

impl Put {
    /// A plain set.
    pub fn set(client_flags: u32, expiry: Expiry) -> Put {
        Put {
            mode: Mode::Set,
            compare: 0,
            allow_stale: false,
            cas: None,
            return_cas: false,
            client_flags,
            expiry,
            key_is_binary: false,
        }
    }
}

/// What a store operation came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stored {
    /// The item is there. `cas` is its CAS where [`Put::return_cas`] asked, `value_len` the length
    /// of its whole value in bytes (longer than what was sent after append or prepend).
    Stored {
        /// The new item's CAS, or 0 where it was not asked for.
        cas: u64,
        /// Bytes of the whole value.
        value_len: usize,
        /// [`Mode::Cas`] stored over a newer item (`ms I`).
        over_newer: bool,
    },
    /// The mode's condition does not hold (add to an existing key, replace of a missing one …).
    NotStored,
    /// The item's CAS is another.
    Exists,
    /// [`Mode::Cas`] on a key that does not exist.
    NotFound,
    /// Nothing happened; see [`Refused`].
    Refused(Refused),
}

/// Why an operation that needs memory got none. Nothing has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// No segment is free at this moment; the cleaner frees one within a few bursts.
    #[error("no free segment at the moment")]
    Wait,
    /// The item would be larger than the store takes.
    #[error("object too large")]
    TooLarge,
    /// Evictions are off and memory is full, or unfinished uploads hold their whole share.
    #[error("out of memory")]
    OutOfMemory,
}

/// A delete, or what `md` makes of it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Delete {
    /// The CAS that the item must have (`md C`); `None` deletes any.
    pub compare: Option<u64>,
    /// `md x`: keeps the item but drops its value; its client flags and expiry become these.
    pub clear_value: Option<(u32, Expiry)>,
    /// `md I`: keeps the item, marks it stale and takes its win token back.
    pub mark_stale: bool,
    /// `md T`, with `mark_stale`: the item's new expiry.
    pub expiry: Option<Expiry>,
    /// `md E`: the CAS that the kept item gets.
    pub cas: Option<u64>,
}

/// What a delete came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deleted {
    /// Deleted, cleared or marked.
    Done,
    /// The item's CAS is another.
    Exists,
    /// No such item.
    NotFound(Miss),
    /// A cleared or marked item is a new item, and it found no memory.
    Refused(Refused),
}

/// incr, decr and `ma`.
#[derive(Clone, Copy, Debug)]
pub struct Arithmetic {
    /// How much to add or take away.
    pub delta: u64,
    /// Takes away, stopping at 0, instead of adding, wrapping at 2^64.
    pub decrement: bool,
    /// The CAS that the item must have; 0 means none was given.
    pub compare: u64,
    /// `ma E`: the CAS that the item gets.
    pub cas: Option<u64>,
    /// The caller hands the new CAS to a client (`ma c`).
    pub return_cas: bool,
    /// `ma N J`: the value and expiry of an item made where there was none.
    pub vivify: Option<(u64, Expiry)>,
    /// `ma T`: the item's new expiry.
    pub touch: Option<Expiry>,
}

/// What arithmetic came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArithmeticResult {
    /// The number as it stands now.
    Value {
        /// The new number.
        number: u64,
        /// The item's CAS where it was asked for, else 0.
        cas: u64,
        /// The item's expiry before [`Arithmetic::touch`].
        expiry_before: Expiry,
        /// The item was made by [`Arithmetic::vivify`].
        created: bool,
    },
    /// The value is no decimal number below 2^64.
    NotNumeric,
    /// The item's CAS is another.
    Exists,
    /// No such item.
    NotFound(Miss),
    /// No memory for the new item.
    Refused(Refused),
}

/// `mg`, where it does more than read.
#[derive(Clone, Copy, Debug)]
pub struct MetaGet {
    /// Bump and CAS, as for a plain read.
    pub access: Access,
    /// `mg N`: makes an empty item with this expiry on a miss; whoever makes it wins.
    pub vivify: Option<Expiry>,
    /// `mg E`: the CAS of an item that `vivify` makes.
    pub vivify_cas: Option<u64>,
    /// `mg R`: wins where the item dies before this second and nobody has won yet.
    pub recache: Option<Expiry>,
    /// `mg T`: the item's new expiry.
    pub touch: Option<Expiry>,
    /// `T` stands before `R` in the request, so `recache` looks at the new expiry.
    pub touch_first: bool,
}

/// What `mg` found or made.
#[derive(Clone, Copy)]
pub struct MetaHit<'b> {
    /// The item, as it stands after the request.
    pub item: Item<'b>,
    /// It was made by [`MetaGet::vivify`].
    pub created: bool,
    /// This request holds the win token (`W`).
    pub won: bool,
    /// The item is stale (`X`).
    pub stale: bool,
    /// Another request holds the win token (`Z`).
    pub token_sent: bool,
    /// The expiry before [`MetaGet::touch`].
    pub expiry_before: Expiry,
    /// Seconds since the last access before this one (`l`).
    pub idle_seconds: u32,
    /// Whether it had been read before this request (`h`).
    pub fetched_before: bool,
}

/// Why `mg` has nothing to show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetaMiss {
    /// No such item, and none was to be made.
    Miss(Miss),
    /// None could be made: no memory.
    Refused(Refused),
    /// There is one, but no memory to write it anew with the expiry of [`MetaGet::touch`].
    Untouched(Refused),
}

/// Why touch has nothing to show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Untouched {
    /// No such item.
    Miss(Miss),
    /// There is one, but no memory to write it anew with its first expiry.
    Refused(Refused),
}
