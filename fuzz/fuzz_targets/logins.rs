//! A file of users and a connection that has not logged in, by text and by SASL: no panic, the file means what it says
//! or is refused with a line that says nothing of passwords, and who is let in has said a name and its password.
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
            let others = Users::parse(&with_other_passwords(file)).expect_err("it was refused before");
            assert_eq!(error.to_string(), others.to_string());
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

/// The file, with other letters in place of all passwords'.
fn with_other_passwords(file: &[u8]) -> Vec<u8> {
    let mut changed = file.to_vec();
    for (_, password) in pairs(file) {
        // It is a piece of the file.
        let at = password.as_ptr().addr() - file.as_ptr().addr();
        changed[at..at + password.len()].fill(b'x');
    }
    changed
}
