//! The meta commands.

use crate::base64;
use crate::error_line::ErrorLine;
use crate::expiry::Exptime;
use crate::flags::{FlagSet, TagNames};
use crate::limits::{KEY_LEN_MAX, Limits};
use crate::number::{value_len, word_i32, word_i64, word_u32, word_u64};
use crate::op::{Meta, MetaArithmetic, Op, Store, StoreMode, StoreRefused, StoreReply};
use crate::request::fast;
use crate::request::line::{Line, Parsed, Refusal, Refused};
use crate::span::Span;
use crate::token::TokenSpans;

/// Most words in a meta request, its command included.
const META_TOKENS_MAX: usize = 20;

/// Most bytes in an opaque, its letter included.
const OPAQUE_LEN_MAX: u32 = 32;

/// `mg <key> <flag>*`
pub(crate) fn get(line: &Line<'_>) -> Result<Op, ErrorLine> {
    let mut request = Request::new();
    request.read_line(line)?;
    request.opaque()?;
    Ok(Op::MetaGet(request.meta))
}

/// `mg` by the fast path, and the bytes of its line; see [`crate::request::fast`].
#[inline]
pub(crate) fn fast_get(input: &[u8]) -> Option<(u32, Meta)> {
    if input.first_chunk() != Some(b"mg ") {
        return None;
    }
    let mut request = Request::new();
    let at = request.fast_key(input)?;
    let consumed = request.fast_flags(input, at, 2)?;
    Some((consumed, request.meta))
}

/// `md <key> <flag>*`
pub(crate) fn delete(line: &Line<'_>) -> Result<Op, ErrorLine> {
    let mut request = Request::new();
    request.read_line(line)?;
    request.opaque()?;
    if request.gives_tags() {
        return Err(ErrorLine::BadTags);
    }
    Ok(Op::MetaDelete(request.meta))
}

/// `ma <key> <flag>*`
pub(crate) fn arithmetic(line: &Line<'_>) -> Result<Op, ErrorLine> {
    let mut tokens = TokenSpans::new();
    line.meta_tokens(2, &mut tokens)?;
    let mut request = Request::new();
    request
        .read(line.text, &tokens, 2)
        .map_err(|_| ErrorLine::BadArithmeticFlag)?;
    if request.meta.names_tag() {
        return Err(ErrorLine::BadTags);
    }
    let decrement = match request.mode {
        0 | b'I' | b'+' => false,
        b'D' | b'-' => true,
        _ => return Err(ErrorLine::BadArithmeticMode),
    };
    request.opaque()?;
    Ok(Op::MetaArithmetic(MetaArithmetic {
        meta: request.meta,
        delta: request.delta,
        initial: request.initial,
        decrement,
    }))
}

/// `me <key> [b]`. The key is taken for base64 only if a further word follows
/// the `b`: so does memcached.
pub(crate) fn debug(line: &Line<'_>) -> Result<Op, ErrorLine> {
    let mut tokens = TokenSpans::new();
    line.meta_tokens(2, &mut tokens)?;
    let key = tokens.get(1).ok_or(ErrorLine::BadFormat)?;
    let word = key.of(line.text);
    let flag = tokens.get(2).unwrap_or_default().of(line.text);
    let base64 = tokens.count() >= 4 && flag == b"b";
    let decodes = || base64::decode(word, &mut [0; KEY_LEN_MAX]).is_some();
    if word.len() > KEY_LEN_MAX || base64 && !decodes() {
        return Err(ErrorLine::BadFormat);
    }
    Ok(Op::MetaDebug { key, base64 })
}

/// The line of `ms` by the fast path, and its bytes; see [`crate::request::fast`].
#[inline]
pub(crate) fn fast_set(input: &[u8], limits: &Limits) -> Option<(u32, Store)> {
    if input.first_chunk() != Some(b"ms ") {
        return None;
    }
    let mut request = Request::new();
    let mut at = request.fast_key(input)?;
    let value_len = fast::spaced_number(input, &mut at)?;
    let consumed = request.fast_flags(input, at, 3)?;
    let store = request.store(value_len, limits).ok()?;
    Some((consumed, store))
}

