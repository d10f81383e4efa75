use super::{Owner, Users};
use crate::permissions::{Access, User};

fn users(text: &str) -> Users {
    Users::parse(text.as_bytes()).unwrap_or_else(|error| panic!("{text:?}: {error}"))
}

fn error(text: impl AsRef<[u8]>) -> String {
    let users = Users::parse(text.as_ref());
    users.expect_err("a bad file").to_string()
}

#[test]
fn memcached_files_are_read_as_memcached_reads_them() {
    let users = users("alice:secret\nbob:pa:ss word\r\n:nameless\nempty:\n[x:y]\nlast:no newline");
    for (name, password) in [
        ("alice", "secret"),
        ("bob", "pa:ss word"),
        ("", "nameless"),
        ("empty", ""),
        ("[x", "y]"),
        ("last", "no newline"),
    ] {
        let user = users.check(name.as_bytes(), password.as_bytes());
        assert_eq!(user.as_deref(), Some(&User::ALMIGHTY), "{name}");
    }
    let long = "x".repeat(300);
    for (name, password) in [
        ("alice", "secre"),
        ("alice", "secret\0"),
        ("alice", "secret "),
        ("Alice", "secret"),
        ("alice", "pa:ss word"),
        ("bob:pa", "ss word"),
        ("empty", "\0"),
        ("alice", &long),
        (&long, "secret"),
    ] {
        let user = users.check(name.as_bytes(), password.as_bytes());
        assert_eq!(user, None, "{name} {password}");
    }
}

#[test]
fn sections_say_what_users_may_do() {
    let text = "reader:r\napp:old\napp:new\nboss:b\n\n[reader]\nrights = [\"read\"]\n\n# A comment.\n\
                [app]\nrights = [\"read\", \"write\"]\nprefixes = [\"app:\", \"b/\"]\n";
    let users = users(text);
    let user = |name: &str, password: &str| {
        let user = users.check(name.as_bytes(), password.as_bytes());
        user.expect("a right password")
    };
    let reader = user("reader", "r");
    assert!(reader.may(Access::GET, b"k") && !reader.may(Access::SET, b"k"));
    assert!(!reader.flush && !reader.admin && !reader.has_all_items());
    for password in ["old", "new"] {
        let app = user("app", password);
        assert!(app.may(Access::SET, b"app:1") && app.may(Access::GET, b"b/"));
        assert!(!app.may(Access::GET, b"app") && !app.may(Access::SET, b"c"));
    }
    assert!(user("boss", "b").has_all_items());
}

#[test]
fn errors_name_the_line_and_no_password() {
    assert_eq!(
        error(""),
        "has no line user:password, and no user with certificates"
    );
    assert_eq!(
        error("[a]\n"),
        "has no line user:password, and no user with certificates"
    );
    assert_eq!(error("a:b\nsecret\n"), "line 2 is not user:password");
    let long = format!("a:b\nc:{}\n", "x".repeat(254));
    assert_eq!(error(long), "line 2 has more than 255 bytes");
    let many = "a:b\n".repeat(65);
    assert_eq!(
        error(many),
        "line 65 is one too many: 64 passwords may be there"
    );
    assert_eq!(
        error("a:b\n[c]\n"),
        "[c] is about nobody: it has no line with a password, and no certificates"
    );
    assert_eq!(
        error("a:b\n[a]\nprefixes = [\"\"]\n"),
        "[a] has an empty prefix: leave prefixes out for all keys"
    );
    for (text, line) in [
        ("a:b\n\n[a]\nrights = [\"raed\"]\n", "line 4: "),
        ("a:b\n[a]\nright = [\"read\"]\n", "line 3: "),
        ("a:b\n[a]\nc:secret\n", "line 3: "),
    ] {
        let error = error(text);
        assert!(
            error.starts_with(line) && !error.contains("secret"),
            "{error}"
        );
    }
    assert_eq!(error(b"a:b\n[a]\n# \xff\n"), "line 3: is not text in UTF-8");
}

#[test]
fn certificates_name_users_with_or_without_a_password() {
    let text = "app:pass\n[app]\nrights = [\"read\"]\ncertificates = [\"CN:app\", \"DNS:a.example\"]\n\
                [probe]\ncertificates = [\"URI:spiffe://example/probe\"]\nprefixes = [\"p:\"]\n";
    let users = users(text);
    assert_eq!((users.len(), users.certificates()), (1, 3));
    let owner = |names: &[&str]| {
        let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
        users.owner(&names)
    };
    let Owner::User(app) = owner(&["CN:other", "DNS:a.example", "CN:app"]) else {
        panic!("not app's");
    };
    assert!(app.read && !app.write && !app.admin);
    let Owner::User(probe) = owner(&["URI:spiffe://example/probe"]) else {
        panic!("not the probe's");
    };
    assert!(probe.admin && probe.may(Access::SET, b"p:1") && !probe.may(Access::SET, b"q"));
    // The kind is a part of the name, and names are compared to the byte.
    for other in [
        &["DNS:app"][..],
        &["CN:a.example", "CN:App"],
        &["app", ""],
        &[],
    ] {
        assert_eq!(owner(other), Owner::Nobody, "{other:?}");
    }
    let both = ["CN:app", "URI:spiffe://example/probe"];
    assert_eq!(owner(&both), Owner::Several);
    assert_eq!(users.check(b"probe", b""), None);

    // A file may have certificates alone.
    assert_eq!(
        Users::parse(text["app:pass\n".len()..].as_bytes())
            .map(|users| users.len())
            .ok(),
        Some(0)
    );
    assert_eq!(
        error("[a]\ncertificates = [\"a\"]\n"),
        "[a] has the certificate \"a\": names begin with CN: DNS: email: URI:"
    );
    assert_eq!(
        error("[a]\ncertificates = [\"CN:x\"]\n[b]\ncertificates = [\"CN:x\"]\n"),
        "[b] has the certificate \"CN:x\", which another section has too"
    );
}
