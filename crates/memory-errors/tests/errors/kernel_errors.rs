//! Pages that the kernel takes out of use for ever, as it does after a machine check.

use std::fs;
use std::os::unix::fs::FileExt;

use coua_memory_errors::{Severity, events_seen};

use crate::alone::{Ending, alone, leave_out, reached};
use crate::lab::{corrupt, prepare, wait_for_events};
use crate::memory::{Kind, Memory, mask};
use crate::pinned::pin;
use crate::scenarios::{
    a_page_is_replaced, a_part_of_a_huge_page_is_replaced, installed, memory, one_loss, poison,
};

/// Touches the page where the kernel has not told of it already.
fn by_madvise(kind: Kind) {
    prepare(kind);
    a_page_is_replaced(kind, Memory::poison_by_madvise);
}

alone!(touched_small_pages, || by_madvise(Kind::Small));
alone!(touched_hugetlb, || by_madvise(Kind::Hugetlb));
alone!(touched_memfd, || by_madvise(Kind::Memfd));
alone!(touched_memfd_hugetlb, || by_madvise(Kind::MemfdHugetlb));
alone!(touched_tmpfs, || by_madvise(Kind::Tmpfs));
alone!(touched_dirty_file, || by_madvise(Kind::DirtyFile));
alone!(touched_dax, || by_madvise(Kind::Dax));
alone!(touched_transparent_huge_pages, || {
    a_part_of_a_huge_page_is_replaced(Kind::Transparent, Memory::poison_by_madvise)
});
alone!(touched_transparent_huge_pages_of_a_memfd, || {
    prepare(Kind::MemfdTransparent);
    a_part_of_a_huge_page_is_replaced(Kind::MemfdTransparent, Memory::poison_by_madvise);
});

/// The report comes without a touch, and replaces the page.
fn untouched(kind: Kind) {
    let severity = match kind {
        // The thread that runs is taken for the one that touched it: here that is so by chance.
        Kind::Dax => Severity::ActionRequired,
        _ => Severity::ActionOptional,
    };
    prepare(kind);
    let (mut events, _stack) = installed();
    let memory = memory(kind, kind.pages());
    for (round, page) in [(1, 3), (2, 5), (3, 3)] {
        memory.fill(page);
        poison(corrupt, &memory, page);
        wait_for_events(round);
        let lost = one_loss(&mut events);
        assert_eq!(lost.severity, severity);
        assert_eq!(lost.address, memory.address(page));
        assert_eq!(lost.length, kind.page_size());
        assert!(memory.page_is(page, 0));
        assert!(memory.page_is(4, Memory::filling(4)));
        assert_eq!(events_seen(), round);
    }
}

alone!(untouched_small_pages, || untouched(Kind::Small));
alone!(untouched_transparent_huge_pages, || untouched(
    Kind::Transparent
));
alone!(untouched_hugetlb, || untouched(Kind::Hugetlb));
alone!(untouched_memfd, || untouched(Kind::Memfd));
alone!(untouched_memfd_hugetlb, || untouched(Kind::MemfdHugetlb));
alone!(untouched_dax, || untouched(Kind::Dax));
alone!(untouched_dirty_file, || untouched(Kind::DirtyFile));

alone!(a_page_that_is_also_on_the_disk_is_read_again, || {
    prepare(Kind::CleanFile);
    let (mut events, _stack) = installed();
    let memory = memory(Kind::CleanFile, 8);
    for page in [3, 4] {
        poison(Memory::poison_by_madvise, &memory, page);
        assert!(memory.page_is(page, Memory::filling(page)));
    }
    poison(corrupt, &memory, 5);
    assert!(memory.page_is(5, Memory::filling(5)));
    assert_eq!(events_seen(), 0);
    assert!(events.take().lost.is_empty());
});

alone!(reports_come_to_the_thread_that_installed, || {
    let (mut events, _stack) = installed();
    let memory = memory(Kind::Small, 8);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // Were they this thread's, they would wait.
            mask(libc::SIGBUS);
            poison(corrupt, &memory, 3);
            wait_for_events(1);
        });
    });
    assert_eq!(one_loss(&mut events).address, memory.address(3));
});

