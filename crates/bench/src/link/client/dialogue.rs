//! Requests and the replies that they must get: every byte is known in advance.

use std::ops::Range;
use std::sync::Arc;

use anyhow::anyhow;

use super::requests::{Kind, Requests, append_range};
use crate::echo::canned_hit;
use crate::workload::{KeyFormat, Values};

/// The service that answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answers {
    /// A cache that has every key.
    Cache,
    /// A cache that evicts: a get may miss.
    FullCache,
    /// A service that answers each get and each set with the same bytes, whatever the key.
    Same,
    /// A service that sends back what it receives.
    Mirror,
}

/// The most keys: one bit of their number is used for something else.
pub(crate) const KEYS_MAX: u32 = Ask::IS_SET;

/// A request in flight: its kind in the highest bit, the key's number in the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(super) struct Ask(u32);

impl Ask {
    const IS_SET: u32 = 1 << 31;

    #[inline]
    fn new(kind: Kind, key: u32) -> Ask {
        match kind {
            Kind::Get => Ask(key),
            Kind::Set => Ask(key | Ask::IS_SET),
        }
    }

    #[inline]
    pub(super) fn kind(self) -> Kind {
        match self.0 & Ask::IS_SET {
            0 => Kind::Get,
            _ => Kind::Set,
        }
    }

    #[inline]
    fn key(self) -> u32 {
        self.0 & !Ask::IS_SET
    }
}

/// How much of a reply has arrived; by default nothing.
///
/// ```text
/// 31       30        29 … 0
/// is_miss  in_parts  bytes of it that were right
/// ```
///
/// A miss begins like the reply for a missing key. A reply in parts may be long: only the part that
/// has arrived is generated and compared. That is more work for a short reply, so it is decided in
/// advance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(super) struct Progress(u32);

impl Progress {
    const IS_MISS: u32 = 1 << 31;
    const IN_PARTS: u32 = 1 << 30;

    #[inline]
    fn len(self) -> usize {
        (self.0 & !(Progress::IS_MISS | Progress::IN_PARTS)) as usize
    }

    /// So many bytes further.
    fn with(self, len: usize, is_miss: bool) -> Progress {
        let len = u32::try_from(len).expect("a reply is shorter than a window");
        let miss = if is_miss { Progress::IS_MISS } else { 0 };
        Progress((self.0 + len) | miss)
    }
}

/// The result of comparing some bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// A part of a reply; the progress says how far it is.
    Part,
    /// The number of bytes up to the end of a reply, and whether it was a miss.
    Reply(usize, bool),
}

/// A source of requests that knows the replies.
#[derive(Debug)]
pub(super) struct Dialogue {
    requests: Requests,
    keys: KeyFormat,
    values: Arc<Values>,
    answers: Answers,
    /// The reply to a get, whose key and value are filled in.
    hit: Vec<u8>,
    key_at: usize,
    value_at: usize,
    /// The progress with which each reply begins.
    beginning: Progress,
    /// Room for a mirror's reply, or for a part of a long one.
    scratch: Vec<u8>,
}

/// The most bytes of a reply that arrives in a segment or two.
const SHORT: usize = 2048;

/// The reply to a get of a missing key.
const MISS: &[u8] = b"END\r\n";

/// The reply to a set.
const STORED: &[u8] = b"STORED\r\n";

/// The error for wrong bytes: it shows those around the first difference.
#[cold]
#[inline(never)]
fn mistaken(ask: Ask, expected: &[u8], came: &[u8]) -> anyhow::Error {
    let wrong = expected
        .iter()
        .zip(came)
        .position(|(one, other)| one != other);
    let from = wrong.unwrap_or(0).saturating_sub(30);
    let [expected, came] = [expected, came]
        .map(|bytes| String::from_utf8_lossy(&bytes[from..bytes.len().min(from + 60)]));
    anyhow!("{ask:?} is answered with {came:?} for {expected:?}")
}

impl Dialogue {
    /// Requests for one key each.
    pub(super) fn new(
        requests: Requests,
        keys: KeyFormat,
        values: Arc<Values>,
        answers: Answers,
    ) -> Dialogue {
        let hit = canned_hit(keys.size(), values.size(), 1);
        let value_at = hit.len() - values.size() - 2 - MISS.len();
        let longest = hit.len().max(requests.len_max());
        let in_parts = if longest > SHORT {
            Progress::IN_PARTS
        } else {
            0
        };
        Dialogue {
            requests,
            keys,
            values,
            answers,
            hit,
            key_at: b"VALUE ".len(),
            value_at,
            beginning: Progress(in_parts),
            scratch: Vec::new(),
        }
    }

    /// The progress of a reply of which nothing has arrived.
    #[inline]
    pub(super) fn beginning(&self) -> Progress {
        self.beginning
    }

    /// Bytes of the longest request.
    pub(super) fn request_len_max(&self) -> usize {
        self.requests.len_max()
    }

    /// Bytes of the longest reply.
    pub(super) fn reply_len_max(&self) -> usize {
        self.hit.len().max(STORED.len()).max(self.request_len_max())
    }

    /// The next request.
    #[inline]
    pub(super) fn draw(&mut self) -> Option<Ask> {
        self.requests.draw().map(|(kind, key)| Ask::new(kind, key))
    }

