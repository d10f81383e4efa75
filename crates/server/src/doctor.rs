//! `coua doctor`: looks at the machine and says what to change for which transport.
//!
//! Nothing is changed, and a server that runs is not disturbed.
//!
//! # Not here
//! What a server says of its own settings when it starts: [`crate::host::conditions`].

mod cards;
mod kernel;
mod machine;

use std::ffi::OsString;
use std::fmt::Write;

use clap::Parser;
use serde::Serialize;

use crate::flags::FlagError;
use crate::host::Host;

/// The word behind the program's name that asks for all this.
const NAME: &str = "doctor";

/// Look at this machine, and say what to change for which transport.
///
/// Lines begin with ok, note or problem. The exit status is 0 unless there is a problem of the machine, or of
/// one of the transports that are named; then 1.
#[derive(Parser)]
#[command(name = "coua doctor", max_term_width = 100)]
struct Flags {
    /// Transports that are to work: kernel, xdp, dpdk, packet, tap or memif. With a name behind a colon,
    /// as in xdp:eth0, only that interface is looked at.
    #[arg(value_name = "TRANSPORT", default_value = "kernel")]
    transports: Vec<String>,

    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// How a finding is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Level {
    /// As it should be.
    Ok,
    /// It works, and could be better; or it is good to know.
    Note,
    /// coua does not work so, or much worse than it could.
    Problem,
}

/// What was found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct Finding {
    /// The transport that it is about, or `machine`.
    about: &'static str,
    level: Level,
    what: String,
    /// What to do about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    remedy: Option<String>,
}

/// What was found about one transport, or about the machine.
struct Findings<'f> {
    about: &'static str,
    all: &'f mut Vec<Finding>,
}

impl Findings<'_> {
    fn ok(&mut self, what: impl Into<String>) {
        self.add(Level::Ok, what.into(), None);
    }

    fn note(&mut self, what: impl Into<String>, remedy: impl Into<String>) {
        self.add(Level::Note, what.into(), Some(remedy.into()));
    }

    fn problem(&mut self, what: impl Into<String>, remedy: impl Into<String>) {
        self.add(Level::Problem, what.into(), Some(remedy.into()));
    }

    fn add(&mut self, level: Level, what: String, remedy: Option<String>) {
        let remedy = remedy.filter(|remedy| !remedy.is_empty());
        self.all.push(Finding {
            about: self.about,
            level,
            what,
            remedy,
        });
    }
}

/// A transport, and an interface of it.
#[derive(Debug)]
struct Asked {
    transport: &'static str,
    interface: Option<String>,
}

/// What there may be something to say about, in this order.
const ABOUT: [&str; 7] = ["machine", "kernel", "xdp", "dpdk", "packet", "tap", "memif"];

/// What is printed as JSON.
#[derive(Serialize)]
struct Report<'r> {
    version: &'static str,
    ok: bool,
    findings: &'r [Finding],
}

/// The words of a command line that asks for this, the program's name included.
pub fn asked(mut words: impl Iterator<Item = OsString>) -> Option<Vec<OsString>> {
    let program = words.next()?;
    let is_asked = words.next()? == NAME;
    is_asked.then(|| std::iter::once(program).chain(words).collect())
}

/// Looks at the machine. Returns the text to print, and whether nothing is in the way of the transports
/// that are named.
///
/// # Errors
/// [`FlagError`]: a flag cannot be as given.
pub fn run(words: Vec<OsString>) -> Result<(String, bool), FlagError> {
    let flags = match Flags::try_parse_from(words) {
        Ok(flags) => flags,
        Err(error) if error.use_stderr() => {
            let line = error
                .to_string()
                .lines()
                .next()
                .unwrap_or_default()
                .to_owned();
            let line = line.strip_prefix("error: ").unwrap_or(&line).to_owned();
            return Err(FlagError::new(format!("doctor: {line}")));
        }
        Err(error) => return Ok((error.to_string(), true)),
    };
    let transports = flags.transports.iter().map(|text| asked_for(text));
    let transports = transports.collect::<Result<Vec<Asked>, FlagError>>()?;
    let findings = look(&Host::this(), &transports);
    let matters = |about| about == "machine" || transports.iter().any(|one| one.transport == about);
    let problems = findings.iter().filter(|one| one.level == Level::Problem);
    let is_well = problems.filter(|one| matters(one.about)).count() == 0;
    let text = match flags.json {
        true => {
            let report = Report {
                version: crate::version::BUILD,
                ok: is_well,
                findings: &findings,
            };
            // Texts and numbers can always be written.
            let text = serde_json::to_string_pretty(&report).unwrap_or_default();
            format!("{text}\n")
        }
        false => text(&findings),
    };
    Ok((text, is_well))
}

fn asked_for(text: &str) -> Result<Asked, FlagError> {
    let (name, interface) = match text.split_once(':') {
        Some((name, interface)) => (name, Some(interface.to_owned())),
        None => (text, None),
    };
    let known = ABOUT[1..].iter().find(|known| **known == name);
    match known {
        Some(transport) => Ok(Asked {
            transport,
            interface,
        }),
        None => Err(FlagError::value(
            "doctor",
            text,
            "kernel, xdp, xdp:INTERFACE, dpdk, packet, tap or memif",
        )),
    }
}

