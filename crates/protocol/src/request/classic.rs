//! The classic commands other than those that only read, and the server's own.

use crate::error_line::ErrorLine;
use crate::limits::{KEY_LEN_MAX, Limits};
use crate::number::{strtol, strtoul, value_len, word_i32, word_u32, word_u64};
use crate::op::{
    AdminCommand, Arithmetic, Op, ShutdownMode, Store, StoreMode, StoreRefused, StoreReply,
};
use crate::request::line::{Line, Parsed, Refusal, Refused};
use crate::request::step::CloseReason;
use crate::span::Span;
use crate::token::TokenSpans;

/// Parses a line that begins with `command`, which is none of those that
/// [`command::parse`](crate::request::command::parse) knows.
pub(crate) fn parse(line: &Line<'_>, command: &[u8], limits: &Limits) -> Parsed {
    let mut tokens = TokenSpans::new();
    tokens.split(line.text);
    let words = Words::of(line.text, &tokens);
    match command {
        b"set" => words.store(StoreMode::Set, limits),
        b"add" => words.store(StoreMode::Add, limits),
        b"replace" => words.store(StoreMode::Replace, limits),
        b"append" => words.store(StoreMode::Append, limits),
        b"prepend" => words.store(StoreMode::Prepend, limits),
        b"cas" => words.store(StoreMode::Cas, limits),
        b"delete" => words.keyed(2, Words::delete),
        b"incr" => words.keyed(3, |words, key| words.arithmetic(key, false)),
        b"decr" => words.keyed(3, |words, key| words.arithmetic(key, true)),
        b"touch" => words.keyed(3, Words::touch),
        b"stats" => Parsed::Op(Op::Stats { args: words.args() }),
        b"watch" => Parsed::Op(Op::Admin {
            command: AdminCommand::Watch,
            args: words.args(),
            noreply: false,
        }),
        _ => words.other(),
    }
}

/// The words of a line.
struct Words<'a> {
    text: &'a [u8],
    tokens: &'a TokenSpans,
    /// The last word is `noreply`.
    noreply: bool,
}

impl<'a> Words<'a> {
    fn of(text: &'a [u8], tokens: &'a TokenSpans) -> Self {
        let noreply = tokens
            .last()
            .is_some_and(|last| last.of(text) == b"noreply");
        Words {
            text,
            tokens,
            noreply,
        }
    }

