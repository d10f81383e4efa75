//! Answers to one request: their pieces, and what they come to.

use coua_protocol::response::Answer;

use crate::wire::encode::Dialect;
use crate::wire::error::ProtocolError;
use crate::wire::limits::Limits;
use crate::wire::meta::MetaVerb;
use crate::wire::reply::{ItemReply, Refusal, Reply, ReplyFlags, Status, number};
use crate::wire::request::{Request, Verb};

/// What a value may take at first, whatever length the server announces. It grows as bytes come.
pub(super) const VALUE_CAPACITY_MAX: usize = 1 << 20;

/// Which request an answer belongs to: the number of requests that the conversation took before it.
pub type Ticket = u64;

/// A request that waits for its answer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Expected {
    pub(super) ticket: Ticket,
    pub(super) shape: Shape,
    pub(super) reads_only: bool,
    pub(super) has_body: bool,
    /// How many bytes of the stream end with this request.
    pub(super) ends_at: u64,
}

/// What an answer may look like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    /// One value at most, then `END`.
    ClassicGet,
    /// Hits with their keys, then `END`. The requests have the tickets before this one.
    MultiGet {
        count: u32,
    },
    ClassicStore,
    ClassicDelete,
    ClassicTouch,
    ClassicNumber,
    MetaGet,
    MetaStore,
    MetaDelete,
    MetaArithmetic,
    /// Hits with their index, in rising order, then `MN`. The requests have the tickets before this one.
    Quiet {
        count: u32,
        next: u32,
    },
    Ok,
    Stats,
    Version,
    Noop,
    /// A list of servers at most, then `END`.
    Cluster,
}

/// An answer that has come in part.
#[derive(Debug, Default)]
pub(super) enum Partial {
    #[default]
    None,
    /// The lines of a list so far, and their bytes.
    List(Vec<(String, String)>, usize),
    /// A value whose bytes are coming.
    Value {
        flags: ReplyFlags,
        value: Vec<u8>,
        /// Which key of a multi-get it belongs to.
        index: u32,
    },
    /// Classic: the value is whole, `END` is awaited.
    Hit(ItemReply),
}

/// A piece of an answer that is whole: whose it is, what it says, and whether the request ends with it.
pub(super) type Whole = (Ticket, Reply, bool);

/// The keys of a multi-get in classic text, to find those of its hits among them.
#[derive(Debug)]
pub(super) struct MultiKeys {
    /// The keys with a space between them.
    keys: Box<[u8]>,
    /// Where the key behind the last hit begins, and its index.
    at: usize,
    next: u32,
}

impl MultiKeys {
    pub(super) fn new(keys: Box<[u8]>) -> MultiKeys {
        MultiKeys {
            keys,
            at: 0,
            next: 0,
        }
    }

    /// The index of a hit's key. Servers answer in the order of the request; a proxy before several of them
    /// may not.
    #[inline]
    pub(super) fn find(&mut self, key: &[u8]) -> Option<u32> {
        let behind = &self.keys[self.at..];
        // Nearly always it is the next one.
        if behind.starts_with(key) && matches!(behind.get(key.len()), None | Some(b' ')) {
            self.at = (self.at + key.len() + 1).min(self.keys.len());
            self.next += 1;
            return Some(self.next - 1);
        }
        self.find_further(key)
    }

    fn find_further(&mut self, key: &[u8]) -> Option<u32> {
        let (before, behind) = self.keys.split_at(self.at);
        let mut at = self.at;
        for (index, own) in (self.next..).zip(behind.split(|&byte| byte == b' ')) {
            at += own.len() + 1;
            if own == key {
                self.at = at.min(self.keys.len());
                self.next = index + 1;
                return Some(index);
            }
        }
        let earlier = (0..self.next).zip(before.split(|&byte| byte == b' '));
        earlier
            .filter(|(_, own)| *own == key)
            .map(|(index, _)| index)
            .next()
    }
}

