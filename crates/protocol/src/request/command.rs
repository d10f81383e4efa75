//! Which command a line is.

use crate::error_line::ErrorLine;
use crate::limits::Limits;
use crate::op::Op;
use crate::request::line::{Line, Parsed};
use crate::request::{classic, meta, retrieval};
use crate::token::word_len;

/// Parses a line. The command is what stands before the first space, so
/// that a line with a space in front is none of those below.
pub(crate) fn parse(line: &Line<'_>, limits: &Limits) -> Parsed {
    // Two bytes and a line end of two are the least that memcached takes.
    if line.len < 4 {
        return Parsed::error(ErrorLine::BadFormat, false);
    }
    let command_len = word_len(line.text);
    match &line.text[..command_len] {
        b"get" | b"gets" => retrieval::get(line),
        b"gat" | b"gats" => retrieval::get_and_touch(line),
        b"mg" => Parsed::of(meta::get(line)),
        b"ms" => meta::set(line, limits),
        b"md" => Parsed::of(meta::delete(line)),
        b"ma" => Parsed::of(meta::arithmetic(line)),
        b"me" => Parsed::of(meta::debug(line)),
        b"mn" => Parsed::Op(Op::MetaNoop),
        b"quit" => Parsed::Op(Op::Quit),
        b"version" => Parsed::Op(Op::Version),
        command => classic::parse(line, command, limits),
    }
}
