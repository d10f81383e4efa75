//! Binary requests.

use crate::binary::{
    BODY_LEN_MAX, Binary, BinaryCommand, BinaryRequestId, HEADER_LEN, REQUEST_MAGIC, Status, opcode,
};
use crate::error_line::ErrorLine;
use crate::limits::{KEY_LEN_MAX, Limits};
use crate::login::{Attempt, LOGIN_LEN_MAX, Login, MECHANISM_LEN_MAX, SASL_MECHANISM, plain};
use crate::op::{Op, Store, StoreMode, StoreRefused, StoreReply};
use crate::request::line::Refusal;
use crate::span::Span;

/// What stands at the front of the input.
pub(crate) enum Front {
    /// So many bytes in all are needed to tell.
    More(u32),
    /// It is no binary request.
    BadMagic,
    /// A store command; `value_len` bytes follow the first `consumed`.
    Store { consumed: u32, store: Store },
    /// Any other; `rest` bytes of it that nobody looks at follow.
    Op { consumed: u32, op: Op, rest: u32 },
    /// An attempt to log in.
    Login { consumed: u32, login: Login },
    /// One that is refused and answered behind the `rest` bytes that follow, of which there are some.
    /// What the key holds is unlinked at once where `store` says so.
    Refused {
        consumed: u32,
        store: Option<StoreRefused>,
        refusal: Refusal,
        rest: u32,
    },
}

/// A request's header.
struct Header {
    asked: BinaryRequestId,
    key_len: u32,
    extras_len: u32,
    body_len: u32,
    cas: u64,
}

/// Looks at the front of the input.
pub(crate) fn front(input: &[u8], limits: &Limits) -> Front {
    let Some(header) = input.first_chunk() else {
        return Front::More(HEADER_LEN);
    };
    if header[0] != REQUEST_MAGIC {
        return Front::BadMagic;
    }
    let header = Header::read(header);
    if let Some(status) = header.misfit() {
        return header.refuse(status, true);
    }
    if limits.sasl && header.is_login() {
        return header.login(input, false);
    }
    let head_len = header.head_len();
    match input.get(HEADER_LEN as usize..head_len as usize) {
        None => Front::More(head_len),
        Some(body) => header.command(body, limits),
    }
}

/// Looks at the front of the input of a connection that has not logged in. `has_begun` says that it has
/// begun to. Anything else than that ends the connection.
pub(crate) fn front_locked(input: &[u8], has_begun: bool) -> Front {
    let Some(header) = input.first_chunk() else {
        return Front::More(HEADER_LEN);
    };
    if header[0] != REQUEST_MAGIC {
        return Front::BadMagic;
    }
    let header = Header::read(header);
    let is_bare = header.body_len == 0;
    match header.asked.opcode {
        _ if header.misfit() == Some(Status::UnknownCommand) => {
            header.refuse(Status::UnknownCommand, true)
        }
        opcode::VERSION if is_bare => header.bare(BinaryCommand::Version),
        _ if header.is_login() => header.login(input, has_begun),
        opcode::VERSION => header.refuse(Status::InvalidArguments, true),
        _ => header.refuse(Status::AuthError, true),
    }
}

impl Header {
    fn read(bytes: &[u8; HEADER_LEN as usize]) -> Header {
        let [_, opcode, k0, k1, extras_len, _, _, _, rest @ ..] = *bytes;
        let [b0, b1, b2, b3, o0, o1, o2, o3, cas @ ..] = rest;
        Header {
            asked: BinaryRequestId {
                opcode,
                opaque: u32::from_be_bytes([o0, o1, o2, o3]),
            },
            key_len: u16::from_be_bytes([k0, k1]).into(),
            extras_len: extras_len.into(),
            body_len: u32::from_be_bytes([b0, b1, b2, b3]),
            cas: u64::from_be_bytes(cas),
        }
    }

    /// Header, extras and key.
    fn head_len(&self) -> u32 {
        HEADER_LEN + self.extras_len + self.key_len
    }

    /// Bytes behind the key; the lengths are no misfit.
    fn value_len(&self) -> u32 {
        self.body_len - self.extras_len - self.key_len
    }

    /// Lengths that no command has: the connection cannot go on behind them.
    fn misfit(&self) -> Option<Status> {
        if self.key_len + self.extras_len > self.body_len {
            Some(Status::UnknownCommand)
        } else if self.body_len > BODY_LEN_MAX || self.key_len as usize > KEY_LEN_MAX {
            Some(Status::InvalidArguments)
        } else {
            None
        }
    }