impl Shape {
    pub(super) fn of(request: &Request<'_>, dialect: Dialect) -> Shape {
        let is_meta = dialect == Dialect::Meta;
        match &request.verb {
            Verb::Get { .. } if is_meta => Shape::MetaGet,
            Verb::Touch(_) if is_meta => Shape::MetaGet,
            Verb::Store(_) if is_meta => Shape::MetaStore,
            Verb::Delete if is_meta => Shape::MetaDelete,
            Verb::Arithmetic(_) if is_meta => Shape::MetaArithmetic,
            Verb::Get { .. } => Shape::ClassicGet,
            Verb::Touch(_) => Shape::ClassicTouch,
            Verb::Store(_) => Shape::ClassicStore,
            Verb::Delete => Shape::ClassicDelete,
            Verb::Arithmetic(_) => Shape::ClassicNumber,
            Verb::Meta(meta) => match meta.verb {
                MetaVerb::Get => Shape::MetaGet,
                MetaVerb::Set => Shape::MetaStore,
                MetaVerb::Delete => Shape::MetaDelete,
                MetaVerb::Arithmetic => Shape::MetaArithmetic,
            },
            Verb::FlushAll { .. } => Shape::Ok,
            Verb::Stats(_) => Shape::Stats,
            Verb::Version => Shape::Version,
            Verb::Noop => Shape::Noop,
            Verb::Cluster => Shape::Cluster,
        }
    }

    /// What a line without a value says of an item, or `None` if it answers something else.
    fn status(self, answer: Answer) -> Option<Status> {
        use Shape::{
            ClassicDelete, ClassicGet, ClassicNumber, ClassicStore, ClassicTouch, MetaArithmetic,
            MetaDelete, MetaGet, MetaStore,
        };
        match (self, answer) {
            (ClassicStore, Answer::Stored)
            | (ClassicDelete, Answer::Deleted)
            | (ClassicTouch, Answer::Touched)
            | (ClassicNumber, Answer::Number(_))
            | (Shape::MultiGet { .. }, Answer::End)
            | (MetaGet | MetaStore | MetaDelete | MetaArithmetic, Answer::MetaDone)
            | (Shape::Quiet { .. } | Shape::Noop, Answer::MetaNoop)
            | (Shape::Ok, Answer::Ok) => Some(Status::Done),
            (ClassicGet | Shape::Cluster, Answer::End)
            | (ClassicStore | ClassicDelete | ClassicTouch | ClassicNumber, Answer::NotFound)
            | (MetaGet, Answer::MetaMiss)
            | (MetaGet | MetaStore | MetaDelete | MetaArithmetic, Answer::MetaNotFound) => {
                Some(Status::Missing)
            }
            (ClassicStore, Answer::NotStored)
            | (MetaStore | MetaDelete | MetaArithmetic, Answer::MetaNotStored) => {
                Some(Status::NotStored)
            }
            (ClassicStore, Answer::Exists)
            | (MetaStore | MetaDelete | MetaArithmetic, Answer::MetaExists) => Some(Status::Exists),
            _ => None,
        }
    }
}

impl Partial {
    pub(super) fn value(
        flags: ReplyFlags,
        len: u32,
        index: u32,
        limits: &Limits,
    ) -> Result<Partial, ProtocolError> {
        let len = checked(len, limits)?;
        let value = Vec::with_capacity(len.min(VALUE_CAPACITY_MAX));
        Ok(Partial::Value {
            flags,
            value,
            index,
        })
    }
}

/// The length of a value, if it may be so long.
#[inline]
pub(super) fn checked(len: u32, limits: &Limits) -> Result<usize, ProtocolError> {
    let (len, max) = (len as usize, limits.value_len_max);
    match len <= max {
        true => Ok(len),
        false => Err(ProtocolError::TooLarge { len, max }),
    }
}

