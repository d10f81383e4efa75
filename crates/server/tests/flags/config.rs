//! The file of `--config`: what it does at the start, what `--check` says of it, what SIGHUP takes over
//! from it, and what becomes of files that are wrong. And the log as JSON.

use std::fs;
use std::process::{Command, Output};

use rustix::process::Signal;

use crate::process::{Client, Folder, Process, coua, poll};
use crate::support::{coua_program, is_root};

/// A folder with a file of settings.
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
        fs::write(self.folder.path("coua.toml"), text).expect("a file");
    }

    fn file(&self) -> String {
        self.folder.text("coua.toml")
    }

    /// Starts a server with the file, and with flags that name a free port.
    fn start(&self, flags: &[&str]) -> Process {
        let file = self.file();
        Process::start(coua(&[&["--config", &file], flags].concat()))
    }

    /// What the program says with the file and these flags alone.
    fn run(&self, flags: &[&str]) -> Output {
        let mut command = Command::new(coua_program());
        command.args(["--config", &self.file()]).args(flags);
        if is_root() {
            command.args(["-u", "root"]);
        }
        command.output().expect("it can be run")
    }
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn a_flag_wins_over_the_file() {
    let scene = Scene::new(
        "memory-limit = 32\nconn-limit = 77\nport = 1\nlisten = '127.0.0.9'\nverbose = 2\n\
         [extended]\nidle_timeout = 70\ndrain_timeout = 9\n",
    );
    let process = scene.start(&["-o", "drain_timeout=3", "-v"]);
    let mut client = Client::connect(process.address());
    let mut setting = |name: &str| client.stat("stats settings", name);
    assert_eq!(setting("maxbytes"), (64 << 20).to_string());
    assert_eq!(setting("maxconns"), "77");
    assert_eq!(setting("idle_timeout"), "70");
    assert_eq!(setting("coua_drain_timeout"), "3");
    assert_eq!(setting("verbosity"), "1");
    assert_eq!(setting("inter"), "127.0.0.1");
}

#[test]
fn a_signal_takes_over_what_can_change() {
    let scene = Scene::new("threads = 1\nconn-limit = 10\n[extended]\nidle_timeout = 70\n");
    let process = scene.start(&["--memory-max", "128"]);
    let mut before = Client::connect(process.address());
    assert_eq!(before.ask("flush_all\r\n"), "OK");
    scene.write(
        "threads = 1\nbacklog = 5\nconn-limit = 2\ndisable-flush-all = true\nverbose = 1\n\
         max-reqs-per-event = 9\nlisten-backlog = 99\n[extended]\ndrain_timeout = 8\nmce_limit = '3/4'\n",
    );
    process.signal(Signal::HUP);
    // The file has a key that no flag has.
    process.hear("coua.toml:2: unknown key backlog");
    process.hear("nothing is changed");
    assert_eq!(before.stat("stats settings", "idle_timeout"), "70");
    let text = fs::read_to_string(scene.folder.path("coua.toml")).expect("the file");
    scene.write(&text.replace("backlog = 5\n", ""));
    process.signal(Signal::HUP);
    for line in [
        "SIGHUP: conn-limit: 2, before 10",
        "SIGHUP: disable-flush-all: on, before not given, for new connections",
        "SIGHUP: extended.drain_timeout: 8, before not given",
        "SIGHUP: extended.idle_timeout: not given, before 70",
        "SIGHUP: extended.mce_limit: 3/4, before not given",
        "SIGHUP: max-reqs-per-event: 9, before not given",
        "SIGHUP: verbose: 1, before not given",
        "these need a restart: listen-backlog",
    ] {
        process.hear(line);
    }
    let mut setting = |name: &str| before.stat("stats settings", name);
    assert_eq!(setting("maxconns"), "2");
    assert_eq!(setting("idle_timeout"), "0");
    assert_eq!(setting("coua_drain_timeout"), "8");
    assert_eq!(setting("reqs_per_event"), "9");
    assert_eq!(setting("verbosity"), "1");
    assert_eq!(setting("flush_enabled"), "no");
    assert_eq!(setting("tcp_backlog"), "1024");
    assert_eq!(before.stat("stats memory_errors", "limit_errors"), "3");
    // It keeps what it may do, and a new connection may not.
    assert_eq!(before.ask("flush_all\r\n"), "OK");
    let mut new = Client::connect(process.address());
    assert_eq!(
        new.ask("flush_all\r\n"),
        "CLIENT_ERROR flush_all not allowed"
    );
    let mut refused = Client::connect(process.address());
    assert_eq!(refused.line(), "ERROR Too many open connections");
    // What has been told is not told again, but for what needs a restart.
    process.signal(Signal::HUP);
    let restart = || process.said().matches("these need a restart").count();
    poll("the second warning", || (restart() == 2).then_some(()));
    assert_eq!(process.said().matches("SIGHUP: verbose").count(), 1);
}

