//! Who logs in on new connections.

use std::fmt;

/// Who logs in, and with what. Its words are nobody else's: `Debug` shows the user alone.
#[derive(Clone)]
pub(crate) struct Login {
    user: String,
    /// `USER PASSWORD`, as servers with `-Y` take it.
    pub(crate) line: Vec<u8>,
}

impl Login {
    pub(crate) fn new(user: &str, password: &str) -> Login {
        Login {
            user: user.to_owned(),
            line: format!("{user} {password}").into_bytes(),
        }
    }
}

impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Login")
            .field("user", &self.user)
            .finish_non_exhaustive()
    }
}
