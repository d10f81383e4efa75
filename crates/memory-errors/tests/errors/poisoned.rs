//! Page tables' entries that are poisoned, which any kernel of 6.6 or later can do for any user.

use std::os::unix::fs::FileExt;

use coua_memory_errors::poison::{report_touched, report_untouched};
use coua_memory_errors::{
    Backing, EVENTS_MAX, InstallError, RegisterError, Severity, check, events_seen, install,
};

use crate::alone::alone;
use crate::memory::{Kind, Memory, set_errno};
use crate::scenarios::{
    a_page_is_replaced, a_part_of_a_huge_page_is_replaced, assert_was_touched, installed, memory,
    one_loss, poison,
};

alone!(small_pages, || a_page_is_replaced(
    Kind::Small,
    Memory::poison_by_userfaultfd
));
alone!(
    transparent_huge_pages,
    || a_part_of_a_huge_page_is_replaced(Kind::Transparent, Memory::poison_by_userfaultfd)
);
alone!(hugetlb, || a_page_is_replaced(
    Kind::Hugetlb,
    Memory::poison_by_userfaultfd
));
alone!(memfd, || a_page_is_replaced(
    Kind::Memfd,
    Memory::poison_by_userfaultfd
));
alone!(memfd_hugetlb, || a_page_is_replaced(
    Kind::MemfdHugetlb,
    Memory::poison_by_userfaultfd
));
alone!(tmpfs, || a_page_is_replaced(
    Kind::Tmpfs,
    Memory::poison_by_userfaultfd
));

alone!(locked_memory, || {
    let (mut events, _stack) = installed();
    let memory = memory(Kind::Small, 8);
    memory.lock().expect("a few pages may be locked");
    poison(Memory::poison_by_userfaultfd, &memory, 3);
    assert!(memory.page_is(3, 0));
    assert_was_touched(&one_loss(&mut events));
});

alone!(a_store_finds_the_fresh_page_too, || {
    let (mut events, _stack) = installed();
    let memory = memory(Kind::Small, 8);
    poison(Memory::poison_by_userfaultfd, &memory, 3);
    memory.write(3 * 4096 + 8, 77);
    assert_eq!(memory.word(3 * 4096 + 8), 77);
    assert_eq!(memory.word(3 * 4096), 0);
    assert_was_touched(&one_loss(&mut events));
});

alone!(an_untouched_page_is_replaced_when_it_is_reported, || {
    let (mut events, _stack) = installed();
    let memory = memory(Kind::Small, 8);
    poison(Memory::poison_by_userfaultfd, &memory, 3);
    report_untouched(memory.address(3)).expect("a process may signal itself");
    assert_eq!(events_seen(), 1);
    let lost = one_loss(&mut events);
    assert_eq!(lost.severity, Severity::ActionOptional);
    assert_eq!(lost.address, memory.address(3));
    assert!(memory.page_is(3, 0));
    assert_eq!(events_seen(), 1);
});

alone!(a_report_of_a_sound_page_loses_nothing, || {
    let (mut events, _stack) = installed();
    let memory = memory(Kind::Small, 8);
    report_untouched(memory.address(3)).expect("a process may signal itself");
    report_touched(memory.address(3)).expect("a process may signal itself");
    assert_eq!(events_seen(), 0);
    assert!(events.take().lost.is_empty());
    assert!(memory.page_is(3, Memory::filling(3)));
});

alone!(an_untouched_error_elsewhere_is_counted, || {
    let (mut events, _stack) = installed();
    let memory = memory(Kind::Small, 8);
    let elsewhere = Memory::unregistered(Kind::Small, 1).expect("there is memory");
    report_untouched(elsewhere.address(0)).expect("a process may signal itself");
    let taken = events.take();
    assert_eq!(taken.elsewhere, 1);
    assert!(taken.lost.is_empty());
    assert_eq!(events_seen(), 0);
    assert!(memory.page_is(3, Memory::filling(3)));
    assert!(elsewhere.page_is(0, Memory::filling(0)));
});

alone!(more_losses_than_the_list_holds_are_told_as_such, || {
    let (mut events, _stack) = installed();
    let memory = memory(Kind::Small, EVENTS_MAX + 1);
    for page in 0..memory.pages() {
        poison(Memory::poison_by_userfaultfd, &memory, page);
        assert_eq!(memory.byte(page * 4096 + 5), 0);
    }
    assert_eq!(events.count(), memory.pages() as u64);
    let taken = events.take();
    assert_eq!(taken.lost.len(), EVENTS_MAX);
    assert!(taken.overflowed);
    // The list has room again.
    poison(Memory::poison_by_userfaultfd, &memory, 2);
    assert_eq!(memory.byte(2 * 4096), 0);
    assert_eq!(one_loss(&mut events).address, memory.address(2));
});

alone!(a_system_call_fails_and_a_check_repairs, || {
    let (mut events, _stack) = installed();
    let memory = memory(Kind::Small, 8);
    let file = Memory::unregistered(Kind::Memfd, 8).expect("there is memory");
    let file = file.file().expect("it is a file");
    poison(Memory::poison_by_userfaultfd, &memory, 3);
    let bytes = memory.bytes(3 * 4096 - 100, 300);
    // The bytes before the page may be written, or none.
    let written = file.write_at(bytes, 0).unwrap_or_default();
    assert!(written <= 100, "{written}");
    let error = file
        .write_at(&bytes[100..], 0)
        .expect_err("it reads a lost page");
    assert_eq!(error.raw_os_error(), Some(libc::EFAULT));
    assert_eq!(events_seen(), 0);
    assert!(check(bytes));
    assert_eq!(one_loss(&mut events).address, memory.address(3));
    assert!(!check(bytes));
    assert_eq!(file.write_at(bytes, 0).expect("nothing is lost"), 300);
    assert_eq!(bytes[..100], [Memory::filling(2); 100]);
    assert_eq!(bytes[100..], [0; 200]);
});

alone!(a_check_looks_at_the_first_and_the_last_page, || {
    let (mut events, _stack) = installed();
    let memory = memory(Kind::Small, 8);
    assert!(!check(&[]));
    for (from, length) in [(4095, 2), (4095, 4098), (4096, 8192), (8191, 1)] {
        for page in from / 4096..=(from + length - 1) / 4096 {
            poison(Memory::poison_by_userfaultfd, &memory, page);
            assert!(check(memory.bytes(from, length)), "page {page}");
            assert_eq!(one_loss(&mut events).address, memory.address(page));
        }
    }
});

alone!(the_interrupted_thread_keeps_its_errno, || {
    let (_events, _stack) = installed();
    let memory = memory(Kind::Small, 8);
    poison(Memory::poison_by_userfaultfd, &memory, 3);
    set_errno(4711);
    let byte = memory.byte(3 * 4096);
    let errno = std::io::Error::last_os_error().raw_os_error();
    assert_eq!((byte, errno), (0, Some(4711)));
});

alone!(there_is_one_handler, || {
    let (_events, _stack) = installed();
    assert!(matches!(install(), Err(InstallError::AlreadyInstalled)));
});

alone!(a_region_is_registered_once, || {
    let mut memory = memory(Kind::Small, 8);
    assert_eq!(memory.register(), Err(RegisterError::Overlap));
    memory.forget();
    assert_eq!(memory.register(), Ok(()));
    assert_eq!(memory.kind().backing(), Backing::Anonymous);
});
