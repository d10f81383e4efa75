//! Memory of all kinds, whose bytes may turn to zeros.
#![allow(unsafe_code, reason = "maps memory that fails")]

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use coua_memory_errors::{Backing, RegisterError, Registration, poison, register};

const HUGE: usize = 2 << 20;

/// What is behind the memory.
#[cfg_attr(
    not(feature = "lab"),
    expect(dead_code, reason = "the virtual machine has them all")
)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Small,
    Transparent,
    Hugetlb,
    Memfd,
    MemfdTransparent,
    MemfdHugetlb,
    Tmpfs,
    /// On a disk, and written to since it was last there.
    DirtyFile,
    /// On a disk, as it is in memory.
    CleanFile,
    /// In memory that is a disk.
    Dax,
}

/// Where the tests have a disk.
pub(crate) const DISK: &str = "/mnt";

/// And memory that is one.
pub(crate) const DAX: &str = "/media";

impl Kind {
    pub(crate) fn page_size(self) -> usize {
        match self {
            Kind::Hugetlb | Kind::MemfdHugetlb => HUGE,
            _ => 4096,
        }
    }

    /// As many pages as show what there is to show.
    pub(crate) fn pages(self) -> usize {
        match self {
            Kind::Transparent | Kind::MemfdTransparent => 2 * HUGE / 4096,
            _ => 8,
        }
    }

    pub(crate) fn backing(self) -> Backing {
        match self {
            Kind::Small | Kind::Transparent | Kind::Hugetlb => Backing::Anonymous,
            Kind::Dax => Backing::Dax,
            _ => Backing::File,
        }
    }

    fn file(self, length: usize) -> io::Result<Option<File>> {
        let memfd = |flags| {
            // SAFETY: the name is a C string.
            let fd = unsafe { libc::memfd_create(c"coua".as_ptr(), flags) };
            if fd < 0 {
                return Err(io::Error::last_os_error());
            }
            // SAFETY: the descriptor is new and nobody else's.
            Ok(unsafe { File::from_raw_fd(fd) })
        };
        let named = |folder: &str| -> io::Result<File> {
            let path = format!("{folder}/coua-memory-errors-{}", std::process::id());
            let mut options = OpenOptions::new();
            options.read(true).write(true).create(true).truncate(true);
            let file = options.open(&path)?;
            std::fs::remove_file(path)?;
            Ok(file)
        };
        let file = match self {
            Kind::Small | Kind::Transparent | Kind::Hugetlb => return Ok(None),
            Kind::Memfd | Kind::MemfdTransparent => memfd(libc::MFD_CLOEXEC)?,
            Kind::MemfdHugetlb => memfd(libc::MFD_CLOEXEC | libc::MFD_HUGETLB)?,
            Kind::Tmpfs => named("/dev/shm")?,
            Kind::DirtyFile | Kind::CleanFile => named(DISK)?,
            Kind::Dax => named(DAX)?,
        };
        file.set_len(length as u64)?;
        Ok(Some(file))
    }
}

/// Mapped memory, registered or not.
pub(crate) struct Memory {
    kind: Kind,
    start: NonNull<u8>,
    length: usize,
    file: Option<File>,
    registration: Option<Registration>,
}

// SAFETY: it is the same memory for all threads, and read and written by atomics.
unsafe impl Sync for Memory {}
// SAFETY: as above.
unsafe impl Send for Memory {}

impl Memory {
    /// So many pages, each byte of which is [`Memory::filling`] of its page, registered.
    pub(crate) fn registered(kind: Kind, pages: usize) -> io::Result<Memory> {
        let mut memory = Memory::unregistered(kind, pages)?;
        memory.register().map_err(io::Error::other)?;
        Ok(memory)
    }

