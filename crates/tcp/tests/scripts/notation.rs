//! A frame as a script writes it, and as one that left is shown.
//!
//! ```text
//! ACK PSH seq 1 ack 1 win 512 len 10 <ts 100 0, sack 21:31> [vlan 7]
//! └─ what ┘└───────── fields ───────┘└────── options ──────┘└ tags ┘
//! ```

use std::collections::BTreeMap;
use std::fmt;

/// What is not pinned.
pub(crate) const ANY: &str = "*";

/// Words that name the word behind them.
const FIELDS: [&str; 11] = [
    "seq", "ack", "win", "len", "urgent", "mtu", "for", "tell", "is-at", "id", "delay",
];

/// A frame in words.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Notation {
    /// Flags, or the kind of the message.
    pub(crate) what: Vec<String>,
    pub(crate) fields: BTreeMap<String, String>,
    /// TCP's options; none where they are not pinned.
    pub(crate) options: Option<Vec<String>>,
    /// All that is unusual about the frame.
    pub(crate) tags: Vec<String>,
    /// The payload, where it is written out.
    pub(crate) text: Option<Vec<u8>>,
}

/// Cuts a line into words: those in quotes, in `<…>` and in `[…]` are one each.
pub(crate) fn words(line: &str) -> Result<Vec<String>, String> {
    let mut words = Vec::new();
    let mut rest = line.trim();
    while let Some(first) = rest.chars().next() {
        let close = match first {
            '"' => Some('"'),
            '[' => Some(']'),
            '<' if !rest.starts_with("< ") => Some('>'),
            _ => None,
        };
        let len = match close {
            Some(close) => {
                let at = rest[1..].find(close);
                at.ok_or_else(|| format!("no {close} is there for {first}"))? + 2
            }
            None => rest.find(char::is_whitespace).unwrap_or(rest.len()),
        };
        words.push(rest[..len].to_owned());
        rest = rest[len..].trim_start();
    }
    Ok(words)
}

/// The parts of what stands in brackets.
fn parts(inner: &str) -> Vec<String> {
    let parts = inner.split(',').map(str::trim);
    parts
        .filter(|part| !part.is_empty())
        .map(str::to_owned)
        .collect()
}

impl Notation {
    /// Reads what stands behind `<` or `>`.
    pub(crate) fn read(words: &[String]) -> Result<Notation, String> {
        let mut notation = Notation::default();
        let mut words = words.iter();
        while let Some(word) = words.next() {
            let inner = || &word[1..word.len() - 1];
            if FIELDS.contains(&word.as_str()) {
                let value = words.next().ok_or_else(|| format!("no value for {word}"))?;
                notation.fields.insert(word.clone(), value.clone());
            } else if word.starts_with('<') {
                notation.options = Some(parts(inner()));
            } else if word.starts_with('[') {
                notation.tags.extend(parts(inner()));
            } else if word.starts_with('"') {
                notation.text = Some(inner().as_bytes().to_vec());
            } else {
                notation.what.push(word.clone());
            }
        }
        Ok(notation)
    }

