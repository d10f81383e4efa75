//! The options of `-o`: one table, from which they are read and explained.

use super::sizes::number;
use super::{FlagError, no_effect};

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

/// One option.
#[derive(Clone, Copy, Debug)]
pub(super) struct Suboption {
    /// Its name.
    pub(super) name: &'static str,
    /// What stands behind the name and `=`; nothing for a switch.
    pub(super) value: Option<&'static str>,
    /// What coua does about it.
    pub(super) effect: Effect,
    /// What it does, or why it does nothing.
    pub(super) text: &'static str,
}

const fn works(name: &'static str, value: Option<&'static str>, text: &'static str) -> Suboption {
    Suboption {
        name,
        value,
        effect: Effect::Works,
        text,
    }
}

const fn without(name: &'static str, text: &'static str) -> Suboption {
    Suboption {
        name,
        value: None,
        effect: Effect::None,
        text,
    }
}

const fn without_value(name: &'static str, text: &'static str) -> Suboption {
    Suboption {
        name,
        value: Some("VALUE"),
        effect: Effect::None,
        text,
    }
}

const fn refused(name: &'static str, text: &'static str) -> Suboption {
    Suboption {
        name,
        value: None,
        effect: Effect::Refused,
        text,
    }
}

const INDEX: &str = "the index grows by itself";
const QUEUES: &str = "items live in a log of segments, not in LRU lists";
const CRAWLER: &str = "expired items are looked for as memory is cleaned";
const SLABS: &str = "there are no slab classes";
const LOGS: &str = "the log has no buffers of that kind";
const FLASH: &str = "it belongs to ext_path, which coua does not have";
const REPLIES: &str = "replies are written in one way";

const NO_FLASH: &str = "coua has no store on flash yet; leave it out, or give more memory (-m)";
const NO_PROXY: &str = "coua is no proxy; leave it out, or put memcached's proxy in front";
const NO_TLS: &str =
    "coua has no TLS yet; leave it out, and listen (-l) on a network that you trust";

/// All options that memcached 1.6.45 reads, those that its help leaves out included.
pub(super) const ALL: &[Suboption] = &[
    works(
        "maxconns_fast",
        None,
        "Tell connections beyond -c that there are too many, and close them. On unless switched \
         off.",
    ),
    works(
        "no_maxconns_fast",
        None,
        "Leave connections beyond -c to wait until there is room.",
    ),
    works(
        "idle_timeout",
        Some("SECONDS"),
        "Close connections without a request for that long; 0, the default, for never.",
    ),
    works(
        "no_modern",
        None,
        "The defaults of memcached 1.4, of which one has a meaning here: no_maxconns_fast.",
    ),
    without("modern", "nothing is held back for it"),
    without_value("hashpower", INDEX),
    without("hashexpand", INDEX),
    without("no_hashexpand", INDEX),
    without_value("hash_algorithm", "keys are hashed in one way"),
    without_value("tail_repair_time", QUEUES),
    without("lru_crawler", CRAWLER),
    without("no_lru_crawler", CRAWLER),
    without_value("lru_crawler_sleep", CRAWLER),
    without_value("lru_crawler_tocrawl", CRAWLER),
    without("lru_maintainer", QUEUES),
    without("no_lru_maintainer", QUEUES),
    without_value("hot_lru_pct", QUEUES),
    without_value("warm_lru_pct", QUEUES),
    without_value("hot_max_factor", QUEUES),
    without_value("warm_max_factor", QUEUES),
    without_value("temporary_ttl", QUEUES),
    without("slab_reassign", SLABS),
    without("no_slab_reassign", SLABS),
    without("slab_automove", SLABS),
    without("no_slab_automove", SLABS),
    without_value("slab_automove_ratio", SLABS),
    without_value("slab_automove_window", SLABS),
    without_value("slab_automove_freeratio", SLABS),
    without_value("slab_chunk_max", SLABS),
    without_value("slab_sizes", SLABS),
    without("chunked_items", SLABS),
    without("no_chunked_items", SLABS),
    without_value("read_buf_mem_limit", "-m bounds buffers too"),
    without("resp_obj_mem_limit", "memcached does not use it any more"),
    without_value("watcher_logbuf_size", LOGS),
    without_value("worker_logbuf_size", LOGS),
    without("track_sizes", "sizes of items are not counted"),
    without("inline_ascii_resp", REPLIES),
    without("no_inline_ascii_resp", REPLIES),
    without_value("sock_cookie_id", "it is an option of FreeBSD's sockets"),
    without("drop_privileges", "no filter of system calls is set up"),
    without("no_drop_privileges", "no filter of system calls is set up"),
    without_value("ext_page_size", FLASH),
    without_value("ext_page_count", FLASH),
    without_value("ext_wbuf_size", FLASH),
    without_value("ext_threads", FLASH),
    without_value("ext_io_depth", FLASH),
    without_value("ext_item_size", FLASH),
    without_value("ext_item_age", FLASH),
    without_value("ext_low_ttl", FLASH),
    without_value("ext_recache_rate", FLASH),
    without_value("ext_compact_under", FLASH),
    without_value("ext_drop_under", FLASH),
    without_value("ext_max_sleep", FLASH),
    without_value("ext_max_frag", FLASH),
    without("ext_drop_unread", FLASH),
    without("no_ext_drop_unread", FLASH),
    refused("ext_path", NO_FLASH),
    refused("proxy_config", NO_PROXY),
    refused("proxy_arg", NO_PROXY),
    refused("proxy_uring", NO_PROXY),
    refused("proxy_memprofile", NO_PROXY),
    refused("ssl_chain_cert", NO_TLS),
    refused("ssl_key", NO_TLS),
    refused("ssl_keyformat", NO_TLS),
    refused("ssl_verify_mode", NO_TLS),
    refused("ssl_ciphers", NO_TLS),
    refused("ssl_ca_cert", NO_TLS),
    refused("ssl_wbuf_size", NO_TLS),
    refused("ssl_session_cache", NO_TLS),
    refused("ssl_kernel_tls", NO_TLS),
    refused("ssl_min_version", NO_TLS),
];

/// What `-o` says.
#[derive(Debug)]
pub(super) struct Extended {
    pub(super) refuses_at_once: bool,
    pub(super) idle_timeout_s: u64,
    /// A line for each option that was given and has no effect.
    pub(super) without_effect: Vec<String>,
}

impl Extended {
    /// Reads lists of options; of several that contradict each other the last one holds.
    pub(super) fn parse(lists: &[String]) -> Result<Extended, FlagError> {
        let mut extended = Extended {
            refuses_at_once: true,
            idle_timeout_s: 0,
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
        let known = ALL.iter().find(|known| known.name == name);
        let Suboption { effect, text, .. } = known.ok_or_else(|| unknown(name))?;
        if *effect == Effect::Refused {
            return Err(FlagError::new(format!("-o {name}: {text}")));
        }
        if let (Some(form), None) = (known.and_then(|known| known.value), value) {
            let line = format!("-o {name} needs a value: {name}={form}");
            return Err(FlagError::new(line));
        }
        match name {
            "maxconns_fast" => self.refuses_at_once = true,
            "no_maxconns_fast" | "no_modern" => self.refuses_at_once = false,
            "idle_timeout" => {
                let most = u64::from(u32::MAX);
                let value = value.unwrap_or_default();
                self.idle_timeout_s = number("-o idle_timeout", value, 0, most)?;
            }
            _ => self
                .without_effect
                .push(no_effect(&format!("-o {name}"), text)),
        }
        Ok(())
    }
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
