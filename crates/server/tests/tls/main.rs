//! TLS, with rustls's client, OpenSSL's and Python's.
//!
//! # Not here
//! TLS over a stack of the server's own (`userspace`).

mod copying;
mod hostile;
mod identities;
mod listeners;
mod memory;
mod watching;

#[path = "../support/certificates.rs"]
mod certificates;
#[path = "../support/process.rs"]
#[allow(dead_code, reason = "these tests need the process alone")]
mod process;
#[path = "../support/resident.rs"]
mod resident;
#[path = "../support/mod.rs"]
#[allow(dead_code, reason = "these tests need the program alone")]
mod support;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use certificates::{Authority, TlsClient, ask, encrypt};
use process::{Process, coua};
use rustix::process::Signal;

/// A server with TLS, and the authority behind it.
struct Secured {
    authority: Authority,
    process: Process,
    address: SocketAddr,
}

impl Secured {
    fn start(options: &str, flags: &[&str]) -> Secured {
        Secured::with(Secured::authority(), options, flags)
    }

    /// An authority that has certified the server and a client.
    fn authority() -> Authority {
        let authority = Authority::new();
        for name in ["server", "client"] {
            authority.certify(name);
        }
        authority
    }

    fn with(authority: Authority, options: &str, flags: &[&str]) -> Secured {
        let options = authority.options("server", options);
        let process = Process::start(coua(&[&["-Z", "-o", &options], flags].concat()));
        let address = process.address();
        Secured {
            authority,
            process,
            address,
        }
    }

    fn connect(&self) -> TlsClient {
        let stream = TcpStream::connect(self.address).expect("the kernel accepts");
        encrypt(stream, &self.authority.client(None))
    }

    fn stat(&self, key: &str) -> String {
        let mut client = self.connect();
        client.write_all(b"stats\r\nquit\r\n").expect("it is open");
        let mut text = String::new();
        client.read_to_string(&mut text).expect("a whole answer");
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix(&format!("STAT {key} ")));
        line.unwrap_or_else(|| panic!("no {key} in {text}"))
            .to_owned()
    }
}

#[test]
fn values_of_all_sizes_go_through() {
    let server = Secured::start("", &[]);
    let mut client = server.connect();
    ask(&mut client, b"set a 5 0 3\r\nabc\r\n", b"STORED\r\n");
    ask(
        &mut client,
        b"get a b\r\n",
        b"VALUE a 5 3\r\nabc\r\nEND\r\n",
    );
    // Around the sizes of records, of what is received at once, and of what is sent in place.
    for len in [
        1, 100, 16_000, 16_383, 16_384, 16_385, 32_768, 65_536, 100_000, 1_000_000,
    ] {
        let value: Vec<u8> = (0..len)
            .map(|at| b'a' + u8::try_from(at % 23).unwrap_or(0))
            .collect();
        let set = [format!("set k 0 0 {len}\r\n").as_bytes(), &value, b"\r\n"].concat();
        ask(&mut client, &set, b"STORED\r\n");
        let got = [
            format!("VALUE k 0 {len}\r\n").as_bytes(),
            &value,
            b"\r\nEND\r\n",
        ]
        .concat();
        ask(&mut client, b"get k\r\n", &got);
        ask(&mut client, &b"get k\r\n".repeat(3), &got.repeat(3));
    }
    let pipeline = b"get a\r\n".repeat(20_000);
    ask(
        &mut client,
        &pipeline,
        &b"VALUE a 5 3\r\nabc\r\nEND\r\n".repeat(20_000),
    );
    ask(&mut client, b"quit\r\n", b"");
    // The end of the server's output is encrypted too: nobody can cut a reply off unseen.
    assert_eq!(client.read(&mut [0; 10]).expect("a proper end"), 0);
}

#[test]
fn a_client_that_reads_late_gets_everything() {
    let server = Secured::start(",ssl_wbuf_size=64", &["-t", "1"]);
    let mut late = server.connect();
    let value = vec![b'v'; 500_000];
    let set = [&b"set k 0 0 500000\r\n"[..], &value, b"\r\n"].concat();
    ask(&mut late, &set, b"STORED\r\n");
    late.write_all(&b"get k\r\n".repeat(100))
        .expect("it is open");
    // Others are served meanwhile.
    let mut other = server.connect();
    for _ in 0..100 {
        ask(&mut other, b"get none\r\n", b"END\r\n");
    }
    let got = [&b"VALUE k 0 500000\r\n"[..], &value, b"\r\nEND\r\n"].concat();
    for _ in 0..100 {
        ask(&mut late, b"", &got);
    }
    ask(&mut late, b"mn\r\n", b"MN\r\n");
}

