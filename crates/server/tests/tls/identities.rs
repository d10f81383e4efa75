//! Users whose certificate logs them in.

use std::io::{Read, Write};
use std::net::TcpStream;

use rustix::process::Signal;

use crate::Secured;
use crate::certificates::{TlsClient, ask, encrypt};
use crate::process::{Process, coua, poll};

const USERS: &str = "boss:b
[shop]
certificates = [\"CN:shop\", \"DNS:shop.example\"]
rights = [\"read\", \"write\"]
prefixes = [\"shop:\"]
[probe]
certificates = [\"URI:spiffe://example/probe\"]
rights = [\"read\"]
[mail]
certificates = [\"email:mail@example.org\"]
rights = [\"write\"]
";

const DENIED: &[u8] = b"CLIENT_ERROR permission denied\r\n";
const STRANGER: &[u8] = b"CLIENT_ERROR unauthenticated\r\n";

/// A server with users, of which some have certificates.
fn guarded(options: &str, flags: &[&str]) -> Secured {
    let authority = Secured::authority();
    let users = authority.file("users");
    std::fs::write(&users, USERS).expect("a file");
    authority.certify("shop");
    authority.certify_as("named", "/CN=Shop", "DNS:other.example,DNS:shop.example");
    authority.certify_as("probe", "/O=example", "URI:spiffe://example/probe");
    authority.certify_as("mail", "/CN=mail", "email:mail@example.org");
    authority.certify_as(
        "two",
        "/CN=shop",
        "URI:spiffe://example/probe,DNS:localhost",
    );
    Secured::with(authority, options, &[&["-Y", &users], flags].concat())
}

fn connect(server: &Secured, certificate: Option<&str>) -> TlsClient {
    let stream = TcpStream::connect(server.address).expect("the kernel accepts");
    encrypt(stream, &server.authority.client(certificate))
}

#[test]
fn a_certificate_logs_its_user_in() {
    let server = guarded(",ssl_verify_mode=1", &[]);
    for name in ["shop", "named"] {
        let mut shop = connect(&server, Some(name));
        ask(&mut shop, b"set shop:a 0 0 1\r\nx\r\n", b"STORED\r\n");
        ask(&mut shop, b"set a 0 0 1\r\nx\r\n", DENIED);
        let got = b"VALUE shop:a 0 1\r\nx\r\nEND\r\n";
        ask(&mut shop, b"get shop:a\r\n", got);
        ask(&mut shop, b"stats reset\r\n", DENIED);
        let refused = b"CLIENT_ERROR flush_all not allowed\r\n";
        ask(&mut shop, b"flush_all\r\n", refused);
    }
    let mut probe = connect(&server, Some("probe"));
    ask(&mut probe, b"set a 0 0 1\r\nx\r\n", DENIED);
    ask(&mut probe, b"get a\r\n", b"END\r\n");
    let mut mail = connect(&server, Some("mail"));
    ask(&mut mail, b"set a 0 0 1\r\nx\r\n", b"STORED\r\n");
    ask(&mut mail, b"get a\r\n", DENIED);

    // Who shows none, one that nobody has, or one that two users have, needs a password.
    for name in [None, Some("client"), Some("two")] {
        let mut stranger = connect(&server, name);
        ask(&mut stranger, b"get a\r\n", STRANGER);
        ask(&mut stranger, b"set l 0 0 6\r\nboss b\r\n", b"STORED\r\n");
        ask(&mut stranger, b"flush_all\r\n", b"OK\r\n");
    }
    let mut boss = connect(&server, None);
    ask(&mut boss, b"set l 0 0 6\r\nboss b\r\n", b"STORED\r\n");
    boss.write_all(b"stats\r\nquit\r\n").expect("it is open");
    let mut text = String::new();
    boss.read_to_string(&mut text).expect("a whole answer");
    for line in ["coua_certificate_logins 4", "auth_cmds 4", "auth_errors 0"] {
        let line = format!("STAT {line}\r\n");
        assert!(text.contains(&line), "no {line} in {text}");
    }
    server.process.hear("is several users'");
}

/// A session that is resumed has its user, and the first request may come with the end of the handshake.
#[test]
fn resumed_sessions_and_early_requests_have_their_user() {
    let server = guarded(",ssl_verify_mode=2", &[]);
    let config = server.authority.client(Some("shop"));
    for _ in 0..200 {
        let stream = TcpStream::connect(server.address).expect("the kernel accepts");
        let mut client = encrypt(stream, &config);
        ask(&mut client, b"set shop:a 0 0 1\r\nx\r\n", b"STORED\r\n");
    }
    let talk = "set shop:b 0 0 1\r\ny\r\nget b\r\nquit\r\n";
    for version in ["-tls1_2", "-tls1_3"] {
        let words = format!(
            "-connect {} {version} -ign_eof -cert shop.pem -key shop.key",
            server.address
        );
        let (said, _) = (server.authority).s_client(&format!("{words} -sess_out s{version}"), talk);
        assert!(said.contains("STORED"), "{said}");
        let (said, _) = (server.authority).s_client(&format!("{words} -sess_in s{version}"), talk);
        assert!(
            said.contains("Reused, TLSv1") && said.contains("STORED"),
            "{said}"
        );
        assert!(said.contains("CLIENT_ERROR permission denied"), "{said}");
    }
}

#[test]
fn the_binary_protocol_and_new_rights() {
    let server = guarded(",ssl_verify_mode=1", &["-S"]);
    let mut probe = connect(&server, Some("probe"));
    // A noop, and a set.
    let noop = [&[0x80, 0x0a][..], &[0; 22]].concat();
    let done = [&[0x81, 0x0a][..], &[0; 22]].concat();
    ask(&mut probe, &noop, &done);
    let mut set = [0; 24 + 8 + 1 + 1];
    (set[0], set[1], set[3], set[4], set[11]) = (0x80, 0x01, 1, 8, 10);
    (set[32], set[33]) = (b'a', b'x');
    probe.write_all(&set).expect("it is open");
    let mut head = [0; 24];
    probe.read_exact(&mut head).expect("an answer");
    assert_eq!(head[..8], [0x81, 0x01, 0, 0, 0, 0, 0, 0x20]);

    // The file is read again: new connections have what it says then.
    let users = USERS.replace("[\"read\"]", "[\"read\", \"write\"]");
    std::fs::write(server.authority.file("users"), users).expect("a file");
    server.process.signal(Signal::HUP);
    poll("the new rights", || {
        let mut probe = connect(&server, Some("probe"));
        let mut answer = [0; 8];
        probe.write_all(b"set a 0 0 1\r\nx\r\n").ok()?;
        probe.read_exact(&mut answer).ok()?;
        (&answer == b"STORED\r\n").then_some(())
    });
}

#[test]
fn certificates_that_nobody_is_asked_for_are_refused() {
    let authority = Secured::authority();
    let users = authority.file("users");
    std::fs::write(&users, USERS).expect("a file");
    let line = Process::start(coua(&["-Y", &users]))
        .end()
        .one_line(64)
        .to_owned();
    let expected = format!(
        "coua: -Y: {users} names certificates, and clients are asked for none; give -Z and the authorities \
         of clients' certificates: -o ssl_ca_cert=FILE"
    );
    assert_eq!(line, expected);
    Secured::with(authority, ",ssl_verify_mode=0", &["-Y", &users]);
}
