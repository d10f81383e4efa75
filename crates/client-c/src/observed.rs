//! C's function that is told what becomes of servers.
#![allow(unsafe_code, reason = "C's function is called with C's pointer")]

use std::ffi::{CString, c_char, c_void};
use std::sync::{Arc, PoisonError, RwLock};

use coua_client::{Config, Event};

/// What C is told.
pub mod event {
    /// A connection is open.
    pub const CONNECTED: i32 = 0;
    /// A connection was lost.
    pub const LOST: i32 = 1;
    /// The server is left alone for a while.
    pub const EJECTED: i32 = 2;
    /// An ejected server has answered.
    pub const RETURNED: i32 = 3;
}

/// `coua_observer`.
pub type ObserverFunction = unsafe extern "C" fn(*mut c_void, *const c_char, i32);

/// C's function and what it wants to be called with.
struct Callback {
    function: ObserverFunction,
    context: *mut c_void,
}

// SAFETY: the header says that many threads call the function with the pointer, which is not used here otherwise.
unsafe impl Send for Callback {}
// SAFETY: as above.
unsafe impl Sync for Callback {}

/// Whoever is told, until that is over.
#[derive(Clone, Default)]
pub(crate) struct Observed(Arc<RwLock<Option<Callback>>>);

impl Observed {
    /// # Safety
    /// The function may be called with `context` by any thread until [`Observed::end`] returns.
    pub(crate) unsafe fn new(
        function: Option<ObserverFunction>,
        context: *mut c_void,
    ) -> Option<Observed> {
        let callback = Callback {
            function: function?,
            context,
        };
        Some(Observed(Arc::new(RwLock::new(Some(callback)))))
    }

    /// The settings of a client that tells it.
    pub(crate) fn watching(&self, config: Config) -> Config {
        let observed = self.clone();
        config.observer(move |server, event| observed.tell(server, event))
    }

    fn tell(&self, server: &str, event: &Event) {
        let number = match event {
            Event::Connected => event::CONNECTED,
            Event::Lost(_) => event::LOST,
            Event::Ejected => event::EJECTED,
            Event::Returned => event::RETURNED,
            // This version of the header has no number for it.
            _ => return,
        };
        let Ok(server) = CString::new(server) else {
            return;
        };
        let callback = self.0.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(callback) = &*callback {
            // SAFETY: `end` has not returned: it waits for the lock that is held here.
            unsafe { (callback.function)(callback.context, server.as_ptr(), number) };
        }
    }

    /// Nobody is told any more from here on.
    pub(crate) fn end(&self) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

impl std::fmt::Debug for Observed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Observed")
    }
}
