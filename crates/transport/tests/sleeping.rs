//! A worker that sleeps does not miss the frame that comes just before it does.

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use coua_tcp::nic::{Features, Frame, Nic, Offload};
use coua_transport::userspace::{Card, Config, Exchange, Mac, OtherCard, Polling, StackSetup};
use coua_transport::{Events, Poller, Token};
use rustix::event::{EventfdFlags, eventfd};

/// What a card was asked, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asked {
    Arm,
    /// To receive, which brought so many frames.
    Receive(usize),
    Disarm,
}

/// A card whose interrupt tells of what comes after it was armed alone, as many do: a frame comes
/// in the moment in which it is armed for the first time, and its descriptor stays silent.
struct LateCard {
    interrupt: OwnedFd,
    arriving: VecDeque<Vec<u8>>,
    burst: Vec<Vec<u8>>,
    slot: Vec<u8>,
    asked: Arc<Mutex<Vec<Asked>>>,
    was_armed: bool,
}

impl LateCard {
    fn note(&self, asked: Asked) {
        self.asked.lock().expect("no panic").push(asked);
    }
}

impl Nic for LateCard {
    fn features(&self) -> Features {
        Features {
            mac: Mac([2, 0, 0, 0, 0, 1]),
            mtu: 1500,
            fills_checksums: false,
            segmentation_len_max: 0,
        }
    }

    fn receive(&mut self) -> usize {
        self.burst = self.arriving.drain(..).collect();
        self.note(Asked::Receive(self.burst.len()));
        self.burst.len()
    }

    fn frame(&self, at: usize) -> Frame<'_> {
        Frame {
            bytes: &self.burst[at],
            is_verified: false,
        }
    }

    fn release(&mut self) {
        self.burst.clear();
    }

    fn slot(&mut self) -> Option<&mut [u8]> {
        Some(&mut self.slot)
    }

    fn commit(&mut self, _: usize, _: Offload) {}

    fn flush(&mut self) {}
}

impl OtherCard for LateCard {
    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.interrupt.as_fd())
    }

    fn arm(&mut self) -> bool {
        self.note(Asked::Arm);
        if !self.was_armed {
            self.arriving.push_back(vec![0xff; 60]);
            self.was_armed = true;
        }
        true
    }

    fn disarm(&mut self) {
        self.note(Asked::Disarm);
    }
}

#[test]
fn a_frame_that_comes_while_the_card_is_armed_is_taken_before_the_worker_sleeps() {
    let asked = Arc::new(Mutex::new(Vec::new()));
    let card = LateCard {
        interrupt: eventfd(0, EventfdFlags::CLOEXEC).expect("a descriptor"),
        arriving: VecDeque::new(),
        burst: Vec::new(),
        slot: vec![0; 1600],
        asked: Arc::clone(&asked),
        was_armed: false,
    };
    let address = "192.0.2.1/24".parse().expect("an address");
    let setup = StackSetup {
        card: Card::Other(Box::new(card)),
        config: Config::new(vec![address], [7; 32]),
        ports: Vec::new(),
        datagram_port: None,
        polling: Polling::Adaptive,
        exchange: Exchange::between(1).pop().expect("one"),
    };
    let mut poller = Poller::new().expect("epoll");
    poller.host(setup, Token(1)).expect("a descriptor");
    let mut events = Events::new();
    let disarms = |asked: &Mutex<Vec<Asked>>| {
        let asked = asked.lock().expect("no panic");
        asked
            .iter()
            .filter(|asked| **asked == Asked::Disarm)
            .count()
    };
    // The worker goes on asking for a while before it sleeps, and then sleeps twice.
    while disarms(&asked) < 2 {
        let waited = poller.wait(&mut events, Duration::from_millis(20), || {});
        drop(waited.expect("epoll"));
        poller.end_turn();
    }
    let asked = asked.lock().expect("no panic");
    let arms = asked
        .iter()
        .enumerate()
        .filter(|(_, asked)| **asked == Asked::Arm);
    let after_arms: Vec<Asked> = arms.map(|(at, _)| asked[at + 1]).collect();
    assert_eq!(after_arms[0], Asked::Receive(1), "{asked:?}");
    // It sleeps where there was nothing, too.
    assert_eq!(after_arms[1], Asked::Receive(0), "{asked:?}");
}