    /// The same, not registered.
    pub(crate) fn unregistered(kind: Kind, pages: usize) -> io::Result<Memory> {
        let length = pages * kind.page_size();
        let file = kind.file(length)?;
        let private = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        let (null, none) = (std::ptr::null_mut(), libc::PROT_NONE);
        // SAFETY: an anonymous mapping at an address of the kernel's choice disturbs nothing.
        let room = unsafe { libc::mmap(null, length + HUGE, none, private, -1, 0) };
        assert_ne!(room, libc::MAP_FAILED, "no addresses");
        let start = room.wrapping_byte_add(room.align_offset(HUGE));
        let (flags, fd) = match &file {
            Some(file) => (libc::MAP_SHARED, file.as_raw_fd()),
            None if kind == Kind::Hugetlb => {
                let hugetlb = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_HUGETLB;
                (hugetlb, -1)
            }
            None => (private, -1),
        };
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: the room is ours and nothing is in it.
        let mapped = unsafe { libc::mmap(start, length, access, flags | libc::MAP_FIXED, fd, 0) };
        if mapped == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let memory = Memory {
            kind,
            start: NonNull::new(mapped.cast()).expect("no mapping is at null"),
            length,
            file,
            registration: None,
        };
        match kind {
            Kind::Transparent | Kind::MemfdTransparent => memory.advise(libc::MADV_HUGEPAGE),
            Kind::Small | Kind::Memfd => memory.advise(libc::MADV_NOHUGEPAGE),
            // A pool may count pages that it cannot give.
            Kind::Hugetlb | Kind::MemfdHugetlb => memory.populate()?,
            _ => {}
        }
        (0..pages).for_each(|page| memory.fill(page));
        if kind == Kind::CleanFile {
            memory.file.as_ref().expect("it is a file").sync_all()?;
        }
        Ok(memory)
    }

    /// Bytes of it that are in transparent huge pages.
    pub(crate) fn transparent(&self) -> usize {
        let maps = std::fs::read_to_string("/proc/self/smaps").expect("there is /proc");
        let start = format!("{:x}-", self.address(0));
        let map = maps.lines().skip_while(|line| !line.starts_with(&start));
        let huge = map.skip(1).take_while(|line| !line.starts_with("VmFlags"));
        let huge = huge
            .filter(|line| line.starts_with("AnonHugePages") || line.starts_with("ShmemPmdMapped"));
        let kib = huge.filter_map(|line| line.split_whitespace().nth(1)?.parse::<usize>().ok());
        kib.sum::<usize>() * 1024
    }

    fn advise(&self, advice: i32) {
        // SAFETY: the range is ours, and no advice given here changes bytes.
        let _ = unsafe { libc::madvise(self.start.as_ptr().cast(), self.length, advice) };
    }

    fn populate(&self) -> io::Result<()> {
        let (start, populate) = (self.start.as_ptr().cast(), libc::MADV_POPULATE_WRITE);
        // SAFETY: the range is ours; populating it changes no byte.
        if unsafe { libc::madvise(start, self.length, populate) } == 0 {
            Ok(())
        } else {
            Err(io::Error::last_os_error())
        }
    }

    pub(crate) fn register(&mut self) -> Result<(), RegisterError> {
        let (kind, length) = (self.kind, self.length);
        // SAFETY: it is one mapping of that backing, and all reading is by atomics of numbers.
        let registration =
            unsafe { register(self.start, length, kind.page_size(), kind.backing()) };
        self.registration = Some(registration?);
        Ok(())
    }

    pub(crate) fn forget(&mut self) {
        self.registration = None;
    }

    /// Never zero.
    pub(crate) fn filling(page: usize) -> u8 {
        u8::try_from(page % 251 + 1).expect("it is below 252")
    }

    pub(crate) fn fill(&self, page: usize) {
        let page_size = self.kind.page_size();
        for offset in (page * page_size..(page + 1) * page_size).step_by(8) {
            self.write(offset, u64::from_ne_bytes([Memory::filling(page); 8]));
        }
    }

    pub(crate) fn kind(&self) -> Kind {
        self.kind
    }

    pub(crate) fn pages(&self) -> usize {
        self.length / self.kind.page_size()
    }

    pub(crate) fn file(&self) -> Option<&File> {
        self.file.as_ref()
    }

    pub(crate) fn page(&self, page: usize) -> NonNull<u8> {
        assert!(page < self.pages());
        // SAFETY: the page is inside the mapping.
        unsafe { self.start.add(page * self.kind.page_size()) }
    }

    pub(crate) fn address(&self, page: usize) -> usize {
        self.page(page).as_ptr().expose_provenance()
    }

    pub(crate) fn byte(&self, offset: usize) -> u8 {
        assert!(offset < self.length);
        // SAFETY: the byte is inside the mapping.
        let byte = unsafe { self.start.add(offset) };
        // SAFETY: as above, and it is read and written by atomics alone.
        unsafe { AtomicU8::from_ptr(byte.as_ptr()) }.load(Ordering::Relaxed)
    }

    /// Eight bytes of one aligned load.
    pub(crate) fn word(&self, offset: usize) -> u64 {
        self.at(offset).load(Ordering::Relaxed)
    }

