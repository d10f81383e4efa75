//! Makes errors, for tests.
#![allow(unsafe_code, reason = "poisons pages of which it is given the address")]

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;

const UFFD_API: u64 = 0xAA;
const UFFD_USER_MODE_ONLY: libc::c_int = 1;
const UFFDIO_REGISTER_MODE_MISSING: u64 = 1;

/// The requests' numbers: direction and size of the argument, 0xAA, number.
const UFFDIO_API: libc::Ioctl = 0xC018_AA3F;
const UFFDIO_REGISTER: libc::Ioctl = 0xC020_AA00;
const UFFDIO_UNREGISTER: libc::Ioctl = 0x8010_AA01;
const UFFDIO_POISON: libc::Ioctl = 0xC020_AA08;

#[repr(C)]
struct Api {
    api: u64,
    features: u64,
    ioctls: u64,
}

#[repr(C)]
#[derive(Clone, Copy)]
struct AddressRange {
    start: u64,
    length: u64,
}

#[repr(C)]
struct RangeAndMode {
    range: AddressRange,
    mode: u64,
    answer: i64,
}

/// Poisons the page tables' entry of a page by `UFFDIO_POISON`, of Linux 6.6. It needs no right. The
/// memory is sound, and a replaced page is as well as any. For anonymous memory, hugetlb, tmpfs and
/// memfds; a kernel without machine checks reports `BUS_ADRERR`.
///
/// # Errors
/// When the kernel cannot, `Unsupported`; else as it says.
///
/// # Safety
/// The page is in a registered region, and of `page_size` bytes.
pub unsafe fn by_userfaultfd(page: NonNull<u8>, page_size: usize) -> io::Result<()> {
    let fd = userfaultfd().map_err(|_| io::Error::from(io::ErrorKind::Unsupported))?;
    let range = AddressRange {
        start: page.as_ptr().expose_provenance() as u64,
        length: page_size as u64,
    };
    // No thread asks about an earlier loss of the page meanwhile: in between it can neither be read nor is it poisoned.
    let _state = crate::STATE.lock();
    // Who touches the page from here on waits until it is poisoned: nobody sees the zeros in between.
    let mut register = RangeAndMode {
        range,
        mode: UFFDIO_REGISTER_MODE_MISSING,
        answer: 0,
    };
    request(&fd, UFFDIO_REGISTER, &mut register)?;
    let poisoned = loop {
        // SAFETY: the caller has agreed that the bytes are lost.
        let dropped =
            unsafe { libc::madvise(page.as_ptr().cast(), page_size, libc::MADV_DONTNEED_LOCKED) };
        if dropped != 0 {
            break Err(io::Error::last_os_error());
        }
        let mut poison = RangeAndMode {
            range,
            mode: 0,
            answer: 0,
        };
        match request(&fd, UFFDIO_POISON, &mut poison) {
            // Somebody who was on the way already has put a page there, or changes a mapping.
            Err(error) if matches!(error.raw_os_error(), Some(libc::EEXIST | libc::EAGAIN)) => {}
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
                break Err(io::ErrorKind::Unsupported.into());
            }
            other => break other,
        }
    };
    let mut range = range;
    request(&fd, UFFDIO_UNREGISTER, &mut range)?;
    poisoned
}

/// Poisons the page by `MADV_HWPOISON`: the kernel never uses it again until it is booted. It needs
/// `CAP_SYS_ADMIN` and a kernel with machine checks.
///
/// # Errors
/// When the kernel cannot, `Unsupported`; else as it says.
///
/// # Safety
/// The page is in a registered region, and of `page_size` bytes.
pub unsafe fn by_madvise(page: NonNull<u8>, page_size: usize) -> io::Result<()> {
    // SAFETY: the caller has agreed that the bytes are lost.
    let result = unsafe { libc::madvise(page.as_ptr().cast(), page_size, libc::MADV_HWPOISON) };
    if result == 0 {
        return Ok(());
    }
    let error = io::Error::last_os_error();
    match error.raw_os_error() {
        Some(libc::EINVAL | libc::EPERM) => Err(io::ErrorKind::Unsupported.into()),
        _ => Err(error),
    }
}

/// Poisons a page that nobody watches by `UFFDIO_POISON`: who touches it ends the process.
///
/// # Errors
/// As of [`by_userfaultfd`]; `InvalidInput` for what is watched, or no address.
pub fn unwatched(address: usize) -> io::Result<()> {
    let start = address / crate::PAGE_BYTES * crate::PAGE_BYTES;
    let page = NonNull::new(std::ptr::with_exposed_provenance_mut::<u8>(start));
    let is_watched = crate::STATE.lock().find(start).is_some();
    let page = page
        .filter(|_| !is_watched)
        .ok_or(io::ErrorKind::InvalidInput)?;
    // SAFETY: whoever looks at the page again ends the process before it sees anything.
    unsafe { by_userfaultfd(page, crate::PAGE_BYTES) }
}

/// Sends the calling thread the signal that the kernel sends for an untouched error. Nothing is
/// poisoned.
///
/// # Errors
/// As the kernel says.
pub fn report_untouched(address: usize) -> io::Result<()> {
    report(address, libc::BUS_MCEERR_AO)
}

/// Sends the calling thread the signal that the kernel sends for a touched error. Nothing is
/// poisoned.
///
/// # Errors
/// As the kernel says.
pub fn report_touched(address: usize) -> io::Result<()> {
    report(address, libc::BUS_MCEERR_AR)
}

fn report(address: usize, code: i32) -> io::Result<()> {
    /// A siginfo_t for a fault.
    #[repr(C)]
    struct Fault {
        signal: i32,
        errno: i32,
        code: i32,
        empty: i32,
        address: usize,
        lsb: i16,
        rest: [u64; 12],
    }
    let fault = Fault {
        signal: libc::SIGBUS,
        errno: 0,
        code,
        empty: 0,
        address,
        lsb: 12,
        rest: [0; 12],
    };
    const _: () = assert!(size_of::<Fault>() == size_of::<libc::siginfo_t>());
    // SAFETY: it is as long as a siginfo_t.
    unsafe { crate::handler::send_fault((&raw const fault).cast()) }
}

fn userfaultfd() -> io::Result<OwnedFd> {
    let flags = libc::O_CLOEXEC | libc::O_NONBLOCK | UFFD_USER_MODE_ONLY;
    // SAFETY: takes a number.
    let fd = unsafe { libc::syscall(libc::SYS_userfaultfd, flags) };
    let fd = i32::try_from(fd).map_err(|_| io::ErrorKind::Unsupported)?;
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor is new and nobody else's.
    let fd = unsafe { OwnedFd::from_raw_fd(fd) };
    let mut api = Api {
        api: UFFD_API,
        features: 0,
        ioctls: 0,
    };
    request(&fd, UFFDIO_API, &mut api)?;
    Ok(fd)
}

/// Makes a request whose argument has the length that the request's number says.
fn request<T>(fd: &OwnedFd, number: libc::Ioctl, argument: &mut T) -> io::Result<()> {
    assert_eq!(size_of::<T>() as u64, (number >> 16) & 0x3FFF);
    let argument: *mut T = argument;
    // SAFETY: the kernel reads and writes the argument's length alone. The ranges in it are those
    // that the callers were given.
    let result = unsafe { libc::ioctl(fd.as_raw_fd(), number, argument) };
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}
