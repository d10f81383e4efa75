//! The lines of each stream, byte for byte as memcached 1.6.45 writes them behind the time and the
//! number.

use std::io::Write;

use coua_protocol::StoreMode;
use coua_store::Miss;
use coua_transport::PeerAddress;

use crate::closing::CloseCause;
use crate::uri;

/// The class that all items are in. memcached shows 0 where there is no item.
const CLASS: u32 = 1;

/// What a lookup has found: bytes of the item's value, or why there is no item.
pub type Found = Result<usize, Miss>;

/// What came of a value that was to be stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreStatus {
    /// It was stored.
    Stored,
    /// Its mode has forbidden it.
    NotStored,
    /// The item has another CAS.
    Exists,
    /// There is no item to compare with.
    NotFound,
    /// No item may be so large.
    TooLarge,
    /// There was no memory.
    NoMemory,
}

/// A value that was to be stored.
#[derive(Clone, Copy, Debug)]
pub struct StoreLine<'k> {
    /// Its key.
    pub key: &'k [u8],
    /// What came of it.
    pub status: StoreStatus,
    /// How it was to be stored.
    pub mode: StoreMode,
    /// Seconds that the item has left; 0 for ever.
    pub ttl: u32,
    /// Bytes of the item's value.
    pub value_len: usize,
}

/// An item was looked up for connection `descriptor`.
pub fn item_get(line: &mut Vec<u8>, key: &[u8], found: Found, descriptor: i32) {
    let (status, class, size) = match found {
        Ok(value_len) => ("found", CLASS, value_len),
        Err(Miss::OnFlash(_)) => ("found", CLASS, 0),
        Err(Miss::Absent) => ("not_found", 0, 0),
        // What tags do is nearest to a flush.
        Err(Miss::Flushed | Miss::Invalidated) => ("flushed", 0, 0),
        Err(Miss::Expired) => ("expired", 0, 0),
    };
    begin(line, "item_get", key);
    // Here and below: writing to memory does not fail.
    let _ = write!(
        line,
        " status={status} clsid={class} cfd={descriptor} size={size}"
    );
}

/// A value was to be stored for connection `descriptor`.
pub fn item_store(line: &mut Vec<u8>, store: &StoreLine<'_>, descriptor: i32) {
    // memcached has no item then.
    let is_refused = matches!(store.status, StoreStatus::TooLarge | StoreStatus::NoMemory);
    let (class, ttl, size) = match is_refused {
        true => (0, 0, 0),
        false => (CLASS, store.ttl, store.value_len),
    };
    let status = match store.status {
        StoreStatus::Stored => "stored",
        StoreStatus::NotStored => "not_stored",
        StoreStatus::Exists => "exists",
        StoreStatus::NotFound => "not_found",
        StoreStatus::TooLarge => "too_large",
        StoreStatus::NoMemory => "no_memory",
    };
    let command = match store.mode {
        StoreMode::Set => "set",
        StoreMode::Add => "add",
        StoreMode::Replace => "replace",
        StoreMode::Append | StoreMode::AppendVivify => "append",
        StoreMode::Prepend | StoreMode::PrependVivify => "prepend",
        StoreMode::Cas => "cas",
    };
    begin(line, "item_store", store.key);
    let _ = write!(
        line,
        " status={status} cmd={command} ttl={ttl} clsid={class} cfd={descriptor} size={size}"
    );
}

/// A client has deleted an item by `command`.
pub fn deleted(line: &mut Vec<u8>, key: &[u8], command: &str, value_len: usize) {
    begin(line, "deleted", key);
    let _ = write!(line, " cmd={command} clsid={CLASS} size={value_len}");
}

/// What is told of an item that leaves memory.
#[derive(Clone, Copy, Debug)]
pub struct EvictionLine<'k> {
    /// Its key.
    pub key: &'k [u8],
    /// It was read since it was stored.
    pub is_fetched: bool,
    /// Seconds that it had left; -1 for ever.
    pub ttl: i64,
    /// Seconds since it was last used.
    pub idle_s: u32,
    /// Bytes of its value.
    pub value_len: usize,
}

/// An item was evicted.
pub fn eviction(line: &mut Vec<u8>, item: &EvictionLine<'_>) {
    begin_gone(line, "eviction", item);
    let _ = write!(line, " size={}", item.value_len);
}

/// An item has left memory for flash. memcached's buckets are kinds of pages; there is one kind here.
pub fn written_to_flash(line: &mut Vec<u8>, item: &EvictionLine<'_>) {
    begin_gone(line, "extwrite", item);
    line.extend(b" bucket=0");
}

/// What is said of each item that leaves memory.
fn begin_gone(line: &mut Vec<u8>, kind: &str, item: &EvictionLine<'_>) {
    begin(line, kind, item.key);
    let _ = write!(
        line,
        " fetch={} ttl={} la={} clsid={CLASS}",
        if item.is_fetched { "yes" } else { "no" },
        item.ttl,
        item.idle_s,
    );
}

/// A connection has opened.
pub fn opened(line: &mut Vec<u8>, peer: &PeerAddress, descriptor: i32) {
    line.extend(b"type=conn_new ");
    client(line, peer);
    let _ = write!(line, " cfd={descriptor}");
}

/// A connection closes.
pub fn closed(line: &mut Vec<u8>, peer: &PeerAddress, cause: CloseCause, descriptor: i32) {
    let reason = match cause {
        CloseCause::Client | CloseCause::Quit => "normal",
        CloseCause::Idle => "idle_timeout",
        CloseCause::Reset
        | CloseCause::Protocol
        | CloseCause::Login
        | CloseCause::Memory
        | CloseCause::Loss
        | CloseCause::System => "error",
    };
    line.extend(b"type=conn_close ");
    client(line, peer);
    let _ = write!(line, " reason={reason} cfd={descriptor}");
}

/// What is told of a slow request, which memcached does not know.
#[derive(Clone, Copy, Debug)]
pub struct SlowLine<'k> {
    /// What was asked for.
    pub command: &'static str,
    /// Its key; empty if it has none.
    pub key: &'k [u8],
    /// Microseconds that it took, with what it waited.
    pub elapsed_us: u64,
    /// Microseconds that it took itself.
    pub own_us: u64,
}

/// A request of connection `descriptor` was slow.
pub fn slow(line: &mut Vec<u8>, request: &SlowLine<'_>, descriptor: i32) {
    begin(line, "slow_request", request.key);
    let _ = write!(
        line,
        " cmd={} elapsed={} own={} cfd={descriptor}",
        request.command, request.elapsed_us, request.own_us
    );
}

/// The handshake of TLS of connection `descriptor` has not come to its end.
pub fn handshake_failed(line: &mut Vec<u8>, descriptor: i32) {
    let _ = write!(line, "type=conntlserr fd={descriptor} msg=handshake failed");
}

fn begin(line: &mut Vec<u8>, kind: &str, key: &[u8]) {
    let _ = write!(line, "type={kind} key=");
    uri::encode(key, line);
}

fn client(line: &mut Vec<u8>, peer: &PeerAddress) {
    let _ = match peer {
        PeerAddress::Tcp4(address) | PeerAddress::Tcp6(address) => write!(
            line,
            "rip={} rport={} transport=tcp",
            address.ip(),
            address.port()
        ),
        PeerAddress::Unix(_) => write!(line, "rip=unix rport=0 transport=local"),
        PeerAddress::Unknown => write!(line, "rip=unix rport=0 transport=tcp"),
    };
}