/// What a line says to the oldest request.
pub(super) fn line_part(
    expected: &Expected,
    partial: &mut Partial,
    refusal: &mut Option<Refusal>,
    answer: Answer,
    line: &[u8],
    limits: &Limits,
) -> Result<Option<Whole>, ProtocolError> {
    let (ticket, shape) = (expected.ticket, expected.shape);
    let whole = |reply| Ok(Some((ticket, reply, true)));
    if let Some(refused) = Refusal::of(answer, line) {
        *partial = Partial::None;
        if let Shape::Quiet { .. } = shape {
            refusal.get_or_insert(refused);
            return Ok(None);
        }
        return whole(Reply::Refused(refused));
    }
    match (shape, answer) {
        (Shape::Stats, Answer::End | Answer::Reset | Answer::Ok) => {
            let lines = match std::mem::take(partial) {
                Partial::List(lines, _) => lines,
                _ => Vec::new(),
            };
            return whole(Reply::Stats(lines));
        }
        (Shape::Stats, Answer::Listed | Answer::Other) => {
            list_line(partial, line, limits)?;
            return Ok(None);
        }
        (Shape::Version, Answer::Version) => {
            let version = String::from_utf8_lossy(rest_of(line)).into_owned();
            return whole(Reply::Version(version));
        }
        (Shape::Quiet { .. }, Answer::MetaNoop) => {
            if let Some(refused) = refusal.take() {
                return whole(Reply::Refused(refused));
            }
        }
        _ => {}
    }
    let status = shape.status(answer).ok_or(ProtocolError::Misplaced)?;
    let item = match (answer, std::mem::take(partial)) {
        (Answer::End, Partial::Hit(item)) => item,
        (Answer::Number(number), _) => ItemReply {
            value: Some(number.to_string().into_bytes()),
            ..ItemReply::default()
        },
        (
            Answer::MetaDone | Answer::MetaNotStored | Answer::MetaExists | Answer::MetaNotFound,
            _,
        ) => {
            let flags = line.get(2..).unwrap_or_default();
            let flags = ReplyFlags::parse(flags).ok_or(ProtocolError::Malformed)?;
            ItemReply {
                status,
                value: None,
                flags,
            }
        }
        _ => ItemReply {
            status,
            ..ItemReply::default()
        },
    };
    whole(Reply::Item(item))
}

/// Takes `STAT name value`, or another line of a list.
fn list_line(partial: &mut Partial, line: &[u8], limits: &Limits) -> Result<(), ProtocolError> {
    if matches!(partial, Partial::None) {
        *partial = Partial::List(Vec::new(), 0);
    }
    let Partial::List(lines, len) = partial else {
        return Err(ProtocolError::Misplaced);
    };
    *len += line.len();
    let max = limits.value_len_max;
    if *len > max {
        return Err(ProtocolError::TooLarge { len: *len, max });
    }
    let text = String::from_utf8_lossy(line);
    let text = text.strip_prefix("STAT ").unwrap_or(&text);
    let (name, value) = text.split_once(' ').unwrap_or((text, ""));
    lines.push((name.to_owned(), value.to_owned()));
    Ok(())
}

/// What the end of a value that came in pieces says to it.
pub(super) fn value_end(
    expected: &mut Expected,
    partial: &mut Partial,
) -> Result<Option<Whole>, ProtocolError> {
    let Partial::Value {
        flags,
        value,
        index,
    } = std::mem::take(partial)
    else {
        return Err(ProtocolError::Misplaced);
    };
    whole_value(expected, partial, flags, value, index)
}

/// What a value says to the oldest request.
#[inline]
pub(super) fn whole_value(
    expected: &mut Expected,
    partial: &mut Partial,
    mut flags: ReplyFlags,
    value: Vec<u8>,
    index: u32,
) -> Result<Option<Whole>, ProtocolError> {
    let (ticket, is_last) = match &mut expected.shape {
        Shape::MultiGet { count } => {
            let first = expected.ticket - u64::from(*count);
            (first + u64::from(index), false)
        }
        Shape::Quiet { count, next } => {
            let details = flags.details.take();
            let opaque = details.and_then(|details| details.opaque);
            let index: Option<u32> = opaque.and_then(|opaque| number(&opaque));
            let index = index.filter(|index| (*next..*count).contains(index));
            let index = index.ok_or(ProtocolError::Misplaced)?;
            *next = index + 1;
            let first = expected.ticket - u64::from(*count);
            (first + u64::from(index), false)
        }
        _ => (expected.ticket, true),
    };
    let item = ItemReply {
        status: Status::Done,
        value: Some(value),
        flags,
    };
    if matches!(expected.shape, Shape::ClassicGet | Shape::Cluster) {
        *partial = Partial::Hit(item);
        return Ok(None);
    }
    Ok(Some((ticket, Reply::Item(item), is_last)))
}

impl Refusal {
    /// An error line, or `None` if it is another one.
    fn of(answer: Answer, line: &[u8]) -> Option<Refusal> {
        let refusal = match answer {
            Answer::ServerError => Refusal::Server,
            Answer::ClientError => Refusal::Client,
            Answer::Error => Refusal::Unknown,
            _ => return None,
        };
        Some(refusal(String::from_utf8_lossy(rest_of(line)).into_owned()))
    }
}

/// What stands behind the first word.
fn rest_of(line: &[u8]) -> &[u8] {
    let at = line.iter().position(|&byte| byte == b' ');
    at.map_or(&[], |at| &line[at + 1..])
}
