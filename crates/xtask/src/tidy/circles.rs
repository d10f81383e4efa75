//! Modules of a crate that import one another in a circle.
//!
//! Modules are compared with the other modules in their folder; this includes those in a crate's
//! `src`. A module and the folder of the same name are one. Imports between a module and the module
//! that contains it make no circle. A name that a module passes on (`pub use`) is followed to where
//! it comes from.
//!
//! # Not here
//! Imports of everything in a module (`use super::*`), and paths that begin with an imported name:
//! only the import counts.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fs;

use anyhow::{Context, Result};

use super::rust_code::{Kind, Token, shipped_code};
use super::{Findings, SourceFile};
use crate::commands::root;

/// Imports that close a circle and are allowed for now.
const LIST: &str = "crates/xtask/import-circles.txt";

/// Complains about each circle, and about each row of the list that is not needed.
///
/// # Errors
/// If the list cannot be read.
pub(crate) fn check(files: &[SourceFile], findings: &mut Findings) -> Result<()> {
    let list = fs::read_to_string(root().join(LIST)).context(LIST)?;
    check_against(files, &rows(&list, findings), findings);
    Ok(())
}

/// An import of the list: folder, who imports, and whom.
type Row<'l> = (&'l str, &'l str, &'l str);

fn rows<'l>(list: &'l str, findings: &mut Findings) -> Vec<Row<'l>> {
    let mut rows = Vec::new();
    for line in list.lines().filter(|line| !line.starts_with('#')) {
        let row = line.split_once(": ").and_then(|(folder, rest)| {
            let (from, rest) = rest.split_once(" -> ")?;
            let (to, reason) = rest.split_once(": ")?;
            (reason.len() > 10).then_some((folder, from, to))
        });
        match row {
            Some(row) => rows.push(row),
            None => findings.complain(format!(
                "{LIST}: `folder: from -> to: reason` expected: {line}"
            )),
        }
    }
    rows
}

/// Where an import is.
type Place = String;

/// The modules of one folder: who imports whom, and where.
type Neighbours = BTreeMap<String, BTreeMap<String, Place>>;

fn check_against(files: &[SourceFile], standing: &[Row<'_>], findings: &mut Findings) {
    let mut folders = folders(files);
    let mut removed = Vec::new();
    for &(folder, from, to) in standing {
        let imports = folders.get_mut(folder).and_then(|it| it.get_mut(from));
        match imports.and_then(|imports| imports.remove(to)) {
            Some(place) => removed.push((folder, from, to, place)),
            None => findings.complain(format!(
                "{LIST}: in {folder} {from} does not import {to}: take the row out"
            )),
        }
    }
    for (folder, neighbours) in &folders {
        for circle in circles(neighbours) {
            findings.complain(format!("{folder}: {}", shown(&circle, neighbours)));
        }
    }
    for (folder, from, to, _) in removed {
        if way(&folders[folder], to, from).is_none() {
            findings.complain(format!(
                "{LIST}: in {folder} {from} may import {to} without a row: take it out"
            ));
        }
    }
}

/// `a (a.rs:3) imports b (b.rs:4) imports a`
fn shown(circle: &[&str], neighbours: &Neighbours) -> String {
    let mut shown = String::from("a circle: ");
    for (at, name) in circle.iter().enumerate() {
        let next = circle[(at + 1) % circle.len()];
        let place = &neighbours[*name][next];
        shown.push_str(&format!("{name} ({place}) imports "));
    }
    shown + circle[0]
}

/// For each group of modules that all reach one another, its shortest circle.
fn circles(neighbours: &Neighbours) -> Vec<Vec<&str>> {
    let mut circles: Vec<Vec<&str>> = Vec::new();
    let mut seen = BTreeSet::new();
    for name in neighbours.keys() {
        if !seen.insert(name.as_str()) {
            continue;
        }
        let reaches = |from: &str, to: &str| way(neighbours, from, to).is_some();
        let group = neighbours
            .keys()
            .filter(|other| reaches(name, other) && reaches(other, name));
        let group: Vec<&str> = group.map(String::as_str).collect();
        seen.extend(&group);
        let circle = group
            .iter()
            .filter_map(|member| way(neighbours, member, member));
        circles.extend(circle.min_by_key(Vec::len));
    }
    circles
}

/// The shortest way along imports, without its end; at least one import long.
fn way<'n>(neighbours: &'n Neighbours, from: &str, to: &str) -> Option<Vec<&'n str>> {
    let (from, _) = neighbours.get_key_value(from)?;
    let mut waiting = VecDeque::from([vec![from.as_str()]]);
    let mut seen = BTreeSet::new();
    while let Some(way) = waiting.pop_front() {
        let last = way[way.len() - 1];
        for next in neighbours.get(last).into_iter().flat_map(BTreeMap::keys) {
            if next == to {
                return Some(way);
            }
            if seen.insert(next.as_str()) {
                waiting.push_back([way.as_slice(), &[next.as_str()]].concat());
            }
        }
    }
    None
}

