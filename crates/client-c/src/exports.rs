//! The functions of the header.
//!
//! # Safety
//! Of all of them: pointers are null or valid for what the header says, for as long as the call goes on.
#![allow(
    unsafe_code,
    clippy::missing_safety_doc,
    reason = "C calls these, and the header says what it must keep to"
)]

use std::ffi::{c_char, c_void};
use std::fmt::Write;
use std::time::Duration;

use coua_client::wire::Status;
use coua_client::{Client, Expiry, StoreMode};

use crate::failure::{ErrorDetails, Failure, of_store, status};
use crate::observed::{Observed, ObserverFunction};
use crate::options;
use crate::pointers::{
    ClientHandle, Slice, Value, bytes, client, conclude, drop_handle, give_back, into_handle,
    optional, put, slices, text,
};
use crate::queue::{counting, number};

/// The interface's version; see the header.
pub const ABI_VERSION: u32 = 1;

/// Where the answer goes that is not there yet.
fn no_value(value: *mut Value) -> Result<(), Failure> {
    // SAFETY: the caller of each function here promises it.
    unsafe { put("value", value, Value::none(status::INVALID)) }
}

pub(crate) fn expiry(number: i64) -> Result<Expiry, Failure> {
    match i32::try_from(number) {
        Ok(number) => Ok(Expiry::from_wire(number)),
        Err(_) => Err(Failure::invalid(format!(
            "{number} is no expiry: it has 32 bits"
        ))),
    }
}

fn found(is_there: bool) -> i32 {
    match is_there {
        true => status::OK,
        false => status::MISSING,
    }
}

/// Lends a value, or says that there is none.
///
/// # Safety
/// `into` is null or can be written.
unsafe fn hand_over(value: Option<coua_client::Value>, into: *mut Value) -> Result<i32, Failure> {
    let value = value.map_or_else(|| Value::none(status::MISSING), Value::lend);
    let status = value.status;
    // SAFETY: as the caller promises.
    unsafe { put("value", into, value) }?;
    Ok(status)
}

