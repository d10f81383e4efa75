//! What the server says where RDMA is off, and where it cannot be had; who may use it.

use super::process::{Process, coua};
use coua_rdma::Offer;
use coua_rdma::libfabric::Link;

use super::{Client, LENT_LEN, Lines, PATIENCE, Server, server, value};

#[test]
fn without_the_flag_there_is_no_such_command() {
    let server = Server::start(&[]);
    let mut lines = Lines::connect(&server);
    assert_eq!(lines.ask("rdma\r\n"), "ERROR");
    assert_eq!(lines.ask("stats rdma\r\n"), "END");
}

#[test]
fn what_is_missing_is_said_in_one_line() {
    if !super::has_libfabric() {
        return;
    }
    for (flag, why) in [
        ("192.0.2.77,provider=tcp", "cannot listen"),
        (
            "127.0.0.1",
            "libfabric's provider \"verbs\" has no device with this address",
        ),
        ("127.0.0.1,provider=shm", "neither verbs nor tcp"),
    ] {
        let end = Process::start(coua(&["--rdma", flag])).end();
        let status = end.status.code().expect("no signal");
        let said = end.one_line(status);
        assert_ne!(status, 0, "{flag}");
        assert!(
            said.contains("--rdma") && said.contains(why),
            "{flag}: {said}"
        );
    }
}

#[test]
fn who_must_log_in_does_so_first_and_has_the_same_rights_over_rdma() {
    let file = std::env::temp_dir().join(format!("coua-rdma-users-{}", std::process::id()));
    let users = "boss:b\nreader:r\n[reader]\nrights = [\"read\"]\nprefixes = [\"own:\"]\n";
    std::fs::write(&file, users).expect("the folder is there");
    let path = file.to_str().expect("text").to_owned();
    let Some(server) = server(&["-Y", &path]) else {
        return;
    };
    let _ = std::fs::remove_file(&file);
    let mut lines = Lines::connect(&server);
    let refused = lines.ask("rdma\r\n");
    assert!(
        Offer::decode(&refused).is_none(),
        "not before a login: {refused}"
    );
    let client = |name: &str| {
        let mut lines = Lines::connect(&server);
        let login = format!("set auth 0 0 {}\r\n{name}\r\n", name.len());
        assert_eq!(lines.ask(&login), "STORED");
        let offer = lines.offer();
        let link = Link::connect(&offer, LENT_LEN, PATIENCE).expect("it was offered");
        Client { lines, link }
    };
    let mut boss = client("boss b");
    boss.set("own:a", b"1");
    boss.set("other", b"2");
    let mut reader = client("reader r");
    assert_eq!(
        reader.ask("get own:a\r\n"),
        "VALUE own:a 0 1\r\n1\r\nEND\r\n"
    );
    let denied = "CLIENT_ERROR permission denied\r\n";
    assert_eq!(reader.ask("get other\r\n"), denied);
    assert_eq!(reader.ask("set own:a 0 0 1\r\n3\r\n"), denied);
    let large = value(50_000, 1);
    let reply = reader.try_ask(b"set own:a 0 0 50000\r\n", Some(&large), 100);
    assert_eq!(reply.expect("room"), denied.as_bytes());
    assert_eq!(
        reader.ask("get own:a\r\n"),
        "VALUE own:a 0 1\r\n1\r\nEND\r\n"
    );
    reader.lines.wait_for("staging_bytes", 0);
}
