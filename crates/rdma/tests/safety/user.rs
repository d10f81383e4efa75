//! A client that knows what it has stored.

use std::collections::HashMap;

use coua_rdma::simulated::{NodeFabric, NodeId, Rights, World};
use coua_rdma::{
    Client, ClientEvent, ClientMemory, Completion, FRAME_LEN, Fabric, Limits, Measured, NotNow,
    PeerId, RemoteMemory, Submission, Ticket, Value,
};

use crate::run::Dice;

/// What a key may hold.
#[derive(Clone, Debug, Default)]
struct Known {
    /// Versions that may be there; 0 for none.
    versions: Vec<u64>,
    /// A request for it is under way: requests of one connection are executed in any order.
    is_busy: bool,
}

#[derive(Clone, Copy, Debug)]
enum Asked {
    Get { key: u64 },
    Set { key: u64, version: u64 },
}

/// What has come of a user's requests.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    pub(crate) answered: u64,
    pub(crate) lost: u64,
    pub(crate) too_long: u64,
}

pub(crate) struct User {
    pub(crate) node: NodeId,
    number: u64,
    limits: Limits,
    measured: Measured,
    memory: ClientMemory,
    client: Option<Client>,
    pub(crate) peer: PeerId,
    keys: Vec<Known>,
    version: u64,
    asked: HashMap<Ticket, Asked>,
    given_up: HashMap<Ticket, Asked>,
    /// Values that are not all copied yet.
    feeding: Vec<(Ticket, Vec<u8>)>,
    left: usize,
    pub(crate) counts: Counts,
    dice: Dice,
}

/// The bytes of a version of a value.
fn value(key: u64, version: u64) -> Vec<u8> {
    // Each order of magnitude is as likely as another.
    let magnitude = (key * 7 + version * 13) % 17;
    let len = (1 + (version * 2_654_435_761 + key) % (2 << magnitude)).min(150_000);
    let seed = version.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ key;
    (0..len)
        .map(|at| (seed.rotate_left((at % 61) as u32) ^ at).to_le_bytes()[0])
        .collect()
}

impl User {
    pub(crate) fn new(
        world: &mut World,
        limits: Limits,
        number: u64,
        requests: usize,
        dice: Dice,
    ) -> User {
        let node = world.add_node();
        let (lent, remote) = world.add_region(node, 1 << 20, Rights::Write);
        let (frames, _) = world.add_region(node, limits.credits * FRAME_LEN, Rights::None);
        let frame = |nth| frames.part(nth * FRAME_LEN, FRAME_LEN);
        let measured = Measured {
            round_trip_ns: 3000,
            bytes_per_us: 6000,
            copied_per_us: 8000,
        };
        User {
            node,
            number,
            limits,
            measured,
            memory: ClientMemory {
                lent,
                remote,
                frames: (0..limits.credits).map(frame).collect(),
            },
            client: None,
            peer: PeerId(0),
            keys: vec![
                Known {
                    versions: vec![0],
                    is_busy: false,
                };
                12
            ],
            version: 0,
            asked: HashMap::new(),
            given_up: HashMap::new(),
            feeding: Vec::new(),
            left: requests,
            counts: Counts::default(),
            dice,
        }
    }

    /// Begins anew over a connection that was just made. Returns what the server is told.
    pub(crate) fn connect(&mut self, peer: PeerId) -> RemoteMemory {
        self.peer = peer;
        self.client = Some(Client::new(
            peer,
            self.limits,
            self.measured,
            self.memory.clone(),
        ));
        RemoteMemory {
            key: self.memory.remote.key,
            address: self.memory.remote.address,
            len: self.memory.lent.len as u64,
        }
    }

    pub(crate) fn wants_connection(&self) -> bool {
        self.client.is_none() && self.left > 0
    }

    pub(crate) fn is_done(&self) -> bool {
        self.left == 0 && self.client.is_none()
    }

