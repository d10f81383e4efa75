//! The protocol's both sides over a real network: libfabric's provider `tcp`.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use coua_rdma::libfabric::{Driver, DriverEvent, Rights, Setup};
use coua_rdma::{
    Client, ClientEvent, ClientMemory, FRAME_LEN, Fabric, Limits, Measured, REPLY_COPY_MAX,
    RemoteMemory, RequestId, Server, ServerEvent, Span, Submission, Ticket, Value,
};

const LENT_LEN: usize = 4 << 20;
const ARENA_LEN: usize = 4 << 20;

/// Generous: the machine may do much else.
const PATIENCE: Duration = Duration::from_secs(30);

/// The provider and the address of a device: the kernel's TCP, unless `LIBFABRIC_TEST` says otherwise (`verbs 10.9.0.1:0`).
fn network() -> (String, SocketAddr) {
    let text = std::env::var("LIBFABRIC_TEST");
    let text = text.as_deref().unwrap_or("tcp 127.0.0.1:0");
    let (provider, address) = text.split_once(' ').expect("a provider and an address");
    (provider.to_owned(), address.parse().expect("an address"))
}

fn setup(address: SocketAddr, credits: usize) -> Setup {
    Setup {
        provider: network().0,
        address,
        credits,
        peers_max: 4,
    }
}

/// A server that answers `get N` with N bytes of its arena, and keeps the last value that was set at its beginning.
struct Echo {
    driver: Driver,
    server: Server<()>,
    arena: Span,
    value: Option<(RequestId, usize)>,
    closed: usize,
    misbehaved: usize,
}

impl Echo {
    fn new() -> Echo {
        let limits = Limits::default();
        let (_, address) = network();
        let mut driver =
            Driver::listen(setup(address, limits.credits)).expect("libfabric1 is installed");
        let frames = 4 * limits.credits;
        let (replies, _) = driver
            .add_memory(2 * frames * REPLY_COPY_MAX, Rights::None)
            .expect("memory");
        let (arena, _) = driver.add_memory(ARENA_LEN, Rights::None).expect("memory");
        let replies = (0..2 * frames).map(|nth| replies.part(nth * REPLY_COPY_MAX, REPLY_COPY_MAX));
        let pattern: Vec<u8> = (0..ARENA_LEN).map(pattern).collect();
        driver.copy_in(arena, &pattern);
        Echo {
            server: Server::new(limits, frames, replies.collect()),
            driver,
            arena,
            value: None,
            closed: 0,
            misbehaved: 0,
        }
    }

    fn run(&mut self) {
        let mut events = Vec::new();
        self.driver.poll(&mut events);
        for event in events {
            match event {
                DriverEvent::Asked { request, data } => {
                    let word = |at: usize| {
                        u64::from_le_bytes(data[at..at + 8].try_into().expect("eight bytes"))
                    };
                    let memory = RemoteMemory {
                        key: word(0),
                        address: word(8),
                        len: word(16),
                    };
                    let peer = self.driver.accept(request).expect("room");
                    self.server.connect(peer, memory, false).expect("room");
                }
                DriverEvent::Connected { .. } => {}
                DriverEvent::Completion(completion) => {
                    let mut acts = Vec::new();
                    self.server.take(&mut self.driver, completion, &mut acts);
                    for act in acts {
                        self.act(act);
                    }
                }
            }
        }
    }

    fn act(&mut self, event: ServerEvent) {
        let (server, driver) = (&mut self.server, &mut self.driver);
        match event {
            ServerEvent::Request {
                request,
                command,
                early,
                value_len,
                early_len,
                ..
            } => {
                let line = String::from_utf8_lossy(driver.bytes(command)).into_owned();
                if let Some(len) = line.strip_prefix("get ") {
                    let len = len.parse().expect("a number");
                    let value = self.arena.part(0, len);
                    server.reply_from(driver, request, (b"V ", b"\r\n"), &[value], ());
                } else if value_len == 0 {
                    server.reply(driver, request, line.as_bytes());
                } else {
                    let bytes = driver.bytes(early).to_vec();
                    driver.copy_in(self.arena.part(0, bytes.len()), &bytes);
                    self.value = Some((request, value_len));
                    let place = self.arena.part(early_len, value_len - early_len);
                    server.receive_value(driver, request, (place.len > 0).then_some(place));
                }
                server.release(driver, command);
            }
            ServerEvent::Early { offset, bytes, .. } => {
                let copy = driver.bytes(bytes).to_vec();
                driver.copy_in(self.arena.part(offset, copy.len()), &copy);
                server.release(driver, bytes);
            }
            ServerEvent::Arrived { request } => server.reply(driver, request, b"STORED\r\n"),
            ServerEvent::Abandoned { .. } => {}
            ServerEvent::Misbehaved { .. } => self.misbehaved += 1,
            ServerEvent::Closed { .. } => self.closed += 1,
        }
    }
}