/// `ms <key> <length> <flag>*`, and a body.
pub(crate) fn set(line: &Line<'_>, limits: &Limits) -> Parsed {
    // Only a request with a valid length has a body to swallow.
    let mut tokens = TokenSpans::new();
    let value_len = match line.meta_tokens(3, &mut tokens) {
        Ok(()) => tokens.get(2).and_then(|word| value_len(word.of(line.text))),
        Err(_) => None,
    };
    let Some(value_len) = value_len else {
        return Parsed::error(ErrorLine::BadFormat, false);
    };
    let mut request = Request::new();
    let read = request.read(line.text, &tokens, 3);
    let (store, error) = match read
        .map_err(Wrong::Line)
        .and_then(|()| request.store(value_len, limits))
    {
        Ok(store) => return Parsed::Store(store),
        Err(Wrong::Line(error)) => (None, error),
        Err(Wrong::TooLarge {
            key,
            key_base64,
            mode,
        }) => {
            let refused = StoreRefused {
                key,
                key_base64,
                unlink: true,
                mode,
                value_len,
            };
            (Some(refused), ErrorLine::TooLarge)
        }
    };
    let noreply = false;
    Parsed::Refused(Refused {
        store,
        refusal: Refusal::Line { error, noreply },
        value_len,
    })
}

/// What is wrong with an `ms` whose body has to come.
enum Wrong {
    Line(ErrorLine),
    TooLarge {
        key: Span,
        key_base64: bool,
        mode: StoreMode,
    },
}

impl From<ErrorLine> for Wrong {
    fn from(error: ErrorLine) -> Self {
        Wrong::Line(error)
    }
}

/// Everything that the words of a meta request say.
struct Request {
    meta: Meta,
    mode: u8,
    delta: u64,
    initial: u64,
    opaque_len: u32,
    /// Bytes in the key, decoded if it is base64.
    key_len: usize,
    ttl_steps: usize,
}

impl Request {
    #[inline]
    fn new() -> Self {
        Request {
            meta: Meta {
                key: Span::default(),
                tokens: Span::default(),
                set: FlagSet::default(),
                cas: 0,
                explicit_cas: 0,
                client_flags: 0,
                touch: Exptime::default(),
                vivify: Exptime::default(),
                recache: Exptime::default(),
                ttl_order: [0; 4],
                names_tag: false,
            },
            mode: 0,
            delta: 1,
            initial: 0,
            opaque_len: 0,
            key_len: 0,
            ttl_steps: 0,
        }
    }

    /// Reads a request without a length.
    #[inline]
    fn read_line(&mut self, line: &Line<'_>) -> Result<(), ErrorLine> {
        let mut tokens = TokenSpans::new();
        line.meta_tokens(2, &mut tokens)?;
        self.read(line.text, &tokens, 2)
    }

    /// Reads the key and the flags from word `first` on. Among several errors the
    /// last one counts, but a flag that is unknown or there twice ends it.
    fn read(&mut self, text: &[u8], tokens: &TokenSpans, first: usize) -> Result<(), ErrorLine> {
        let key = tokens.get(1).ok_or(ErrorLine::BadFormat)?;
        if key.len as usize > KEY_LEN_MAX {
            return Err(ErrorLine::BadFormat);
        }
        if tokens.count() > META_TOKENS_MAX {
            return Err(ErrorLine::TooManyFlags);
        }
        self.meta.key = key;
        self.meta.tokens = tokens.from(first);
        self.key_len = key.len as usize;
        let mut failed = false;
        let mut error = ErrorLine::BadFormat;
        for index in first..tokens.count() {
            let Some(token) = tokens.get(index) else {
                break;
            };
            let Some((&letter, argument)) = token.of(text).split_first() else {
                break;
            };
            if self.meta.set.has(letter) {
                return Err(ErrorLine::DuplicateFlag);
            }
            self.meta.set.insert(letter);
            match self.flag(letter, argument, text) {
                Ok(()) => {}
                Err(ErrorLine::UnknownFlag) => return Err(ErrorLine::UnknownFlag),
                // A bad `F` keeps whatever line an earlier flag asked for.
                Err(ErrorLine::BadFormat) => failed = true,
                Err(last) => {
                    error = last;
                    failed = true;
                }
            }
        }
        match failed {
            true => Err(error),
            false => Ok(()),
        }
    }

