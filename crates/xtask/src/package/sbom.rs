//! `cargo xtask sbom`: what the server is made of, as a bill of materials in CycloneDX.
//!
//! It names the crates that are linked into `coua`, with their versions, licences and checksums, and which of them needs
//! which. The same commit gives the same bytes.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::Args;
use serde_json::{Value, json};

use super::licences::linked;
use crate::commands::{cargo, program, read, root};

/// Where to write it
#[derive(Debug, Args)]
pub(crate) struct Flags {
    /// A file for it; standard output without
    file: Option<PathBuf>,
}

/// Writes the bill of materials of the server.
///
/// # Errors
/// If cargo does not know a crate, or if the file cannot be written.
pub(crate) fn run(flags: &Flags) -> Result<()> {
    let text = text()?;
    match &flags.file {
        Some(path) => {
            fs::write(path, text).with_context(|| path.display().to_string())?;
            println!("{}", path.display());
        }
        None => print!("{text}"),
    }
    Ok(())
}

/// The bill of materials, as JSON that ends with a line feed.
pub(super) fn text() -> Result<String> {
    let metadata = read(cargo().args(["metadata", "--format-version=1", "--locked"]))?;
    let metadata: Value = serde_json::from_str(&metadata)?;
    let packages = metadata["packages"].as_array().context("no packages")?;
    let nodes = metadata["resolve"]["nodes"]
        .as_array()
        .context("no graph")?;
    let checksums = checksums()?;

    // By cargo's own names, which the graph has, too.
    let mut wanted: BTreeMap<&str, &Value> = BTreeMap::new();
    for (name, version) in linked()? {
        let package = packages.iter().find(|package| {
            package["name"] == name.as_str() && package["version"] == version.as_str()
        });
        let package = package.with_context(|| format!("{name} {version} is not known"))?;
        wanted.insert(package["id"].as_str().context("no id")?, package);
    }
    let own = wanted
        .values()
        .find(|package| package["name"] == "coua")
        .context("the server is not among what is linked")?;

    let mut components = Vec::new();
    let mut dependencies = Vec::new();
    for (id, package) in &wanted {
        if package["name"] != "coua" {
            components.push(component(package, &checksums, "library")?);
        }
        let node = nodes.iter().find(|node| node["id"] == *id);
        let needs = node.and_then(|node| node["dependencies"].as_array());
        let needs = needs.context("a crate that the graph lacks")?.iter();
        let needs: Vec<String> = needs
            .filter_map(|id| wanted.get(id.as_str()?))
            .map(|package| reference(package))
            .collect();
        dependencies.push(json!({ "ref": reference(package), "dependsOn": needs }));
    }
    components.sort_by_key(|component| component["bom-ref"].to_string());
    dependencies.sort_by_key(|dependency| dependency["ref"].to_string());
    let time = read(
        program("git")
            .args(["log", "-1", "--date=format-local:%Y-%m-%dT%H:%M:%SZ"])
            .arg("--format=%cd")
            .env("TZ", "UTC"),
    )?;
    let bill = json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {
            "timestamp": time,
            "component": component(own, &checksums, "application")?,
        },
        "components": components,
        "dependencies": dependencies,
    });
    Ok(serde_json::to_string_pretty(&bill)? + "\n")
}

fn component(package: &Value, checksums: &BTreeMap<String, String>, kind: &str) -> Result<Value> {
    let name = package["name"].as_str().context("no name")?;
    let version = package["version"].as_str().context("no version")?;
    let mut component = json!({
        "type": kind,
        "bom-ref": reference(package),
        "name": name,
        "version": version,
    });
    // The crates of this workspace are on no registry.
    if !package["source"].is_null() {
        component["purl"] = reference(package).into();
        if let Some(checksum) = checksums.get(&format!("{name} {version}")) {
            component["hashes"] = json!([{ "alg": "SHA-256", "content": checksum }]);
        }
    }
    if let Some(licence) = package["license"].as_str() {
        // Some crates write "MIT/Apache-2.0", as was right before SPDX.
        component["licenses"] = json!([{ "expression": licence.replace('/', " OR ") }]);
    }
    Ok(component)
}

/// What the bill of materials calls a crate.
fn reference(package: &Value) -> String {
    let word = |name: &str| package[name].as_str().unwrap_or_default().to_owned();
    format!("pkg:cargo/{}@{}", word("name"), word("version"))
}

/// The checksums of `Cargo.lock`, by name and version.
fn checksums() -> Result<BTreeMap<String, String>> {
    let lock = fs::read_to_string(root().join("Cargo.lock"))?;
    let mut found = BTreeMap::new();
    for package in lock.split("[[package]]") {
        let value = |name: &str| {
            let line = package
                .lines()
                .find_map(|line| line.strip_prefix(&format!("{name} = ")))?;
            Some(line.trim_matches('"').to_owned())
        };
        if let (Some(name), Some(version), Some(checksum)) =
            (value("name"), value("version"), value("checksum"))
        {
            found.insert(format!("{name} {version}"), checksum);
        }
    }
    Ok(found)
}
