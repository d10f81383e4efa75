//! The tokens of a Rust file: just enough of the language to tell names, comments and the rest
//! apart.
//!
//! Strings, characters and numbers are left out, because no rule reads them.

/// One token of a Rust file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Token<'t> {
    /// What it is.
    pub(crate) kind: Kind<'t>,
    /// Its line, counted from 1.
    pub(crate) line: usize,
}

/// What a token is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Kind<'t> {
    /// A name or a keyword.
    Name(&'t str),
    /// A sign; `::` is one.
    Sign(&'t str),
    /// A comment, including the signs that begin it.
    Comment(&'t str),
}

impl Kind<'_> {
    /// Whether it is this name or sign.
    pub(crate) fn is(&self, text: &str) -> bool {
        matches!(self, Kind::Name(own) | Kind::Sign(own) if *own == text)
    }
}

/// The tokens of a file.
pub(crate) fn tokens(text: &str) -> Vec<Token<'_>> {
    let mut reader = Reader {
        text,
        at: 0,
        line: 1,
    };
    std::iter::from_fn(|| reader.next()).collect()
}

/// The tokens of a file without comments and tests, and the names of modules that are declared only
/// for tests.
pub(crate) fn shipped_code(text: &str) -> (Vec<Token<'_>>, Vec<&str>) {
    let all = tokens(text).into_iter();
    let code: Vec<Token<'_>> = all
        .filter(|token| !matches!(token.kind, Kind::Comment(_)))
        .collect();
    let (mut kept, mut modules_of_tests) = (Vec::new(), Vec::new());
    let mut at = 0;
    while at < code.len() {
        let attribute = attribute_len(&code[at..]);
        if attribute == 0 {
            kept.push(code[at].clone());
            at += 1;
        } else if is_of_tests(&code[at..at + attribute]) {
            let item = at + attribute;
            let len = item_len(&code[item..]);
            modules_of_tests.extend(declared_module(&code[item..item + len]));
            at = item + len;
        } else {
            at += attribute;
        }
    }
    (kept, modules_of_tests)
}

/// The number of tokens of the attribute at the front; 0 if there is none.
fn attribute_len(code: &[Token<'_>]) -> usize {
    let is = |at: usize, sign: &str| code.get(at).is_some_and(|token| token.kind.is(sign));
    match is(0, "#") {
        true if is(1, "[") => 1 + group_len(&code[1..]),
        true if is(1, "!") && is(2, "[") => 2 + group_len(&code[2..]),
        _ => 0,
    }
}

/// Whether an attribute restricts what follows to tests: `#[test]` or `#[cfg(test)]`; `test` may be
/// inside `all`, but not inside `not`.
fn is_of_tests(attribute: &[Token<'_>]) -> bool {
    if attribute.get(2).is_some_and(|token| token.kind.is("test")) {
        return true;
    }
    // The names before the open brackets.
    let (mut open, mut last) = (Vec::new(), "");
    for token in &attribute[1..] {
        match token.kind {
            Kind::Name("test") if open.iter().all(|name| matches!(*name, "" | "cfg" | "all")) => {
                return open.contains(&"cfg");
            }
            Kind::Name(name) => last = name,
            Kind::Sign("(" | "[") => open.push(std::mem::take(&mut last)),
            Kind::Sign(")" | "]") => drop(open.pop()),
            _ => {}
        }
    }
    false
}

/// The number of tokens of the item at the front, up to its `;` or the end of its body.
fn item_len(code: &[Token<'_>]) -> usize {
    let mut at = 0;
    while at < code.len() {
        if code[at].kind.is("{") {
            return at + group_len(&code[at..]);
        }
        if code[at].kind.is(";") {
            return at + 1;
        }
        at += match code[at].kind.is("(") || code[at].kind.is("[") {
            true => group_len(&code[at..]),
            false => 1,
        };
    }
    at
}

/// The number of tokens from an opening bracket to the one that closes it, including both.
fn group_len(code: &[Token<'_>]) -> usize {
    let mut depth = 0_usize;
    for (at, token) in code.iter().enumerate() {
        match token.kind {
            Kind::Sign("(" | "[" | "{") => depth += 1,
            Kind::Sign(")" | "]" | "}") => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth == 0 {
            return at + 1;
        }
    }
    code.len()
}

/// The name in `mod name;`, whatever comes before it.
fn declared_module<'t>(item: &[Token<'t>]) -> Option<&'t str> {
    match item {
        [.., keyword, name, end] if keyword.kind.is("mod") && end.kind.is(";") => match name.kind {
            Kind::Name(name) => Some(name),
            _ => None,
        },
        _ => None,
    }
}

struct Reader<'t> {
    text: &'t str,
    at: usize,
    line: usize,
}

impl<'t> Reader<'t> {
    fn next(&mut self) -> Option<Token<'t>> {
        loop {
            let rest = &self.text[self.at..];
            let first = rest.chars().next()?;
            let line = self.line;
            let token = |kind| Some(Token { kind, line });
            if first.is_whitespace() {
                self.take(first.len_utf8());
            } else if rest.starts_with("//") {
                let len = rest.find('\n').unwrap_or(rest.len());
                return token(Kind::Comment(self.take(len)));
            } else if rest.starts_with("/*") {
                return token(Kind::Comment(self.take(block_comment_len(rest))));
            } else if let Some(len) = literal_len(rest) {
                self.take(len);
            } else if first == '_' || first.is_alphabetic() {
                let name = self.take(name_len(rest));
                return token(Kind::Name(name.trim_start_matches("r#")));
            } else if first.is_ascii_digit() {
                self.take(name_len(rest));
            } else if rest.starts_with("::") {
                return token(Kind::Sign(self.take(2)));
            } else {
                return token(Kind::Sign(self.take(first.len_utf8())));
            }
        }
    }

    fn take(&mut self, len: usize) -> &'t str {
        let taken = &self.text[self.at..self.at + len];
        self.line += taken.matches('\n').count();
        self.at += len;
        taken
    }
}

