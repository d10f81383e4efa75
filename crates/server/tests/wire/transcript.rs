//! What a server said on one connection, as lines that can be compared and read.

use std::collections::HashMap;

use crate::binary;

/// All that one connection received.
#[derive(Debug)]
pub(crate) struct Conversation {
    /// Its number in the script; 0 stands for noted counters.
    pub(crate) connection: usize,
    /// Received, in order.
    pub(crate) bytes: Vec<u8>,
    /// How it ended.
    pub(crate) ending: Ending,
}

/// How a connection ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ending {
    /// The server closed it first.
    ClosedByServer,
    /// The client closed its side first, the server then the rest.
    ClosedAfterClient,
    /// As before, and the server had left a question without an answer.
    ClosedAfterSilence,
    /// The server went on after the client had closed its side.
    NeverClosed,
    /// Not a connection.
    None,
}

impl Conversation {
    /// Lines that are compared as if a server had said them.
    pub(crate) fn note(lines: Vec<String>) -> Self {
        let bytes = lines
            .iter()
            .flat_map(|line| [line.as_bytes(), b"\r\n"].concat())
            .collect();
        Self {
            connection: 0,
            bytes,
            ending: Ending::None,
        }
    }
}

/// Turns the conversations of one case into lines.
///
/// CAS values become `<cas1>`, `<cas2>` ... in the order in which they appear (the same value, the same name), but
/// for those that the script itself gives (`chosen`). Bodies longer than 100 bytes become their length and a hash.
pub(crate) fn lines(conversations: &[Conversation], chosen: &[u64]) -> Vec<(usize, String)> {
    let mut names = CasNames::new(chosen);
    let mut lines = Vec::new();
    for conversation in conversations {
        let mut reader = Reader {
            rest: &conversation.bytes,
            names: &mut names,
        };
        while !reader.rest.is_empty() {
            lines.push((conversation.connection, reader.line()));
        }
        let ending = match conversation.ending {
            Ending::ClosedByServer => "<closed by the server>",
            Ending::ClosedAfterSilence => "<a request was not answered>",
            Ending::NeverClosed => "<never closed>",
            Ending::ClosedAfterClient | Ending::None => continue,
        };
        lines.push((conversation.connection, ending.to_owned()));
    }
    lines
}

/// Names for CAS values, in the order in which they are first seen.
pub(crate) struct CasNames<'a> {
    chosen: &'a [u64],
    names: HashMap<u64, String>,
}

impl<'a> CasNames<'a> {
    /// `chosen` keep their digits.
    pub(crate) fn new(chosen: &'a [u64]) -> Self {
        CasNames {
            chosen,
            names: HashMap::new(),
        }
    }

    pub(crate) fn name(&mut self, digits: &str) -> String {
        match digits.parse::<u64>() {
            Ok(cas) if cas != 0 && !self.chosen.contains(&cas) => {
                let next = format!("<cas{}>", self.names.len() + 1);
                self.names.entry(cas).or_insert(next).clone()
            }
            _ => digits.to_owned(),
        }
    }
}

struct Reader<'a, 'b, 'c> {
    rest: &'a [u8],
    names: &'b mut CasNames<'c>,
}

impl Reader<'_, '_, '_> {
    /// Takes one line, and the body that it announces.
    fn line(&mut self) -> String {
        if self.rest.starts_with(b"\x81") {
            return binary::answer(&mut self.rest, self.names);
        }
        let end = self
            .rest
            .iter()
            .position(|byte| *byte == b'\n')
            .map_or(self.rest.len(), |at| at + 1);
        let (line, rest) = self.rest.split_at(end);
        self.rest = rest;
        let Some(line) = line.strip_suffix(b"\r\n") else {
            return format!("{} <without an end>", line.escape_ascii());
        };
        let text = line.escape_ascii().to_string();
        let words: Vec<&str> = text.split(' ').collect();
        match words.as_slice() {
            ["VALUE", key, flags, length] => {
                format!("VALUE {key} {flags} {length}{}", self.body(length))
            }
            ["VALUE", key, flags, length, cas] => {
                let cas = self.names.name(cas);
                format!("VALUE {key} {flags} {length} {cas}{}", self.body(length))
            }
            ["VA", length, flags @ ..] => {
                let flags = self.meta_flags(flags);
                format!("VA {length}{flags}{}", self.body(length))
            }
            [code @ ("HD" | "EN" | "NF" | "NS" | "EX"), flags @ ..] => {
                format!("{code}{}", self.meta_flags(flags))
            }
            ["ME", key, details @ ..] => format!("ME {key}{}", self.debug_details(details)),
            ["VERSION", ..] => "VERSION <version>".to_owned(),
            _ => text,
        }
    }

    fn body(&mut self, length: &str) -> String {
        let wanted = length.parse().unwrap_or(0_usize).saturating_add(2);
        let (body, rest) = self.rest.split_at(wanted.min(self.rest.len()));
        self.rest = rest;
        match body.strip_suffix(b"\r\n") {
            Some(body) => shown_body(body),
            None => format!(" | {} <cut short>", body.escape_ascii()),
        }
    }

    fn meta_flags(&mut self, flags: &[&str]) -> String {
        let mut text = String::new();
        for flag in flags {
            text.push(' ');
            match flag.strip_prefix('c') {
                Some(cas) => text.push_str(&format!("c{}", self.names.name(cas))),
                None => text.push_str(flag),
            }
        }
        text
    }

    /// A class and a size in memory are each server's own.
    fn debug_details(&mut self, details: &[&str]) -> String {
        let mut text = String::new();
        for detail in details {
            let (name, value) = detail.split_once('=').unwrap_or((detail, ""));
            let value = match name {
                "cas" => self.names.name(value),
                "cls" | "size" => "<own>".to_owned(),
                _ => value.to_owned(),
            };
            text.push_str(&format!(" {name}={value}"));
        }
        text
    }
}

/// A body as it stands behind the line or the answer that it belongs to.
pub(crate) fn shown_body(body: &[u8]) -> String {
    match body {
        // A blank at the end of a line would not survive many an editor.
        [start @ .., b' '] if start.len() < 100 => format!(" | {}\\x20", start.escape_ascii()),
        body if body.len() <= 100 => format!(" | {}", body.escape_ascii()),
        body => format!(" | <{} bytes, hash {:08x}>", body.len(), hash(body)),
    }
}

/// FNV-1a, folded to 32 bits: short, and the same in every run.
fn hash(bytes: &[u8]) -> u64 {
    let full = bytes.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    (full >> 32) ^ (full & 0xffff_ffff)
}

#[test]
fn a_conversation_becomes_readable_lines() {
    let said = |bytes: &[u8]| Conversation {
        connection: 1,
        bytes: bytes.to_vec(),
        ending: Ending::ClosedByServer,
    };
    let bytes = b"VALUE a 0 4 77\r\nEN\r\n\r\nHD c77 t5 kc9\r\nHD c78 c5\r\nVERSION 1\r\nVA 1 c77\r\nx\r\nlost";
    let lines: Vec<String> = lines(&[said(bytes)], &[5])
        .into_iter()
        .map(|(_, line)| line)
        .collect();
    let wanted = [
        "VALUE a 0 4 <cas1> | EN\\r\\n",
        "HD c<cas1> t5 kc9",
        "HD c<cas2> c5",
        "VERSION <version>",
        "VA 1 c<cas1> | x",
        "lost <without an end>",
        "<closed by the server>",
    ];
    assert_eq!(lines, wanted);
}
