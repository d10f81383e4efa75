//! Clients that cheat: each loses its connections, and others notice nothing.

use std::io::Read;
use std::time::Instant;

use coua_rdma::libfabric::{Driver, DriverEvent, Link, LinkError, Rights, Setup};
use coua_rdma::{
    Completion, Fabric, Gather, Greeting, Offer, PeerId, Remote, RemoteMemory, Span, Work,
};

use super::{Client, LENT_LEN, Lines, PATIENCE, hit, server, value};

/// A client that sends what it likes.
struct Forger {
    lines: Lines,
    driver: Driver,
    peer: PeerId,
    lent: Span,
    remote: Remote,
}

const FORGER_LEN: usize = 1 << 20;

impl Forger {
    fn connect(lines: Lines, offer: &Offer) -> Forger {
        let mut driver = Driver::client(Setup {
            provider: offer.provider.clone(),
            address: offer.address,
            credits: 0,
            peers_max: 1,
        })
        .expect("libfabric is there");
        let (lent, remote) = driver
            .add_memory(FORGER_LEN, Rights::ReadAndWrite)
            .expect("memory");
        let memory = RemoteMemory {
            key: remote.key,
            address: remote.address,
            len: FORGER_LEN as u64,
        };
        let greeting = Greeting {
            token: offer.token,
            memory,
        };
        let peer = driver.connect(&greeting.encode()).expect("a way");
        let mut forger = Forger {
            lines,
            driver,
            peer,
            lent,
            remote,
        };
        let is_connected = |event: &DriverEvent| matches!(event, DriverEvent::Connected { .. });
        forger.wait(is_connected, "no connection");
        forger
    }

    fn wait(&mut self, is_it: impl Fn(&DriverEvent) -> bool, complaint: &str) {
        let began = Instant::now();
        loop {
            let mut events = Vec::new();
            self.driver.poll(&mut events);
            if events.iter().any(&is_it) {
                return;
            }
            assert!(began.elapsed() < PATIENCE, "{complaint}");
        }
    }

    fn post(&mut self, bytes: &[u8]) {
        self.driver.copy_in(self.lent, bytes);
        let from = Gather::of(self.lent.part(0, bytes.len()));
        // It may have ended already.
        let _ = self.driver.post(self.peer, &Work::Send { from }, 1);
    }

    /// The connection over RDMA ends.
    fn ends(&mut self, what: &str) {
        let ends = |event: &DriverEvent| {
            matches!(event, DriverEvent::Completion(Completion::Closed { .. }))
        };
        self.wait(ends, what);
    }

    /// Both connections end.
    fn both_end(mut self, what: &str) {
        self.ends(what);
        let read = self.lines.0.read(&mut [0; 8]);
        let is_reset = |error: &std::io::Error| error.kind() == std::io::ErrorKind::ConnectionReset;
        assert!(
            matches!(&read, Ok(0)) || read.as_ref().is_err_and(is_reset),
            "{what}: {read:?}"
        );
    }
}

/// A request's fixed part.
fn request(change: impl FnOnce(&mut [u8; 48]), remote: Remote, command: &[u8]) -> Vec<u8> {
    let mut head = [0; 48];
    head[0] = 1;
    head[4..6].copy_from_slice(&u16::try_from(command.len()).expect("short").to_le_bytes());
    head[24..28].copy_from_slice(&1024_u32.to_le_bytes());
    head[32..40].copy_from_slice(&remote.key.to_le_bytes());
    head[40..48].copy_from_slice(&remote.address.to_le_bytes());
    change(&mut head);
    [&head[..], command].concat()
}

fn put(head: &mut [u8; 48], at: usize, number: u32) {
    head[at..at + 4].copy_from_slice(&number.to_le_bytes());
}

