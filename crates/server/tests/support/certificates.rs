//! An authority, certificates and clients for TLS.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

use crate::process::Folder;

/// An authority, in a folder of its own. Everything is made by the program `openssl`.
pub(crate) struct Authority {
    folder: Folder,
}

/// A client that has agreed on encryption, or is about to.
pub(crate) type TlsClient = StreamOwned<ClientConnection, TcpStream>;

impl Authority {
    /// Makes one.
    pub(crate) fn new() -> Authority {
        let folder = Folder::new();
        let authority = Authority { folder };
        authority.make_key("ca");
        authority.openssl("req -x509 -new -key ca.key -subj /CN=authority -days 2 -out ca.pem");
        authority
    }

    /// Certifies a name: `NAME.pem` and `NAME.key`, for localhost.
    pub(crate) fn certify(&self, name: &str) {
        self.certify_as(name, &format!("/CN={name}"), "DNS:localhost,IP:127.0.0.1");
    }

    /// Certifies a subject with alternative names: `NAME.pem` and `NAME.key`.
    #[allow(dead_code, reason = "most tests need one for localhost")]
    pub(crate) fn certify_as(&self, name: &str, subject: &str, alternatives: &str) {
        let names = self.folder.path("names");
        fs::write(names, format!("subjectAltName={alternatives}\n")).expect("a file");
        self.make_key(name);
        self.openssl(&format!(
            "req -new -key {name}.key -subj {subject} -out {name}.csr"
        ));
        self.openssl(&format!(
            "x509 -req -in {name}.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 \
             -extfile names -out {name}.pem"
        ));
    }

    /// Puts one certificate and its key in another's place.
    pub(crate) fn replace(&self, name: &str, by: &str) {
        for kind in ["key", "pem"] {
            let (from, to) = (format!("{by}.{kind}"), format!("{name}.{kind}"));
            fs::rename(self.folder.path(&from), self.folder.path(&to)).expect("both are there");
        }
    }

    /// A file, as a flag takes it.
    pub(crate) fn file(&self, name: &str) -> String {
        self.folder.text(name)
    }

    /// The options of a server with the certificate `name`, and more.
    pub(crate) fn options(&self, name: &str, more: &str) -> String {
        format!(
            "ssl_chain_cert={},ssl_key={},ssl_ca_cert={}{more}",
            self.file(&format!("{name}.pem")),
            self.file(&format!("{name}.key")),
            self.file("ca.pem")
        )
    }

    /// A client's configuration, which trusts this authority; `name` is its own certificate.
    pub(crate) fn client(&self, name: Option<&str>) -> Arc<ClientConfig> {
        let certificates = |name: &str| {
            let found = CertificateDer::pem_file_iter(self.folder.path(name)).expect("a file");
            found.map(|found| found.expect("a certificate"))
        };
        let mut roots = RootCertStore::empty();
        for certificate in certificates("ca.pem") {
            roots.add(certificate).expect("an authority");
        }
        let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
        let builder = builder.with_safe_default_protocol_versions();
        let builder = builder.expect("known").with_root_certificates(roots);
        Arc::new(match name {
            None => builder.with_no_client_auth(),
            Some(name) => {
                let key = PrivateKeyDer::from_pem_file(self.folder.path(&format!("{name}.key")));
                let chain = certificates(&format!("{name}.pem")).collect();
                let key = key.expect("a key");
                builder.with_client_auth_cert(chain, key).expect("a pair")
            }
        })
    }

    fn make_key(&self, name: &str) {
        self.openssl(&format!(
            "ecparam -name prime256v1 -genkey -noout -out {name}.key"
        ));
    }

    fn openssl(&self, words: &str) {
        let mut command = Command::new("openssl");
        command.args(words.split_whitespace());
        let output = command.current_dir(self.folder.path("")).output();
        let output = output.expect("the program openssl is installed");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "openssl {words}: {said}");
    }

    /// What `openssl s_client` says that is given this input, and whether it is content.
    pub(crate) fn s_client(&self, words: &str, input: &str) -> (String, bool) {
        let mut command = Command::new("openssl");
        command
            .args(["s_client", "-verify_return_error", "-CAfile", "ca.pem"])
            .args(words.split_whitespace())
            .current_dir(self.folder.path(""))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command.spawn().expect("the program openssl is installed");
        // The server ends the connection at `quit`, and with that the client.
        let mut pipe = child.stdin.take().expect("a pipe");
        let _ = pipe.write_all(input.as_bytes());
        let output = child.wait_with_output().expect("it is our child");
        drop(pipe);
        let said = [output.stdout, output.stderr].concat();
        (
            String::from_utf8_lossy(&said).into_owned(),
            output.status.success(),
        )
    }
}

/// Encrypts a client's connection. The handshake begins with the first byte.
pub(crate) fn encrypt(stream: TcpStream, config: &Arc<ClientConfig>) -> TlsClient {
    let patience = Some(Duration::from_secs(30));
    stream.set_read_timeout(patience).expect("a timeout");
    let name = ServerName::try_from("localhost").expect("a name");
    let connection = ClientConnection::new(Arc::clone(config), name).expect("a client");
    StreamOwned::new(connection, stream)
}

/// Sends a request and checks the answer.
#[track_caller]
pub(crate) fn ask(client: &mut TlsClient, request: &[u8], answer: &[u8]) {
    client.write_all(request).expect("it is open");
    let mut said = vec![0; answer.len()];
    client.read_exact(&mut said).expect("an answer");
    let text = |bytes: &[u8]| String::from_utf8_lossy(&bytes[..bytes.len().min(200)]).into_owned();
    assert!(
        said == answer,
        "{} instead of {}",
        text(&said),
        text(answer)
    );
}
