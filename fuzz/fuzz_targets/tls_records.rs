//! TLS records to the server's side of a connection, from a real client whose records are changed, cut and mixed with
//! others on the way: no panic, no standing still, and whatever the worker gets is what the client has said, from its
//! beginning on and in its order.
#![no_main]

use std::io::{ErrorKind, IoSlice, IoSliceMut, Read, Write};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::{Arc, LazyLock};

use coua_transport::tls::{ClientCertificate, Tls, TlsFiles};
use coua_transport::{Handshake, Received, Sent, Stream};
use libfuzzer_sys::fuzz_target;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::version::{TLS12, TLS13};
use rustls::{ClientConfig, ClientConnection, RootCertStore};

/// What a server encrypts at once.
const UNSENT_MAX: usize = 16 << 10;

static SERVER: LazyLock<Tls> = LazyLock::new(|| {
    let files = TlsFiles {
        chain: file("server.pem"),
        key: file("server.key"),
        authorities: Some(file("ca.pem")),
        only_tls13: false,
        suites: None,
        session_cache: true,
        unsent_max: UNSENT_MAX,
    };
    Tls::open(files).expect("good files")
});

/// By whether they speak TLS 1.3, and have a certificate. Sessions are remembered.
static CLIENTS: LazyLock<[[Arc<ClientConfig>; 2]; 2]> =
    LazyLock::new(|| [false, true].map(|new| [false, true].map(|own| Arc::new(client(new, own)))));

fn file(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tls").join(name)
}

fn client(is_new: bool, has_certificate: bool) -> ClientConfig {
    let certificate = |name| CertificateDer::from_pem_file(file(name)).expect("a certificate");
    let mut roots = RootCertStore::empty();
    roots.add(certificate("ca.pem")).expect("an authority");
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
    let versions = if is_new { &[&TLS13] } else { &[&TLS12] };
    let builder = builder.with_protocol_versions(versions).expect("known");
    let builder = builder.with_root_certificates(roots);
    match has_certificate {
        false => builder.with_no_client_auth(),
        true => {
            let key = PrivateKeyDer::from_pem_file(file("client.key")).expect("a key");
            let chain = vec![certificate("client.pem")];
            builder.with_client_auth_cert(chain, key).expect("a pair")
        }
    }
}

fuzz_target!(|data: &[u8]| {
    let Some((&[setup], mut orders)) = data.split_first_chunk() else {
        return;
    };
    let of = match setup & 3 {
        0 => ClientCertificate::Ignored,
        1 => ClientCertificate::Asked,
        _ => ClientCertificate::Required,
    };
    let has_certificate = setup & 4 != 0;
    let mut scene = Scene::new(of, setup & 8 != 0, has_certificate);
    if setup & 16 != 0 {
        scene.agree();
    }
    while let Some((&[order, argument], rest)) = orders.split_first_chunk() {
        orders = rest;
        let len = usize::from(argument);
        match order % 13 {
            0 => scene.pass(usize::MAX),
            1 => scene.pass(len),
            2 => scene.change(len, order),
            3 => {
                let (bytes, rest) = orders.split_at(len.min(orders.len()));
                orders = rest;
                scene.insert(bytes);
            }
            4 => scene.say(len * len),
            5 => scene.receive(len * 16 + 1),
            6 => scene.receive_in_pieces(len + 1),
            7 => scene.answer(len * 100),
            8 => scene.hear(),
            9 => scene.drop_records(len),
            10 => scene.repeat(len),
            11 => scene.end(order & 16 != 0),
            _ => scene.server_ends(),
        }
    }
    scene.conclude(has_certificate && of != ClientCertificate::Ignored);
});

/// A client, a server, and what is between them.
struct Scene {
    client: ClientConnection,
    /// The client's end of the connection.
    wire: UnixStream,
    /// What the client has written and the connection has not.
    pending: Vec<u8>,
    server: Stream,
    /// Bytes that the client has said, and the worker has received: byte `n` is `n` modulo 251.
    said: usize,
    received: usize,
    /// The same for answers.
    answered: usize,
    heard: usize,
    /// Nothing was changed on the way.
    is_honest: bool,
    /// One of the streams is over.
    has_ended: bool,
    /// The client has said its last word: rustls takes no bad records from then on, in builds with assertions.
    is_client_done: bool,
}

