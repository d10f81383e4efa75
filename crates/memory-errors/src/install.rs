//! Puts everything in place.

use std::io;

use crate::alternate_stack::AlternateStack;
use crate::events::Events;
use crate::handler::{self, InstallError};
use crate::sys;

/// Installs the handler of SIGBUS, and asks the kernel to tell of errors before anybody touches them.
/// Those reports come to one thread: the first of the process that has asked, and threads ask that
/// are started after this call by the one that makes it. So it belongs to `main`, before other
/// threads start, and `main` must not mask SIGBUS.
///
/// # Errors
/// When it was done before, or the system refuses.
pub fn install() -> Result<Events, InstallError> {
    handler::install()?;
    sys::ask_for_early_reports()?;
    Ok(Events { _one: () })
}

/// Gives the calling thread a stack for its signal handlers, until it is dropped. Each thread that
/// reads registered memory has one, `main` too.
///
/// # Errors
/// When there is no memory for it.
pub fn install_thread() -> io::Result<AlternateStack> {
    AlternateStack::install()
}
