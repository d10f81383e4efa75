//! A server to compare: which program to start, and how to tell it where to listen.

use std::ffi::OsString;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use anyhow::{Context, ensure};

use super::ground::Ground;
use super::stack::Stack;
use crate::cable::{Cable, Holder, SERVER};
use crate::commands::load_flags::TeamFlags;
use crate::load::Dialect;
use crate::process::{self, Folder, Server};
use crate::target::Target;

/// One server, as on a command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Recipe {
    name: String,
    program: Program,
    /// Its own TCP stack, if it does not serve on the kernel's sockets.
    stack: Option<Stack>,
    /// Arguments, less those that say where to listen.
    words: Vec<String>,
}

/// The program, by the way it is told where to listen.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Program {
    /// A coua: the one beside this program if it is named without a folder.
    Coua(PathBuf),
    /// A memcached: the one that [`process::memcached`] finds if it is named without a folder.
    Memcached(PathBuf),
    /// The echo of this program.
    Echo,
    /// Any other program: its words have places for the address.
    Other(String),
}

/// What a server must be able to do.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Needs {
    /// Connections at once.
    connections: u32,
    /// It serves datagrams too.
    udp: bool,
    /// Queues of AF_XDP at the load's end of a cable; 0 if the load is on the kernel's TCP.
    load_queues: usize,
}

impl Needs {
    /// The needs of a team of load threads.
    pub(crate) fn of(team: &TeamFlags) -> Needs {
        Needs {
            connections: team.connections,
            udp: team.dialect == Dialect::Udp,
            load_queues: 0,
        }
    }

    /// The same, with a load that has `load_queues` queues of AF_XDP.
    pub(super) fn with_load_queues(self, load_queues: usize) -> Needs {
        Needs {
            load_queues,
            ..self
        }
    }

    /// The needs of `connections` connections over TCP.
    pub(crate) fn connections(connections: u32) -> Needs {
        Needs {
            connections,
            udp: false,
            load_queues: 0,
        }
    }
}

/// A server that runs, and what goes with it.
#[derive(Debug)]
pub(crate) struct Running {
    pub(super) server: Server,
    pub(super) cable: Option<Cable>,
    /// The program with all of its arguments.
    pub(super) command: String,
    _folder: Option<Folder>,
}

impl Running {
    /// The address that it listens at.
    pub(crate) fn target(&self) -> &Target {
        self.server.target()
    }

    /// The program with all of its arguments.
    pub(crate) fn command(&self) -> &str {
        &self.command
    }

    /// Runs `work` in the network namespace of its clients.
    pub(crate) fn at_clients<T: Send>(&self, work: impl FnOnce() -> T + Send) -> io::Result<T> {
        match &self.cable {
            Some(cable) => cable.enter(work),
            None => Ok(work()),
        }
    }
}

impl Recipe {
    /// Its name in the report.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// The same server under another name.
    pub(crate) fn named(mut self, name: impl Into<String>) -> Recipe {
        self.name = name.into();
        self
    }

    /// The same server with so many workers, if the program is known or has a place for their
    /// number.
    pub(crate) fn with_workers(mut self, workers: usize) -> Recipe {
        let number = workers.to_string();
        let flag = match self.program {
            Program::Coua(_) | Program::Memcached(_) => "-t",
            Program::Echo => "--workers",
            Program::Other(_) => {
                for word in &mut self.words {
                    *word = word.replace("{workers}", &number);
                }
                return self;
            }
        };
        self.words.extend([flag.to_owned(), number]);
        self
    }

    /// The same server with its memory in this file, if its words have the place `{memory}`.
    pub(crate) fn with_memory_in(mut self, file: &Path) -> Recipe {
        for word in &mut self.words {
            *word = word.replace("{memory}", &file.to_string_lossy());
        }
        self
    }

    /// Whether it is the echo, which knows no keys.
    pub(super) fn is_echo(&self) -> bool {
        self.program == Program::Echo
    }

    /// Whether it answers `version`.
    pub(super) fn has_version(&self) -> bool {
        matches!(self.program, Program::Coua(_) | Program::Memcached(_))
    }

    /// Whether it serves on a stack of its own, at the end of a cable.
    pub(crate) fn needs_cable(&self) -> bool {
        self.stack.is_some() && !self.needs_link()
    }

    /// How many queues it answers on, if they decide which queue of the load gets the answers.
    pub(super) fn answering_queues(&self) -> Option<usize> {
        matches!(self.stack, Some(Stack::Xdp | Stack::Memif)).then(|| self.queues())
    }

    /// Whether it serves on a memif link.
    pub(super) fn needs_link(&self) -> bool {
        self.stack == Some(Stack::Memif)
    }

    /// The value of a flag's last occurrence, which is the one that counts.
    fn value_of(&self, flag: &str) -> Option<&str> {
        value_of(&self.words, flag)
    }

    /// Queues of the card: one for each worker.
    fn queues(&self) -> usize {
        let flag = match self.program {
            Program::Echo => "--workers",
            _ => "-t",
        };
        let number = self.value_of(flag).and_then(|value| value.parse().ok());
        number.unwrap_or(1).max(1)
    }

