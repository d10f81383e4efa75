//! The options of `-o`: one table, from which they are read and explained.

use std::path::PathBuf;

use super::sizes::number;
use super::{FlagError, no_effect};
use crate::losses::LossLimit;
use crate::watch;

/// What coua does about an option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Effect {
    /// What its text says.
    Works,
    /// Nothing, which the log says at the start: it sets a mechanism that coua does not have.
    None,
    /// It does not start: what the option asks for must not be missing unnoticed.
    Refused,
}

/// What an option takes behind its name and `=`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Takes {
    /// Nothing: it is a switch.
    Nothing,
    /// A whole number from the first to the second.
    Number(u64, u64),
    /// As [`Takes::Number`], or nothing.
    NumberOrNothing(u64, u64),
    /// A number above 0, which memcached shows with so many digits behind the point.
    Fraction(usize),
    /// One of these words.
    Word(&'static [&'static str]),
    /// A whole number, or two with `/` between them.
    Rate,
    /// Whole numbers with `-` between them.
    Numbers,
    /// Any text, which the help calls so.
    Text(&'static str),
    /// Whatever; options that are refused.
    Anything,
}

/// One option.
#[derive(Clone, Copy, Debug)]
pub(super) struct Suboption {
    /// Its name.
    pub(super) name: &'static str,
    /// What stands behind the name and `=`.
    pub(super) takes: Takes,
    /// What coua does about it.
    pub(super) effect: Effect,
    /// What it does, or why it does nothing.
    pub(super) text: &'static str,
}

const fn works(name: &'static str, takes: Takes, text: &'static str) -> Suboption {
    Suboption {
        name,
        takes,
        effect: Effect::Works,
        text,
    }
}

const fn without(name: &'static str, text: &'static str) -> Suboption {
    Suboption {
        name,
        takes: Takes::Nothing,
        effect: Effect::None,
        text,
    }
}

const fn without_value(name: &'static str, takes: Takes, text: &'static str) -> Suboption {
    Suboption {
        name,
        takes,
        effect: Effect::None,
        text,
    }
}

const fn refused(name: &'static str, text: &'static str) -> Suboption {
    Suboption {
        name,
        takes: Takes::Anything,
        effect: Effect::Refused,
        text,
    }
}

/// The largest number that memcached reads.
const MOST: u64 = u32::MAX as u64;

const NUMBER: Takes = Takes::Number(0, MOST);

const INDEX: &str = "the index grows by itself";
const QUEUES: &str = "items live in a log of segments, not in LRU lists";
const CRAWLER: &str = "expired items are looked for as memory is cleaned";
const SLABS: &str = "there are no slab classes";
const FLASH_SEGMENTS: &str = "flash is written in segments of 1 to 32 MiB, by its length, and each thread gathers one in memory";
const FLASH_THREADS: &str =
    "the threads that serve read and write flash themselves, many requests at once";
const FLASH_MOVES: &str = "items go to flash when memory would evict them";
const FLASH_ROUND: &str = "flash is filled round and round, and nothing on it is written twice";
const REPLIES: &str = "replies are written in one way";

const NO_PROXY: &str = "coua is no proxy; leave it out, or put memcached's proxy in front";

/// Seconds that connections have to finish when the server stops, where `-o drain_timeout` does not
/// say. A client that works sends and reads within them; service managers wait longer.
const DRAIN_TIMEOUT_S: u64 = 5;

