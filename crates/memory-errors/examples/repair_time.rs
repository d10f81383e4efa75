//! How long a thread waits that touches a lost page: from the touch to the load's value, which takes
//! the fault, the handler, and the fault of the fresh page.
//!
//! `cargo run --release -p coua-memory-errors --features poison --example repair_time`. A page of each
//! kind is lost many times; huge pages need some in `/proc/sys/vm/nr_hugepages`.
#![allow(unsafe_code, reason = "maps memory that fails")]
#![expect(clippy::print_stdout, reason = "what the example is for")]

use std::io;
use std::ptr::NonNull;
use std::time::{Duration, Instant};

use coua_memory_errors::{Backing, Events, install, install_thread, poison, register};

const HUGE: usize = 2 << 20;
const ROUNDS: usize = 1000;

fn main() {
    let mut events = install().expect("nothing is installed yet");
    let _stack = install_thread().expect("there is memory");
    let anonymous = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    let kinds = [
        ("4 KiB", anonymous, None, 4096),
        (
            "2 MiB of hugetlb",
            anonymous | libc::MAP_HUGETLB,
            None,
            HUGE,
        ),
        ("4 KiB of a memfd", libc::MAP_SHARED, Some(0), 4096),
        (
            "2 MiB of hugetlbfs",
            libc::MAP_SHARED,
            Some(libc::MFD_HUGETLB),
            HUGE,
        ),
    ];
    for (name, flags, file, page_size) in kinds {
        match measure(flags, file, page_size, &mut events) {
            Ok(mut times) => {
                times.sort();
                let (median, last) = (times[times.len() / 2], times[times.len() - 1]);
                println!("{name}: median {median:?}, longest {last:?}");
            }
            Err(error) => println!("{name}: left out: {error}"),
        }
    }
}

/// The times of all rounds.
fn measure(
    flags: i32,
    file: Option<u32>,
    page_size: usize,
    events: &mut Events,
) -> io::Result<Vec<Duration>> {
    let fd = match file {
        // SAFETY: the name is a C string.
        Some(kind) => unsafe { libc::memfd_create(c"coua".as_ptr(), kind) },
        None => -1,
    };
    // SAFETY: takes numbers.
    if fd >= 0 && unsafe { libc::ftruncate(fd, page_size.cast_signed() as i64) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let (null, access) = (std::ptr::null_mut(), libc::PROT_READ | libc::PROT_WRITE);
    // SAFETY: a mapping at an address of the kernel's choice disturbs nothing.
    let page = unsafe { libc::mmap(null, page_size, access, flags, fd, 0) };
    if page == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    let page = NonNull::new(page.cast::<u8>()).expect("no mapping is at null");
    let backing = if file.is_some() {
        Backing::File
    } else {
        Backing::Anonymous
    };
    // SAFETY: it is one mapping of that backing, and is read as bytes.
    let registration = unsafe { register(page, page_size, page_size, backing) };
    let _registration = registration.map_err(io::Error::other)?;
    let mut times = Vec::new();
    for _ in 0..ROUNDS {
        // SAFETY: the page is mapped and nobody else's.
        unsafe { page.write_bytes(1, page_size) };
        // SAFETY: the page is registered.
        unsafe { poison::by_userfaultfd(page, page_size) }?;
        let start = Instant::now();
        // SAFETY: the page is mapped and nobody else's.
        let byte = unsafe { page.read_volatile() };
        let time = start.elapsed();
        assert_eq!((byte, events.take().lost.len()), (0, 1));
        times.push(time);
    }
    Ok(times)
}