    /// Appends a request's bytes.
    #[inline]
    pub(super) fn append(&self, ask: Ask, out: &mut Vec<u8>) {
        self.requests.append(ask.kind(), ask.key(), out);
    }

    /// Bytes of a request.
    #[inline]
    pub(super) fn request_len(&self, ask: Ask) -> usize {
        self.requests.len_of(ask.kind())
    }

    /// Appends a range of a request's bytes.
    pub(super) fn append_part(&mut self, ask: Ask, range: Range<usize>, out: &mut Vec<u8>) {
        self.requests
            .append_part((ask.kind(), ask.key()), range, out);
    }

    /// Whether `bytes` are exactly the reply to a request, and if so, whether it was a miss. `None`
    /// if they are not.
    #[inline]
    pub(super) fn is_reply(&mut self, ask: Ask, bytes: &[u8]) -> Option<bool> {
        let is_miss = self.may_miss(ask) && bytes.first() == MISS.first();
        (self.expected(ask, is_miss) == bytes).then_some(is_miss)
    }

    #[inline]
    fn may_miss(&self, ask: Ask) -> bool {
        self.answers == Answers::FullCache && ask.kind() == Kind::Get
    }

    /// Compares bytes with the reply to a request, of which some may have arrived before. At the
    /// end of the reply, the progress becomes that of the next one.
    ///
    /// # Errors
    /// If the bytes are wrong.
    #[inline]
    pub(super) fn compare(
        &mut self,
        ask: Ask,
        progress: &mut Progress,
        bytes: &[u8],
    ) -> anyhow::Result<Step> {
        if *progress != Progress::default() {
            return self.compare_part(ask, progress, bytes);
        }
        let is_miss = self.may_miss(ask) && bytes.first() == MISS.first();
        let expected = self.expected(ask, is_miss);
        match bytes.starts_with(expected) {
            true => Ok(Step::Reply(expected.len(), is_miss)),
            false => self.compare_part(ask, progress, bytes),
        }
    }

    /// As [`compare`](Self::compare), but generates only the part of the reply that has arrived.
    #[inline(never)]
    fn compare_part(
        &mut self,
        ask: Ask,
        progress: &mut Progress,
        bytes: &[u8],
    ) -> anyhow::Result<Step> {
        let done = progress.len();
        let is_miss = progress.0 & Progress::IS_MISS != 0
            || self.may_miss(ask) && done == 0 && bytes.first() == MISS.first();
        let rest = self.reply_len(ask, is_miss) - done;
        let len = rest.min(bytes.len());
        self.expect_part(ask, is_miss, done..done + len);
        if self.scratch != bytes[..len] {
            return Err(mistaken(ask, &self.scratch, bytes));
        }
        if len < rest {
            *progress = progress.with(len, is_miss);
            return Ok(Step::Part);
        }
        *progress = self.beginning;
        Ok(Step::Reply(len, is_miss))
    }

    /// Bytes of a reply.
    fn reply_len(&self, ask: Ask, is_miss: bool) -> usize {
        match (ask.kind(), self.answers) {
            (_, Answers::Mirror) => self.request_len(ask),
            _ if is_miss => MISS.len(),
            (Kind::Set, _) => STORED.len(),
            (Kind::Get, _) => self.hit.len(),
        }
    }

    /// Generates a range of a reply in the scratch buffer.
    fn expect_part(&mut self, ask: Ask, is_miss: bool, range: Range<usize>) {
        let (scratch, hit) = (&mut self.scratch, &mut self.hit);
        scratch.clear();
        match (ask.kind(), self.answers) {
            (kind, Answers::Mirror) => self.requests.append_part((kind, ask.key()), range, scratch),
            _ if is_miss => append_range(&[MISS], range, scratch),
            (Kind::Set, _) => append_range(&[STORED], range, scratch),
            (Kind::Get, Answers::Same) => append_range(&[hit], range, scratch),
            (Kind::Get, _) => {
                let (key_len, value) = (self.keys.size(), self.values.of(ask.key()));
                self.keys
                    .rewrite(ask.key(), &mut hit[self.key_at..][..key_len]);
                let (head, tail) = hit.split_at(self.value_at);
                append_range(&[head, value, &tail[value.len()..]], range, scratch);
            }
        }
    }

    #[inline]
    fn expected(&mut self, ask: Ask, is_miss: bool) -> &[u8] {
        if self.answers == Answers::Mirror {
            self.scratch.clear();
            let request = &mut self.scratch;
            self.requests.append(ask.kind(), ask.key(), request);
            return request;
        }
        if is_miss {
            return MISS;
        }
        match (ask.kind(), self.answers) {
            (Kind::Set, _) => STORED,
            (Kind::Get, Answers::Same) => &self.hit,
            (Kind::Get, _) => {
                let (key_len, value) = (self.keys.size(), self.values.of(ask.key()));
                let hit = &mut self.hit;
                // Generated keys differ only in their digits.
                self.keys
                    .rewrite(ask.key(), &mut hit[self.key_at..][..key_len]);
                hit[self.value_at..][..value.len()].copy_from_slice(value);
                hit
            }
        }
    }
}
