//! Debian's packages: programs of others that the tests and other chores run.

use anyhow::{Context, Result, bail};

use crate::commands::{is_installed, program, read, run, succeeds};

/// How to see that a package is installed, and its name. One word is a program; several are a
/// command that succeeds.
pub(crate) type Package = (&'static [&'static str], &'static str);

/// What every run of the tests needs.
pub(crate) const OF_TESTS: &[Package] = &[
    (&["cc"], "build-essential"),
    (&["python3", "-c", "import venv, ensurepip"], "python3-venv"),
    (&["memccapable"], "libmemcached-tools"),
    (&["nutcracker"], "nutcracker"),
    (&["javac"], "default-jdk-headless"),
    (&["mvn"], "maven"),
    (&["node"], "nodejs"),
    (&["npm"], "npm"),
    (&["ruby"], "ruby"),
    (&["go"], "golang-go"),
    (
        &["perl", "-MCache::Memcached::Fast", "-e", "1"],
        "libcache-memcached-fast-perl",
    ),
    (&["ip"], "iproute2"),
    (&["ethtool"], "ethtool"),
    (&["ping"], "iputils-ping"),
    (&["tcpdump"], "tcpdump"),
    (&["pkg-config", "--version"], "pkg-config"),
    (&["pkg-config", "--exists", "libdpdk"], "libdpdk-dev"),
    (
        &["test", "-e", "/usr/include/rdma/fabric.h"],
        "libfabric-dev",
    ),
    (&["setpriv"], "util-linux"),
    (&["numactl"], "numactl"),
    (&["ab"], "apache2-utils"),
    (&["qemu-aarch64", "--version"], "qemu-user"),
    (
        &["aarch64-linux-gnu-gcc", "--version"],
        "gcc-aarch64-linux-gnu",
    ),
    (
        &["test", "-e", "/usr/aarch64-linux-gnu/lib/libc.so"],
        "libc6-dev-arm64-cross",
    ),
    (&["promtool", "--version"], "prometheus"),
    (&["chromium", "--version"], "chromium"),
    (&["curl"], "curl"),
    (&["php"], "php-cli"),
    (&["php", "-r", "new Memcached();"], "php-memcached"),
    // Mechanisms of SASL for libmemcached.
    (
        &["sh", "-c", "ls /usr/lib/*/sasl2/libplain.so"],
        "libsasl2-modules",
    ),
    (&["openssl", "version"], "openssl"),
];

/// Installs the packages that are missing.
///
/// # Errors
/// If the packages cannot be installed: one sentence with the command for someone who may.
pub(crate) fn install(packages: &[Package]) -> Result<()> {
    let missing: Vec<&str> = packages
        .iter()
        .filter(|(sign, _)| !is_there(sign))
        .map(|(_, package)| *package)
        .collect();
    if missing.is_empty() {
        return Ok(());
    }
    let by_hand = format!(
        "apt-get install --no-install-recommends {}",
        missing.join(" ")
    );
    if !is_installed("apt-get") {
        bail!(
            "this machine has no apt-get; there must be {}",
            missing.join(", ")
        );
    }
    let prefix: &[&str] = if read(program("id").arg("-u"))? == "0" {
        &[]
    } else if succeeds(program("sudo").args(["-n", "true"])) {
        &["sudo", "-n"]
    } else {
        bail!("packages are missing that only root may install: run `sudo {by_hand}`");
    };
    let apt = |words: &[&str]| {
        let all: Vec<&str> = [
            prefix,
            &["env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "-q"],
            words,
        ]
        .concat();
        run(program(all[0]).args(&all[1..]))
    };
    apt(&["-o", "DPkg::Lock::Timeout=300", "update"])
        .and_then(|()| {
            let install = [
                "-o",
                "DPkg::Lock::Timeout=300",
                "install",
                "-y",
                "--no-install-recommends",
            ];
            apt(&[install.as_slice(), &missing].concat())
        })
        .with_context(|| format!("packages could not be installed; try `{by_hand}` by hand"))
}

fn is_there(sign: &[&str]) -> bool {
    match sign {
        [name] => is_installed(name),
        [name, arguments @ ..] => succeeds(program(name).args(arguments)),
        [] => true,
    }
}
