//! Who may log in: the file of `-Y`.
//!
//! ```text
//! app:a password                memcached's lines: a name, a colon, the password up to the line's end
//! monitor:another:one           (so a password may hold colons)
//!
//! [monitor]                     from the first such line on TOML: what users may do
//! rights = ["read"]             of read, write, flush and admin; without it all
//! prefixes = ["app1:", "b/"]    how keys begin that the user may use; without it all keys
//! certificates = ["CN:monitor"] whose certificate of TLS logs in without a password
//! ```
//!
//! A name may have several lines, so that passwords can be changed one client after another. memcached reads no more than
//! eight lines, and calls a file with empty lines or sections malformed.
//!
//! # Invariants
//! - How long a check takes does not depend on which names there are, nor on how much of a password is
//!   right.
//! - No password is logged or part of an error.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use coua_transport::tls::names::KINDS;
use serde::Deserialize;
use subtle::{Choice, ConditionallySelectable, ConstantTimeEq};

use crate::permissions::User;

/// Lines with a password at most: a check looks at all of them.
const ENTRIES_MAX: usize = 64;

/// Bytes of a line at most, as in memcached, which cuts off the rest.
const LINE_LEN_MAX: usize = 255;

/// Bytes of the file at most.
const FILE_LEN_MAX: u64 = 1 << 20;

/// Everybody who may log in.
pub struct Users {
    entries: Vec<Entry>,
    /// By a name in the certificate.
    certificates: BTreeMap<String, Arc<User>>,
}

/// Whose certificate it is.
#[derive(Debug, PartialEq, Eq)]
pub enum Owner {
    /// Nobody's: who has it logs in with a password.
    Nobody,
    /// A user's.
    User(Arc<User>),
    /// Several users', by several names, so it logs nobody in.
    Several,
}

/// A line of the file.
struct Entry {
    name: Padded,
    password: Padded,
    user: Arc<User>,
}

/// Up to [`LINE_LEN_MAX`] bytes, compared in the time that the longest take.
struct Padded {
    bytes: [u8; LINE_LEN_MAX + 1],
    len: u16,
}

/// What the file says about a user.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Section {
    rights: Option<Vec<Right>>,
    #[serde(default)]
    prefixes: Vec<String>,
    #[serde(default)]
    certificates: Vec<String>,
}

#[derive(Clone, Copy, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
enum Right {
    Read,
    Write,
    Flush,
    Admin,
}

/// Why a file of users is refused.
#[derive(Debug, thiserror::Error)]
pub enum UsersError {
    /// The system.
    #[error("cannot be read: {0}")]
    Read(#[from] io::Error),
    /// The file is not one of users and passwords.
    #[error("has {FILE_LEN_MAX} bytes or more")]
    TooLong,
    /// It names nobody.
    #[error("has no line user:password, and no user with certificates")]
    Empty,
    /// It has too many lines with a password.
    #[error("line {0} is one too many: {ENTRIES_MAX} passwords may be there")]
    TooMany(usize),
    /// A line has no colon.
    #[error("line {0} is not user:password")]
    Malformed(usize),
    /// A line is too long.
    #[error("line {0} has more than {LINE_LEN_MAX} bytes")]
    LineTooLong(usize),
    /// The sections are no TOML, or say what cannot be said.
    #[error("line {line}: {message}")]
    Section {
        /// Where.
        line: usize,
        /// What.
        message: String,
    },
    /// A section is about nobody.
    #[error("[{0}] is about nobody: it has no line with a password, and no certificates")]
    Nobody(String),
    /// A prefix that every key has.
    #[error("[{0}] has an empty prefix: leave prefixes out for all keys")]
    EmptyPrefix(String),
    /// A certificate's name has no kind.
    #[error("[{user}] has the certificate {name:?}: names begin with {kinds}", kinds = KINDS.join(" "))]
    Kind {
        /// Whose section has it.
        user: String,
        /// What it says.
        name: String,
    },
    /// A certificate logs in as one user.
    #[error("[{user}] has the certificate {name:?}, which another section has too")]
    SameCertificate {
        /// Whose section is the second.
        user: String,
        /// Of the certificate.
        name: String,
    },
}

impl Users {
    /// Reads the file.
    ///
    /// # Errors
    /// [`UsersError`]: it cannot be read, or is not as it should be.
    pub fn read(path: &Path) -> Result<Users, UsersError> {
        if std::fs::metadata(path)?.len() >= FILE_LEN_MAX {
            return Err(UsersError::TooLong);
        }
        Users::parse(&std::fs::read(path)?)
    }

