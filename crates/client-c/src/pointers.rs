//! What C hands over, as what Rust may use: the only place that trusts a pointer.
#![allow(
    unsafe_code,
    reason = "C hands over pointers, and takes values that it gives back later"
)]

use std::ffi::{CStr, c_char, c_void};
use std::ptr;

use coua_client::Client;

use crate::failure::{ErrorDetails, Failure, status};
use crate::observed::Observed;
use crate::options::Settings;
use crate::queue::Queue;

/// `coua_client`: what C knows only by its address.
#[derive(Debug)]
pub struct ClientHandle {
    client: Client,
    observed: Option<Observed>,
}

/// `coua_queue`, likewise.
#[derive(Debug)]
pub struct QueueHandle(Queue);

/// `coua_slice`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Slice {
    /// The first byte; anything when there is none.
    pub bytes: *const u8,
    /// How many there are.
    pub len: usize,
}

/// `coua_value`.
#[repr(C)]
#[derive(Debug)]
pub struct Value {
    /// The value, while it is lent.
    pub bytes: *const u8,
    /// Its length.
    pub len: usize,
    /// Its CAS, or 0.
    pub cas: u64,
    /// What was stored beside it.
    pub client_flags: u32,
    /// What came of the request for it.
    pub status: i32,
    /// A `Box<Vec<u8>>` that holds the bytes, or null.
    pub lease: *mut c_void,
}

impl Value {
    pub(crate) fn none(status: i32) -> Value {
        Value {
            bytes: ptr::null(),
            len: 0,
            cas: 0,
            client_flags: 0,
            status,
            lease: ptr::null_mut(),
        }
    }

    /// Lends a value, until [`give_back`].
    pub(crate) fn lend(value: coua_client::Value) -> Value {
        let bytes = Box::new(value.bytes);
        Value {
            bytes: bytes.as_ptr(),
            len: bytes.len(),
            cas: value.cas.unwrap_or(0),
            client_flags: value.client_flags,
            status: status::OK,
            lease: Box::into_raw(bytes).cast(),
        }
    }
}

/// A client on its way to C.
pub(crate) fn into_handle(client: Client, observed: Option<Observed>) -> *mut ClientHandle {
    Box::into_raw(Box::new(ClientHandle { client, observed }))
}

/// A queue on its way to C.
pub(crate) fn into_queue(
    settings: Settings,
    observed: Option<Observed>,
) -> Result<*mut QueueHandle, Failure> {
    let queue = Queue::open(settings, observed)?;
    Ok(Box::into_raw(Box::new(QueueHandle(queue))))
}

/// # Safety
/// The pointer is null, or one of [`into_queue`]'s that nobody uses any more.
pub(crate) unsafe fn drop_queue(queue: *mut QueueHandle) {
    if !queue.is_null() {
        // SAFETY: as the caller promises.
        drop(unsafe { Box::from_raw(queue) });
    }
}

/// # Safety
/// The pointer is null, or one of [`into_queue`]'s that stays so for the call.
pub(crate) unsafe fn queue<'q>(queue: *const QueueHandle) -> Result<&'q Queue, Failure> {
    // SAFETY: as the caller promises.
    let handle = unsafe { queue.as_ref() };
    let handle = handle.ok_or_else(|| Failure::invalid("the queue is NULL"))?;
    Ok(&handle.0)
}

/// Lends values in a row, until [`take_many`].
pub(crate) fn lend_many(values: Vec<Value>) -> (*mut Value, usize) {
    let values = values.into_boxed_slice();
    let count = values.len();
    match count {
        0 => (ptr::null_mut(), 0),
        _ => (Box::into_raw(values).cast(), count),
    }
}

/// Takes them back, and leaves none there.
///
/// # Safety
/// They are those of [`lend_many`], or null.
pub(crate) unsafe fn take_many(values: &mut *mut Value, count: &mut usize) {
    let values = std::mem::replace(values, ptr::null_mut());
    let count = std::mem::replace(count, 0);
    if values.is_null() {
        return;
    }
    // SAFETY: as the caller promises.
    unsafe { give_back(values, count) };
    // SAFETY: `lend_many` made it of so many, and it is taken out here once.
    drop(unsafe { Box::from_raw(ptr::slice_from_raw_parts_mut(values, count)) });
}

/// # Safety
/// The pointer is null, or one of [`into_handle`]'s that nobody uses any more.
pub(crate) unsafe fn drop_handle(client: *mut ClientHandle) {
    if !client.is_null() {
        // SAFETY: as the caller promises.
        let handle = unsafe { Box::from_raw(client) };
        if let Some(observed) = &handle.observed {
            observed.end();
        }
    }
}

