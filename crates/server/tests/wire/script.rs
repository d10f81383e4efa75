//! The text format of a script, read into steps.

use std::fs;
use std::path::Path;
use std::time::Duration;

use crate::binary;

/// One file of `tests/scripts`.
#[derive(Debug)]
pub(crate) struct Script {
    /// The file's name without `.txt`.
    pub(crate) name: String,
    /// Flags that both servers get, from the line `flags:`.
    pub(crate) flags: Vec<String>,
    /// Whether memcached does not know what it is about, from the line `only: coua`. Then coua stands
    /// on both sides.
    pub(crate) is_ours: bool,
    /// In the order of the file; keys that a case stores are still there in the next.
    pub(crate) cases: Vec<Case>,
}

impl Script {
    /// Whether what it says depends on time.
    pub(crate) fn sleeps(&self) -> bool {
        let mut steps = self.cases.iter().flat_map(|case| &case.steps);
        steps.any(|step| matches!(step, Step::Sleep(_)))
    }
}

/// Steps on fresh connections, up to the end of which both servers must have said the same.
#[derive(Debug)]
pub(crate) struct Case {
    /// What stands behind `==`.
    pub(crate) name: String,
    /// Where it stands in the file, from 1.
    pub(crate) line: usize,
    /// What to do, in order.
    pub(crate) steps: Vec<Step>,
    /// What the script says that each connection receives: (connection, line). May be empty.
    pub(crate) expected: Vec<(usize, String)>,
    /// The answer depends on how the requests are cut, so that the script can expect nothing.
    pub(crate) varies: bool,
}

/// One thing that a client does.
#[derive(Debug)]
pub(crate) enum Step {
    /// Writes to a connection, which is opened by its first use.
    Send {
        /// Number of the connection, from 1.
        connection: usize,
        /// What is written.
        pieces: Vec<Piece>,
    },
    /// Waits until everything sent is answered, then for this long.
    Sleep(Duration),
    /// Waits until everything sent is answered, then notes these lines of `stats`.
    Counters(Vec<String>),
    /// Waits until everything sent is answered, then closes the connection, which may be opened again.
    Hang {
        /// Number of the connection, from 1.
        connection: usize,
    },
}

/// Part of what is sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Piece {
    /// These bytes.
    Bytes(Vec<u8>),
    /// The CAS value that a key has at this moment, 0 where there is none, plus `add`.
    CasOf {
        /// The key.
        key: String,
        /// Added, wrapping: -1 is the value before it.
        add: i64,
    },
    /// The same value as it stands in a binary request.
    BinaryCasOf {
        /// The key.
        key: String,
    },
}

/// Reads every `*.txt` of the folder, in the order of the names.
///
/// # Panics
/// On a file that cannot be read or a line that cannot be understood: the message names both.
pub(crate) fn load_folder(folder: &Path) -> Vec<Script> {
    let mut files: Vec<_> = fs::read_dir(folder)
        .unwrap_or_else(|error| panic!("{}: {error}", folder.display()))
        .map(|entry| entry.expect("a folder's entry").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "txt"))
        .collect();
    files.sort();
    files
        .iter()
        .map(|path| {
            let name = path
                .file_stem()
                .expect("a file has a name")
                .to_string_lossy();
            let text = fs::read_to_string(path)
                .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
            parse(&name, &text).unwrap_or_else(|why| panic!("{}: {why}", path.display()))
        })
        .collect()
}

/// Reads one script; the error names the line.
pub(crate) fn parse(name: &str, text: &str) -> Result<Script, String> {
    let mut script = Script {
        name: name.to_owned(),
        flags: Vec::new(),
        is_ours: false,
        cases: Vec::new(),
    };
    for (number, line) in (1..).zip(text.lines()) {
        parse_line(&mut script, number, line)
            .map_err(|why| format!("line {number}: {why}: {line}"))?;
    }
    Ok(script)
}

