//! The flags of a meta request.

use crate::limits::KEY_LEN_MAX;
use crate::token::Tokens;

/// The flag tokens of a meta request in the order sent: letter and argument.
///
/// Answers repeat or fill in flags in this order.
#[derive(Clone, Debug)]
pub struct Flags<'a> {
    tokens: Tokens<'a>,
}

impl<'a> Flags<'a> {
    /// The flags of a piece of a request line.
    #[must_use]
    pub fn new(tokens: &'a [u8]) -> Self {
        Flags {
            tokens: Tokens::new(tokens),
        }
    }
}

impl<'a> Iterator for Flags<'a> {
    /// The letter, and the argument that follows it without a space.
    type Item = (u8, &'a [u8]);

    fn next(&mut self) -> Option<(u8, &'a [u8])> {
        let token = self.tokens.next()?;
        token
            .split_first()
            .map(|(&letter, argument)| (letter, argument))
    }
}

/// The names of an item's tags: the argument of `G`, with commas between them.
#[derive(Clone, Debug)]
pub struct TagNames<'a> {
    argument: &'a [u8],
}

impl<'a> TagNames<'a> {
    /// The most tags of an item.
    pub const COUNT_MAX: usize = 4;

    /// The names in an argument.
    #[must_use]
    pub fn new(argument: &'a [u8]) -> Self {
        TagNames { argument }
    }

    /// The names in the flags of an accepted request; none without `G`.
    #[must_use]
    pub fn of(mut flags: Flags<'a>) -> Self {
        let given = flags.find(|&(flag, _)| flag == b'G');
        TagNames::new(given.map_or(&[], |(_, argument)| argument))
    }

    pub(crate) fn are_valid(&self) -> bool {
        let mut names = self.argument.split(|&byte| byte == b',');
        let is_name = |name: &[u8]| (1..=KEY_LEN_MAX).contains(&name.len());
        names.clone().count() <= Self::COUNT_MAX && names.all(is_name)
    }
}

impl<'a> Iterator for TagNames<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        if self.argument.is_empty() {
            return None;
        }
        let end = self.argument.iter().position(|&byte| byte == b',');
        let (name, rest) = match end {
            Some(end) => (&self.argument[..end], &self.argument[end + 1..]),
            None => (self.argument, &[][..]),
        };
        self.argument = rest;
        Some(name)
    }
}

/// Which flags a meta request has.
///
/// Bit `letter - 64`, for the letters `A` to `z`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlagSet(u64);

impl FlagSet {
    /// Whether the flag was sent.
    #[inline]
    #[must_use]
    pub const fn has(self, letter: u8) -> bool {
        self.0 & Self::bit(letter) != 0
    }

    #[inline]
    pub(crate) const fn insert(&mut self, letter: u8) {
        self.0 |= Self::bit(letter);
    }

    #[inline]
    const fn bit(letter: u8) -> u64 {
        match letter {
            64..128 => 1 << (letter - 64),
            _ => 0,
        }
    }
}

/// What the answer to a store command takes from its flags, kept while the value of
/// [`crate::Op::StoreStream`] arrives: a bounded copy of the tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Echo {
    bytes: [u8; Echo::LEN_MAX],
    len: u8,
}

impl Echo {
    /// An opaque of 32 bytes, the letters `k`, `c` and `s`, and spaces between them.
    const LEN_MAX: usize = 32 + 3 * 2;

    /// Keeps those of `tokens`, the flags of an accepted request, that the answer repeats or fills
    /// in.
    #[must_use]
    pub fn of(tokens: &[u8]) -> Self {
        let mut echo = Echo {
            bytes: [b' '; Self::LEN_MAX],
            len: 0,
        };
        for token in Tokens::new(tokens) {
            let kept = match token.first() {
                Some(b'O') => token,
                Some(b'k' | b'c' | b's') => &token[..1],
                _ => continue,
            };
            let at = usize::from(echo.len);
            // An accepted request has each flag once and a bounded opaque.
            let Some(room) = echo.bytes.get_mut(at..at + kept.len()) else {
                break;
            };
            room.copy_from_slice(kept);
            let used = (at + kept.len() + 1).min(Self::LEN_MAX);
            echo.len = u8::try_from(used).unwrap_or(0);
        }
        echo
    }

    /// The flags, to walk for the answer.
    #[must_use]
    pub fn flags(&self) -> Flags<'_> {
        Flags::new(&self.bytes[..usize::from(self.len)])
    }
}