/// All options that memcached 1.6.45 reads, those that its help leaves out included, and coua's own.
pub(super) const ALL: &[Suboption] = &[
    works(
        "maxconns_fast",
        Takes::Nothing,
        "Tell connections beyond -c that there are too many, and close them. On unless switched \
         off.",
    ),
    works(
        "no_maxconns_fast",
        Takes::Nothing,
        "Leave connections beyond -c to wait until there is room.",
    ),
    works(
        "idle_timeout",
        NUMBER,
        "Close connections without a request for that long; 0, the default, for never.",
    ),
    works(
        "drain_timeout",
        NUMBER,
        "When coua stops or is executed anew: give clients that long to send the rest of a request \
         that they have begun, and to read its reply. 5 by default; 0 closes all connections at \
         once. Connections without one are closed at once. Where coua is executed anew, everybody is \
         served until the last fifth of it.",
    ),
    works(
        "memory_pressure",
        Takes::Number(8, 1_000_000_000),
        "Hold memory back while other programs of the machine, or of the cgroup, lack some: lower \
         the limit by steps, down to so many megabytes, and raise it again when that is over.",
    ),
    works(
        "memory_pressure_step",
        Takes::Number(1, 50),
        "With memory_pressure: a step, in percent of -m. 10 by default.",
    ),
    works(
        "memory_pressure_stall",
        Takes::Number(1, 2000),
        "With memory_pressure: from how many milliseconds of two seconds on, in which some task \
         waits for memory, there is pressure. 150 by default.",
    ),
    works(
        "slow_us",
        Takes::Number(1, 60_000_000),
        "Count requests that take so many microseconds or longer, tell of them who watches slowreqs, and log the \
         first of each second. Each request is timed, which costs some throughput.",
    ),
    works(
        "cluster_config",
        Takes::Text("FILE"),
        "Tell clients with auto-discovery which servers the fleet has (config get cluster, as AWS ElastiCache \
         answers it): a line with a version, then a line NAME|ADDRESS|PORT for each server. SIGHUP reads it again.",
    ),
    works(
        "drop_privileges",
        Takes::Nothing,
        "Have the kernel refuse system calls that the server does not need once it has started, and end the process \
         that executes a program. Not with --net or flash; SIGUSR2 is refused.",
    ),
    works(
        "no_drop_privileges",
        Takes::Nothing,
        "Filter no system calls, as is the default.",
    ),
    works(
        "watcher_logbuf_size",
        Takes::Number(1, 1 << 20),
        "Kilobytes of lines that wait for each client that watches; more are left out and counted. 256 by \
         default.",
    ),
    works(
        "no_modern",
        Takes::Nothing,
        "The defaults of memcached 1.4, of which one has a meaning here: no_maxconns_fast.",
    ),
    works(
        "mce_limit",
        Takes::Rate,
        "How many pages of memory the machine may lose, and within how many seconds, before the \
         server stops, so that it can begin anew elsewhere; 64/60 unless given. 0 pages: stop at \
         the first.",
    ),
    works(
        "poison_command",
        Takes::Nothing,
        "For tests: permit the command poison, which loses a page of memory on purpose.",
    ),
    without("modern", "nothing is held back for it"),
    without_value("hashpower", Takes::Number(12, 32), INDEX),
    without("hashexpand", INDEX),
    without("no_hashexpand", INDEX),
    without_value(
        "hash_algorithm",
        Takes::Word(&["jenkins", "murmur3", "xxh3"]),
        "keys are hashed in one way",
    ),
    without_value("tail_repair_time", Takes::Number(10, MOST), QUEUES),
    without("lru_crawler", CRAWLER),
    without("no_lru_crawler", CRAWLER),
    without_value("lru_crawler_sleep", Takes::Number(0, 1_000_000), CRAWLER),
    without_value("lru_crawler_tocrawl", NUMBER, CRAWLER),
    without("lru_maintainer", QUEUES),
    without("no_lru_maintainer", QUEUES),
    without_value("hot_lru_pct", Takes::Number(1, 79), QUEUES),
    without_value("warm_lru_pct", Takes::Number(1, 79), QUEUES),
    without_value("hot_max_factor", Takes::Fraction(2), QUEUES),
    without_value("warm_max_factor", Takes::Fraction(2), QUEUES),
    without_value("temporary_ttl", NUMBER, QUEUES),
    without("slab_reassign", SLABS),
    without("no_slab_reassign", SLABS),
    without_value("slab_automove", Takes::NumberOrNothing(0, 2), SLABS),
    without("no_slab_automove", SLABS),
    without_value("slab_automove_ratio", Takes::Fraction(2), SLABS),
    without_value("slab_automove_window", Takes::Number(3, 1799), SLABS),
    without_value("slab_automove_freeratio", Takes::Fraction(3), SLABS),
    without_value("slab_chunk_max", Takes::Number(1, MOST), SLABS),
    without_value("slab_sizes", Takes::Numbers, SLABS),
    without("chunked_items", SLABS),
    without("no_chunked_items", SLABS),
    without_value("read_buf_mem_limit", NUMBER, "-m bounds buffers too"),
    without("resp_obj_mem_limit", "memcached does not use it any more"),
    without_value(
        "worker_logbuf_size",
        NUMBER,
        "lines go to those who watch without a buffer between",
    ),
    without("track_sizes", "sizes of items are not counted"),
    without("inline_ascii_resp", REPLIES),
    without("no_inline_ascii_resp", REPLIES),
    without_value(
        "sock_cookie_id",
        NUMBER,
        "it is an option of FreeBSD's sockets",
    ),
    works(
        "ext_path",
        Takes::Text("FILE:SIZE"),
        "File for items that memory has no room for, such as /mnt/flash/coua:64g. Several: \
         ext_path=FILE:SIZE,ext_path=FILE:SIZE. It may be a block device, of which so much is used; for \
         whole devices see --flash.",
    ),
    works(
        "ext_item_size",
        NUMBER,
        "With ext_path or --flash: items of fewer bytes, key and header among them, are evicted and do \
         not go to flash. 128 by default.",
    ),
    works(
        "ext_item_size_max",
        NUMBER,
        "With ext_path or --flash: items of more bytes are evicted and do not go to flash.",
    ),
    works(
        "ext_admission",
        Takes::Text("RULE"),
        "With ext_path or --flash: which items that memory evicts go there. all, the default; read: those \
         that were read since they were stored, or stored again soon after an eviction; twice: those, and what \
         is evicted for the second time.",
    ),
    works(
        "ext_write_budget",
        Takes::Text("SIZE"),
        "With ext_path or --flash: bytes of items that may be written there a day, such as 500g. When it \
         gets short, items that were read come first.",
    ),
    without_value("ext_page_size", NUMBER, FLASH_SEGMENTS),
    without_value("ext_page_count", NUMBER, FLASH_SEGMENTS),
    without_value("ext_wbuf_size", NUMBER, FLASH_SEGMENTS),
    without_value("ext_threads", NUMBER, FLASH_THREADS),
    without_value("ext_io_depth", NUMBER, FLASH_THREADS),
    without_value("ext_item_age", NUMBER, FLASH_MOVES),
    without_value(
        "ext_low_ttl",
        NUMBER,
        "a segment of flash is free as soon as everything in it has expired",
    ),
    without_value(
        "ext_recache_rate",
        NUMBER,
        "an item that is read again soon comes back to memory",
    ),
    without_value("ext_compact_under", NUMBER, FLASH_ROUND),
    without_value("ext_drop_under", NUMBER, FLASH_ROUND),
    without_value("ext_max_sleep", NUMBER, FLASH_ROUND),
    without_value("ext_max_frag", Takes::Fraction(2), FLASH_ROUND),
    without("ext_drop_unread", FLASH_ROUND),
    without("no_ext_drop_unread", FLASH_ROUND),
    refused("proxy_config", NO_PROXY),
    refused("proxy_arg", NO_PROXY),
    refused("proxy_uring", NO_PROXY),
    refused("proxy_memprofile", NO_PROXY),
    works(
        "ssl_chain_cert",
        Takes::Text("FILE"),
        "With -Z: the server's certificate and those up to its authority, as PEM.",
    ),
    works(
        "ssl_key",
        Takes::Text("FILE"),
        "With -Z: the certificate's key, as PEM, unless it is in the same file.",
    ),
    works(
        "ssl_ca_cert",
        Takes::Text("FILE"),
        "With -Z: the authorities of clients' certificates, as PEM.",
    ),
    works(
        "ssl_verify_mode",
        Takes::Number(0, 3),
        "With -Z: 0, the default, asks clients for no certificate; 1 asks, and refuses a bad one; 2 and 3 refuse \
         clients without one.",
    ),
    works(
        "ssl_min_version",
        Takes::Number(0, 3),
        "With -Z: 2, the default, for TLS 1.2 and 1.3; 3 for TLS 1.3 alone. 0 and 1 are refused: there is no older \
         TLS.",
    ),
    works(
        "ssl_ciphers",
        Takes::Text("LIST"),
        "With -Z: the cipher suites of TLS 1.2, by OpenSSL's names with colons between them.",
    ),
    works(
        "ssl_session_cache",
        Takes::Nothing,
        "With -Z: remember sessions for clients of TLS 1.2 without tickets. All others resume by tickets.",
    ),
    works(
        "ssl_wbuf_size",
        Takes::Number(1, 1024),
        "With -Z: kilobytes of replies that are encrypted at once, and may wait on a connection; 16 by default.",
    ),
    works(
        "ssl_keyformat",
        Takes::Word(&["1", "PEM"]),
        "With -Z: the format of the key, which is PEM.",
    ),
    without(
        "ssl_kernel_tls",
        "records are encrypted in the process, so that they are over every transport",
    ),
];

