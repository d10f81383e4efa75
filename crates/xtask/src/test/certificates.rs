//! Certificates for the servers and clients of a step, made by the program `openssl`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, id};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use anyhow::Result;

use crate::commands::{program, read, target};

/// How long they are good for.
const DAYS: &str = "2";

/// A folder with two authorities that do not know each other, `ca` and `strangers`; and certificates of `server`,
/// `client`, and `foreign`, which the strangers have signed. Dropping it deletes the folder.
pub(super) struct Certificates {
    folder: PathBuf,
}

impl Certificates {
    /// Makes all of them in a folder of that name.
    pub(super) fn make(name: &str) -> Result<Certificates> {
        static MADE: AtomicU32 = AtomicU32::new(0);
        let name = format!("{name}-{}-{}", id(), MADE.fetch_add(1, Relaxed));
        let folder = target().join("clients").join(name);
        fs::create_dir_all(&folder)?;
        let all = Certificates { folder };
        for authority in ["ca", "strangers"] {
            all.make_key(authority)?;
            let words =
                format!("req -x509 -new -key {authority}.key -days {DAYS} -out {authority}.pem");
            read(
                all.openssl(&words)
                    .args(["-subj", &format!("/CN={authority} of a test")]),
            )?;
        }
        for (name, by) in [("server", "ca"), ("client", "ca"), ("foreign", "strangers")] {
            all.certify(name, by)?;
        }
        Ok(all)
    }

    /// Where they are.
    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    /// A file, as a flag takes it.
    pub(super) fn file(&self, name: &str) -> String {
        self.folder.join(name).display().to_string()
    }

    /// `NAME.pem` and `NAME.key`, for this machine.
    pub(super) fn certify(&self, name: &str, authority: &str) -> Result<()> {
        fs::write(
            self.folder.join("names"),
            "subjectAltName=DNS:localhost,IP:127.0.0.1\n",
        )?;
        self.make_key(name)?;
        let words = format!("req -new -key {name}.key -subj /CN={name} -out {name}.csr");
        read(&mut self.openssl(&words))?;
        let words = format!(
            "x509 -req -in {name}.csr -CA {authority}.pem -CAkey {authority}.key -CAcreateserial -days {DAYS} \
             -extfile names -out {name}.pem"
        );
        read(&mut self.openssl(&words))?;
        Ok(())
    }

    /// Gives the server another certificate, key first: for a moment they do not fit.
    pub(super) fn replace_server(&self) -> Result<()> {
        self.certify("next", "ca")?;
        for kind in ["key", "pem"] {
            let path = |name: &str| self.folder.join(format!("{name}.{kind}"));
            fs::rename(path("next"), path("server"))?;
        }
        Ok(())
    }

    /// The options of `-o` for a server, with the mode in which it asks clients for certificates.
    pub(super) fn options(&self, verify_mode: u8) -> String {
        let [chain, key, ca] = ["server.pem", "server.key", "ca.pem"].map(|name| self.file(name));
        format!(
            "ssl_chain_cert={chain},ssl_key={key},ssl_ca_cert={ca},ssl_verify_mode={verify_mode}"
        )
    }

    /// A program of openssl in the folder.
    pub(super) fn openssl(&self, words: &str) -> Command {
        let mut command = program("openssl");
        command
            .args(words.split_whitespace())
            .current_dir(&self.folder);
        command
    }

    /// Keys in PKCS #8, which all clients read.
    fn make_key(&self, name: &str) -> Result<()> {
        let words =
            format!("genpkey -algorithm EC -pkeyopt ec_paramgen_curve:prime256v1 -out {name}.key");
        read(&mut self.openssl(&words))?;
        Ok(())
    }
}

impl Drop for Certificates {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}
