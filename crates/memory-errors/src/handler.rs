//! The handler of SIGBUS.
#![allow(
    unsafe_code,
    reason = "reads what the kernel hands to a signal handler"
)]

use std::mem::MaybeUninit;
use std::sync::OnceLock;

use crate::keeper::{KeeperPointer, Remedy};
use crate::replace::{self, Fresh, Probe};
use crate::state::{Backing, Lost, Severity};
use crate::{SEEN, STATE, sys};

/// So many faults, without a loss between them, on pages that can be read when their turn comes. A
/// few are what becomes of threads that touched a lost page at the same time; so many are one thread
/// that cannot go on.
const LATE_FAULTS_MAX: u32 = 1 << 14;

/// What SIGBUS did before.
static BEFORE: OnceLock<libc::sigaction> = OnceLock::new();

/// The beginning of the kernel's `siginfo_t` for a fault, on 64-bit processors.
///
/// ```text
///  0        4        8        12       16               24      26
///  signal   errno    code     (empty)  address          lsb
/// ```
#[repr(C)]
struct FaultInfo {
    signal: i32,
    errno: i32,
    code: i32,
    _empty: i32,
    address: usize,
    lsb: i16,
}

const _: () = assert!(size_of::<usize>() == 8 && size_of::<FaultInfo>() == 32);
const _: () = assert!(size_of::<FaultInfo>() <= size_of::<libc::siginfo_t>());

/// Why memory errors end the process as before.
#[derive(Debug, thiserror::Error)]
pub enum InstallError {
    /// It was done before.
    #[error("the handler is installed already")]
    AlreadyInstalled,
    /// The system refused.
    #[error("the system refuses the handler: {0}")]
    System(#[from] std::io::Error),
}

/// What the handler decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    /// The thread goes on where it was.
    GoOn,
    /// The signal is none of ours, or cannot be helped.
    End,
}

/// Puts the handler in place.
///
/// # Errors
/// When it is there already, or the system refuses.
pub(crate) fn install() -> Result<(), InstallError> {
    let mut before = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: nothing is changed, and the pointer is to room for what is there.
    let asked = unsafe { libc::sigaction(libc::SIGBUS, std::ptr::null(), before.as_mut_ptr()) };
    if asked != 0 {
        return Err(InstallError::System(std::io::Error::last_os_error()));
    }
    // SAFETY: the call has filled it; zeros are a value of it as well.
    let before = unsafe { before.assume_init() };
    BEFORE
        .set(before)
        .map_err(|_| InstallError::AlreadyInstalled)?;
    let handler: extern "C" fn(i32, *mut FaultInfo, *mut libc::c_void) = on_sigbus;
    set_disposition(
        handler as usize,
        libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_RESTART,
    )
    .map_err(InstallError::System)
}

/// Sets what SIGBUS does; all signals are masked meanwhile.
fn set_disposition(handler: usize, flags: i32) -> std::io::Result<()> {
    let mut action = MaybeUninit::<libc::sigaction>::zeroed();
    let at = action.as_mut_ptr();
    // SAFETY: the field lies in the action.
    let mask = unsafe { &raw mut (*at).sa_mask };
    // SAFETY: the pointer is to room for a set.
    unsafe { libc::sigfillset(mask) };
    // SAFETY: zeros are a value of all other fields.
    let mut action = unsafe { action.assume_init() };
    action.sa_sigaction = handler;
    action.sa_flags = flags;
    apply(&action)
}

fn apply(action: &libc::sigaction) -> std::io::Result<()> {
    // SAFETY: the action names SIG_DFL, the handler below, which does what a handler may, or what
    // was there before.
    let result = unsafe { libc::sigaction(libc::SIGBUS, action, std::ptr::null_mut()) };
    if result == 0 {
        Ok(())
    } else {
        Err(std::io::Error::last_os_error())
    }
}

/// Every SIGBUS of the process comes here. It calls what a signal handler may: the kernel, and the
/// lock that masks signals.
extern "C" fn on_sigbus(_: i32, info: *mut FaultInfo, _: *mut libc::c_void) {
    let errno = sys::errno();
    // SAFETY: with SA_SIGINFO the kernel hands over a siginfo_t, which is larger and begins so.
    let info = unsafe { &*info };
    if judge(info) == Verdict::End {
        end(info);
    }
    sys::set_errno(errno);
}

