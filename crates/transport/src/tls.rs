//! TLS: how a server proves who it is, and what it asks of clients.
//!
//! A [`Tls`] holds what is read from files, and makes plain streams into encrypted ones
//! ([`Stream::encrypted`](crate::Stream::encrypted)). The protocol itself is rustls's. Records are
//! encrypted and decrypted between the worker's buffers and the stream, so it is the same over the
//! kernel's sockets and over a stack in user space, and plain streams pay nothing.
//!
//! # Invariants
//! - What a connection may take beside the worker's buffers is bounded: [`MEMORY_MAX`] and the limit
//!   of [`TlsFiles`].
//! - A ticket or session is good only for connections that ask the same of clients as the one that it
//!   comes from: a client that has shown no certificate cannot resume where one is required. A
//!   refresh ends them all.
//!
//! # Concurrency
//! Workers take the current configuration when they accept a connection. A refresh replaces it;
//! connections keep the one that they began with.

pub(crate) mod encryption;
pub mod names;

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Instant, SystemTime};

use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{NoServerSessionStorage, ServerSessionMemoryCache, WebPkiClientVerifier};
use rustls::version::{TLS12, TLS13};
use rustls::{RootCertStore, ServerConfig, SupportedCipherSuite, SupportedProtocolVersion};

/// Sessions that are remembered for clients without tickets.
const SESSIONS_MAX: usize = 1024;

/// Bytes that a connection takes at most beside the worker's buffers, without the limit of
/// [`TlsFiles::unsent_max`]: its state, a record or message that has arrived in part, and a record that
/// has been decrypted in part.
pub const MEMORY_MAX: usize = 128 << 10;

/// The names by which OpenSSL knows the cipher suites of TLS 1.2 that there are.
const SUITES: [(&str, SupportedCipherSuite); 6] = {
    use ring::cipher_suite as suite;
    [
        (
            "ECDHE-ECDSA-AES256-GCM-SHA384",
            suite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,
        ),
        (
            "ECDHE-ECDSA-AES128-GCM-SHA256",
            suite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,
        ),
        (
            "ECDHE-ECDSA-CHACHA20-POLY1305",
            suite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,
        ),
        (
            "ECDHE-RSA-AES256-GCM-SHA384",
            suite::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,
        ),
        (
            "ECDHE-RSA-AES128-GCM-SHA256",
            suite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
        ),
        (
            "ECDHE-RSA-CHACHA20-POLY1305",
            suite::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256,
        ),
    ]
};

/// What is asked of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientCertificate {
    /// Nothing.
    Ignored,
    /// A certificate, if the client has one.
    Asked,
    /// A certificate.
    Required,
}

impl ClientCertificate {
    const ALL: [ClientCertificate; 3] = [
        ClientCertificate::Ignored,
        ClientCertificate::Asked,
        ClientCertificate::Required,
    ];
}

/// Where certificates lie, and how they are used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    /// The server's certificate, and those up to its authority, as PEM.
    pub chain: PathBuf,
    /// The key of the first of them, as PEM.
    pub key: PathBuf,
    /// The authorities of clients' certificates, as PEM; without it no client can be asked for one.
    pub authorities: Option<PathBuf>,
    /// TLS 1.2 is not spoken.
    pub only_tls13: bool,
    /// Cipher suites of TLS 1.2, by OpenSSL's names with colons between them; `None` for all.
    pub suites: Option<String>,
    /// Sessions of clients without tickets are remembered.
    pub session_cache: bool,
    /// Bytes of replies, at least 1, that are encrypted at once: so many, and what encryption adds, may
    /// wait on each connection until the client reads.
    pub unsent_max: usize,
}

