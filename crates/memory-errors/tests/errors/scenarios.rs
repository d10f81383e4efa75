//! What is tried with several kinds of memory, and by several ways to lose a page.

use std::io;
use std::os::unix::fs::FileExt;

use coua_memory_errors::{
    AlternateStack, Events, Lost, Severity, events_seen, install, install_thread,
};

use crate::alone::leave_out;
use crate::memory::{Kind, Memory};

/// A process that survives errors.
pub(crate) fn installed() -> (Events, AlternateStack) {
    let events = install().expect("nothing is installed yet");
    (events, install_thread().expect("there is memory"))
}

/// Memory of the kind, or the end of the test where there is none.
pub(crate) fn memory(kind: Kind, pages: usize) -> Memory {
    let memory = Memory::registered(kind, pages);
    memory.unwrap_or_else(|error| leave_out(&format!("no memory of kind {kind:?}: {error}")))
}

/// As a test asks for a page to be poisoned.
pub(crate) type Poison = fn(&Memory, usize) -> io::Result<()>;

/// Poisons a page, or ends the test where that cannot be.
pub(crate) fn poison(poison: Poison, memory: &Memory, page: usize) {
    match poison(memory, page) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::Unsupported => {
            leave_out("this kernel cannot poison a page in this way")
        }
        Err(error) => panic!("poisoning: {error}"),
    }
}

/// As the other, with memory that the kernel has in transparent huge pages at first.
pub(crate) fn a_part_of_a_huge_page_is_replaced(kind: Kind, way: Poison) {
    let probe = memory(kind, kind.pages());
    if probe.transparent() == 0 {
        leave_out("there are no transparent huge pages");
    }
    drop(probe);
    a_page_is_replaced(kind, way);
}

/// A lost page reads as zeros, is told of once, and is as good as any afterwards; its neighbours keep
/// their bytes.
pub(crate) fn a_page_is_replaced(kind: Kind, way: Poison) {
    let (mut events, _stack) = installed();
    let memory = memory(kind, kind.pages());
    for (round, page) in [(1, 3), (2, 3), (3, 4), (4, 0), (5, 7)] {
        memory.fill(page);
        poison(way, &memory, page);
        assert!(memory.page_is(page, 0), "round {round}");
        assert_eq!(events_seen(), round);
        let lost = one_loss(&mut events);
        assert_eq!(lost.address, memory.address(page));
        assert_eq!(lost.length, kind.page_size());
        assert!(!lost.is_detached);
        assert!(memory.page_is(page, 0), "round {round}");
        for neighbour in (0..memory.pages()).filter(|&other| other != page) {
            assert!(memory.page_is(neighbour, Memory::filling(neighbour)));
        }
        memory.fill(page);
        assert!(memory.page_is(page, Memory::filling(page)));
        if let Some(file) = memory.file() {
            // The file has the fresh page too.
            let mut byte = [0];
            let at = page * kind.page_size() + 100;
            file.read_exact_at(&mut byte, at as u64)
                .expect("it is long enough");
            assert_eq!(byte, [Memory::filling(page)]);
        }
    }
    assert_eq!(events_seen(), 5);
}

/// What was lost is one range, and now it is taken.
pub(crate) fn one_loss(events: &mut Events) -> Lost {
    let taken = events.take();
    assert_eq!(taken.lost.len(), 1, "{taken:?}");
    assert!(!taken.overflowed);
    assert_eq!(taken.elsewhere, 0);
    assert!(events.take().lost.is_empty());
    taken.lost[0]
}

/// The kernel was asked by whoever touched the page.
pub(crate) fn assert_was_touched(lost: &Lost) {
    assert_eq!(lost.severity, Severity::ActionRequired);
}