    /// For who looks at a failed run.
    pub(crate) fn state(&self) -> String {
        let under_way = self.client.as_ref().map(Client::under_way);
        let (asked, given_up) = (&self.asked, &self.given_up);
        let (left, feeding) = (self.left, self.feeding.len());
        format!("{left} left, {under_way:?} under way, {asked:?}, {given_up:?}, {feeding} copied")
    }

    pub(crate) fn run(&mut self, fabric: &mut NodeFabric<'_>) {
        let mut events = Vec::new();
        while let Some(completion) = fabric.poll() {
            let is_mine = match completion {
                Completion::Closed { peer } | Completion::Written { peer, .. } => peer == self.peer,
                _ => true,
            };
            if let Some(client) = self.client.as_mut().filter(|_| is_mine) {
                client.take(fabric, completion, &mut events);
            }
            for event in events.drain(..) {
                self.learn(fabric, event);
            }
        }
        while self.begin(fabric) {}
        self.feed(fabric);
        if self.left == 0
            && let Some(client) = &mut self.client
            && client.under_way() == 0
        {
            client.disconnect(fabric);
        }
    }

    /// Copies some pieces of values; the others come when there is nothing else to do.
    fn feed(&mut self, fabric: &mut NodeFabric<'_>) {
        let Some(client) = &mut self.client else {
            return self.feeding.clear();
        };
        for _ in 0..self.dice.below(4) + 1 {
            if self.feeding.is_empty() {
                return;
            }
            let at = self.dice.below(self.feeding.len() as u64) as usize;
            let (ticket, bytes) = &self.feeding[at];
            if !client.feed(fabric, *ticket, bytes) {
                self.feeding.swap_remove(at);
            }
        }
        if !self.feeding.is_empty() {
            fabric.come_back();
        }
    }

    fn learn(&mut self, fabric: &mut NodeFabric<'_>, event: ClientEvent) {
        match event {
            ClientEvent::Progress { ticket, len } => {
                let client = self.client.as_ref().expect("connected");
                let span = client.reply(ticket, len).expect("under way");
                assert!(fabric.bytes(span).starts_with(b"VA "));
            }
            ClientEvent::Done { ticket, len } => {
                let client = self.client.as_mut().expect("connected");
                let span = client.reply(ticket, len).expect("done");
                let reply = fabric.bytes(span).to_vec();
                client.release(ticket);
                self.check(ticket, &reply);
                self.counts.answered += 1;
            }
            ClientEvent::TooLong { ticket, len } => {
                let Some(Asked::Get { key }) = self.asked.remove(&ticket) else {
                    panic!("a set cannot be answered at length");
                };
                let possible = self.keys[key as usize].versions.iter();
                assert!(
                    possible
                        .map(|version| value(key, *version).len())
                        .any(|it| it < len && len < it + 20)
                );
                self.keys[key as usize].is_busy = false;
                self.counts.too_long += 1;
            }
            ClientEvent::Lost { ticket } => {
                if let Some(asked) = self.asked.remove(&ticket) {
                    self.lose(asked);
                }
            }
            ClientEvent::Misbehaved { how } => panic!("the server: {how}"),
            ClientEvent::Closed => {
                self.client = None;
                self.feeding.clear();
                for asked in std::mem::take(&mut self.given_up).into_values() {
                    self.lose(asked);
                    self.counts.lost -= 1;
                }
                assert!(self.asked.is_empty(), "{:?}", self.asked);
            }
        }
    }

    fn lose(&mut self, asked: Asked) {
        self.counts.lost += 1;
        let (Asked::Get { key } | Asked::Set { key, .. }) = asked;
        let known = &mut self.keys[key as usize];
        known.is_busy = false;
        if let Asked::Set { version, .. } = asked {
            known.versions.push(version);
        }
    }

