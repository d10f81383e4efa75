//! A file of users and a connection that has not logged in, by text and by SASL: no panic, the file means what it says
//! or is refused with one line that has no password, and who is let in has said a name and its password.
#![no_main]

use coua::users::Users;
use coua_protocol::{Attempt, Dialect, Limits, Op, Parser, Step};
use libfuzzer_sys::fuzz_target;

/// What is before it is the file, what is behind it the connection.
const BETWEEN: &[u8] = b"\n---\n";

/// The file where there is none.
const FILE: &[u8] = b"alice:secret\nbob:pa:ss word\n\n[bob]\nrights = [\"read\"]\n[eve]\ncertificates = [\"CN:eve\"]\n";

fuzz_target!(|data: &[u8]| {
    let Some((&[cut, sasl], data)) = data.split_first_chunk() else {
        return;
    };
    let between = data.windows(BETWEEN.len()).position(|window| window == BETWEEN);
    let (file, said) = match between {
        Some(at) => (&data[..at], &data[at + BETWEEN.len()..]),
        None => (FILE, data),
    };
    let users = match Users::parse(file) {
        Ok(users) => users,
        Err(error) => {
            let line = error.to_string();
            for secret in pairs(file).map(|(_, secret)| secret).filter(|secret| secret.len() > 7) {
                let secret = String::from_utf8_lossy(secret);
                assert!(!line.contains(&*secret) || is_in_sections(file, &secret), "{line}");
            }
            return;
        }
    };
    assert!(!users.is_empty());
    let dialect = match sasl & 1 {
        0 => Dialect::Text,
        _ => Dialect::Unknown,
    };
    let limits = Limits {
        sasl: sasl & 1 != 0,
        ..Limits::default()
    };
    let mut parser = Parser::locked(dialect);
    let (mut front, mut end) = (0, 0);
    loop {
        let input = &said[front..end];
        match parser.next(input, &limits) {
            Step::More { at_least } => {
                assert!(at_least as usize > input.len());
                if end == said.len() {
                    return;
                }
                end = said.len().min(end + usize::from(cut) + 1);
            }
            Step::Skip { consumed } => front += consumed as usize,
            Step::Close { .. } => return,
            Step::Op { consumed, op } => {
                assert!(parser.is_locked(), "nobody has opened it");
                if let Op::Login(login) = op
                    && let Attempt::Password { user, password } = login.attempt
                {
                    let (user, password) = (user.of(input), password.of(input));
                    let is_there = pairs(file).any(|known| known == (user, password));
                    assert_eq!(users.check(user, password).is_some(), is_there);
                }
                front += consumed as usize;
            }
        }
    }
});

/// The lines of names and passwords, as the file of users has them.
fn lines(file: &[u8]) -> impl Iterator<Item = &[u8]> {
    file.split(|&byte| byte == b'\n')
        .map_while(|line| {
            let whole = line.trim_ascii_end();
            let is_section =
                whole.starts_with(b"[") && whole.ends_with(b"]") && !whole.contains(&b':');
            (!is_section).then_some(line)
        })
        .filter(|line| !line.trim_ascii_end().is_empty())
        .map(|line| line.split(|&byte| byte == b'\r' || byte == 0).next().unwrap_or_default())
        .filter(|line| line.contains(&b':'))
}

/// Names and passwords.
fn pairs(file: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> {
    lines(file).filter_map(|line| {
        let colon = line.iter().position(|&byte| byte == b':')?;
        Some((&line[..colon], &line[colon + 1..]))
    })
}

/// Whether a word that is a password stands in the sections too, whose errors quote them.
fn is_in_sections(file: &[u8], secret: &str) -> bool {
    let len: usize = lines(file).map(<[u8]>::len).sum();
    String::from_utf8_lossy(&file[len.min(file.len())..]).contains(secret)
}