    /// A field's value.
    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        self.fields.get(name).map(String::as_str)
    }

    /// A field that is a number.
    pub(crate) fn number(&self, name: &str) -> Result<Option<i64>, String> {
        self.field(name).map(number).transpose()
    }

    /// The rest of a tag that begins so.
    pub(crate) fn tag(&self, name: &str) -> Option<&str> {
        self.tags.iter().find_map(|tag| {
            let rest = tag.strip_prefix(name)?;
            (rest.is_empty() || rest.starts_with(' ')).then_some(rest.trim())
        })
    }

    pub(crate) fn has(&self, word: &str) -> bool {
        self.what.iter().any(|what| what == word)
    }

    /// Whether a frame that left is the one that is written here.
    pub(crate) fn is_met_by(&self, frame: &Notation) -> bool {
        self.meets_what(frame)
            && self.meets_fields(frame)
            && self.meets_options(frame)
            && sorted(&self.tags) == sorted(&frame.tags)
            && self
                .text
                .as_ref()
                .is_none_or(|text| Some(text) == frame.text.as_ref())
    }

    /// PSH counts where it is written, or `no-PSH`.
    fn meets_what(&self, frame: &Notation) -> bool {
        let pins_push = self.has("PSH") || self.has("no-PSH");
        let strip = |what: &[String]| {
            let kept = what
                .iter()
                .filter(|word| *word != "no-PSH" && (pins_push || *word != "PSH"));
            sorted(&kept.cloned().collect::<Vec<String>>())
        };
        strip(&self.what) == strip(&frame.what)
    }

    /// The window counts where it is written; all else is what it is by default, or is written.
    fn meets_fields(&self, frame: &Notation) -> bool {
        let is_known = self.fields.keys().all(|key| frame.fields.contains_key(key));
        is_known
            && frame
                .fields
                .iter()
                .all(|(key, found)| match (self.field(key), key.as_str()) {
                    (Some(wanted), _) => is_value(wanted, found),
                    (None, "win") => true,
                    (None, "ack") => !frame.has("ACK"),
                    (None, "len" | "urgent") => found == "0" || key == "len" && self.text.is_some(),
                    (None, _) => false,
                })
    }

    fn meets_options(&self, frame: &Notation) -> bool {
        let Some(wanted) = &self.options else {
            return true;
        };
        let found = frame.options.as_deref().unwrap_or_default();
        let is_met = |option: &String| {
            let meets = |found: &String| {
                let (wanted, found) = (option.split(' '), found.split(' '));
                wanted.clone().count() == found.clone().count()
                    && wanted
                        .zip(found)
                        .all(|(wanted, found)| is_value(wanted, found))
            };
            found.iter().any(meets)
        };
        wanted.len() == found.len() && wanted.iter().all(is_met)
    }
}

/// Whether a word is the one that is wanted: itself, anything for `*`, or a number of a range.
pub(crate) fn is_value(wanted: &str, found: &str) -> bool {
    let is_within = || {
        let (least, most) = wanted.split_once("..")?;
        let range = least.parse::<i64>().ok()?..=most.parse::<i64>().ok()?;
        Some(range.contains(&found.parse().ok()?))
    };
    wanted == ANY || wanted == found || is_within() == Some(true)
}

fn sorted(words: &[String]) -> Vec<String> {
    let mut words = words.to_vec();
    words.sort();
    words
}

/// Reads a number.
pub(crate) fn number(text: &str) -> Result<i64, String> {
    text.parse().map_err(|_| format!("{text} is no number"))
}

/// Reads a number that fits.
pub(crate) fn small<N: TryFrom<i64>>(text: &str) -> Result<N, String> {
    N::try_from(number(text)?).map_err(|_| format!("{text} is too large or too small"))
}

/// Reads seconds, as microseconds.
pub(crate) fn micros(text: &str) -> Result<u64, String> {
    let (whole, part) = text.split_once('.').unwrap_or((text, ""));
    let part = format!("{part:0<6}");
    let whole: u64 = small(whole)?;
    let part: u64 = small(part.get(..6).unwrap_or("0"))?;
    Ok(whole * 1_000_000 + part)
}

impl fmt::Display for Notation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut words = self.what.clone();
        let is_shown = |key: &str, value: &str| {
            !(matches!(key, "len" | "urgent") && value == "0" || key == "ack" && !self.has("ACK"))
        };
        for key in FIELDS {
            if let Some(value) = self.field(key).filter(|value| is_shown(key, value)) {
                words.push(format!("{key} {value}"));
            }
        }
        if let Some(text) = &self.text
            && text.len() <= 64
            && text.iter().all(|byte| (32..127).contains(byte))
        {
            words.push(format!("\"{}\"", String::from_utf8_lossy(text)));
        }
        if let Some(options) = self.options.as_ref().filter(|all| !all.is_empty()) {
            words.push(format!("<{}>", options.join(", ")));
        }
        if !self.tags.is_empty() {
            words.push(format!("[{}]", self.tags.join(", ")));
        }
        f.write_str(&words.join(" "))
    }
}
