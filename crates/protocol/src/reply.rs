//! Replies: from values to bytes.
//!
//! A [`Reply`] appends to a bounded piece of memory. Each call writes all of its
//! line (or lines), or it writes nothing and says how much room it needs.

mod binary;
mod digits;
mod line;
mod meta;

pub use binary::BinaryAnswer;
pub use line::Line;
pub use meta::{MetaDebug, MetaFacts, MetaHead, MetaKey, TagNumbers};

use core::mem;

use coua_cpu::copy_short;

use crate::error_line::ErrorLine;
use digits::{Digits, digit, pair};

/// Appends replies to the front of a bounded buffer.
#[derive(Debug)]
pub struct Reply<'a> {
    room: &'a mut [u8],
    len: usize,
}

/// The reply does not fit; nothing of it has been written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full {
    /// How many free bytes the reply needs.
    pub needed: usize,
}

impl<'a> Reply<'a> {
    /// An empty reply that may fill `room`.
    #[must_use]
    pub fn new(room: &'a mut [u8]) -> Self {
        Reply { room, len: 0 }
    }

    /// How many bytes have been written.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether nothing has been written.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// How many bytes can still be written.
    #[must_use]
    pub fn free(&self) -> usize {
        self.room.len() - self.len
    }

    /// What has been written.
    #[must_use]
    pub fn written(&self) -> &[u8] {
        &self.room[..self.len]
    }

    /// Appends bytes as they are.
    ///
    /// # Errors
    /// [`Full`] if the reply does not fit; nothing of it has been written.
    #[inline]
    pub fn bytes(&mut self, bytes: &[u8]) -> Result<(), Full> {
        self.write(|out| out.put(bytes))
    }

    /// Appends a line that never varies.
    ///
    /// # Errors
    /// [`Full`] if the reply does not fit; nothing of it has been written.
    #[inline]
    pub fn line(&mut self, line: Line) -> Result<(), Full> {
        self.bytes(line.as_bytes())
    }

    /// Appends an error line.
    ///
    /// # Errors
    /// [`Full`] if the reply does not fit; nothing of it has been written.
    #[inline]
    pub fn error(&mut self, error: ErrorLine) -> Result<(), Full> {
        self.bytes(error.as_bytes())
    }

    /// Appends the result of `incr` or `decr`.
    ///
    /// # Errors
    /// [`Full`] if the reply does not fit; nothing of it has been written.
    pub fn number(&mut self, number: u64) -> Result<(), Full> {
        self.write(|out| {
            out.number(number);
            out.put(b"\r\n");
        })
    }

    /// Appends one item of a `get`; with a CAS for `gets`, and with `END` if it is the last.
    ///
    /// # Errors
    /// [`Full`] if the reply does not fit; nothing of it has been written.
    #[inline]
    pub fn value(
        &mut self,
        key: &[u8],
        client_flags: u32,
        cas: Option<u64>,
        value: &[u8],
        last: bool,
    ) -> Result<(), Full> {
        self.write(|out| {
            out.value_line(key, client_flags, cas, value.len());
            out.put_short(value);
            match last {
                true => out.put(b"\r\nEND\r\n"),
                false => out.put(b"\r\n"),
            }
        })
    }

    /// Appends the line before a value of `value_len` bytes, for a value that is sent
    /// by other means; a line end must follow the value.
    ///
    /// # Errors
    /// [`Full`] if the reply does not fit; nothing of it has been written.
    pub fn value_line(
        &mut self,
        key: &[u8],
        client_flags: u32,
        cas: Option<u64>,
        value_len: usize,
    ) -> Result<(), Full> {
        self.write(|out| out.value_line(key, client_flags, cas, value_len))
    }

    /// Appends one statistic.
    ///
    /// # Errors
    /// [`Full`] if the reply does not fit; nothing of it has been written.
    pub fn stat(&mut self, name: &[u8], value: &[u8]) -> Result<(), Full> {
        self.write(|out| {
            out.put(b"STAT ");
            out.put(name);
            out.put(b" ");
            out.put(value);
            out.put(b"\r\n");
        })
    }

    /// Appends the answer to `version`.
    ///
    /// # Errors
    /// [`Full`] if the reply does not fit; nothing of it has been written.
    pub fn version(&mut self, version: &[u8]) -> Result<(), Full> {
        self.write(|out| {
            out.put(b"VERSION ");
            out.put(version);
            out.put(b"\r\n");
        })
    }

    #[inline]
    fn write(&mut self, what: impl FnOnce(&mut Cursor<'_>)) -> Result<(), Full> {
        let mut out = Cursor {
            rest: &mut self.room[self.len..],
            missing: 0,
        };
        what(&mut out);
        let (left, missing) = (out.rest.len(), out.missing);
        let free = self.free();
        if missing > 0 {
            return Err(Full {
                needed: free.saturating_add(missing),
            });
        }
        self.len += free - left;
        Ok(())
    }
}

/// Writes while there is room; after that it counts the bytes that did not fit.
struct Cursor<'a> {
    /// The room that is still free.
    rest: &'a mut [u8],
    /// Bytes for which there was no room. If there are any, nothing is free.
    missing: usize,
}

impl<'a> Cursor<'a> {
    #[inline]
    fn put(&mut self, bytes: &[u8]) {
        if let Some(to) = self.take(bytes.len()) {
            to.copy_from_slice(bytes);
        }
    }

    /// As [`Cursor::put`], for bytes that are probably few.
    #[inline(always)]
    fn put_short(&mut self, bytes: &[u8]) {
        if let Some(to) = self.take(bytes.len()) {
            copy_short(to, bytes);
        }
    }

    /// The next `len` bytes, or none if fewer are free.
    #[inline(always)]
    fn take(&mut self, len: usize) -> Option<&'a mut [u8]> {
        let rest = mem::take(&mut self.rest);
        let left = rest.len();
        let Some((taken, rest)) = rest.split_at_mut_checked(len) else {
            self.missing = self.missing.saturating_add(len - left);
            return None;
        };
        self.rest = rest;
        Some(taken)
    }

    /// Lengths of values usually have few digits. These are written without a copy of
    /// unknown length.
    #[inline]
    fn number(&mut self, number: u64) {
        match number {
            0..10 => self.put(&digit(number)),
            10..100 => self.put(&pair(number)),
            100..1000 => {
                self.put(&digit(number / 100));
                self.put(&pair(number % 100));
            }
            1000..10_000 => {
                self.put(&pair(number / 100));
                self.put(&pair(number % 100));
            }
            _ => self.long_number(number),
        }
    }

    #[inline(never)]
    fn long_number(&mut self, number: u64) {
        self.put(Digits::of(number).as_bytes());
    }

    #[inline]
    fn value_line(&mut self, key: &[u8], client_flags: u32, cas: Option<u64>, value_len: usize) {
        self.put(b"VALUE ");
        self.put_short(key);
        if client_flags == 0 {
            self.put(b" 0 ");
        } else {
            self.put(b" ");
            self.number(u64::from(client_flags));
            self.put(b" ");
        }
        self.number(value_len as u64);
        if let Some(cas) = cas {
            self.put(b" ");
            self.number(cas);
        }
        self.put(b"\r\n");
    }
}

#[cfg(test)]
mod tests;