    fn flag(&mut self, letter: u8, argument: &[u8], text: &[u8]) -> Result<(), ErrorLine> {
        let meta = &mut self.meta;
        match letter {
            b'b' => {
                let mut decoded = [0; KEY_LEN_MAX];
                self.key_len = base64::decode(meta.key.of(text), &mut decoded)
                    .ok_or(ErrorLine::BadBase64Key)?;
            }
            b'T' => {
                self.ttl_step(letter);
                self.meta.touch = time(argument)?;
            }
            b'N' => {
                self.ttl_step(letter);
                self.meta.vivify = time(argument)?;
            }
            b'R' => {
                self.ttl_step(letter);
                self.meta.recache = time(argument)?;
            }
            b't' => self.ttl_step(letter),
            b'C' => meta.cas = argument_u64(argument).ok_or(ErrorLine::BadToken)?,
            b'E' => meta.explicit_cas = argument_u64(argument).ok_or(ErrorLine::BadToken)?,
            b'F' => {
                meta.client_flags = Some(argument)
                    .filter(|argument| !argument.is_empty())
                    .and_then(word_u32)
                    .ok_or(ErrorLine::BadFormat)?;
            }
            b'J' => self.initial = argument_u64(argument).ok_or(ErrorLine::BadInitial)?,
            b'D' => self.delta = argument_u64(argument).ok_or(ErrorLine::BadDeltaFlag)?,
            // Without an argument the mode is the space or line end that follows.
            b'M' => self.mode = argument.first().copied().unwrap_or(b' '),
            b'O' => self.opaque_len = u32::try_from(argument.len() + 1).unwrap_or(u32::MAX),
            b'G' => meta.names_tag = names_tag(argument)?,
            b'g' | b'P' | b'L' | b'k' | b's' | b'c' | b'f' | b'v' | b'h' | b'l' | b'u' | b'q'
            | b'x' | b'I' => {}
            _ => return Err(ErrorLine::UnknownFlag),
        }
        Ok(())
    }

    /// The store command that the request makes with a value of this length.
    fn store(&self, value_len: u32, limits: &Limits) -> Result<Store, Wrong> {
        let meta = &self.meta;
        if meta.names_tag() {
            return Err(ErrorLine::BadTags.into());
        }
        let vivify = meta.vivify();
        let mut mode = match self.mode {
            0 | b'S' => StoreMode::Set,
            b'E' => StoreMode::Add,
            b'A' if vivify.is_some() => StoreMode::AppendVivify,
            b'A' => StoreMode::Append,
            b'P' if vivify.is_some() => StoreMode::PrependVivify,
            b'P' => StoreMode::Prepend,
            b'R' => StoreMode::Replace,
            _ => return Err(ErrorLine::BadStoreMode.into()),
        };
        if meta.cas().is_some() && matches!(mode, StoreMode::Set | StoreMode::Replace) {
            mode = StoreMode::Cas;
        }
        let exptime = match mode {
            StoreMode::AppendVivify | StoreMode::PrependVivify => meta.vivify,
            _ => meta.touch,
        };
        if !limits.item_fits(self.key_len, meta.client_flags, value_len) {
            return Err(Wrong::TooLarge {
                key: meta.key,
                key_base64: meta.key_base64(),
                mode,
            });
        }
        self.opaque()?;
        Ok(Store {
            key: meta.key,
            value: Span::default(),
            tokens: meta.tokens,
            value_len,
            client_flags: meta.client_flags,
            exptime,
            cas: meta.cas,
            explicit_cas: meta.explicit_cas,
            explicit: meta.explicit_cas().is_some(),
            key_base64: meta.key_base64(),
            invalidate: mode == StoreMode::Cas && meta.set.has(b'I'),
            mode,
            reply: match meta.quiet() {
                true => StoreReply::MetaQuiet,
                false => StoreReply::Meta,
            },
        })
    }

