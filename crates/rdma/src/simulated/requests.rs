//! How long one request takes with coua's protocol, and how many a second several clients get.

use crate::client::{Client, ClientEvent, ClientMemory, Submission, Ticket, Value};
use crate::fabric::{Completion, PeerId, Span};
use crate::limits::{FRAME_LEN, Limits, Measured};
use crate::server::RemoteMemory;

use super::Faults;
use super::cache::Cache;
use super::node::NodeId;
use super::node_fabric::NodeFabric;
use super::profiles::Profile;
use super::world::{Rights, World};

/// Where a client's bytes are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// In registered memory; replies are read where they are.
    Registered,
    /// In memory that the network cannot reach: they are copied there, and replies out of it, part by part.
    Heap,
    /// As `Heap`, with a server that lets the client write long values where they will lie.
    TrustedHeap,
}

/// What a client asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked {
    /// A value is read.
    Get,
    /// A value is stored.
    Set,
}

/// Picoseconds of one request with a value of `len` bytes, while nothing else is under way.
pub fn time(profile: Profile, asked: Asked, len: usize, source: Source) -> u64 {
    let mut run = Loop::new(profile, asked, len, source, 1, 1, 2);
    run.run_to_the_end();
    // The second: of the first nothing is known to the caches of a real machine either.
    run.users[0].times[1]
}

/// Requests a second of so many clients that have `window` requests under way each.
pub fn rate(
    profile: Profile,
    asked: Asked,
    len: usize,
    source: Source,
    clients: usize,
    window: usize,
) -> f64 {
    let requests = 400;
    let mut run = Loop::new(profile, asked, len, source, clients, window, requests);
    run.run_to_the_end();
    let end = run
        .users
        .iter()
        .map(|user| user.ended)
        .max()
        .expect("there are users");
    #[expect(clippy::cast_precision_loss, reason = "a rate")]
    let (count, seconds) = ((clients * requests) as f64, (end - run.began) as f64 / 1e12);
    count / seconds
}

struct Loop {
    world: World,
    cache: Cache,
    users: Vec<User>,
    began: u64,
}

struct User {
    node: NodeId,
    client: Client,
    lent: Option<Span>,
    asked: Asked,
    len: usize,
    source: Source,
    window: usize,
    left: usize,
    under_way: Vec<(Ticket, u64, usize)>,
    /// Requests whose values are not copied yet.
    feeding: Vec<Ticket>,
    times: Vec<u64>,
    ended: u64,
    number: usize,
}

impl Loop {
    fn new(
        profile: Profile,
        asked: Asked,
        len: usize,
        source: Source,
        clients: usize,
        window: usize,
        requests: usize,
    ) -> Loop {
        let mut world = World::new(profile, Faults::default(), 1);
        let limits = Limits {
            credits: 64,
            is_ordered: !profile.is_unordered,
            value_len_max: len.max(4096),
            ..Limits::default()
        };
        let limits = Limits {
            may_write: source == Source::TrustedHeap,
            ..limits
        };
        let mut cache = Cache::new(&mut world, limits, clients, 4 + 2 * clients * (window + 1));
        let users: Vec<User> = (0..clients)
            .map(|number| {
                let mut user = User::new(&mut world, &mut cache, profile, limits, number);
                (user.asked, user.len, user.source, user.window) = (asked, len, source, window);
                user
            })
            .collect();
        let mut run = Loop {
            world,
            cache,
            users,
            began: 0,
        };
        // What is read has to be there.
        for user in &mut run.users {
            (user.asked, user.window, user.left) = (Asked::Set, 1, 1);
        }
        run.run_to_the_end();
        run.cache.request_ps = profile.request_ps;
        run.began = run.world.now();
        for user in &mut run.users {
            (user.asked, user.window, user.left) = (asked, window, requests);
            user.times.clear();
        }
        run
    }

    fn run_to_the_end(&mut self) {
        for user in &self.users {
            self.world.wake(user.node);
        }
        while let Some(node) = self.world.step() {
            let mut fabric = self.world.fabric(node);
            if node == self.cache.node {
                self.cache.run(&mut fabric);
            } else if let Some(user) = self.users.iter_mut().find(|user| user.node == node) {
                user.run(&mut fabric);
            }
        }
    }
}