fn name_len(rest: &str) -> usize {
    let prefix = if rest.starts_with("r#") { 2 } else { 0 };
    let is_part = |c: char| c == '_' || c.is_alphanumeric();
    let name = &rest[prefix..];
    prefix + name.find(|c| !is_part(c)).unwrap_or(name.len())
}

/// The length in bytes of a block comment, including nested ones.
fn block_comment_len(rest: &str) -> usize {
    let (mut at, mut depth) = (0, 0_usize);
    while at < rest.len() {
        let here = &rest.as_bytes()[at..];
        if here.starts_with(b"/*") {
            depth += 1;
            at += 2;
        } else if here.starts_with(b"*/") {
            depth -= 1;
            at += 2;
        } else {
            at += 1;
        }
        if depth == 0 {
            break;
        }
    }
    at
}

/// The length in bytes of the string or character at the front, if there is one. Of a lifetime,
/// only the quotation mark counts.
fn literal_len(rest: &str) -> Option<usize> {
    let unprefixed = ["br", "cr", "b", "c", "r", ""].iter().find_map(|prefix| {
        let body = rest.strip_prefix(prefix)?;
        let raw = prefix.ends_with('r');
        let is_string =
            body.starts_with('"') || raw && body.trim_start_matches('#').starts_with('"');
        let is_character = body.starts_with('\'') && !raw;
        (is_string || is_character).then_some((body, raw, prefix.len()))
    })?;
    let (body, raw, prefix) = unprefixed;
    let len = match (raw, body.starts_with('\'')) {
        (true, _) => raw_string_len(body),
        (false, true) => character_len(body),
        (false, false) => quoted_len(body, '"'),
    };
    Some(prefix + len)
}

fn raw_string_len(body: &str) -> usize {
    let hashes = body.len() - body.trim_start_matches('#').len();
    let end = format!("\"{}", "#".repeat(hashes));
    let inside = &body[hashes + 1..];
    let len = inside.find(&end).map_or(inside.len(), |at| at + end.len());
    hashes + 1 + len
}

/// The length in bytes of `'x'`; 1 if it is the beginning of a lifetime.
fn character_len(body: &str) -> usize {
    let mut inside = body[1..].chars();
    match inside.next() {
        Some('\\') => quoted_len(body, '\''),
        Some(c) if inside.next() == Some('\'') => 2 + c.len_utf8(),
        _ => 1,
    }
}

fn quoted_len(body: &str, quote: char) -> usize {
    let mut escaped = false;
    for (at, c) in body.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            c if c == quote => return at + 1,
            _ => {}
        }
    }
    body.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(text: &str) -> Vec<&str> {
        let tokens = tokens(text).into_iter();
        tokens
            .filter_map(|token| match token.kind {
                Kind::Name(name) => Some(name),
                _ => None,
            })
            .collect()
    }

    #[test]
    fn strings_characters_and_comments_hold_no_names() {
        assert_eq!(names(r#"a "b \" c" d"#), ["a", "d"]);
        assert_eq!(
            names(r###"a r#"b " c"# d r"e\" f b"g" br#"h"# c"i""###),
            ["a", "d", "f"]
        );
        assert_eq!(
            names(r"a 'b' c '\'' d b'e' f '\u{1f}' g"),
            ["a", "c", "d", "f", "g"]
        );
        assert_eq!(
            names("a<'b> // c\n d /* e /* f */ g */ h"),
            ["a", "b", "d", "h"]
        );
        assert_eq!(names("r#type 0xff 1_000usize 'static"), ["type", "static"]);
    }

    #[test]
    fn lines_are_counted_through_strings_and_comments() {
        let text = "\"a\n\" /* \n */ b // c\nd";
        let lines: Vec<usize> = tokens(text).iter().map(|token| token.line).collect();
        assert_eq!(lines, [2, 3, 3, 4]);
    }

    #[test]
    fn code_of_tests_is_left_out() {
        let text =
            "use a; #[cfg(test)] mod b; #[cfg(all(test, loom))] pub(crate) mod c { fn d() {} }
            #[test] fn e(f: [u8; 3]) { g(); } #[cfg(not(test))] fn h() {} #[inline] fn i() {}
            #[cfg(all(not(loom), test))] fn m() {} #[cfg(any(test, x))] fn n() {} #[test_case] fn o() {}
            #[cfg(test)] use j::{k}; fn l() {}";
        let (code, modules) = shipped_code(text);
        let names: Vec<&str> = code
            .iter()
            .filter_map(|token| match token.kind {
                Kind::Name(name) if name.len() == 1 => Some(name),
                _ => None,
            })
            .collect();
        assert_eq!(names, ["a", "h", "i", "n", "o", "l"]);
        assert_eq!(modules, ["b"]);
    }
}