    /// Refuses the request. Where the connection stays open the rest is passed over.
    fn refuse(&self, status: Status, closes: bool) -> Front {
        let rest = match closes {
            true => 0,
            false => self.value_len(),
        };
        if rest > 0 {
            let asked = self.asked;
            return Front::Refused {
                consumed: self.head_len(),
                store: None,
                refusal: Refusal::Binary { asked, status },
                rest,
            };
        }
        Front::Op {
            consumed: match closes {
                true => HEADER_LEN,
                false => self.head_len(),
            },
            op: self.op(BinaryCommand::Error { status, closes }),
            rest,
        }
    }

    /// Whether it is one of SASL's commands.
    fn is_login(&self) -> bool {
        matches!(
            self.asked.opcode,
            opcode::SASL_LIST_MECHS | opcode::SASL_AUTH | opcode::SASL_STEP
        )
    }

    /// One of SASL's commands; `has_begun` says that a message is asked for.
    fn login(&self, input: &[u8], has_begun: bool) -> Front {
        let value_len = self.body_len.saturating_sub(self.extras_len + self.key_len);
        match self.asked.opcode {
            opcode::SASL_LIST_MECHS if self.body_len == 0 => {
                return self.bare(BinaryCommand::SaslMechanisms);
            }
            opcode::SASL_AUTH | opcode::SASL_STEP
                if self.extras_len == 0
                    && (1..=MECHANISM_LEN_MAX).contains(&self.key_len)
                    && value_len <= LOGIN_LEN_MAX => {}
            _ => return self.refuse(Status::InvalidArguments, true),
        }
        let consumed = HEADER_LEN + self.body_len;
        let Some(body) = input.get(HEADER_LEN as usize..consumed as usize) else {
            return Front::More(consumed);
        };
        let (mechanism, message) = body.split_at(self.key_len as usize);
        let begins = self.asked.opcode == opcode::SASL_AUTH;
        let attempt = match begins || has_begun {
            true if mechanism != SASL_MECHANISM => Attempt::Malformed,
            true if begins && message.is_empty() => Attempt::Begin,
            true => plain(message, HEADER_LEN + self.key_len),
            false => Attempt::Malformed,
        };
        let login = Login {
            attempt,
            asked: Some(self.asked),
        };
        Front::Login { consumed, login }
    }

    /// A command that is its header alone.
    fn bare(&self, command: BinaryCommand) -> Front {
        Front::Op {
            consumed: HEADER_LEN,
            op: self.op(command),
            rest: 0,
        }
    }

    fn op(&self, command: BinaryCommand) -> Op {
        Op::Binary(Binary {
            asked: self.asked,
            command,
        })
    }

    /// `body` begins behind the header and holds extras and key.
    fn command(&self, body: &[u8], limits: &Limits) -> Front {
        use BinaryCommand as Command;
        let key = Span {
            start: HEADER_LEN + self.extras_len,
            len: self.key_len,
        };
        let (has_key, bare) = (self.key_len > 0, self.body_len == 0);
        let only_key = has_key && self.extras_len == 0 && self.value_len() == 0;
        let get = |touch, with_key, with_value| Command::Get {
            key,
            touch,
            with_key,
            with_value,
        };
        let number = |at: usize| expiry_at(body, at);
        let touches = has_key && self.extras_len == 4;
        let command = match self.asked.opcode {
            opcode::GET | opcode::GETQ if only_key => get(None, false, true),
            opcode::GETK | opcode::GETKQ if only_key => get(None, true, true),
            opcode::TOUCH if touches => get(Some(number(0)), false, false),
            opcode::GAT | opcode::GATQ if touches => get(Some(number(0)), false, true),
            opcode::GATK | opcode::GATKQ if touches => get(Some(number(0)), true, true),
            opcode::SET | opcode::SETQ => return self.set(StoreMode::Set, body, limits),
            opcode::ADD | opcode::ADDQ => return self.set(StoreMode::Add, body, limits),
            opcode::REPLACE | opcode::REPLACEQ => {
                return self.set(StoreMode::Replace, body, limits);
            }
            opcode::APPEND | opcode::APPENDQ if has_key && self.extras_len == 0 => {
                return self.store(StoreMode::Append, 0, 0, limits);
            }
            opcode::PREPEND | opcode::PREPENDQ if has_key && self.extras_len == 0 => {
                return self.store(StoreMode::Prepend, 0, 0, limits);
            }
            opcode::DELETE | opcode::DELETEQ if only_key => {
                let cas = self.cas;
                Command::Delete { key, cas }
            }
            opcode::INCREMENT | opcode::INCREMENTQ | opcode::DECREMENT | opcode::DECREMENTQ
                if has_key && self.extras_len == 20 && self.value_len() == 0 =>
            {
                self.arithmetic(key, body)
            }
            opcode::FLUSH | opcode::FLUSHQ if self.body_len == self.extras_len && bare => {
                Command::FlushAll { delay: 0 }
            }
            opcode::FLUSH | opcode::FLUSHQ
                if self.body_len == self.extras_len && self.extras_len == 4 =>
            {
                Command::FlushAll { delay: number(0) }
            }
            opcode::NOOP if bare => Command::Noop,
            opcode::VERSION if bare => Command::Version,
            opcode::QUIT | opcode::QUITQ if bare => Command::Quit,
            opcode::STAT if self.extras_len == 0 => Command::Stats { args: key },
            // Authentication is off.
            opcode::SASL_LIST_MECHS if bare => return self.refuse(Status::UnknownCommand, false),
            opcode::SASL_AUTH | opcode::SASL_STEP if has_key && self.extras_len == 0 => {
                return self.refuse(Status::UnknownCommand, false);
            }
            opcode::GET..=opcode::PREPENDQ
            | opcode::TOUCH..=opcode::GATQ
            | opcode::SASL_LIST_MECHS..=opcode::GATKQ => {
                return self.refuse(Status::InvalidArguments, true);
            }
            _ => return self.refuse(Status::UnknownCommand, false),
        };
        Front::Op {
            consumed: self.head_len(),
            op: self.op(command),
            rest: self.value_len(),
        }
    }

