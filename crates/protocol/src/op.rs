//! What a connection asks for: plain values whose spans point into its input.

use crate::binary::{Binary, BinaryCommand, BinaryRequestId};
use crate::error_line::ErrorLine;
use crate::expiry::{Exptime, TtlStart, TtlWalk};
use crate::flags::{FlagSet, Flags};
use crate::login::{Attempt, Login};
use crate::span::Span;

/// One operation.
///
/// Expiries are as they came: seconds, 0 for never, negative for already
/// expired, above thirty days absolute; [`crate::expiry::expiry`] resolves them. The meta commands
/// have milliseconds as well ([`Exptime`]).
/// `noreply` silences the answer whatever it is, errors included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// `get` and `gets`: one key. A request with many keys becomes as many of these.
    Get {
        /// At most [`crate::KEY_LEN_MAX`] bytes, as every key.
        key: Span,
        /// Answer with the CAS (`gets`).
        cas: bool,
        /// The request's last key: `END` follows it.
        last: bool,
    },
    /// `gat` and `gats`: one key.
    GetAndTouch {
        /// The key.
        key: Span,
        /// The new expiry.
        exptime: i32,
        /// Answer with the CAS (`gats`).
        cas: bool,
        /// The request's last key: `END` follows it.
        last: bool,
    },
    /// The end of a `get` whose last key was yielded before its line end came: answer `END`.
    GetEnd,
    /// A store command of any dialect with its whole body.
    Store(Store),
    /// A store command whose body follows in pieces. The spans of key and flag
    /// tokens last only as long as the input: keep what the reply needs.
    StoreStream(Store),
    /// The next bytes of a streamed value; never empty.
    StoreBody {
        /// The bytes.
        bytes: Span,
    },
    /// The end of a streamed value.
    StoreEnd {
        /// The value's last bytes; none in the text.
        bytes: Span,
        /// A line end followed the value. If not, nothing is stored and the
        /// answer is [`ErrorLine::BadDataChunk`].
        terminated: bool,
    },
    /// A store command that the item size forbids. It is not answered yet: its body is skipped, and
    /// an [`Op::Error`] or a [`BinaryCommand::Error`] after the body is the answer.
    StoreRefused(StoreRefused),
    /// `delete`.
    Delete {
        /// The key.
        key: Span,
        /// No answer.
        noreply: bool,
    },
    /// `incr` and `decr`.
    Arithmetic(Arithmetic),
    /// `touch`.
    Touch {
        /// The key.
        key: Span,
        /// The new expiry.
        exptime: i32,
        /// No answer.
        noreply: bool,
    },
    /// `mg`.
    MetaGet(Meta),
    /// `md`.
    MetaDelete(Meta),
    /// `ma`.
    MetaArithmetic(MetaArithmetic),
    /// `me`.
    MetaDebug {
        /// The key as sent.
        key: Span,
        /// The key is base64 and decodes.
        base64: bool,
    },
    /// `mn`: answer `MN` and send what is queued.
    MetaNoop,
    /// `flush_all`.
    FlushAll {
        /// Seconds as sent, at most 0 for now; `None` if it was no number, which
        /// is [`ErrorLine::BadExptime`] unless flushing is disabled.
        delay: Option<i32>,
        /// No answer.
        noreply: bool,
    },
    /// `version`.
    Version,
    /// `verbosity`.
    Verbosity {
        /// The level as sent.
        level: u32,
        /// No answer.
        noreply: bool,
    },
    /// `quit`: send what is queued, then close.
    Quit,
    /// `stats`.
    Stats {
        /// What follows the command; [`crate::Tokens`] splits it.
        args: Span,
    },
    /// `shutdown`.
    Shutdown {
        /// How.
        mode: ShutdownMode,
        /// No answer.
        noreply: bool,
    },
    /// A command that only the server can answer.
    Admin {
        /// Which.
        command: AdminCommand,
        /// What follows the command; [`crate::Tokens`] splits it. A final
        /// `noreply` is still there.
        args: Span,
        /// No answer.
        noreply: bool,
    },
    /// An attempt to log in, in either dialect.
    Login(Login),
    /// A request of the binary protocol, except stores.
    Binary(Binary),
    /// Answer this line.
    Error {
        /// The line.
        error: ErrorLine,
        /// No answer.
        noreply: bool,
    },
}

