//! TLS over a pair of sockets, beside rustls's client.
//!
//! # Not here
//! The server with TLS (`crates/server/tests/tls`), and records that are changed on the way (`fuzz`, `tls_records`).

use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;

use coua_transport::tls::{ClientCertificate, Tls, TlsFiles};
use coua_transport::{Handshake, Received, Sent, Stream};
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore};

/// A file of the fuzz target's.
fn file(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("../../fuzz/tls")
        .join(name)
}

fn client() -> ClientConnection {
    let certificate = |name| CertificateDer::from_pem_file(file(name)).expect("a certificate");
    let mut roots = RootCertStore::empty();
    roots.add(certificate("ca.pem")).expect("an authority");
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
    let builder = builder
        .with_safe_default_protocol_versions()
        .expect("known");
    let key = PrivateKeyDer::from_pem_file(file("client.key")).expect("a key");
    let config = builder
        .with_root_certificates(roots)
        .with_client_auth_cert(vec![certificate("client.pem")], key)
        .expect("a pair");
    let name = ServerName::try_from("localhost").expect("a name");
    ClientConnection::new(Arc::new(config), name).expect("a client")
}

/// Both ends, after the handshake.
fn agreed() -> (ClientConnection, UnixStream, Stream) {
    let tls = Tls::open(TlsFiles {
        chain: file("server.pem"),
        key: file("server.key"),
        authorities: Some(file("ca.pem")),
        only_tls13: false,
        suites: None,
        session_cache: false,
        unsent_max: 16 << 10,
    });
    let tls = tls.expect("good files");
    let (mut wire, theirs) = UnixStream::pair().expect("sockets");
    for end in [&wire, &theirs] {
        end.set_nonblocking(true).expect("a socket");
    }
    let server = Stream::from(OwnedFd::from(theirs)).encrypted(&tls, ClientCertificate::Required);
    let Ok(server) = server else {
        panic!("there are authorities");
    };
    assert_eq!(server.shake_hands(), Handshake::Waits);
    assert!(server.peer_names().is_empty());
    let mut client = client();
    // What is said with the end of the handshake waits for `receive`.
    client.writer().write_all(b"early").expect("memory");
    for _ in 0..4 {
        while client.wants_write() {
            client.write_tls(&mut wire).expect("room");
        }
        if server.shake_hands() == Handshake::Done {
            break;
        }
        while let Ok(1..) = client.read_tls(&mut wire) {
            client.process_new_packets().expect("good records");
        }
    }
    assert!(!server.is_handshaking());
    (client, wire, server)
}

#[test]
fn a_handshake_leaves_what_comes_with_its_end() {
    let (_client, _wire, server) = agreed();
    let names = ["CN:client", "DNS:localhost", "URI:spiffe://example/client"];
    assert_eq!(server.peer_names(), names);
    let mut space = [0; 100];
    assert_eq!(server.receive(&mut space), Received::Bytes(5));
    assert_eq!(&space[..5], b"early");
    assert_eq!(server.receive(&mut space), Received::Nothing);
}

#[test]
fn a_handshake_that_ends_early_is_no_standstill() {
    let tls = Tls::open(TlsFiles {
        chain: file("server.pem"),
        key: file("server.key"),
        authorities: None,
        only_tls13: false,
        suites: None,
        session_cache: false,
        unsent_max: 1,
    });
    for begun in [&b""[..], b"\x16\x03\x01\x02\x00\x01", b"get a\r\n"] {
        let (mut wire, theirs) = UnixStream::pair().expect("sockets");
        theirs.set_nonblocking(true).expect("a socket");
        let server = Stream::from(OwnedFd::from(theirs));
        let tls = tls.as_ref().expect("good files");
        let Ok(server) = server.encrypted(tls, ClientCertificate::Ignored) else {
            panic!("nothing is asked");
        };
        wire.write_all(begun).expect("room");
        drop(wire);
        assert_eq!(server.shake_hands(), Handshake::Ended, "{begun:?}");
        assert_eq!(server.receive(&mut [0; 10]), Received::Ended);
    }
}

/// rustls has assertions that hold only while nobody receives behind the end that was said.
#[test]
fn what_comes_behind_the_end_is_dropped() {
    let (mut client, mut wire, server) = agreed();
    assert!(matches!(server.send(b"last"), Sent::Bytes(4)));
    server.end_output();
    client.writer().write_all(b"late").expect("memory");
    client.write_tls(&mut wire).expect("room");
    wire.write_all(&[0x17; 1000]).expect("room");
    assert_eq!(server.receive(&mut [0; 100]), Received::Nothing);
    drop(wire.shutdown(std::net::Shutdown::Write));
    assert_eq!(server.receive(&mut [0; 100]), Received::Ended);
    // The client has had the whole answer and a proper end.
    while let Ok(1..) = client.read_tls(&mut wire) {
        client.process_new_packets().expect("good records");
    }
    let mut said = Vec::new();
    client
        .reader()
        .read_to_end(&mut said)
        .expect("a proper end");
    assert_eq!(said, b"last");
}