/// Why a server cannot speak TLS as it was asked to.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file of certificates or keys cannot be used.
    #[error("{}: {source}", path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// Why.
        source: pem::Error,
    },
    /// It holds no certificate.
    #[error("{}: has no certificate in PEM", .0.display())]
    Empty(PathBuf),
    /// The certificate and the key do not fit, or cannot be used.
    #[error("{}: {source}", path.display())]
    Pair {
        /// The file of the certificate.
        path: PathBuf,
        /// Why.
        source: rustls::Error,
    },
    /// The authorities cannot be used.
    #[error("{}: {message}", path.display())]
    Authorities {
        /// The file.
        path: PathBuf,
        /// Why.
        message: String,
    },
    /// There is no such cipher suite.
    #[error("'{0}' is no cipher suite of coua's TLS 1.2; those are {all}", all = suite_names())]
    Suite(String),
    /// The system gives no random numbers.
    #[error("the system gives no random numbers")]
    Random,
}

/// What a server needs to speak TLS.
pub struct Tls {
    files: TlsFiles,
    current: Mutex<Current>,
    /// What has happened on its connections.
    pub events: Arc<TlsEvents>,
}

/// Counts of what happened on all connections of a [`Tls`].
#[derive(Debug, Default)]
pub struct TlsEvents {
    /// Handshakes that failed.
    pub handshake_errors: AtomicU64,
    /// Connections that broke the protocol after the handshake.
    pub protocol_errors: AtomicU64,
    /// Handshakes that were done in full.
    pub new_sessions: AtomicU64,
    /// Handshakes that went on with an earlier session.
    pub resumed_sessions: AtomicU64,
}

struct Current {
    /// By [`ClientCertificate`]; `None` without authorities to check one.
    configs: [Option<Arc<ServerConfig>>; 3],
    read_at: Instant,
    stamps: Vec<Option<Stamp>>,
}

/// By what it is seen that a file has changed.
type Stamp = (SystemTime, u64);

impl Tls {
    /// Reads the files.
    ///
    /// # Errors
    /// [`TlsError`]: one of them cannot be used.
    pub fn open(files: TlsFiles) -> Result<Tls, TlsError> {
        let current = Current::read(&files)?;
        Ok(Tls {
            files,
            current: Mutex::new(current),
            events: Arc::default(),
        })
    }

    /// Reads the files again. New connections have what is in them then.
    ///
    /// # Errors
    /// [`TlsError`]: one of them cannot be used, and everything stays as it was.
    pub fn refresh(&self) -> Result<(), TlsError> {
        let current = Current::read(&self.files)?;
        *self.current.lock().unwrap_or_else(PoisonError::into_inner) = current;
        Ok(())
    }

    /// Whether the files have changed since they were read.
    pub fn is_outdated(&self) -> bool {
        let stamps = stamps(&self.files);
        self.lock(|current| current.stamps != stamps)
    }

    /// Seconds since the files were read.
    pub fn age_s(&self) -> u64 {
        self.lock(|current| current.read_at.elapsed().as_secs())
    }

    /// Whether clients can be asked for certificates.
    pub fn has_authorities(&self) -> bool {
        self.files.authorities.is_some()
    }

    /// Bytes of replies that are encrypted at once.
    pub(crate) fn unsent_max(&self) -> usize {
        self.files.unsent_max.max(1)
    }

    /// What a new connection needs. Without authorities a certificate is asked of nobody, so a
    /// connection that requires one can never be opened.
    pub(crate) fn config(&self, of: ClientCertificate) -> Option<Arc<ServerConfig>> {
        self.lock(|current| current.configs[of as usize].clone())
    }