    fn word(&self, index: usize) -> Option<&'a [u8]> {
        self.tokens.get(index).map(|span| span.of(self.text))
    }

    /// From word `index` to the end of the line, for C's number functions, which
    /// do not end where a word does.
    fn text_from(&self, index: usize) -> Option<&'a [u8]> {
        let start = self.tokens.get(index)?.start as usize;
        self.text.get(start..)
    }

    /// Everything behind the command.
    fn args(&self) -> Span {
        let start = self
            .tokens
            .get(0)
            .map_or(0, |command| command.start + command.len);
        Span::between(start as usize, self.text.len())
    }

    /// A command whose second word is a key: too few words are always told, any
    /// other error is subject to `noreply`.
    fn keyed(
        &self,
        words_min: usize,
        parse: impl FnOnce(&Self, Span) -> Result<Op, ErrorLine>,
    ) -> Parsed {
        match self.tokens.get(1) {
            Some(key) if self.tokens.count() >= words_min => {
                let op = match key.len as usize > KEY_LEN_MAX {
                    true => Err(ErrorLine::BadFormat),
                    false => parse(self, key),
                };
                op.map_or_else(|error| Parsed::error(error, self.noreply), Parsed::Op)
            }
            _ => Parsed::error(ErrorLine::BadFormat, false),
        }
    }

    /// `delete <key>`; memcached looks at no further word.
    fn delete(&self, key: Span) -> Result<Op, ErrorLine> {
        Ok(Op::Delete {
            key,
            noreply: self.noreply,
        })
    }

    /// `incr <key> <delta>` and `decr <key> <delta>`
    fn arithmetic(&self, key: Span, decrement: bool) -> Result<Op, ErrorLine> {
        Ok(Op::Arithmetic(Arithmetic {
            key,
            delta: self.word(2).and_then(word_u64).ok_or(ErrorLine::BadDelta)?,
            decrement,
            noreply: self.noreply,
        }))
    }

    /// `touch <key> <expiry>`
    fn touch(&self, key: Span) -> Result<Op, ErrorLine> {
        Ok(Op::Touch {
            key,
            exptime: self
                .word(2)
                .and_then(word_i32)
                .ok_or(ErrorLine::BadExptime)?,
            noreply: self.noreply,
        })
    }

    /// `<command> <key> <flags> <expiry> <length> [<cas>]`, and a body. Without a
    /// valid length there is no telling where the body ends, so none is swallowed.
    fn store(&self, mode: StoreMode, limits: &Limits) -> Parsed {
        let value_len = self.word(4).and_then(value_len);
        let (Some(key), Some(value_len)) = (self.tokens.get(1), value_len) else {
            return Parsed::error(ErrorLine::BadFormat, false);
        };
        let noreply = self.noreply;
        let Some((client_flags, exptime, cas)) = self.store_numbers(key, mode) else {
            let error = ErrorLine::BadFormat;
            return Parsed::Refused(Refused {
                store: None,
                refusal: Refusal::Line { error, noreply },
                value_len,
            });
        };
        sized(
            Store {
                key,
                value: Span::default(),
                tokens: Span::default(),
                value_len,
                client_flags,
                exptime: exptime.into(),
                cas,
                explicit_cas: 0,
                explicit: false,
                key_base64: false,
                invalidate: false,
                mode,
                reply: match noreply {
                    true => StoreReply::None,
                    false => StoreReply::Classic,
                },
            },
            limits,
        )
    }

    fn store_numbers(&self, key: Span, mode: StoreMode) -> Option<(u32, i32, u64)> {
        if key.len as usize > KEY_LEN_MAX {
            return None;
        }
        let client_flags = strtoul(self.text_from(2)?)?;
        let exptime = strtol(self.text_from(3)?)?;
        let cas = match mode {
            StoreMode::Cas => word_u64(self.word(5)?)?,
            _ => 0,
        };
        Some((client_flags, exptime, cas))
    }

    /// The commands that may have spaces in front, and those that do not exist.
    fn other(&self) -> Parsed {
        let noreply = self.noreply;
        let admin = |command| {
            Parsed::Op(Op::Admin {
                command,
                args: self.args(),
                noreply,
            })
        };
        match self.word(0) {
            Some(b"flush_all") => Parsed::Op(self.flush_all()),
            Some(b"verbosity") => match self.word(1).and_then(word_u32) {
                Some(level) => Parsed::Op(Op::Verbosity { level, noreply }),
                None => Parsed::error(ErrorLine::BadFormat, noreply),
            },
            Some(b"shutdown") => Parsed::Op(Op::Shutdown {
                mode: self.shutdown_mode(),
                noreply,
            }),
            Some(b"slabs") => admin(AdminCommand::Slabs),
            Some(b"lru") => admin(AdminCommand::Lru),
            Some(b"lru_crawler") => admin(AdminCommand::LruCrawler),
            Some(b"cache_memlimit") => admin(AdminCommand::CacheMemlimit),
            Some(b"extstore") => admin(AdminCommand::Extstore),
            Some(b"refresh_certs") => admin(AdminCommand::RefreshCerts),
            Some(b"config") if !self.is_http() => admin(AdminCommand::Config),
            Some(b"poison") => admin(AdminCommand::Poison),
            Some(b"rdma") => admin(AdminCommand::Rdma),
            _ if self.is_http() => Parsed::Close(CloseReason::Http),
            _ => Parsed::error(ErrorLine::Unknown, noreply),
        }
    }

    /// `flush_all [<delay>] [noreply]`; what follows the delay is not looked at.
    fn flush_all(&self) -> Op {
        let bare = self.tokens.count() == 1 + usize::from(self.noreply);
        Op::FlushAll {
            delay: match bare {
                true => Some(0),
                false => self.word(1).and_then(word_i32),
            },
            noreply: self.noreply,
        }
    }

    /// Any beginning of the word `graceful` is as good as the whole.
    fn shutdown_mode(&self) -> ShutdownMode {
        match (self.word(1), self.tokens.count()) {
            (None, _) => ShutdownMode::Now,
            (Some(word), 2) if b"graceful".starts_with(word) => ShutdownMode::Graceful,
            _ => ShutdownMode::Unknown,
        }
    }

    fn is_http(&self) -> bool {
        let last = self.tokens.last().map(|last| last.of(self.text));
        self.tokens.count() > 1 && last.is_some_and(|last| last.starts_with(b"HTTP/"))
    }
}

/// The store command, or its refusal if the item would be too large.
pub(crate) fn sized(store: Store, limits: &Limits) -> Parsed {
    if limits.item_fits(store.key.len as usize, store.client_flags, store.value_len) {
        return Parsed::Store(store);
    }
    Parsed::Refused(Refused {
        store: Some(StoreRefused {
            key: store.key,
            key_base64: false,
            unlink: store.mode == StoreMode::Set,
            mode: store.mode,
            value_len: store.value_len,
        }),
        refusal: Refusal::of(ErrorLine::TooLarge, store.reply),
        value_len: store.value_len,
    })
}