/// Replaces what is lost, if it is ours.
fn judge(info: &FaultInfo) -> Verdict {
    let severity = match info.code {
        libc::BUS_MCEERR_AO => Severity::ActionOptional,
        // A kernel that was built without machine checks calls a poisoned page so, and a page behind
        // the end of its file as well.
        libc::BUS_MCEERR_AR | libc::BUS_ADRERR => Severity::ActionRequired,
        _ => return Verdict::End,
    };
    let mut state = STATE.lock_in_handler();
    let Some(region) = state.find(info.address) else {
        if severity == Severity::ActionOptional {
            // As the kernel does by default: whoever touches it ends the process, and perhaps nobody
            // does.
            state.note_elsewhere();
            return Verdict::GoOn;
        }
        return Verdict::End;
    };
    let lsb = u32::from(info.lsb.cast_unsigned());
    let range = region.lost_at(info.address, lsb);
    // Where it could not split a huge page, since a device or a system call has it pinned, the kernel
    // reports more than a page and leaves it mapped, as it leaves all pages of DAX. It can be read
    // until the next touch of it is the next error.
    let is_left_mapped = region.backing == Backing::Dax || range.len() > region.page_size;
    match (replace::probe(&range), severity) {
        (Probe::Readable, _) if is_left_mapped => {}
        (Probe::Readable, Severity::ActionOptional) => return Verdict::GoOn,
        // Another thread touched it too and was first: what it reads now it may read.
        (Probe::Readable, Severity::ActionRequired) => {
            return if state.note_late_fault() > LATE_FAULTS_MAX {
                Verdict::End
            } else {
                Verdict::GoOn
            };
        }
        (Probe::Poisoned, _) => {}
        // A page behind the end of its file.
        (Probe::Unknown | Probe::Inaccessible, _) if info.code == libc::BUS_ADRERR => {
            return Verdict::End;
        }
        (Probe::Unknown | Probe::Inaccessible, _) => {}
    }
    let keeper = region.keeper.as_ref().map(KeeperPointer::get);
    let remedy = keeper.map_or(Remedy::Zeros, |keeper| keeper.remedy(&range));
    let replaced = match (remedy, keeper) {
        // As of memory that nobody has registered.
        (Remedy::None, _) if severity == Severity::ActionOptional => {
            state.note_elsewhere();
            return Verdict::GoOn;
        }
        (Remedy::None, _) => return Verdict::End,
        (Remedy::Restored(file), Some(keeper)) => {
            SEEN.count();
            let fill = |address, page: &mut _| keeper.restore(address, page);
            // SAFETY: as below; the keeper says what belongs there, and which file it is.
            unsafe { replace::restore(&range, file, fill) }
        }
        (_, keeper) => {
            // On record before anybody can take the zeros for what was there.
            if let Some(keeper) = keeper {
                keeper.note_loss(&range);
            }
            SEEN.count();
            // SAFETY: the range lies in a registered region, which is one mapping of this backing, whose
            // owner has agreed. The lock keeps it registered.
            unsafe { replace::replace(&range, region.backing) }
        }
    };
    let Ok(fresh) = replaced else {
        return Verdict::End;
    };
    state.lose(Lost {
        address: range.start,
        length: range.len(),
        severity,
        monotonic_ns: sys::monotonic_ns(),
        is_detached: fresh == Fresh::Detached,
        is_restored: fresh == Fresh::Restored,
    });
    sys::wake_all(SEEN.word());
    Verdict::GoOn
}

/// Ends the process as if the handler had never been there: the same signal comes again when the
/// handler returns, and finds what was there before. A core dump shows the instruction and the
/// address.
fn end(info: &FaultInfo) {
    let is_fault = matches!(
        info.code,
        libc::BUS_ADRALN | libc::BUS_ADRERR | libc::BUS_OBJERR | libc::BUS_MCEERR_AR
    );
    // What was there before may be Rust's own handler, which leaves the end to the fault that comes
    // again when it returns. Where none comes again there must be no handler.
    let restored = match BEFORE.get() {
        Some(before) if is_fault => apply(before),
        _ => set_disposition(libc::SIG_DFL, 0),
    };
    if restored.is_err() {
        std::process::abort();
    }
    let info: *const FaultInfo = info;
    // SAFETY: the kernel handed the siginfo_t over itself.
    if unsafe { send_fault(info.cast()) }.is_err() {
        std::process::abort();
    }
}

/// Queues a SIGBUS with a `siginfo_t` for the calling thread. A process may send itself any.
///
/// # Safety
/// `info` points to as many readable bytes as a `siginfo_t` has.
pub(crate) unsafe fn send_fault(info: *const libc::siginfo_t) -> std::io::Result<()> {
    // SAFETY: asks for a number.
    let process = unsafe { libc::syscall(libc::SYS_getpid) };
    // SAFETY: asks for a number.
    let thread = unsafe { libc::syscall(libc::SYS_gettid) };
    // SAFETY: the kernel reads a siginfo_t's length, which the caller says is there.
    let sent = unsafe {
        libc::syscall(
            libc::SYS_rt_tgsigqueueinfo,
            process,
            thread,
            libc::SIGBUS,
            info,
        )
    };
    if sent == 0 {
        Ok(())
    } else {
        Err(std::io::Error::last_os_error())
    }
}
