//! The command line as it is written.

use std::path::PathBuf;

use clap::{ArgAction, Parser};

/// What `-V` prints behind the name.
const VERSION_LINE: &str = concat!(env!("CARGO_PKG_VERSION"), " (memcached 1.6.45)");

const NETWORK: &str = "Network";
const MEMORY: &str = "Memory";
const WORK: &str = "Threads and fairness";
const ACCESS: &str = "What clients may do";
const PROCESS: &str = "The process";
const OTHER: &str = "Help";

/// A memcached-compatible cache server.
///
/// Without flags it listens on port 11211 of all addresses, keeps 64 MiB of items and evicts the
/// ones used least. Flags have memcached's names and meaning.
#[derive(Clone, Debug, Parser)]
#[command(
    name = "coua",
    version = VERSION_LINE,
    disable_help_flag = true,
    disable_version_flag = true,
    args_override_self = true,
    max_term_width = 100,
    after_help = "Examples:\n  coua -m 1024                   1 GiB of memory for everything that \
                  is kept\n  coua -l 127.0.0.1:11311 -vv    one address, and a log of all \
                  requests\n  coua -s /run/coua.sock -a 770  a unix socket, no network"
)]
pub struct Raw {
    /// TCP port; 0 for no TCP, -1 for any free port.
    #[arg(short = 'p', long = "port", value_name = "NUM", default_value = "11211",
          allow_negative_numbers = true, help_heading = NETWORK)]
    pub port: String,

    /// UDP port; 0, which is off, is the only one that there is.
    #[arg(short = 'U', long = "udp-port", value_name = "NUM", default_value = "0",
          allow_negative_numbers = true, help_heading = NETWORK)]
    pub udp_port: String,

    /// Address to listen on, also with a port: 127.0.0.1:11311, [::1]:11311, localhost.
    ///
    /// Several, with commas between them or the flag repeated. All addresses unless given.
    #[arg(short = 'l', long = "listen", value_name = "ADDR", action = ArgAction::Append,
          help_heading = NETWORK)]
    pub listen: Vec<String>,

    /// Unix socket to listen on; no network then.
    #[arg(short = 's', long = "unix-socket", value_name = "FILE", help_heading = NETWORK)]
    pub unix_socket: Option<PathBuf>,

    /// Access bits of the unix socket, in octal.
    #[arg(short = 'a', long = "unix-mask", value_name = "MASK", default_value = "700",
          help_heading = NETWORK)]
    pub unix_mask: String,

    /// Connections open at a time; more are told so and closed.
    #[arg(short = 'c', long = "conn-limit", value_name = "NUM", default_value = "1024",
          help_heading = NETWORK)]
    pub conn_limit: String,

    /// Connections that may wait to be accepted.
    #[arg(short = 'b', long = "listen-backlog", value_name = "NUM", default_value = "1024",
          help_heading = NETWORK)]
    pub backlog: String,

    /// What clients speak: ascii or auto, which are the same as long as there is no binary.
    #[arg(short = 'B', long = "protocol", value_name = "NAME", default_value = "auto",
          help_heading = NETWORK)]
    pub protocol: String,

    /// Memory in megabytes, for items, index, connection buffers and values that are arriving.
    #[arg(short = 'm', long = "memory-limit", value_name = "NUM", default_value = "64",
          help_heading = MEMORY)]
    pub memory: String,

    /// The largest item, 1k to 1024m and at most half of the memory.
    #[arg(short = 'I', long = "max-item-size", value_name = "SIZE", default_value = "1m",
          help_heading = MEMORY)]
    pub item_size: String,

    /// When memory is full, refuse values instead of evicting items.
    #[arg(short = 'M', long = "disable-evictions", help_heading = MEMORY)]
    pub disable_evictions: bool,

    /// Take all memory at the start and keep it from being swapped out.
    #[arg(short = 'k', long = "lock-memory", help_heading = MEMORY)]
    pub lock_memory: bool,

    /// No CAS on items.
    #[arg(short = 'C', long = "disable-cas", help_heading = MEMORY)]
    pub disable_cas: bool,

    /// Threads; as many as there are cores unless given.
    #[arg(short = 't', long = "threads", value_name = "NUM", help_heading = WORK)]
    pub threads: Option<String>,

    /// Cores to pin the threads to, such as 2-5,7; as many threads as cores unless -t is given.
    #[arg(long = "cores", value_name = "LIST", help_heading = WORK)]
    pub cores: Option<String>,

    /// Requests of one connection that are answered before others have their turn; 256 unless given.
    #[arg(short = 'R', long = "max-reqs-per-event", value_name = "NUM", help_heading = WORK)]
    pub requests_per_turn: Option<String>,

    /// Let clients stop the server with "shutdown".
    #[arg(short = 'A', long = "enable-shutdown", help_heading = ACCESS)]
    pub enable_shutdown: bool,

    /// Refuse flush_all.
    #[arg(short = 'F', long = "disable-flush-all", help_heading = ACCESS)]
    pub disable_flush_all: bool,

    /// Refuse the commands that list keys.
    #[arg(short = 'X', long = "disable-dumping", help_heading = ACCESS)]
    pub disable_dumping: bool,

    /// Refuse watch.
    #[arg(short = 'W', long = "disable-watch", help_heading = ACCESS)]
    pub disable_watch: bool,

    /// Count by what stands before this character in keys, for "stats detail".
    #[arg(short = 'D', value_name = "CHAR", help_heading = ACCESS)]
    pub prefix_delimiter: Option<String>,

    /// User to become after the start, which root must give.
    #[arg(short = 'u', long = "user", value_name = "NAME", help_heading = PROCESS)]
    pub user: Option<String>,

    /// Run in the background.
    #[arg(short = 'd', long = "daemon", help_heading = PROCESS)]
    pub daemon: bool,

    /// File to write the process number to, with -d.
    #[arg(short = 'P', long = "pidfile", value_name = "FILE", help_heading = PROCESS)]
    pub pid_file: Option<PathBuf>,

    /// Raise the limit on core files.
    #[arg(short = 'r', long = "enable-coredumps", help_heading = PROCESS)]
    pub core_dumps: bool,

    /// More options, with commas between them: maxconns_fast, no_maxconns_fast,
    /// idle_timeout=SECONDS.
    ///
    /// memcached's others are taken and have no effect.
    #[arg(short = 'o', long = "extended", value_name = "LIST", action = ArgAction::Append,
          help_heading = PROCESS)]
    pub extended: Vec<String>,

    /// Log more: errors of connections, and with -vv every request.
    #[arg(short = 'v', long = "verbose", action = ArgAction::Count, help_heading = PROCESS)]
    pub verbose: u8,

    /// memcached's growth factor of slab classes; no effect.
    #[arg(
        short = 'f',
        long = "slab-growth-factor",
        value_name = "NUM",
        hide = true
    )]
    pub growth_factor: Option<String>,

    /// memcached's smallest slab class; no effect.
    #[arg(short = 'n', long = "slab-min-size", value_name = "BYTES", hide = true)]
    pub chunk_size: Option<String>,

    /// Huge pages are used where there are any; no effect.
    #[arg(short = 'L', long = "enable-largepages", hide = true)]
    pub large_pages: bool,

    /// Not there yet.
    #[arg(short = 'S', long = "enable-sasl", hide = true)]
    pub sasl: bool,

    /// Not there yet.
    #[arg(short = 'Y', long = "auth-file", value_name = "FILE", hide = true)]
    pub auth_file: Option<String>,

    /// Not there yet.
    #[arg(short = 'e', long = "memory-file", value_name = "FILE", hide = true)]
    pub memory_file: Option<String>,

    /// Not there yet.
    #[arg(short = 'Z', long = "enable-ssl", hide = true)]
    pub ssl: bool,

    /// Print this.
    #[arg(short = 'h', long = "help", action = ArgAction::HelpShort, help_heading = OTHER)]
    pub help: Option<bool>,

    /// Print the version.
    #[arg(short = 'V', long = "version", action = ArgAction::Version, help_heading = OTHER)]
    pub version: Option<bool>,

    /// Print the licence.
    #[arg(short = 'i', long = "license", help_heading = OTHER)]
    pub license: bool,
}