/// See the header.
#[unsafe(no_mangle)]
pub extern "C" fn coua_abi_version() -> u32 {
    ABI_VERSION
}

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coua_open(
    servers: *const c_char,
    options: *const c_char,
    into: *mut *mut ClientHandle,
    error: *mut ErrorDetails,
) -> i32 {
    // SAFETY: C keeps to the header.
    unsafe { coua_open_observed(servers, options, None, std::ptr::null_mut(), into, error) }
}

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coua_open_observed(
    servers: *const c_char,
    options: *const c_char,
    observer: Option<ObserverFunction>,
    context: *mut c_void,
    into: *mut *mut ClientHandle,
    error: *mut ErrorDetails,
) -> i32 {
    let open = || {
        // SAFETY: C keeps to the header.
        unsafe { put("client", into, std::ptr::null_mut()) }?;
        // SAFETY: C keeps to the header.
        let servers = unsafe { text("servers", servers) }?;
        // SAFETY: C keeps to the header.
        let options = unsafe { text("options", options) }?;
        // SAFETY: C keeps to the header.
        let observed = unsafe { Observed::new(observer, context) };
        let settings = options::settings(servers, options)?.observed(observed.as_ref());
        let client = settings.open()?;
        // SAFETY: C keeps to the header.
        unsafe { put("client", into, into_handle(client, observed)) }?;
        Ok(status::OK)
    };
    // SAFETY: C keeps to the header.
    unsafe { conclude(open(), error) }
}

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coua_close(client: *mut ClientHandle) {
    // SAFETY: C keeps to the header.
    unsafe { drop_handle(client) };
}

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coua_get(
    handle: *mut ClientHandle,
    key: *const c_void,
    key_len: usize,
    value: *mut Value,
    error: *mut ErrorDetails,
) -> i32 {
    let get = || {
        no_value(value)?;
        // SAFETY: C keeps to the header.
        let (client, key) = unsafe { target(handle, key, key_len) }?;
        // SAFETY: C keeps to the header.
        unsafe { hand_over(client.gets(key)?, value) }
    };
    // SAFETY: C keeps to the header.
    unsafe { conclude(get(), error) }
}

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coua_get_and_touch(
    handle: *mut ClientHandle,
    key: *const c_void,
    key_len: usize,
    expires: i64,
    value: *mut Value,
    error: *mut ErrorDetails,
) -> i32 {
    let get = || {
        no_value(value)?;
        // SAFETY: C keeps to the header.
        let (client, key) = unsafe { target(handle, key, key_len) }?;
        let got = client.get_and_touch(key, expiry(expires)?)?;
        // SAFETY: C keeps to the header.
        unsafe { hand_over(got, value) }
    };
    // SAFETY: C keeps to the header.
    unsafe { conclude(get(), error) }
}

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coua_get_many(
    handle: *mut ClientHandle,
    keys: *const Slice,
    count: usize,
    values: *mut Value,
    error: *mut ErrorDetails,
) -> i32 {
    let get = || {
        // SAFETY: C keeps to the header.
        let keys = unsafe { slices(keys, count) }?;
        for at in 0..keys.len() {
            no_value(values.wrapping_add(at))?;
        }
        // SAFETY: C keeps to the header.
        let client = unsafe { client(handle) }?;
        let mut first = None;
        for (at, result) in client.get_many_each(&keys).into_iter().enumerate() {
            let value = result.map_or_else(
                |failed| {
                    let failure = Failure::from(&failed);
                    let status = failure.status;
                    first.get_or_insert(failure);
                    Value::none(status)
                },
                |value| value.map_or_else(|| Value::none(status::MISSING), Value::lend),
            );
            // SAFETY: C keeps to the header.
            unsafe { put("values", values.wrapping_add(at), value) }?;
        }
        first.map_or(Ok(status::OK), Err)
    };
    // SAFETY: C keeps to the header.
    unsafe { conclude(get(), error) }
}

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coua_value_release(values: *mut Value, count: usize) {
    // SAFETY: C keeps to the header.
    unsafe { give_back(values, count) };
}

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coua_store(
    handle: *mut ClientHandle,
    mode: i32,
    key: *const c_void,
    key_len: usize,
    value: *const c_void,
    value_len: usize,
    client_flags: u32,
    expires: i64,
    cas: u64,
    error: *mut ErrorDetails,
) -> i32 {
    let store = || {
        let mode = match mode {
            0 => StoreMode::Set,
            1 => StoreMode::Add,
            2 => StoreMode::Replace,
            3 => StoreMode::Append,
            4 => StoreMode::Prepend,
            5 => StoreMode::Cas(cas),
            _ => return Err(Failure::invalid(format!("{mode} is no mode of a store"))),
        };
        // SAFETY: C keeps to the header.
        let (client, key) = unsafe { target(handle, key, key_len) }?;
        // SAFETY: C keeps to the header.
        let value = unsafe { bytes("value", value, value_len) }?;
        let stored = client.store(mode, key, value, client_flags, expiry(expires)?)?;
        Ok(of_store(stored))
    };
    // SAFETY: C keeps to the header.
    unsafe { conclude(store(), error) }
}

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coua_delete(
    handle: *mut ClientHandle,
    key: *const c_void,
    key_len: usize,
    error: *mut ErrorDetails,
) -> i32 {
    let delete = || {
        // SAFETY: C keeps to the header.
        let (client, key) = unsafe { target(handle, key, key_len) }?;
        Ok(found(client.delete(key)?))
    };
    // SAFETY: C keeps to the header.
    unsafe { conclude(delete(), error) }
}

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coua_touch(
    handle: *mut ClientHandle,
    key: *const c_void,
    key_len: usize,
    expires: i64,
    error: *mut ErrorDetails,
) -> i32 {
    let touch = || {
        // SAFETY: C keeps to the header.
        let (client, key) = unsafe { target(handle, key, key_len) }?;
        Ok(found(client.touch(key, expiry(expires)?)?))
    };
    // SAFETY: C keeps to the header.
    unsafe { conclude(touch(), error) }
}

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coua_increment(
    handle: *mut ClientHandle,
    key: *const c_void,
    key_len: usize,
    delta: u64,
    initial: *const u64,
    expires: i64,
    number: *mut u64,
    error: *mut ErrorDetails,
) -> i32 {
    let increment = || {
        // SAFETY: C keeps to the header.
        let (client, key) = unsafe { target(handle, key, key_len) }?;
        // SAFETY: C keeps to the header.
        let initial = unsafe { optional(initial) };
        let new = match initial {
            None => client.increment(key, delta)?,
            Some(initial) => count(client, key, (false, delta, initial), expiry(expires)?)?,
        };
        // SAFETY: C keeps to the header.
        unsafe { counted(new, number) }
    };
    // SAFETY: C keeps to the header.
    unsafe { conclude(increment(), error) }
}

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coua_decrement(
    handle: *mut ClientHandle,
    key: *const c_void,
    key_len: usize,
    delta: u64,
    initial: *const u64,
    expires: i64,
    number: *mut u64,
    error: *mut ErrorDetails,
) -> i32 {
    let decrement = || {
        // SAFETY: C keeps to the header.
        let (client, key) = unsafe { target(handle, key, key_len) }?;
        // SAFETY: C keeps to the header.
        let initial = unsafe { optional(initial) };
        let new = match initial {
            None => client.decrement(key, delta)?,
            Some(initial) => count(client, key, (true, delta, initial), expiry(expires)?)?,
        };
        // SAFETY: C keeps to the header.
        unsafe { counted(new, number) }
    };
    // SAFETY: C keeps to the header.
    unsafe { conclude(decrement(), error) }
}

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coua_flush_all(
    handle: *mut ClientHandle,
    delay_seconds: u32,
    error: *mut ErrorDetails,
) -> i32 {
    let flush = || {
        // SAFETY: C keeps to the header.
        let client = unsafe { client(handle) }?;
        client.flush_all(Duration::from_secs(delay_seconds.into()))?;
        Ok(status::OK)
    };
    // SAFETY: C keeps to the header.
    unsafe { conclude(flush(), error) }
}

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coua_ask_servers(
    handle: *mut ClientHandle,
    what: *const c_char,
    value: *mut Value,
    error: *mut ErrorDetails,
) -> i32 {
    let ask = || {
        no_value(value)?;
        // SAFETY: C keeps to the header.
        let client = unsafe { client(handle) }?;
        // SAFETY: C keeps to the header.
        let what = unsafe { text("words", what) }?;
        let bytes = told(client, what)?.into_bytes();
        let lines = coua_client::Value {
            bytes,
            ..coua_client::Value::default()
        };
        // SAFETY: C keeps to the header.
        unsafe { hand_over(Some(lines), value) }
    };
    // SAFETY: C keeps to the header.
    unsafe { conclude(ask(), error) }
}

