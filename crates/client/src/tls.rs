//! Encrypted connections, for both clients.

use std::fmt;
use std::io::{self, Read, Write};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustls::client::Resumption;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore};

use crate::address::Address;
use crate::blocking::transport::{Connect, Sockets, Transport};

/// Opens encrypted connections, TLS 1.2 and 1.3, to servers with `-Z`.
///
/// ```no_run
/// use coua_client::{Client, Config, Tls};
///
/// let authorities = std::fs::read("authorities.pem")?;
/// let config = Config::new("cache.example:11211")?;
/// let cache = Client::builder(config).transport(Tls::new(&authorities)?).build();
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// The server's certificate must be for the host as it is written in the list of servers, be it a name or an address.
#[derive(Clone)]
pub struct Tls {
    config: Arc<ClientConfig>,
    name: Option<ServerName<'static>>,
}

/// Why there can be no encryption.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TlsError {
    /// The text holds no certificate, or no key, in PEM.
    #[error("{0} cannot be read as PEM: {1}")]
    Pem(&'static str, String),
    /// A certificate or a key is of no use.
    #[error(transparent)]
    Rustls(#[from] rustls::Error),
    /// It is neither a name nor an address.
    #[error("`{0}` is not the name of a server")]
    Name(String),
}

impl Tls {
    /// Trusts servers whose certificates one of `authorities` has signed, in PEM.
    ///
    /// # Errors
    /// When there is no certificate, or one that is wrong.
    pub fn new(authorities: &[u8]) -> Result<Tls, TlsError> {
        let config = ClientConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots(authorities)?)
            .with_no_client_auth();
        Ok(Tls::of(config))
    }

    /// The same, and shows a certificate of its own, with its key, to servers that want one.
    ///
    /// # Errors
    /// As [`Tls::new`], and when the key is not the certificate's.
    pub fn with_certificate(
        authorities: &[u8],
        certificates: &[u8],
        key: &[u8],
    ) -> Result<Tls, TlsError> {
        let own = self::certificates("the client's certificate", certificates)?;
        let key = PrivateKeyDer::from_pem_slice(key)
            .map_err(|error| TlsError::Pem("the client's key", error.to_string()))?;
        let mut config = ClientConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots(authorities)?)
            .with_client_auth_cert(own, key)?;
        // memcached 1.6.45 refuses a session that is resumed, if it wants certificates, with an internal error.
        config.resumption = Resumption::disabled();
        Ok(Tls::of(config))
    }

    fn of(config: ClientConfig) -> Tls {
        Tls {
            config: Arc::new(config),
            name: None,
        }
    }

    /// Expects certificates for this name, whatever the servers' addresses: a unix socket has none.
    ///
    /// # Errors
    /// When it is neither a name nor an address.
    pub fn server_name(mut self, name: &str) -> Result<Tls, TlsError> {
        let owned = ServerName::try_from(name.to_owned());
        self.name = Some(owned.map_err(|_| TlsError::Name(name.to_owned()))?);
        Ok(self)
    }

    /// Whose certificate a server must show.
    fn name_of(&self, address: &Address) -> io::Result<ServerName<'static>> {
        let host = match (address, &self.name) {
            (_, Some(name)) => return Ok(name.clone()),
            (Address::Tcp { host, .. }, None) => host.clone(),
            (Address::Unix(_), None) => String::new(),
        };
        let wrong = |_| io::Error::new(io::ErrorKind::InvalidInput, TlsError::Name(host.clone()));
        ServerName::try_from(host.clone()).map_err(wrong)
    }
}

fn provider() -> Arc<rustls::crypto::CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

fn roots(authorities: &[u8]) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates("the authorities' certificates", authorities)? {
        roots.add(certificate)?;
    }
    Ok(roots)
}

fn certificates(what: &'static str, pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    match found {
        Ok(found) if found.is_empty() => Err(TlsError::Pem(what, "there is none".to_owned())),
        Ok(found) => Ok(found),
        Err(error) => Err(TlsError::Pem(what, error.to_string())),
    }
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

