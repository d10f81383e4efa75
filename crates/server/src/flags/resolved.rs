//! The command line, checked and typed.

use std::fmt::Write;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use coua_protocol::{Dialect, Limits};

use super::addresses::{self, Addresses, Listen};
use super::extended::Extended;
use super::flash::FlashSettings;
use super::login::{protocol, protocol_asked, users};
use super::network::{self, Net};
use super::pressure::{PressureSettings, pressure};
use super::rdma::RdmaSettings;
use super::sizes::{bytes, cores, number};
use super::sources::Sources;
use super::tls::TlsSettings;
use super::{FlagError, Raw, no_effect};
use crate::cluster::ClusterConfig;
use crate::log::LogFormat;
use crate::losses::LossLimit;
use crate::permissions::Permissions;
use crate::users::Users;

/// Threads at most.
const WORKERS_MAX: u64 = coua_store::WORKERS_MAX as u64;

/// Threads at most where `-t` does not ask for more: each has segments of its own open, of which
/// memory has about a thousand.
const WORKERS_UNASKED_MAX: usize = 96;

/// Bytes of memory for each thread at least where `-t` does not ask for more.
const WORKER_MEMORY_MIN: usize = 1 << 20;

/// A store request of up to this many bytes is waited for until it is whole; the value of a longer
/// one goes into the store as it arrives.
const GATHER_LEN_MAX: u32 = 4 << 10;

/// A line of up to this many bytes is waited for until it is whole.
const LINE_LEN_MAX: u32 = 8 << 10;

/// Requests of one connection before others have their turn, unless `-R` is given. They take about
/// as long as memcached's default of 20 does there, and their replies leave in one system call.
const REQUESTS_PER_TURN: usize = 256;

/// Everything that the server needs to know of the command line.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Where to listen for TCP.
    pub listen: Vec<Listen>,
    /// What `-l` said.
    pub listen_text: Option<String>,
    /// Addresses that receive datagrams.
    pub listen_udp: Vec<Listen>,
    /// Bytes a second that one address is sent in datagrams, beyond a multiple of what it sends;
    /// 0 for any number.
    pub udp_reply_rate: u64,
    /// A TCP/IP stack of the server's own.
    pub net: Option<Net>,
    /// Clients over RDMA.
    pub rdma: Option<RdmaSettings>,
    /// Where `/metrics` is served.
    pub metrics: Option<SocketAddr>,
    /// The unix socket, instead of TCP and UDP.
    pub unix_socket: Option<UnixSocket>,
    /// Access bits of a unix socket.
    pub unix_mask: u32,
    /// Connections that may wait to be accepted.
    pub backlog: i32,
    /// Connections open at a time.
    pub connections_max: usize,
    /// Connections beyond are refused at once instead of being left to wait.
    pub refuses_at_once: bool,
    /// Seconds after which an idle connection is closed; 0 for never.
    pub idle_timeout_s: u64,
    /// Seconds that connections have to finish when the server stops (`-o drain_timeout`).
    pub drain_timeout_s: u64,
    /// What is done about memory pressure (`-o memory_pressure`); `None` for nothing.
    pub pressure: Option<PressureSettings>,
    /// How many pages the machine may lose before the server stops.
    pub loss_limit: LossLimit,
    /// Whether clients may lose pages on purpose.
    pub permits_poison: bool,
    /// From how many microseconds on a request is a slow one; `None` where they are not timed.
    pub slow_us: Option<u64>,
    /// The file that says which servers the fleet has (`-o cluster_config`).
    pub cluster_file: Option<PathBuf>,
    /// What it said at the start.
    pub cluster: Option<Arc<ClusterConfig>>,
    /// The system calls of the server are filtered.
    pub drops_privileges: bool,
    /// Bytes of lines that wait for each client that watches.
    pub watcher_queue: usize,
    /// memcached's name for what clients speak.
    pub protocol_name: &'static str,
    /// What clients speak; [`Dialect::Unknown`] where their first byte decides.
    pub dialect: Dialect,
    /// Bytes of memory for all that is kept (`-m`).
    pub memory: usize,
    /// As many bytes as `cache_memlimit` may raise that to (`--memory-max`).
    pub memory_max: usize,
    /// Of these, what each worker's stack in user space takes; 0 without one.
    pub stack_memory: usize,
    /// Flash for items that memory has no room for.
    pub flash: Option<FlashSettings>,
    /// Bytes of memory for what is read from and written to flash, of all workers; known when its
    /// devices are.
    pub flash_memory: usize,
    /// Items are evicted when memory is full.
    pub evict: bool,
    /// All memory is taken at the start and locked.
    pub lock_memory: bool,
    /// Threads.
    pub workers: usize,
    /// Cores to pin them to, in this order and round again; empty for none.
    pub cores: Vec<usize>,
    /// Requests of one connection before others have their turn.
    pub requests_per_turn: usize,
    /// What requests may measure.
    pub limits: Limits,
    /// What clients may do.
    pub permissions: Permissions,
    /// TLS (`-Z`).
    pub tls: Option<TlsSettings>,
    /// The file that says who may log in (`-Y`); without it everybody may do everything.
    pub auth_file: Option<PathBuf>,
    /// Who may log in, as the file said at the start.
    pub users: Option<Arc<Users>>,
    /// The character behind a key's prefix.
    pub prefix_delimiter: u8,
    /// Counts by prefix from the start.
    pub counts_prefixes: bool,
    /// Who to become after the start.
    pub user: Option<String>,
    /// Run in the background.
    pub daemon: bool,
    /// File for the process number.
    pub pid_file: Option<PathBuf>,
    /// File that the memory lies in.
    pub memory_file: Option<PathBuf>,
    /// Raise the limit on core files.
    pub core_dumps: bool,
    /// How much to log: 0 little, 1 what goes wrong, 2 and more every request.
    pub verbosity: u8,
    /// How the log is written.
    pub log_format: LogFormat,
    /// What was given, and where.
    pub sources: Sources,
    /// A line for each flag that was given and has no effect.
    pub without_effect: Vec<String>,
    /// A line for each flag that asks for something that is not done as asked.
    pub unmet: Vec<String>,
    /// What was given for mechanisms that coua does not have, by the names of memcached's settings.
    pub given: Vec<(&'static str, String)>,
}

