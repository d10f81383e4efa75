//! What clients speak, and how they log in.

use std::sync::Arc;

use coua_protocol::Dialect;

use super::tls::TlsSettings;
use super::{FlagError, Raw};
use crate::users::Users;

/// What `-B` says, or what follows from how clients log in.
pub(super) fn protocol_asked(raw: &Raw) -> Result<&str, FlagError> {
    let asked = raw.protocol.as_deref();
    match (raw.auth_file.is_some(), raw.sasl) {
        (false, false) => Ok(asked.unwrap_or("auto")),
        (false, true) => Err(FlagError::new(
            "-S: the passwords of SASL come from the file of -Y; give both",
        )),
        (true, true) if asked == Some("ascii") => Err(FlagError::new(
            "-S: SASL is for the binary protocol; leave it or -B ascii out",
        )),
        (true, true) => Ok(asked.unwrap_or("auto")),
        (true, false) if asked.is_some_and(|asked| asked != "ascii") => Err(FlagError::new(
            "-Y: without -S only the text protocol can log in; give -S, or leave -B out",
        )),
        (true, false) => Ok("ascii"),
    }
}

/// Who may log in.
pub(super) fn users(raw: &Raw, tls: Option<&TlsSettings>) -> Result<Option<Arc<Users>>, FlagError> {
    let Some(path) = &raw.auth_file else {
        return Ok(None);
    };
    if !matches!(raw.udp_port.as_str(), "0") {
        return Err(FlagError::new(
            "-Y: nobody can log in by UDP; leave -Y or -U out",
        ));
    }
    match Users::read(path) {
        Ok(users)
            if users.certificates() > 0 && !tls.is_some_and(|tls| tls.tls.has_authorities()) =>
        {
            Err(FlagError::new(format!(
                "-Y: {} names certificates, and clients are asked for none; give -Z and the authorities of \
                 clients' certificates: -o ssl_ca_cert=FILE",
                path.display()
            )))
        }
        Ok(users) => Ok(Some(Arc::new(users))),
        Err(error) => Err(FlagError::new(format!("-Y: {} {error}", path.display()))),
    }
}

/// A dialect, and memcached's name for it.
pub(super) fn protocol(text: &str) -> Result<(&'static str, Dialect), FlagError> {
    match text {
        "auto" => Ok(("auto-negotiate", Dialect::Unknown)),
        "ascii" => Ok(("ascii", Dialect::Text)),
        "binary" => Ok(("binary", Dialect::Binary)),
        _ => Err(FlagError::value("-B", text, "auto, ascii or binary")),
    }
}