fn parse_line(script: &mut Script, number: usize, line: &str) -> Result<(), String> {
    if line.trim().is_empty() || line.starts_with('#') {
        return Ok(());
    }
    if let Some(flags) = line.strip_prefix("flags:") {
        script.flags = flags.split_whitespace().map(str::to_owned).collect();
        return Ok(());
    }
    if line == "only: coua" {
        script.is_ours = true;
        return Ok(());
    }
    if let Some(name) = line.strip_prefix("== ") {
        let case = Case {
            name: name.trim().to_owned(),
            line: number,
            steps: Vec::new(),
            expected: Vec::new(),
            varies: false,
        };
        if script.cases.iter().any(|other| other.name == case.name) {
            return Err("a second case of this name".to_owned());
        }
        script.cases.push(case);
        return Ok(());
    }
    let case = script
        .cases
        .last_mut()
        .ok_or("a step before the first case")?;
    let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
    match word {
        "sleep" => {
            let milliseconds = rest.trim().parse().map_err(|_| "milliseconds expected")?;
            case.steps
                .push(Step::Sleep(Duration::from_millis(milliseconds)));
        }
        "varies" => case.varies = true,
        "sync" => case.steps.push(Step::Sleep(Duration::ZERO)),
        "counters" => case.steps.push(Step::Counters(
            rest.split_whitespace().map(str::to_owned).collect(),
        )),
        "hang" => {
            let connection = rest
                .trim()
                .parse()
                .map_err(|_| "a connection's number expected")?;
            case.steps.push(Step::Hang { connection });
        }
        _ => parse_talk(case, line)?,
    }
    Ok(())
}

/// A line with `>` or `<`: `2x500>| text` sends `text` without a line's end, 500 times, on connection 2.
fn parse_talk(case: &mut Case, line: &str) -> Result<(), String> {
    let at = line
        .find(['>', '<'])
        .ok_or("neither >, <, nor a word that is known")?;
    let (prefix, arrow_and_text) = line.split_at(at);
    let (connection, times) = prefix.split_once('x').unwrap_or((prefix, "1"));
    let connection = match connection {
        "" => 1,
        number => number
            .parse()
            .map_err(|_| "a connection's number expected")?,
    };
    let times: usize = times.parse().map_err(|_| "a count expected behind x")?;
    let (arrow, rest) = arrow_and_text.split_at(1);
    let raw = rest.starts_with('|');
    let text = if raw { &rest[1..] } else { rest };
    let text = text.strip_prefix(' ').unwrap_or(text);
    if arrow == "<" {
        for _ in 0..times {
            case.expected.push((connection, text.to_owned()));
        }
        return Ok(());
    }
    let once = match text.strip_prefix('@') {
        Some(request) => binary::request(request)?,
        None => {
            let mut pieces = parse_pieces(text)?;
            if !raw {
                pieces.push(Piece::Bytes(b"\r\n".to_vec()));
            }
            pieces
        }
    };
    let pieces = join((0..times).flat_map(|_| once.iter().cloned()));
    case.steps.push(Step::Send { connection, pieces });
    Ok(())
}

/// Resolves `\r`, `\n`, `\t`, `\0`, `\\`, `\{`, `\$`, `\xNN`, `{text*count}` and `${cas key+1}`.
pub(crate) fn parse_pieces(text: &str) -> Result<Vec<Piece>, String> {
    let mut pieces = Vec::new();
    let mut bytes = Vec::new();
    let mut rest = text;
    while let Some(character) = rest.chars().next() {
        if let Some(inside) = rest.strip_prefix("${cas ") {
            let (inside, after) = inside.split_once('}').ok_or("} expected")?;
            let (key, add) = match inside.find(['+', '-']) {
                Some(at) => (
                    &inside[..at],
                    inside[at..]
                        .parse()
                        .map_err(|_| "a number expected behind the sign")?,
                ),
                None => (inside, 0),
            };
            pieces.push(Piece::Bytes(std::mem::take(&mut bytes)));
            pieces.push(Piece::CasOf {
                key: key.trim().to_owned(),
                add,
            });
            rest = after;
        } else if let Some(inside) = rest.strip_prefix('{') {
            let (inside, after) = inside.split_once('}').ok_or("} expected")?;
            let (pattern, count) = inside.rsplit_once('*').ok_or("{text*count} expected")?;
            let count: usize = count.parse().map_err(|_| "a count expected behind *")?;
            let mut pattern_bytes = Vec::new();
            unescape(pattern, &mut pattern_bytes)?;
            for _ in 0..count {
                bytes.extend_from_slice(&pattern_bytes);
            }
            rest = after;
        } else if character == '\\' {
            rest = unescape_one(rest, &mut bytes)?;
        } else {
            bytes.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
            rest = &rest[character.len_utf8()..];
        }
    }
    pieces.push(Piece::Bytes(bytes));
    Ok(join(pieces))
}