/// A unix socket to listen on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnixSocket {
    /// Where it lies.
    pub path: PathBuf,
}

impl Settings {
    /// Checks the flags and gives them their types.
    ///
    /// # Errors
    /// [`FlagError`]: the first flag that cannot be as given.
    pub fn resolve(raw: &Raw) -> Result<Settings, FlagError> {
        let extended = Extended::parse(&raw.extended)?;
        let mut ssl_without_effect = Vec::new();
        let tls = TlsSettings::resolve(raw, &extended.ssl, &mut ssl_without_effect)?;
        let unix_socket = raw.unix_socket.clone().map(|path| UnixSocket { path });
        let net = Net::resolve(&raw.net, tcp_port(raw), &raw.udp_port)?;
        let listens_by_kernel = unix_socket.is_none() && (net.is_none() || !raw.listen.is_empty());
        let (listen_udp, Addresses { listen, have_tags }) = match listens_by_kernel {
            true => (
                addresses("-U", &raw.udp_port, raw, tls.as_ref())?.listen,
                addresses("-p", tcp_port(raw), raw, tls.as_ref())?,
            ),
            false => Default::default(),
        };
        let listens = !listen.is_empty() || !listen_udp.is_empty() || net.is_some();
        if !listens && unix_socket.is_none() {
            return Err(FlagError::new(
                "-p 0 leaves nothing to listen on: give -s or a port",
            ));
        }
        if extended.drops_privileges && net.is_some() {
            return Err(FlagError::new(
                "-o drop_privileges does not go with --net, whose cards need other system calls; leave \
                 one of them out",
            ));
        }
        let rdma = RdmaSettings::resolve(raw)?;
        if extended.drops_privileges && rdma.is_some() {
            return Err(FlagError::new(
                "-o drop_privileges does not go with --rdma, whose devices need other system calls; leave one \
                 of them out",
            ));
        }
        let mut unmet = Vec::new();
        let memory = memory(raw, &mut unmet)?;
        if rdma.is_some() && tls.is_some() {
            unmet.push(
                "-Z does not reach what comes by --rdma: nothing is encrypted there; keep it to a network \
                 of servers and clients"
                    .to_owned(),
            );
        }
        let has_stacks = net.is_some();
        let cores = raw
            .cores
            .as_deref()
            .map_or(Ok(Vec::new()), |text| cores("--cores", text))?;
        let workers = workers(raw, &cores, memory, has_stacks)?;
        let stack_memory = match has_stacks {
            true => stack_memory(raw, memory, workers)?,
            false => 0,
        };
        let pressure = pressure(&extended, memory)?;
        let mut without_effect = flags_without_effect(raw)?;
        if have_tags {
            let line = no_effect(
                "-l with a tag",
                "only a proxy tells connections apart by it",
            );
            without_effect.push(line);
        }
        without_effect.extend(extended.without_effect.iter().cloned());
        without_effect.extend(ssl_without_effect);
        let flash = FlashSettings::resolve(raw, &extended, &mut without_effect)?;
        if extended.drops_privileges && flash.is_some() {
            // What io_uring is asked for, no filter sees.
            return Err(FlagError::new(
                "-o drop_privileges does not go with flash (--flash, -o ext_path), which needs other system \
                 calls; leave one of them out",
            ));
        }
        let mut given = extended.given;
        given.extend(given_for_slabs(raw)?);
        let (protocol_name, dialect) = protocol(protocol_asked(raw)?)?;
        let users = users(raw, tls.as_ref())?;
        Ok(Settings {
            listen,
            listen_udp,
            udp_reply_rate: number("--udp-reply-rate", &raw.udp_reply_rate, 0, 1 << 20)? << 20,
            net,
            listen_text: (!raw.listen.is_empty()).then(|| raw.listen.join(",")),
            metrics: metrics(raw)?,
            rdma,
            unix_socket,
            unix_mask: unix_mask(&raw.unix_mask)?,
            backlog: int(number("-b", &raw.backlog, 1, i32::MAX as u64)?),
            connections_max: size(number("-c", &raw.conn_limit, 1, 10_000_000)?),
            refuses_at_once: extended.refuses_at_once,
            idle_timeout_s: extended.idle_timeout_s,
            drain_timeout_s: extended.drain_timeout_s,
            pressure,
            loss_limit: extended.loss_limit,
            permits_poison: extended.permits_poison,
            slow_us: extended.slow_us,
            cluster: cluster(extended.cluster_file.as_deref())?,
            cluster_file: extended.cluster_file,
            drops_privileges: extended.drops_privileges,
            watcher_queue: extended.watcher_queue,
            protocol_name,
            dialect,
            memory,
            memory_max: memory_max(raw, memory)?,
            stack_memory,
            flash,
            flash_memory: 0,
            evict: !raw.disable_evictions,
            lock_memory: raw.lock_memory,
            workers,
            cores,
            requests_per_turn: requests_per_turn(raw)?,
            limits: Limits {
                item_size_max: item_size_max(raw, memory, workers * stack_memory)?,
                cas: !raw.disable_cas,
                gather_max: GATHER_LEN_MAX,
                line_max: LINE_LEN_MAX,
                sasl: raw.sasl,
            },
            permissions: Permissions {
                shutdown: raw.enable_shutdown,
                flush: !raw.disable_flush_all,
                dump: !raw.disable_dumping,
                watch: !raw.disable_watch,
                admin: true,
            },
            tls,
            auth_file: raw.auth_file.clone(),
            users,
            prefix_delimiter: prefix_delimiter(raw.prefix_delimiter.as_deref())?,
            counts_prefixes: raw.prefix_delimiter.is_some(),
            user: raw.user.clone(),
            daemon: raw.daemon,
            pid_file: raw.pid_file.clone(),
            memory_file: raw.memory_file.clone(),
            core_dumps: raw.core_dumps,
            verbosity: raw.verbose,
            log_format: log_format(raw)?,
            sources: Sources::default(),
            without_effect,
            unmet,
            given,
        })
    }