#[test]
fn openssl_and_python_agree_with_it() {
    let server = Secured::start(",ssl_session_cache", &[]);
    let talk = "set a 0 0 1\r\nx\r\nget a\r\nquit\r\n";
    for version in ["-tls1_2", "-tls1_3"] {
        let words = format!("-connect {} {version} -ign_eof", server.address);
        let (said, is_content) = server.authority.s_client(&words, talk);
        assert!(is_content && said.contains("VALUE a 0 1"), "{said}");
        assert!(said.contains("Verify return code: 0 (ok)"), "{said}");
        // Again, with the session of before.
        let save = format!("{words} -sess_out session{version}");
        let (said, _) = server.authority.s_client(&save, talk);
        assert!(said.contains("New, TLSv1"), "{said}");
        let resume = format!("{words} -sess_in session{version}");
        let (said, _) = server.authority.s_client(&resume, talk);
        assert!(
            said.contains("Reused, TLSv1") && said.contains("VALUE a 0 1"),
            "{said}"
        );
    }
    assert_eq!(server.stat("coua_ssl_resumed_sessions"), "2");
    let script = "import socket, ssl, sys
context = ssl.create_default_context(cafile=sys.argv[2])
client = context.wrap_socket(socket.create_connection(('127.0.0.1', int(sys.argv[1]))), server_hostname='localhost')
client.settimeout(30)
client.sendall(b'set p 0 0 100000\\r\\n' + b'y' * 100000 + b'\\r\\nget p\\r\\n')
want = b'STORED\\r\\nVALUE p 0 100000\\r\\n' + b'y' * 100000 + b'\\r\\nEND\\r\\n'
got = b''
while len(got) < len(want):
    piece = client.recv(65536)
    if not piece:
        break
    got += piece
assert got == want, got[:100]
client.unwrap()
";
    let port = server.address.port().to_string();
    let mut python = Command::new("python3");
    python.args(["-c", script, &port, &server.authority.file("ca.pem")]);
    assert!(python.status().expect("python3 is installed").success());
}

#[test]
fn old_versions_and_other_suites_are_refused() {
    let server = Secured::start(
        ",ssl_min_version=2,ssl_ciphers=ECDHE-ECDSA-AES128-GCM-SHA256",
        &[],
    );
    let ask = |words: &str| {
        let words = format!("-connect {} {words} -ign_eof", server.address);
        server.authority.s_client(&words, "mn\r\nquit\r\n")
    };
    let (said, _) = ask("-tls1_2 -cipher ECDHE-ECDSA-AES128-GCM-SHA256");
    assert!(said.contains("MN"), "{said}");
    let (said, is_content) = ask("-tls1_2 -cipher ECDHE-ECDSA-AES256-GCM-SHA384");
    assert!(!is_content && !said.contains("MN"), "{said}");
    let (said, is_content) = ask("-tls1_1 -cipher ALL:@SECLEVEL=0");
    assert!(!is_content && !said.contains("MN"), "{said}");
    let newest = Secured::start(",ssl_min_version=3", &[]);
    let words = format!("-connect {} -tls1_2 -ign_eof", newest.address);
    let (said, is_content) = newest.authority.s_client(&words, "mn\r\nquit\r\n");
    assert!(!is_content && !said.contains("MN"), "{said}");
}