/// What `-o` says.
#[derive(Debug)]
pub(super) struct Extended {
    pub(super) refuses_at_once: bool,
    pub(super) idle_timeout_s: u64,
    /// What is said about TLS, by the option's name.
    pub(super) ssl: Vec<(&'static str, String)>,
    pub(super) drain_timeout_s: u64,
    /// Megabytes that are kept under memory pressure; `None` where pressure changes nothing.
    pub(super) pressure_floor: Option<usize>,
    pub(super) pressure_step_percent: usize,
    pub(super) pressure_stall_ms: u32,
    pub(super) loss_limit: LossLimit,
    pub(super) permits_poison: bool,
    pub(super) slow_us: Option<u64>,
    pub(super) drops_privileges: bool,
    /// `cluster_config`.
    pub(super) cluster_file: Option<PathBuf>,
    /// Bytes of lines that wait for each who watches.
    pub(super) watcher_queue: usize,
    /// What `ext_path` says, each time that it is given.
    pub(super) flash_paths: Vec<String>,
    /// `ext_item_size`.
    pub(super) flash_item_size: Option<usize>,
    /// `ext_item_size_max`.
    pub(super) flash_item_size_max: Option<usize>,
    /// `ext_admission`.
    pub(super) flash_admission: Option<String>,
    /// `ext_write_budget`.
    pub(super) flash_write_budget: Option<String>,
    /// Options of mechanisms that coua does not have, and what was given for them: `stats settings`
    /// shows it.
    pub(super) given: Vec<(&'static str, String)>,
    /// A line for each option that was given and has no effect.
    pub(super) without_effect: Vec<String>,
}

impl Extended {
    /// Reads lists of options; of several that contradict each other the last one holds.
    pub(super) fn parse(lists: &[String]) -> Result<Extended, FlagError> {
        let mut extended = Extended {
            refuses_at_once: true,
            idle_timeout_s: 0,
            ssl: Vec::new(),
            drain_timeout_s: DRAIN_TIMEOUT_S,
            pressure_floor: None,
            pressure_step_percent: 10,
            pressure_stall_ms: 150,
            loss_limit: LossLimit::default(),
            permits_poison: false,
            slow_us: None,
            drops_privileges: false,
            cluster_file: None,
            watcher_queue: watch::QUEUE_LEN,
            flash_paths: Vec::new(),
            flash_item_size: None,
            flash_item_size_max: None,
            flash_admission: None,
            flash_write_budget: None,
            given: Vec::new(),
            without_effect: Vec::new(),
        };
        let options = lists.iter().flat_map(|list| list.split(','));
        for option in options.filter(|option| !option.is_empty()) {
            extended.take(option)?;
        }
        Ok(extended)
    }

    fn take(&mut self, option: &str) -> Result<(), FlagError> {
        let (name, value) = match option.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (option, None),
        };
        let known = find(name)?;
        let text = known.text;
        if known.effect == Effect::Refused {
            return Err(FlagError::new(format!("-o {name}: {text}")));
        }
        let value = known.checked(value)?;
        match name {
            "maxconns_fast" => self.refuses_at_once = true,
            "no_maxconns_fast" | "no_modern" => self.refuses_at_once = false,
            name if name.starts_with("ssl_") && known.effect == Effect::Works => {
                self.ssl.push((known.name, value));
            }
            "idle_timeout" => self.idle_timeout_s = value.parse().unwrap_or_default(),
            "drain_timeout" => self.drain_timeout_s = value.parse().unwrap_or_default(),
            "memory_pressure" => self.pressure_floor = value.parse().ok(),
            "memory_pressure_step" => self.pressure_step_percent = value.parse().unwrap_or(10),
            "memory_pressure_stall" => self.pressure_stall_ms = value.parse().unwrap_or(150),
            "poison_command" => self.permits_poison = true,
            "slow_us" => self.slow_us = value.parse().ok(),
            "cluster_config" => self.cluster_file = Some(value.into()),
            "drop_privileges" => self.drops_privileges = true,
            "no_drop_privileges" => self.drops_privileges = false,
            "watcher_logbuf_size" => {
                let kilobytes = value.parse::<usize>().unwrap_or_default();
                self.watcher_queue = kilobytes << 10;
            }
            "ext_path" => self.flash_paths.push(value),
            "ext_item_size" => self.flash_item_size = value.parse().ok(),
            "ext_item_size_max" => self.flash_item_size_max = value.parse().ok(),
            "ext_admission" => self.flash_admission = Some(value),
            "ext_write_budget" => self.flash_write_budget = Some(value),
            "mce_limit" => {
                let (at_most, seconds) = rate(&value).unwrap_or_default();
                let seconds = seconds.unwrap_or(LossLimit::default().seconds);
                self.loss_limit = LossLimit { at_most, seconds };
            }
            _ => {
                self.given.push((known.name, value));
                self.without_effect
                    .push(no_effect(&format!("-o {name}"), text));
            }
        }
        Ok(())
    }
}

impl Suboption {
    /// What stands for the value in the help; nothing for a switch.
    pub(super) fn form(&self) -> Option<&'static str> {
        match self.takes {
            Takes::Nothing | Takes::NumberOrNothing(..) | Takes::Anything => None,
            Takes::Text(what) => Some(what),
            _ if self.name.ends_with("_timeout") => Some("SECONDS"),
            _ if self.name == "idle_timeout" => Some("SECONDS"),
            Takes::Rate => Some("PAGES[/SECONDS]"),
            _ if self.name == "slow_us" => Some("MICROSECONDS"),
            _ if self.name == "watcher_logbuf_size" => Some("KILOBYTES"),
            _ => Some("VALUE"),
        }
    }

