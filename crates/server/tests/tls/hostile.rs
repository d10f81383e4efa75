//! Clients that do not keep to TLS, or do so very slowly.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::thread;
use std::time::Duration;

use crate::certificates::{ask, encrypt};
use crate::{Secured, process};

/// What a server says until it hangs up.
fn rest(stream: &mut TcpStream) -> Vec<u8> {
    stream
        .set_read_timeout(Some(Duration::from_secs(30)))
        .expect("a timeout");
    let mut said = Vec::new();
    match stream.read_to_end(&mut said) {
        Ok(_) => said,
        Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => said,
        Err(error) => panic!("it does not hang up: {error}"),
    }
}

#[test]
fn what_is_no_handshake_ends_the_connection() {
    let server = Secured::start("", &["-t", "1"]);
    let mut user = server.connect();
    let garbage: Vec<Vec<u8>> = vec![
        b"get a\r\n".to_vec(),
        b"\x80\x0a".repeat(50),
        vec![0; 100_000],
        vec![0xff; 100_000],
        // The head of a record as long as can be, and of one that is longer.
        [&b"\x16\x03\x01\x40\x00"[..], &[1; 0x4000]].concat(),
        [&b"\x16\x03\x01\xff\xff"[..], &[1; 0xffff]].concat(),
    ];
    for bytes in &garbage {
        let mut stream = TcpStream::connect(server.address).expect("the kernel accepts");
        let _ = stream.write_all(bytes);
        let said = rest(&mut stream);
        assert!(said.is_empty() || said.starts_with(b"\x15\x03"), "{said:?}");
        ask(&mut user, b"mn\r\n", b"MN\r\n");
    }
    assert_eq!(
        server.stat("ssl_handshake_errors"),
        garbage.len().to_string()
    );
    // After the handshake.
    let mut client = server.connect();
    ask(&mut client, b"mn\r\n", b"MN\r\n");
    client.sock.write_all(&[0; 1000]).expect("it is open");
    rest(&mut client.sock);
    process::poll("the count", || {
        (server.stat("ssl_proto_errors") == "1").then_some(())
    });
}

#[test]
fn bytes_may_come_one_by_one() {
    let server = Secured::start("", &[]);
    let stream = TcpStream::connect(server.address).expect("the kernel accepts");
    stream.set_nodelay(true).expect("TCP_NODELAY");
    let mut client = encrypt(stream, &server.authority.client(None));
    let mut sent = 0;
    while client.conn.is_handshaking() || sent == 0 {
        let mut records = Vec::new();
        client.conn.write_tls(&mut records).expect("memory");
        for byte in &records {
            client.sock.write_all(&[*byte]).expect("it is open");
        }
        sent += records.len();
        if client.conn.wants_read() && client.conn.is_handshaking() {
            client.conn.read_tls(&mut client.sock).expect("an answer");
            client.conn.process_new_packets().expect("a good one");
        }
    }
    let request = b"set k 0 0 3\r\nabc\r\nget k\r\n";
    client.conn.writer().write_all(request).expect("memory");
    let mut records = Vec::new();
    client.conn.write_tls(&mut records).expect("memory");
    for byte in &records {
        client.sock.write_all(&[*byte]).expect("it is open");
    }
    ask(&mut client, b"", b"STORED\r\nVALUE k 0 3\r\nabc\r\nEND\r\n");
}

/// Handshakes that stand still end after a while, with `-o idle_timeout` or without.
#[test]
fn handshakes_that_stall_end() {
    let server = Secured::start("", &["-t", "1"]);
    let mut stalled: Vec<TcpStream> = (0..20)
        .map(|number| {
            let mut stream = TcpStream::connect(server.address).expect("the kernel accepts");
            let begin: &[u8] = if number % 2 == 0 {
                b""
            } else {
                b"\x16\x03\x01\x02\x00\x01"
            };
            stream.write_all(begin).expect("it is open");
            stream
        })
        .collect();
    for _ in 0..10 {
        let mut user = server.connect();
        ask(&mut user, b"mn\r\n", b"MN\r\n");
    }
    for stream in &mut stalled {
        rest(stream);
    }
    assert_eq!(server.stat("coua_close_idle"), "20");
}

/// The end that TLS tells of counts, also where TCP's does not come, and the other way round.
#[test]
fn ends_are_noticed() {
    let server = Secured::start("", &["-t", "1"]);
    let mut client = server.connect();
    ask(&mut client, b"mn\r\n", b"MN\r\n");
    client
        .conn
        .writer()
        .write_all(b"get a\r\n")
        .expect("memory");
    client.conn.send_close_notify();
    while client.conn.wants_write() {
        client.conn.write_tls(&mut client.sock).expect("it is open");
    }
    let mut text = String::new();
    client.read_to_string(&mut text).expect("a proper end");
    assert_eq!(text, "END\r\n");
    let mut client = server.connect();
    ask(&mut client, b"mn\r\n", b"MN\r\n");
    client.write_all(b"get a\r\n").expect("it is open");
    client.sock.shutdown(Shutdown::Write).expect("it is open");
    let mut text = String::new();
    client.read_to_string(&mut text).expect("a proper end");
    assert_eq!(text, "END\r\n");
}

#[test]
fn handshakes_by_the_hundred_do_not_keep_users_waiting() {
    let server = Secured::start("", &["-t", "1", "-c", "2000"]);
    let mut user = server.connect();
    ask(&mut user, b"mn\r\n", b"MN\r\n");
    let config = server.authority.client(None);
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let streams: Vec<TcpStream> = (0..200)
                    .map(|_| TcpStream::connect(server.address).expect("the kernel accepts"))
                    .collect();
                let mut clients: Vec<_> = streams
                    .into_iter()
                    .map(|stream| encrypt(stream, &config))
                    .collect();
                for client in &mut clients {
                    client.conn.write_tls(&mut client.sock).expect("it is open");
                }
                for client in &mut clients {
                    ask(client, b"mn\r\n", b"MN\r\n");
                }
            });
        }
        for _ in 0..500 {
            ask(&mut user, b"get k\r\n", b"END\r\n");
        }
    });
}