/// A module's path from the crate's root, which has none.
type Path = Vec<String>;

/// A module, as its file states it.
struct Module {
    /// The file, from the repository's root.
    file: String,
    /// The paths that it names, and the lines.
    paths: Vec<(Path, usize)>,
    /// Names that it imports, and what they stand for.
    imported: BTreeMap<String, Path>,
}

/// All folders with modules, by path from the root of the repository.
fn folders(files: &[SourceFile]) -> BTreeMap<String, Neighbours> {
    let mut crates: BTreeMap<&str, Vec<(&SourceFile, Path)>> = BTreeMap::new();
    for file in files {
        let Some((name, path)) = file
            .path
            .strip_prefix("crates/")
            .and_then(|path| path.strip_suffix(".rs"))
            .and_then(|path| path.split_once("/src/"))
        else {
            continue;
        };
        crates
            .entry(name)
            .or_default()
            .push((file, module_path(path)));
    }
    let mut folders = BTreeMap::new();
    for (name, files) in crates {
        add_folders(
            &format!("crates/{name}/src"),
            &modules(&files),
            &mut folders,
        );
    }
    folders
}

fn module_path(file: &str) -> Path {
    match file {
        "lib" | "main" => Path::new(),
        _ => file.split('/').map(str::to_owned).collect(),
    }
}

/// The modules of a crate, without those for tests.
fn modules(files: &[(&SourceFile, Path)]) -> BTreeMap<Path, Module> {
    let code: Vec<_> = (files.iter())
        .map(|(file, path)| (file, path, shipped_code(&file.text)))
        .collect();
    let of_tests: Vec<Path> = (code.iter())
        .flat_map(|(_, path, (_, names))| {
            (names.iter()).map(|name| [path.as_slice(), &[(*name).to_owned()]].concat())
        })
        .collect();
    let mut modules: BTreeMap<Path, Module> = BTreeMap::new();
    for (file, path, (tokens, _)) in &code {
        if of_tests.iter().any(|of_tests| path.starts_with(of_tests)) {
            continue;
        }
        let module = read(&file.path, path, tokens);
        match modules.get_mut(*path) {
            // The root of a library and that of a program.
            Some(other) => other.imported.extend(module.imported),
            None => drop(modules.insert((*path).clone(), module)),
        }
    }
    modules
}

/// Reads the paths in a file from its tokens.
fn read(file: &str, own: &Path, tokens: &[Token<'_>]) -> Module {
    let mut module = Module {
        file: file.to_owned(),
        paths: Vec::new(),
        imported: BTreeMap::new(),
    };
    // Modules that are written out in the file, and the depth of their braces.
    let (mut depth, mut inner) = (0_usize, Vec::new());
    let mut at = 0;
    let mut in_use = false;
    while at < tokens.len() {
        let token = &tokens[at].kind;
        let is = |ahead: usize, text: &str| {
            tokens
                .get(at + ahead)
                .is_some_and(|token| token.kind.is(text))
        };
        match token {
            Kind::Sign("{") => depth += 1,
            Kind::Sign("}") => {
                depth = depth.saturating_sub(1);
                inner.retain(|begin| *begin < depth);
            }
            Kind::Sign(";") => in_use = false,
            Kind::Name("mod") if is(2, "{") => inner.push(depth),
            Kind::Name("use") => {
                in_use = true;
                let mut tree = Tree::new(&tokens[at + 1..]);
                tree.read(&mut Vec::new());
                let levels = inner.len();
                for leaf in tree.leaves {
                    let first = leaf.path.first().map_or("", String::as_str);
                    let absolute = match first {
                        "crate" | "super" | "self" => absolute(&leaf.path, own, levels),
                        // A child of this module, if there is one with this name.
                        _ => [own.as_slice(), &leaf.path].concat(),
                    };
                    module.imported.insert(leaf.name, absolute.clone());
                    module.paths.push((absolute, leaf.line));
                }
            }
            Kind::Name("crate" | "super") if is(1, "::") && !in_use => {
                let visibility = at > 0 && tokens[at - 1].kind.is("in");
                // `super::super` begins at the first of them.
                let goes_on = at > 0 && tokens[at - 1].kind.is("::");
                if !visibility && !goes_on {
                    let mut tree = Tree::new(&tokens[at..]);
                    tree.read(&mut Vec::new());
                    let leaves = tree.leaves.into_iter();
                    let paths =
                        leaves.map(|leaf| (absolute(&leaf.path, own, inner.len()), leaf.line));
                    module.paths.extend(paths);
                }
            }
            _ => {}
        }
        at += 1;
    }
    module
}

/// A path from the crate's root. `levels` modules are written out around it in its file.
fn absolute(path: &[String], own: &Path, levels: usize) -> Path {
    let ups = path.iter().filter(|name| *name == "super").count();
    let rest = path
        .iter()
        .skip_while(|name| *name == "super" || *name == "self" || *name == "crate");
    let base = match path.first().map(String::as_str) {
        Some("crate") => &[][..],
        _ => &own[..own.len().saturating_sub(ups.saturating_sub(levels))],
    };
    base.iter().chain(rest).cloned().collect()
}

/// What a `use` declares: a name, and the path that it stands for.
struct Leaf {
    name: String,
    path: Path,
    line: usize,
}

/// Reads `a::{b, c::d as e, f::*}`.
struct Tree<'t> {
    tokens: &'t [Token<'t>],
    at: usize,
    leaves: Vec<Leaf>,
}