#[test]
fn memory_changes_up_to_its_most() {
    let scene = Scene::new("");
    // The flags of the helper name -m, which would win.
    let mut command = Command::new(coua_program());
    command.args(["-l", "127.0.0.1", "-p", "-1", "-t", "1"]);
    if is_root() {
        command.args(["-u", "root"]);
    }
    scene.write("memory-limit = 32\nmemory-max = 64\n");
    command.args(["--config", &scene.file()]);
    let process = Process::start(command);
    let mut client = Client::connect(process.address());
    let megabytes = |client: &mut Client| {
        let bytes = client.stat("stats settings", "maxbytes");
        bytes.parse::<u64>().expect("a number") >> 20
    };
    assert_eq!(megabytes(&mut client), 32);
    scene.write("memory-limit = 48\nmemory-max = 64\n");
    process.signal(Signal::HUP);
    process.hear("SIGHUP: memory-limit: 48, before 32");
    assert_eq!(megabytes(&mut client), 48);
    scene.write("memory-limit = '1g'\nmemory-max = '1g'\n");
    process.signal(Signal::HUP);
    process.hear("these need a restart: memory-max, memory-limit (up to 64 MiB");
    assert_eq!(megabytes(&mut client), 48);
}

#[test]
fn a_check_says_what_would_be_on() {
    let scene = Scene::new(
        "memory-limit = 32\nthreads = 2\nmetrics = '127.0.0.1:0'\nlisten = '127.0.0.1:0'\n",
    );
    // A server that runs with the same settings is no obstacle.
    let running = scene.start(&[]);
    running.listening();
    let output = scene.run(&["--check"]);
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    let text = String::from_utf8(output.stdout).expect("a text");
    for part in [
        "settings     ",
        "memory       32 MiB for items up to 1024 KiB\n",
        "threads      2 on cores any\n",
        "connections  1024 at most\n",
        "TCP          127.0.0.1:0\n",
        "metrics      http://127.0.0.1:0/\n",
    ] {
        assert!(text.contains(part), "{part} is not in {text}");
    }
}

#[test]
fn a_check_names_all_that_is_wrong() {
    let scene = Scene::new("memory-limit = 'x'\nlisten = '192.0.2.77'\nthreads = 0\nprot = 1\n");
    let output = scene.run(&["--check"]);
    assert_eq!(output.status.code(), Some(78), "{}", said(&output));
    let file = scene.file();
    let expected = [
        format!("coua: {file}:4: unknown key prot: did you mean port?"),
        format!(
            "coua: {file}:1: memory-limit cannot be 'x': it takes a number, or one with k, m, g or t behind it"
        ),
        format!("coua: {file}:3: threads cannot be '0': it takes a number from 1 to 1024"),
    ];
    assert_eq!(said(&output).trim_end(), expected.join("\n"));
    scene.write("listen = '192.0.2.77'\nmemory-file = '/nowhere/at/all'\nnet = 'xdp:none0'\nuser = 'nobody-of-that-name'\n");
    let mut command = Command::new(coua_program());
    let output = command.args(["--config", &file, "--check"]).output();
    let output = output.expect("it can be run");
    assert_eq!(output.status.code(), Some(78), "{}", said(&output));
    let said_of = |line: usize, text: &str| {
        let line = format!("coua: {file}:{line}: {text}");
        assert!(
            said(&output).contains(&line),
            "{line} is not in {}",
            said(&output)
        );
    };
    said_of(1, "listen: this machine has no address 192.0.2.77: ");
    said_of(
        2,
        "memory-file: /nowhere/at/all cannot be written: /nowhere/at: ",
    );
    said_of(3, "net: there is no interface none0");
    if is_root() {
        said_of(4, "user: can't find the user nobody-of-that-name");
    }
    // A flag that is wrong is one, whatever the file says.
    let output = scene.run(&["--check", "-c", "0"]);
    assert_eq!(output.status.code(), Some(64), "{}", said(&output));
    assert!(said(&output).contains("coua: -c cannot be '0'"));
}

#[test]
fn files_that_are_none_are_refused_in_one_line() {
    let scene = Scene::new("");
    let refused = |why: &str| {
        let output = scene.run(&[]);
        let text = said(&output);
        assert_eq!(output.status.code(), Some(78), "{text}");
        assert_eq!(text.lines().count(), 1, "{text}");
        assert!(text.starts_with("coua: --config "), "{text}");
        assert!(text.contains("coua.toml: ") && text.contains(why), "{text}");
    };
    let path = scene.folder.path("coua.toml");
    fs::write(&path, [b'#'; (64 << 10) + 1]).expect("a file");
    refused("has more than 65536 bytes");
    fs::write(&path, b"port = 1\nuser = \"\xff\"\n").expect("a file");
    refused("line 2 is not text in UTF-8");
    fs::remove_file(&path).expect("the file");
    refused("cannot be read: No such file");
    fs::create_dir(&path).expect("a folder");
    refused("is no file that can be read again");
    fs::remove_dir(&path).expect("the folder");
    rustix::fs::mknodat(
        rustix::fs::CWD,
        &path,
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RUSR,
        0,
    )
    .expect("a pipe");
    refused("is no file that can be read again");
}