    fn check(&mut self, ticket: Ticket, reply: &[u8]) {
        let asked = self.asked.remove(&ticket).expect("asked");
        let (Asked::Get { key } | Asked::Set { key, .. }) = asked;
        let known = &mut self.keys[key as usize];
        known.is_busy = false;
        match asked {
            Asked::Set { version, .. } if reply == b"HD\r\n" => known.versions = vec![version],
            Asked::Set { .. } => assert!(reply.starts_with(b"SERVER_ERROR"), "{reply:?}"),
            Asked::Get { .. } => {
                let is_it = |version: &u64| match *version {
                    0 => reply == b"EN\r\n",
                    version => {
                        let bytes = value(key, version);
                        let head = format!("VA {}\r\n", bytes.len());
                        reply == [head.as_bytes(), &bytes, b"\r\n"].concat()
                    }
                };
                let found = known.versions.iter().copied().find(is_it);
                let version = found.unwrap_or_else(|| {
                    let start = String::from_utf8_lossy(&reply[..reply.len().min(20)]).into_owned();
                    panic!(
                        "key {key}: {} bytes, {start:?}, none of {:?}",
                        reply.len(),
                        known.versions
                    )
                });
                // A set that was lost may still be under way no more: its connection has ended.
                known.versions = vec![version];
            }
        }
    }

    /// Begins a request. False if there is none to begin.
    fn begin(&mut self, fabric: &mut NodeFabric<'_>) -> bool {
        let Some(client) = &mut self.client else {
            return false;
        };
        if self.left == 0 {
            return false;
        }
        if client.under_way() >= 6 {
            return false;
        }
        let keys = 0..self.keys.len() as u64;
        let free: Vec<u64> = keys
            .filter(|key| !self.keys[*key as usize].is_busy)
            .collect();
        if free.is_empty() {
            if client.under_way() == 0 {
                // All its keys are those of requests that it has given up.
                self.left = 0;
            }
            return false;
        }
        let key = free[self.dice.below(free.len() as u64) as usize];
        let (asked, begun) = if self.dice.one_in(2) {
            let get = format!("get {}-{key}\r\n", self.number);
            // Now and then there is too little room.
            let reply_max = if self.dice.one_in(10) { 100 } else { 151_000 };
            let submission = Submission {
                command: get.as_bytes(),
                value: None,
                reply_max,
            };
            (Asked::Get { key }, client.submit(fabric, &submission))
        } else {
            self.version += 1;
            let version = self.version;
            let bytes = value(key, version);
            let line = format!("set {}-{key} {}\r\n", self.number, bytes.len());
            let whole = [line.as_bytes(), &bytes, b"\r\n"].concat();
            let is_short = whole.len() <= 2000 && self.dice.one_in(2);
            let lent = if !is_short && self.dice.one_in(3) {
                client.borrow(bytes.len())
            } else {
                None
            };
            let submission = match lent {
                _ if is_short => Submission {
                    command: &whole,
                    value: None,
                    reply_max: 100,
                },
                // A part that was lent is not given back while the connection lasts; there are few.
                Some(span) => {
                    fabric.copy_in(span, &bytes);
                    Submission {
                        command: line.as_bytes(),
                        value: Some(Value::Lent(span)),
                        reply_max: 100,
                    }
                }
                None => Submission {
                    // Copied piece by piece from now on.
                    command: line.as_bytes(),
                    value: Some(Value::Bytes(&bytes)),
                    reply_max: 100,
                },
            };
            let begun = client.submit(fabric, &submission);
            if let (Ok(ticket), Some(Value::Bytes(_))) = (begun, submission.value) {
                self.feeding.push((ticket, bytes));
            }
            (Asked::Set { key, version }, begun)
        };
        match begun {
            Ok(ticket) => {
                self.left -= 1;
                self.keys[key as usize].is_busy = true;
                if self.dice.one_in(40) {
                    // Its key stays busy: what comes of it is not learned before the connection ends.
                    client.give_up(ticket);
                    self.given_up.insert(ticket, asked);
                } else {
                    self.asked.insert(ticket, asked);
                }
                true
            }
            Err(NotNow::Busy | NotNow::Gone) => false,
            Err(NotNow::TooLong) => panic!("too long"),
        }
    }
}
