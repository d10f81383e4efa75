//! The answers to `lru_crawler`.
//!
//! memcached's crawler looks for expired items in one class after the other when it is told to, and
//! lists keys. The store crawls by itself, all the time, and cannot be stopped; `disable` only makes
//! the commands be refused, as in memcached. Lists do not need the crawler: any number of them may
//! be under way.

use coua_protocol::reply::Line;
use coua_protocol::{ErrorLine, Tokens};

use super::Report;
use crate::crawler::Crawler;
use crate::dump::Dump;
use crate::permissions::Permissions;

/// How many bytes of a list of classes memcached reads.
const CLASSES_LEN_MAX: usize = 511;

/// The longest `sleep`, in microseconds.
const SLEEP_US_MAX: u32 = 1_000_000;

/// What a list of classes names.
enum Classes {
    /// The class that has the items, perhaps with others.
    Filled,
    /// Only empty classes.
    Empty,
    /// No class.
    None,
    /// A class that cannot exist.
    Bad,
}

/// The answer to `lru_crawler` with these arguments.
pub fn crawl(mut args: Tokens<'_>, crawler: &Crawler, may: Permissions) -> Report {
    let (command, argument) = (args.next(), args.next());
    let (Some(command), None) = (command, args.next()) else {
        return error(ErrorLine::Unknown);
    };
    // memcached accepts any prefix of a name; the first name that fits counts.
    let is = |whole: &[u8]| whole.starts_with(command);
    let Some(argument) = argument else {
        return match () {
            () if is(b"enable") => match crawler.enable(true) {
                true => Report::Line(b"ERROR failed to start lru crawler thread\r\n"),
                false => ok(),
            },
            () if is(b"disable") => {
                crawler.enable(false);
                ok()
            }
            () => error(ErrorLine::Unknown),
        };
    };
    let begins = is(b"crawl") || is(b"metadump") && may.dump || is(b"mgdump") && may.dump;
    if begins && !crawler.is_enabled() {
        return Report::Line(b"CLIENT_ERROR lru crawler disabled\r\n");
    }
    if is(b"crawl") {
        return match argument {
            // memcached walks its hash table only for lists.
            b"hash" => Report::Line(b"ERROR an unknown error happened\r\n"),
            _ => refusal(&Classes::of(argument)).unwrap_or(ok()),
        };
    }
    if is(b"metadump") {
        return match may.dump {
            true => list(argument, Dump::metadump, b"OK\r\nEND\r\n"),
            false => Report::Line(b"ERROR metadump not allowed\r\n"),
        };
    }
    if is(b"mgdump") {
        return match may.dump {
            true => list(argument, Dump::mgdump, b"OK\r\nEN\r\n"),
            false => Report::Line(b"ERROR key dump not allowed\r\n"),
        };
    }
    if is(b"tocrawl") {
        let Some(items) = number(argument) else {
            return error(ErrorLine::BadFormat);
        };
        crawler.set_to_crawl(items);
        return ok();
    }
    if is(b"sleep") {
        let Some(sleep_us) = number(argument) else {
            return error(ErrorLine::BadFormat);
        };
        if sleep_us > SLEEP_US_MAX {
            return Report::Line(b"CLIENT_ERROR sleep must be one second or less\r\n");
        }
        crawler.set_sleep_us(sleep_us);
        return ok();
    }
    error(ErrorLine::Unknown)
}

fn list(argument: &[u8], dump: fn() -> Dump, empty: &'static [u8]) -> Report {
    let classes = match argument {
        b"hash" => Classes::Filled,
        _ => Classes::of(argument),
    };
    refusal(&classes).unwrap_or_else(|| match classes {
        Classes::Filled => Report::Dump(dump()),
        _ => Report::Line(empty),
    })
}

/// Why nothing is to be done for these classes, if that is so.
fn refusal(classes: &Classes) -> Option<Report> {
    match classes {
        Classes::Filled | Classes::Empty => None,
        Classes::None => Some(Report::Line(b"NOTSTARTED no items to crawl\r\n")),
        Classes::Bad => Some(Report::Line(b"BADCLASS invalid class id\r\n")),
    }
}

fn ok() -> Report {
    Report::Line(Line::Ok.as_bytes())
}

fn error(line: ErrorLine) -> Report {
    Report::Line(line.as_bytes())
}

impl Classes {
    /// `all`, or numbers with commas between. All items are in class 1.
    fn of(argument: &[u8]) -> Classes {
        if argument == b"all" {
            return Classes::Filled;
        }
        let argument = &argument[..argument.len().min(CLASSES_LEN_MAX)];
        let mut found = Classes::None;
        for word in argument.split(|&byte| byte == b',') {
            if word.is_empty() {
                continue;
            }
            match class(word) {
                Some(1) => found = Classes::Filled,
                Some(2..64) if matches!(found, Classes::Filled) => {}
                Some(2..64) => found = Classes::Empty,
                _ => return Classes::Bad,
            }
        }
        found
    }
}

/// A class's number, as memcached reads it.
fn class(word: &[u8]) -> Option<u32> {
    let digits = word.strip_prefix(b"+").unwrap_or(word);
    if !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let number: u64 = std::str::from_utf8(digits).ok()?.parse().ok()?;
    #[expect(clippy::cast_possible_truncation, reason = "memcached does so too")]
    let class = number as u32;
    Some(class)
}

/// A number made of digits only.
fn number(word: &[u8]) -> Option<u32> {
    let is_plain = word.iter().all(u8::is_ascii_digit);
    std::str::from_utf8(word)
        .ok()
        .filter(|_| is_plain)?
        .parse()
        .ok()
}