/// The client and the key of an operation.
///
/// # Safety
/// As for [`client`] and [`bytes`].
unsafe fn target<'c>(
    handle: *const ClientHandle,
    key: *const c_void,
    key_len: usize,
) -> Result<(&'c Client, &'c [u8]), Failure> {
    // SAFETY: as the caller promises.
    let client = unsafe { client(handle) }?;
    // SAFETY: as the caller promises.
    let key = unsafe { bytes("key", key, key_len) }?;
    Ok((client, key))
}

/// Counts, where a missing item becomes a number: only meta can.
fn count(
    client: &Client,
    key: &[u8],
    (is_down, delta, initial): (bool, u64, u64),
    expiry: Expiry,
) -> Result<Option<u64>, Failure> {
    let reply = client.meta(key, counting(is_down, delta, initial, expiry))?;
    let number = number(reply.value.as_deref());
    match (reply.status, number) {
        (Status::Done, Some(number)) => Ok(Some(number)),
        _ => Ok(None),
    }
}

/// # Safety
/// `number` is null or can be written.
unsafe fn counted(new: Option<u64>, number: *mut u64) -> Result<i32, Failure> {
    let Some(new) = new else {
        return Ok(status::MISSING);
    };
    // SAFETY: as the caller promises.
    unsafe { put("number", number, new) }?;
    Ok(status::OK)
}

/// What all servers say, a line each.
fn told(client: &Client, what: &str) -> Result<String, Failure> {
    let mut lines = String::new();
    let mut line = |server: &str, name: &str, value: &str| {
        // Writing to a string does not fail.
        let _ = writeln!(lines, "{server} {name} {value}");
    };
    let stats = what.strip_prefix("stats");
    if what == "version" {
        for (server, version) in client.version() {
            match version {
                Ok(version) => line(&server, "version", &version),
                Err(error) => line(&server, "error", &error.to_string()),
            }
        }
    } else if let Some(argument) = stats.filter(|rest| rest.is_empty() || rest.starts_with(' ')) {
        for (server, statistics) in client.stats(argument.trim_start()) {
            match statistics {
                Ok(statistics) => {
                    for (name, value) in statistics {
                        line(&server, &name, &value);
                    }
                }
                Err(error) => line(&server, "error", &error.to_string()),
            }
        }
    } else {
        let message = format!("`{what}` is neither version nor stats");
        return Err(Failure::invalid(message));
    }
    Ok(lines)
}