    /// What was given for a setting of a mechanism that coua does not have, else memcached's default.
    pub fn given_or<'s>(&'s self, name: &str, default: &'s str) -> &'s str {
        let mut given = self.given.iter().rev();
        given
            .find(|(known, _)| *known == name)
            .map_or(default, |(_, value)| value)
    }

    /// Whether an option of a mechanism was given that coua does not have.
    pub fn is_given(&self, name: &str) -> bool {
        self.given.iter().any(|(known, _)| *known == name)
    }

    /// Bytes of memory that the workers' stacks take.
    pub fn stacks_memory(&self) -> usize {
        self.workers * self.stack_memory
    }

    /// Bytes of memory that the store does not have: the workers' stacks, and buffers for flash.
    pub fn memory_beside_store(&self) -> usize {
        self.stacks_memory() + self.flash_memory
    }

    /// Bytes of memory for everything else: the store has it, and lends it.
    pub fn store_memory(&self) -> usize {
        self.memory - self.memory_beside_store()
    }

    /// Bytes that the store is made for.
    pub fn store_memory_max(&self) -> usize {
        self.memory_max - self.memory_beside_store()
    }

    /// The cores that threads are pinned to, as `--cores` takes them.
    pub fn cores_text(&self) -> String {
        let mut text = String::new();
        for core in &self.cores {
            let comma = if text.is_empty() { "" } else { "," };
            // Writing to a string does not fail.
            let _ = write!(text, "{comma}{core}");
        }
        if text.is_empty() {
            "any".to_owned()
        } else {
            text
        }
    }
}

