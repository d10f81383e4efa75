//! Requests as bytes.

use std::io::Write;

use crate::expiry::Expiry;
use crate::key::{self, KeyForm};
use crate::wire::error::RequestError;
use crate::wire::limits::Limits;
use crate::wire::meta::MetaVerb;
use crate::wire::request::{Arithmetic, Request, Store, StoreMode, Verb};

/// The longest argument of `stats`, in bytes.
const STATS_LEN_MAX: usize = 250;

/// How requests are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    /// The meta commands, which memcached has from 1.6 on.
    Meta,
    /// Classic text, which every server has.
    Classic,
}

/// Appends a request. On an error nothing is appended.
pub(crate) fn encode(
    request: &Request<'_>,
    dialect: Dialect,
    limits: &Limits,
    out: &mut Vec<u8>,
) -> Result<(), RequestError> {
    match &request.verb {
        Verb::FlushAll { delay_seconds: 0 } => out.extend_from_slice(b"flush_all\r\n"),
        Verb::FlushAll { delay_seconds } => {
            write(out, format_args!("flush_all {delay_seconds}\r\n"))
        }
        Verb::Stats(what) if what.is_empty() => out.extend_from_slice(b"stats\r\n"),
        Verb::Stats(what) => {
            let fits = what.len() <= STATS_LEN_MAX;
            if !fits || what.iter().any(|byte| *byte < b' ' || *byte == 0x7f) {
                return Err(RequestError::StatsArgument);
            }
            out.extend_from_slice(b"stats ");
            out.extend_from_slice(what);
            out.extend_from_slice(b"\r\n");
        }
        Verb::Version => out.extend_from_slice(b"version\r\n"),
        Verb::Noop => out.extend_from_slice(b"mn\r\n"),
        Verb::Cluster => out.extend_from_slice(b"config get cluster\r\n"),
        _ => {
            let form = key::form(&request.key, limits.binary_keys)?;
            check_value(request, limits)?;
            match dialect {
                Dialect::Meta => meta(request, form, out)?,
                Dialect::Classic => classic(request, form, out)?,
            }
        }
    }
    Ok(())
}

/// One key of a quiet multi-get: a miss is not answered, and `index` comes back with a hit.
pub(crate) fn quiet_get(key: &[u8], form: KeyForm, cas: bool, index: u32, out: &mut Vec<u8>) {
    out.extend_from_slice(b"mg ");
    key::write(key, form, out);
    out.extend_from_slice(match (form, cas) {
        (KeyForm::Plain, false) => b" v f q O".as_slice(),
        (KeyForm::Plain, true) => b" v f c q O",
        (KeyForm::Base64, false) => b" b v f q O",
        (KeyForm::Base64, true) => b" b v f c q O",
    });
    number(out, u64::from(index));
    out.extend_from_slice(b"\r\n");
}

fn check_value(request: &Request<'_>, limits: &Limits) -> Result<(), RequestError> {
    let len = match &request.verb {
        Verb::Store(store) => store.value.len(),
        Verb::Meta(meta) => {
            meta.check()?;
            meta.value.as_ref().map_or(0, |value| value.len())
        }
        _ => 0,
    };
    let max = limits.value_len_max;
    match len <= max {
        true => Ok(()),
        false => Err(RequestError::TooLarge { len, max }),
    }
}

fn meta(request: &Request<'_>, form: KeyForm, out: &mut Vec<u8>) -> Result<(), RequestError> {
    let verb = match &request.verb {
        Verb::Get { .. } | Verb::Touch(_) => b"mg ",
        Verb::Store(_) => b"ms ",
        Verb::Delete => b"md ",
        Verb::Arithmetic(_) => b"ma ",
        Verb::Meta(meta) => match meta.verb {
            MetaVerb::Get => b"mg ",
            MetaVerb::Set => b"ms ",
            MetaVerb::Delete => b"md ",
            MetaVerb::Arithmetic => b"ma ",
        },
        Verb::FlushAll { .. } | Verb::Stats(_) | Verb::Version | Verb::Noop | Verb::Cluster => {
            return Ok(());
        }
    };
    out.extend_from_slice(verb);
    key::write(&request.key, form, out);
    let value = match &request.verb {
        Verb::Store(store) => Some(&store.value),
        Verb::Meta(meta) => meta.value.as_ref(),
        _ => None,
    };
    if let Some(value) = value {
        out.push(b' ');
        number(out, value.len() as u64);
    }
    if form == KeyForm::Base64 {
        out.extend_from_slice(b" b");
    }
    match &request.verb {
        Verb::Get { cas, expiry } => {
            out.extend_from_slice(if *cas { b" v f c" } else { b" v f" });
            if let Some(expiry) = expiry {
                write(out, format_args!(" T{}", expiry.wire()));
            }
        }
        Verb::Touch(expiry) => write(out, format_args!(" T{}", expiry.wire())),
        Verb::Store(store) => store_flags(store, out),
        Verb::Arithmetic(arithmetic) => arithmetic_flags(arithmetic, out),
        Verb::Meta(meta) => out.extend_from_slice(&meta.flags),
        _ => {}
    }
    out.extend_from_slice(b"\r\n");
    if let Some(value) = value {
        out.extend_from_slice(value);
        out.extend_from_slice(b"\r\n");
    }
    Ok(())
}

