//! Meta commands with their flags.

use std::borrow::Cow;

use crate::expiry::Expiry;
use crate::wire::error::RequestError;

/// The longest argument of a flag, in bytes.
const ARGUMENT_LEN_MAX: usize = 250;

/// All flags of a request, in bytes: a request line stays well below the 2048 bytes of a server.
const FLAGS_LEN_MAX: usize = 1024;

/// Which meta command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetaVerb {
    /// `mg`
    Get,
    /// `ms`
    Set,
    /// `md`
    Delete,
    /// `ma`
    Arithmetic,
}

/// A meta command: its verb and its flags, in the order added.
///
/// Flags with a name have a method. [`Meta::flag`] and [`Meta::flag_with`] send any other one, so that a
/// server's own flags need no change here. The client sets `b` (base64 key), `q` (no answer) and the
/// value's length itself.
///
/// ```
/// use coua_client::{Expiry, Meta};
/// use std::time::Duration;
///
/// // Serve stale while one client recomputes: a miss is filled with a placeholder for 30 seconds, and
/// // the client that is told `won` recomputes the value.
/// let _lease = Meta::get().value().client_flags().cas().vivify(Expiry::after(Duration::from_secs(30)));
/// // Mark an item stale instead of deleting it.
/// let _stale = Meta::delete().invalidate().set_expiry(Expiry::after(Duration::from_secs(60)));
/// ```
#[derive(Clone, Debug)]
pub struct Meta<'a> {
    pub(crate) verb: MetaVerb,
    /// ` f v T30`: each with a space before it.
    pub(crate) flags: Vec<u8>,
    /// What `ms` stores.
    pub(crate) value: Option<Cow<'a, [u8]>>,
    /// The first flag that cannot be sent.
    error: Option<RequestError>,
    changes: bool,
}

impl<'a> Meta<'a> {
    /// `mg`: reads an item.
    #[must_use]
    pub fn get() -> Self {
        Self::of(MetaVerb::Get, None)
    }

    /// `ms`: stores a value.
    #[must_use]
    pub fn set(value: &'a [u8]) -> Self {
        Self::of(MetaVerb::Set, Some(Cow::Borrowed(value)))
    }

    /// `md`: deletes an item.
    #[must_use]
    pub fn delete() -> Self {
        Self::of(MetaVerb::Delete, None)
    }

    /// `ma`: adds to or subtracts from a number.
    #[must_use]
    pub fn arithmetic() -> Self {
        Self::of(MetaVerb::Arithmetic, None)
    }

    fn of(verb: MetaVerb, value: Option<Cow<'a, [u8]>>) -> Self {
        Meta {
            verb,
            flags: Vec::new(),
            value,
            error: None,
            changes: verb != MetaVerb::Get,
        }
    }

    /// `v`: answer with the value.
    #[must_use]
    pub fn value(self) -> Self {
        self.flag(b'v')
    }

    /// `f`: answer with the client flags.
    #[must_use]
    pub fn client_flags(self) -> Self {
        self.flag(b'f')
    }

    /// `c`: answer with the CAS.
    #[must_use]
    pub fn cas(self) -> Self {
        self.flag(b'c')
    }

    /// `t`: answer with the seconds until the item expires.
    #[must_use]
    pub fn ttl(self) -> Self {
        self.flag(b't')
    }

    /// `s`: answer with the length of the value.
    #[must_use]
    pub fn size(self) -> Self {
        self.flag(b's')
    }

    /// `h`: answer whether the item was read before.
    #[must_use]
    pub fn hit_before(self) -> Self {
        self.flag(b'h')
    }

    /// `l`: answer with the seconds since the item was last read.
    #[must_use]
    pub fn last_access(self) -> Self {
        self.flag(b'l')
    }

    /// `k`: answer with the key.
    #[must_use]
    pub fn key(self) -> Self {
        self.flag(b'k')
    }

    /// `O`: answer with these bytes: up to 32, without blanks.
    #[must_use]
    pub fn opaque(self, opaque: &[u8]) -> Self {
        self.flag_with(b'O', opaque)
    }

