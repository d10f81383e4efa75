//! What is asked of clients: verify modes, and listeners of their own.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

use crate::Secured;
use crate::certificates::{Authority, ask, encrypt};
use crate::process::{Process, coua};

/// Whether a client with this certificate is served.
fn is_served(address: SocketAddr, authority: &Authority, name: Option<&str>) -> bool {
    let stream = TcpStream::connect(address).expect("the kernel accepts");
    let mut client = encrypt(stream, &authority.client(name));
    // With TLS 1.3 the client hears of a refusal after its own part of the handshake.
    let mut answer = [0; 4];
    client.write_all(b"mn\r\n").is_ok()
        && client.read_exact(&mut answer).is_ok()
        && &answer == b"MN\r\n"
}

#[test]
fn verify_modes_are_those_of_memcached() {
    let stranger = Authority::new();
    stranger.certify("client");
    for (mode, without, with_foreign) in [
        (0, true, true),
        (1, true, false),
        (2, false, false),
        (3, false, false),
    ] {
        let server = Secured::start(&format!(",ssl_verify_mode={mode}"), &[]);
        let own = &server.authority;
        assert!(
            is_served(server.address, own, Some("client")),
            "mode {mode}"
        );
        assert_eq!(is_served(server.address, own, None), without, "mode {mode}");
        // A certificate of another authority, of a client that trusts the server.
        for kind in ["pem", "key"] {
            let from = stranger.file(&format!("client.{kind}"));
            std::fs::copy(from, own.file(&format!("foreign.{kind}"))).expect("a file");
        }
        assert_eq!(
            is_served(server.address, own, Some("foreign")),
            with_foreign,
            "mode {mode}"
        );
    }
}

#[test]
fn listeners_may_ask_for_less_or_more() {
    let authority = Authority::new();
    for name in ["server", "client"] {
        authority.certify(name);
    }
    let options = authority.options("server", ",ssl_verify_mode=0");
    let listen = "notls:127.0.0.2:-1,btls:127.0.0.3:-1,mtls:127.0.0.4:-1";
    let process = Process::start(coua(&["-Z", "-o", &options, "-l", listen]));
    let line = process.listening();
    let at = |ip: &str| {
        let words = line
            .split_whitespace()
            .map(|word| word.trim_end_matches(','));
        let mut addresses = words.filter_map(|word| word.strip_prefix("tcp:"));
        let found = addresses.find(|address| address.starts_with(ip));
        found
            .and_then(|text| text.parse().ok())
            .unwrap_or_else(|| panic!("no {ip} in {line}"))
    };
    let plain: SocketAddr = at("127.0.0.2");
    let mut client = crate::process::Client::connect(plain);
    assert_eq!(client.ask("mn\r\n"), "MN");
    let server_only = at("127.0.0.3");
    assert!(is_served(server_only, &authority, None));
    let mutual = at("127.0.0.4");
    assert!(!is_served(mutual, &authority, None));
    assert!(is_served(mutual, &authority, Some("client")));
    // The one that flags alone decide about.
    assert!(is_served(at("127.0.0.1"), &authority, None));
    // Who may do without a certificate at one listener cannot resume at another that requires one.
    let talk = "mn\r\nquit\r\n";
    for version in ["-tls1_2", "-tls1_3"] {
        let save = format!("-connect {server_only} {version} -ign_eof -sess_out session");
        let (said, _) = authority.s_client(&save, talk);
        assert!(said.contains("MN"), "{said}");
        let resume = format!("-connect {mutual} {version} -ign_eof -sess_in session");
        let (said, _) = authority.s_client(&resume, talk);
        assert!(!said.contains("MN\r\n"), "{said}");
    }
    // Connections that another worker has accepted ask for the same.
    for _ in 0..20 {
        let stream = TcpStream::connect(server_only).expect("the kernel accepts");
        ask(
            &mut encrypt(stream, &authority.client(None)),
            b"mn\r\n",
            b"MN\r\n",
        );
        assert!(!is_served(mutual, &authority, None));
    }
}
