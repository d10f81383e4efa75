//! Tells the program which commit it is built from (`COUA_BUILD`), so that two builds of one version can be told
//! apart. Without git, and in builds for development, there is the version alone; whoever builds from an archive sets
//! `COUA_COMMIT`.

use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=COUA_COMMIT");
    let commit = std::env::var("COUA_COMMIT")
        .ok()
        .filter(|commit| !commit.is_empty());
    if let Some(commit) = commit.or_else(commit_of_git) {
        let version = std::env::var("CARGO_PKG_VERSION").unwrap_or_default();
        println!("cargo::rustc-env=COUA_BUILD={version}+{commit}");
    }
}

/// The commit, and whether the tree has changes. Only for release builds: others would be built anew at each commit.
fn commit_of_git() -> Option<String> {
    if std::env::var("PROFILE").ok()? != "release" {
        return None;
    }
    let log = git(&["rev-parse", "--git-path", "logs/HEAD"])?;
    println!("cargo::rerun-if-changed={log}");
    git(&[
        "describe",
        "--always",
        "--exclude=*",
        "--abbrev=12",
        "--dirty",
    ])
}

/// What git says on one line; nothing where there is no git, or no repository.
fn git(words: &[&str]) -> Option<String> {
    let output = Command::new("git").args(words).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    let line = text.trim().to_owned();
    (output.status.success() && !line.is_empty()).then_some(line)
}
