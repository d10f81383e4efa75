//! Errors that nobody can help, and signals that are no errors, end the process.

use coua_memory_errors::poison::report_touched;

use crate::alone::{Ending, alone, leave_out, reached};
use crate::memory::{Kind, Memory, poison_page, raise, top_of_alternate_stack};
use crate::scenarios::{installed, memory, poison};

const BUS: Ending = Ending::Signal(libc::SIGBUS);

alone!(a_page_behind_the_end_of_its_file, BUS, || {
    let _installed = installed();
    let memory = memory(Kind::Memfd, 8);
    let file = memory.file().expect("it is a file");
    file.set_len(4096).expect("it can be cut");
    assert_eq!(memory.byte(0), Memory::filling(0));
    reached();
    memory.byte(4096);
});

alone!(a_lost_page_that_is_not_registered, BUS, || {
    let _installed = installed();
    let memory = Memory::unregistered(Kind::Small, 8).expect("there is memory");
    poison(Memory::poison_by_userfaultfd, &memory, 3);
    reached();
    memory.byte(3 * 4096);
});

alone!(a_lost_page_that_is_registered_no_more, BUS, || {
    let _installed = installed();
    let mut memory = memory(Kind::Small, 8);
    memory.forget();
    poison(Memory::poison_by_userfaultfd, &memory, 3);
    reached();
    memory.byte(3 * 4096);
});

alone!(
    a_report_of_a_touched_page_that_is_not_registered,
    BUS,
    || {
        let _installed = installed();
        let memory = Memory::unregistered(Kind::Small, 8).expect("there is memory");
        reached();
        // No fault comes again, and there is no handler that could take it for repaired.
        report_touched(memory.address(3)).expect("a process may signal itself");
        report_touched(memory.address(3)).expect("a process may signal itself");
    }
);

alone!(the_signal_from_another_process, BUS, || {
    let _installed = installed();
    reached();
    raise(libc::SIGBUS);
});

alone!(a_thread_that_faults_on_a_sound_page_for_ever, BUS, || {
    let _installed = installed();
    let memory = memory(Kind::Small, 8);
    reached();
    for _ in 0..100_000 {
        report_touched(memory.address(3)).expect("a process may signal itself");
    }
});

alone!(
    a_lost_page_of_the_handlers_stack,
    Ending::Signal(libc::SIGSEGV),
    || {
        let _installed = installed();
        let memory = memory(Kind::Small, 8);
        poison(Memory::poison_by_userfaultfd, &memory, 3);
        if poison_page(top_of_alternate_stack()).is_err() {
            leave_out("this kernel does not poison a stack");
        }
        reached();
        memory.byte(3 * 4096);
    }
);
