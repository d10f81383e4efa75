//! The languages: requests written, answers read.
//!
//! Answers are read by code of this crate's own, strictly: what the server's crates believe about
//! the language is not believed here.

mod binary;
mod text;

use std::collections::VecDeque;

use crate::request::{Answer, Asked, Form};

/// An answer among what was received.
pub(crate) struct Read {
    /// Which of the requests that wait it is to, by place; those before it were silent.
    pub(crate) to: usize,
    pub(crate) answer: Answer,
    /// Its bytes.
    pub(crate) len: usize,
}

/// The bytes of a request. `names` are the keys.
pub(crate) fn write(asked: &Asked, names: &[Vec<u8>]) -> Vec<u8> {
    match asked.form {
        Form::Classic => text::classic(asked, names),
        Form::Meta => text::meta(asked, names),
        Form::Binary => binary::write(asked, names),
    }
}

/// Reads the first answer of `bytes`; `None` where it is not whole.
///
/// # Errors
/// Where it is none, or nothing that waits asked for it.
pub(crate) fn read(
    bytes: &[u8],
    waiting: &VecDeque<Asked>,
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