fn unescape(text: &str, bytes: &mut Vec<u8>) -> Result<(), String> {
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        if first == '\\' {
            rest = unescape_one(rest, bytes)?;
        } else {
            bytes.extend_from_slice(first.encode_utf8(&mut [0; 4]).as_bytes());
            rest = &rest[first.len_utf8()..];
        }
    }
    Ok(())
}

/// Takes one escape off the front of `text` and gives what is left.
fn unescape_one<'a>(text: &'a str, bytes: &mut Vec<u8>) -> Result<&'a str, String> {
    let code = text
        .as_bytes()
        .get(1)
        .ok_or("something expected behind \\")?;
    let byte = match code {
        b'r' => b'\r',
        b'n' => b'\n',
        b't' => b'\t',
        b'0' => 0,
        b'\\' | b'{' | b'}' | b'$' => *code,
        b'x' => {
            let digits = text.get(2..4).ok_or("two digits expected behind \\x")?;
            bytes.push(
                u8::from_str_radix(digits, 16).map_err(|_| "two digits expected behind \\x")?,
            );
            return Ok(&text[4..]);
        }
        _ => return Err("an escape that is not known".to_owned()),
    };
    bytes.push(byte);
    Ok(&text[2..])
}

/// Puts neighbouring bytes together and leaves empty pieces out.
pub(crate) fn join(pieces: impl IntoIterator<Item = Piece>) -> Vec<Piece> {
    let mut joined: Vec<Piece> = Vec::new();
    for piece in pieces {
        match (joined.last_mut(), piece) {
            (_, Piece::Bytes(bytes)) if bytes.is_empty() => {}
            (Some(Piece::Bytes(last)), Piece::Bytes(bytes)) => last.extend_from_slice(&bytes),
            (_, piece) => joined.push(piece),
        }
    }
    joined
}

#[test]
fn every_form_of_a_line_is_read() {
    let text = "# a comment\nflags: -I 2m\n== one\n> set {ab*2} 0 0 1\n2x2>| \\x00\\r\n2< END\nsleep 5\n> ${cas k-1}x\n";
    let script = parse("name", text).expect("it is well formed");
    assert_eq!(script.flags, ["-I", "2m"]);
    let case = &script.cases[0];
    assert_eq!((case.name.as_str(), case.line), ("one", 3));
    assert_eq!(case.expected, [(2, "END".to_owned())]);
    let sent: Vec<_> = case
        .steps
        .iter()
        .filter_map(|step| match step {
            Step::Send { connection, pieces } => Some((*connection, pieces.clone())),
            _ => None,
        })
        .collect();
    assert_eq!(
        sent[0],
        (1, vec![Piece::Bytes(b"set abab 0 0 1\r\n".to_vec())])
    );
    assert_eq!(sent[1], (2, vec![Piece::Bytes(b"\0\r\0\r".to_vec())]));
    let cas = Piece::CasOf {
        key: "k".to_owned(),
        add: -1,
    };
    assert_eq!(sent[2], (1, vec![cas, Piece::Bytes(b"x\r\n".to_vec())]));
}

#[test]
fn what_is_not_understood_is_named_with_its_line() {
    for text in [
        "> a\n",
        "== a\nfoo\n",
        "== a\n> \\q\n",
        "== a\n> {a\n",
        "== a\n> {a}\n",
        "== a\n== a\n",
    ] {
        let why = parse("name", text).expect_err(text);
        assert!(why.starts_with("line "), "{why}");
    }
}
