//! Both ends of a link in one process, and guests that misbehave.

use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::sleep;
use std::time::{Duration, Instant};

use coua_tcp::nic::{Mac, Nic, Offload};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};

use super::super::channel::{Channel, ChannelRead};
use super::super::layout::Layout;
use super::super::mailbox::Event;
use super::super::message::{AddRing, Init, Message};
use super::super::nic::BURSTS_PER_WAKING;
use super::super::{MemifNic, News, OpenError, Options, Role, open};
use std::os::fd::{AsFd, BorrowedFd};

/// How long anything may take.
const PATIENCE: Duration = Duration::from_secs(30);

/// A socket that ends find each other by; gone when dropped.
struct Meeting(PathBuf);

impl Meeting {
    fn new() -> Meeting {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("coua-memif-{}-{count}.sock", std::process::id());
        Meeting(std::env::temp_dir().join(name))
    }

    fn options(&self, role: Role) -> Options {
        Options {
            role,
            ..Options::new(&self.0)
        }
    }

    fn open(&self, role: Role) -> End {
        End::open(&self.options(role))
    }
}

impl Drop for Meeting {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// An end and what it has told.
struct End {
    nics: Vec<MemifNic>,
    news: Arc<Mutex<Vec<News>>>,
}

impl End {
    fn open(options: &Options) -> End {
        let news: Arc<Mutex<Vec<News>>> = Arc::default();
        let told = Arc::clone(&news);
        let report = Box::new(move |news: &News| told.lock().unwrap().push(news.clone()));
        let nics = open(options, Mac([2, 0, 0, 0, 0, 1]), report).expect("it opens");
        End { nics, news }
    }

    /// As a worker that has just slept.
    fn turn(&mut self) {
        for nic in &mut self.nics {
            nic.arm();
            nic.disarm();
            nic.receive();
            nic.release();
        }
    }

    fn has_link(&self) -> bool {
        self.nics.iter().any(MemifNic::has_link)
    }

