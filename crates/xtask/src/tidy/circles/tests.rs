use super::*;

const ROOT: (&str, &str) = ("lib", "mod a; mod b; mod c; pub use c::Cup;");

/// What is complained of in a crate of these modules.
fn complaints(modules: &[(&str, &str)], standing: &[Row<'_>]) -> Vec<String> {
    let files: Vec<SourceFile> = (modules.iter())
        .map(|(name, text)| SourceFile {
            path: format!("crates/x/src/{name}.rs"),
            text: (*text).to_owned(),
        })
        .collect();
    let mut findings = Findings::default();
    check_against(&files, standing, &mut findings);
    findings.complaints
}

fn circle(modules: &[(&str, &str)]) -> String {
    let complaints = complaints(&[&[ROOT], modules].concat(), &[]);
    assert!(complaints.len() < 2, "{complaints:?}");
    complaints.into_iter().next().unwrap_or_default()
}

#[test]
fn modules_that_import_downwards_are_well() {
    assert_eq!(
        circle(&[
            ("a", "use crate::{b::B, c};"),
            ("b", "use super::c::C;"),
            ("c", "")
        ]),
        ""
    );
}

#[test]
fn the_shortest_circle_is_shown_with_its_places() {
    let modules = [
        ("a", "use crate::b::B;"),
        ("b", "fn f() {\n crate::c::g(); }"),
        ("c", "use crate::{b, a::A};"),
    ];
    let shown =
        "crates/x/src: a circle: b (crates/x/src/b.rs:2) imports c (crates/x/src/c.rs:1) imports b";
    assert_eq!(circle(&modules), shown);
}

#[test]
fn names_that_the_root_passes_on_are_followed() {
    let modules = [("a", "use crate::Cup;"), ("b", ""), ("c", "use super::a;")];
    assert!(circle(&modules).contains("a (crates/x/src/a.rs:1) imports c"));
}

#[test]
fn folders_are_one_module_outside_and_are_looked_into() {
    let inside = [
        ("a", "mod d; mod e; use d::D;"),
        ("a/d", "use super::e::E; use super::F;"),
        ("a/e", "use crate::b::B;"),
        ("b", ""),
        ("c", ""),
    ];
    assert_eq!(circle(&inside), "");
    let up = [&inside[..], &[("a/f", "use super::d::D;")]].concat();
    assert_eq!(circle(&up), "");
    let around = [&inside[..3], &[("b", "use crate::a;"), ("c", "")]].concat();
    assert!(
        circle(&around).starts_with("crates/x/src: a circle: a (crates/x/src/a/e.rs:1) imports b")
    );
    let within = [&inside[..2], &[("a/e", "fn f(_: super::d::D) {}")]].concat();
    assert!(
        circle(&within)
            .starts_with("crates/x/src/a: a circle: d (crates/x/src/a/d.rs:1) imports e")
    );
}

#[test]
fn tests_strings_comments_and_visibility_count_for_nothing() {
    let quiet = [
        (
            "a",
            "use crate::b::B; #[cfg(test)] mod t; #[cfg(test)] mod u { use crate::b; }",
        ),
        ("a/t", "use crate::b::B;"),
        (
            "b",
            "// use crate::a::A;\n const S: &str = \"crate::a::A\"; #[cfg(test)] mod t { use crate::a; }",
        ),
        ("b/v", "pub(in crate::b) fn f() {}"),
        ("c", "pub(in super::a) struct S;"),
    ];
    assert_eq!(circle(&quiet), "");
}

#[test]
fn modules_written_out_in_a_file_have_it_as_their_parent() {
    let modules = [
        ("a", "mod i { use super::super::b::B; use super::b; }"),
        ("b", "use crate::a;"),
        ("c", ""),
    ];
    assert!(circle(&modules).contains("a (crates/x/src/a.rs:1) imports b"));
    let own = [
        ("a", "mod b {} mod i { use super::b::B; }"),
        ("b", "use crate::a;"),
        ("c", ""),
    ];
    assert_eq!(circle(&own), "");
}

#[test]
fn each_row_of_the_list_breaks_a_circle() {
    let modules = [
        ROOT,
        ("a", "use crate::b;"),
        ("b", "use crate::a;"),
        ("c", "use crate::b;"),
    ];
    let row = |from, to| ("crates/x/src", from, to);
    assert_eq!(complaints(&modules, &[row("a", "b")]), [""; 0]);
    assert_eq!(
        complaints(&modules, &[row("a", "b"), row("b", "a")]).len(),
        2
    );
    assert_eq!(
        complaints(&modules, &[row("a", "b"), row("c", "b")]).len(),
        1
    );
    assert_eq!(
        complaints(&modules, &[row("a", "b"), row("c", "a")]).len(),
        1
    );
}

#[test]
fn rows_need_a_reason() {
    let mut findings = Findings::default();
    let list = "# about\na/src: b -> c: it cannot be helped\na/src: b -> d: so\na/src: b\n";
    assert_eq!(rows(list, &mut findings), [("a/src", "b", "c")]);
    assert_eq!(findings.complaints.len(), 2);
}
