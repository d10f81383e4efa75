//! What can be asked of the store, and what it answers.
//! The requests follow memcached's semantics, classic and meta; their words on the wire are the
//! server's concern. Each operation that may need memory can return [`Refused::Wait`]: then nothing
//! has happened, and the caller ends its burst and tries again in a later one.

use crate::index::slot::Slot;
use crate::item::Item;
use crate::key::KeyHash;
use crate::tags::{NO_TAGS, Tags};
use crate::time::Expiry;

/// How a read affects the item that it finds.
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

/// Where an item may be on flash: the tag of its slot is the key's. It may be another key's all the same, or gone
/// by the time that it is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlashPlace {
    pub(crate) slot: Slot,
    pub(crate) hash: KeyHash,
}

/// Why a lookup found nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Miss {
    /// There is no item with this key.
    Absent,
    /// There is one, but it has expired.
    Expired,
    /// There is one, but it was flushed.
    Flushed,
    /// There is one, but a tag of its was invalidated.
    Invalidated,
    /// There may be one on flash: nothing has been done. See [`Burst::fetch`](crate::Burst::fetch).
    OnFlash(FlashPlace),
}

/// Which existing items a store operation replaces, extends or respects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Stores whether or not the key exists.
    Set,
    /// Stores only if the key does not exist. Otherwise it counts as an access to the existing
    /// item.
    Add,
    /// Stores only if the key exists.
    Replace,
    /// Stores only if the item's CAS is [`Put::compare`].
    Cas,
    /// Puts the value behind the existing one, whose client flags and expiry stay.
    Append,
    /// Puts the value before the existing one, whose client flags and expiry stay.
    Prepend,
    /// As [`Mode::Append`]; if the key does not exist, as [`Mode::Set`].
    AppendOrSet,
    /// As [`Mode::Prepend`]; if the key does not exist, as [`Mode::Set`].
    PrependOrSet,
}

impl Mode {
    /// Whether what is stored, or whether, depends on more of the existing item than that it exists.
    pub(crate) fn depends_on_the_old(self) -> bool {
        !matches!(self, Mode::Set | Mode::Add | Mode::Replace)
    }
}

/// A store operation without its key and value.
#[derive(Clone, Copy, Debug)]
pub struct Put {
    /// What becomes of an existing item.
    pub mode: Mode,
    /// The CAS that the existing item must have; 0 if none was given. With [`Mode::Cas`] a 0
    /// matches no item. Append and prepend observe it too; the other modes ignore it.
    pub compare: u64,
    /// `ms I`: with [`Mode::Cas`], a `compare` below the item's CAS also stores. It marks the item
    /// stale, and keeps its expiry and win token.
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
    /// The tags of the new item. Append and prepend keep those of the existing item.
    pub tags: Tags,
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
            tags: NO_TAGS,
        }
    }
}

/// The result of a store operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stored {
    /// The item has been stored.
    Stored {
        /// The new item's CAS, or 0 if [`Put::return_cas`] did not ask for it.
        cas: u64,
        /// Bytes of the whole value: after append or prepend, more than were sent.
        value_len: usize,
        /// [`Mode::Cas`] stored over a newer item (`ms I`).
        over_newer: bool,
    },
    /// The mode's condition does not hold: add of an existing key, replace of a missing one.
    NotStored,
    /// The item has another CAS.
    Exists,
    /// [`Mode::Cas`] on a key that does not exist.
    NotFound,
    /// The existing item may be on flash: nothing has been done. See [`Burst::fetch`](crate::Burst::fetch).
    OnFlash(FlashPlace),
    /// Nothing happened; see [`Refused`].
    Refused(Refused),
}

/// Why an operation got no memory. Nothing has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// No segment is free at this moment; the cleaner frees one within a few bursts.
    #[error("no free segment at the moment")]
    Wait,
    /// The item would be larger than the store allows.
    #[error("object too large")]
    TooLarge,
    /// Evictions are off and memory is full, or unfinished uploads have all the memory that they
    /// may have.
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

/// The result of a delete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deleted {
    /// Deleted, cleared or marked.
    Done,
    /// The item has another CAS.
    Exists,
    /// There is no such item.
    NotFound(Miss),
    /// A cleared or marked item is written anew, and there was no memory for it.
    Refused(Refused),
}

/// incr, decr and `ma`.
#[derive(Clone, Copy, Debug)]
pub struct Arithmetic {
    /// How much to add or subtract.
    pub delta: u64,
    /// Subtracts and stops at 0, instead of adding modulo 2^64.
    pub decrement: bool,
    /// The CAS that the item must have; 0 if none was given.
    pub compare: u64,
    /// `ma E`: the CAS that the item gets.
    pub cas: Option<u64>,
    /// The caller hands the new CAS to a client (`ma c`).
    pub return_cas: bool,
    /// `ma N J`: value and expiry of the item that is made if there is none.
    pub vivify: Option<(u64, Expiry)>,
    /// The tags of an item made so.
    pub tags: Tags,
    /// `ma T`: the item's new expiry.
    pub touch: Option<Expiry>,
}

/// The result of arithmetic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArithmeticResult {
    /// The new number.
    Value {
        /// The new number.
        number: u64,
        /// The item's CAS if it was asked for, otherwise 0.
        cas: u64,
        /// The item's expiry before [`Arithmetic::touch`].
        expiry_before: Expiry,
        /// The item was made by [`Arithmetic::vivify`].
        created: bool,
    },
    /// The value is not a decimal number below 2^64.
    NotNumeric,
    /// The item has another CAS.
    Exists,
    /// There is no such item.
    NotFound(Miss),
    /// There was no memory for the new item.
    Refused(Refused),
}

/// `mg` with flags that do more than read.
#[derive(Clone, Copy, Debug)]
pub struct MetaGet {
    /// Bump and CAS, as for a plain read.
    pub access: Access,
    /// `mg N`: on a miss, makes an empty item with this expiry. Whoever makes it wins.
    pub vivify: Option<Expiry>,
    /// `mg E`: the CAS of an item that `vivify` makes.
    pub vivify_cas: Option<u64>,
    /// The tags of an item that `vivify` makes.
    pub tags: Tags,
    /// `mg R`: wins if the item expires before this second and nobody has won yet.
    pub recache: Option<Expiry>,
    /// `mg T`: the item's new expiry.
    pub touch: Option<Expiry>,
    /// `T` comes before `R` in the request, so `recache` considers the new expiry.
    pub touch_first: bool,
}

/// What `mg` found or made.
#[derive(Clone, Copy)]
pub struct MetaHit<'b> {
    /// The item as it is after the request.
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

/// Why `mg` returns no item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetaMiss {
    /// There is no such item, and none was to be made.
    Miss(Miss),
    /// There was no memory to make one.
    Refused(Refused),
    /// There is one, but there was no memory to write it anew with the expiry of
    /// [`MetaGet::touch`], or to mark it stale because a tag of its was made so.
    Untouched(Refused),
}

/// Why touch returns no item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Untouched {
    /// There is no such item.
    Miss(Miss),
    /// There is one, but there was no memory to write it anew with its first expiry.
    Refused(Refused),
}