    /// Reads what such a file says.
    ///
    /// # Errors
    /// [`UsersError`]: it is not as it should be.
    pub fn parse(text: &[u8]) -> Result<Users, UsersError> {
        let mut passwords: Vec<(&[u8], &[u8])> = Vec::new();
        let mut at = 0;
        let mut sections: &[u8] = b"";
        for (number, line) in (1..).zip(text.split_inclusive(|&byte| byte == b'\n')) {
            let whole = line.trim_ascii_end();
            if whole.starts_with(b"[") && whole.ends_with(b"]") && !whole.contains(&b':') {
                sections = &text[at..];
                break;
            }
            at += line.len();
            if whole.is_empty() {
                continue;
            }
            let line = line.strip_suffix(b"\n").unwrap_or(line);
            let line = line.split(|&byte| byte == b'\r' || byte == 0).next();
            let line = line.unwrap_or_default();
            let Some(colon) = line.iter().position(|&byte| byte == b':') else {
                return Err(UsersError::Malformed(number));
            };
            if line.len() > LINE_LEN_MAX {
                return Err(UsersError::LineTooLong(number));
            }
            if passwords.len() == ENTRIES_MAX {
                return Err(UsersError::TooMany(number));
            }
            passwords.push((&line[..colon], &line[colon + 1..]));
        }
        let before = text[..at].iter().filter(|&&byte| byte == b'\n').count();
        let Sections {
            rights,
            certificates,
        } = parse_sections(sections, before)?;
        if passwords.is_empty() && certificates.is_empty() {
            return Err(UsersError::Empty);
        }
        let has_certificate = |user| certificates.values().any(|of| Arc::ptr_eq(of, user));
        if let Some((nobody, _)) = rights.iter().find(|(name, user)| {
            !passwords.iter().any(|(of, _)| *of == name.as_bytes()) && !has_certificate(user)
        }) {
            return Err(UsersError::Nobody(nobody.clone()));
        }
        let almighty = Arc::new(User::ALMIGHTY);
        let entries = passwords.iter().filter_map(|&(name, password)| {
            let user = std::str::from_utf8(name)
                .ok()
                .and_then(|name| rights.get(name));
            Some(Entry {
                name: Padded::new(name)?,
                password: Padded::new(password)?,
                user: Arc::clone(user.unwrap_or(&almighty)),
            })
        });
        Ok(Users {
            entries: entries.collect(),
            certificates,
        })
    }

    /// How many passwords there are.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether nobody may log in, which no file can say.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty() && self.certificates.is_empty()
    }

    /// How many names of certificates there are.
    pub fn certificates(&self) -> usize {
        self.certificates.len()
    }

    /// Whose certificate it is that has these names.
    pub fn owner(&self, names: &[String]) -> Owner {
        let mut users = names.iter().filter_map(|name| self.certificates.get(name));
        match users.next() {
            None => Owner::Nobody,
            Some(user) if users.all(|other| Arc::ptr_eq(user, other)) => {
                Owner::User(Arc::clone(user))
            }
            Some(_) => Owner::Several,
        }
    }

    /// The user of that name, if the password is right.
    pub fn check(&self, name: &[u8], password: &[u8]) -> Option<Arc<User>> {
        // Only the caller's own words decide how long this takes.
        let (name, password) = (Padded::new(name)?, Padded::new(password)?);
        let mut found = u32::MAX;
        for (number, entry) in (0..).zip(&self.entries) {
            let is_same = entry.name.ct_eq(&name) & entry.password.ct_eq(&password);
            found = u32::conditional_select(&found, &number, is_same);
        }
        let entry = self.entries.get(found as usize)?;
        Some(Arc::clone(&entry.user))
    }
}

/// How many there are, and nothing of them.
impl fmt::Debug for Users {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} passwords", self.len())?;
        match self.certificates() {
            0 => Ok(()),
            count => write!(f, " and {count} names of certificates"),
        }
    }
}

impl Padded {
    fn new(bytes: &[u8]) -> Option<Padded> {
        let mut padded = Padded {
            bytes: [0; LINE_LEN_MAX + 1],
            len: u16::try_from(bytes.len()).ok()?,
        };
        padded.bytes.get_mut(..bytes.len())?.copy_from_slice(bytes);
        Some(padded)
    }
}

impl ConstantTimeEq for Padded {
    fn ct_eq(&self, other: &Padded) -> Choice {
        self.bytes.ct_eq(&other.bytes) & self.len.ct_eq(&other.len)
    }
}

/// What all sections say.
struct Sections {
    /// By the user's name.
    rights: BTreeMap<String, Arc<User>>,
    /// By a name in the certificate.
    certificates: BTreeMap<String, Arc<User>>,
}

/// Reads what users may do. The sections begin behind line `before`.
fn parse_sections(text: &[u8], before: usize) -> Result<Sections, UsersError> {
    let error = |line, message: &str| UsersError::Section {
        line,
        message: message.to_owned(),
    };
    let text = std::str::from_utf8(text).map_err(|at| {
        let line = line_of(text, at.valid_up_to()..text.len());
        error(before + line, "is not text in UTF-8")
    })?;
    let sections: BTreeMap<String, Section> = toml::from_str(text).map_err(|what| {
        // The error as a whole would quote the line.
        let line = line_of(text.as_bytes(), what.span().unwrap_or_default());
        error(before + line, what.message())
    })?;
    let (mut rights, mut certificates) = (BTreeMap::new(), BTreeMap::new());
    for (name, section) in sections {
        if section.prefixes.iter().any(String::is_empty) {
            return Err(UsersError::EmptyPrefix(name));
        }
        let has = |right| {
            let given = section.rights.as_ref();
            given.is_none_or(|rights| rights.contains(&right))
        };
        let user = Arc::new(User {
            read: has(Right::Read),
            write: has(Right::Write),
            flush: has(Right::Flush),
            admin: has(Right::Admin),
            prefixes: section.prefixes,
        });
        for certificate in section.certificates {
            let user_name = || name.clone();
            if !KINDS.iter().any(|kind| certificate.starts_with(kind)) {
                let (user, name) = (user_name(), certificate);
                return Err(UsersError::Kind { user, name });
            }
            if certificates.contains_key(&certificate) {
                let (user, name) = (user_name(), certificate);
                return Err(UsersError::SameCertificate { user, name });
            }
            certificates.insert(certificate, Arc::clone(&user));
        }
        rights.insert(name, user);
    }
    Ok(Sections {
        rights,
        certificates,
    })
}

/// The line, counted from 1, where a piece of text begins.
fn line_of(text: &[u8], span: Range<usize>) -> usize {
    let ahead = text.get(..span.start).unwrap_or_default();
    ahead.iter().filter(|&&byte| byte == b'\n').count() + 1
}

#[cfg(test)]
mod tests;
