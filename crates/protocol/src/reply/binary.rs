//! Binary answers.

use super::{Cursor, Full, Reply};
use crate::binary::{BinaryRequestId, HEADER_LEN, RESPONSE_MAGIC, Status};

/// A binary answer other than an error.
#[derive(Clone, Copy, Debug, Default)]
pub struct BinaryAnswer<'a> {
    /// The item's CAS, or 0 if the answer has none.
    pub cas: u64,
    /// The item's client flags, if the answer is about an item.
    pub client_flags: Option<u32>,
    /// The key, if the request asked for it.
    pub key: &'a [u8],
    /// Bytes of the value, which follows the answer.
    pub value_len: usize,
}

impl Reply<'_> {
    /// Appends an answer up to its value, whose bytes must follow.
    ///
    /// # Errors
    /// [`Full`](crate::reply::Full) if the reply does not fit; nothing of it has been written.
    #[inline]
    pub fn binary(
        &mut self,
        asked: BinaryRequestId,
        answer: &BinaryAnswer<'_>,
    ) -> Result<(), Full> {
        self.write(|out| {
            out.header(asked, 0, answer);
            if let Some(flags) = answer.client_flags {
                out.put(&flags.to_be_bytes());
            }
            out.put_short(answer.key);
        })
    }

    /// Appends an error and its text.
    ///
    /// # Errors
    /// [`Full`](crate::reply::Full) if the reply does not fit; nothing of it has been written.
    pub fn binary_error(
        &mut self,
        asked: BinaryRequestId,
        status: Status,
        text: &[u8],
    ) -> Result<(), Full> {
        let answer = BinaryAnswer {
            value_len: text.len(),
            ..BinaryAnswer::default()
        };
        self.write(|out| {
            out.header(asked, status as u16, &answer);
            out.put(text);
        })
    }

    /// Appends a miss; the answer repeats the key.
    ///
    /// # Errors
    /// [`Full`](crate::reply::Full) if the reply does not fit; nothing of it has been written.
    pub fn binary_miss(&mut self, asked: BinaryRequestId, key: &[u8]) -> Result<(), Full> {
        let answer = BinaryAnswer {
            key,
            ..BinaryAnswer::default()
        };
        self.write(|out| {
            out.header(asked, Status::KeyNotFound as u16, &answer);
            out.put(key);
        })
    }

    /// Appends one statistic; one without name and value ends the list.
    ///
    /// # Errors
    /// [`Full`](crate::reply::Full) if the reply does not fit; nothing of it has been written.
    pub fn binary_stat(
        &mut self,
        asked: BinaryRequestId,
        name: &[u8],
        value: &[u8],
    ) -> Result<(), Full> {
        let answer = BinaryAnswer {
            key: name,
            value_len: value.len(),
            ..BinaryAnswer::default()
        };
        self.write(|out| {
            out.header(asked, 0, &answer);
            out.put(name);
            out.put(value);
        })
    }
}

impl Cursor<'_> {
    #[inline]
    fn header(&mut self, asked: BinaryRequestId, status: u16, answer: &BinaryAnswer<'_>) {
        let extras_len: u8 = if answer.client_flags.is_some() { 4 } else { 0 };
        let body_len = usize::from(extras_len) + answer.key.len() + answer.value_len;
        #[expect(
            clippy::cast_possible_truncation,
            reason = "keys have at most 250 bytes, values 1 GiB"
        )]
        let (key_len, body_len) = (answer.key.len() as u16, body_len as u32);
        let mut header = [0; HEADER_LEN as usize];
        header[..2].copy_from_slice(&[RESPONSE_MAGIC, asked.opcode]);
        header[2..4].copy_from_slice(&key_len.to_be_bytes());
        header[4] = extras_len;
        header[6..8].copy_from_slice(&status.to_be_bytes());
        header[8..12].copy_from_slice(&body_len.to_be_bytes());
        header[12..16].copy_from_slice(&asked.opaque.to_be_bytes());
        header[16..].copy_from_slice(&answer.cas.to_be_bytes());
        self.put(&header);
    }
}