    /// `T`: change when the item expires.
    #[must_use]
    pub fn set_expiry(self, expiry: Expiry) -> Self {
        self.number(b'T', expiry.wire())
    }

    /// `F`: store these client flags.
    #[must_use]
    pub fn set_client_flags(self, client_flags: u32) -> Self {
        self.number(b'F', i64::from(client_flags))
    }

    /// `C`: only if the item has this CAS.
    #[must_use]
    pub fn compare_cas(self, cas: u64) -> Self {
        self.flag_with(b'C', cas.to_string().as_bytes())
    }

    /// `E`: the CAS that the item gets.
    #[must_use]
    pub fn set_cas(self, cas: u64) -> Self {
        self.flag_with(b'E', cas.to_string().as_bytes())
    }

    /// `I`: `md` marks the item stale, `ms` stores in place of a stale item with a higher CAS.
    #[must_use]
    pub fn invalidate(self) -> Self {
        self.flag(b'I')
    }

    /// `x`: `md` removes the value and the client flags and keeps the item.
    #[must_use]
    pub fn clear_value(self) -> Self {
        self.flag(b'x')
    }

    /// `N`: a missing item is made, and expires then. The answer says `won` to one client.
    #[must_use]
    pub fn vivify(self, expiry: Expiry) -> Self {
        self.number(b'N', expiry.wire())
    }

    /// `R`: when the item expires in fewer seconds than this, the answer says `won` to one client.
    #[must_use]
    pub fn recache_below(self, seconds: u32) -> Self {
        self.number(b'R', i64::from(seconds))
    }

    /// `M`: the mode of `ms` (`E` add, `A` append, `P` prepend, `R` replace, `S` set) or of `ma` (`I`,
    /// `D`).
    #[must_use]
    pub fn mode(self, mode: u8) -> Self {
        self.flag_with(b'M', &[mode])
    }

    /// `D`: by how much `ma` changes the number.
    #[must_use]
    pub fn delta(self, delta: u64) -> Self {
        self.flag_with(b'D', delta.to_string().as_bytes())
    }

    /// `J`: the number that `ma` stores where there is none, together with [`Meta::vivify`].
    #[must_use]
    pub fn initial(self, number: u64) -> Self {
        self.flag_with(b'J', number.to_string().as_bytes())
    }

    /// Any flag without an argument.
    #[must_use]
    pub fn flag(self, letter: u8) -> Self {
        self.flag_with(letter, b"")
    }

    /// Any flag with an argument.
    #[must_use]
    pub fn flag_with(mut self, letter: u8, argument: &[u8]) -> Self {
        let is_own = matches!(letter, b'b' | b'q');
        let fits = argument.len() <= ARGUMENT_LEN_MAX
            && self.flags.len() + 2 + argument.len() <= FLAGS_LEN_MAX
            && argument.iter().all(|byte| *byte > b' ' && *byte != 0x7f);
        if !letter.is_ascii_alphabetic() || is_own {
            self.error.get_or_insert(RequestError::Flag(letter));
        } else if !fits {
            self.error.get_or_insert(RequestError::FlagArgument(letter));
        } else {
            self.flags.extend_from_slice(&[b' ', letter]);
            self.flags.extend_from_slice(argument);
            // What only asks for something is in lower case; `x` and unknown letters may do anything.
            self.changes |= !matches!(
                letter,
                b'v' | b'f' | b'c' | b't' | b's' | b'h' | b'l' | b'k' | b'O'
            );
        }
        self
    }

    fn number(self, letter: u8, number: i64) -> Self {
        self.flag_with(letter, number.to_string().as_bytes())
    }

    pub(crate) fn check(&self) -> Result<(), RequestError> {
        self.error.map_or(Ok(()), Err)
    }

    pub(crate) fn reads_only(&self) -> bool {
        !self.changes
    }

    pub(crate) fn into_owned(self) -> Meta<'static> {
        Meta {
            verb: self.verb,
            flags: self.flags,
            value: self.value.map(|value| Cow::Owned(value.into_owned())),
            error: self.error,
            changes: self.changes,
        }
    }
}