    fn last_news(&self) -> Option<News> {
        self.news.lock().unwrap().last().cloned()
    }
}

/// Turns all until something is so.
fn turn_until(ends: &mut [&mut End], is_so: impl Fn(&[&mut End]) -> bool) {
    let begun = Instant::now();
    while !is_so(ends) {
        assert!(begun.elapsed() < PATIENCE, "it does not come to that");
        ends.iter_mut().for_each(|end| end.turn());
        sleep(Duration::from_millis(1));
    }
}

fn meet(server: &mut End, client: &mut End) {
    turn_until(&mut [server, client], |ends| {
        ends.iter().all(|end| end.has_link())
    });
}

fn send(nic: &mut MemifNic, number: u8, len: usize) {
    let slot = nic.slot().expect("there is room");
    slot[..len].fill(number);
    nic.commit(len, Offload::None);
}

/// Frames go from one to the other and nothing else does.
fn exchange(from: &mut MemifNic, to: &mut MemifNic) {
    for len in [14, 60, 200, 1518] {
        for number in 0..40 {
            send(from, number, len);
        }
        from.flush();
        assert_eq!(to.receive(), 40);
        for (at, number) in (0..40).enumerate() {
            assert_eq!(to.frame(at).bytes, vec![number; len]);
        }
        to.release();
    }
}

#[test]
fn frames_go_both_ways() {
    let meeting = Meeting::new();
    let (mut server, mut client) = (meeting.open(Role::Server), meeting.open(Role::Client));
    meet(&mut server, &mut client);
    for _ in 0..20 {
        exchange(&mut server.nics[0], &mut client.nics[0]);
        exchange(&mut client.nics[0], &mut server.nics[0]);
    }
    for end in [&server, &client] {
        let counters = end.nics[0].counters();
        assert_eq!((counters.received, counters.sent), (3200, 3200));
        let connected = News::Connected {
            peer: "coua".to_owned(),
            queues: 1,
        };
        assert_eq!(end.last_news(), Some(connected));
    }
}

/// Slots are there until the ring is full, and again when the peer has read.
#[test]
fn a_peer_that_does_not_read_leaves_no_slot() {
    let meeting = Meeting::new();
    let (mut server, mut client) = (meeting.open(Role::Server), meeting.open(Role::Client));
    meet(&mut server, &mut client);
    for _ in 0..2 {
        let (from, to) = (&mut server.nics[0], &mut client.nics[0]);
        let mut count = 0;
        while from.slot().is_some() {
            send(from, 1, 60);
            count += 1;
        }
        assert_eq!(count, 1024);
        from.flush();
        assert!(from.slot().is_none());
        while to.receive() > 0 {}
        assert!(from.slot().is_some());
        from.flush();
        std::mem::swap(&mut server, &mut client);
    }
}

#[test]
fn a_client_leaves_and_comes_again() {
    let meeting = Meeting::new();
    let mut server = meeting.open(Role::Server);
    for _ in 0..3 {
        let mut client = meeting.open(Role::Client);
        meet(&mut server, &mut client);
        exchange(&mut server.nics[0], &mut client.nics[0]);
        // In the midst of a burst.
        send(&mut client.nics[0], 1, 60);
        client.nics[0].flush();
        drop(client);
        turn_until(&mut [&mut server], |ends| !ends[0].has_link());
        assert!(matches!(server.last_news(), Some(News::Left { .. })));
        // What is sent now goes nowhere.
        let before = server.nics[0].counters().without_link;
        send(&mut server.nics[0], 1, 60);
        server.nics[0].flush();
        assert_eq!(server.nics[0].counters().without_link, before + 1);
    }
}

#[test]
fn a_client_waits_for_its_server() {
    let meeting = Meeting::new();
    let mut client = meeting.open(Role::Client);
    turn_until(&mut [&mut client], |ends| ends[0].last_news().is_some());
    assert!(matches!(client.last_news(), Some(News::Waiting { .. })));
    let mut server = meeting.open(Role::Server);
    meet(&mut server, &mut client);
    drop(server);
    turn_until(&mut [&mut client], |ends| !ends[0].has_link());
    let mut server = meeting.open(Role::Server);
    meet(&mut server, &mut client);
    exchange(&mut server.nics[0], &mut client.nics[0]);
}

#[test]
fn queues_beyond_those_of_the_peer_idle() {
    for (servers, clients) in [(3, 2), (2, 3), (2, 2)] {
        let meeting = Meeting::new();
        let with = |role, queues| Options {
            queues,
            ..meeting.options(role)
        };
        let mut server = End::open(&with(Role::Server, servers));
        let mut client = End::open(&with(Role::Client, clients));
        turn_until(&mut [&mut server, &mut client], |ends| {
            let linked = ends.iter().flat_map(|end| &end.nics);
            linked.filter(|nic| nic.has_link()).count() == 4
        });
        for queue in [1, 0] {
            exchange(&mut server.nics[queue], &mut client.nics[queue]);
            exchange(&mut client.nics[queue], &mut server.nics[queue]);
        }
        assert!(server.nics[2..].iter().all(|nic| !nic.has_link()));
        assert!(client.nics[2..].iter().all(|nic| !nic.has_link()));
        let told = server.last_news();
        assert!(matches!(told, Some(News::Connected { queues: 2, .. })));
    }
}

#[test]
fn whoever_does_not_know_the_secret_is_refused() {
    let meeting = Meeting::new();
    let with = |role, secret: &str| Options {
        secret: Some(secret.to_owned()),
        ..meeting.options(role)
    };
    let mut server = End::open(&with(Role::Server, "right"));
    let mut client = End::open(&with(Role::Client, "wrong"));
    turn_until(&mut [&mut server, &mut client], |ends| {
        ends.iter().all(|end| end.last_news().is_some())
    });
    for end in [&server, &client] {
        let why = "wrong secret".to_owned();
        assert_eq!(end.last_news(), Some(News::Refused { why }));
    }
    drop(client);
    let mut client = End::open(&with(Role::Client, "right"));
    meet(&mut server, &mut client);
}

#[test]
fn a_second_client_is_refused_and_the_first_stays() {
    let meeting = Meeting::new();
    let (mut server, mut client) = (meeting.open(Role::Server), meeting.open(Role::Client));
    meet(&mut server, &mut client);
    let mut second = meeting.open(Role::Client);
    turn_until(&mut [&mut server, &mut second], |ends| {
        ends[1].last_news().is_some()
    });
    let why = "already connected".to_owned();
    assert_eq!(second.last_news(), Some(News::Refused { why }));
    exchange(&mut client.nics[0], &mut server.nics[0]);
}

#[test]
fn a_socket_belongs_to_one_server() {
    let meeting = Meeting::new();
    let options = meeting.options(Role::Server);
    let server = meeting.open(Role::Server);
    let again = open(&options, Mac::default(), Box::new(|_| ()));
    assert!(matches!(again, Err(OpenError::InUse { .. })));
    drop(server);
    assert!(!meeting.0.exists());
    // What one leaves behind that was killed is no hindrance, what is no socket is.
    drop(std::os::unix::net::UnixListener::bind(&meeting.0).expect("a path"));
    drop(meeting.open(Role::Server));
    fs::write(&meeting.0, "").expect("a path");
    let refused = open(&options, Mac::default(), Box::new(|_| ()));
    assert!(refused.is_err());
}

fn wait(nic: &MemifNic, limit: Duration) -> bool {
    let limit = Timespec::try_from(limit).expect("short");
    let mut set = [PollFd::new(nic, PollFlags::IN)];
    poll(&mut set, Some(&limit)).expect("poll") > 0
}

/// A worker that sleeps on the descriptor wakes for each frame, whenever it comes.
#[test]
fn a_frame_ends_a_sleep() {
    let meeting = Meeting::new();
    let (mut server, mut client) = (meeting.open(Role::Server), meeting.open(Role::Client));
    meet(&mut server, &mut client);
    for _ in 0..2 {
        let (from, to) = (&mut server.nics[0], &mut client.nics[0]);
        for is_late in [true, false, true] {
            if !is_late {
                send(from, 1, 60);
                from.flush();
                assert_eq!(from.receive(), 0);
            }
            to.arm();
            let is_early = wait(to, Duration::ZERO);
            assert!(is_early || is_late, "what is there ends it at once");
            if is_late {
                send(from, 1, 60);
                from.flush();
                assert_eq!(from.receive(), 0);
            }
            let begun = Instant::now();
            while to.receive() == 0 {
                assert!(begun.elapsed() < PATIENCE);
                assert!(wait(to, PATIENCE), "nobody wakes it");
                to.disarm();
            }
            to.release();
            // The look after the second is one for nothing.
            to.disarm();
        }
        assert!(from.counters().events >= 2);
        std::mem::swap(&mut server, &mut client);
    }
}

/// Who sends wakes its peer when it finds nothing to do, when it is about to sleep itself, and after a
/// few bursts in any case.
#[test]
fn a_sleeping_peer_is_woken_however_its_waker_goes_on() {
    let ways: [fn(&mut MemifNic); 3] = [
        |from| assert_eq!(from.receive(), 0),
        MemifNic::arm,
        |from| {
            for _ in 1..BURSTS_PER_WAKING {
                assert_eq!(from.counters().events, 0, "that can wait");
                send(from, 1, 60);
                from.flush();
            }
        },
    ];
    for goes_on in ways {
        let meeting = Meeting::new();
        let (mut server, mut client) = (meeting.open(Role::Server), meeting.open(Role::Client));
        meet(&mut server, &mut client);
        let (from, to) = (&mut server.nics[0], &mut client.nics[0]);
        to.arm();
        send(from, 1, 60);
        from.flush();
        goes_on(from);
        assert_eq!(from.counters().events, 1);
        assert!(wait(to, PATIENCE), "nobody wakes it");
    }
}

/// A message of a guest's, and a descriptor with it.
type Said<'d> = (Message, Option<BorrowedFd<'d>>);