impl Connect for Tls {
    fn connect(&self, address: &Address, timeout: Duration) -> io::Result<Box<dyn Transport>> {
        let deadline = Instant::now() + timeout;
        let name = self.name_of(address)?;
        let session = ClientConnection::new(Arc::clone(&self.config), name);
        let mut encrypted = Encrypted {
            session: session.map_err(io::Error::other)?,
            socket: Sockets.connect(address, timeout)?,
        };
        while encrypted.session.is_handshaking() {
            let rest = deadline.saturating_duration_since(Instant::now());
            if rest.is_zero() {
                return Err(io::ErrorKind::TimedOut.into());
            }
            if encrypted.exchange(rest)? == Some(0) {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        Ok(Box::new(encrypted))
    }
}

#[cfg(feature = "tokio-tls")]
impl crate::tokio::Connect for Tls {
    fn connect<'c>(&'c self, address: &'c Address) -> crate::tokio::Connecting<'c> {
        Box::pin(async move {
            let name = self.name_of(address)?;
            let socket = crate::tokio::Connect::connect(&crate::tokio::Sockets, address).await?;
            let connector = tokio_rustls::TlsConnector::from(Arc::clone(&self.config));
            let stream = connector.connect(name, socket).await?;
            Ok(Box::new(stream) as Box<dyn crate::tokio::Transport>)
        })
    }
}

/// A socket with encryption over it.
#[derive(Debug)]
struct Encrypted {
    session: ClientConnection,
    socket: Box<dyn Transport>,
}

/// The socket as rustls wants it.
struct Raw<'t> {
    socket: &'t mut dyn Transport,
    /// How long a read may wait.
    timeout: Duration,
}

impl Read for Raw<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.socket.receive(into, self.timeout)
    }
}

impl Write for Raw<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.socket.send(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Encrypted {
    /// Sends what is encrypted. False when the socket takes no more now.
    fn flush(&mut self) -> io::Result<bool> {
        let timeout = Duration::ZERO;
        let mut raw = Raw {
            socket: &mut *self.socket,
            timeout,
        };
        while self.session.wants_write() {
            match self.session.write_tls(&mut raw) {
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }

    /// Sends what is to be sent, and takes what comes within `timeout`: so many bytes, of which 0 are the end of
    /// the connection, or `None` if something could only be sent.
    fn exchange(&mut self, timeout: Duration) -> io::Result<Option<usize>> {
        let is_blocked = !self.flush()?;
        if is_blocked {
            self.socket.wait(timeout)?;
            self.flush()?;
        }
        let mut raw = Raw {
            socket: &mut *self.socket,
            timeout: if is_blocked { Duration::ZERO } else { timeout },
        };
        let received = match self.session.read_tls(&mut raw) {
            Err(error) if is_blocked && error.kind() == io::ErrorKind::TimedOut => return Ok(None),
            received => received?,
        };
        if let Err(error) = self.session.process_new_packets() {
            // The server is told why, if it still listens.
            let _ = self.flush();
            return Err(io::Error::new(io::ErrorKind::InvalidData, error));
        }
        Ok(Some(received))
    }
}

impl Transport for Encrypted {
    fn send(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if !self.flush()? {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let taken = self.session.writer().write(bytes)?;
        self.flush()?;
        match taken {
            0 if !bytes.is_empty() => Err(io::ErrorKind::WouldBlock.into()),
            taken => Ok(taken),
        }
    }

    fn receive(&mut self, into: &mut [u8], timeout: Duration) -> io::Result<usize> {
        let begun = Instant::now();
        let mut rest = timeout;
        loop {
            match self.session.reader().read(into) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                // Whether the end was announced makes no difference: an answer tells itself whether it is whole.
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(0),
                result => return result,
            }
            let came = self.exchange(rest)?;
            // A record may bring no bytes of the server's: a ticket, for one.
            rest = timeout.saturating_sub(begun.elapsed());
            if came.is_none() && rest.is_zero() {
                return Err(io::ErrorKind::TimedOut.into());
            }
        }
    }

    fn wait(&mut self, timeout: Duration) -> io::Result<()> {
        self.socket.wait(timeout)
    }
}