fn look(host: &Host, transports: &[Asked]) -> Vec<Finding> {
    let mut all = Vec::new();
    let named = transports.iter().find(|one| one.transport == "xdp");
    let interface = named.and_then(|asked| asked.interface.as_deref());
    for about in ABOUT {
        let mut findings = Findings {
            about,
            all: &mut all,
        };
        match about {
            "machine" => machine::look(host, &mut findings),
            "kernel" => kernel::look(host, &mut findings),
            "xdp" => cards::xdp(host, interface, &mut findings),
            "dpdk" => cards::dpdk(host, &mut findings),
            "packet" => cards::packet(host, &mut findings),
            "tap" => cards::tap(host, &mut findings),
            _ => findings
                .ok("shared memory needs nothing of the machine but a folder for its socket"),
        }
    }
    all
}

/// The findings as lines for people.
fn text(findings: &[Finding]) -> String {
    let mut text = format!("coua {}\n", crate::version::BUILD);
    for about in ABOUT {
        let heading = match about {
            "machine" => "This machine",
            "kernel" => "The kernel's sockets (without --net)",
            "xdp" => "--net xdp",
            "dpdk" => "--net dpdk",
            "packet" => "--net packet",
            "tap" => "--net tap",
            _ => "--net memif",
        };
        // Writing to a string does not fail.
        let _ = writeln!(text, "\n{heading}");
        for finding in findings.iter().filter(|finding| finding.about == about) {
            let level = match finding.level {
                Level::Ok => "ok",
                Level::Note => "note",
                Level::Problem => "problem",
            };
            let _ = writeln!(text, "  {level:<8} {}", finding.what);
            if let Some(remedy) = &finding.remedy {
                let _ = writeln!(text, "           -> {remedy}");
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What no machine of the tests has: several nodes, strict accounting, a small cgroup.
    #[test]
    fn a_machine_with_obstacles_is_seen_through() {
        let host = Host::of_files(
            "doctor-obstacles",
            &[
                ("/proc/sys/kernel/osrelease", "5.4.0-1\n"),
                (
                    "/proc/meminfo",
                    "MemTotal: 1024000 kB\nMemAvailable: 512000 kB\nSwapTotal: 1024 kB\n",
                ),
                ("/proc/self/cgroup", "0::/a\n"),
                ("/sys/fs/cgroup/a/memory.max", "134217728\n"),
                ("/sys/fs/cgroup/a/cpu.max", "50000 100000\n"),
                ("/sys/devices/system/node/online", "0-1\n"),
                ("/proc/sys/vm/overcommit_memory", "2\n"),
                (
                    "/sys/kernel/mm/transparent_hugepage/enabled",
                    "always madvise [never]\n",
                ),
                ("/proc/sys/net/core/somaxconn", "128\n"),
                ("/proc/sys/kernel/io_uring_disabled", "2\n"),
                (
                    "/proc/self/status",
                    "CapEff:\t0000000000000000\nSeccomp:\t2\n",
                ),
            ],
        );
        let findings = look(&host, &[]);
        std::fs::remove_dir_all(host.path("/")).expect("its files");
        let has = |about: &str, level: Level, part: &str| {
            let found = findings
                .iter()
                .any(|one| one.about == about && one.level == level && one.what.contains(part));
            assert!(found, "{about} {level:?} {part}: {}", text(&findings));
        };
        has("machine", Level::Note, "the cgroup has 128 MiB");
        has("machine", Level::Note, "the cgroup has 0.5 processors");
        has("machine", Level::Note, "2 NUMA nodes");
        has("machine", Level::Problem, "overcommit");
        has("machine", Level::Problem, "huge pages are off");
        has("kernel", Level::Note, "at most 128 connections wait");
        has("xdp", Level::Problem, "CAP_NET_ADMIN");
        has("packet", Level::Problem, "CAP_NET_RAW");
        has("tap", Level::Problem, "/dev/net/tun");
        has("dpdk", Level::Problem, "no huge pages");
        assert!(
            findings
                .iter()
                .all(|one| one.level != Level::Problem || one.remedy.is_some())
        );
    }

    #[test]
    fn transports_are_named() {
        let one = asked_for("xdp:eth0").expect("it is one");
        assert_eq!(
            (one.transport, one.interface.as_deref()),
            ("xdp", Some("eth0"))
        );
        let error = asked_for("carrier-pigeon").expect_err("it is none");
        assert!(
            error
                .to_string()
                .starts_with("doctor cannot be 'carrier-pigeon': it takes kernel, ")
        );
        let words = |text: &str| asked(text.split(' ').map(OsString::from));
        assert_eq!(
            words("coua doctor --json").map(|words| words.len()),
            Some(2)
        );
        assert_eq!(words("coua -p doctor"), None);
    }
}
