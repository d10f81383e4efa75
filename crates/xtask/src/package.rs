//! `cargo xtask package`: Debian packages of the server, for the release of Debian that this runs on.
//!
//! The server is built twice, without DPDK and with it, as `packaging/README.md` explains. The
//! programs, `coua-top`, the manual pages and the licences of the crates in them are put into a folder beside
//! `packaging/debian`, and Debian's own debhelper makes the packages.

mod licences;
pub(crate) mod sbom;

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use clap::Args;

use crate::commands::{cargo, program, read, root, run as run_command, target};
use crate::release;
use crate::setup::packages::{self, Package};

/// What packaging needs besides a Rust tool chain.
const NEEDED: &[Package] = &[
    (&["cc"], "build-essential"),
    (&["dh"], "debhelper"),
    (&["pkg-config", "--version"], "pkg-config"),
    (&["pkg-config", "--exists", "libdpdk"], "libdpdk-dev"),
];

/// The programs of the packages, and the feature that each is built with. The plain one comes last,
/// because the last one stays where others look for it.
const PROGRAMS: &[(&str, Option<&str>)] = &[("coua-dpdk", Some("coua/dpdk")), ("coua", None)];

/// How to build
#[derive(Debug, Args)]
pub(crate) struct Flags {
    /// Build without the training run: slower programs, in less time
    #[arg(long)]
    quick: bool,
}

impl Flags {
    /// Programs that need not be fast.
    pub(crate) const QUICK: Flags = Flags { quick: true };
}

/// Builds the packages and returns their paths, that of `coua` first.
///
/// # Errors
/// If one cannot be built, or if what building needs cannot be installed.
pub(crate) fn run(flags: &Flags) -> Result<Vec<PathBuf>> {
    packages::install(NEEDED)?;
    let all = target().join("package");
    if all.exists() {
        fs::remove_dir_all(&all)?;
    }
    let folder = all.join("coua");
    fs::create_dir_all(&folder)?;

    for (name, feature) in PROGRAMS {
        println!("== {name}");
        fs::copy(built(flags, *feature)?, folder.join(name))?;
    }
    println!("== packages");
    run_command(cargo().args(["build", "--release", "-p", "coua-top"]))?;
    fs::copy(target().join("release/coua-top"), folder.join("coua-top"))?;
    fs::create_dir(folder.join("completions"))?;
    for name in ["coua", "coua-top"] {
        let said = |words: &[&str]| read(program(folder.join(name)).args(words));
        fs::write(folder.join(format!("{name}.1")), said(&["--man"])? + "\n")?;
        for (shell, file) in [
            ("bash", name.to_owned()),
            ("zsh", format!("_{name}")),
            ("fish", format!("{name}.fish")),
        ] {
            let script = said(&["--completions", shell])?;
            fs::write(folder.join("completions").join(file), script + "\n")?;
        }
    }
    fs::copy(root().join("packaging/coua.toml"), folder.join("coua.toml"))?;
    fs::write(folder.join("third-party-licences"), licences::text()?)?;
    fs::write(folder.join("coua.cdx.json"), sbom::text()?)?;
    fs::copy(root().join("CHANGELOG.md"), folder.join("CHANGELOG.md"))?;
    run_command(
        program("cp")
            .args(["-r", "packaging/debian"])
            .arg(folder.join("debian")),
    )?;
    let version = version()?;
    identify(&folder.join("debian"), &version)?;
    let mut pack = program("dpkg-buildpackage");
    pack.args(["--build=binary", "--no-sign"]);
    run_command(pack.current_dir(&folder))?;

    let architecture = read(program("dpkg").arg("--print-architecture"))?;
    ["coua", "coua-dpdk"]
        .iter()
        .map(|name| {
            let path = all.join(format!("{name}_{version}_{architecture}.deb"));
            ensure!(path.is_file(), "there is no {}", path.display());
            println!("{}", path.display());
            Ok(path)
        })
        .collect()
}

/// The program, built with a feature or without.
fn built(flags: &Flags, feature: Option<&str>) -> Result<PathBuf> {
    if !flags.quick {
        release::run(&release::Flags::of_feature(feature))?;
        return Ok(release::folder()?.join("coua"));
    }
    let features = feature.iter().flat_map(|feature| ["--features", feature]);
    run_command(
        cargo()
            .args(["build", "--release", "-p", "coua"])
            .args(features),
    )?;
    Ok(target().join("release/coua"))
}

/// The version of the packages: the workspace's version, packaged for the first time, for this
/// release of the distribution. A later release's version sorts after it, and a candidate's before
/// the version that it is a candidate for.
fn version() -> Result<String> {
    let upstream = env!("CARGO_PKG_VERSION").replace('-', "~");
    let system = fs::read_to_string("/etc/os-release").context("/etc/os-release")?;
    let value = |name: &str| {
        let line = system.lines().find_map(|line| line.strip_prefix(name))?;
        Some(line.trim_matches('"').to_owned())
    };
    // A release that is not out yet has no number.
    let release = value("VERSION_ID=").zip(value("ID="));
    let release = release.map(|(number, name)| format!("~{name}{number}"));
    Ok(format!("{upstream}-1{}", release.unwrap_or_default()))
}

/// Writes version and maintainer into `debian`. As for Debian's own tools, `DEBFULLNAME` and
/// `DEBEMAIL` name the maintainer.
fn identify(debian: &Path, version: &str) -> Result<()> {
    let named = |variable, otherwise: &str| env::var(variable).unwrap_or(otherwise.to_owned());
    let name = named("DEBFULLNAME", "The coua authors");
    let address = named("DEBEMAIL", "maintainers@coua.invalid");
    let control = debian.join("control");
    let text = fs::read_to_string(&control)?;
    fs::write(
        &control,
        text.replace("@MAINTAINER@", &format!("{name} <{address}>")),
    )?;
    // The same commit gives the same packages.
    let time = read(program("git").args(["log", "-1", "--format=%cD"]))
        .or_else(|_| read(program("date").arg("-R")))?;
    let entry = format!(
        "coua ({version}) unstable; urgency=medium\n\n  * What is new is in changelog.gz.\n\n -- {name} <{address}>  {time}\n"
    );
    Ok(fs::write(debian.join("changelog"), entry)?)
}
