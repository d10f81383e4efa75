//! `cargo xtask tidy`: those rules of CONTRIBUTING.md that a machine can check.
//!
//! Each rule reads the repository's files and makes complaints. A warning is printed and fails
//! nothing.

mod circles;
mod glossary;
mod imports;
mod log_lines;
mod rust_code;
mod text;
mod unsafe_code;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::commands::root;

/// Files that a newcomer looks for.
const PAPERS: [&str; 8] = [
    "README.md",
    "ARCHITECTURE.md",
    "CONTRIBUTING.md",
    "CHANGELOG.md",
    "SECURITY.md",
    "LICENSE-MIT",
    "LICENSE-APACHE",
    ".ci/run",
];

/// One text file of the repository.
pub(crate) struct SourceFile {
    /// Its path from the root, with slashes.
    pub(crate) path: String,
    /// Its whole text.
    pub(crate) text: String,
}

/// What the rules found.
#[derive(Default)]
pub(crate) struct Findings {
    complaints: Vec<String>,
    warnings: Vec<String>,
}

impl Findings {
    /// Adds something that must be mended.
    pub(crate) fn complain(&mut self, complaint: String) {
        self.complaints.push(complaint);
    }

    /// Adds something to think about.
    pub(crate) fn warn(&mut self, warning: String) {
        self.warnings.push(warning);
    }
}

/// Checks everything and prints what was found.
///
/// # Errors
/// If there is at least one complaint.
pub(crate) fn run() -> Result<()> {
    let files = files()?;
    let mut findings = Findings::default();
    imports::check(&mut findings)?;
    circles::check(&files, &mut findings)?;
    glossary::check(&files, &mut findings)?;
    log_lines::check(&files, &mut findings)?;
    unsafe_code::check(&files, &mut findings)?;
    text::check(&files, &mut findings);
    papers(&mut findings);
    crates(&files, &mut findings)?;

    for warning in &findings.warnings {
        println!("warning: {warning}");
    }
    for complaint in &findings.complaints {
        println!("tidy: {complaint}");
    }
    if !findings.complaints.is_empty() {
        bail!(
            "{} complaints in {} files",
            findings.complaints.len(),
            files.len()
        );
    }
    println!(
        "tidy: {} files are well, {} warnings",
        files.len(),
        findings.warnings.len()
    );
    Ok(())
}

fn papers(findings: &mut Findings) {
    for paper in PAPERS {
        if !root().join(paper).is_file() {
            findings.complain(format!("{paper} is missing"));
        }
    }
}

/// Each crate uses the workspace's lints, and ARCHITECTURE.md says what it is for.
fn crates(files: &[SourceFile], findings: &mut Findings) -> Result<()> {
    let architecture = fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap_or_default();
    for entry in fs::read_dir(root().join("crates"))? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        if !architecture.contains(&format!("crates/{name}"))
            && !architecture.contains(&format!("`{name}`"))
        {
            findings.complain(format!("ARCHITECTURE.md does not name crates/{name}"));
        }
        let manifest = format!("crates/{name}/Cargo.toml");
        let text = files
            .iter()
            .find(|file| file.path == manifest)
            .map_or("", |file| &file.text);
        for wanted in [
            "[lints]\nworkspace = true",
            "license.workspace = true",
            "edition.workspace = true",
        ] {
            if !text.contains(wanted) {
                findings.complain(format!(
                    "{manifest}: `{}` is missing",
                    wanted.replace('\n', " ")
                ));
            }
        }
    }
    Ok(())
}

/// Every text file that git tracks or would track; without git, every file outside build folders.
fn files() -> Result<Vec<SourceFile>> {
    let mut paths = Vec::new();
    walk(&root(), &mut paths).context("the repository cannot be read")?;
    paths.sort();
    let mut files = Vec::new();
    for path in paths {
        // What is not UTF-8 is not text: fuzz corpora, pictures.
        if let Ok(text) = fs::read_to_string(&path) {
            let path = path
                .strip_prefix(root())
                .unwrap_or(&path)
                .to_string_lossy()
                .replace('\\', "/");
            files.push(SourceFile { path, text });
        }
    }
    Ok(files)
}

fn walk(folder: &Path, paths: &mut Vec<PathBuf>) -> Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let kind = entry.file_type()?;
        if kind.is_dir() {
            let skipped = name == ".git"
                || name.starts_with("target")
                || name == "corpus"
                || name == "artifacts";
            if !skipped {
                walk(&entry.path(), paths)?;
            }
        } else if kind.is_file() && name != ".git" {
            // That file is where a further working tree says whose it is.
            paths.push(entry.path());
        }
    }
    Ok(())
}
