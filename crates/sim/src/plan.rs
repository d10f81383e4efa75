//! What a seed chooses for a run: the server's flags and the kinds of clients.

use std::ffi::OsString;

use coua::flags::{self, Invocation, Settings};

use crate::dice::Dice;
use crate::model::Laxity;

/// When the simulated server starts, in unix seconds.
const STARTED: u32 = 1_700_000_000;

/// The most bytes that `-I` counts for an item beside its value.
const ITEM_HEAD_MAX: usize = 400;

/// About how many bytes of values a client stores on one connection.
const BYTES_MAX: usize = 16 << 20;

/// The plan of one run.
pub(crate) struct Plan {
    /// The command line.
    pub(crate) flags: Vec<String>,
    pub(crate) settings: Settings,
    pub(crate) clients: usize,
    /// What all clients speak: binary, text, or each what it chooses.
    pub(crate) speak_binary: Option<bool>,
    pub(crate) laxity: Laxity,
    /// The longest value that is likely, in bytes.
    pub(crate) value_len: usize,
    /// Keys of each client.
    pub(crate) keys: usize,
    /// The most connections that each client makes, one after another.
    pub(crate) sessions: usize,
    /// The most requests on each.
    pub(crate) requests: usize,
    /// Bytes of values that are stored before the clients start.
    pub(crate) filling: usize,
    /// Clients flush everything now and then.
    pub(crate) flushes: bool,
    /// Connections break.
    pub(crate) breaks: bool,
    /// Time jumps once in this many rounds; 0 for never.
    pub(crate) jump_one_in: usize,
    /// The system runs out of descriptors once in this many attempts to accept; 0 for never.
    pub(crate) exhausted_one_in: u32,
}

impl Plan {
    pub(crate) fn new(dice: &mut Dice) -> Plan {
        // With room for everything, nothing may be lost or refused. Most faults hide where there is
        // little room.
        let is_roomy = dice.one_in(3);
        let (megabytes, item_kib): (usize, usize) = match is_roomy {
            true => (dice.pick(&[16, 32]), 64),
            false => (8, dice.pick(&[4, 64, 256, 1024, 2048])),
        };
        let clients = match dice.below(6) {
            // So many that their waiting replies take all memory, and some connections are closed.
            0 if !is_roomy => dice.within(20, 60),
            0 | 1 => dice.within(1, 20),
            _ => dice.within(1, 6),
        };
        let mut words = format!("coua -m {megabytes} -I {item_kib}k");
        let mut flag = |given: bool, text: &str| {
            if given {
                words.push(' ');
                words.push_str(text);
            }
        };
        let workers = dice.pick(&[1, 2, 2, 2, 3]);
        flag(true, &format!("-t {workers}"));
        flag(dice.one_in(3), "-M");
        if dice.one_in(2) {
            let requests = dice.pick(&[1, 2, 20]);
            flag(true, &format!("-R {requests}"));
        }
        if dice.one_in(4) {
            let limit = dice.within(2, clients + 1);
            flag(true, &format!("-c {limit}"));
        }
        flag(dice.one_in(2), "-o no_maxconns_fast");
        if dice.one_in(3) {
            let seconds = dice.size(1, 100);
            flag(true, &format!("-o idle_timeout={seconds}"));
        }
        flag(dice.one_in(4), "-s simulated");
        let speak_binary = match dice.below(8) {
            0 => Some(false),
            1 => Some(true),
            _ => None,
        };
        match speak_binary {
            None => {}
            Some(false) => flag(true, "-B ascii"),
            Some(true) => flag(true, "-B binary"),
        }
        let flushes = dice.one_in(4);
        let value_len_max = (item_kib << 10) - ITEM_HEAD_MAX;
        let value_len = match is_roomy {
            true => dice.size(64, 32 << 10),
            // They are held until they are read.
            false if clients > 20 => dice.within(20 << 10, 400 << 10).min(value_len_max),
            false if dice.one_in(3) => value_len_max.min(200 << 10),
            false => dice.size(64, value_len_max),
        };
        Plan {
            settings: resolve(&words),
            flags: words.split(' ').map(str::to_owned).collect(),
            clients,
            speak_binary,
            laxity: Laxity {
                loses: flushes || !is_roomy,
                refuses: !is_roomy,
                value_len_max,
                started: STARTED,
            },
            value_len,
            keys: dice.size(2, if is_roomy { 12 } else { 64 }),
            sessions: dice.within(1, 4),
            requests: dice.size(2, (BYTES_MAX / value_len).clamp(8, 300)),
            filling: match is_roomy || dice.one_in(2) {
                true => 0,
                false => megabytes << 20,
            },
            flushes,
            breaks: dice.one_in(2),
            jump_one_in: dice.pick(&[0, 30, 200, 2000]),
            exhausted_one_in: dice.pick(&[0, 0, 5]),
        }
    }
}

fn resolve(words: &str) -> Settings {
    match flags::read(words.split(' ').map(OsString::from)) {
        Ok(Invocation::Serve(settings)) => *settings,
        Ok(Invocation::Print(text)) => panic!("{words}: {text}"),
        Ok(Invocation::Check(_)) => panic!("{words}: a check"),
        Err(error) => panic!("{words}: {error}"),
    }
}
