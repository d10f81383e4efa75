//! The functions of the header for operations that nobody waits for.
//!
//! # Safety
//! Of all of them: pointers are null or valid for what the header says, for as long as the call goes on.
#![allow(
    unsafe_code,
    clippy::missing_safety_doc,
    reason = "C calls these, and the header says what it must keep to"
)]

use std::ffi::{c_char, c_void};
use std::time::Duration;

use coua_client::{Expiry, StoreMode};

use crate::exports::expiry;
use crate::failure::{ErrorDetails, Failure, status};
use crate::observed::{Observed, ObserverFunction};
use crate::options;
use crate::pointers::{
    QueueHandle, Slice, Value, bytes, conclude, drop_queue, give_back, into_queue, lend_many,
    optional, put, queue, slices, take_many, text,
};
use crate::queue::{Done, Outcome, Work};

/// `coua_request`.
#[repr(C)]
#[derive(Debug)]
pub struct Request {
    /// What the completion is told apart by.
    pub token: u64,
    /// One of the header's operations.
    pub operation: i32,
    /// For stores.
    pub client_flags: u32,
    /// The key.
    pub key: *const c_void,
    /// Its length.
    pub key_len: usize,
    /// What is stored.
    pub value: *const c_void,
    /// Its length.
    pub value_len: usize,
    /// The keys of a multi-get.
    pub keys: *const Slice,
    /// How many they are.
    pub key_count: usize,
    /// When the item expires.
    pub expiry: i64,
    /// The CAS to compare with, or what is added or subtracted, or the seconds of a flush.
    pub number: u64,
    /// What a missing number becomes, or null.
    pub initial: *const u64,
}

/// `coua_completion`.
#[repr(C)]
#[derive(Debug)]
pub struct Completion {
    /// Whose it is.
    pub token: u64,
    /// What came of it.
    pub status: i32,
    /// Why there is no answer.
    pub cause: i32,
    /// The new number.
    pub number: u64,
    /// The value, or an error's message.
    pub value: Value,
    /// The values of a multi-get.
    pub values: *mut Value,
    /// How many they are.
    pub count: usize,
}

/// The operations behind those of a store.
mod operation {
    pub(super) const GET: i32 = 6;
    pub(super) const GET_AND_TOUCH: i32 = 7;
    pub(super) const GET_MANY: i32 = 8;
    pub(super) const DELETE: i32 = 9;
    pub(super) const TOUCH: i32 = 10;
    pub(super) const INCREMENT: i32 = 11;
    pub(super) const DECREMENT: i32 = 12;
    pub(super) const FLUSH_ALL: i32 = 13;
}

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coua_queue_open(
    servers: *const c_char,
    options: *const c_char,
    observer: Option<ObserverFunction>,
    context: *mut c_void,
    into: *mut *mut QueueHandle,
    error: *mut ErrorDetails,
) -> i32 {
    let open = || {
        // SAFETY: C keeps to the header.
        unsafe { put("queue", into, std::ptr::null_mut()) }?;
        // SAFETY: C keeps to the header.
        let servers = unsafe { text("servers", servers) }?;
        // SAFETY: C keeps to the header.
        let options = unsafe { text("options", options) }?;
        // SAFETY: C keeps to the header.
        let observed = unsafe { Observed::new(observer, context) };
        let settings = options::settings(servers, options)?.observed(observed.as_ref());
        let opened = into_queue(settings, observed)?;
        // SAFETY: C keeps to the header.
        unsafe { put("queue", into, opened) }?;
        Ok(status::OK)
    };
    // SAFETY: C keeps to the header.
    unsafe { conclude(open(), error) }
}

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coua_queue_close(handle: *mut QueueHandle) {
    // SAFETY: C keeps to the header.
    unsafe { drop_queue(handle) };
}

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coua_queue_submit(
    handle: *mut QueueHandle,
    request: *const Request,
    error: *mut ErrorDetails,
) -> i32 {
    let submit = || {
        // SAFETY: C keeps to the header.
        let queue = unsafe { queue(handle) }?;
        // SAFETY: C keeps to the header.
        let request = unsafe { request.as_ref() };
        let request = request.ok_or_else(|| Failure::invalid("the request is NULL"))?;
        // SAFETY: C keeps to the header.
        let work = unsafe { work(request) }?;
        queue.submit(request.token, work)?;
        Ok(status::OK)
    };
    // SAFETY: C keeps to the header.
    unsafe { conclude(submit(), error) }
}

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coua_queue_wait(
    handle: *mut QueueHandle,
    completions: *mut Completion,
    max: usize,
    timeout_ms: u32,
    error: *mut ErrorDetails,
) -> i32 {
    let wait = || {
        // SAFETY: C keeps to the header.
        let queue = unsafe { queue(handle) }?;
        let max = max.min(i32::MAX as usize);
        let done = queue.wait(max, Duration::from_millis(timeout_ms.into()))?;
        let count = i32::try_from(done.len()).unwrap_or(i32::MAX);
        for (at, done) in done.into_iter().enumerate() {
            // SAFETY: C keeps to the header.
            unsafe {
                put(
                    "completions",
                    completions.wrapping_add(at),
                    completion(done),
                )
            }?;
        }
        Ok(count)
    };
    // SAFETY: C keeps to the header.
    unsafe { conclude(wait(), error) }
}

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coua_queue_wake(handle: *mut QueueHandle) {
    // SAFETY: C keeps to the header.
    if let Ok(queue) = unsafe { queue(handle) } {
        queue.wake();
    }
}

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coua_completions_release(completions: *mut Completion, count: usize) {
    if completions.is_null() {
        return;
    }
    for at in 0..count {
        // SAFETY: C keeps to the header.
        let completion = unsafe { &mut *completions.wrapping_add(at) };
        // SAFETY: C keeps to the header; what is given back is not there a second time.
        unsafe { give_back(&raw mut completion.value, 1) };
        // SAFETY: as above.
        unsafe { take_many(&mut completion.values, &mut completion.count) };
    }
}

