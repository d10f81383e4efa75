//! Connections that wait since a login has failed.

use super::{Worker, list_session};
use crate::clock::Now;
use crate::closing::CloseCause;
use crate::connections::Activity;
use crate::session::SessionId;

/// How long a connection is held after a failed login.
const HOLD_MS: u64 = 1000;

impl Worker {
    /// Holds a session whose login has failed, or closes it if too many are held.
    pub(super) fn hold(&mut self, id: SessionId, now: Now) {
        // Sessions that have closed meanwhile are among them.
        if self.held.len() >= self.shared.registry.open_max() {
            self.close_for(id, CloseCause::Login);
            return;
        }
        self.held.push_back((now.since_start_ms + HOLD_MS, id));
    }

    /// Goes on with the sessions that have been held for long enough. The worker wakes at least once a
    /// second.
    pub(super) fn release_held(&mut self, now: Now) {
        while let Some(&(until_ms, id)) = self.held.front()
            && until_ms <= now.since_start_ms
        {
            self.held.pop_front();
            if let Some(session) = self.sessions.get(id) {
                session.is_held = false;
                session.connection.set_activity(Activity::Reading);
                list_session(session, id, &mut self.ready);
            }
        }
    }
}
