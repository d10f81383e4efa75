//! `packaging/fleet/copy-items` between servers that are secured.

use std::process::Command;

use crate::Secured;
use crate::certificates::ask;
use crate::process::{Client, Process, coua};

#[test]
fn items_are_copied_over_tls_and_behind_logins() {
    let authority = Secured::authority();
    let users = authority.file("users");
    std::fs::write(&users, "copier:a pass:word\n").expect("a file");
    let from = Process::start(coua(&["-Y", &users, "-t", "1"]));
    let login = "set l 0 0 18\r\ncopier a pass:word\r\n";
    let mut client = Client::connect(from.address());
    assert_eq!(client.ask(login), "STORED");
    for number in 0..250 {
        let set = format!("set key{number} 7 0 5\r\nv{number:04}\r\n");
        assert_eq!(client.ask(&set), "STORED");
    }
    // One that asks for certificates and for no login.
    let to = Secured::with(authority, ",ssl_verify_mode=2", &["-t", "1"]);
    let file = |name: &str| to.authority.file(name);
    let script = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../packaging/fleet/copy-items"
    );
    let copy = |more: &[&str]| {
        let (source, target) = (from.address().to_string(), format!("tls:{}", to.address));
        let mut command = Command::new("python3");
        command
            .args([script, "--from", &source, "--to", &target])
            .args(more);
        let output = command.output().expect("python3 is installed");
        let said = [output.stdout, output.stderr].concat();
        (
            output.status.success(),
            String::from_utf8_lossy(&said).into_owned(),
        )
    };
    let (certificate, key) = (file("client.pem"), file("client.key"));
    let (ca, users) = (file("ca.pem"), file("users"));
    let tls = ["--ca", &ca, "--certificate", &certificate, "--key", &key];
    let (is_done, said) = copy(&[&tls[..], &["--login", &users]].concat());
    assert!(
        is_done && said.starts_with("250 items: 250 copied, "),
        "{said}"
    );
    let mut reader = crate::certificates::encrypt(
        std::net::TcpStream::connect(to.address).expect("the kernel accepts"),
        &to.authority.client(Some("client")),
    );
    let got = b"VALUE key249 7 5\r\nv0249\r\nEND\r\n";
    ask(&mut reader, b"get key249\r\n", got);
    // The login is no item where none was asked for.
    ask(&mut reader, b"get login\r\n", b"END\r\n");

    // What is wrong is said.
    let (is_done, said) = copy(&tls);
    assert!(!is_done && said.contains("unauthenticated"), "{said}");
    let (is_done, said) = copy(&["--login", &users]);
    assert!(
        !is_done && said.contains("CERTIFICATE_VERIFY_FAILED"),
        "{said}"
    );
    std::fs::write(&users, "copier:wrong\n").expect("a file");
    let (is_done, said) = copy(&[&tls[..], &["--login", &users]].concat());
    assert!(
        !is_done && said.contains("the login of copier is answered"),
        "{said}"
    );
}