struct User {
    driver: Driver,
    client: Option<Client>,
    memory: ClientMemory,
    events: Vec<ClientEvent>,
}

impl User {
    fn connect(echo: &mut Echo) -> User {
        let limits = Limits::default();
        let to = echo.driver.address().expect("it listens");
        let mut driver = Driver::client(setup(to, 0)).expect("libfabric1 is installed");
        let (lent, remote) = driver
            .add_memory(LENT_LEN, Rights::ReadAndWrite)
            .expect("memory");
        let (frames, _) = driver
            .add_memory(limits.credits * FRAME_LEN, Rights::None)
            .expect("memory");
        let memory = ClientMemory {
            lent,
            remote,
            frames: (0..limits.credits)
                .map(|nth| frames.part(nth * FRAME_LEN, FRAME_LEN))
                .collect(),
        };
        let mut data = Vec::new();
        for word in [remote.key, remote.address, LENT_LEN as u64] {
            data.extend(word.to_le_bytes());
        }
        driver.connect(&data).expect("a way");
        let mut user = User {
            driver,
            client: None,
            memory,
            events: Vec::new(),
        };
        let began = Instant::now();
        while user.client.is_none() {
            assert!(began.elapsed() < PATIENCE, "no connection");
            echo.run();
            user.run();
        }
        user
    }

    fn run(&mut self) {
        let mut events = Vec::new();
        self.driver.poll(&mut events);
        for event in events {
            match event {
                DriverEvent::Connected { peer } => {
                    let measured = Measured {
                        round_trip_ns: 20_000,
                        bytes_per_us: 1000,
                        copied_per_us: 8000,
                    };
                    self.client = Some(Client::new(
                        peer,
                        Limits::default(),
                        measured,
                        self.memory.clone(),
                    ));
                }
                DriverEvent::Completion(completion) => {
                    let Some(client) = &mut self.client else {
                        panic!("{completion:?} before the connection");
                    };
                    client.take(&mut self.driver, completion, &mut self.events);
                }
                DriverEvent::Asked { .. } => unreachable!("nobody knows it"),
            }
        }
    }

    fn ask(
        &mut self,
        echo: &mut Echo,
        command: &[u8],
        value: Option<&[u8]>,
        reply_max: usize,
    ) -> Vec<u8> {
        let client = self.client.as_mut().expect("connected");
        let submission = Submission {
            command,
            value: value.map(Value::Bytes),
            reply_max,
        };
        let ticket = client
            .submit(&mut self.driver, &submission)
            .expect("nothing is under way");
        while value.is_some_and(|value| client.feed(&mut self.driver, ticket, value)) {}
        self.wait(echo, ticket)
    }

    fn wait(&mut self, echo: &mut Echo, ticket: Ticket) -> Vec<u8> {
        let began = Instant::now();
        loop {
            assert!(
                began.elapsed() < PATIENCE,
                "no reply: {:?}, {} and {} under way, {} and {} strays, {} have misbehaved, {} ended",
                echo.server.counts(),
                echo.driver.works(),
                self.driver.works(),
                echo.driver.strays(),
                self.driver.strays(),
                echo.misbehaved,
                echo.closed,
            );
            echo.run();
            self.run();
            for event in std::mem::take(&mut self.events) {
                match event {
                    ClientEvent::Done { ticket: done, len } if done == ticket => {
                        let client = self.client.as_mut().expect("connected");
                        let span = client.reply(ticket, len).expect("it is there");
                        let reply = self.driver.bytes(span).to_vec();
                        client.release(ticket);
                        return reply;
                    }
                    ClientEvent::Progress { .. } => {}
                    other => panic!("{other:?}"),
                }
            }
        }
    }
}

fn pattern(at: usize) -> u8 {
    u8::try_from(at * 7 % 251).expect("below 251")
}