    /// Reads the key behind a command of two letters, and returns where it ends.
    #[inline]
    fn fast_key(&mut self, input: &[u8]) -> Option<usize> {
        let key = fast::key(input, 3)?;
        self.meta.key = key;
        self.key_len = key.len as usize;
        Some(3 + self.key_len)
    }

    /// Reads the flags at `at`, before which there are `count` words, and returns
    /// the bytes in the line.
    #[inline]
    fn fast_flags(&mut self, input: &[u8], mut at: usize, mut count: usize) -> Option<u32> {
        let first = at + 1;
        while *input.get(at)? == b' ' {
            let token = at + 1;
            let mut end = token;
            while *input.get(end)? > b' ' {
                end += 1;
            }
            let (&letter, argument) = input[token..end].split_first()?;
            count += 1;
            if !letter.is_ascii_alphabetic() || self.meta.set.has(letter) {
                return None;
            }
            self.meta.set.insert(letter);
            self.flag(letter, argument, input).ok()?;
            at = end;
        }
        if count > META_TOKENS_MAX || self.opaque().is_err() || !input[at..].starts_with(b"\r\n") {
            return None;
        }
        if at > first {
            self.meta.tokens = Span::between(first, at);
        }
        Some(Span::between(0, at + 2).len)
    }

    fn ttl_step(&mut self, letter: u8) {
        // At most four: each flag comes once.
        if let Some(step) = self.meta.ttl_order.get_mut(self.ttl_steps) {
            *step = letter;
            self.ttl_steps += 1;
        }
    }

    /// `G` names tags of an item.
    fn gives_tags(&self) -> bool {
        self.meta.set.has(b'G') && !self.meta.names_tag
    }

    fn opaque(&self) -> Result<(), ErrorLine> {
        match self.opaque_len > OPAQUE_LEN_MAX {
            true => Err(ErrorLine::OpaqueTooLong),
            false => Ok(()),
        }
    }
}

fn argument_u64(argument: &[u8]) -> Option<u64> {
    match argument.is_empty() {
        true => None,
        false => word_u64(argument),
    }
}

/// Whether `G` came without names; those that came are good.
#[cold]
#[inline(never)]
fn names_tag(argument: &[u8]) -> Result<bool, ErrorLine> {
    match argument.is_empty() || TagNames::new(argument).are_valid() {
        true => Ok(argument.is_empty()),
        false => Err(ErrorLine::BadTags),
    }
}

/// A number of seconds, or, with `ms` behind it, of milliseconds.
#[inline]
fn time(argument: &[u8]) -> Result<Exptime, ErrorLine> {
    if argument.is_empty() {
        return Err(ErrorLine::BadToken);
    }
    match word_i32(argument) {
        Some(seconds) => Ok(seconds.into()),
        None => millis(argument).ok_or(ErrorLine::BadToken),
    }
}

#[cold]
#[inline(never)]
fn millis(argument: &[u8]) -> Option<Exptime> {
    let number = argument.strip_suffix(b"ms")?;
    let has_digits = number.iter().any(u8::is_ascii_digit);
    let number = word_i64(number).filter(|_| has_digits)?;
    Some(Exptime::of_millis(number))
}

impl Line<'_> {
    /// The words of the line, whose flags, from word `first` on, begin with a
    /// letter or something near, or a digit.
    #[inline]
    fn meta_tokens(&self, first: usize, tokens: &mut TokenSpans) -> Result<(), ErrorLine> {
        tokens.split(self.text);
        for index in first..tokens.count() {
            let token = tokens.get(index).unwrap_or_default().of(self.text);
            if !matches!(token.first(), Some(b'A'..=b'z' | b'0'..=b'9')) {
                return Err(ErrorLine::BadFormat);
            }
        }
        match tokens.count() < first {
            true => Err(ErrorLine::BadFormat),
            false => Ok(()),
        }
    }
}