impl Op {
    /// The operation as seen from an input that begins `base` bytes earlier: of a
    /// whole buffer, where the parser was given what follows its first `base`
    /// bytes.
    #[must_use]
    pub fn shifted(mut self, base: u32) -> Op {
        let shift = |span: &mut Span| *span = span.shifted(base);
        match &mut self {
            Op::Get { key, .. }
            | Op::GetAndTouch { key, .. }
            | Op::Delete { key, .. }
            | Op::Touch { key, .. }
            | Op::MetaDebug { key, .. } => shift(key),
            Op::Store(store) | Op::StoreStream(store) => {
                shift(&mut store.key);
                shift(&mut store.value);
                shift(&mut store.tokens);
            }
            Op::StoreBody { bytes } | Op::StoreEnd { bytes, .. } => shift(bytes),
            Op::StoreRefused(refused) => shift(&mut refused.key),
            Op::Arithmetic(arithmetic) => shift(&mut arithmetic.key),
            Op::MetaGet(meta) | Op::MetaDelete(meta) => meta.shift(base),
            Op::MetaArithmetic(arithmetic) => arithmetic.meta.shift(base),
            Op::Stats { args } | Op::Admin { args, .. } => shift(args),
            Op::Binary(request) => match &mut request.command {
                BinaryCommand::Get { key, .. }
                | BinaryCommand::Delete { key, .. }
                | BinaryCommand::Arithmetic { key, .. }
                | BinaryCommand::Stats { args: key } => shift(key),
                BinaryCommand::FlushAll { .. }
                | BinaryCommand::Noop
                | BinaryCommand::Version
                | BinaryCommand::Quit
                | BinaryCommand::SaslMechanisms
                | BinaryCommand::Error { .. } => {}
            },
            Op::Login(login) => {
                if let Attempt::Password { user, password } = &mut login.attempt {
                    shift(user);
                    shift(password);
                }
            }
            Op::GetEnd
            | Op::MetaNoop
            | Op::FlushAll { .. }
            | Op::Version
            | Op::Verbosity { .. }
            | Op::Quit
            | Op::Shutdown { .. }
            | Op::Error { .. } => {}
        }
        self
    }

    /// Whether the connection closes behind its answer, so that nothing that
    /// follows is parsed.
    #[must_use]
    pub fn closes(&self) -> bool {
        match self {
            Op::Quit => true,
            Op::Binary(request) => matches!(
                request.command,
                BinaryCommand::Quit | BinaryCommand::Error { closes: true, .. }
            ),
            _ => false,
        }
    }
}

/// How a value is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreMode {
    /// Whatever was there.
    Set,
    /// Only if nothing is there.
    Add,
    /// Only if something is there.
    Replace,
    /// Behind what is there; its flags and expiry stay.
    Append,
    /// Before what is there; its flags and expiry stay.
    Prepend,
    /// As [`StoreMode::Append`], or as [`StoreMode::Set`] if nothing is there.
    AppendVivify,
    /// As [`StoreMode::Prepend`], or as [`StoreMode::Set`] if nothing is there.
    PrependVivify,
    /// Only over an item with the CAS [`Store::cas`]; 0 matches none.
    Cas,
}

/// How a store command is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreReply {
    /// `STORED` and the like.
    Classic,
    /// Nothing, whatever happens: `noreply`.
    None,
    /// `HD` and the like, with [`Store::tokens`].
    Meta,
    /// As [`StoreReply::Meta`], but nothing for `HD`: the flag `q`.
    MetaQuiet,
    /// As the binary protocol does.
    Binary(BinaryRequestId),
}

