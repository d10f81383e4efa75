//! `-o cluster_config`: which servers the fleet has, as clients with auto-discovery ask for it, and what becomes of the
//! file when it changes.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

use rustix::process::Signal;

use crate::memcached::memcached_program;
use crate::process::{Folder, PATIENCE, Process, coua, poll};
use crate::support::free_address;

/// AWS's own example of an answer.
const EXAMPLE: &str = "CONFIG cluster 0 136\r\n12\n\
     myCluster.pc4ldq.0001.use1.cache.amazonaws.com|10.82.235.120|11211 \
     myCluster.pc4ldq.0002.use1.cache.amazonaws.com|10.80.249.27|11211\n\r\nEND\r\n";

const EXAMPLE_FILE: &str = "# two servers\n12\n\
     myCluster.pc4ldq.0001.use1.cache.amazonaws.com|10.82.235.120|11211\n\
     myCluster.pc4ldq.0002.use1.cache.amazonaws.com|10.80.249.27|11211\n";

struct Scene {
    folder: Folder,
}

impl Scene {
    fn new(text: &str) -> Scene {
        let scene = Scene {
            folder: Folder::new(),
        };
        scene.write(text);
        scene
    }

    fn write(&self, text: &str) {
        fs::write(self.folder.path("cluster"), text).expect("a file");
    }

    fn start(&self, flags: &[&str]) -> Process {
        let option = format!("cluster_config={}", self.folder.text("cluster"));
        Process::start(coua(&[&["-o", &option], flags].concat()))
    }
}

/// All that a server answers before it closes the connection on `quit`.
fn told(address: SocketAddr, requests: &[u8]) -> String {
    String::from_utf8_lossy(&bytes_told(address, requests)).into_owned()
}

fn bytes_told(address: SocketAddr, requests: &[u8]) -> Vec<u8> {
    let mut stream = TcpStream::connect(address).expect("the kernel accepts");
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    stream.write_all(requests).expect("it reads");
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).expect("it answers");
    answer
}

#[test]
fn clients_are_told_the_servers_in_the_bytes_of_aws() {
    let scene = Scene::new(EXAMPLE_FILE);
    let server = scene.start(&[]);
    let answer = |requests: &str| told(server.address(), format!("{requests}quit\r\n").as_bytes());
    assert_eq!(answer("config get cluster\r\n"), EXAMPLE);
    let value = EXAMPLE.split_once("\r\n").expect("two lines").1;
    let item = format!("VALUE AmazonElastiCache:cluster 0 136\r\n{value}");
    assert_eq!(answer("get AmazonElastiCache:cluster\r\n"), item);
    // Among others, and again: on the fast path and on the general one.
    assert_eq!(
        answer("set a 0 0 1\r\nx\r\nget a AmazonElastiCache:cluster b\r\nget a\r\n"),
        format!("STORED\r\nVALUE a 0 1\r\nx\r\n{item}VALUE a 0 1\r\nx\r\nEND\r\n")
    );
    assert_eq!(
        answer("gets AmazonElastiCache:cluster\r\n"),
        item.replacen("0 136", "0 136 0", 1)
    );
    assert_eq!(answer("get AmazonElastiCache:clustex\r\n"), "END\r\n");
    assert_eq!(answer("config get other\r\n"), "END\r\n");
    for wrong in [
        "config",
        "config get",
        "config get cluster now",
        "config set cluster",
    ] {
        assert_eq!(answer(&format!("{wrong}\r\n")), "ERROR\r\n", "{wrong}");
    }
    assert_eq!(answer("config get cluster noreply\r\nmn\r\n"), "MN\r\n");
    // Whoever stores under that key has what was stored.
    assert_eq!(
        answer("set AmazonElastiCache:cluster 0 0 1\r\nx\r\nget AmazonElastiCache:cluster\r\n"),
        "STORED\r\nVALUE AmazonElastiCache:cluster 0 1\r\nx\r\nEND\r\n"
    );
}

