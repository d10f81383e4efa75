//! A stack of its own for a thread's signal handlers.
#![allow(
    unsafe_code,
    reason = "maps memory and hands it to the kernel as a stack"
)]

use std::io;
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::ptr::NonNull;

/// What the handler needs beside the registers that the kernel saves.
const HANDLER_BYTES: usize = 32 << 10;

/// In front of the stack, so that an overflow is a fault.
const GUARD_BYTES: usize = 64 << 10;

/// The thread's handlers run on this stack until it is dropped.
///
/// So a lost page of the thread's own stack ends the process cleanly, and a handler needs no room on
/// a stack that is nearly full. A lost page of this one ends the process too: the kernel has nowhere
/// to begin the handler.
#[derive(Debug)]
#[must_use = "the stack goes when it is dropped"]
pub struct AlternateStack {
    mapping: NonNull<libc::c_void>,
    length: usize,
    before: libc::stack_t,
    /// The kernel keeps it for each thread, so it is dropped where it was made.
    _of_this_thread: PhantomData<*const ()>,
}

impl AlternateStack {
    /// Gives the calling thread a stack for its signal handlers.
    ///
    /// # Errors
    /// When there is no memory for it.
    pub(crate) fn install() -> io::Result<AlternateStack> {
        // SAFETY: asks for a number. It is 0 where the kernel does not say.
        let saved_registers = unsafe { libc::getauxval(libc::AT_MINSIGSTKSZ) };
        let saved_registers = usize::try_from(saved_registers).unwrap_or(0);
        let stack = saved_registers.max(libc::MINSIGSTKSZ) + HANDLER_BYTES;
        let length = GUARD_BYTES + stack.next_multiple_of(GUARD_BYTES);
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_STACK;
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: an anonymous mapping at an address of the kernel's choice disturbs nothing.
        let mapping = unsafe { libc::mmap(std::ptr::null_mut(), length, access, flags, -1, 0) };
        let mapping = NonNull::new(mapping).filter(|at| at.as_ptr() != libc::MAP_FAILED);
        let mapping = mapping.ok_or_else(io::Error::last_os_error)?;
        let mut before = MaybeUninit::<libc::stack_t>::uninit();
        // SAFETY: no new stack is given, and the pointer is to room for the old one.
        unsafe { libc::sigaltstack(std::ptr::null(), before.as_mut_ptr()) };
        let new = AlternateStack {
            mapping,
            length,
            // SAFETY: the call cannot fail, and has filled it.
            before: unsafe { before.assume_init() },
            _of_this_thread: PhantomData,
        };
        // SAFETY: the guard lies in the mapping, and nobody uses it.
        let guarded = unsafe { libc::mprotect(mapping.as_ptr(), GUARD_BYTES, libc::PROT_NONE) };
        if guarded != 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the guard is shorter than the mapping.
        let bottom = unsafe { mapping.byte_add(GUARD_BYTES) };
        let stack = libc::stack_t {
            ss_sp: bottom.as_ptr(),
            ss_flags: 0,
            ss_size: length - GUARD_BYTES,
        };
        // SAFETY: the memory stays mapped, and is nothing else, until the thread has another.
        if unsafe { libc::sigaltstack(&raw const stack, std::ptr::null_mut()) } != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(new)
    }
}

impl Drop for AlternateStack {
    fn drop(&mut self) {
        let before = &raw const self.before;
        // SAFETY: what the thread had is still there: whoever gave it takes it back at the end of the
        // thread.
        unsafe { libc::sigaltstack(before, std::ptr::null_mut()) };
        // SAFETY: the mapping is ours, and the thread has another stack for its handlers now. This is
        // no handler, which could run on it.
        unsafe { libc::munmap(self.mapping.as_ptr(), self.length) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn current() -> (usize, usize, i32) {
        let mut now = MaybeUninit::<libc::stack_t>::zeroed();
        // SAFETY: no new stack is given, and the pointer is to room for the old one.
        unsafe { libc::sigaltstack(std::ptr::null(), now.as_mut_ptr()) };
        // SAFETY: the call has filled it.
        let now = unsafe { now.assume_init() };
        (now.ss_sp.addr(), now.ss_size, now.ss_flags)
    }

    #[test]
    fn a_thread_has_it_until_it_is_dropped_and_then_what_it_had() {
        let before = current();
        let stack = AlternateStack::install().expect("there is memory");
        let (start, length, flags) = current();
        assert_ne!(start, before.0);
        assert!(length > HANDLER_BYTES, "{length}");
        assert_eq!(flags, 0);
        drop(stack);
        assert_eq!(current(), before);
    }
}
