//! One run: a cache, its users, perhaps attackers, and a network with faults.

use coua_rdma::simulated::cache::Cache;
use coua_rdma::simulated::{Faults, Profile, World, profiles};
use coua_rdma::{Fabric, Limits};

use crate::attacker::Attacker;
use crate::user::{Counts, User};

/// What a run consists of.
#[derive(Clone, Copy)]
pub(crate) struct Scene {
    pub(crate) profile: Profile,
    pub(crate) faults: Faults,
    pub(crate) users: usize,
    pub(crate) attackers: usize,
    /// Users may write their values where they will lie.
    pub(crate) may_write: bool,
    /// Keys that the server's card has for that.
    pub(crate) keys: usize,
}

impl Default for Scene {
    fn default() -> Scene {
        Scene {
            profile: profiles::FDR,
            faults: Faults::default(),
            users: 3,
            attackers: 0,
            may_write: false,
            keys: usize::MAX,
        }
    }
}

/// Choices from a seed.
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) fn new(seed: u64) -> Dice {
        Dice(seed)
    }

    /// A number below `end`.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        // SplitMix64 (Steele, Lea, Flood, 2014).
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ mixed >> 31) % end
    }

    pub(crate) fn one_in(&mut self, count: u64) -> bool {
        self.below(count) == 0
    }
}

pub(crate) struct Run {
    world: World,
    cache: Cache,
    users: Vec<User>,
    attackers: Vec<Attacker>,
    has_faults: bool,
}

impl Run {
    pub(crate) fn new(scene: Scene, seed: u64) -> Run {
        let mut world = World::new(scene.profile, scene.faults, seed);
        let limits = Limits {
            credits: 12,
            value_len_max: 160_000,
            may_write: scene.may_write,
            is_ordered: !scene.profile.is_unordered,
            ..Limits::default()
        };
        let clients = scene.users + scene.attackers;
        let cache = Cache::new(&mut world, limits, clients, 12 * scene.users + 30);
        world.spare(cache.node);
        world.set_grants_max(scene.keys);
        let users = (0..scene.users as u64).map(|number| {
            let dice = Dice::new(seed * 1000 + number);
            User::new(&mut world, limits, number, 60, dice)
        });
        let users = users.collect();
        let attackers = (0..scene.attackers as u64)
            .map(|number| Attacker::new(&mut world, Dice::new(seed * 1000 + 500 + number)));
        let attackers = attackers.collect();
        Run {
            world,
            cache,
            users,
            attackers,
            has_faults: scene.faults.breaks > 0 || scene.faults.dies > 0,
        }
    }

    pub(crate) fn run_to_the_end(mut self) -> Counts {
        self.connect();
        let mut steps = 0;
        while let Some(node) = self.world.step() {
            steps += 1;
            assert!(steps < 1_000_000, "it goes on for ever");
            let mut fabric = self.world.fabric(node);
            if node == self.cache.node {
                self.cache.run(&mut fabric);
            } else if let Some(user) = self.users.iter_mut().find(|user| user.node == node) {
                user.run(&mut fabric);
            } else if let Some(attacker) = self.attackers.iter_mut().find(|it| it.node == node) {
                attacker.run(&mut fabric);
            }
            assert!(
                !self.world.is_dead(self.cache.node),
                "faults spare the server here"
            );
            self.connect();
        }
        for user in &self.users {
            let is_done = user.is_done() || self.world.is_dead(user.node);
            assert!(is_done, "a user still waits: {}", user.state());
        }
        // Attackers that have done nothing wrong so far are cut off.
        for attacker in &self.attackers {
            let mut fabric = self.world.fabric(self.cache.node);
            self.cache.server.disconnect(&mut fabric, attacker.peer);
        }
        while let Some(node) = self.world.step() {
            let mut fabric = self.world.fabric(node);
            if node == self.cache.node {
                self.cache.run(&mut fabric);
            }
        }
        assert_eq!(self.cache.leaks(&self.world), Vec::<String>::new());
        if self.attackers.is_empty() {
            assert_eq!(self.cache.misbehaved, []);
            assert_eq!(
                self.world.receiver_not_ready(),
                0,
                "credits keep receivers ready"
            );
            assert_eq!(self.world.refused_access(), 0);
        }
        let mut all = Counts::default();
        for user in &self.users {
            if !self.attackers.is_empty() && !self.has_faults {
                assert_eq!(
                    user.counts.lost, 0,
                    "an attacker has cost somebody a request"
                );
            }
            all.answered += user.counts.answered;
            all.lost += user.counts.lost;
            all.too_long += user.counts.too_long;
        }
        all
    }

    /// Connects all who are not: at first, and again when a connection has ended at both ends.
    fn connect(&mut self) {
        for user in &mut self.users {
            let is_open = !self.world.is_dead(user.node) && user.wants_connection();
            if is_open && self.cache.server.has_room() {
                let peer = self.world.connect(user.node, self.cache.node);
                let memory = user.connect(peer);
                let may_write = self.cache.server.limits().may_write;
                self.cache
                    .connect(peer, memory, may_write)
                    .expect("there is room");
                self.world.wake(user.node);
            }
        }
        for attacker in &mut self.attackers {
            if attacker.wants_connection(&self.cache.closed) && self.cache.server.has_room() {
                let peer = self.world.connect(attacker.node, self.cache.node);
                let memory = attacker.connect(peer);
                let may_write = self.cache.server.limits().may_write;
                self.cache
                    .connect(peer, memory, may_write)
                    .expect("there is room");
                self.world.fabric(attacker.node).expect_writes(peer, 100);
                self.world.wake(attacker.node);
            }
        }
    }
}
