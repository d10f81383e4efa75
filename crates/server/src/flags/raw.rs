//! The command line as it is written.

use std::path::{Path, PathBuf};

use clap::{ArgAction, Parser};

use super::extended;
use super::network::{NETWORK, NetFlags};

/// What `-V` prints behind the name.
const VERSION_LINE: &str = concat!(env!("CARGO_PKG_VERSION"), " (memcached 1.6.45)");

const MEMORY: &str = "Memory";
const WORK: &str = "Threads and fairness";
const ACCESS: &str = "What clients may do";
const PROCESS: &str = "The process";
const WITHOUT_EFFECT: &str = "Taken and without effect";
const OTHER: &str = "Help";

/// A memcached-compatible cache server.
///
/// Without flags it listens on port 11211 of all addresses, keeps 64 MiB of items and evicts the
/// least recently used ones. Flags have memcached's names and meaning. Of a flag that is given twice the last one holds.
/// Sizes take k, m, g or t behind the number.
#[derive(Clone, Debug, Parser)]
#[command(
    name = "coua",
    version = VERSION_LINE,
    disable_help_flag = true,
    disable_version_flag = true,
    args_override_self = true,
    allow_negative_numbers = true,
    override_usage = "coua [FLAG]...",
    max_term_width = 100,
    after_help = super::help::after_flags()
)]
pub struct Raw {
    /// TCP port, 1 to 65535; 0 for no TCP, -1 for any free port. Without it that of -U, or else
    /// 11211.
    #[arg(short = 'p', long = "port", value_name = "NUM", help_heading = NETWORK)]
    pub port: Option<String>,

