//! What the server says about itself: the answers to `stats`.

mod classes;
mod crawler;
mod flash;
mod general;
mod hot_keys;
mod latency;
mod memory_errors;
mod net;
pub mod packets;
mod produce;
mod rdma;
mod settings;
mod threads;

use std::fmt::Display;

use coua_protocol::reply::Line;
use coua_protocol::{ErrorLine, Tokens};

pub use crawler::crawl;
pub use produce::{produce, write};

use crate::clock::Now;
use crate::dump::Dump;
use crate::output::Output;
use crate::permissions::Permissions;
use crate::shared::Shared;

/// How a command that asks for more than items is answered.
pub enum Report {
    /// With a text of bounded length.
    Text(fn(&Shared, Now, &mut Output)),
    /// With a line.
    Line(&'static [u8]),
    /// With a text of any length.
    Dump(Dump),
}

/// The answer to `stats` with these arguments. Carries out what the command changes.
pub fn report(mut args: Tokens<'_>, shared: &Shared, may: Permissions) -> Report {
    let Some(name) = args.next() else {
        return Report::Text(general::write);
    };
    // memcached accepts any prefix of these names; the first that fits counts.
    let is = |whole: &[u8]| whole.starts_with(name);
    if is(b"reset") {
        if !may.admin {
            return Report::Line(ErrorLine::NotPermitted.as_bytes());
        }
        shared.reset_counters();
        shared.prefixes.clear();
        shared.hot_keys.clear();
        shared.missed.clear();
        return Report::Line(Line::Reset.as_bytes());
    }
    if is(b"detail") {
        return detail(args.next(), shared, may);
    }
    if is(b"settings") {
        return Report::Text(settings::write);
    }
    if is(b"cachedump") {
        return cachedump(args, may);
    }
    if is(b"conns") {
        return Report::Dump(Dump::connections());
    }
    if is(b"extstore") && shared.flash_volume().is_some() {
        return Report::Dump(Dump::segments());
    }
    if is(b"extstore") || is(b"proxy") || is(b"proxyfuncs") || is(b"proxybe") {
        return Report::Line(Line::End.as_bytes());
    }
    match name {
        b"items" => Report::Text(classes::write_items),
        b"slabs" => Report::Text(classes::write_slabs),
        b"memory_errors" => Report::Text(memory_errors::write),
        b"net" => Report::Text(net::write),
        b"rdma" => Report::Text(rdma::write),
        b"latency" => Report::Text(latency::write),
        b"hotkeys" => Report::Text(hot_keys::write),
        b"misses" => Report::Text(hot_keys::write_misses),
        b"bigkeys" if may.dump => Report::Dump(Dump::largest()),
        b"bigkeys" => Report::Line(b"CLIENT_ERROR stats bigkeys not allowed\r\n"),
        b"threads" => Report::Text(threads::write),
        // As memcached answers without `-o track_sizes`, which is its default.
        b"sizes" => Report::Line(b"STAT sizes_status disabled\r\nEND\r\n"),
        _ => Report::Line(ErrorLine::Unknown.as_bytes()),
    }
}

fn detail(argument: Option<&[u8]>, shared: &Shared, may: Permissions) -> Report {
    if !may.dump {
        return Report::Line(b"CLIENT_ERROR stats detail not allowed\r\n");
    }
    let is = |whole: &[u8]| argument.is_some_and(|argument| whole.starts_with(argument));
    if is(b"on") {
        shared.prefixes.enable(true);
    } else if is(b"off") {
        shared.prefixes.enable(false);
    } else if is(b"dump") {
        return Report::Dump(Dump::prefixes());
    } else {
        return Report::Line(b"CLIENT_ERROR usage: stats detail on|off|dump\r\n");
    }
    Report::Line(Line::Ok.as_bytes())
}

/// All items are in class 1; memcached lists those of one of a class's queues.
fn cachedump(args: Tokens<'_>, may: Permissions) -> Report {
    if !may.dump {
        return Report::Line(b"CLIENT_ERROR stats cachedump not allowed\r\n");
    }
    let mut numbers = args.map(|word| std::str::from_utf8(word).ok()?.parse::<u32>().ok());
    match (numbers.next(), numbers.next()) {
        (Some(Some(class)), Some(Some(_))) if class >= 64 => {
            Report::Line(b"CLIENT_ERROR Illegal slab id\r\n")
        }
        (Some(Some(1)), Some(Some(limit))) => Report::Dump(Dump::cachedump(limit)),
        (Some(Some(_)), Some(Some(_))) => Report::Line(Line::End.as_bytes()),
        (Some(_), Some(_)) => Report::Line(ErrorLine::BadFormat.as_bytes()),
        _ => Report::Line(b"CLIENT_ERROR bad command line\r\n"),
    }
}

/// Appends statistics to an output that has room for them.
struct Stats<'o> {
    output: &'o mut Output,
    value: String,
}

impl<'o> Stats<'o> {
    fn new(output: &'o mut Output) -> Stats<'o> {
        Stats {
            output,
            value: String::new(),
        }
    }

    fn add(&mut self, name: &str, value: impl Display) {
        use std::fmt::Write;
        self.value.clear();
        // Writing to a string does not fail.
        let _ = write!(self.value, "{value}");
        let value = self.value.as_bytes();
        self.output
            .reply(|reply| reply.stat(name.as_bytes(), value));
    }

    fn flag(&mut self, name: &str, value: bool) {
        self.add(name, if value { "yes" } else { "no" });
    }

    fn end(self) {
        self.output.reply(|reply| reply.line(Line::End));
    }
}
