//! What `-Z` and the options of TLS ask for.

use std::path::PathBuf;
use std::sync::Arc;

use coua_transport::tls::{ClientCertificate, Tls, TlsError, TlsFiles};

use super::{FlagError, Raw, no_effect};

/// TLS as the flags ask for it.
#[derive(Clone, Debug)]
pub struct TlsSettings {
    /// The certificates that are in use.
    pub tls: Arc<Tls>,
    /// What is asked of clients, where an address does not say otherwise.
    pub of_clients: ClientCertificate,
    /// Where the certificates lie, and how they are used.
    pub files: TlsFiles,
    /// `ssl_verify_mode`.
    pub verify_mode: u8,
}

impl TlsSettings {
    /// Reads the options, by their names, and the files.
    pub(super) fn resolve(
        raw: &Raw,
        options: &[(&'static str, String)],
        without_effect: &mut Vec<String>,
    ) -> Result<Option<TlsSettings>, FlagError> {
        if !raw.ssl {
            for (name, _) in options {
                let line = no_effect(&format!("-o {name}"), "there is no -Z");
                if !without_effect.contains(&line) {
                    without_effect.push(line);
                }
            }
            return Ok(None);
        }
        if raw.udp_port != "0" {
            return Err(FlagError::new(
                "-Z: UDP is not encrypted; leave -Z or -U out",
            ));
        }
        let given = |name| {
            let mut given = options.iter().rev();
            given
                .find(|(known, _)| *known == name)
                .map(|(_, value)| value.as_str())
        };
        // The folder may change before they are read again.
        let path =
            |name| given(name).map(|path| std::path::absolute(path).unwrap_or(PathBuf::from(path)));
        let Some(chain) = path("ssl_chain_cert") else {
            return Err(FlagError::new(
                "-Z: give the server's certificate: -o ssl_chain_cert=FILE,ssl_key=FILE",
            ));
        };
        let only_tls13 = match given("ssl_min_version") {
            None | Some("2") => false,
            Some("3") => true,
            Some(_) => {
                return Err(FlagError::new(
                    "-o ssl_min_version: coua speaks TLS 1.2 and 1.3; give 2 or 3",
                ));
            }
        };
        let kilobytes = given("ssl_wbuf_size").and_then(|text| text.parse().ok());
        let files = TlsFiles {
            key: path("ssl_key").unwrap_or_else(|| chain.clone()),
            chain,
            authorities: path("ssl_ca_cert"),
            only_tls13,
            suites: given("ssl_ciphers").map(str::to_owned),
            session_cache: given("ssl_session_cache").is_some(),
            unsent_max: kilobytes.unwrap_or(16_usize) << 10,
        };
        let verify_mode = given("ssl_verify_mode").and_then(|text| text.parse().ok());
        let verify_mode = verify_mode.unwrap_or(0);
        let of_clients = match verify_mode {
            0 => ClientCertificate::Ignored,
            1 => ClientCertificate::Asked,
            _ => ClientCertificate::Required,
        };
        if of_clients != ClientCertificate::Ignored && files.authorities.is_none() {
            return Err(FlagError::new(
                "-o ssl_verify_mode: give the authorities of clients' certificates: -o ssl_ca_cert=FILE",
            ));
        }
        let tls = Tls::open(files.clone()).map_err(|error| refused(&files, &error))?;
        Ok(Some(TlsSettings {
            tls: Arc::new(tls),
            of_clients,
            files,
            verify_mode,
        }))
    }
}

/// The line for what cannot be used, with the option that named it.
fn refused(files: &TlsFiles, error: &TlsError) -> FlagError {
    let option = match error {
        TlsError::File { path, .. } | TlsError::Empty(path) if *path == files.chain => {
            "ssl_chain_cert"
        }
        TlsError::File { path, .. } | TlsError::Empty(path) if *path == files.key => "ssl_key",
        TlsError::File { .. } | TlsError::Empty(_) | TlsError::Authorities { .. } => "ssl_ca_cert",
        TlsError::Pair { .. } => "ssl_chain_cert",
        TlsError::Suite(_) => "ssl_ciphers",
        TlsError::Random => return FlagError::new(format!("-Z: {error}")),
    };
    FlagError::new(format!("-o {option}: {error}"))
}