impl Scene {
    fn new(of: ClientCertificate, is_new: bool, has_certificate: bool) -> Scene {
        let (wire, theirs) = UnixStream::pair().expect("sockets");
        for end in [&wire, &theirs] {
            end.set_nonblocking(true).expect("a socket");
        }
        let server = Stream::from(OwnedFd::from(theirs));
        let Ok(server) = server.encrypted(&SERVER, of) else {
            panic!("there are authorities");
        };
        let config = &CLIENTS[usize::from(is_new)][usize::from(has_certificate)];
        let name = ServerName::try_from("localhost").expect("a name");
        let client = ClientConnection::new(Arc::clone(config), name).expect("a client");
        Scene {
            client,
            wire,
            pending: Vec::new(),
            server,
            said: 0,
            received: 0,
            answered: 0,
            heard: 0,
            is_honest: true,
            has_ended: false,
            is_client_done: false,
        }
    }

    /// Both sides come to the end of the handshake, if they do.
    fn agree(&mut self) {
        for _ in 0..4 {
            self.pass(usize::MAX);
            self.receive(1);
            self.hear();
        }
    }

    /// What the client writes is taken up to here.
    fn collect(&mut self) {
        while self.client.wants_write() {
            if self.client.write_tls(&mut self.pending).is_err() {
                break;
            }
        }
    }

    /// The first bytes go on to the server.
    fn pass(&mut self, len: usize) {
        self.collect();
        let len = len.min(self.pending.len());
        let sent = match self.wire.write(&self.pending[..len]) {
            Ok(sent) => sent,
            Err(error) if error.kind() == ErrorKind::WouldBlock => 0,
            Err(_) => len,
        };
        self.pending.drain(..sent);
    }

    fn change(&mut self, at: usize, by: u8) {
        self.collect();
        let len = self.pending.len();
        if len > 0 {
            self.pending[at % len] ^= by | 1;
            self.is_honest = false;
        }
    }

    fn insert(&mut self, bytes: &[u8]) {
        self.collect();
        self.is_honest &= bytes.is_empty();
        self.pending.splice(0..0, bytes.iter().copied());
    }

    fn drop_records(&mut self, len: usize) {
        self.collect();
        let len = len.min(self.pending.len());
        self.is_honest &= len == 0;
        self.pending.drain(..len);
    }

    /// The first bytes come twice.
    fn repeat(&mut self, len: usize) {
        self.collect();
        let len = len.min(self.pending.len());
        self.is_honest &= len == 0;
        let first = self.pending[..len].to_vec();
        self.pending.splice(0..0, first);
    }

    fn say(&mut self, len: usize) {
        let bytes: Vec<u8> = (self.said..self.said + len).map(byte).collect();
        self.said += self.client.writer().write(&bytes).unwrap_or(0);
    }

    /// The worker receives once, as it does: the handshake first.
    fn receive(&mut self, room: usize) {
        let mut space = vec![0; room];
        if !self.shakes_hands() {
            return;
        }
        match self.server.receive(&mut space) {
            Received::Bytes(len) => self.check_received(&space[..len], room),
            other => self.check_nothing(other),
        }
    }

    fn receive_in_pieces(&mut self, room: usize) {
        if !self.shakes_hands() {
            return;
        }
        let mut space = vec![0; room * 3];
        let (first, rest) = space.split_at_mut(room);
        let (second, third) = rest.split_at_mut(room);
        let mut spaces = [first, second, third].map(IoSliceMut::new);
        match self.server.receive_vectored(&mut spaces) {
            Received::Bytes(len) => self.check_received(&space[..len], room * 3),
            other => self.check_nothing(other),
        }
    }

