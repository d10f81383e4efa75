//! What clients may do.

use coua_protocol::{BinaryCommand, Op};

/// What a client may do beyond reading and writing items.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Permissions {
    /// `shutdown` (`-A`).
    pub shutdown: bool,
    /// `flush_all` (unless `-F`).
    pub flush: bool,
    /// Commands that list keys (unless `-X`).
    pub dump: bool,
    /// `watch` (unless `-W`).
    pub watch: bool,
    /// Commands that change the server, or what it counts.
    pub admin: bool,
}

/// What a user may do (`-Y`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    /// Commands that answer with what an item holds.
    pub read: bool,
    /// Commands that change items.
    pub write: bool,
    /// `flush_all`.
    pub flush: bool,
    /// [`Permissions::admin`], and what the flags permit of `shutdown`, `watch` and commands that list
    /// keys.
    pub admin: bool,
    /// How the keys begin that the user may read and write; empty for all keys.
    pub prefixes: Vec<String>,
}

/// What an operation does to the item of its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    read: bool,
    write: bool,
}

const READ: Access = Access {
    read: true,
    write: false,
};

const WRITE: Access = Access {
    read: false,
    write: true,
};

const BOTH: Access = Access {
    read: true,
    write: true,
};

impl Permissions {
    /// What is left of it for a user.
    #[must_use]
    pub fn of(self, user: &User) -> Permissions {
        Permissions {
            shutdown: self.shutdown && user.admin,
            flush: self.flush && user.flush,
            dump: self.dump && user.admin,
            watch: self.watch && user.admin,
            admin: self.admin && user.admin,
        }
    }
}

impl User {
    /// Who may do everything.
    pub const ALMIGHTY: User = User {
        read: true,
        write: true,
        flush: true,
        admin: true,
        prefixes: Vec::new(),
    };

    /// Whether the user may read and write all keys, so that no operation on items has to be looked at.
    pub fn has_all_items(&self) -> bool {
        self.read && self.write && self.prefixes.is_empty()
    }

    /// Whether the user may access the item of a key like that.
    pub fn may(&self, access: Access, key: &[u8]) -> bool {
        let has_right = (self.read || !access.read) && (self.write || !access.write);
        let is_within = |prefix: &String| key.starts_with(prefix.as_bytes());
        has_right && (self.prefixes.is_empty() || self.prefixes.iter().any(is_within))
    }
}

impl Access {
    /// `get` and `gets`.
    pub const GET: Access = READ;
    /// `set` in its plainest form.
    pub const SET: Access = WRITE;

    /// What an operation does. `None` where it is about no item, or goes on with what has been permitted.
    ///
    /// An operation that changes an item and answers with what it holds does both.
    pub fn of(op: &Op) -> Option<Access> {
        Some(match op {
            Op::Get { .. } | Op::MetaDebug { .. } => READ,
            Op::GetAndTouch { .. } | Op::Arithmetic(_) | Op::MetaArithmetic(_) => BOTH,
            Op::MetaGet(meta) => match meta.touch().is_some() || meta.vivify().is_some() {
                true => BOTH,
                false => READ,
            },
            Op::Store(_)
            | Op::StoreStream(_)
            | Op::StoreRefused(_)
            | Op::Delete { .. }
            | Op::Touch { .. }
            | Op::MetaDelete(_) => WRITE,
            Op::Binary(binary) => match binary.command {
                BinaryCommand::Get { touch: None, .. } => READ,
                BinaryCommand::Get {
                    with_value: false, ..
                }
                | BinaryCommand::Delete { .. } => WRITE,
                BinaryCommand::Get { .. } | BinaryCommand::Arithmetic { .. } => BOTH,
                BinaryCommand::FlushAll { .. }
                | BinaryCommand::Noop
                | BinaryCommand::Version
                | BinaryCommand::Quit
                | BinaryCommand::SaslMechanisms
                | BinaryCommand::Stats { .. }
                | BinaryCommand::Error { .. } => return None,
            },
            Op::StoreBody { .. }
            | Op::StoreEnd { .. }
            | Op::GetEnd
            | Op::MetaNoop
            | Op::FlushAll { .. }
            | Op::Version
            | Op::Verbosity { .. }
            | Op::Quit
            | Op::Stats { .. }
            | Op::Shutdown { .. }
            | Op::Admin { .. }
            | Op::Login(_)
            | Op::Error { .. } => return None,
        })
    }
}