    pub(crate) fn write(&self, offset: usize, word: u64) {
        self.at(offset).store(word, Ordering::Relaxed);
    }

    fn at(&self, offset: usize) -> &AtomicU64 {
        assert!(offset.is_multiple_of(8) && offset < self.length);
        // SAFETY: the word is inside the mapping.
        let word = unsafe { self.start.add(offset) };
        // SAFETY: as above, aligned, and read and written by atomics alone.
        unsafe { AtomicU64::from_ptr(word.as_ptr().cast()) }
    }

    /// Bytes as those who make system calls see them; nobody writes to them meanwhile.
    pub(crate) fn bytes(&self, from: usize, length: usize) -> &[u8] {
        assert!(from + length <= self.length);
        // SAFETY: the first byte is inside the mapping.
        let start = unsafe { self.start.add(from) };
        // SAFETY: so are the others, and the tests that ask do not write to them meanwhile.
        unsafe { std::slice::from_raw_parts(start.as_ptr(), length) }
    }

    /// All words of a page are this.
    pub(crate) fn page_is(&self, page: usize, byte: u8) -> bool {
        let page_size = self.kind.page_size();
        let mut offsets = (page * page_size..(page + 1) * page_size).step_by(8);
        offsets.all(|offset| self.word(offset) == u64::from_ne_bytes([byte; 8]))
    }

    pub(crate) fn lock(&self) -> io::Result<()> {
        // SAFETY: the range is ours; locking changes no byte.
        let result = unsafe { libc::mlock(self.start.as_ptr().cast(), self.length) };
        if result == 0 {
            Ok(())
        } else {
            Err(io::Error::last_os_error())
        }
    }

    /// Poisons a page without any right.
    pub(crate) fn poison_by_userfaultfd(&self, page: usize) -> io::Result<()> {
        // SAFETY: the page is ours, and the test expects what becomes of it.
        unsafe { poison::by_userfaultfd(self.page(page), self.kind.page_size()) }
    }

    /// Has the kernel take its page out of use.
    #[cfg(feature = "lab")]
    pub(crate) fn poison_by_madvise(&self, page: usize) -> io::Result<()> {
        // SAFETY: the page is ours, and the test expects what becomes of it.
        unsafe { poison::by_madvise(self.page(page), 4096) }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        self.registration = None;
        // SAFETY: nothing borrows from the mapping any more.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.length) };
    }
}

/// A page of the calling thread's alternate stack: the one that a handler begins on.
pub(crate) fn top_of_alternate_stack() -> NonNull<u8> {
    let mut stack = std::mem::MaybeUninit::<libc::stack_t>::zeroed();
    // SAFETY: no new stack is given, and the pointer is to room for the old one.
    unsafe { libc::sigaltstack(std::ptr::null(), stack.as_mut_ptr()) };
    // SAFETY: the call has filled it.
    let stack = unsafe { stack.assume_init() };
    let top = stack.ss_sp.wrapping_byte_add(stack.ss_size - 4096);
    NonNull::new(top.cast()).expect("there is a stack")
}

/// Poisons a page of no [`Memory`].
pub(crate) fn poison_page(page: NonNull<u8>) -> io::Result<()> {
    // SAFETY: the test ends by it.
    unsafe { poison::by_userfaultfd(page, 4096) }
}

/// Sets what the last system call is taken to have failed with.
pub(crate) fn set_errno(errno: i32) {
    // SAFETY: takes nothing.
    let place = unsafe { libc::__errno_location() };
    // SAFETY: the thread's own.
    unsafe { *place = errno };
}

/// Has a signal end this process in so many seconds.
pub(crate) fn end_after(seconds: u32) {
    // SAFETY: takes a number.
    unsafe { libc::alarm(seconds) };
}

/// Sends this process a signal.
pub(crate) fn raise(signal: i32) {
    // SAFETY: takes numbers.
    unsafe { libc::raise(signal) };
}

/// Has a signal of the calling thread wait.
#[cfg(feature = "lab")]
pub(crate) fn mask(signal: i32) {
    let mut set = std::mem::MaybeUninit::<libc::sigset_t>::zeroed();
    // SAFETY: the pointer is to room for a set.
    unsafe { libc::sigemptyset(set.as_mut_ptr()) };
    // SAFETY: the call before has filled it.
    unsafe { libc::sigaddset(set.as_mut_ptr(), signal) };
    // SAFETY: the set is filled, and the old one is not asked for.
    unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, set.as_ptr(), std::ptr::null_mut()) };
}
