//! What the processes do that a test starts.

use std::io::{self, BufRead, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use coua_tcp::nic::Nic;
use coua_transport::userspace::dpdk::{Eal, Port, PortOptions, Queue, QueueCounters};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::thread::{CpuSet, sched_setaffinity};

use super::child::{Child, MARK, ROLE, SETTING};
use super::{errors, kernel, offloads, spreading, traffic};

/// Frames that `load` has on the way on each queue.
const WINDOW: u64 = 256;

/// Played in a process of a role's own. In the test program itself it shows that a role that there
/// is not is not played.
#[test]
fn plays_its_role() {
    let Ok(role) = std::env::var(ROLE) else {
        let mut child = Child::start("nobody", "", &[]);
        assert_eq!(child.hear("unknown"), "nobody");
        return;
    };
    match role.as_str() {
        "echo" => echo(),
        "load" => load(),
        "fill" => fill(),
        "late" => late(),
        "answer" => kernel::answer(),
        "ask-card" => offloads::ask_card(),
        "check" => offloads::check(),
        "open" => errors::open(),
        "spread" => spreading::spread(),
        "start-twice" => errors::start_twice(),
        "open-twice" => errors::open_twice(),
        other => {
            say(&format!("unknown {other}"));
            panic!("no role is called {other}");
        }
    }
}

/// A setting that the test has given, or nothing.
pub(crate) fn setting(name: &str) -> Option<String> {
    std::env::var(format!("{SETTING}{name}")).ok()
}

pub(crate) fn number(name: &str, otherwise: u64) -> u64 {
    setting(name).map_or(otherwise, |text| text.parse().expect("a number"))
}

/// Says a line to the test.
pub(crate) fn say(line: &str) {
    let mut output = io::stdout().lock();
    writeln!(output, "{MARK}{line}").expect("the test listens");
    output.flush().expect("the test listens");
}

/// Waits for the test to say something.
pub(crate) fn listen() -> String {
    let mut line = String::new();
    let count = io::stdin().lock().read_line(&mut line);
    if count.expect("the test's line") == 0 {
        return "end".to_owned();
    }
    line.trim().to_owned()
}

/// Opens the port as the settings say.
pub(crate) fn open_port() -> (Port, Vec<Queue>) {
    if setting("one-cpu").is_some() {
        let mut one = CpuSet::new();
        one.set(0);
        sched_setaffinity(None, &one).expect("every machine has a first CPU");
    }
    let eal = Eal::start(&setting("eal").expect("EAL's arguments")).expect("EAL starts");
    Port::open(eal, &options()).expect("the port opens")
}

pub(crate) fn options() -> PortOptions {
    PortOptions {
        name: setting("name"),
        queues: u16::try_from(number("queues", 1)).expect("a few"),
        mtu: setting("mtu").map(|mtu| mtu.parse().expect("a number")),
        offloads: number("offloads", 0) == 1,
        interrupts: number("interrupts", 0) == 1,
        connects: number("connects", 0) == 1,
    }
}

pub(crate) fn wait_for_link(port: &Port) {
    let deadline = Instant::now() + Duration::from_secs(10);
    while !port.link().is_up {
        assert!(Instant::now() < deadline, "no link comes");
        thread::sleep(Duration::from_millis(1));
    }
}

/// What works on a queue in a thread, and its counters.
pub(crate) struct Workers {
    threads: Vec<JoinHandle<()>>,
    is_over: Arc<AtomicBool>,
    pub(crate) counters: Arc<Mutex<Vec<(QueueCounters, u64)>>>,
}

impl Workers {
    /// Runs `turn` again and again for each queue, each in a thread of its own. `turn` says whether
    /// there was anything to do; where the queue can be slept on, it is after a while without.
    pub(crate) fn start(
        queues: Vec<Queue>,
        turn: impl Fn(&mut Queue) -> bool + Send + Copy + 'static,
    ) -> Workers {
        let is_over = Arc::new(AtomicBool::new(false));
        let counters = Arc::new(Mutex::new(vec![
            (QueueCounters::default(), 0);
            queues.len()
        ]));
        let threads = queues.into_iter().map(|mut queue| {
            let (is_over, counters) = (Arc::clone(&is_over), Arc::clone(&counters));
            thread::spawn(move || {
                let (mut idle, mut sleeps) = (0, 0);
                while !is_over.load(Ordering::Relaxed) {
                    if turn(&mut queue) {
                        idle = 0;
                    } else {
                        idle += 1;
                    }
                    if idle >= 1000 {
                        idle = 0;
                        sleeps += u64::from(sleep(&mut queue, turn));
                    }
                    let at = usize::from(queue.index());
                    counters.lock().expect("no panic")[at] = (queue.counters(), sleeps);
                }
            })
        });
        Workers {
            threads: threads.collect(),
            is_over,
            counters,
        }
    }

    pub(crate) fn end(self) {
        self.is_over.store(true, Ordering::Relaxed);
        for thread in self.threads {
            thread.join().expect("the worker is well");
        }
    }
}

/// Sleeps until a frame comes, at most for a quarter of a second; whether one did.
fn sleep(queue: &mut Queue, turn: impl Fn(&mut Queue) -> bool) -> bool {
    if queue.descriptor().is_none() {
        // Two cores are shared with the peer, unless the worker is to be put off its CPU anywhere.
        if setting("one-cpu").is_none() {
            thread::yield_now();
        }
        return false;
    }
    assert!(queue.arm(), "it has an interrupt");
    let mut is_woken = false;
    if !turn(queue) {
        let descriptor = queue.descriptor().expect("it has just been there");
        let limit = Timespec {
            tv_sec: 0,
            tv_nsec: 250_000_000,
        };
        let mut set = [PollFd::from_borrowed_fd(descriptor, PollFlags::IN)];
        is_woken = poll(&mut set, Some(&limit)).expect("poll") > 0;
    }
    queue.disarm();
    is_woken
}

/// Sends back what comes, on the queue that it came on, until told to end.
fn echo() {
    let (port, queues) = open_port();
    let count = queues.len();
    let workers = Workers::start(queues, echo_turn);
    say(&format!("ready queues={count}"));
    while listen() == "counters" {
        let mut sum = QueueCounters::default();
        let (mut sleeps, mut busy) = (0, 0);
        for (of_queue, of_sleeps) in workers.counters.lock().expect("no panic").iter() {
            sum.received += of_queue.received;
            sum.sent += of_queue.sent;
            sum.without_link += of_queue.without_link;
            sum.oversized += of_queue.oversized;
            sum.refused += of_queue.refused;
            sleeps += of_sleeps;
            busy += u64::from(of_queue.received > 0);
        }
        say(&format!(
            "counters received={} sent={} without_link={} oversized={} refused={} sleeps={sleeps} busy={busy} up={} missed={}",
            sum.received,
            sum.sent,
            sum.without_link,
            sum.oversized,
            sum.refused,
            u64::from(port.link().is_up),
            port.counters().missed,
        ));
    }
    workers.end();
}

fn echo_turn(queue: &mut Queue) -> bool {
    let index = queue.index();
    echo_back(queue, index)
}

/// Sends back what has come to a queue of a number; whether there was anything.
pub(crate) fn echo_back(queue: &mut impl Nic, index: u16) -> bool {
    let count = queue.receive();
    let mut copy = [0; 2048];
    for at in 0..count {
        let bytes = queue.frame(at).bytes;
        if !traffic::is_ours(bytes) {
            continue;
        }
        let (of, _) = traffic::name(bytes);
        assert_eq!(u16::from(of), index, "a frame of another queue");
        let len = bytes.len();
        copy[..len].copy_from_slice(bytes);
        traffic::turn(&mut copy[..len]);
        // A peer that has gone takes nothing; then the frame is lost, as on a cable.
        let deadline = Instant::now() + Duration::from_millis(100);
        while !traffic::send(queue, &copy[..len]) && Instant::now() < deadline {
            queue.flush();
            thread::yield_now();
        }
    }
    queue.release();
    // As a stack does: what a flush leaves over goes when there is room, without another.
    if count > 0 {
        queue.flush();
    }
    count > 0
}

/// Sends frames and checks that each comes back, whole and in order, on its queue.
fn load() {
    let (port, queues) = open_port();
    wait_for_link(&port);
    say("ready");
    let frames = number("frames", u64::MAX);
    let threads = queues.into_iter().map(|mut queue| {
        thread::spawn(move || {
            let index = u8::try_from(queue.index()).expect("a few");
            load_queue(&mut queue, index, frames);
            queue.counters()
        })
    });
    let threads: Vec<_> = threads.collect();
    for (index, thread) in threads.into_iter().enumerate() {
        let counters = thread.join().expect("every frame comes back as it was");
        say(&format!(
            "done queue={index} received={} sent={}",
            counters.received, counters.sent
        ));
    }
    drop(port);
}

/// Sends so many frames on a queue of a number, and checks that each comes back.
pub(crate) fn load_queue(queue: &mut impl Nic, index: u8, frames: u64) {
    let (mut sent, mut back) = (0, 0);
    let mut progress = Instant::now();
    while back < frames {
        while sent < frames && sent - back < WINDOW {
            if !traffic::send(queue, &traffic::frame(index, sent)) {
                break;
            }
            sent += 1;
        }
        queue.flush();
        let count = queue.receive();
        for at in 0..count {
            let bytes = queue.frame(at).bytes;
            if !traffic::is_ours(bytes) {
                continue;
            }
            let mut expected = traffic::frame(index, back);
            traffic::turn(&mut expected);
            assert_eq!(traffic::name(bytes), (index, back), "not the next frame");
            assert_eq!(bytes, expected, "frame {back} has changed");
            back += 1;
        }
        if count > 0 {
            progress = Instant::now();
        } else {
            thread::yield_now();
        }
        assert!(
            progress.elapsed() < Duration::from_secs(10),
            "{back} of {sent} came back, and no more"
        );
    }
}

/// Sends to a peer that takes nothing until there is no slot, says so, and goes on when there is.
fn fill() {
    let (port, mut queues) = open_port();
    wait_for_link(&port);
    let mut queue = queues.pop().expect("one queue");
    let mut sent = 0;
    let mut refusals = 0;
    while refusals < 1000 {
        if traffic::send(&mut queue, &traffic::frame(0, sent)) {
            sent += 1;
            refusals = 0;
        } else {
            refusals += 1;
            queue.flush();
        }
    }
    say(&format!(
        "full sent={sent} without_slot={}",
        queue.counters().without_slot
    ));
    let total = sent + number("frames", 0);
    let deadline = Instant::now() + Duration::from_secs(10);
    while sent < total || queue.counters().sent < total {
        assert!(Instant::now() < deadline, "no room comes after {sent}");
        if sent < total && traffic::send(&mut queue, &traffic::frame(0, sent)) {
            sent += 1;
        } else {
            // Receiving makes room too, without a flush.
            queue.receive();
            thread::yield_now();
        }
        if sent == total {
            queue.flush();
        }
    }
    say(&format!("sent total={}", queue.counters().sent));
    // The peer has to have them before the link goes.
    listen();
}

/// Takes nothing until told to, then everything, and checks it.
fn late() {
    let (_port, mut queues) = open_port();
    let mut queue = queues.pop().expect("one queue");
    say("ready");
    let total: u64 = listen().parse().expect("how many frames come");
    let mut next = 0;
    let deadline = Instant::now() + Duration::from_secs(10);
    while next < total {
        assert!(Instant::now() < deadline, "{next} of {total} came");
        for at in 0..queue.receive() {
            let bytes = queue.frame(at).bytes;
            assert_eq!(bytes, traffic::frame(0, next), "not the next frame");
            next += 1;
        }
    }
    say(&format!("received total={next}"));
    listen();
}
