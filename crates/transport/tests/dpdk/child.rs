//! A process with a role, from its parent's side.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child as Process, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use super::netns::Namespace;

/// How long an answer may take, EAL's start included.
const LIMIT: Duration = Duration::from_secs(30);

/// What begins a line of a role's, among those of the test harness.
pub(crate) const MARK: &str = "@ ";

/// The variable with the role's name.
pub(crate) const ROLE: &str = "COUA_DPDK_ROLE";

/// What begins the variables with its settings.
pub(crate) const SETTING: &str = "COUA_DPDK_SETTING_";

/// Numbers of an answer, by name.
pub(crate) type Numbers = BTreeMap<String, u64>;

/// A role's process; killed when dropped.
pub(crate) struct Child {
    process: Process,
    input: ChildStdin,
    lines: Receiver<String>,
    seen: Vec<String>,
    role: String,
}

impl Child {
    /// Starts a role with EAL's arguments and settings.
    pub(crate) fn start(role: &str, eal: &str, settings: &[(&str, &str)]) -> Child {
        let program = std::env::current_exe().expect("this program");
        Child::spawn(Command::new(program), role, eal, settings)
    }

    /// As [`Child::start`], in a network namespace.
    pub(crate) fn start_in(
        namespace: &Namespace,
        role: &str,
        eal: &str,
        settings: &[(&str, &str)],
    ) -> Child {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", namespace.name()]);
        command.arg(std::env::current_exe().expect("this program"));
        Child::spawn(command, role, eal, settings)
    }

    /// As [`Child::start`], after a line of shell in a namespace of mounts of its own.
    pub(crate) fn start_after(
        line: &str,
        role: &str,
        eal: &str,
        settings: &[(&str, &str)],
    ) -> Child {
        let mut command = Command::new("unshare");
        command.args([
            "--mount",
            "sh",
            "-c",
            &format!("{line}; exec \"$0\" \"$@\""),
        ]);
        command.arg(std::env::current_exe().expect("this program"));
        Child::spawn(command, role, eal, settings)
    }

    fn spawn(mut command: Command, role: &str, eal: &str, settings: &[(&str, &str)]) -> Child {
        command
            .args(["--exact", "roles::plays_its_role", "--nocapture"])
            .env(ROLE, role)
            .env(format!("{SETTING}eal"), eal)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        for (name, value) in settings {
            command.env(format!("{SETTING}{name}"), value);
        }
        let mut process = command.spawn().expect("this program runs once more");
        let input = process.stdin.take().expect("it is piped");
        let output = BufReader::new(process.stdout.take().expect("it is piped"));
        let (sender, lines) = channel();
        thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    break;
                }
            }
        });
        Child {
            process,
            input,
            lines,
            seen: Vec::new(),
            role: role.to_owned(),
        }
    }

    /// Waits for the role to say something that begins with `word`, and gives the rest.
    ///
    /// # Panics
    /// Where it says nothing of that kind in time, or ends.
    pub(crate) fn hear(&mut self, word: &str) -> String {
        let deadline = Instant::now() + LIMIT;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let Ok(line) = self.lines.recv_timeout(left) else {
                let status = self.process.try_wait().ok().flatten();
                panic!(
                    "the role {} did not say {word:?}; status {status:?}; it said {:#?}",
                    self.role, self.seen
                );
            };
            // The harness writes the test's name before the first line, without an end of line.
            let said = line.split_once(MARK).map(|(_, said)| said.to_owned());
            self.seen.push(line);
            if let Some(rest) = said.as_deref().and_then(|said| said.strip_prefix(word)) {
                return rest.trim().to_owned();
            }
        }
    }

    /// Asks for numbers, answered as `counters received=1 sent=2`, until they are as wanted: a
    /// worker's come a moment after its deeds.
    pub(crate) fn ask_until(
        &mut self,
        question: &str,
        is_so: impl Fn(&Numbers) -> bool,
    ) -> Numbers {
        let deadline = Instant::now() + Duration::from_secs(10);
        loop {
            self.tell(question);
            let said = self.hear(question);
            let answer = numbers(&said);
            if is_so(&answer) {
                return answer;
            }
            assert!(Instant::now() < deadline, "it stays at: {said}");
            thread::sleep(Duration::from_millis(10));
        }
    }

    /// Says something to the role.
    pub(crate) fn tell(&mut self, line: &str) {
        writeln!(self.input, "{line}").expect("the role listens");
    }

    /// Waits for the role to end well.
    pub(crate) fn end(mut self) {
        // One that has done all it had to do listens no more.
        let _ = writeln!(self.input, "end");
        let deadline = Instant::now() + LIMIT;
        while Instant::now() < deadline {
            if let Some(status) = self.process.try_wait().expect("a child's status") {
                assert!(status.success(), "the role {} failed: {status}", self.role);
                return;
            }
            thread::sleep(Duration::from_millis(5));
        }
        panic!("the role {} does not end", self.role);
    }

    /// Kills it as `kill -9` does.
    pub(crate) fn kill(mut self) {
        self.process.kill().expect("it is ours");
        let status = self.process.wait().expect("a child's status");
        assert!(!status.success(), "the role {} was over before", self.role);
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// What `name=number` words say; others are left out.
pub(crate) fn numbers(words: &str) -> Numbers {
    let words = words.split_whitespace();
    let pairs = words.filter_map(|word| word.split_once('='));
    pairs
        .map(|(name, value)| (name.to_owned(), value.parse().expect("a number")))
        .collect()
}
