//! Script files: cases, and the lines of each.
//!
//! ```text
//! # RFC 9293, 3.10.7.4: what the file is about
//! ipv4                     only over IPv4 (`ipv6`: only over IPv6); else over both
//!
//! == the name of a case
//! listen                   one line is one turn of the stack; `;` joins what happens in one
//! < SYN seq 0 <mss 1460>
//! > SYN ACK seq 0 ack 1
//! ```

use std::path::{Path, PathBuf};

/// A line that says something.
#[derive(Clone, Debug)]
pub(crate) struct Line {
    /// From 1.
    pub(crate) number: usize,
    pub(crate) text: String,
}

/// A case of a file.
#[derive(Clone, Debug)]
pub(crate) struct Case {
    /// Relative to the folder of the scripts.
    pub(crate) file: String,
    pub(crate) name: String,
    /// Over IPv4, over IPv6.
    pub(crate) families: Vec<bool>,
    pub(crate) lines: Vec<Line>,
}

/// All script files below a folder, in order.
pub(crate) fn files(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder).expect("the folder of the scripts") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            files.extend(self::files(&path));
        } else if path.extension().is_some_and(|end| end == "pkt") {
            files.push(path);
        }
    }
    files.sort();
    files
}

/// The cases of a file.
pub(crate) fn cases(file: &str, text: &str) -> Result<Vec<Case>, String> {
    if !text.starts_with("# ") {
        return Err(format!(
            "{file}: its first line does not say what it is about"
        ));
    }
    let mut families = vec![false, true];
    let mut cases: Vec<Case> = Vec::new();
    for (at, line) in text.lines().enumerate() {
        let number = at + 1;
        let wrong = |what: &str| format!("{file}:{number}: {what}");
        let line = line.split(" # ").next().unwrap_or_default().trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        if let Some(name) = line.strip_prefix("== ") {
            if cases.iter().any(|case| case.name == name) {
                return Err(wrong("a case of this name is there"));
            }
            cases.push(Case {
                file: file.to_owned(),
                name: name.to_owned(),
                families: families.clone(),
                lines: Vec::new(),
            });
            continue;
        }
        match (cases.last_mut(), line) {
            (None, "ipv4") => families = vec![false],
            (None, "ipv6") => families = vec![true],
            (None, _) => return Err(wrong("no case is begun")),
            (Some(case), text) => {
                let text = text.to_owned();
                case.lines.push(Line { number, text });
            }
        }
    }
    for case in &mut cases {
        case.lines = unrolled(&case.lines).map_err(|what| format!("{file}: {what}"))?;
    }
    match cases.is_empty() {
        true => Err(format!("{file}: there is no case")),
        false => Ok(cases),
    }
}

/// The lines with those between `repeat N` and `end` as often as that says. `$` in them is the
/// round, from 0.
fn unrolled(lines: &[Line]) -> Result<Vec<Line>, String> {
    let mut out = Vec::new();
    let mut at = 0;
    while let Some(line) = lines.get(at) {
        at += 1;
        let Some(count) = line.text.strip_prefix("repeat ") else {
            out.push(line.clone());
            continue;
        };
        let count: usize = count.parse().map_err(|_| "repeat needs a number")?;
        let len = lines[at..].iter().position(|line| line.text == "end");
        let len = len.ok_or("repeat has no end")?;
        for round in 0..count {
            for line in &lines[at..at + len] {
                out.push(Line {
                    number: line.number,
                    text: match line.text.contains("flood ") {
                        true => line.text.clone(),
                        false => counted(&line.text, round)?,
                    },
                });
            }
        }
        at += len + 1;
    }
    Ok(out)
}

/// `$` stands for the round, `{A+B*$}` and `{A-B*$}` for a number that grows or shrinks with it.
pub(crate) fn counted(text: &str, round: usize) -> Result<String, String> {
    let mut out = String::new();
    let mut rest = text;
    while let Some(open) = rest.find('{') {
        let close = rest[open..].find('}').ok_or("no } is there for {")? + open;
        let inner = &rest[open + 1..close];
        let parts = inner.split_once(['+', '-']).and_then(|(base, step)| {
            let step: usize = step.strip_suffix("*$")?.parse().ok()?;
            let base: usize = base.parse().ok()?;
            match inner.contains('-') {
                true => base.checked_sub(step * round),
                false => Some(base + step * round),
            }
        });
        out += &rest[..open];
        out += &parts.ok_or("it is written {A+B*$} or {A-B*$}")?.to_string();
        rest = &rest[close + 1..];
    }
    Ok(out + &rest.replace('$', &round.to_string()))
}
