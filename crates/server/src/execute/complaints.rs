//! What the log says about requests: with `-v` the bad ones, with `-vv` the first line of each
//! reply.

use coua_protocol::{ErrorLine, Status};

use crate::clock::Now;
use crate::connections::ConnectionInfo;
use crate::log::Limit;

static BAD_REQUEST: Limit = Limit::new();
static TOO_LARGE: Limit = Limit::new();

/// Logs that a request is answered with this error.
#[cold]
pub(super) fn bad_request(connection: &ConnectionInfo, error: ErrorLine, now: Now) {
    if error == ErrorLine::TooLarge {
        // The line with the value's length has said that already.
        return;
    }
    let line = error.as_bytes().trim_ascii_end().escape_ascii();
    let peer = &connection.peer;
    let text = format_args!("request from {peer} is answered {line}");
    BAD_REQUEST.debug(now.since_start_ms, text);
}

/// As [`bad_request`], in the binary protocol.
#[cold]
pub(super) fn bad_binary(connection: &ConnectionInfo, status: Status, now: Now) {
    if status == Status::TooLarge {
        return;
    }
    let (peer, text) = (&connection.peer, status.text().escape_ascii());
    let text = format_args!("binary request from {peer} is answered {text}");
    BAD_REQUEST.debug(now.since_start_ms, text);
}

/// Logs that a value is over the size limit.
#[cold]
pub(super) fn too_large(connection: &ConnectionInfo, key: &[u8], value_len: u32, now: Now) {
    let (peer, key) = (&connection.peer, key.escape_ascii());
    let text = format_args!("value of {value_len} bytes from {peer} for {key} is too large (-I)");
    TOO_LARGE.debug(now.since_start_ms, text);
}

/// Logs the first line of a reply, as memcached does. A reply that has left already is not logged.
#[cold]
pub(super) fn show_reply(descriptor: i32, reply: &[u8]) {
    let line = reply.split(|&byte| byte == b'\n').next();
    if let Some(line) = line.filter(|line| !line.is_empty()) {
        tracing::trace!(">{descriptor} {}", line.trim_ascii_end().escape_ascii());
    }
}
