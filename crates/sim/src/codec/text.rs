//! The classic and the meta commands.

use std::collections::VecDeque;

use super::Read;
use crate::request::{Answer, Form, Found, Mode, Request, SentRequest};

/// The longest line of an answer, in bytes.
const LINE_LEN_MAX: usize = 2048;

pub(super) fn classic(asked: &SentRequest, names: &[Vec<u8>]) -> Vec<u8> {
    let noreply = if asked.quiet { " noreply" } else { "" };
    let mut out = Vec::new();
    match &asked.request {
        Request::Get { keys, cas, touch } => {
            out.extend(match (cas, touch) {
                (false, None) => &b"get"[..],
                (true, None) => b"gets",
                (false, Some(_)) => b"gat",
                (true, Some(_)) => b"gats",
            });
            if let Some(exptime) = touch {
                out.extend(format!(" {exptime}").into_bytes());
            }
            for &key in keys {
                out.push(b' ');
                out.extend(&names[key]);
            }
        }
        Request::Store {
            key,
            mode,
            value,
            flags,
            exptime,
        } => {
            let (word, cas) = match mode {
                Mode::Set => ("set", String::new()),
                Mode::Add => ("add", String::new()),
                Mode::Replace => ("replace", String::new()),
                Mode::Append => ("append", String::new()),
                Mode::Prepend => ("prepend", String::new()),
                Mode::Cas(cas) => ("cas", format!(" {cas}")),
            };
            command(&mut out, word, &names[*key]);
            let len = value.len();
            out.extend(format!(" {flags} {exptime} {len}{cas}{noreply}\r\n").into_bytes());
            out.extend(&value[..]);
        }
        Request::Delete { key } => {
            command(&mut out, "delete", &names[*key]);
            out.extend(noreply.as_bytes());
        }
        Request::Count {
            key,
            delta,
            decrement,
            ..
        } => {
            command(
                &mut out,
                if *decrement { "decr" } else { "incr" },
                &names[*key],
            );
            out.extend(format!(" {delta}{noreply}").into_bytes());
        }
        Request::Touch { key, exptime } => {
            command(&mut out, "touch", &names[*key]);
            out.extend(format!(" {exptime}{noreply}").into_bytes());
        }
        Request::Flush { delay: 0 } => out.extend(format!("flush_all{noreply}").into_bytes()),
        Request::Flush { delay } => out.extend(format!("flush_all {delay}{noreply}").into_bytes()),
        Request::Fixed { send, .. } => return send.clone(),
        Request::Lines { send } => out.extend(*send),
        Request::Quit => out.extend(b"quit"),
    }
    out.extend(b"\r\n");
    out
}

fn command(out: &mut Vec<u8>, word: &str, key: &[u8]) {
    out.extend(word.as_bytes());
    out.push(b' ');
    out.extend(key);
}

pub(super) fn meta(asked: &SentRequest, names: &[Vec<u8>]) -> Vec<u8> {
    let mut out = Vec::new();
    let end = format!(
        " O{}{}\r\n",
        asked.opaque,
        if asked.quiet { " q" } else { "" }
    );
    match &asked.request {
        Request::Get { keys, cas, touch } => {
            command(&mut out, "mg", &names[keys[0]]);
            // Whether the value is asked for follows from the opaque's number.
            out.extend(if asked.opaque.is_multiple_of(5) {
                &b" s f t"[..]
            } else {
                b" v f t"
            });
            if *cas {
                out.extend(b" k c");
            }
            if let Some(exptime) = touch {
                out.extend(format!(" T{exptime}").into_bytes());
            }
            out.extend(end.as_bytes());
        }
        Request::Store {
            key,
            mode,
            value,
            flags,
            exptime,
        } => {
            command(&mut out, "ms", &names[*key]);
            let mode = match mode {
                Mode::Set => String::new(),
                Mode::Add => " ME".to_owned(),
                Mode::Replace => " MR".to_owned(),
                Mode::Append => " MA".to_owned(),
                Mode::Prepend => " MP".to_owned(),
                Mode::Cas(cas) => format!(" C{cas}"),
            };
            let len = value.len();
            out.extend(format!(" {len} c F{flags} T{exptime}{mode}{end}").into_bytes());
            out.extend(&value[..]);
            out.extend(b"\r\n");
        }
        Request::Delete { key } => {
            command(&mut out, "md", &names[*key]);
            out.extend(end.as_bytes());
        }
        Request::Count {
            key,
            delta,
            decrement,
            initial,
        } => {
            command(&mut out, "ma", &names[*key]);
            let mode = if *decrement { "D" } else { "I" };
            let initial = initial.map_or_else(String::new, |(number, exptime)| {
                format!(" N{exptime} J{number}")
            });
            out.extend(format!(" v c D{delta} M{mode}{initial}{end}").into_bytes());
        }
        // These have no meta form.
        _ => return classic(asked, names),
    }
    out
}