alone!(several_untouched_errors_at_once, || {
    let (mut events, _stack) = installed();
    let memory = memory(Kind::Small, 64);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            mask(libc::SIGBUS);
            (0..64).for_each(|page| poison(corrupt, &memory, page));
        });
    });
    // The kernel keeps one report of those that come before a thread has taken the first. A touch
    // tells of the others.
    let all_zeros = (0..64).all(|page| memory.page_is(page, 0));
    assert!(all_zeros);
    assert_eq!(events_seen(), 64);
    assert_eq!(events.take().lost.len(), 64);
});

/// All huge pages that there are, and one of them is lost: none can take its place.
fn no_huge_page_is_left(kind: Kind) {
    let (mut events, _stack) = installed();
    let free = fs::read_to_string("/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages");
    let free = free.expect("there is hugetlb").trim().parse::<usize>();
    let free = free.expect("it is a number");
    // Lost pages may be among those that the pool counts as free.
    let all = (4..=free)
        .rev()
        .find_map(|pages| Memory::registered(kind, pages).ok());
    let memory = all.unwrap_or_else(|| leave_out("there are too few huge pages"));
    poison(Memory::poison_by_madvise, &memory, 2);
    assert!(memory.page_is(2, 0));
    assert_eq!(events_seen(), 1);
    let lost = one_loss(&mut events);
    assert_eq!(lost.address, memory.address(2));
    assert_eq!(lost.length, kind.page_size());
    assert_eq!(lost.is_detached, memory.file().is_some());
    memory.fill(2);
    assert!(memory.page_is(2, Memory::filling(2)));
    assert!(memory.page_is(1, Memory::filling(1)));
    assert!(memory.page_is(3, Memory::filling(3)));
    if let Some(file) = memory.file() {
        let mut byte = [1];
        file.read_exact_at(&mut byte, 2 * kind.page_size() as u64)
            .expect("the file has a hole");
        assert_eq!(byte, [0]);
    }
}

alone!(hugetlb_without_a_spare_page, || no_huge_page_is_left(
    Kind::Hugetlb
));
alone!(hugetlbfs_without_a_spare_page, || no_huge_page_is_left(
    Kind::MemfdHugetlb
));

/// The process has a fresh page, and who pinned the old one goes on with that.
fn a_pinned_page_is_replaced(kind: Kind) {
    let (mut events, _stack) = installed();
    let memory = memory(kind, kind.pages());
    let _pinned = pin(&memory);
    // The kernel takes the page from the process, and says that it could not take it out of use.
    let _ = memory.poison_by_madvise(3);
    assert!(memory.page_is(3, 0));
    assert!(memory.page_is(4, Memory::filling(4)));
    assert_eq!(one_loss(&mut events).length, kind.page_size());
    memory.fill(3);
    assert!(memory.page_is(3, Memory::filling(3)));
}

alone!(a_pinned_small_page, || a_pinned_page_is_replaced(
    Kind::Small
));
alone!(a_pinned_hugetlb_page, || a_pinned_page_is_replaced(
    Kind::Hugetlb
));
alone!(a_pinned_page_of_a_memfd, || a_pinned_page_is_replaced(
    Kind::Memfd
));

// It cannot be split. Linux 6.1 does nothing, later ones report all of it.
alone!(a_pinned_transparent_huge_page, || {
    let (mut events, _stack) = installed();
    let memory = memory(Kind::Transparent, Kind::Transparent.pages());
    if memory.transparent() == 0 {
        leave_out("there are no transparent huge pages");
    }
    let _pinned = pin(&memory);
    assert!(memory.poison_by_madvise(3).is_err());
    if events_seen() == 0 {
        assert!(memory.page_is(3, Memory::filling(3)));
        return;
    }
    let lost = one_loss(&mut events);
    assert_eq!(lost.address, memory.address(0));
    assert_eq!(lost.length, 2 << 20);
    for page in 0..512 {
        assert!(memory.page_is(page, 0), "page {page}");
    }
    assert!(memory.page_is(512, Memory::filling(512)));
});

alone!(
    a_lost_page_that_is_not_registered,
    Ending::Signal(libc::SIGBUS),
    || {
        let _installed = installed();
        let memory = Memory::unregistered(Kind::Small, 8).expect("there is memory");
        poison(corrupt, &memory, 3);
        reached();
        memory.byte(3 * 4096);
    }
);
