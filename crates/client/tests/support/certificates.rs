//! Certificates, and servers that show them.

use std::path::Path;
use std::process::Command;

use super::{Over, Program, Server};

/// A certificate for 127.0.0.1 that is its own authority, and its key, as files of the folder.
pub(crate) fn certificate(folder: &Path) -> (String, String) {
    let file = |name: &str| folder.join(name).display().to_string();
    let (certificate, key) = (file("certificate.pem"), file("key.pem"));
    let words = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 \
                 -subj /CN=localhost -addext subjectAltName=IP:127.0.0.1 \
                 -addext basicConstraints=critical,CA:FALSE";
    let output = Command::new("openssl")
        .args(words.split_whitespace())
        .args(["-out", &certificate, "-keyout", &key])
        .output()
        .expect("openssl is there");
    assert!(output.status.success(), "{output:?}");
    (certificate, key)
}

/// A server, and the certificate that it shows.
pub(crate) fn server(program: Program) -> (Server, Vec<u8>, tempfile::TempDir) {
    let folder = tempfile::tempdir().expect("a folder");
    let (certificate, key) = certificate(folder.path());
    let options = format!("ssl_chain_cert={certificate},ssl_key={key}");
    let server = Server::start_with(program, Over::Tcp, &["-Z", "-o", &options]);
    let certificate = std::fs::read(certificate).expect("it was made");
    (server, certificate, folder)
}