fn store_flags(store: &Store<'_>, out: &mut Vec<u8>) {
    if store.client_flags != 0 {
        write(out, format_args!(" F{}", store.client_flags));
    }
    if store.expiry != Expiry::NEVER {
        write(out, format_args!(" T{}", store.expiry.wire()));
    }
    match store.mode {
        StoreMode::Set => {}
        StoreMode::Add => out.extend_from_slice(b" ME"),
        StoreMode::Replace => out.extend_from_slice(b" MR"),
        StoreMode::Append => out.extend_from_slice(b" MA"),
        StoreMode::Prepend => out.extend_from_slice(b" MP"),
        StoreMode::Cas(cas) => write(out, format_args!(" C{cas}")),
    }
}

fn arithmetic_flags(arithmetic: &Arithmetic, out: &mut Vec<u8>) {
    write(out, format_args!(" v D{}", arithmetic.delta));
    if arithmetic.decrement {
        out.extend_from_slice(b" MD");
    }
    if let Some((initial, expiry)) = arithmetic.initial {
        write(out, format_args!(" N{} J{initial}", expiry.wire()));
    }
}

fn classic(request: &Request<'_>, form: KeyForm, out: &mut Vec<u8>) -> Result<(), RequestError> {
    if form == KeyForm::Base64 {
        return Err(RequestError::NeedsMeta("a binary key"));
    }
    let key = &request.key[..];
    match &request.verb {
        Verb::Get { cas, expiry: None } => {
            out.extend_from_slice(if *cas { b"gets " } else { b"get " });
            out.extend_from_slice(key);
            out.extend_from_slice(b"\r\n");
        }
        Verb::Get {
            expiry: Some(expiry),
            ..
        } => {
            write(out, format_args!("gats {} ", expiry.wire()));
            out.extend_from_slice(key);
            out.extend_from_slice(b"\r\n");
        }
        Verb::Store(store) => {
            let verb: &[u8] = match store.mode {
                StoreMode::Set => b"set ",
                StoreMode::Add => b"add ",
                StoreMode::Replace => b"replace ",
                StoreMode::Append => b"append ",
                StoreMode::Prepend => b"prepend ",
                StoreMode::Cas(_) => b"cas ",
            };
            out.extend_from_slice(verb);
            out.extend_from_slice(key);
            let (flags, expiry) = (store.client_flags, store.expiry.wire());
            write(out, format_args!(" {flags} {expiry} {}", store.value.len()));
            if let StoreMode::Cas(cas) = store.mode {
                write(out, format_args!(" {cas}"));
            }
            out.extend_from_slice(b"\r\n");
            out.extend_from_slice(&store.value);
            out.extend_from_slice(b"\r\n");
        }
        Verb::Delete => {
            out.extend_from_slice(b"delete ");
            out.extend_from_slice(key);
            out.extend_from_slice(b"\r\n");
        }
        Verb::Touch(expiry) => {
            out.extend_from_slice(b"touch ");
            out.extend_from_slice(key);
            write(out, format_args!(" {}\r\n", expiry.wire()));
        }
        Verb::Arithmetic(arithmetic) => {
            if arithmetic.initial.is_some() {
                return Err(RequestError::NeedsMeta("an initial number"));
            }
            out.extend_from_slice(if arithmetic.decrement {
                b"decr "
            } else {
                b"incr "
            });
            out.extend_from_slice(key);
            write(out, format_args!(" {}\r\n", arithmetic.delta));
        }
        Verb::Meta(_) => return Err(RequestError::NeedsMeta("a meta command")),
        Verb::FlushAll { .. } | Verb::Stats(_) | Verb::Version | Verb::Noop | Verb::Cluster => {}
    }
    Ok(())
}

fn write(out: &mut Vec<u8>, text: std::fmt::Arguments<'_>) {
    // Writing to a vector does not fail.
    let _ = out.write_fmt(text);
}

/// A decimal number, without the detour over formatting.
fn number(out: &mut Vec<u8>, mut number: u64) {
    let mut digits = [0; 20];
    let mut at = digits.len();
    loop {
        at -= 1;
        #[allow(clippy::cast_possible_truncation)] // below 10
        let digit = (number % 10) as u8;
        digits[at] = b'0' + digit;
        number /= 10;
        if number == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[at..]);
}

#[cfg(test)]
mod tests;