/// A store command of any dialect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Store {
    /// The key as sent.
    pub key: Span,
    /// The value; empty for [`Op::StoreStream`].
    pub value: Span,
    /// The flag tokens of `ms`; empty in the classic dialect.
    pub tokens: Span,
    /// Bytes in the value, streamed or not; at most [`crate::VALUE_LEN_MAX`].
    pub value_len: u32,
    /// The client's flags.
    pub client_flags: u32,
    /// The expiry as sent. For the vivifying modes, the new item's.
    pub exptime: Exptime,
    /// The CAS to compare with; 0 for none. Modes other than [`StoreMode::Cas`]
    /// look at it only when they change what is there (append and prepend).
    pub cas: u64,
    /// The CAS that the item gets, if [`Store::explicit`] is set.
    pub explicit_cas: u64,
    /// The flag `E` gave a CAS.
    pub explicit: bool,
    /// The key is base64 and decodes; remember that it was sent so.
    pub key_base64: bool,
    /// With [`StoreMode::Cas`], an item with a higher CAS is overwritten too and
    /// the result is stale: the flag `I`.
    pub invalidate: bool,
    /// How it is stored.
    pub mode: StoreMode,
    /// How it is answered.
    pub reply: StoreReply,
}

impl Store {
    /// The CAS that the item gets, if the client chose one.
    #[inline]
    #[must_use]
    pub fn explicit_cas(&self) -> Option<u64> {
        self.explicit.then_some(self.explicit_cas)
    }

    /// The flags to walk for the answer.
    #[inline]
    #[must_use]
    pub fn flags<'a>(&self, input: &'a [u8]) -> Flags<'a> {
        Flags::new(self.tokens.of(input))
    }
}

/// A store command that is too large to be tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoreRefused {
    /// The key as sent.
    pub key: Span,
    /// The key is base64 and decodes.
    pub key_base64: bool,
    /// Unlink what the key holds, so that no old value outlives the attempt:
    /// `set`, and every mode of `ms`.
    pub unlink: bool,
    /// How the value was to be stored.
    pub mode: StoreMode,
    /// Bytes in the value that is passed over.
    pub value_len: u32,
}

/// `incr` and `decr`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arithmetic {
    /// The key.
    pub key: Span,
    /// By how much.
    pub delta: u64,
    /// Down, and not below 0; else up, round at 2^64.
    pub decrement: bool,
    /// No answer.
    pub noreply: bool,
}

/// A meta request without a body.
///
/// All flags of 1.6.45, and coua's own `G` and `g`, are known to all commands; each acts on those
/// that it has, and lets the others pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Meta {
    /// The key as sent.
    pub key: Span,
    /// The flag tokens as sent; [`Meta::flags`] walks them.
    pub tokens: Span,
    /// The flags that were sent.
    pub set: FlagSet,
    /// `C`'s CAS; see [`Meta::cas`].
    pub(crate) cas: u64,
    /// `E`'s CAS; see [`Meta::explicit_cas`].
    pub(crate) explicit_cas: u64,
    /// `F`'s client flags, 0 without it: those of the tombstone of `md x`.
    pub client_flags: u32,
    /// `T`'s expiry; see [`Meta::touch`].
    pub(crate) touch: Exptime,
    /// `N`'s expiry; see [`Meta::vivify`].
    pub(crate) vivify: Exptime,
    /// `R`'s threshold; see [`Meta::recache`].
    pub(crate) recache: Exptime,
    /// `t`, `T`, `N` and `R` in the order sent, then zeros.
    pub(crate) ttl_order: [u8; 4],
    /// `G` came without names.
    pub(crate) names_tag: bool,
}

impl Meta {
    /// The key is base64 and decodes: `b`.
    #[inline]
    #[must_use]
    pub fn key_base64(&self) -> bool {
        self.set.has(b'b')
    }

    /// Nominal answers are left out: `q`. These are `EN` of `mg`, and `HD` (with
    /// `md` also `NF` is not) of the others.
    #[inline]
    #[must_use]
    pub fn quiet(&self) -> bool {
        self.set.has(b'q')
    }