pub(super) fn read(bytes: &[u8], waiting: &VecDeque<SentRequest>) -> Result<Option<Read>, String> {
    let Some(line) = line(bytes)? else {
        return Ok(None);
    };
    let to = match opaque(line) {
        Some(opaque) => waiting.iter().position(|asked| asked.opaque == opaque),
        None => waiting.iter().position(|asked| !asked.quiet),
    };
    let (Some(to), shown) = (to, line.escape_ascii()) else {
        return Err(format!("nothing asked for this: {}", line.escape_ascii()));
    };
    let asked = &waiting[to];
    let read = match asked.form {
        Form::Meta => read_meta(bytes, line, asked),
        _ => read_classic(bytes, line, &asked.request),
    };
    let Some((answer, len)) =
        read.map_err(|why| format!("{why} as an answer to {}: {shown}", asked.request.name()))?
    else {
        return Ok(None);
    };
    Ok(Some(Read { to, answer, len }))
}

/// An answer and its length; `None` where it is not whole; or what is wrong with it.
type Reading = Result<Option<(Answer, usize)>, &'static str>;

/// The first line, without its line end.
fn line(bytes: &[u8]) -> Result<Option<&[u8]>, String> {
    let front = &bytes[..bytes.len().min(LINE_LEN_MAX)];
    match front.windows(2).position(|two| two == b"\r\n") {
        Some(at) => Ok(Some(&bytes[..at])),
        None if bytes.len() < LINE_LEN_MAX => Ok(None),
        None => Err(format!("no line: {}", front[..64].escape_ascii())),
    }
}

fn opaque(line: &[u8]) -> Option<u32> {
    let is_meta = line.len() > 2 && line[2] == b' ' && line[..2].is_ascii();
    let words = line.split(|&byte| byte == b' ').skip(1);
    let mut opaques = words.filter(|word| word.first() == Some(&b'O'));
    let word = opaques.next().filter(|_| is_meta)?;
    std::str::from_utf8(&word[1..]).ok()?.parse().ok()
}

fn read_classic(bytes: &[u8], line: &[u8], request: &Request) -> Reading {
    let len = line.len() + 2;
    if let Request::Fixed { answer, .. } = request {
        return match bytes.starts_with(answer) {
            true => Ok(Some((Answer::Fixed, answer.len()))),
            false if answer.starts_with(bytes) => Ok(None),
            false => Err("not the only right one"),
        };
    }
    if let Some(answer) = refusal(line) {
        return Ok(Some((answer, len)));
    }
    let answer = match (request, line) {
        (Request::Get { cas, .. }, _) => return read_values(bytes, *cas),
        (Request::Lines { .. }, _) => return read_lines(bytes),
        (Request::Store { .. }, b"STORED") => Answer::Stored(None),
        (Request::Store { .. }, b"NOT_STORED") => Answer::NotStored,
        (Request::Store { .. }, b"EXISTS") => Answer::Exists,
        (
            Request::Store { .. }
            | Request::Delete { .. }
            | Request::Touch { .. }
            | Request::Count { .. },
            b"NOT_FOUND",
        ) => Answer::NotFound,
        (Request::Delete { .. }, b"DELETED")
        | (Request::Touch { .. }, b"TOUCHED")
        | (Request::Flush { .. }, b"OK") => Answer::Done,
        (Request::Count { .. }, digits) => {
            Answer::Number(decimal(digits).ok_or("no number")?, None)
        }
        _ => return Err("no such line"),
    };
    Ok(Some((answer, len)))
}

/// Error lines that any request may get.
fn refusal(line: &[u8]) -> Option<Answer> {
    Some(match line {
        b"SERVER_ERROR object too large for cache" => Answer::TooLarge,
        b"CLIENT_ERROR cannot increment or decrement non-numeric value" => Answer::NotNumeric,
        b"SERVER_ERROR out of memory storing object"
        | b"SERVER_ERROR Out of memory during read"
        | b"SERVER_ERROR out of memory"
        | b"SERVER_ERROR Out of memory allocating new item"
        | b"SERVER_ERROR out of memory writing get response" => Answer::NoMemory,
        _ => return None,
    })
}

