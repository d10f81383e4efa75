//! The client for Java of this repository: Maven builds the jar and runs its tests, against coua and memcached.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

use super::under_test::{FLAGS, LIMIT, coua};
use super::{Context, Outcome};
use crate::commands::{cargo, program, read, root, run, run_within, target};
use crate::server::{Server, connect, free_port};
use crate::setup::packages;

/// Memory outside of the heap is reached by an interface that is final only in newer versions than Debian's default.
const VERSION_MIN: u32 = 25;

/// How to have one, where Debian has it; asked for only when none is found.
const PACKAGE: packages::Package = (&["test", "-e", "/nowhere"], "openjdk-25-jdk-headless");

/// Builds the jar, with the library inside, and runs the tests.
pub(crate) fn java_client(context: &Context) -> Result<Outcome> {
    let installed = || packages::install(&[PACKAGE]).ok().and_then(|()| jdk());
    let Some(jdk) = jdk().or_else(installed) else {
        return Ok(Outcome::LeftOut(format!(
            "there is no JDK {VERSION_MIN}: set JAVA_HOME to one"
        )));
    };
    run(cargo().args(["build", "--quiet", "--release", "-p", "coua-client-c"]))?;
    let coua = coua(context)?;
    let ours = context.site.start(&coua, FLAGS)?;
    let theirs = Server::start(&context.tools.memcached, FLAGS)?;
    let host = context.site.host();
    let folder = target().join("java-tests");
    fs::create_dir_all(&folder)?;
    let (certificate, key) = certificate(&folder)?;
    let (certificate, key) = (certificate.display(), key.display());
    let options = format!("ssl_chain_cert={certificate},ssl_key={key}");
    let encrypted = [&coua, &context.tools.memcached].map(|path| {
        let port = free_port()?;
        let mut command = program(path);
        command
            .args(["-l", "127.0.0.1", "-p", &port.to_string(), "-u", "root"])
            .args(FLAGS)
            .args(["-Z", "-o", &options]);
        Server::start_as(&mut command, port, || connect(port).is_some())
    });
    let [ours_encrypted, theirs_encrypted] = encrypted;
    let (ours_encrypted, theirs_encrypted) = (ours_encrypted?, theirs_encrypted?);
    let list = folder.join("cluster");
    fs::write(&list, "1\n127.0.0.1||1\n")?;
    let option = format!("cluster_config={}", list.display());
    let teller = Server::start(&coua, &[FLAGS, &["-o", &option]].concat())?;
    let mut maven = program("mvn");
    maven
        .args(["--quiet", "--batch-mode", "-Dstyle.color=never", "--file"])
        .arg(root().join("java/pom.xml"))
        .arg("verify")
        .arg(format!("-Dcoua.build={}", target().join("java").display()))
        .arg(format!(
            "-Dcouaclient.built={}",
            target().join("release").display()
        ))
        .arg(format!(
            "-Dcoua.test.servers={host}:{},{host}:{}",
            ours.port, theirs.port
        ))
        .arg(format!(
            "-Dcoua.test.tls=127.0.0.1:{},127.0.0.1:{}",
            ours_encrypted.port, theirs_encrypted.port
        ))
        .arg(format!("-Dcoua.test.ca={certificate}"))
        .arg(format!("-Dcoua.test.cluster=127.0.0.1:{}", teller.port))
        .arg(format!("-Dcoua.test.cluster.file={}", list.display()))
        .env("JAVA_HOME", jdk);
    run_within(2 * LIMIT, &maven)
        .context("Java's client fails; mvn also needs Maven Central or a mirror of it")?;
    Ok(Outcome::Passed)
}

/// A certificate for 127.0.0.1 that is its own authority, and its key.
fn certificate(folder: &Path) -> Result<(PathBuf, PathBuf)> {
    let (certificate, key) = (folder.join("certificate.pem"), folder.join("key.pem"));
    let words = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 \
                 -subj /CN=localhost -addext subjectAltName=IP:127.0.0.1 \
                 -addext basicConstraints=critical,CA:FALSE";
    let mut openssl = program("openssl");
    openssl.args(words.split_whitespace());
    openssl
        .arg("-out")
        .arg(&certificate)
        .arg("-keyout")
        .arg(&key);
    read(&mut openssl)?;
    Ok((certificate, key))
}

/// A JDK that is new enough: what `JAVA_HOME` names, or one of those in the usual place.
fn jdk() -> Option<PathBuf> {
    let named = env::var_os("JAVA_HOME").map(PathBuf::from);
    let installed = fs::read_dir("/usr/lib/jvm").into_iter().flatten();
    let installed = installed.filter_map(|entry| Some(entry.ok()?.path()));
    named.into_iter().chain(installed).find(|folder| {
        let release = fs::read_to_string(folder.join("release")).unwrap_or_default();
        folder.join("bin/javac").is_file()
            && version(&release).is_some_and(|version| version >= VERSION_MIN)
    })
}

/// The version that a JDK's file `release` tells.
fn version(release: &str) -> Option<u32> {
    let line = release
        .lines()
        .find_map(|line| line.strip_prefix("JAVA_VERSION=\""))?;
    let digits = line.split(|letter: char| !letter.is_ascii_digit()).next()?;
    digits.parse().ok()
}

#[test]
fn the_version_of_a_jdk() {
    let release = "IMPLEMENTOR=\"Debian\"\nJAVA_VERSION=\"25.0.3\"\n";
    assert_eq!(version(release), Some(25));
    assert_eq!(version("JAVA_VERSION=\"1.8.0_402\""), Some(1));
    assert_eq!(version("JAVA_VERSION=\"26-ea\""), Some(26));
    assert_eq!(version(""), None);
}