    /// Starts it on the ground's cores, at the end of a cable if it needs one or `cabled` asks for it.
    pub(crate) fn start(
        &self,
        ground: &Ground,
        cabled: bool,
        needs: Needs,
    ) -> anyhow::Result<Running> {
        self.start_at_link(ground, cabled, needs, None)
    }

    /// Like [`start`](Self::start), but at the end of a memif link with this socket if it needs
    /// one.
    pub(super) fn start_at_link(
        &self,
        ground: &Ground,
        cabled: bool,
        needs: Needs,
        link: Option<&Path>,
    ) -> anyhow::Result<Running> {
        let stack = self.stack;
        ensure!(
            link.is_some() || !self.needs_link(),
            "--net memif: only compare and first-screen have a load for such a link"
        );
        let cable = match (cabled || self.needs_cable()) && !self.needs_link() {
            true => {
                let holder = match stack {
                    None if needs.load_queues > 0 => Holder::Shared,
                    None => Holder::Kernel,
                    Some(stack) => stack.holder(),
                };
                let queues = stack.map_or(1, |_| self.queues());
                Some(Cable::lay(holder, queues.max(needs.load_queues))?)
            }
            false => None,
        };
        let address = match &cable {
            Some(_) => SocketAddr::new(SERVER, PORT),
            None => process::free_address()?,
        };
        let mut words = match stack {
            Some(stack) => {
                let has = |flag: &str| self.value_of(flag).is_some();
                let mut words = stack.words(link.unwrap_or(Path::new("")), has);
                words.extend(self.words.iter().cloned());
                words
            }
            None => self.words.clone(),
        };
        let has_socket = words.iter().any(|word| word.contains("{socket}"));
        let folder = has_socket.then(Folder::new).transpose()?;
        let socket = folder.as_ref().map(|folder| folder.path("socket"));
        for word in &mut words {
            *word = word
                .replace("{host}", &address.ip().to_string())
                .replace("{port}", &address.port().to_string());
            if let Some(socket) = &socket {
                *word = word.replace("{socket}", &socket.to_string_lossy());
            }
        }
        let (program, arguments) = self.command(ground, address, stack, needs, words)?;
        let target = socket.map_or(Target::Tcp(address), Target::Unix);
        let cores = ground.server_cores()?;
        let shown = arguments.iter().map(|word| word.to_string_lossy());
        let shown: Vec<_> = [program.to_string_lossy()]
            .into_iter()
            .chain(shown)
            .collect();
        let command = shown.join(" ");
        let server = Server::start_at(&program, &cores, arguments, target, cable.as_ref())
            .with_context(|| format!("`{command}`"))?;
        Ok(Running {
            server,
            cable,
            command,
            _folder: folder,
        })
    }

    /// The program, and its arguments with those that say where to listen.
    fn command(
        &self,
        ground: &Ground,
        address: SocketAddr,
        stack: Option<Stack>,
        needs: Needs,
        words: Vec<String>,
    ) -> anyhow::Result<(PathBuf, Vec<OsString>)> {
        // A server with a stack of its own also listens on the kernel's TCP: on loopback, out of
        // the way.
        let listen = match stack {
            Some(_) => SocketAddr::from(([127, 0, 0, 1], address.port())),
            None => address,
        };
        let bare = |path: &Path| path.components().count() == 1;
        let program = match &self.program {
            Program::Coua(path) if bare(path) => ground.coua.path()?,
            Program::Memcached(path) if bare(path) => ground.memcached.path(),
            Program::Coua(path) | Program::Memcached(path) => path.clone(),
            Program::Other(program) => {
                return Ok((program.into(), words.into_iter().map(Into::into).collect()));
            }
            Program::Echo => {
                let mut all: Vec<OsString> = match stack {
                    None => ["echo", "--listen", &listen.to_string()]
                        .map(Into::into)
                        .into(),
                    Some(_) => ["net-echo", "--port", &address.port().to_string()]
                        .map(Into::into)
                        .into(),
                };
                all.push("--mirror".into());
                all.extend(words.into_iter().map(OsString::from));
                return Ok((std::env::current_exe()?, all));
            }
        };
        let mut more = vec![
            "-c".to_owned(),
            needs.connections.saturating_add(64).to_string(),
        ];
        if needs.udp {
            more.extend(["-U".to_owned(), address.port().to_string()]);
        }
        more.extend(words);
        let flags = process::Flags {
            memory: ground.memory,
            item_size_max: None,
            more,
        };
        Ok((program, flags.arguments(listen)))
    }
}

/// The servers' port at the end of a cable; nothing else listens there.
const PORT: u16 = 11211;

impl FromStr for Recipe {
    type Err = String;

