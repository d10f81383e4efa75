//! The fast path of a parser that stands between two requests.

use super::{Dialect, Parser};
use crate::limits::Limits;
use crate::request::fast::PlainSet;
use crate::request::step::GetKey;
use crate::request::{fast, meta};

/// Shows that a parser of text stands between two requests. The requests that it finds leave the parser where it
/// is, so of many such requests one after another only the first asks where that is.
#[derive(Clone, Copy, Debug)]
pub struct Front(());

impl Parser {
    /// The fast path, where the parser stands between two requests of text.
    #[inline(always)]
    #[must_use]
    pub fn front(&self) -> Option<Front> {
        (self.is_between_requests() && self.dialect == Dialect::Text).then_some(Front(()))
    }
}

impl Front {
    /// What [`Parser::next`] would find where the fast path sees that the next request is a `get` or `gets`
    /// of one key. Most such requests are found so, but not all.
    #[inline(always)]
    #[must_use]
    pub fn next_get(self, input: &[u8]) -> Option<GetKey> {
        match input.first()? {
            b'g' => fast::get(input),
            _ => None,
        }
    }

    /// What [`Parser::next`] would find and pass over, where the fast path sees that it is a plain set that
    /// is there as a whole. Most such sets are found so, but not all. [`Limits::gather_max`] does not
    /// matter: what is there need not be waited for.
    #[inline(always)]
    #[must_use]
    pub fn next_set(self, input: &[u8], limits: &Limits) -> Option<PlainSet> {
        match input.first()? {
            b's' => classic_set(input, limits),
            b'm' => meta_set(input, limits),
            _ => None,
        }
    }
}

#[inline(always)]
fn classic_set(input: &[u8], limits: &Limits) -> Option<PlainSet> {
    let (line_len, store) = fast::set(input)?;
    let (key_len, flags) = (store.key.len as usize, store.client_flags);
    let fits = limits.item_fits(key_len, flags, store.value_len);
    fits.then(|| fast::plain(&store, line_len, input))?
}

#[inline(never)]
fn meta_set(input: &[u8], limits: &Limits) -> Option<PlainSet> {
    let (line_len, store) = meta::fast_set(input, limits)?;
    fast::plain(&store, line_len, input)
}