#[test]
pub(super) fn who_cheats_is_disconnected_and_others_notice_nothing() {
    let Some(server) = server(&[]) else {
        return;
    };
    let mut honest = Client::connect(&server);
    let large = value(200_000, 9);
    honest.set("k", &large);
    let registrations = honest.lines.stat("registrations");
    type Change = fn(&mut [u8; 48]);
    let heads: [(&str, Change); 9] = [
        ("a kind that there is not", |head| head[0] = 9),
        ("a generation that there is not", |head| head[1] = 200),
        ("a slot that there is not", |head| head[3] = 0xff),
        ("a command longer than its frame", |head| head[5] = 0x40),
        ("an area beyond the lent memory", |head| {
            put(head, 20, u32::MAX)
        }),
        ("an area without room for a length", |head| put(head, 24, 0)),
        ("a value longer than any", |head| put(head, 8, u32::MAX)),
        ("more early bytes than bytes", |head| put(head, 12, 100)),
        ("a value beyond all addresses", |head| {
            put(head, 8, 1000);
            head[40..48].fill(0xff);
        }),
    ];
    for (what, change) in heads {
        let mut lines = Lines::connect(&server);
        let offer = lines.offer();
        let mut forger = Forger::connect(lines, &offer);
        let frame = request(change, forger.remote, b"get k\r\n");
        forger.post(&frame);
        forger.both_end(what);
        assert!(honest.get("k") == hit("k", &large), "{what}");
    }
    for (what, frame) in [
        ("an empty frame", &[][..]),
        ("half a frame", &[1, 0, 0][..]),
        (
            "more of a value that nobody waits for",
            &[2, 0, 0, 0, 0, 0, 0, 0, 1, 2, 3][..],
        ),
        (
            "a value ready that nobody waits for",
            &[3, 0, 0, 0, 9, 0, 0, 0][..],
        ),
    ] {
        let mut lines = Lines::connect(&server);
        let offer = lines.offer();
        let mut forger = Forger::connect(lines, &offer);
        // Not even a frame without bytes gets through as one.
        forger.post(if frame.is_empty() { &[0] } else { frame });
        forger.both_end(what);
    }
    // Keys and addresses that are not its own: the network refuses.
    for (what, key) in [
        ("another's key", 1_u64),
        ("a guessed key", 0x1234_5678_9abc_def0),
    ] {
        let mut lines = Lines::connect(&server);
        let offer = lines.offer();
        let mut forger = Forger::connect(lines, &offer);
        let remote = Remote {
            key,
            ..forger.remote
        };
        let frame = request(
            |head| {
                put(head, 8, 50_000);
                put(head, 16, 50_000);
            },
            remote,
            b"set x 0 0 50000\r\n",
        );
        forger.post(&frame);
        forger.ends(what);
        honest.lines.wait_for("connections", 1);
    }
    // More frames than credits, none of which can be answered: their values never become ready.
    let mut lines = Lines::connect(&server);
    let offer = lines.offer();
    let mut forger = Forger::connect(lines, &offer);
    for slot in 0..40_u8 {
        let frame = request(
            |head| {
                head[2] = slot;
                put(head, 8, 50_000);
            },
            forger.remote,
            b"set x 0 0 50000\r\n",
        );
        forger.driver.copy_in(
            forger.lent.part(usize::from(slot) * 128, frame.len()),
            &frame,
        );
        let from = Gather::of(forger.lent.part(usize::from(slot) * 128, frame.len()));
        let _ = forger.driver.post(forger.peer, &Work::Send { from }, 1);
    }
    forger.both_end("more frames than credits");
    assert!(honest.get("k") == hit("k", &large));
    honest.lines.wait_for("connections", 1);
    honest.lines.wait_for("staging_bytes", 0);
    honest.lines.wait_for("misbehaved", 14);
    assert_eq!(honest.lines.stat("registrations"), registrations);
    assert_eq!(honest.ask("get x\r\n"), "END\r\n");
}

/// A client that begins values and never sends them takes a part of the room, and others are served.
#[test]
pub(super) fn who_begins_values_and_sends_none_leaves_room_for_others() {
    let Some(server) = server(&["-t", "1"]) else {
        return;
    };
    let mut lines = Lines::connect(&server);
    let offer = lines.offer();
    let mut forger = Forger::connect(lines, &offer);
    for slot in 0..20_u8 {
        let frame = request(
            |head| {
                head[2] = slot;
                put(head, 8, 1_000_000);
            },
            forger.remote,
            b"set x 0 0 1000000\r\n",
        );
        let place = forger.lent.part(usize::from(slot) * 128, frame.len());
        forger.driver.copy_in(place, &frame);
        let from = Gather::of(place);
        let posted = forger.driver.post(forger.peer, &Work::Send { from }, 1);
        posted.expect("room for it");
    }
    let mut honest = Client::connect(&server);
    // Some are held, and the others have been refused.
    honest
        .lines
        .wait_until("staging_bytes", |bytes| bytes > 1_000_000);
    honest.lines.wait_until("requests", |count| count >= 20);
    for nth in 0..4 {
        let large = value(1_000_000, nth);
        honest.set("k", &large);
        assert!(honest.get("k") == hit("k", &large), "{nth}");
    }
    assert!(honest.lines.stat("staging_bytes") < 3 << 20);
}

#[test]
pub(super) fn a_token_is_good_once_and_for_its_own_connection() {
    let Some(server) = server(&[]) else {
        return;
    };
    let mut lines = Lines::connect(&server);
    let offer = lines.offer();
    let mut guessed = offer.clone();
    guessed.token[0] ^= 1;
    let refused = |offer: &Offer| {
        let error = Link::connect(offer, LENT_LEN, PATIENCE).expect_err("refused");
        assert!(matches!(error, LinkError::Refused), "{error}");
    };
    refused(&guessed);
    let link = Link::connect(&offer, LENT_LEN, PATIENCE).expect("it was offered");
    refused(&offer);
    // A client has one such connection beside each ordinary one.
    assert!(lines.ask("rdma\r\n").starts_with("SERVER_ERROR"));
    drop(link);
    // A later offer takes the place of one before.
    let mut other = Lines::connect(&server);
    let (first, second) = (other.offer(), other.offer());
    refused(&first);
    drop(Link::connect(&second, LENT_LEN, PATIENCE).expect("it was offered"));
    // The end of the ordinary connection ends its offers.
    let mut third = Lines::connect(&server);
    let offer = third.offer();
    drop(third);
    other.wait_for("connections", 0);
    std::thread::sleep(std::time::Duration::from_millis(200));
    refused(&offer);
    other.wait_for("refused", 5);
}

#[test]
pub(super) fn no_more_clients_than_allowed() {
    let Some(server) = server(&[]) else {
        return;
    };
    let mut clients: Vec<Client> = (0..2).map(|_| Client::connect(&server)).collect();
    // Others wait with their offers: so many that there is no place left on any worker.
    let mut waiting: Vec<Lines> = Vec::new();
    let mut refused = 0;
    for _ in 0..12 {
        let mut lines = Lines::connect(&server);
        if lines
            .ask("rdma\r\n")
            .starts_with("SERVER_ERROR no more clients")
        {
            refused += 1;
        }
        waiting.push(lines);
    }
    assert!(refused >= 4, "{refused}");
    assert_eq!(clients[0].ask("mn\r\n"), "MN\r\n");
}
