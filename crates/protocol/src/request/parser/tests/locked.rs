//! What gets through before a login: nothing but logins.

use std::string::{String, ToString};
use std::vec::Vec;

use super::{Seen, seen_by};
use crate::binary::{BinaryCommand, Status};
use crate::limits::Limits;
use crate::login::Attempt;
use crate::op::Op;
use crate::request::parser::{Dialect, Parser};

/// What a locked parser finds, in words, however the bytes are cut.
fn found(bytes: &[u8]) -> Vec<String> {
    let limits = Limits {
        sasl: true,
        ..Limits::default()
    };
    let by = |len: usize| {
        let parser = Parser::locked(Dialect::Unknown);
        seen_by(parser, bytes, &limits, || len)
    };
    let whole = by(usize::MAX / 2);
    assert_eq!(by(1), whole, "byte by byte");
    assert_eq!(by(7), whole, "seven bytes at a time");
    whole.iter().map(words).collect()
}

fn words(seen: &Seen) -> String {
    match seen {
        Seen::Op(Op::Login(login), pieces) => match login.attempt {
            Attempt::Password { .. } => {
                let text = |at: usize| String::from_utf8_lossy(&pieces[at]).to_string();
                std::format!("login {:?} {:?}", text(0), text(1))
            }
            Attempt::Begin => "login begins".to_string(),
            Attempt::Malformed => "malformed".to_string(),
        },
        Seen::Op(Op::Error { error, .. }, _) => std::format!("{error:?}"),
        Seen::Op(Op::Binary(binary), _) => match binary.command {
            BinaryCommand::Error { status, closes } => std::format!("{status:?} closes={closes}"),
            command => std::format!("{command:?}"),
        },
        Seen::Close(reason) => std::format!("{reason:?}"),
        Seen::Rest(len) => std::format!("rest {len}"),
        other => panic!("{other:?} of a connection that has not logged in"),
    }
}

fn binary(opcode: u8, key: &[u8], value: &[u8]) -> Vec<u8> {
    let mut bytes = std::vec![0; 24];
    bytes[..2].copy_from_slice(&[0x80, opcode]);
    bytes[3] = u8::try_from(key.len()).expect("short");
    let len = u32::try_from(key.len() + value.len()).expect("short");
    bytes[8..12].copy_from_slice(&len.to_be_bytes());
    [&bytes, key, value].concat()
}

#[test]
fn a_pretended_set_is_a_login() {
    for line in [
        "set a 0 0 12\r\n",
        "set  a  0  0  0012\r\n",
        "set a 0 0 12 noreply 1 2 3\r\n",
        "set a 0 0 12 \n",
        "setx \t 0 0 12\r\n",
    ] {
        let whole = [line, "alice secret\r\n"].concat();
        assert_eq!(
            found(whole.as_bytes()),
            ["login \"alice\" \"secret\"", "rest 0"],
            "{line:?}"
        );
    }
    assert_eq!(
        found(b"set a 0 0 8\r\nu a:b c \r\n")[0],
        "login \"u\" \"a:b c \""
    );
    assert_eq!(found(b"set a 0 0 1\r\n \r\n")[0], "login \"\" \"\"");
}

#[test]
fn nothing_else_gets_through_as_text() {
    let others = [
        "get a\r\n",
        "version\r\n",
        "mg a v\r\n",
        " set a 0 0 12\r\n",
        "set a 0 12\r\n",
        "set a 0 0 12\n",
        "set a 0 0 +1\r\n",
        "set a 0 0 -1\r\n",
        "set a 0 0 1x\r\n",
        "set a 0 0 4294967296\r\n",
        "add a 0 0 12\r\n",
    ];
    for other in others {
        assert_eq!(
            found(other.as_bytes()),
            ["Unauthenticated", "rest 0"],
            "{other:?}"
        );
    }
    // As memcached does, what is too short to be a login ends the connection.
    for short in ["quit\r\n", "mn\r\n", "\r\nx", "abcde\n", "get a\n"] {
        assert_eq!(found(short.as_bytes()), ["NoLogin"], "{short:?}");
    }
    assert_eq!(found(b"a\n"), ["rest 2"]);
    assert_eq!(found(&[b'x'; 2049]), ["LineTooLong"]);
    assert_eq!(found(&[b'x'; 2048]), ["rest 2048"]);
}

