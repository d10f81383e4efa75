//! The languages: requests written, answers read.
//!
//! Answers are read strictly, by code of this crate's own: a mistake in the server's crates must not
//! hide itself here.

mod binary;
mod text;

use std::collections::VecDeque;

use crate::request::{Answer, Form, SentRequest};

/// An answer among what was received.
pub(crate) struct Read {
    /// Which of the waiting requests it answers, by position. Those before it were silent.
    pub(crate) to: usize,
    pub(crate) answer: Answer,
    /// Its bytes.
    pub(crate) len: usize,
}

/// The bytes of a request. `names` are the keys.
pub(crate) fn write(asked: &SentRequest, names: &[Vec<u8>]) -> Vec<u8> {
    match asked.form {
        Form::Classic => text::classic(asked, names),
        Form::Meta => text::meta(asked, names),
        Form::Binary => binary::write(asked, names),
    }
}

/// Reads the first answer of `bytes`; `None` where it is not whole.
///
/// # Errors
/// Where it is no answer, or no waiting request asked for it.
pub(crate) fn read(
    bytes: &[u8],
    waiting: &VecDeque<SentRequest>,
    is_binary: bool,
) -> Result<Option<Read>, String> {
    let read = match is_binary {
        true => binary::read(bytes, waiting)?,
        false => text::read(bytes, waiting)?,
    };
    if let Some(read) = &read
        && let Some(skipped) = waiting.iter().take(read.to).find(|asked| !asked.quiet)
    {
        return Err(format!(
            "{} (opaque {}) was left without an answer: the next one is {:?}",
            skipped.request.name(),
            skipped.opaque,
            read.answer
        ));
    }
    Ok(read)
}