    fn from_str(text: &str) -> Result<Recipe, String> {
        const EXPECTED: &str = "expected coua, memcached, echo or another command line with {port} \
                                or {socket} in it, as in 'coua -t 2' or 'mine=./cached --port {port}'";
        let is_name = |name: &&str| {
            let fits = |c: char| c.is_alphanumeric() || "-_.+".contains(c);
            !name.is_empty() && name.chars().all(fits)
        };
        let (name, line) = match text.split_once('=') {
            Some((name, line)) if is_name(&name) => (name, line),
            _ => (text, text),
        };
        let mut words = shlex::split(line).ok_or(EXPECTED)?.into_iter();
        let program = words.next().ok_or(EXPECTED)?;
        let words: Vec<String> = words.collect();
        let has_place = |place: &str| words.iter().any(|word| word.contains(place));
        let path = PathBuf::from(&program);
        let file = path.file_name().and_then(|name| name.to_str());
        let program = match file {
            _ if has_place("{port}") => Program::Other(program),
            Some("coua") => Program::Coua(path),
            Some("memcached") => Program::Memcached(path),
            _ if program == "echo" => Program::Echo,
            _ if has_place("{socket}") => Program::Other(program),
            _ => return Err(EXPECTED.to_owned()),
        };
        let is_told_here = |word: &String| {
            ["-l", "-p", "--port", "--listen"]
                .iter()
                .any(|flag| word == flag || word.starts_with(&format!("{flag}=")))
        };
        let is_known = !matches!(program, Program::Other(_));
        if let Some(word) = words.iter().find(|word| is_known && is_told_here(word)) {
            return Err(format!(
                "{word} is given by this command, which finds a free port: leave it out, or write \
                 {{port}} in place of the number"
            ));
        }
        let net = value_of(&words, "--net").filter(|_| is_known);
        let stack = net.map(Stack::parse).transpose()?;
        if program == Program::Echo && stack == Some(Stack::Memif) {
            return Err("echo --net memif: echo has packet and xdp".to_owned());
        }
        Ok(Recipe {
            name: name.to_owned(),
            program,
            stack,
            words: match is_known {
                true => words_without(&words, "--net"),
                false => words,
            },
        })
    }
}

/// The value of a flag's last occurrence.
fn value_of<'a>(words: &'a [String], flag: &str) -> Option<&'a str> {
    let with_sign = format!("{flag}=");
    let mut found = None;
    for (index, word) in words.iter().enumerate() {
        match word.strip_prefix(&with_sign) {
            Some(value) => found = Some(value),
            None if word == flag => found = Some(words.get(index + 1).map_or("", String::as_str)),
            None => {}
        }
    }
    found
}

/// The words, less a flag and its values.
fn words_without(words: &[String], flag: &str) -> Vec<String> {
    let with_sign = format!("{flag}=");
    let mut words = words.iter();
    let mut rest = Vec::new();
    while let Some(word) = words.next() {
        if word == flag {
            words.next();
        } else if !word.starts_with(&with_sign) {
            rest.push(word.clone());
        }
    }
    rest
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recipe(text: &str) -> Recipe {
        text.parse().unwrap()
    }

    #[test]
    fn a_recipe_is_a_command_line_with_a_name_or_without() {
        let two = recipe("coua -t 2");
        assert_eq!(two.name(), "coua -t 2");
        assert_eq!(two.program, Program::Coua("coua".into()));
        assert_eq!((two.value_of("-t"), two.queues()), (Some("2"), 2));
        let old = recipe("old=./before/memcached -o 'slab_reassign,x=1'");
        assert_eq!(old.name(), "old");
        assert_eq!(old.program, Program::Memcached("./before/memcached".into()));
        assert_eq!(old.words, ["-o", "slab_reassign,x=1"]);
        let other = recipe("other -p {port} -n {workers}").with_workers(3);
        assert_eq!(other.words, ["-p", "{port}", "-n", "3"]);
        assert_eq!(recipe("coua").with_workers(4).queues(), 4);
    }

    #[test]
    fn what_cannot_be_started_is_refused() {
        for (text, why) in [
            ("", "expected coua"),
            ("redis-server", "{port}"),
            ("coua 'x", "expected coua"),
            ("coua -p 11211", "-p"),
            ("memcached --listen=::1", "--listen=::1"),
            ("coua --net tap", "give packet, xdp, dpdk or memif"),
            ("echo --net memif", "packet and xdp"),
            ("echo --net=xdp:eth1", "give packet, xdp, dpdk or memif"),
        ] {
            let error = text.parse::<Recipe>().unwrap_err();
            assert!(error.contains(why), "{text}: {error}");
        }
    }

    #[test]
    fn a_stack_of_its_own_gets_the_cables_end() {
        let packet = recipe("coua --net=packet -t 2");
        assert!(packet.needs_cable() && !recipe("memcached").needs_cable());
        let stack = packet.stack.unwrap();
        assert_eq!(stack, Stack::Packet);
        assert_eq!(
            stack.words(Path::new(""), |_| false),
            ["--net", "packet:eth0", "--address", "10.77.0.1/24"]
        );
        assert_eq!(packet.words, ["-t", "2"]);
        let memif = recipe("coua --net memif");
        assert!(memif.needs_link() && !memif.needs_cable());
        assert_eq!(recipe("echo --net xdp").stack, Some(Stack::Xdp));
        let own = recipe("./coua --net xdp:eth7 -p {port}");
        assert_eq!((own.needs_cable(), own.words.len()), (false, 4));
    }
}