/// Whoever connects and what it says, for a server to bear with.
struct Guest(Channel);

impl Guest {
    fn come(meeting: &Meeting) -> Guest {
        Guest(Channel::connect(&meeting.0).expect("a server listens"))
    }

    fn say(&self, message: &Message, descriptor: Option<BorrowedFd<'_>>) {
        // It may have been turned out.
        let _ = self.0.send(message, descriptor);
    }

    fn init(&self) {
        let init = Init {
            name: "guest".to_owned(),
            is_known_version: true,
            id: 0,
            is_ethernet: true,
            secret: [0; 24],
        };
        self.say(&Message::Init(init), None);
    }

    /// What the server has said last, once it has closed the channel or has nothing to say.
    fn farewell(&self, server: &mut End) -> Option<String> {
        let mut last = None;
        for _ in 0..50 {
            server.turn();
            match self.0.receive() {
                ChannelRead::Message(Message::Disconnect(why), _) => last = Some(why),
                ChannelRead::End => break,
                _ => {}
            }
        }
        last
    }
}

#[test]
fn guests_that_talk_nonsense_are_turned_out() {
    let meeting = Meeting::new();
    let mut server = meeting.open(Role::Server);
    let sealed = || {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file = memfd_create("test", flags).expect("a memfd");
        ftruncate(&file, 1 << 20).expect("it grows");
        file
    };
    let region = |number, len| Message::AddRegion { number, len };
    let ring = |number| {
        Message::AddRing(AddRing {
            to_server: true,
            number,
            region: 0,
            offset: 0,
            log2_len: 10,
        })
    };
    let (file, event) = (sealed(), Event::new().expect("an event"));
    let good = sealed();
    rustix::fs::fcntl_add_seals(&good, rustix::fs::SealFlags::SHRINK).expect("a seal");
    let (file, event, good) = (file.as_fd(), event.as_fd(), good.as_fd());
    let cases: &[(&str, &[Said<'_>])] = &[
        ("unexpected message", &[(Message::Hello(hello()), None)]),
        ("a region without its descriptor", &[(region(0, 1), None)]),
        (
            "memory of a region that can shrink: no F_SEAL_SHRINK on its memfd",
            &[(region(0, 1 << 20), Some(file))],
        ),
        (
            "memory that is shorter than its region",
            &[(region(0, 1 << 21), Some(good))],
        ),
        ("too much memory", &[(region(0, u64::MAX), Some(good))]),
        ("regions count from 0 to 15", &[(region(1, 1), Some(good))]),
        ("a ring without its event", &[(ring(0), None)]),
        (
            "the event of a ring is no eventfd",
            &[(ring(0), Some(file))],
        ),
        (
            "more rings than hello has allowed",
            &[(ring(1), Some(event))],
        ),
        ("no ring of either direction", &[(Message::Connect, None)]),
    ];
    for (why, messages) in cases {
        let guest = Guest::come(&meeting);
        guest.init();
        for (message, descriptor) in *messages {
            guest.say(message, *descriptor);
        }
        assert_eq!(guest.farewell(&mut server).as_deref(), Some(*why));
    }
    // Rings that are none: the memory is zeros.
    let guest = Guest::come(&meeting);
    guest.init();
    guest.say(&region(0, 1 << 20), Some(good));
    guest.say(&ring(0), Some(event));
    let Message::AddRing(to_client) = ring(0) else {
        unreachable!("made so");
    };
    let to_client = AddRing {
        to_server: false,
        ..to_client
    };
    guest.say(&Message::AddRing(to_client), Some(event));
    guest.say(&Message::Connect, None);
    let why = "a ring does not begin with the cookie";
    assert_eq!(guest.farewell(&mut server).as_deref(), Some(why));
    // Whoever says nothing hinders nobody.
    let mut silent = Vec::new();
    for _ in 0..20 {
        silent.push(Guest::come(&meeting));
        server.turn();
    }
    let mut client = meeting.open(Role::Client);
    meet(&mut server, &mut client);
    drop(silent);
    exchange(&mut client.nics[0], &mut server.nics[0]);
}

/// A guest that keeps to all forms, and then moves an index to where it cannot be.
#[test]
fn a_guest_that_lies_about_an_index_is_turned_out() {
    let meeting = Meeting::new();
    let mut server = meeting.open(Role::Server);
    let layout = Layout::new(1, 6, 1518).expect("it is little");
    let (memory, file) = layout.create().expect("memory");
    let event = Event::new().expect("an event");
    let guest = Guest::come(&meeting);
    guest.init();
    let (number, len) = (0, layout.len() as u64);
    guest.say(&Message::AddRegion { number, len }, Some(file.as_fd()));
    for to_server in [true, false] {
        let ring = AddRing {
            to_server,
            number: 0,
            region: 0,
            offset: layout.offset(to_server, 0),
            log2_len: 6,
        };
        guest.say(&Message::AddRing(ring), Some(event.as_fd()));
    }
    guest.say(&Message::Connect, None);
    turn_until(&mut [&mut server], |ends| ends[0].has_link());
    layout.ring(&memory, true, 0).publish(65);
    let why = "an index of a ring is out of range";
    assert_eq!(guest.farewell(&mut server).as_deref(), Some(why));
    assert!(!server.has_link());
    assert!(matches!(server.last_news(), Some(News::Left { .. })));
}

fn hello() -> super::super::message::Hello {
    super::super::message::Hello {
        name: String::new(),
        is_known_version: true,
        region_max: 0,
        to_client_max: 0,
        to_server_max: 0,
        log2_len_max: 0,
    }
}