    /// UDP port, 1 to 65535; 0 for no UDP, -1 for any free port. A reply of up to 2 MiB takes as
    /// many datagrams of 1400 bytes as it needs.
    #[arg(short = 'U', long = "udp-port", value_name = "NUM", default_value = "0",
          help_heading = NETWORK)]
    pub udp_port: String,

    /// Megabytes a second of replies that UDP sends to one address, beyond four times what that address
    /// sends, so that nobody floods a forged address. 0 for no limit.
    #[arg(long = "udp-reply-rate", value_name = "MB", default_value = "4",
          help_heading = NETWORK)]
    pub udp_reply_rate: String,

    /// Address to listen on, also with a port: 127.0.0.1:11311, [::1]:11311, localhost, *. Several,
    /// with commas between them or the flag repeated. All addresses unless given; with --net none,
    /// for -p and -U are the ports of that stack.
    #[arg(short = 'l', long = "listen", value_name = "ADDR", action = ArgAction::Append,
          help_heading = NETWORK)]
    pub listen: Vec<String>,

    /// The server's own TCP stack. -p and -U are its ports, and the kernel listens only where -l
    /// says.
    #[command(flatten)]
    pub net: NetFlags,

    /// Also serve clients over RDMA, at this address of a device: 192.0.2.7, or with the first thread's port, and each
    /// other thread has the next. Behind it, with commas: provider=verbs (InfiniBand, RoCE, iWARP; unless given) or
    /// provider=tcp (the kernel's TCP, to try it without a device), and clients=NUM, 64 unless given. Needs libfabric
    /// 1.17 or newer. Clients ask for it on an ordinary connection. Nothing is encrypted there.
    #[arg(long = "rdma", value_name = "ADDR", help_heading = NETWORK)]
    pub rdma: Option<String>,

    /// Unix socket to listen on; no network then. A socket that a dead server left behind is
    /// replaced.
    #[arg(short = 's', long = "unix-socket", value_name = "FILE", help_heading = NETWORK)]
    pub unix_socket: Option<PathBuf>,

    /// Address for Prometheus, health checks and people over HTTP: /metrics, /healthz, /readyz, and a page
    /// with graphs at /; as in 127.0.0.1:9150. Everybody who reaches it may read it.
    #[arg(long, value_name = "ADDR", help_heading = NETWORK)]
    pub metrics: Option<String>,

    /// Access bits of the unix socket, in octal, 0 to 777.
    #[arg(short = 'a', long = "unix-mask", value_name = "MASK", default_value = "700",
          help_heading = NETWORK)]
    pub unix_mask: String,

    /// Connections open at a time, 1 to 10000000; any more get an error line and are closed. Each
    /// takes a descriptor.
    #[arg(short = 'c', long = "conn-limit", value_name = "NUM", default_value = "1024",
          help_heading = NETWORK)]
    pub conn_limit: String,

    /// Connections that may wait to be accepted, on each address; the kernel caps it at
    /// net.core.somaxconn.
    #[arg(short = 'b', long = "listen-backlog", value_name = "NUM", default_value = "1024",
          help_heading = NETWORK)]
    pub backlog: String,

    /// What clients speak: ascii (classic text and meta), binary, or auto, where the first byte of
    /// a connection decides. By default auto, but ascii with -Y and without -S.
    #[arg(short = 'B', long = "protocol", value_name = "NAME", help_heading = NETWORK)]
    pub protocol: Option<String>,

    /// Memory in megabytes, for items, index, connection buffers and values that are arriving. Less
    /// than 8 becomes 8, and the log says so. With --net the stack takes an eighth of it, and at
    /// least 4 megabytes a thread, for data that waits to be acknowledged or read.
    #[arg(short = 'm', long = "memory-limit", value_name = "NUM", default_value = "64",
          help_heading = MEMORY)]
    pub memory: String,

    /// How far the command cache_memlimit may raise the memory while coua serves, in megabytes.
    /// Without it no further than -m. Tables and an index for that much are made at the start, about
    /// 1 % of it.
    #[arg(long = "memory-max", value_name = "NUM", help_heading = MEMORY)]
    pub memory_max: Option<String>,

    /// The largest item, 1k to 1024m and at most half of the memory.
    #[arg(short = 'I', long = "max-item-size", value_name = "SIZE", default_value = "1m",
          help_heading = MEMORY)]
    pub item_size: String,

    /// When memory is full, refuse values instead of evicting items.
    #[arg(short = 'M', long = "disable-evictions", help_heading = MEMORY)]
    pub disable_evictions: bool,

    /// Take all memory at the start and lock it, so that it is not swapped out, as far as the user's
    /// limit goes (ulimit -l).
    #[arg(short = 'k', long = "lock-memory", help_heading = MEMORY)]
    pub lock_memory: bool,

    /// File that the memory lies in, so that the next coua begins with what this one ends with, however
    /// it ends. Best in /dev/shm or on hugetlbfs: a file on a disk is written to it all the time. It
    /// keeps the size that -m or --memory-max has at its first start: with less -m some of it is left
    /// out, with more it is used as it is. Without room for it, coua serves without it and warns.
    #[arg(short = 'e', long = "memory-file", value_name = "FILE", help_heading = MEMORY)]
    pub memory_file: Option<PathBuf>,

    /// Device for items that memory has no room for: a block device (/dev/nvme0n1), a namespace's
    /// character device (/dev/ng0n1: NVMe commands past the block layer) or a PCI address
    /// (0000:01:00.0, with /2 behind it for namespace 2: a driver of coua's own, which takes the device
    /// from the kernel). Several, with commas or repeated. What is on it is lost. For files see -o
    /// ext_path.
    #[arg(long = "flash", value_name = "DEVICE", action = ArgAction::Append, help_heading = MEMORY)]
    pub flash: Vec<String>,

    /// Items have no CAS.
    #[arg(short = 'C', long = "disable-cas", help_heading = MEMORY)]
    pub disable_cas: bool,

    /// Threads, 1 to 1024; by default as many as there are cores.
    #[arg(short = 't', long = "threads", value_name = "NUM", help_heading = WORK)]
    pub threads: Option<String>,

    /// Cores to pin the threads to, such as 2-5,7; as many threads as cores unless -t is given.
    #[arg(long = "cores", value_name = "LIST", help_heading = WORK)]
    pub cores: Option<String>,

    /// Requests of one connection that are answered before others have their turn, 1 to 1000000; by
    /// default 256. A connection alone may have more.
    #[arg(short = 'R', long = "max-reqs-per-event", value_name = "NUM", help_heading = WORK)]
    pub requests_per_turn: Option<String>,

    /// Let clients stop the server with "shutdown", which is refused by default.
    #[arg(short = 'A', long = "enable-shutdown", help_heading = ACCESS)]
    pub enable_shutdown: bool,

    /// Refuse flush_all.
    #[arg(short = 'F', long = "disable-flush-all", help_heading = ACCESS)]
    pub disable_flush_all: bool,

    /// Refuse the commands that list keys.
    #[arg(short = 'X', long = "disable-dumping", help_heading = ACCESS)]
    pub disable_dumping: bool,

    /// Refuse watch, by which clients see live which keys are asked for, stored and evicted.
    #[arg(short = 'W', long = "disable-watch", help_heading = ACCESS)]
    pub disable_watch: bool,

    /// Count requests by key prefix, which ends before this character, for "stats detail". Without
    /// the flag the character is : and "stats detail on" begins to count.
    #[arg(short = 'D', long = "prefix-delimiter", value_name = "CHAR", help_heading = ACCESS)]
    pub prefix_delimiter: Option<String>,

    /// Only who logs in is served. The file has lines user:password, and may have sections that say what
    /// a user may do. It is read again on SIGHUP.
    #[arg(short = 'Y', long = "auth-file", value_name = "FILE", help_heading = ACCESS)]
    pub auth_file: Option<PathBuf>,

    /// Let clients of the binary protocol log in too, by SASL PLAIN, with the passwords of -Y.
    #[arg(short = 'S', long = "enable-sasl", help_heading = ACCESS)]
    pub sasl: bool,

    /// TLS on all TCP ports, of --net too, but those that -l names with notls: in front. btls: in front of an
    /// address asks clients for no certificate, mtls: requires one; the others do as -o ssl_verify_mode says.
    /// Unix sockets stay plain. -o ssl_chain_cert and ssl_key name the server's certificate.
    #[arg(short = 'Z', long = "enable-ssl", help_heading = ACCESS)]
    pub ssl: bool,

    /// File of settings in TOML: keys are the long names of these flags, and a table [extended] has the
    /// options of -o. A flag on the command line wins. It is read again on SIGHUP.
    #[arg(long = "config", value_name = "FILE", help_heading = PROCESS)]
    pub config: Option<PathBuf>,

    /// Check the flags, the file of --config and what they name, print what would be on, and end: with
    /// status 0 if coua would start.
    #[arg(long = "check", help_heading = PROCESS)]
    pub check: bool,

    /// User to become once the ports are open. Root must give one; for others it has no effect.
    #[arg(short = 'u', long = "user", value_name = "NAME", help_heading = PROCESS)]
    pub user: Option<String>,

    /// Run in the background; the command ends when the server listens, or with its status when
    /// it cannot. Without -v there is no log then.
    #[arg(short = 'd', long = "daemon", help_heading = PROCESS)]
    pub daemon: bool,

    /// File to write the process id to when the server listens. It is removed when the server ends.
    #[arg(short = 'P', long = "pidfile", value_name = "FILE", help_heading = PROCESS)]
    pub pid_file: Option<PathBuf>,

    /// Raise the limit on core files as far as the system lets the user.
    #[arg(short = 'r', long = "enable-coredumps", help_heading = PROCESS)]
    pub core_dumps: bool,

    /// More options, with commas between them; see below.
    #[arg(short = 'o', long = "extended", value_name = "LIST", action = ArgAction::Append,
          help_heading = PROCESS)]
    pub extended: Vec<String>,

    /// Log more: connections that the server refuses or closes and requests that are errors, with
    /// the client's address; a few lines a second of each kind. With -vv also connections that
    /// open and close, every request and the first line of its reply. -vvv is the same as -vv.
    #[arg(short = 'v', long = "verbose", action = ArgAction::Count, help_heading = PROCESS)]
    pub verbose: u8,

    /// How the log is written: text, or json with one object a line. text unless given.
    #[arg(long = "log-format", value_name = "NAME", help_heading = PROCESS)]
    pub log_format: Option<String>,

    /// Growth factor of slab classes, of which there are none.
    #[arg(short = 'f', long = "slab-growth-factor", value_name = "NUM",
          help_heading = WITHOUT_EFFECT)]
    pub growth_factor: Option<String>,

    /// Size of the smallest slab class, of which there are none.
    #[arg(short = 'n', long = "slab-min-size", value_name = "BYTES",
          help_heading = WITHOUT_EFFECT)]
    pub chunk_size: Option<String>,

    /// Use huge pages, which are used anyway where there are any.
    #[arg(short = 'L', long = "enable-largepages", help_heading = WITHOUT_EFFECT)]
    pub large_pages: bool,

    /// Threads by the network card's queues; the kernel spreads connections over the threads.
    #[arg(short = 'N', long = "napi-ids", alias = "napi_ids", value_name = "NUM",
          help_heading = WITHOUT_EFFECT)]
    pub napi_ids: Option<String>,

    /// Print this.
    #[arg(short = 'h', long = "help", action = ArgAction::HelpShort, help_heading = OTHER)]
    pub help: Option<bool>,

    /// Print the version.
    #[arg(short = 'V', long = "version", help_heading = OTHER)]
    pub version: bool,

    /// Print the licence.
    #[arg(short = 'i', long = "license", help_heading = OTHER)]
    pub license: bool,

    /// Print this as a manual page: coua --man | man -l -
    #[arg(long = "man", help_heading = OTHER)]
    pub manual: bool,

    /// Print completions of the flags for a shell: bash, elvish, fish, powershell or zsh.
    #[arg(long = "completions", value_name = "SHELL", help_heading = OTHER)]
    pub completions: Option<String>,
}

impl Raw {
    /// Makes relative paths count from `folder`, for a process that has left the folder in which its
    /// command line was written.
    pub(super) fn count_paths_from(&mut self, folder: &Path) {
        let paths = [
            &mut self.unix_socket,
            &mut self.memory_file,
            &mut self.auth_file,
            &mut self.pid_file,
            &mut self.net.pcap,
        ];
        for path in paths.into_iter().flatten() {
            *path = folder.join(&*path);
        }
        for list in &mut self.extended {
            let options = list.split(',').map(|option| match option.split_once('=') {
                Some((name, path)) if extended::names_a_file(name) => {
                    format!("{name}={}", folder.join(path).display())
                }
                _ => option.to_owned(),
            });
            *list = options.collect::<Vec<_>>().join(",");
        }
    }
}