    /// The CAS to compare with: `C`. For `mg`, a value with this CAS is not sent.
    #[inline]
    #[must_use]
    pub fn cas(&self) -> Option<u64> {
        self.set.has(b'C').then_some(self.cas)
    }

    /// The CAS that a changed or created item gets: `E`.
    #[inline]
    #[must_use]
    pub fn explicit_cas(&self) -> Option<u64> {
        self.set.has(b'E').then_some(self.explicit_cas)
    }

    /// The new expiry: `T`.
    #[inline]
    #[must_use]
    pub fn touch(&self) -> Option<Exptime> {
        self.set.has(b'T').then_some(self.touch)
    }

    /// The expiry of an item to create on a miss: `N`.
    #[inline]
    #[must_use]
    pub fn vivify(&self) -> Option<Exptime> {
        self.set.has(b'N').then_some(self.vivify)
    }

    /// The remaining time under which the asker wins: `R`.
    #[inline]
    #[must_use]
    pub fn recache(&self) -> Option<Exptime> {
        self.set.has(b'R').then_some(self.recache)
    }

    /// The key is the name of a tag: `G` without names. `md` makes the tag's items gone or, with
    /// `I`, stale; `mg` answers the flag `g`.
    #[inline]
    #[must_use]
    pub fn names_tag(&self) -> bool {
        self.set.has(b'G') && self.names_tag
    }

    /// The flags to walk for the answer.
    #[inline]
    #[must_use]
    pub fn flags<'a>(&self, input: &'a [u8]) -> Flags<'a> {
        Flags::new(self.tokens.of(input))
    }

    fn shift(&mut self, base: u32) {
        self.key = self.key.shifted(base);
        self.tokens = self.tokens.shifted(base);
    }

    /// What `t`, `T`, `N` and `R` do to one item in the order in which they were
    /// sent: `T30 t` shows the new time left, `t T30` the old one, and `R`
    /// compares with what `T` has just set if `T` came first.
    #[must_use]
    pub fn walk_ttl(&self, item: TtlStart, now_unix_ms: u64, started_unix: u32) -> TtlWalk {
        let resolved = |sent: Exptime| sent.expiry_ms(now_unix_ms, started_unix);
        let mut walk = TtlWalk {
            expiry_ms: item.expiry_ms,
            expiry_shown_ms: item.expiry_ms,
            won: item.stale && !item.token_sent,
        };
        for step in self.ttl_order {
            match step {
                b't' => walk.expiry_shown_ms = walk.expiry_ms,
                b'T' => walk.expiry_ms = resolved(self.touch),
                b'N' if item.created => {
                    walk.expiry_ms = resolved(self.vivify);
                    walk.won = true;
                }
                b'R' if !item.token_sent && walk.expiry_ms != 0 => {
                    walk.won |= walk.expiry_ms < resolved(self.recache);
                }
                _ => {}
            }
        }
        walk
    }
}

/// `ma`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MetaArithmetic {
    /// Key and flags.
    pub meta: Meta,
    /// By how much: `D`, else 1.
    pub delta: u64,
    /// What an item that is created on a miss holds: `J`, else 0.
    pub initial: u64,
    /// Down, and not below 0; else up, round at 2^64.
    pub decrement: bool,
}

/// How `shutdown` was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShutdownMode {
    /// At once.
    Now,
    /// After what runs has ended.
    Graceful,
    /// Another word: [`ErrorLine::BadShutdownMode`] where shutdown is enabled.
    Unknown,
}

/// The commands that only the server can answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AdminCommand {
    /// `slabs`
    Slabs,
    /// `lru`
    Lru,
    /// `lru_crawler`
    LruCrawler,
    /// `cache_memlimit`
    CacheMemlimit,
    /// `extstore`
    Extstore,
    /// `refresh_certs`
    RefreshCerts,
    /// `config`, which AWS's memcached has
    Config,
    /// `poison`, for tests only: not memcached's.
    Poison,
    /// `watch`; it knows no `noreply`.
    Watch,
    /// `rdma`: not memcached's.
    Rdma,
}
