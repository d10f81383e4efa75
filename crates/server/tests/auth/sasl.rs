//! SASL PLAIN on the binary protocol.

use crate::{Connection, Guarded, login};

const SUCCESS: u16 = 0;
const AUTH_ERROR: u16 = 0x20;
const AUTH_CONTINUE: u16 = 0x21;
const UNKNOWN_COMMAND: u16 = 0x81;

const VERSION: u8 = 0x0b;
const NOOP: u8 = 0x0a;
const LIST: u8 = 0x20;
const AUTH: u8 = 0x21;
const STEP: u8 = 0x22;

/// A binary request without extras.
pub(crate) fn request(opcode: u8, key: &str, value: &str) -> Vec<u8> {
    let mut bytes = vec![0; 24];
    bytes[..2].copy_from_slice(&[0x80, opcode]);
    bytes[3] = u8::try_from(key.len()).expect("a short key");
    let len = u32::try_from(key.len() + value.len()).expect("a short body");
    bytes[8..12].copy_from_slice(&len.to_be_bytes());
    [&bytes, key.as_bytes(), value.as_bytes()].concat()
}

/// Status and value of the next answer.
fn answer(connection: &mut Connection) -> (u16, String) {
    let header = connection.receive(24);
    assert_eq!((header.len(), header.first()), (24, Some(&0x81)));
    let status = u16::from_be_bytes([header[6], header[7]]);
    let len = u32::from_be_bytes([header[8], header[9], header[10], header[11]]);
    let value = connection.receive(len as usize);
    (status, String::from_utf8(value).expect("a text"))
}

#[track_caller]
fn ask(connection: &mut Connection, request: &[u8], status: u16, value: &str) {
    connection.send(request);
    assert_eq!(answer(connection), (status, value.to_owned()));
}

#[test]
fn plain_logs_in() {
    let server = Guarded::start("alice:secret\n", &["-S"]);
    let plain = request(AUTH, "PLAIN", "\0alice\0secret");
    let mut connection = Connection::to(server.address);
    connection.send(request(VERSION, "", ""));
    let (status, version) = answer(&mut connection);
    assert!(
        status == SUCCESS && version.starts_with("1.6.45"),
        "{version}"
    );
    ask(&mut connection, &request(LIST, "", ""), SUCCESS, "PLAIN");
    let wrong = request(AUTH, "PLAIN", "\0alice\0secres");
    ask(&mut connection, &wrong, AUTH_ERROR, "Auth failure.");
    let other = request(AUTH, "CRAM-MD5", "");
    ask(&mut connection, &other, AUTH_ERROR, "Auth failure.");
    // Written in one piece, in order.
    connection.send([&plain[..], &request(NOOP, "", "")].concat());
    assert_eq!(
        answer(&mut connection),
        (SUCCESS, "Authenticated".to_owned())
    );
    assert_eq!(answer(&mut connection), (SUCCESS, String::new()));
    ask(&mut connection, &request(0x00, "none", ""), 1, "Not found");
    // Whoever fails to log in again is out.
    ask(&mut connection, &wrong, AUTH_ERROR, "Auth failure.");
    ask(
        &mut connection,
        &request(NOOP, "", ""),
        AUTH_ERROR,
        "Auth failure.",
    );
    assert_eq!(connection.rest(), b"");
    let mut connection = Connection::to(server.address);
    ask(
        &mut connection,
        &request(AUTH, "PLAIN", ""),
        AUTH_CONTINUE,
        "",
    );
    let step = request(STEP, "PLAIN", "alice\0alice\0secret");
    ask(&mut connection, &step, SUCCESS, "Authenticated");
    connection.end();
    // The text protocol is there too.
    Connection::log_in(server.address, "alice", "secret").end();
}

#[test]
fn other_commands_end_the_connection() {
    let server = Guarded::start("alice:secret\n", &["-S", "-B", "binary"]);
    for opcode in (0..=0x1e).filter(|opcode| *opcode != VERSION) {
        let mut connection = Connection::to(server.address);
        ask(
            &mut connection,
            &request(opcode, "k", ""),
            AUTH_ERROR,
            "Auth failure.",
        );
        assert_eq!(connection.rest(), b"", "opcode {opcode:#x}");
    }
    // A value that is arriving is not waited for.
    let mut set = request(0x01, "k", "");
    set[4] = 8;
    set[8..12].copy_from_slice(&500_009_u32.to_be_bytes());
    let mut connection = Connection::to(server.address);
    ask(
        &mut connection,
        &[&set[..24], &[0; 8], b"k"].concat(),
        AUTH_ERROR,
        "Auth failure.",
    );
    assert_eq!(connection.rest(), b"");
    // -B binary: there is no text.
    let mut connection = Connection::to(server.address);
    connection.send(login("alice", "secret"));
    assert_eq!(connection.rest(), b"");
}

#[test]
fn without_sasl_binary_clients_are_strangers() {
    let server = Guarded::start("alice:secret\n", &[]);
    for opcode in [NOOP, LIST] {
        let mut connection = Connection::to(server.address);
        // memcached reads it as a line, which is too short, or waits for its end.
        connection.send(request(opcode, "", ""));
        connection.end();
    }
    let open = crate::process::Process::start(crate::coua(&[]));
    let mut connection = Connection::to(open.address());
    ask(
        &mut connection,
        &request(LIST, "", ""),
        UNKNOWN_COMMAND,
        "Unknown command",
    );
}