    fn shakes_hands(&mut self) -> bool {
        if !self.server.is_handshaking() {
            return true;
        }
        match self.server.shake_hands() {
            Handshake::Done => true,
            Handshake::Waits => {
                self.check_nothing(Received::Nothing);
                false
            }
            Handshake::Ended => {
                self.check_nothing(Received::Ended);
                false
            }
        }
    }

    fn check_received(&mut self, bytes: &[u8], room: usize) {
        assert!(!bytes.is_empty() && bytes.len() <= room);
        let due = (self.received..self.said).map(byte);
        assert!(self.received + bytes.len() <= self.said, "more than was said");
        assert!(bytes.iter().copied().eq(due.take(bytes.len())));
        self.received += bytes.len();
        if bytes.len() < room {
            self.check_nothing(Received::Nothing);
        }
    }

    /// No event would tell of what is left.
    fn check_nothing(&mut self, outcome: Received) {
        match outcome {
            Received::Ended => {
                assert!(!self.is_honest || self.has_ended || self.server.is_handshaking());
                self.has_ended = true;
            }
            _ if self.server.has_more() => {}
            _ => {
                let left = rustix::io::ioctl_fionread(self.other_end()).expect("a socket");
                assert_eq!(left, 0, "nobody will tell of them");
            }
        }
    }

    /// The server's descriptor.
    fn other_end(&self) -> BorrowedFd<'_> {
        // SAFETY: `server` owns it, and lives as long as the result.
        unsafe { BorrowedFd::borrow_raw(self.server.descriptor()) }
    }

    fn answer(&mut self, len: usize) {
        if self.server.is_handshaking() {
            return;
        }
        let bytes: Vec<u8> = (self.answered..self.answered + len).map(byte).collect();
        let half = len / 2;
        let pieces = [&bytes[..half], &bytes[half..]].map(IoSlice::new);
        match self.server.send_vectored(&pieces) {
            Sent::Bytes(taken) => {
                assert!(taken <= len.min(UNSENT_MAX));
                self.answered += taken;
            }
            Sent::Full => assert!(self.server.has_unsent()),
            Sent::Broken => {}
        }
        if let Sent::Bytes(_) = self.server.flush() {
            assert!(!self.server.has_unsent());
        }
    }

    /// The client reads what the server has sent.
    fn hear(&mut self) {
        let mut space = [0; 4096];
        if self.is_client_done {
            return;
        }
        while let Ok(1..) = self.client.read_tls(&mut self.wire) {
            if self.client.process_new_packets().is_err() {
                self.is_honest = false;
                return;
            }
            while let Ok(len @ 1..) = self.client.reader().read(&mut space) {
                let due = (self.heard..self.heard + len).map(byte);
                assert!(space[..len].iter().copied().eq(due));
                self.heard += len;
                assert!(self.heard <= self.answered);
            }
        }
    }

    fn end(&mut self, politely: bool) {
        match politely {
            true => {
                self.client.send_close_notify();
                self.is_client_done = true;
            }
            false => {
                let _ = self.wire.shutdown(std::net::Shutdown::Write);
            }
        }
        self.has_ended = true;
    }

    /// The server says its end. Whatever comes then is dropped.
    fn server_ends(&mut self) {
        self.server.end_output();
        self.has_ended = true;
    }

    /// Where nobody has meddled, all that was said is received, and all answers are heard.
    fn conclude(&mut self, shows_certificate: bool) {
        if !self.is_honest || self.has_ended {
            return;
        }
        for _ in 0..self.said / 1000 + 20 {
            self.pass(usize::MAX);
            self.receive(100_000);
            if !self.server.is_handshaking() {
                // A client that is refused hears of it after its own part.
                let _ = self.server.flush();
            }
            self.hear();
            if !self.is_honest || self.has_ended {
                return;
            }
        }
        if self.server.is_handshaking() {
            return;
        }
        assert_eq!((self.received, self.heard), (self.said, self.answered));
        let names = self.server.peer_names();
        match shows_certificate {
            true => assert_eq!(names, ["CN:client", "DNS:localhost", "URI:spiffe://example/client"]),
            false => assert!(names.is_empty()),
        }
    }
}

fn byte(at: usize) -> u8 {
    (at % 251) as u8
}
