//! Which of the workspace's crates may import which.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use serde_json::Value;

use super::Findings;
use crate::commands::{cargo, read};

/// Each crate, and which others it may import; `dev-` if only its tests may.
const ALLOWED: &[(&str, &[&str])] = &[
    ("coua-cpu", &[]),
    ("coua-memory-errors", &[]),
    (
        "coua-flash",
        &["coua-cpu", "coua-memory-errors", "dev-coua-memory-errors"],
    ),
    ("coua-rdma", &[]),
    ("coua-protocol", &["coua-cpu"]),
    (
        "coua-client",
        &["coua-protocol", "coua-rdma", "dev-coua-rdma"],
    ),
    ("coua-client-c", &["coua-client"]),
    (
        "coua-store",
        &[
            "coua-cpu",
            "coua-flash",
            "coua-memory-errors",
            "dev-coua-flash",
        ],
    ),
    ("coua-dpdk-sys", &[]),
    ("coua-tcp", &["coua-cpu"]),
    ("coua-transport", &["coua-cpu", "coua-dpdk-sys", "coua-tcp"]),
    (
        "coua",
        &[
            "coua-cpu",
            "coua-flash",
            "coua-memory-errors",
            "coua-protocol",
            "coua-rdma",
            "coua-store",
            "coua-transport",
            "dev-coua-tcp",
        ],
    ),
    (
        "coua-bench",
        &[
            "coua-protocol",
            "coua-tcp",
            "dev-coua-tcp",
            "coua-transport",
            "coua-store",
            "coua",
        ],
    ),
    ("coua-top", &["coua"]),
    (
        "coua-sim",
        &["coua-protocol", "coua-store", "coua-transport", "coua"],
    ),
    ("xtask", &[]),
];

/// Compares the table with what cargo reports.
pub(crate) fn check(findings: &mut Findings) -> Result<()> {
    let metadata = read(cargo().args(["metadata", "--format-version=1", "--no-deps"]))?;
    for (name, imports) in imports(&metadata)? {
        let Some((_, allowed)) = ALLOWED.iter().find(|(of, _)| *of == name) else {
            findings.complain(format!(
                "the crate {name} is not in the import table of xtask/src/tidy/imports.rs"
            ));
            continue;
        };
        for import in imports {
            if !allowed.contains(&import.as_str()) {
                findings.complain(format!(
                    "{name} imports {import}, which the import table does not allow"
                ));
            }
        }
    }
    Ok(())
}

/// Each crate of the workspace, with the crates of the workspace that it imports, also for tests.
fn imports(metadata: &str) -> Result<BTreeMap<String, Vec<String>>> {
    let metadata: Value = serde_json::from_str(metadata)?;
    let packages = metadata["packages"]
        .as_array()
        .context("cargo metadata lists packages")?;
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let mut imports = BTreeMap::new();
    for package in packages {
        let dependencies = package["dependencies"]
            .as_array()
            .context("a package lists dependencies")?;
        let ours = dependencies
            .iter()
            .filter(|dependency| dependency["path"].is_string())
            // It may depend on itself, to have features in its own tests.
            .filter(|dependency| dependency["name"] != package["name"]);
        let names = ours.map(|dependency| {
            let of_tests = if dependency["kind"] == "dev" {
                "dev-"
            } else {
                ""
            };
            format!("{of_tests}{}", text(&dependency["name"]))
        });
        imports.insert(text(&package["name"]), names.collect());
    }
    Ok(imports)
}

#[test]
fn imports_are_read_from_cargo_metadata() {
    let metadata = r#"{"packages": [{"name": "a", "dependencies": [
        {"name": "b", "path": "/b", "kind": null}, {"name": "c", "path": "/c", "kind": "dev"},
        {"name": "serde", "kind": null}]}]}"#;
    let imports = imports(metadata).expect("it is well formed");
    assert_eq!(imports["a"], ["b", "dev-c"]);
}