    /// The value as memcached shows it, where it is one that the option takes. Also of options
    /// without effect: a value that cannot be is a mistake that somebody wants to hear of.
    fn checked(&self, value: Option<&str>) -> Result<String, FlagError> {
        let flag = format!("-o {}", self.name);
        if let (Some(form), None) = (self.form(), value) {
            let line = format!("{flag} needs a value: {}={form}", self.name);
            return Err(FlagError::new(line));
        }
        let Some(value) = value else {
            return Ok(String::new());
        };
        let wrong = |takes: &str| FlagError::value(&flag, value, takes);
        match self.takes {
            Takes::Nothing => Err(FlagError::new(format!(
                "{flag} is a switch: leave ={value} out"
            ))),
            Takes::Number(least, most) | Takes::NumberOrNothing(least, most) => {
                Ok(number(&flag, value, least, most)?.to_string())
            }
            Takes::Fraction(digits) => match value.parse::<f64>() {
                Ok(fraction) if fraction > 0.0 && fraction.is_finite() => {
                    Ok(format!("{fraction:.digits$}"))
                }
                _ => Err(wrong("a number above 0, such as 0.8")),
            },
            Takes::Word(words) if words.contains(&value) => Ok(value.to_owned()),
            Takes::Word(words) => Err(wrong(&words.join(", "))),
            Takes::Rate => match rate(value) {
                Some((_, None | Some(1..))) => Ok(value.to_owned()),
                _ => Err(wrong(
                    "a number of pages, as 64, or also of seconds, as 64/60",
                )),
            },
            Takes::Numbers => match value.split('-').all(|part| part.parse::<u32>().is_ok()) {
                true => Ok(value.to_owned()),
                false => Err(wrong("numbers with - between them")),
            },
            Takes::Text(_) if value.is_empty() => Err(wrong("a value")),
            Takes::Text(_) | Takes::Anything => Ok(value.to_owned()),
        }
    }
}

