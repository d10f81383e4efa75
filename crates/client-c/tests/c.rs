//! The library as C and Python see it, over real sockets: a program in C under AddressSanitizer, which also
//! finds leaks, the example, and ctypes.

#[path = "../../client/tests/support/mod.rs"]
mod support;

use std::collections::BTreeMap;
use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use support::certificates::certificate;
use support::fake::{Act, Fake};
use support::{Over, Program, Server};

const BOTH: [Program; 2] = [Program::Coua, Program::Memcached];

/// The shared library, which lies beside this test.
fn library() -> PathBuf {
    let own = env::current_exe().expect("a test has a path");
    let library = own.with_file_name("libcouaclient.so");
    assert!(library.is_file(), "{} is not built", library.display());
    library
}

fn here() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Runs a command to a good end and returns what it printed.
fn run(command: &mut Command) -> String {
    let output = command.output();
    let output = output.unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {stderr}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Installs the library, and compiles a program against what pkg-config says of it, with AddressSanitizer.
fn compiled(source: &str, folder: &Path) -> PathBuf {
    let (program, prefix) = (folder.join("program"), folder.join("prefix"));
    let library = library();
    let built = library.parent().expect("a file is in a folder");
    run(Command::new(here().join("install")).arg(&prefix).arg(built));
    let flags = run(Command::new("pkg-config")
        .env("PKG_CONFIG_PATH", prefix.join("lib/pkgconfig"))
        .args(["--cflags", "--libs", "couaclient"]));
    let warnings = ["-std=c11", "-Wall", "-Wextra", "-Wpedantic", "-Werror"];
    run(Command::new("cc")
        .args(warnings)
        .args(["-g", "-fsanitize=address,undefined", "-pthread"])
        .arg(here().join(source))
        .arg("-o")
        .arg(&program)
        .args(flags.split_whitespace())
        .arg(format!("-Wl,-rpath,{}", prefix.join("lib").display())));
    program
}

#[test]
fn every_function_in_c() {
    let folder = tempfile::tempdir().expect("a folder");
    let program = compiled("tests/programs/operations.c", folder.path());
    for kind in BOTH {
        for over in [Over::Tcp, Over::Unix] {
            let server = Server::start(kind, over);
            let printed = run(Command::new(&program).arg(&server.address));
            assert_eq!(printed, "all well\n");
        }
    }
}

/// A set without an answer may have been done; C learns it from the status.
#[test]
fn an_unknown_outcome_in_c() {
    let folder = tempfile::tempdir().expect("a folder");
    let program = compiled("tests/programs/operations.c", folder.path());
    let server = Fake::start(|_: usize, _: usize, answer: &[u8]| match answer {
        b"HD\r\n" => Act::Hang,
        _ => Act::Send,
    });
    let address = server.address.to_string();
    let printed = run(Command::new(&program).args([&address, "mute", "operation_timeout_ms=300"]));
    assert_eq!(printed, "all well\n");
}

#[test]
fn the_example_in_c() {
    let folder = tempfile::tempdir().expect("a folder");
    let program = compiled("examples/cache_aside.c", folder.path());
    let server = Server::start(Program::Coua, Over::Tcp);
    let printed = run(Command::new(&program).arg(&server.address));
    let greeting = "a greeting that took long to think of";
    assert_eq!(printed, format!("made: {greeting}\nfound: {greeting}\n"));
}

#[test]
fn through_ctypes() {
    for kind in BOTH {
        let server = Server::start(kind, Over::Tcp);
        let printed = run(Command::new("python3")
            .arg(here().join("tests/programs/through_ctypes.py"))
            .arg(library())
            .arg(&server.address));
        assert_eq!(printed, "all well\n");
    }
}

/// The words of the options reach the server that wants a login.
#[test]
fn a_login_in_c() {
    let folder = tempfile::tempdir().expect("a folder");
    let program = compiled("tests/programs/operations.c", folder.path());
    let users = folder.path().join("users");
    fs::write(&users, "bob:pa:ss word\n").expect("it is written");
    for kind in BOTH {
        let users = users.display().to_string();
        let server = Server::start_with(kind, Over::Tcp, &["-Y", &users]);
        let words = [&server.address, "login", "user=bob password=pa:ss%20word"];
        assert_eq!(run(Command::new(&program).args(words)), "all well\n");
        let words = [&server.address, "no-login", "user=bob password=wrong"];
        assert_eq!(run(Command::new(&program).args(words)), "all well\n");
    }
}

/// Every operation over TLS, and what is said where a certificate is missing or is nobody's.
#[test]
fn encrypted_in_c() {
    let folder = tempfile::tempdir().expect("a folder");
    let program = compiled("tests/programs/operations.c", folder.path());
    let ask = |words: [&str; 3]| run(Command::new(&program).args(words));
    // A folder with a blank in its name, which options escape.
    let blank = folder.path().join("a blank");
    fs::create_dir(&blank).expect("a folder");
    let (strange, strange_key) = certificate(&blank);
    let escaped = |path: &str| path.replace('%', "%25").replace(' ', "%20");
    for kind in BOTH {
        let own = tempfile::tempdir().expect("a folder");
        let (certificate, key) = certificate(own.path());
        let options = format!("ssl_chain_cert={certificate},ssl_key={key}");
        let server = Server::start_with(kind, Over::Tcp, &["-Z", "-o", &options]);
        // A busy machine takes long for a handshake.
        let patient = "connect_timeout_ms=60000 operation_timeout_ms=60000";
        let trusting = format!("{patient} tls_ca_file={certificate}");
        assert_eq!(ask([&server.address, "all", &trusting]), "all well\n");
        let other = format!("tls_ca_file={}", escaped(&strange));
        assert_eq!(ask([&server.address, "untrusted", &other]), "all well\n");
        let named = format!("{trusting} tls_server_name=other.example");
        assert_eq!(ask([&server.address, "untrusted", &named]), "all well\n");
        // Certificates of both sides.
        let wants = format!("{options},ssl_ca_cert={certificate},ssl_verify_mode=2");
        let server = Server::start_with(kind, Over::Tcp, &["-Z", "-o", &wants]);
        let shown = format!("{trusting} tls_cert_file={certificate} tls_key_file={key}");
        assert_eq!(ask([&server.address, "all", &shown]), "all well\n");
        assert_eq!(ask([&server.address, "unknown", &trusting]), "all well\n");
    }
    let unfit = format!(
        "tls_ca_file={0} tls_cert_file={0} tls_key_file={1}",
        escaped(&strange),
        folder.path().join("none").display()
    );
    let said = ask(["127.0.0.1:1", "refused", &unfit]);
    assert!(said.contains("none` cannot be read"), "{said}");
    drop(strange_key);
}

/// Operations that nobody waits for, submitted by many threads and collected by one.
#[test]
fn a_queue_in_c() {
    let folder = tempfile::tempdir().expect("a folder");
    let program = compiled("tests/programs/queue.c", folder.path());
    for kind in BOTH {
        let server = Server::start(kind, Over::Tcp);
        let printed = run(Command::new(&program).args([&server.address, "all"]));
        assert_eq!(printed, "all well\n");
    }
    // Nobody answers: all is given up at the end, and nothing leaks.
    let mute = Fake::start(|_: usize, _: usize, _: &[u8]| Act::Hang);
    let address = mute.address.to_string();
    let printed = run(Command::new(&program).args([&address, "mute"]));
    assert_eq!(printed, "all well\n");
}

#[test]
fn servers_that_are_found_in_c() {
    let folder = tempfile::tempdir().expect("a folder");
    let program = compiled("tests/programs/operations.c", folder.path());
    let ask = |words: [&str; 3]| run(Command::new(&program).args(words));
    let list = folder.path().join("list");
    fs::write(&list, "1\n127.0.0.1||1\n").expect("it is written");
    let option = format!("cluster_config={}", list.display());
    let server = Server::start_with(Program::Coua, Over::Tcp, &["-o", &option]);
    let options = "discovery=cluster discovery_interval_ms=100";
    assert_eq!(ask([&server.address, "1", options]), "all well\n");
    fs::write(&list, "2\n127.0.0.1||1\n127.0.0.1||2\n").expect("it is written");
    support::poll("the new list", || {
        let words = [&server.address, "2", options];
        let output = Command::new(&program)
            .args(words)
            .output()
            .expect("it runs");
        output.status.success().then_some(())
    });
    let said = ask(["127.0.0.1:1", "refused", options]);
    assert!(said.contains("not sent: cannot connect"), "{said}");
    let server = Server::start(Program::Memcached, Over::Tcp);
    let said = ask([&server.address, "refused", options]);
    assert!(said.contains("it has no list of servers"), "{said}");
    assert_eq!(ask([&server.address, "1", "discovery=names"]), "all well\n");
}

/// The header declares what the library has, no more and no less, with the same numbers.
#[test]
fn the_header_is_the_librarys() {
    let header = fs::read_to_string(here().join("include/couaclient.h")).expect("the header");
    let mut declared: Vec<&str> = header
        .lines()
        .filter(|line| line.contains('(') && !line.starts_with([' ', '/', '#', 't']))
        .filter_map(|line| line.split_once('(')?.0.split([' ', '*']).next_back())
        .collect();
    declared.sort_unstable();
    let symbols = run(Command::new("nm")
        .args(["-D", "--defined-only"])
        .arg(library()));
    let symbols = symbols.lines().filter_map(|line| line.split_once(" T "));
    let mut exported: Vec<&str> = symbols
        .map(|(_, name)| name)
        .filter(|name| name.starts_with("coua_"))
        .collect();
    exported.sort_unstable();
    assert_eq!(declared, exported);
    assert!(exported.len() >= 14, "{exported:?}");

    let constants = header.lines().filter_map(|line| {
        let (name, rest) = line.strip_prefix("#define COUA_")?.split_once(' ')?;
        let number = rest.split("/*").next()?.trim().trim_matches(['(', ')']);
        Some((name, number.parse().expect(name)))
    });
    let constants: BTreeMap<&str, i64> = constants.collect();
    use couaclient::{ABI_VERSION, MESSAGE_LEN, cause, status};
    let own = [
        ("ABI_VERSION", i64::from(ABI_VERSION)),
        ("MESSAGE_LEN", MESSAGE_LEN as i64),
        ("OK", status::OK.into()),
        ("MISSING", status::MISSING.into()),
        ("NOT_STORED", status::NOT_STORED.into()),
        ("EXISTS", status::EXISTS.into()),
        ("INVALID", status::INVALID.into()),
        ("NOT_SENT", status::NOT_SENT.into()),
        ("INTERRUPTED", status::INTERRUPTED.into()),
        ("OUTCOME_UNKNOWN", status::OUTCOME_UNKNOWN.into()),
        ("REFUSED", status::REFUSED.into()),
        ("CAUSE_NONE", cause::NONE.into()),
        ("CAUSE_CONNECT", cause::CONNECT.into()),
        ("CAUSE_IO", cause::IO.into()),
        ("CAUSE_CLOSED", cause::CLOSED.into()),
        ("CAUSE_TIMEOUT", cause::TIMEOUT.into()),
        ("CAUSE_PROTOCOL", cause::PROTOCOL.into()),
        ("CAUSE_BUSY", cause::BUSY.into()),
        ("CAUSE_EJECTED", cause::EJECTED.into()),
        ("CAUSE_TURNED_AWAY", cause::TURNED_AWAY.into()),
        ("CAUSE_TLS", cause::TLS.into()),
    ];
    for (name, number) in own {
        assert_eq!(constants.get(name), Some(&number), "{name}");
    }
    let events = [
        ("EVENT_CONNECTED", couaclient::event::CONNECTED),
        ("EVENT_LOST", couaclient::event::LOST),
        ("EVENT_EJECTED", couaclient::event::EJECTED),
        ("EVENT_RETURNED", couaclient::event::RETURNED),
    ];
    for (name, number) in events {
        assert_eq!(constants.get(name), Some(&i64::from(number)), "{name}");
    }
    let operations = 8;
    let modes = ["SET", "ADD", "REPLACE", "APPEND", "PREPEND", "CAS"];
    assert_eq!(
        constants.len(),
        own.len() + events.len() + operations + modes.len()
    );
}