impl<'t> Tree<'t> {
    fn new(tokens: &'t [Token<'t>]) -> Tree<'t> {
        Tree {
            tokens,
            at: 0,
            leaves: Vec::new(),
        }
    }

    fn is(&self, text: &str) -> bool {
        (self.tokens.get(self.at)).is_some_and(|token| token.kind.is(text))
    }

    /// Reads a path after `prefix`, with all its branches.
    fn read(&mut self, prefix: &mut Path) {
        let before = prefix.len();
        let line = self.tokens.get(self.at).map_or(0, |token| token.line);
        loop {
            match self.tokens.get(self.at).map(|token| &token.kind) {
                Some(Kind::Name(name)) => {
                    prefix.push((*name).to_owned());
                    self.at += 1;
                }
                Some(Kind::Sign("{")) => {
                    self.branches(prefix);
                    break;
                }
                // All names in a module: the module itself.
                Some(Kind::Sign("*")) => {
                    self.at += 1;
                    self.leaf(prefix.clone(), line);
                    break;
                }
                _ => break,
            }
            match self.is("::") {
                true => self.at += 1,
                false => {
                    self.leaf(prefix.clone(), line);
                    break;
                }
            }
        }
        prefix.truncate(before);
    }

    fn branches(&mut self, prefix: &mut Path) {
        self.at += 1;
        while self.at < self.tokens.len() && !self.is("}") {
            match self.is(",") {
                true => self.at += 1,
                false => {
                    let before = self.at;
                    self.read(prefix);
                    if self.at == before {
                        return;
                    }
                }
            }
        }
        self.at += 1;
    }

    fn leaf(&mut self, mut path: Path, line: usize) {
        if path.len() > 1 && path.last().is_some_and(|name| name == "self") {
            path.pop();
        }
        let mut name = path.last().cloned().unwrap_or_default();
        if self.is("as")
            && let Some(Kind::Name(other)) = self.tokens.get(self.at + 1).map(|token| &token.kind)
        {
            name = (*other).to_owned();
            self.at += 2;
        }
        self.leaves.push(Leaf { name, path, line });
    }
}

fn add_folders(
    root: &str,
    modules: &BTreeMap<Path, Module>,
    folders: &mut BTreeMap<String, Neighbours>,
) {
    for (own, module) in modules {
        for (path, line) in &module.paths {
            let target = home(path, modules);
            let shared = own.iter().zip(&target).take_while(|(a, b)| a == b).count();
            let (Some(from), Some(to)) = (own.get(shared), target.get(shared)) else {
                continue;
            };
            let folder = [&[root.to_owned()], &own[..shared]].concat().join("/");
            let neighbours = folders.entry(folder).or_default();
            neighbours.entry(to.clone()).or_default();
            let imports = neighbours.entry(from.clone()).or_default();
            imports
                .entry(to.clone())
                .or_insert_with(|| format!("{}:{line}", module.file));
        }
    }
}

/// The module that contains what a path names, following what modules pass on.
fn home(path: &Path, modules: &BTreeMap<Path, Module>) -> Path {
    let mut path = path.clone();
    // More steps than that mean a circle of names.
    for _ in 0..8 {
        let len = (0..=path.len())
            .rev()
            .find(|len| modules.contains_key(&path[..*len]))
            .unwrap_or(0);
        let passed_on =
            (path.get(len)).and_then(|name| modules.get(&path[..len])?.imported.get(name));
        match passed_on {
            Some(origin) if *origin != path[..=len] => {
                path = [origin.as_slice(), &path[len + 1..]].concat();
            }
            _ => {
                path.truncate(len);
                return path;
            }
        }
    }
    Path::new()
}

#[cfg(test)]
mod tests;