/// The option of that name.
pub(super) fn find(name: &str) -> Result<&'static Suboption, FlagError> {
    let known = ALL.iter().find(|known| known.name == name);
    known.ok_or_else(|| unknown(name))
}

/// Whether the option's value is the path of a file.
pub(super) fn names_a_file(name: &str) -> bool {
    find(name).is_ok_and(|option| option.takes == Takes::Text("FILE"))
}

/// A number, and the one behind a `/`.
fn rate(value: &str) -> Option<(usize, Option<u64>)> {
    let (number, seconds) = match value.split_once('/') {
        Some((number, seconds)) => (number, Some(seconds)),
        None => (value, None),
    };
    let seconds = match seconds {
        Some(seconds) => Some(u64::from(seconds.parse::<u32>().ok()?)),
        None => None,
    };
    Some((number.parse::<u16>().ok()?.into(), seconds))
}

fn unknown(name: &str) -> FlagError {
    let nearest = ALL
        .iter()
        .map(|known| (strsim::jaro_winkler(name, known.name), known.name))
        .filter(|(likeness, _)| *likeness > 0.8)
        .max_by(|a, b| a.0.total_cmp(&b.0));
    FlagError::new(match nearest {
        Some((_, near)) => format!("-o: unknown option {name}: did you mean {near}?"),
        None => format!("-o: unknown option {name} (-h lists all)"),
    })
}
