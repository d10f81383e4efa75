//! Whoever wants to know how servers and connections do.

use std::fmt;
use std::sync::Arc;

use crate::error::Cause;

/// What has become of a server or of a connection to it; see [`crate::Config::observer`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Event {
    /// A connection is open, and the server has answered on it.
    Connected,
    /// A connection that was open has failed, or the server has closed it.
    Lost(Cause),
    /// The server has failed several times in a row and is left alone for a while.
    Ejected,
    /// A server that was ejected has answered.
    Returned,
}

type Observe = dyn Fn(&str, &Event) + Send + Sync;

/// Who is told, if anybody.
#[derive(Clone, Default)]
pub(crate) struct Observer(Option<Arc<Observe>>);

impl Observer {
    pub(crate) fn new(observe: impl Fn(&str, &Event) + Send + Sync + 'static) -> Observer {
        Observer(Some(Arc::new(observe)))
    }

    #[inline]
    pub(crate) fn tell(&self, server: &str, event: impl FnOnce() -> Event) {
        if let Some(observe) = &self.0 {
            observe(server, &event());
        }
    }

    /// Tells that a connection has failed, if it was open.
    pub(crate) fn tell_failure(&self, server: &str, cause: &Cause) {
        let was_open = match cause {
            Cause::Io(..) | Cause::Closed | Cause::Timeout(_) | Cause::Protocol(_) => true,
            Cause::Connect(..)
            | Cause::Busy(_)
            | Cause::Ejected
            | Cause::Tls(_)
            | Cause::TurnedAway(_) => false,
        };
        if was_open {
            self.tell(server, || Event::Lost(cause.clone()));
        }
    }
}

impl fmt::Debug for Observer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() {
            "somebody"
        } else {
            "nobody"
        })
    }
}