    fn lock<R>(&self, look: impl FnOnce(&Current) -> R) -> R {
        look(&self.current.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls")
            .field("files", &self.files)
            .finish_non_exhaustive()
    }
}

impl Current {
    fn read(files: &TlsFiles) -> Result<Current, TlsError> {
        // What changes while it is read is seen by the next look.
        let stamps = stamps(files);
        let mut configs = [None, None, None];
        for of in ClientCertificate::ALL {
            if of == ClientCertificate::Ignored || files.authorities.is_some() {
                configs[of as usize] = Some(Arc::new(config(files, of)?));
            }
        }
        Ok(Current {
            configs,
            read_at: Instant::now(),
            stamps,
        })
    }
}

impl TlsEvents {
    pub(crate) fn count(counter: &AtomicU64) {
        counter.fetch_add(1, Relaxed);
    }
}

fn stamps(files: &TlsFiles) -> Vec<Option<Stamp>> {
    let stamp = |path: &Path| {
        let metadata = std::fs::metadata(path).ok()?;
        Some((metadata.modified().ok()?, metadata.len()))
    };
    let paths = [
        Some(&files.chain),
        Some(&files.key),
        files.authorities.as_ref(),
    ];
    paths
        .into_iter()
        .flatten()
        .map(|path| stamp(path))
        .collect()
}

/// Tickets and sessions belong to one configuration, so nothing is resumed across two.
fn config(files: &TlsFiles, of: ClientCertificate) -> Result<ServerConfig, TlsError> {
    let provider = Arc::new(provider(files)?);
    let versions: &[&SupportedProtocolVersion] = match files.only_tls13 {
        true => &[&TLS13],
        false => &[&TLS12, &TLS13],
    };
    let pair = |source| TlsError::Pair {
        path: files.chain.clone(),
        source,
    };
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider));
    let builder = builder.with_protocol_versions(versions).map_err(pair)?;
    let builder = match (of, &files.authorities) {
        (ClientCertificate::Ignored, _) | (_, None) => builder.with_no_client_auth(),
        (_, Some(path)) => {
            let refused = |message: String| TlsError::Authorities {
                path: path.clone(),
                message,
            };
            let mut roots = RootCertStore::empty();
            for certificate in certificates(path)? {
                let added = roots.add(certificate);
                added.map_err(|error| refused(error.to_string()))?;
            }
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
            let verifier = match of {
                ClientCertificate::Asked => verifier.allow_unauthenticated(),
                _ => verifier,
            };
            let verifier = verifier.build();
            builder.with_client_cert_verifier(verifier.map_err(|error| refused(error.to_string()))?)
        }
    };
    let key = PrivateKeyDer::from_pem_file(&files.key).map_err(|source| TlsError::File {
        path: files.key.clone(),
        source,
    })?;
    let mut config = builder
        .with_single_cert(certificates(&files.chain)?, key)
        .map_err(pair)?;
    config.session_storage = match files.session_cache {
        true => ServerSessionMemoryCache::new(SESSIONS_MAX),
        false => Arc::new(NoServerSessionStorage {}),
    };
    config.ticketer = ring::Ticketer::new().map_err(|_| TlsError::Random)?;
    Ok(config)
}

fn provider(files: &TlsFiles) -> Result<CryptoProvider, TlsError> {
    let mut provider = ring::default_provider();
    let Some(names) = &files.suites else {
        return Ok(provider);
    };
    let mut chosen = Vec::new();
    for name in names.split(':') {
        let suite = SUITES.iter().find(|(known, _)| *known == name);
        let (_, suite) = suite.ok_or_else(|| TlsError::Suite(name.to_owned()))?;
        chosen.push(*suite);
    }
    // As with OpenSSL, the list says nothing of TLS 1.3.
    provider
        .cipher_suites
        .retain(|suite| suite.tls13().is_some());
    provider.cipher_suites.extend(chosen);
    Ok(provider)
}

fn suite_names() -> String {
    SUITES.map(|(name, _)| name).join(", ")
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let refused = |source| TlsError::File {
        path: path.to_owned(),
        source,
    };
    let found = CertificateDer::pem_file_iter(path).map_err(refused)?;
    let found: Vec<_> = found.collect::<Result<_, _>>().map_err(refused)?;
    match found.is_empty() {
        true => Err(TlsError::Empty(path.to_owned())),
        false => Ok(found),
    }
}