#[test]
fn the_key_of_old_in_binary() {
    let scene = Scene::new(EXAMPLE_FILE);
    let server = scene.start(&[]);
    let key = b"AmazonElastiCache:cluster";
    let request = |opcode: u8, key: &[u8]| {
        let mut header = [0_u8; 24];
        header[0] = 0x80;
        header[1] = opcode;
        header[3] = u8::try_from(key.len()).expect("it is short");
        header[11] = header[3];
        [&header, key].concat()
    };
    // get, getk and quit.
    let requests = [request(0, key), request(0xc, key), request(7, b"")].concat();
    let answer = bytes_told(server.address(), &requests);
    let value = EXAMPLE.split_once("\r\n").expect("two lines").1;
    let value = value.strip_suffix("\r\nEND\r\n").expect("an end");
    let text = String::from_utf8_lossy(&answer);
    assert_eq!(text.matches(value).count(), 2, "{text:?}");
    assert_eq!(answer.len(), 24 + 4 + 136 + 24 + 4 + 25 + 136 + 24);
}

/// Without a file the command is none, as in memcached.
#[test]
fn without_a_file_it_is_memcached() {
    let theirs = {
        let mut command = std::process::Command::new(memcached_program());
        command.args(["-l", "127.0.0.1", "-m", "64", "-vv"]);
        command
    };
    let ours = Process::start(coua(&[]));
    let requests = b"config get cluster\r\nget AmazonElastiCache:cluster\r\n\
                     config get cluster noreply\r\nmn\r\nconfig\r\nmn\r\nquit\r\n";
    let (_process, address) = start_memcached(theirs);
    assert_eq!(told(ours.address(), requests), told(address, requests));
}

/// A memcached on a port of its own.
fn start_memcached(mut command: std::process::Command) -> (Process, SocketAddr) {
    let address = free_address();
    command.args(["-p", &address.port().to_string()]);
    if crate::support::is_root() {
        command.args(["-u", "root"]);
    }
    let process = Process::start(command);
    poll("memcached", || TcpStream::connect(address).ok());
    (process, address)
}

#[test]
fn the_file_is_read_again_when_it_changes() {
    let scene = Scene::new("1\na|127.0.0.1|1\n");
    let server = scene.start(&["-v"]);
    let cluster = || told(server.address(), b"config get cluster\r\nquit\r\n");
    let expect = |answer: &str| poll(answer, || (cluster() == answer).then_some(()));
    let first = "CONFIG cluster 0 16\r\n1\na|127.0.0.1|1\n\r\nEND\r\n";
    assert_eq!(cluster(), first);
    scene.write("2\na||0\n");
    server.signal(Signal::HUP);
    server.hear("line 2: NAME|ADDRESS|PORT is expected, where ADDRESS may be left out; the servers of before stay");
    assert_eq!(cluster(), first);
    scene.write("2\na||1\nb||2\n");
    server.signal(Signal::HUP);
    expect("CONFIG cluster 0 12\r\n2\na||1 b||2\n\r\nEND\r\n");
    server.hear("has version 2 of the fleet, 2 servers");
    // Also without a signal.
    scene.write("2\nb||2\n");
    expect("CONFIG cluster 0 7\r\n2\nb||2\n\r\nEND\r\n");
    server.hear("has other servers and no higher version than 2: clients may ignore it");
}

#[test]
fn a_file_that_is_wrong_is_refused_at_the_start() {
    let scene = Scene::new("a||1\n");
    let end = scene.start(&[]).end();
    let file = scene.folder.text("cluster");
    assert_eq!(
        end.one_line(64),
        format!(
            "coua: -o cluster_config: {file} line 1: the version is expected, a whole number from 1 on"
        )
    );
    fs::remove_file(scene.folder.path("cluster")).expect("it is there");
    let end = scene.start(&[]).end();
    let line = end.one_line(64);
    assert!(
        line.contains(&format!("{file} cannot be read: No such file")),
        "{line}"
    );
}