/// The operation, with bytes of its own.
///
/// # Safety
/// The request's pointers are null or valid for their lengths.
unsafe fn work(request: &Request) -> Result<Work, Failure> {
    let key = || {
        // SAFETY: as the caller promises.
        let key = unsafe { bytes("key", request.key, request.key_len) }?;
        Ok::<_, Failure>(key.to_vec())
    };
    let expiry: Result<Expiry, Failure> = expiry(request.expiry);
    let store = |mode| {
        // SAFETY: as the caller promises.
        let value = unsafe { bytes("value", request.value, request.value_len) }?;
        Ok(Work::Store {
            mode,
            key: key()?,
            value: value.to_vec(),
            client_flags: request.client_flags,
            expiry: self::expiry(request.expiry)?,
        })
    };
    match request.operation {
        0 => store(StoreMode::Set),
        1 => store(StoreMode::Add),
        2 => store(StoreMode::Replace),
        3 => store(StoreMode::Append),
        4 => store(StoreMode::Prepend),
        5 => store(StoreMode::Cas(request.number)),
        operation::GET => Ok(Work::Get(key()?)),
        operation::GET_AND_TOUCH => Ok(Work::GetAndTouch(key()?, expiry?)),
        operation::GET_MANY => {
            // SAFETY: as the caller promises.
            let keys = unsafe { slices(request.keys, request.key_count) }?;
            Ok(Work::GetMany(
                keys.into_iter().map(<[u8]>::to_vec).collect(),
            ))
        }
        operation::DELETE => Ok(Work::Delete(key()?)),
        operation::TOUCH => Ok(Work::Touch(key()?, expiry?)),
        operation::INCREMENT | operation::DECREMENT => {
            // SAFETY: as the caller promises.
            let initial = unsafe { optional(request.initial) };
            Ok(Work::Count {
                key: key()?,
                is_down: request.operation == operation::DECREMENT,
                delta: request.number,
                initial: match initial {
                    Some(initial) => Some((initial, expiry?)),
                    None => None,
                },
            })
        }
        operation::FLUSH_ALL => Ok(Work::FlushAll(Duration::from_secs(request.number))),
        other => Err(Failure::invalid(format!("{other} is no operation"))),
    }
}

fn completion(done: Done) -> Completion {
    let mut completion = Completion {
        token: done.token,
        status: status::OK,
        cause: 0,
        number: 0,
        value: Value::none(status::OK),
        values: std::ptr::null_mut(),
        count: 0,
    };
    let failure = match done.result {
        Ok(Outcome::Status(status)) => {
            completion.status = status;
            None
        }
        Ok(Outcome::Number(number)) => {
            completion.number = number;
            None
        }
        Ok(Outcome::Found(value)) => {
            completion.value = value.map_or_else(|| Value::none(status::MISSING), Value::lend);
            completion.status = completion.value.status;
            None
        }
        Ok(Outcome::Many(results, first)) => {
            let values = results.into_iter().map(|result| match result {
                Ok(value) => value.map_or_else(|| Value::none(status::MISSING), Value::lend),
                Err(status) => Value::none(status),
            });
            (completion.values, completion.count) = lend_many(values.collect());
            first
        }
        Err(failure) => Some(failure),
    };
    if let Some(failure) = failure {
        completion.status = failure.status;
        completion.cause = failure.cause;
        completion.value = Value::lend(coua_client::Value {
            bytes: failure.message.into_bytes(),
            ..coua_client::Value::default()
        });
    }
    completion
}
