//! Machine checks that the emulator raises: the whole way from the processor to the handler.

use coua_memory_errors::{Severity, events_seen};

use crate::alone::alone;
use crate::lab::{machine_check, prepare, wait_for_events};
use crate::memory::{Kind, Memory};
use crate::scenarios::{installed, memory, one_loss, poison};

fn survives(kind: Kind) {
    prepare(kind);
    let (mut events, _stack) = installed();
    let memory = memory(kind, kind.pages());
    for (round, page) in [(1, 3), (2, 5), (3, 3)] {
        memory.fill(page);
        poison(machine_check, &memory, page);
        wait_for_events(round);
        let lost = one_loss(&mut events);
        assert_eq!(lost.severity, Severity::ActionOptional);
        assert_eq!(lost.address, memory.address(page));
        assert_eq!(lost.length, kind.page_size());
        assert!(memory.page_is(page, 0));
        assert!(memory.page_is(4, Memory::filling(4)));
        assert_eq!(events_seen(), round);
    }
}

alone!(small_pages, || survives(Kind::Small));
alone!(transparent_huge_pages, || survives(Kind::Transparent));
alone!(hugetlb, || survives(Kind::Hugetlb));
alone!(memfd, || survives(Kind::Memfd));
alone!(tmpfs, || survives(Kind::Tmpfs));
alone!(dirty_file, || survives(Kind::DirtyFile));
