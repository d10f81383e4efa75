//! What users may do, in all dialects.

use crate::sasl;
use crate::{Connection, Guarded};

const DENIED: &str = "CLIENT_ERROR permission denied\r\n";

const USERS: &str = "boss:b\nreader:r\nwriter:w\napp:a\nflusher:f\n
[reader]
rights = [\"read\"]
[writer]
rights = [\"write\"]
[flusher]
rights = [\"flush\"]
[app]
rights = [\"read\", \"write\"]
prefixes = [\"app:\", \"shared/\"]
";

fn guarded() -> (Guarded, Connection) {
    let server = Guarded::start(USERS, &["-S", "-A"]);
    let mut boss = Connection::log_in(server.address, "boss", "b");
    boss.ask("set k 0 0 1\r\n1\r\n", "STORED\r\n");
    boss.ask("set app:k 0 0 1\r\n1\r\n", "STORED\r\n");
    (server, boss)
}

#[test]
fn a_reader_changes_nothing() {
    let (server, mut boss) = guarded();
    let mut reader = Connection::log_in(server.address, "reader", "r");
    reader.ask("get k none\r\n", "VALUE k 0 1\r\n1\r\nEND\r\n");
    reader.ask("mg k v\r\n", "VA 1\r\n1\r\n");
    reader.ask("mn\r\n", "MN\r\n");
    for denied in [
        "set k 0 0 1\r\n2\r\n",
        "add x 0 0 1\r\n2\r\n",
        "append k 0 0 1\r\n2\r\n",
        "cas k 0 0 1 1\r\n2\r\n",
        "delete k\r\n",
        "incr k 1\r\n",
        "touch k 1\r\n",
        "gat 1 k\r\n",
        "gat 1 k k\r\n",
        "ms k 1\r\n2\r\n",
        "ms k 1 q\r\n2\r\n",
        "ms aw== 1 b\r\n2\r\n",
        "md k\r\n",
        "ma k\r\n",
        "mg k T1\r\n",
        "mg x N0 v\r\n",
        "verbosity 1\r\n",
        "cache_memlimit 64\r\n",
        "lru_crawler metadump all\r\n",
        "slabs automove 1\r\n",
        "stats reset\r\n",
        "stats r\r\n",
    ] {
        reader.ask(denied, DENIED);
    }
    // Long values, which arrive in pieces, and what says nothing.
    let long = format!("set k 0 0 500000\r\n{}\r\n", "x".repeat(500_000));
    reader.ask(&long, DENIED);
    let too_long = format!("set k 0 0 2000000\r\n{}\r\n", "x".repeat(2_000_000));
    reader.ask(&too_long, "SERVER_ERROR object too large for cache\r\n");
    reader.ask(
        "set k 0 0 1 noreply\r\n2\r\ndelete k noreply\r\nmn\r\n",
        "MN\r\n",
    );
    reader.ask("flush_all\r\n", "CLIENT_ERROR flush_all not allowed\r\n");
    reader.ask("shutdown\r\n", "SERVER_ERROR: shutdown not enabled\r\n");
    reader.ask(
        "stats cachedump 1 0\r\n",
        "CLIENT_ERROR stats cachedump not allowed\r\n",
    );
    reader.ask("watch\r\n", "CLIENT_ERROR watch commands not allowed\r\n");
    reader.end();
    boss.ask("get k x\r\n", "VALUE k 0 1\r\n1\r\nEND\r\n");
    let mut client = crate::process::Client::new(boss.0);
    // As many as were refused above with an answer of their own kind or with none.
    assert_ne!(client.stat("stats", "coua_requests_denied"), "0");
}

#[test]
fn a_writer_reads_nothing() {
    let (server, mut boss) = guarded();
    let mut writer = Connection::log_in(server.address, "writer", "w");
    writer.ask("set k 0 0 1\r\n5\r\n", "STORED\r\n");
    writer.ask("touch k 100\r\n", "TOUCHED\r\n");
    writer.ask("ms m 1\r\n2\r\n", "HD\r\n");
    for denied in [
        "get k\r\n",
        "gets k\r\n",
        "mg k v\r\n",
        "me k\r\n",
        "gat 1 k\r\n",
        "incr k 1\r\n",
        "ma k\r\n",
    ] {
        writer.ask(denied, DENIED);
    }
    // A request of many keys gets one line.
    writer.ask(
        "get k k k\r\nget k\r\nmn\r\n",
        &[DENIED, DENIED, "MN\r\n"].concat(),
    );
    writer.ask("delete m\r\n", "DELETED\r\n");
    boss.ask("get k\r\n", "VALUE k 0 1\r\n5\r\nEND\r\n");
}

#[test]
fn prefixes_bound_the_keys() {
    let (server, _boss) = guarded();
    let mut app = Connection::log_in(server.address, "app", "a");
    app.ask("get app:k\r\n", "VALUE app:k 0 1\r\n1\r\nEND\r\n");
    app.ask("set shared/x 0 0 1\r\n1\r\n", "STORED\r\n");
    app.ask("incr app:k 1\r\n", "2\r\n");
    // "app:b" in base64.
    app.ask("ms YXBwOmI= 1 b\r\n1\r\n", "HD\r\n");
    for denied in [
        "get k\r\n",
        "get app\r\n",
        "set k 0 0 1\r\n1\r\n",
        "mg k v\r\n",
        "mg aw== b v\r\n",
        "ms aw== 1 b\r\n1\r\n",
        "get shared\r\n",
    ] {
        app.ask(denied, DENIED);
    }
    // What was found before the key that is refused is there.
    app.ask(
        "get app:k k app:k\r\n",
        &["VALUE app:k 0 1\r\n2\r\n", DENIED].concat(),
    );
    app.ask("get app:k\r\n", "VALUE app:k 0 1\r\n2\r\nEND\r\n");
}

#[test]
fn a_right_to_flush_is_one_of_its_own() {
    let (server, mut boss) = guarded();
    let mut flusher = Connection::log_in(server.address, "flusher", "f");
    flusher.ask("get k\r\n", DENIED);
    flusher.ask("flush_all\r\n", "OK\r\n");
    boss.ask("get k\r\n", "END\r\n");
    boss.ask("verbosity 0\r\n", "OK\r\n");
}

#[test]
fn the_binary_protocol_knows_the_same_rights() {
    let (server, _boss) = guarded();
    let mut reader = Connection::to(server.address);
    reader.send(sasl::request(0x21, "PLAIN", "\0reader\0r"));
    assert_eq!(reader.receive(37)[7], 0);
    let status = |connection: &mut Connection, bytes: &[u8]| {
        connection.send(bytes);
        let header = connection.receive(24);
        let len = u32::from_be_bytes([header[8], header[9], header[10], header[11]]);
        let text = connection.receive(len as usize);
        (header[7], text)
    };
    assert_eq!(status(&mut reader, &sasl::request(0x00, "k", "")).0, 0);
    let denied = (0x20, b"Permission denied.".to_vec());
    // delete; append; the quiet append; set of a value that arrives in pieces.
    assert_eq!(status(&mut reader, &sasl::request(0x04, "k", "")), denied);
    assert_eq!(status(&mut reader, &sasl::request(0x0e, "k", "x")), denied);
    assert_eq!(status(&mut reader, &sasl::request(0x19, "k", "x")), denied);
    assert_eq!(
        status(&mut reader, &sasl::request(0x0e, "k", &"x".repeat(100_000))),
        denied
    );
    assert_eq!(
        status(&mut reader, &sasl::request(0x10, "reset", "")),
        denied
    );
    // flush
    assert_eq!(status(&mut reader, &sasl::request(0x08, "", "")).0, 0x20);
    assert_eq!(status(&mut reader, &sasl::request(0x00, "k", "")).0, 0);
}
