//! `watch` over TLS, and what it tells of TLS.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;

use super::Secured;
use crate::certificates::ask;

#[test]
fn lines_come_encrypted_and_tell_of_failed_handshakes() {
    let server = Secured::start("", &[]);
    let mut watcher = server.connect();
    ask(&mut watcher, b"watch connevents mutations\r\n", b"OK\r\n");
    let mut lines = BufReader::new(watcher).lines();
    let mut next = || lines.next().expect("a line").expect("a line in time");

    let mut client = server.connect();
    ask(&mut client, b"set a 0 0 1\r\nx\r\n", b"STORED\r\n");
    assert!(next().contains(" type=conn_new rip=127.0.0.1 rport="));
    let line = next();
    let stored = " type=item_store key=a status=stored cmd=set ttl=0 clsid=1 cfd=";
    assert!(line.contains(stored), "{line}");
    // Who reads late gets all the same, in records of any length.
    for number in 0..2000 {
        let request = format!("set key{number} 0 0 1\r\nx\r\n");
        ask(&mut client, request.as_bytes(), b"STORED\r\n");
    }
    for number in 0..2000 {
        let line = next();
        assert!(line.contains(&format!(" key=key{number} ")), "{line}");
    }

    let mut plain = TcpStream::connect(server.address).expect("the kernel accepts");
    plain.write_all(b"get a\r\n").expect("it is open");
    // What it is sent is no text; then it is hung up on.
    let _ = plain.read_to_end(&mut Vec::new());
    let opened = next();
    let (_, descriptor) = opened.split_once(" cfd=").expect("a number");
    let failed = next();
    let expected = format!(" type=conntlserr fd={descriptor} msg=");
    assert!(failed.contains(&expected), "{opened} {failed}");
    let closed = next();
    let expected = format!(" transport=tcp reason=error cfd={descriptor}");
    assert!(
        closed.contains(" type=conn_close ") && closed.ends_with(&expected),
        "{closed}"
    );
}