/// Which servers the fleet has.
fn cluster(file: Option<&Path>) -> Result<Option<Arc<ClusterConfig>>, FlagError> {
    let Some(file) = file else {
        return Ok(None);
    };
    match ClusterConfig::read(file) {
        Ok(cluster) => Ok(Some(Arc::new(cluster))),
        Err(error) => {
            let file = file.display();
            Err(FlagError::new(format!("-o cluster_config: {file} {error}")))
        }
    }
}

/// A line for each flag that is read, checked, and has no effect.
fn flags_without_effect(raw: &Raw) -> Result<Vec<String>, FlagError> {
    let mut lines = Vec::new();
    for (flag, is_given) in [
        ("-f", raw.growth_factor.is_some()),
        ("-n", raw.chunk_size.is_some()),
    ] {
        if is_given {
            lines.push(no_effect(flag, "there are no slab classes"));
        }
    }
    if raw.large_pages {
        lines.push(no_effect("-L", "huge pages are used where there are any"));
    }
    if let Some(text) = &raw.napi_ids {
        number("-N", text, 1, u64::from(u32::MAX))?;
        lines.push(no_effect(
            "-N",
            "the kernel spreads connections over the threads",
        ));
    }
    Ok(lines)
}

/// What `-f` and `-n` say, by the names of memcached's settings and as it shows them.
fn given_for_slabs(raw: &Raw) -> Result<Vec<(&'static str, String)>, FlagError> {
    let mut given = Vec::new();
    if let Some(text) = &raw.growth_factor {
        match text.parse::<f64>() {
            Ok(factor) if factor > 1.0 && factor.is_finite() => {
                given.push(("growth_factor", format!("{factor:.2}")));
            }
            _ => return Err(FlagError::value("-f", text, "a number above 1")),
        }
    }
    if let Some(text) = &raw.chunk_size {
        let bytes = number("-n", text, 1, u64::from(u32::MAX))?;
        given.push(("chunk_size", bytes.to_string()));
    }
    Ok(given)
}

/// As memcached does: -U without -p is for both.
fn tcp_port(raw: &Raw) -> &str {
    match &raw.port {
        Some(port) => port,
        None if raw.udp_port == "0" => "11211",
        None => &raw.udp_port,
    }
}

/// The addresses that -l names, with the port that another flag gives.
fn addresses(
    flag: &str,
    port: &str,
    raw: &Raw,
    tls: Option<&TlsSettings>,
) -> Result<Addresses, FlagError> {
    let port: i32 = match port.parse() {
        Ok(port @ -1..=65_535) => port,
        _ => {
            return Err(FlagError::value(
                flag,
                port,
                "a port from 1 to 65535, 0 or -1",
            ));
        }
    };
    if port == 0 {
        return Ok(Addresses::default());
    }
    // Any free port is the kernel's port 0.
    let port = u16::try_from(port).unwrap_or(0);
    if raw.listen.is_empty() {
        let mut listen = addresses::everywhere(port);
        for address in &mut listen {
            address.is_unasked = true;
            address.tls = tls.map(|tls| tls.of_clients);
        }
        return Ok(Addresses {
            listen,
            have_tags: false,
        });
    }
    Addresses::parse(&raw.listen.join(","), port, protocol_asked(raw)?, tls)
}

fn unix_mask(text: &str) -> Result<u32, FlagError> {
    u32::from_str_radix(text, 8)
        .ok()
        .filter(|mask| *mask <= 0o777)
        .ok_or_else(|| FlagError::value("-a", text, "access bits in octal, 0 to 777"))
}

/// Memory as asked for, or the least where that is less: memcached takes any number.
fn memory(raw: &Raw, unmet: &mut Vec<String>) -> Result<usize, FlagError> {
    let asked = bytes("-m", &raw.memory, 1 << 20)?;
    let memory = asked.max(coua_store::MEMORY_MIN as u64);
    if memory > asked {
        unmet.push(format!(
            "-m {}: coua takes {} MiB, the least that it works with",
            raw.memory,
            memory >> 20
        ));
    }
    usize::try_from(memory).map_err(|_| FlagError::value("-m", &raw.memory, "fewer megabytes"))
}