fn read_values(bytes: &[u8], cas: bool) -> Reading {
    // Nothing is copied before all of it has arrived.
    let mut found = Vec::new();
    let mut at = 0;
    loop {
        let Some(line) = line(&bytes[at..]).map_err(|_| "no line")? else {
            return Ok(None);
        };
        at += line.len() + 2;
        if line == b"END" {
            break;
        }
        if refusal(line) == Some(Answer::NoMemory) {
            return Ok(Some((Answer::NoMemory, at)));
        }
        let words: Vec<&[u8]> = line.split(|&byte| byte == b' ').collect();
        let (key, flags, len, shown_cas) = match words.as_slice() {
            [b"VALUE", key, flags, len] if !cas => (*key, flags, len, None),
            [b"VALUE", key, flags, len, shown] if cas => (*key, flags, len, Some(shown)),
            _ => return Err("no VALUE line"),
        };
        let flags = decimal(flags).ok_or("no flags")?;
        let flags = u32::try_from(flags).map_err(|_| "no flags")?;
        let cas = match shown_cas {
            Some(cas) => Some(decimal(cas).ok_or("no CAS")?),
            None => None,
        };
        let len = decimal(len).ok_or("no length")?;
        let len = usize::try_from(len).map_err(|_| "no length")?;
        let Some(value) = bytes.get(at..at + len + 2) else {
            return Ok(None);
        };
        let value = value.strip_suffix(b"\r\n").ok_or("no end of a value")?;
        at += len + 2;
        found.push((key, value, flags, cas));
    }
    let found = found.into_iter().map(|(key, value, flags, cas)| Found {
        key: Some(key.to_vec()),
        value: Some(value.into()),
        flags: Some(flags),
        cas,
        ttl: None,
    });
    Ok(Some((Answer::Values(found.collect()), at)))
}

fn read_lines(bytes: &[u8]) -> Reading {
    let mut at = 0;
    loop {
        let Some(line) = line(&bytes[at..]).map_err(|_| "no line")? else {
            return Ok(None);
        };
        at += line.len() + 2;
        if line == b"END" {
            return Ok(Some((Answer::Fixed, at)));
        }
        if !line.starts_with(b"STAT ") {
            return Err("no STAT line");
        }
    }
}

fn read_meta(bytes: &[u8], line: &[u8], asked: &SentRequest) -> Reading {
    let request = &asked.request;
    let is_code = matches!(line, [_, _] | [_, _, b' ', ..]);
    if !is_code {
        return refusal(line)
            .map(|answer| Some((answer, line.len() + 2)))
            .ok_or("no such line");
    }
    let mut words = line.split(|&byte| byte == b' ');
    let head = words.next().unwrap_or_default();
    let mut len = line.len() + 2;
    let mut value = None;
    if head == b"VA" {
        let value_len = words.next().and_then(decimal).ok_or("no length")?;
        let value_len = usize::try_from(value_len).map_err(|_| "no length")?;
        let Some(bytes) = bytes.get(len..len + value_len + 2) else {
            return Ok(None);
        };
        let whole = bytes.strip_suffix(b"\r\n").ok_or("no end of a value")?;
        value = Some(whole);
        len += value_len + 2;
    }
    let mut found = Found {
        key: None,
        value: value.map(Into::into),
        flags: None,
        cas: None,
        ttl: None,
    };
    for word in words {
        let (flag, argument) = word.split_first().ok_or("two blanks")?;
        match flag {
            b'O' if decimal(argument) == Some(asked.opaque.into()) => {}
            b'k' => found.key = Some(argument.to_vec()),
            b'c' => found.cas = Some(decimal(argument).ok_or("no CAS")?),
            b'f' => found.flags = decimal(argument).and_then(|flags| flags.try_into().ok()),
            b't' if argument == b"-1" => found.ttl = Some(-1),
            b't' => found.ttl = decimal(argument).and_then(|ttl| ttl.try_into().ok()),
            b's' => {}
            _ => return Err("a flag that was not asked for"),
        }
    }
    let answer = match (request, head) {
        (Request::Get { .. }, b"EN") => Answer::Values(Vec::new()),
        (Request::Get { .. }, b"HD" | b"VA") => Answer::Values(vec![found]),
        (Request::Store { .. }, b"HD") => Answer::Stored(found.cas),
        (Request::Store { .. }, b"NS") => Answer::NotStored,
        (Request::Store { .. }, b"EX") => Answer::Exists,
        (Request::Delete { .. }, b"HD") => Answer::Done,
        (Request::Store { .. } | Request::Delete { .. } | Request::Count { .. }, b"NF") => {
            Answer::NotFound
        }
        (Request::Count { .. }, b"VA") => {
            let number = value.and_then(decimal).ok_or("no number")?;
            Answer::Number(number, found.cas)
        }
        _ => return Err("no such code"),
    };
    Ok(Some((answer, len)))
}

/// A number, in its only valid form.
fn decimal(digits: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(digits).ok()?;
    let number: u64 = text.parse().ok()?;
    (number.to_string() == text).then_some(number)
}