/// A server in the background leaves its folder, and finds the file and what it names again.
#[test]
fn a_server_in_the_background_finds_its_file_again() {
    let scene = Scene::new("auth-file = 'users'\npidfile = 'pid'\n");
    fs::write(scene.folder.path("users"), "a:b\n").expect("a file");
    let mut command = coua(&["-d", "-v", "--config", "coua.toml"]);
    command.current_dir(scene.folder.path(""));
    let process = Process::start(command);
    process.listening();
    let pid = || {
        let text = fs::read_to_string(scene.folder.path("pid")).ok()?;
        rustix::process::Pid::from_raw(text.trim().parse().ok()?)
    };
    let pid = poll("the pid file", pid);
    scene.write("auth-file = 'users'\npidfile = 'pid'\n[extended]\nidle_timeout = 5\n");
    rustix::process::kill_process(pid, Signal::HUP).expect("it runs");
    process.hear("SIGHUP: extended.idle_timeout: 5, before not given");
    process.hear("users has 1 passwords");
    rustix::process::kill_process(pid, Signal::TERM).expect("it runs");
    process.hear("stopped");
}

/// The next program begins with the file as it is then, and only if that is right.
#[test]
fn the_next_program_has_the_new_settings() {
    let scene = Scene::new("threads = 1\n");
    let memory = scene.folder.text("memory");
    let mut command = Command::new(coua_program());
    command.args(["-l", "127.0.0.1", "-p", "-1", "-m", "64", "-e", &memory]);
    if is_root() {
        command.args(["-u", "root"]);
    }
    command.args(["--config", &scene.file()]);
    let process = Process::start(command);
    let address = process.address();
    assert_eq!(
        Client::connect(address).ask("set a 0 0 1\r\nx\r\n"),
        "STORED"
    );
    scene.write("threads = 1\nconn-limit = 'many'\n");
    process.signal(Signal::USR2);
    process.hear("SIGUSR2: ignored; the new program does not start: ");
    process.hear("coua.toml:2: conn-limit cannot be 'many'");
    assert_eq!(Client::connect(address).ask("get a\r\n"), "VALUE a 0 1");
    scene.write("threads = 1\nconn-limit = 55\n");
    process.signal(Signal::USR2);
    poll("the next program", || {
        (process.said().matches("listening on").count() == 2).then_some(())
    });
    let mut client = Client::connect(address);
    assert_eq!(client.stat("stats settings", "maxconns"), "55");
    assert_eq!(client.ask("get a\r\n"), "VALUE a 0 1");
}

#[test]
fn a_log_as_json_has_an_object_a_line() {
    let scene = Scene::new("log-format = 'json'\nverbose = 2\n");
    let process = scene.start(&[]);
    let line = process.listening();
    let line: serde_json::Value = serde_json::from_str(&line).expect("JSON");
    let message = line["message"].as_str().expect("a message");
    let address = message.rsplit("tcp:").next().expect("an address");
    let mut client = Client::connect(address.parse().expect("an address"));
    assert_eq!(client.ask("get \"}\\x\u{1}\r\n"), "END");
    process.hear(" END");
    process.signal(Signal::TERM);
    let end = process.end();
    assert!(end.status.success());
    let mut levels = Vec::new();
    let mut shows_key = false;
    for line in end.said.lines() {
        let line: serde_json::Value =
            serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
        let message = line["message"].as_str().expect("a message");
        shows_key |= message.contains("get \\\"}");
        levels.push(line["level"].as_str().expect("a level").to_owned());
        assert!(
            line["timestamp"]
                .as_str()
                .is_some_and(|time| time.ends_with('Z'))
        );
    }
    assert!(shows_key, "{}", end.said);
    assert!(
        levels.iter().any(|level| level == "TRACE") && levels.iter().any(|level| level == "INFO")
    );
}

#[test]
fn shells_complete_flags() {
    for shell in ["bash", "zsh", "fish"] {
        let mut command = Command::new(coua_program());
        let output = command.args(["--completions", shell]).output();
        let output = output.expect("it can be run");
        let script = String::from_utf8(output.stdout).expect("a text");
        assert!(
            output.status.success() && script.contains("memory-limit"),
            "{shell}"
        );
        if shell == "bash" {
            let file = Scene::new(&script);
            let line = "source \"$0\"; COMP_WORDS=(coua --memory-l); COMP_CWORD=1; _coua coua --memory-l coua; echo ${COMPREPLY[*]}";
            let found = Command::new("bash")
                .args(["-c", line, &file.file()])
                .output();
            let found = found.expect("bash runs").stdout;
            assert_eq!(String::from_utf8_lossy(&found).trim(), "--memory-limit");
        }
    }
    let output = Command::new(coua_program())
        .args(["--completions", "tcsh"])
        .output();
    let output = output.expect("it can be run");
    assert_eq!(output.status.code(), Some(64));
    assert!(said(&output).starts_with("coua: --completions cannot be 'tcsh': it takes bash"));
}