impl User {
    fn new(
        world: &mut World,
        cache: &mut Cache,
        profile: Profile,
        limits: Limits,
        number: usize,
    ) -> User {
        let node = world.add_node();
        let (lent, remote) = world.add_region(node, 16 << 20, Rights::Write);
        let (frames, _) = world.add_region(node, limits.credits * FRAME_LEN, Rights::None);
        let frame = |nth| frames.part(nth * FRAME_LEN, FRAME_LEN);
        let peer: PeerId = world.connect(node, cache.node);
        let memory = RemoteMemory {
            key: remote.key,
            address: remote.address,
            len: lent.len as u64,
        };
        cache
            .connect(peer, memory, limits.may_write)
            .expect("there is room for all");
        // What a client measures when it connects.
        let measured = Measured {
            round_trip_ns: (2 * (profile.latency_ps + profile.post_ps + profile.poll_ps)
                + profile.request_ps)
                / 1000,
            bytes_per_us: 1_000_000 / profile.byte_ps,
            copied_per_us: 1_000_000 / profile.copy_ps,
        };
        let memory = ClientMemory {
            lent,
            remote,
            frames: (0..limits.credits).map(frame).collect(),
        };
        User {
            node,
            client: Client::new(peer, limits, measured, memory),
            lent: None,
            asked: Asked::Set,
            len: 0,
            source: Source::Heap,
            window: 1,
            left: 0,
            under_way: Vec::new(),
            feeding: Vec::new(),
            times: Vec::new(),
            ended: 0,
            number,
        }
    }

    fn run(&mut self, fabric: &mut NodeFabric<'_>) {
        let mut events = Vec::new();
        loop {
            while self.under_way.len() < self.window && self.left > 0 {
                self.begin(fabric);
            }
            let Some(completion) = fabric.poll() else {
                let Some(&ticket) = self.feeding.last() else {
                    break;
                };
                let bytes = vec![7; self.len];
                if !self.client.feed(fabric, ticket, &bytes) {
                    self.feeding.pop();
                }
                // What has come meanwhile comes first.
                fabric.come_back();
                break;
            };
            if let Completion::Done { .. } = completion {
                // A sender's own completions can wait until it has nothing else to do.
                fabric.uncount_poll();
            }
            self.client.take(fabric, completion, &mut events);
            for event in events.drain(..) {
                self.learn(fabric, event);
            }
        }
    }

    fn learn(&mut self, fabric: &mut NodeFabric<'_>, event: ClientEvent) {
        let (ClientEvent::Progress { ticket, len } | ClientEvent::Done { ticket, len }) = event
        else {
            panic!("{event:?}");
        };
        let at = self
            .under_way
            .iter()
            .position(|(it, ..)| *it == ticket)
            .expect("asked");
        if self.source != Source::Registered && self.asked == Asked::Get {
            let copied = &mut self.under_way[at].2;
            fabric.charge_copy(len - *copied);
            *copied = len;
        }
        if let ClientEvent::Done { .. } = event {
            let (_, began, _) = self.under_way.swap_remove(at);
            self.client.release(ticket);
            self.ended = fabric.clock();
            self.times.push(self.ended - began);
        }
    }

    fn begin(&mut self, fabric: &mut NodeFabric<'_>) {
        let began = fabric.clock();
        let (number, len) = (self.number, self.len);
        let ticket = if self.asked == Asked::Get {
            let command = format!("get {number}\r\n");
            let submission = Submission {
                command: command.as_bytes(),
                value: None,
                reply_max: len + 64,
            };
            self.client.submit(fabric, &submission)
        } else {
            let command = format!("set {number} {len}\r\n");
            let bytes = vec![7; len];
            let lent = self.lent.or_else(|| self.client.borrow(len.max(1)));
            self.lent = lent;
            let value = match self.source {
                Source::Heap | Source::TrustedHeap => Value::Bytes(&bytes),
                Source::Registered => Value::Lent(lent.expect("there is room").part(0, len)),
            };
            let submission = Submission {
                command: command.as_bytes(),
                value: Some(value),
                reply_max: 64,
            };
            self.client.submit(fabric, &submission)
        };
        let ticket = ticket.expect("few requests are under way");
        self.left -= 1;
        self.under_way.push((ticket, began, 0));
        if self.asked == Asked::Set && self.source != Source::Registered {
            self.feeding.push(ticket);
        }
    }
}