#[test]
fn certificates_change_under_load() {
    let server = Secured::start("", &[]);
    let is_over = AtomicBool::new(false);
    let subject = || {
        let words = format!("-connect {} -ign_eof", server.address);
        let (said, _) = server.authority.s_client(&words, "quit\r\n");
        let line = said.lines().find(|line| line.starts_with("subject="));
        line.unwrap_or_else(|| panic!("no subject in {said}"))
            .replace(' ', "")
    };
    assert_eq!(subject(), "subject=CN=server");
    let mut before = server.connect();
    ask(&mut before, b"mn\r\n", b"MN\r\n");
    thread::scope(|scope| {
        let load = scope.spawn(|| {
            let mut count = 0;
            while !is_over.load(Ordering::Relaxed) {
                let mut client = server.connect();
                ask(&mut client, b"mn\r\n", b"MN\r\n");
                count += 1;
            }
            count
        });
        // Seen by itself, though key and certificate do not fit for a moment.
        server.authority.certify("second");
        server.authority.replace("server", "second");
        process::poll("the second certificate", || {
            (subject() == "subject=CN=second").then_some(())
        });
        server.authority.certify("third");
        server.authority.replace("server", "third");
        server.process.signal(Signal::HUP);
        process::poll("the third certificate", || {
            (subject() == "subject=CN=third").then_some(())
        });
        server.authority.certify("fourth");
        server.authority.replace("server", "fourth");
        ask(&mut before, b"refresh_certs\r\n", b"OK\r\n");
        assert_eq!(subject(), "subject=CN=fourth");
        std::fs::write(server.authority.file("server.pem"), "nothing").expect("it is ours");
        let refused = b"Error refreshing certificates; the log says why\r\n";
        ask(&mut before, b"refresh_certs\r\n", refused);
        assert_eq!(subject(), "subject=CN=fourth");
        is_over.store(true, Ordering::Relaxed);
        assert!(load.join().expect("no client was refused") > 0);
    });
    ask(&mut before, b"mn\r\n", b"MN\r\n");
}

#[test]
fn statistics_tell_of_it() {
    let server = Secured::start(",ssl_verify_mode=1,ssl_session_cache", &[]);
    assert_eq!(server.stat("ssl_new_sessions"), "1");
    assert_eq!(server.stat("ssl_handshake_errors"), "0");
    assert_eq!(server.stat("ssl_proto_errors"), "0");
    let age: u64 = server
        .stat("time_since_server_cert_refresh")
        .parse()
        .expect("a number");
    assert!(age < 1000);
    let mut client = server.connect();
    let key = server.authority.file("server.key");
    client
        .write_all(b"stats settings\r\nquit\r\n")
        .expect("it is open");
    let mut text = String::new();
    client.read_to_string(&mut text).expect("a whole answer");
    for line in [
        "ssl_enabled yes",
        &format!("ssl_key {key}"),
        "ssl_verify_mode 1",
        "ssl_session_cache yes",
    ] {
        assert!(
            text.contains(&format!("STAT {line}\r\n")),
            "no {line} in {text}"
        );
    }
}

#[test]
fn flags_that_do_not_fit_are_refused() {
    let authority = Authority::new();
    authority.certify("server");
    let options = authority.options("server", "");
    let line = |flags: &[&str]| Process::start(coua(flags)).end().one_line(64).to_owned();
    assert_eq!(
        line(&["-Z"]),
        "coua: -Z: give the server's certificate: -o ssl_chain_cert=FILE,ssl_key=FILE"
    );
    let missing = format!("{options},ssl_key=/none");
    assert!(line(&["-Z", "-o", &missing]).starts_with("coua: -o ssl_key: /none: "));
    let other = format!("{options},ssl_key={}", authority.file("ca.key"));
    assert!(line(&["-Z", "-o", &other]).starts_with("coua: -o ssl_chain_cert: "));
    let old = format!("{options},ssl_min_version=0");
    assert_eq!(
        line(&["-Z", "-o", &old]),
        "coua: -o ssl_min_version: coua speaks TLS 1.2 and 1.3; give 2 or 3"
    );
    let suite = format!("{options},ssl_ciphers=RC4");
    assert!(
        line(&["-Z", "-o", &suite]).starts_with("coua: -o ssl_ciphers: 'RC4' is no cipher suite")
    );
    assert_eq!(
        line(&["-Z", "-o", &options, "-U", "11311"]),
        "coua: -Z: UDP is not encrypted; leave -Z or -U out"
    );
    assert_eq!(
        line(&["-l", "mtls:127.0.0.2"]),
        "coua: -l cannot be 'mtls:127.0.0.2': there is no TLS without -Z; leave mtls: out"
    );
    let (pem, key) = (authority.file("server.pem"), authority.file("server.key"));
    let alone = format!("ssl_chain_cert={pem},ssl_key={key}");
    assert_eq!(
        line(&["-Z", "-o", &format!("{alone},ssl_verify_mode=2")]),
        "coua: -o ssl_verify_mode: give the authorities of clients' certificates: -o ssl_ca_cert=FILE"
    );
}