/// # Safety
/// The pointer is null, or one of [`into_handle`]'s that stays so for the call.
pub(crate) unsafe fn client<'c>(client: *const ClientHandle) -> Result<&'c Client, Failure> {
    // SAFETY: as the caller promises.
    let handle = unsafe { client.as_ref() };
    let handle = handle.ok_or_else(|| Failure::invalid("the client is NULL"))?;
    Ok(&handle.client)
}

/// # Safety
/// So many bytes can be read there for the call, or there are none.
pub(crate) unsafe fn bytes<'c>(
    what: &str,
    bytes: *const c_void,
    len: usize,
) -> Result<&'c [u8], Failure> {
    if len == 0 {
        return Ok(&[]);
    }
    if bytes.is_null() || len > isize::MAX as usize {
        let reason = "is NULL with a length, or longer than memory";
        return Err(Failure::invalid(format!("the {what} {reason}")));
    }
    // SAFETY: it is neither null nor longer than memory; for the rest the caller promises.
    Ok(unsafe { std::slice::from_raw_parts(bytes.cast(), len) })
}

/// # Safety
/// The pointer is null, or text with a zero behind it that stays so for the call.
pub(crate) unsafe fn text<'c>(what: &str, text: *const c_char) -> Result<&'c str, Failure> {
    if text.is_null() {
        return Ok("");
    }
    // SAFETY: as the caller promises.
    let text = unsafe { CStr::from_ptr(text) };
    let invalid = |_| Failure::invalid(format!("the {what} are not UTF-8"));
    text.to_str().map_err(invalid)
}

/// # Safety
/// So many slices can be read there for the call, and each one's bytes.
pub(crate) unsafe fn slices<'c>(
    keys: *const Slice,
    count: usize,
) -> Result<Vec<&'c [u8]>, Failure> {
    if count == 0 {
        return Ok(Vec::new());
    }
    if keys.is_null() || count > isize::MAX as usize / size_of::<Slice>() {
        let message = "the keys are NULL with a count, or more than memory holds";
        return Err(Failure::invalid(message));
    }
    // SAFETY: it is neither null nor longer than memory; for the rest the caller promises.
    let keys = unsafe { std::slice::from_raw_parts(keys, count) };
    let keys = keys.iter().map(|key| {
        // SAFETY: as the caller promises.
        unsafe { bytes("key", key.bytes.cast(), key.len) }
    });
    keys.collect()
}

/// Reads a number that may be absent.
///
/// # Safety
/// The pointer is null or can be read.
pub(crate) unsafe fn optional(number: *const u64) -> Option<u64> {
    // SAFETY: as the caller promises.
    unsafe { number.as_ref() }.copied()
}

/// Writes to where C wants something. Nothing that is there is dropped.
///
/// # Safety
/// The pointer is null or can be written.
pub(crate) unsafe fn put<T>(what: &str, to: *mut T, it: T) -> Result<(), Failure> {
    if to.is_null() {
        return Err(Failure::invalid(format!(
            "there is nowhere to put the {what}"
        )));
    }
    // SAFETY: it is not null; for the rest the caller promises.
    unsafe { to.write(it) };
    Ok(())
}

/// Says what an operation came to, and what its error is if the caller wants to know.
///
/// # Safety
/// The pointer is null or can be written.
pub(crate) unsafe fn conclude(result: Result<i32, Failure>, error: *mut ErrorDetails) -> i32 {
    match result {
        Ok(status) => status,
        Err(failure) => {
            if !error.is_null() {
                // SAFETY: it is not null; for the rest the caller promises.
                unsafe { error.write(failure.details()) };
            }
            failure.status
        }
    }
}

/// Takes lent values back, and leaves none there.
///
/// # Safety
/// So many values of this library's can be written there.
pub(crate) unsafe fn give_back(values: *mut Value, count: usize) {
    if values.is_null() {
        return;
    }
    for at in 0..count {
        // SAFETY: as the caller promises.
        let value = unsafe { &mut *values.wrapping_add(at) };
        let lease = std::mem::replace(&mut value.lease, ptr::null_mut());
        value.bytes = ptr::null();
        value.len = 0;
        if !lease.is_null() {
            // SAFETY: `Value::lend` made it, and it is taken out here once.
            drop(unsafe { Box::from_raw(lease.cast::<Vec<u8>>()) });
        }
    }
}