/// Where `/metrics` is served.
fn metrics(raw: &Raw) -> Result<Option<SocketAddr>, FlagError> {
    let takes = "an address with a port, such as 127.0.0.1:9150, [::1]:9150 or localhost:9150";
    let found = raw.metrics.as_ref().map(|text| {
        let address = text.to_socket_addrs().ok().and_then(|mut all| all.next());
        address.ok_or_else(|| FlagError::value("--metrics", text, takes))
    });
    found.transpose()
}

/// As much memory as there may ever be.
fn memory_max(raw: &Raw, memory: usize) -> Result<usize, FlagError> {
    let Some(text) = &raw.memory_max else {
        return Ok(memory);
    };
    let most = usize::try_from(bytes("--memory-max", text, 1 << 20)?).unwrap_or(usize::MAX);
    if most < memory {
        return Err(FlagError::value("--memory-max", text, "no less than -m"));
    }
    Ok(most)
}

/// What each worker's stack takes of memory, which leaves enough for the store.
fn stack_memory(raw: &Raw, memory: usize, workers: usize) -> Result<usize, FlagError> {
    let each = network::stack_memory(memory, workers);
    if memory.saturating_sub(workers * each) < coua_store::MEMORY_MIN {
        let least = coua_store::MEMORY_MIN + workers * network::STACK_MEMORY_MIN;
        return Err(FlagError::new(format!(
            "-m {}: with --net, {workers} threads need at least {} megabytes; give more, or fewer \
             threads (-t)",
            raw.memory,
            least >> 20
        )));
    }
    Ok(each)
}

fn item_size_max(raw: &Raw, memory: usize, of_stacks: usize) -> Result<u32, FlagError> {
    let size = bytes("-I", &raw.item_size, 1)?;
    if !(1 << 10..=1 << 30).contains(&size) {
        return Err(FlagError::value("-I", &raw.item_size, "1k to 1024m"));
    }
    if size > (memory - of_stacks) as u64 / 2 {
        let takes = match of_stacks {
            0 => "at most half of the memory (-m)",
            _ => "at most half of what --net leaves of the memory (-m)",
        };
        return Err(FlagError::value("-I", &raw.item_size, takes));
    }
    u32::try_from(size).map_err(|_| FlagError::value("-I", &raw.item_size, "1k to 1024m"))
}

fn workers(
    raw: &Raw,
    cores: &[usize],
    memory: usize,
    has_stacks: bool,
) -> Result<usize, FlagError> {
    match &raw.threads {
        Some(text) => Ok(size(number("-t", text, 1, WORKERS_MAX)?)),
        None if !cores.is_empty() => Ok(cores.len()),
        None => {
            // Affinity mask and cgroup quota are looked at.
            let cores = std::thread::available_parallelism().map_or(1, usize::from);
            let each = match has_stacks {
                // No more than half of memory is for stacks.
                true => 2 * network::STACK_MEMORY_MIN,
                false => WORKER_MEMORY_MIN,
            };
            Ok(cores.min(memory / each).min(WORKERS_UNASKED_MAX))
        }
    }
}

fn requests_per_turn(raw: &Raw) -> Result<usize, FlagError> {
    match &raw.requests_per_turn {
        Some(text) => Ok(size(number("-R", text, 1, 1_000_000)?)),
        None => Ok(REQUESTS_PER_TURN),
    }
}

fn prefix_delimiter(text: Option<&str>) -> Result<u8, FlagError> {
    match text.map(str::as_bytes) {
        None => Ok(b':'),
        Some(&[delimiter]) => Ok(delimiter),
        Some(_) => Err(FlagError::value(
            "-D",
            text.unwrap_or_default(),
            "one character of one byte",
        )),
    }
}

fn log_format(raw: &Raw) -> Result<LogFormat, FlagError> {
    match raw.log_format.as_deref() {
        None | Some("text") => Ok(LogFormat::Text),
        Some("json") => Ok(LogFormat::Json),
        Some(text) => Err(FlagError::value("--log-format", text, "text or json")),
    }
}

/// A number that has been found to be small enough.
fn size(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

/// As [`size`].
fn int(number: u64) -> i32 {
    i32::try_from(number).unwrap_or(i32::MAX)
}