#[test]
fn requests_and_values_of_every_length_arrive() {
    let mut echo = Echo::new();
    let mut user = User::connect(&mut echo);
    assert_eq!(user.ask(&mut echo, b"hello", None, 100), b"hello");
    for len in [0, 1, 511, 4096, 4097, 16 << 10, 100_000, 1 << 20] {
        let reply = user.ask(&mut echo, format!("get {len}").as_bytes(), None, len + 100);
        assert_eq!(reply.len(), len + 4, "{len}");
        assert!(
            reply[2..len + 2]
                .iter()
                .enumerate()
                .all(|(at, byte)| *byte == pattern(at)),
            "{len}"
        );
    }
    for len in [1, 4000, 5000, 20_000, 100_000, 1 << 20] {
        let value: Vec<u8> = (0..len).map(|at| pattern(at + len)).collect();
        assert_eq!(
            user.ask(&mut echo, b"set", Some(&value), 100),
            b"STORED\r\n",
            "{len}"
        );
        assert!(echo.driver.bytes(echo.arena.part(0, len)) == value, "{len}");
    }
    assert_eq!(user.client.as_ref().expect("connected").under_way(), 0);
    let began = Instant::now();
    while (echo.server.requests_under_way(), echo.driver.works()) != (0, 0) {
        assert!(began.elapsed() < PATIENCE, "work that never comes back");
        echo.run();
    }
}

#[test]
fn what_a_connection_had_is_free_when_it_has_ended() {
    let mut echo = Echo::new();
    let registrations = echo.driver.registrations();
    let all = echo.driver.frames_free();
    for nth in 0..200 {
        let mut user = User::connect(&mut echo);
        if nth % 3 > 0 {
            assert_eq!(user.ask(&mut echo, b"hello", None, 100), b"hello");
        }
        if nth % 3 == 1 {
            // It dies with a reply under way.
            let client = user.client.as_mut().expect("connected");
            let submission = Submission {
                command: b"get 1000000",
                value: None,
                reply_max: 1 << 20,
            };
            client
                .submit(&mut user.driver, &submission)
                .expect("nothing is under way");
            echo.run();
        }
        drop(user);
        let began = Instant::now();
        while echo.closed <= nth {
            assert!(
                began.elapsed() < PATIENCE,
                "the end of connection {nth} is not seen"
            );
            echo.run();
        }
        let left = (
            echo.driver.connections(),
            echo.server.len(),
            echo.server.requests_under_way(),
        );
        assert_eq!(left, (0, 0, 0));
        assert_eq!((echo.driver.frames_free(), echo.driver.works()), (all, 0));
        assert_eq!(echo.driver.registrations(), registrations);
    }
    assert_eq!((echo.misbehaved, echo.driver.strays()), (0, 0));
}

#[test]
fn a_sleeping_side_is_woken_by_its_descriptor() {
    let mut echo = Echo::new();
    let mut user = User::connect(&mut echo);
    let began = Instant::now();
    for driver in [&mut echo.driver, &mut user.driver] {
        let mut events = Vec::new();
        while !driver.may_sleep() {
            assert!(began.elapsed() < PATIENCE, "it never may sleep");
            driver.poll(&mut events);
        }
        assert!(events.is_empty());
    }
    let client = user.client.as_mut().expect("connected");
    let submission = Submission {
        command: b"hello",
        value: None,
        reply_max: 100,
    };
    let ticket = client
        .submit(&mut user.driver, &submission)
        .expect("nothing is under way");
    sleep(&echo.driver);
    let began = Instant::now();
    while echo.server.counts().requests == 0 {
        assert!(began.elapsed() < PATIENCE, "the request is not seen");
        echo.run();
        user.run();
    }
    sleep(&user.driver);
    assert_eq!(user.wait(&mut echo, ticket), b"hello");
}

/// Waits for a driver's descriptors.
fn sleep(driver: &Driver) {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let descriptors = driver.descriptors();
    let mut polled = descriptors
        .each_ref()
        .map(|fd| PollFd::new(fd, PollFlags::IN));
    let timeout = Timespec::try_from(PATIENCE).expect("short");
    assert!(
        poll(&mut polled, Some(&timeout)).expect("descriptors") > 0,
        "nobody has woken it"
    );
}

#[test]
fn what_is_not_there_is_named() {
    let mut missing = setup("192.0.2.77:0".parse().expect("an address"), 1);
    let error = Driver::listen(missing.clone())
        .err()
        .expect("nobody has this address");
    assert!(error.to_string().starts_with("cannot listen"), "{error}");
    missing.provider = "nothing".to_owned();
    let error = Driver::listen(missing).err().expect("no such provider");
    assert_eq!(
        error.to_string(),
        "libfabric's provider \"nothing\" has no device with this address"
    );
}