#[test]
fn what_a_pretended_set_holds_is_bounded_and_checked() {
    assert_eq!(found(b"set a 0 0 5\r\nalice\r\n"), ["BadLogin", "rest 0"]);
    assert_eq!(found(b"set a 0 0 0\r\n\r\n"), ["BadLogin", "rest 0"]);
    assert_eq!(found(b"set a 0 0 3\r\na bxx"), ["BadLoginEnd", "rest 0"]);
    assert_eq!(found(b"set a 0 0 1025\r\nx"), ["LoginTooLong", "NoLogin"]);
    assert_eq!(
        found(b"set a 0 0 4294967294\r\nset a 0 0 3\r\na b\r\n"),
        ["LoginTooLong", "login \"a\" \"b\"", "rest 0"]
    );
}

#[test]
fn sasl_takes_plain_alone() {
    let auth = |value: &[u8]| found(&binary(0x21, b"PLAIN", value));
    let logged_in = ["login \"user\" \"pass\"", "rest 0"];
    assert_eq!(auth(b"\0user\0pass"), logged_in);
    assert_eq!(auth(b"user\0user\0pass"), logged_in);
    for malformed in [
        &b"other\0user\0pass"[..],
        b"user\0pass",
        b"user pass",
        b"\0a\0b\0c",
    ] {
        assert_eq!(auth(malformed), ["malformed", "rest 0"], "{malformed:?}");
    }
    assert_eq!(
        found(&binary(0x21, b"CRAM-MD5", b"")),
        ["malformed", "rest 0"]
    );
    // A message that was not asked for, and one that was.
    let step = binary(0x22, b"PLAIN", b"\0user\0pass");
    assert_eq!(found(&step), ["malformed", "rest 0"]);
    let begin = binary(0x21, b"PLAIN", b"");
    assert_eq!(
        found(&[begin, step].concat()),
        ["login begins", logged_in[0], logged_in[1]]
    );
}

#[test]
fn nothing_else_gets_through_in_binary() {
    assert_eq!(found(&binary(0x0b, b"", b"")), ["Version", "rest 0"]);
    assert_eq!(found(&binary(0x20, b"", b"")), ["SaslMechanisms", "rest 0"]);
    let refused = std::format!("{:?} closes=true", Status::AuthError);
    for opcode in (0..=0xff).filter(|opcode| !matches!(opcode, 0x0b | 0x20..=0x22)) {
        let request = binary(opcode, b"k", b"");
        assert_eq!(found(&request)[0], refused, "opcode {opcode:#x}");
    }
    for bad in [
        binary(0x20, b"k", b""),
        binary(0x0b, b"k", b""),
        binary(0x21, b"", b"\0a\0b"),
        binary(0x21, &[b'M'; 33], b""),
        binary(0x21, b"PLAIN", &[0; 1025]),
    ] {
        assert_eq!(found(&bad)[0], "InvalidArguments closes=true", "{bad:?}");
    }
    let mut misfit = binary(0x21, b"PLAIN", b"");
    misfit[11] = 1;
    assert_eq!(found(&misfit)[0], "UnknownCommand closes=true");
    assert_eq!(found(b"\x80"), ["rest 1"]);
}

/// A login within an open connection locks it again, and what follows with it.
#[test]
fn another_login_locks_again() {
    let limits = Limits {
        sasl: true,
        ..Limits::default()
    };
    let bytes = [
        binary(0x0a, b"", b""),
        binary(0x21, b"PLAIN", b"\0a\0b"),
        binary(0x0a, b"", b""),
    ]
    .concat();
    let seen = seen_by(Parser::of(Dialect::Binary), &bytes, &limits, || {
        usize::MAX / 2
    });
    let words: Vec<String> = seen.iter().map(words).collect();
    assert_eq!(words[..2], ["Noop", "login \"a\" \"b\""]);
    assert_eq!(words[2], "AuthError closes=true");
}