    fn arithmetic(&self, key: Span, body: &[u8]) -> BinaryCommand {
        let number = |at| u64_at(body, at);
        BinaryCommand::Arithmetic {
            key,
            delta: number(0),
            initial: number(8),
            vivify: (u32_at(body, 16) != u32::MAX).then(|| expiry_at(body, 16)),
            decrement: matches!(self.asked.opcode, opcode::DECREMENT | opcode::DECREMENTQ),
            cas: self.cas,
        }
    }

    /// `set`, `add` and `replace`, which become `cas` where the request has one.
    fn set(&self, mode: StoreMode, body: &[u8], limits: &Limits) -> Front {
        if self.key_len == 0 || self.extras_len != 8 {
            return self.refuse(Status::InvalidArguments, true);
        }
        self.store(mode, u32_at(body, 0), expiry_at(body, 4), limits)
    }

    fn store(&self, mode: StoreMode, client_flags: u32, exptime: i32, limits: &Limits) -> Front {
        let key = Span {
            start: HEADER_LEN + self.extras_len,
            len: self.key_len,
        };
        let (value_len, reply) = (self.value_len(), StoreReply::Binary(self.asked));
        let consumed = self.head_len();
        // Nothing can be answered behind no bytes, and the store refuses what is too large, too.
        if value_len > 0 && !limits.item_fits(self.key_len as usize, client_flags, value_len) {
            let refused = StoreRefused {
                key,
                key_base64: false,
                unlink: mode == StoreMode::Set,
                mode,
                value_len,
            };
            return Front::Refused {
                consumed,
                store: Some(refused),
                refusal: Refusal::of(ErrorLine::TooLarge, reply),
                rest: value_len,
            };
        }
        let adds = matches!(mode, StoreMode::Append | StoreMode::Prepend);
        Front::Store {
            consumed,
            store: Store {
                key,
                value: Span::default(),
                tokens: Span::default(),
                value_len,
                client_flags,
                exptime: exptime.into(),
                cas: self.cas,
                explicit_cas: 0,
                explicit: false,
                key_base64: false,
                invalidate: false,
                mode: match self.cas == 0 || adds {
                    true => mode,
                    false => StoreMode::Cas,
                },
                reply,
            },
        }
    }
}

/// The big-endian number `at` bytes into extras, whose length has been checked.
fn u32_at(extras: &[u8], at: usize) -> u32 {
    let bytes = extras.get(at..).and_then(<[u8]>::first_chunk);
    bytes.map_or(0, |bytes| u32::from_be_bytes(*bytes))
}

fn u64_at(extras: &[u8], at: usize) -> u64 {
    let bytes = extras.get(at..).and_then(<[u8]>::first_chunk);
    bytes.map_or(0, |bytes| u64::from_be_bytes(*bytes))
}

/// An expiry: what does not fit is as good as never, as it is for memcached.
fn expiry_at(extras: &[u8], at: usize) -> i32 {
    i32::try_from(u32_at(extras, at)).unwrap_or(i32::MAX)
}
