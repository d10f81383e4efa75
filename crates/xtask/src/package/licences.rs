//! The licences of other people's crates in the server: most ask that their text goes with it.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use serde_json::Value;

use crate::commands::{cargo, read};

/// How the names of files with a licence begin.
const NAMES: &[&str] = &["LICENSE", "LICENCE", "COPYING", "NOTICE", "UNLICENSE"];

/// Each crate with its licences: first their names, then their texts, each once.
pub(super) fn text() -> Result<String> {
    let metadata = read(cargo().args(["metadata", "--format-version=1", "--locked"]))?;
    let metadata: Value = serde_json::from_str(&metadata)?;
    let packages = metadata["packages"].as_array().context("no packages")?;

    let mut text = String::from(
        "The programs hold compiled code of these crates, and of Rust's standard library (MIT or Apache-2.0).\n\n",
    );
    // The crates that have a text, by text.
    let mut texts: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for (name, version) in linked()? {
        let package = packages.iter().find(|package| {
            package["name"] == name.as_str() && package["version"] == version.as_str()
        });
        let package = package.with_context(|| format!("{name} {version} is not known"))?;
        // The crates of this workspace have no source but this repository, and its licence.
        if package["source"].is_null() {
            continue;
        }
        let name = package["name"].as_str().context("no name")?;
        let licence = package["license"].as_str().unwrap_or("see below");
        writeln!(text, "{name} {version}: {licence}")?;
        let manifest = package["manifest_path"].as_str().context("no manifest")?;
        let folder = Path::new(manifest).parent().context("no folder")?;
        for licence in licences_in(folder)? {
            texts.entry(licence).or_default().push(name);
        }
    }
    for (licence, names) in texts {
        let line = "-".repeat(80);
        writeln!(text, "\n{line}\n{}\n\n{}", names.join(", "), licence)?;
    }
    Ok(text)
}

/// Names and versions of the crates that are linked into the programs of the packages, the server and `coua-top`,
/// without those that only build them.
pub(super) fn linked() -> Result<Vec<(String, String)>> {
    let tree = read(cargo().args([
        "tree",
        "--locked",
        "--package=coua",
        "--package=coua-top",
        "--features=coua/dpdk",
        "--edges=normal,no-proc-macro",
        "--prefix=none",
        "--format={p}",
    ]))?;
    let mut all: Vec<_> = tree
        .lines()
        .filter_map(|line| {
            let (name, rest) = line.split_once(" v")?;
            let version = rest.split(' ').next()?;
            Some((name.to_owned(), version.to_owned()))
        })
        .collect();
    all.sort();
    all.dedup();
    Ok(all)
}

/// The texts of the licences in a crate's folder.
fn licences_in(folder: &Path) -> Result<Vec<String>> {
    let mut texts = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().to_uppercase();
        if entry.file_type()?.is_file() && NAMES.iter().any(|begin| name.starts_with(begin)) {
            texts.push(fs::read_to_string(entry.path())?.trim_end().to_owned());
        }
    }
    Ok(texts)
}
