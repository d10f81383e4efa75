//! `cargo xtask bench all`: every table of speed, into one document.
//!
//! The document consists of texts beside this file and of what the programs print: one screen with
//! one plot, the aims, and an appendix with everything else. Each table stands between two comments
//! that name it. So one table can be measured again (`--only`) while the others stay, each with its
//! own machine, commit and date. Tables are measured only from a clean commit, so that the commit
//! says what was measured.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};
use clap::Parser;

use super::What;
use crate::commands::{program, read, root};

/// Measures everything and writes docs/performance.md
#[derive(Debug, Parser)]
#[command(name = "cargo xtask bench all")]
pub(super) struct Flags {
    /// Only these tables, by name; the others stay as they are
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// A folder of recorded traces, to count their misses too
    #[arg(long, value_name = "FOLDER")]
    traces: Option<PathBuf>,
    /// Short measurements, also with uncommitted changes, to see that everything runs; written to
    /// target/performance.md
    #[arg(long)]
    quick: bool,
}

/// One table of the document.
struct Section {
    name: &'static str,
    title: &'static str,
    /// What is measured, and what the aim was.
    about: &'static str,
    what: What,
    /// The rest of the command line after the name of the benchmark.
    words: &'static str,
    /// The same for `--quick`.
    quick: &'static str,
}

/// What comes first.
const FIRST: Section = Section {
    name: "first-screen",
    title: "At a glance",
    about: "A worker each, on one core. `Highest rate` is what a server answers with 99 of 100 replies within \
            a millisecond of when they were due: more would be useless to most. On its own stack coua \
            spins, so that its CPU a request is that of a whole core; memcached's and coua's on the \
            kernel's sockets have the kernel's share in them. `Bottleneck` is what was busy: beside `both` \
            and `neither`, the server may be capable of more. In the full mix a faster server has stored \
            more of the popular keys by the time its hits are counted.",
    what: What::FirstScreen,
    words: "--repetitions 3",
    quick: "--small --repetitions 1 --seconds 0.1 --only large --no-sweep",
};

/// In the order of the appendix.
const SECTIONS: &[Section] = &[
    Section {
        name: "server",
        title: "On kernel sockets",
        about: "One worker each, on loopback. What the kernel's TCP takes is in all columns; the echo \
                shows how much that is.",
        what: What::Server,
        words: "--pairs 5 --seconds 0.7",
        quick: "--pairs 1 --seconds 0.1",
    },
    Section {
        name: "deep",
        title: "Deep pipelines, and memcached's -R",
        about: "memcached answers 20 requests of a connection, then turns to the next one (`-R`, its \
                default), and asks the kernel again for those that wait. So it is measured with `-R 256` \
                too, where a pipeline of 64 is answered at once.",
        what: What::Compare,
        words: "memcached 'memcached -R 256' coua --keys 1000 --depth 64 --repetitions 5 --seconds 0.7",
        quick: "memcached 'memcached -R 256' coua --keys 100 --depth 64 --repetitions 1 --seconds 0.1",
    },
    Section {
        name: "deep-16",
        title: "The same, 16 requests deep",
        about: "Of a pipeline of 16 the default does not cut anything off.",
        what: What::Compare,
        words: "memcached 'memcached -R 256' coua --keys 1000 --depth 16 --repetitions 5 --seconds 0.7",
        quick: "memcached 'memcached -R 256' coua --keys 100 --depth 16 --repetitions 1 --seconds 0.1",
    },
    Section {
        name: "memaslap",
        title: "The load generator beside memaslap",
        about: "Whether the load generator sees of a server what memaslap, of libmemcached, sees of it: the \
                same load on one memcached, in turns.",
        what: What::Memaslap,
        words: "--rounds 5 --seconds 3",
        quick: "--rounds 1 --seconds 1",
    },
    Section {
        name: "net",
        title: "On coua's own TCP stack",
        about: "The server on one core, the load on the other, shared memory (memif) between them; memcached \
                on kernel TCP on the same two cores.",
        what: What::Net,
        words: "--cases get64,get32,deep64,get256,get256-10m,get4096,get65536,get64-v100k,zipf64,set64,set64-5,\
                set64-v1000,set64-v100k,full-set64 \
                --rounds 3 --seconds 0.6",
        quick: "--cases get64 --rounds 1 --seconds 0.1",
    },
    Section {
        name: "gain",
        title: "Where the gain comes from",
        about: "One worker and 64 connections with one request at a time each: a bare ping-pong of 16 bytes and \
                GETs of 8-byte values, each on Linux and on coua's stack over memif, in turns. Beside them what \
                is published of mimicached, from machines with cards of 100 Gb/s.",
        what: What::Figure,
        words: "gain --repetitions 5 --seconds 0.6",
        quick: "gain --repetitions 1 --seconds 0.1",
    },
    Section {
        name: "latency",
        title: "Latency at fixed rates",
        about: "On the same link: at fractions of memcached's highest rate (m) and of coua's (c). \
                memcached is asked for the rates that it can serve.",
        what: What::Net,
        words: "--cases get64 --rates 0.5m,1m,1.5m,0.1c,0.5c,0.9c --rounds 3 --seconds 0.6",
        quick: "--cases get64 --rates 0.5m --rounds 1 --seconds 0.1",
    },
    Section {
        name: "xdp",
        title: "AF_XDP",
        about: "On a cable between two network namespaces, whose frames the kernel copies. The bare echo \
                turns frames round without a stack; the aim is to be within 10 % of it. The load is on \
                AF_XDP too.",
        what: What::Xdp,
        words: "--rounds 9 --seconds 0.7",
        quick: "--rounds 1 --seconds 0.2",
    },
    Section {
        name: "large",
        title: "Values of a megabyte",
        about: "One connection over such a cable, the load on the kernel's TCP. With the kernel on both \
                sides nobody cuts to frames of 1,500 bytes, nor sums; coua's stack cuts and sums, and AF_XDP \
                copies each.",
        what: What::Compare,
        words: "memcached coua 'coua --net xdp' --veth --connections 1 --threads 1 --keys 100 \
                --value-size 1000000 --mix get=1 --repetitions 3 --seconds 1",
        quick: "memcached coua 'coua --net xdp' --veth --connections 1 --threads 1 --keys 10 \
                --value-size 1000000 --mix get=1 --repetitions 1 --seconds 0.2",
    },
    Section {
        name: "large-sets",
        title: "SETs of 100 KB",
        about: "Eight connections over such a cable. Over memif, without the kernel's copies, 64 connections \
                are `set64-v100k` of the table on coua's own TCP stack.",
        what: What::Compare,
        words: "memcached coua 'coua --net xdp' --veth --connections 8 --threads 1 --keys 1000 \
                --value-size 100000 --mix set=1 --repetitions 3 --seconds 1",
        quick: "memcached coua 'coua --net xdp' --veth --connections 8 --threads 1 --keys 100 \
                --value-size 100000 --mix set=1 --repetitions 1 --seconds 0.2",
    },
    Section {
        name: "idle",
        title: "Idle",
        about: "One connection over such a cable that asks four times a second: the latency is that of the \
                first request after a pause, and `server's cores` what an idle server takes.",
        what: What::Compare,
        words: "'coua --net xdp' 'busy=coua --net xdp --poll busy' coua memcached --veth --connections 1 \
                --threads 1 --keys 1000 --value-size 8 --mix get=1 --rate 4 --repetitions 3 --seconds 20",
        quick: "'coua --net xdp' coua --veth --connections 1 --threads 1 --keys 10 --value-size 8 \
                --mix get=1 --rate 4 --repetitions 1 --seconds 1",
    },
    Section {
        name: "workers",
        title: "Two workers, and UDP beside TCP",
        about: "Whole workers in one process, each with its clients on its own thread: nothing but what \
                the workers share can hold them back. The aims: 1.9 x one worker for gets, 1.7 x with 5 % \
                sets, UDP no slower than TCP for gets and sets.",
        what: What::Workers,
        words: "--over tcp,udp --sets 0,0.05,1 --rounds 5 --seconds 0.7",
        quick: "--over tcp,udp --rounds 1 --seconds 0.1 --keys 1000 --memory 64",
    },
    Section {
        name: "trusted",
        title: "With checksums left to the card",
        about: "The same, with neither side making or checking checksums, as a card that offloads them \
                would leave it.",
        what: What::Workers,
        words: "--workers 1 --sets 0 --popularity uniform --keys 1000 --value-size 8 --rounds 3 \
                --seconds 0.7 --trust-link",
        quick: "--workers 1 --sets 0 --popularity uniform --keys 1000 --rounds 1 --seconds 0.1 --memory 64 \
                --trust-link",
    },
    Section {
        name: "stack",
        title: "The stack alone",
        about: "In process: what a request of 16 bytes and its echo cost in the TCP stack. The aims: 60 ns \
                at 32 connections, twice that at 262,144.",
        what: What::Stack,
        words: "--rounds 3 --requests 1500000",
        quick: "--rounds 1 --requests 100000 --connections 32",
    },
    Section {
        name: "store",
        title: "The store alone",
        about: "In process, beside a map under a lock, dashmap and segcache. The aim: 7 x segcache for GETs \
                in bursts of 32.",
        what: What::Store,
        words: "--keys 1000,6800000 --key-sizes 32 --value-sizes 8 --rounds 3 --seconds 0.3",
        quick: "--keys 1000 --key-sizes 32 --value-sizes 8 --rounds 1 --seconds 0.05",
    },
    Section {
        name: "memory",
        title: "Memory an item",
        about: "How many items fit into -m, filled through the protocol. Beyond its bytes, rounded up to 8, and \
                its slot an item of coua's takes slots that the index has and does not use, which is why the \
                figure depends on where -m lies within a doubling, the ends of segments, and the segments that \
                stay free for the cleaner.",
        what: What::Memory,
        words: "--steps 4 --overwrites 1",
        quick: "--steps 1 --overwrites 0 --memory 64 --value-sizes 100 --no-memcached",
    },
    Section {
        name: "hits",
        title: "Misses",
        about: "How many fewer requests miss than under LRU, in memory for 10 % of the keys, beside S3-FIFO and \
                memcached. The mean of the reductions is under each table. Recorded traces are replayed with \
                `cargo xtask bench all --traces FOLDER`; more sizes by `cargo xtask bench hits -- \
                --percents 1,10,25`.",
        what: What::Hits,
        words: "--percents 10 --synthetic --keys 200000 --requests 2000000",
        quick: "--percents 10 --synthetic --only drift --keys 20000 --requests 100000 --no-memcached",
    },
    Section {
        name: "flash",
        title: "Items on flash, beside extstore",
        about: "The same `-m`, files of the same length on the same file system, one server after the other in each \
                repetition. coua reads with O_DIRECT. extstore reads through the kernel's page cache, which is memory \
                beside its `-m`: here the whole file fits into it. In the lines `no page cache` the file's pages are \
                taken out of it every 20 ms, so that what is compared has the same memory; what is true of a machine \
                lies between both. Latency is of one request at a time for items that went to flash first, throughput \
                of 32 connections that ask for all items alike. The last columns of ratios are medians over pairs. \
                Aims: a quarter of extstore's memory an item, and no slower. Recorded traces are replayed with \
                `--traces FOLDER`.",
        what: What::Flash,
        words: "--repetitions 5 --seconds 2",
        quick: "--parts latency --flash 128 --repetitions 1 --seconds 0.2 --fill-rate 200000",
    },
];

const HEAD: &str = include_str!("performance/head.md");
const AIMS: &str = include_str!("performance/aims.md");
const APPENDIX: &str = include_str!("performance/appendix.md");
const SIXTEEN: &str = include_str!("performance/sixteen-cores.md");
const DEVICES: &str = include_str!("performance/devices.md");
const CARDS: &str = include_str!("performance/cards.md");

/// Measures and writes.
pub(super) fn run(programs: &Path, are_shipped: bool, words: &[String]) -> Result<()> {
    let name = "cargo xtask bench all".to_owned();
    let flags = Flags::parse_from(std::iter::once(&name).chain(words));
    for only in &flags.only {
        let names: Vec<&str> = sections().map(|section| section.name).collect();
        ensure!(
            names.contains(&only.as_str()),
            "--only takes some of {}, not {only}",
            names.join(", ")
        );
    }
    let path = match flags.quick {
        true => crate::commands::target().join("performance.md"),
        false => root().join("docs/performance.md"),
    };
    ensure!(
        flags.quick || !is_changed()?,
        "tables are measured from a clean commit: commit your changes first, or give --quick"
    );
    let before = fs::read_to_string(&path).unwrap_or_default();
    let (mut parts, mut failed) = (Vec::new(), Vec::new());
    for section in sections() {
        let wanted = flags.only.is_empty() || flags.only.iter().any(|name| name == section.name);
        let kept = || between(&before, section.name).map(str::to_owned);
        if !wanted {
            parts.push((section, kept()));
            continue;
        }
        match measure(section, (programs, are_shipped), &flags, &path) {
            Ok(part) => parts.push((section, Some(part))),
            Err(error) => {
                println!("{}: {error:#}", section.name);
                failed.push(section.name);
                parts.push((section, kept()));
            }
        }
        // If a later one is interrupted, the earlier ones are not lost.
        write(&path, &parts)?;
    }
    write(&path, &parts)?;
    println!("{}", path.display());
    match failed.is_empty() {
        true => Ok(()),
        false => bail!("not measured: {}", failed.join(", ")),
    }
}

/// All tables, in the order of the document.
fn sections() -> impl Iterator<Item = &'static Section> {
    std::iter::once(&FIRST).chain(SECTIONS)
}

/// Whether there are uncommitted changes. Measuring changes the document itself, which does not
/// count.
fn is_changed() -> Result<bool> {
    let mut status = program("git");
    status.current_dir(root());
    let changed = read(status.args([
        "status",
        "--porcelain",
        "--untracked-files=no",
        "--",
        ".",
        ":!docs",
    ]))?;
    Ok(!changed.trim().is_empty())
}

/// A table with what a reader needs to understand it.
fn measure(
    section: &Section,
    (programs, are_shipped): (&Path, bool),
    flags: &Flags,
    document: &Path,
) -> Result<String> {
    let words = match flags.quick {
        true => section.quick,
        false => section.words,
    };
    let bench = section.what.name();
    println!("== {}: {bench} {words}", section.name);
    let mut command = Command::new(programs.join("coua-bench"));
    command
        .current_dir(root())
        .arg(bench)
        .args(shlex::split(words).context("words with an open quote")?)
        .stderr(Stdio::inherit());
    let mut words = words.to_owned();
    if let (What::Hits | What::Flash, Some(folder)) = (section.what, &flags.traces) {
        command.arg("--traces").arg(std::path::absolute(folder)?);
        words.push_str(" --traces FOLDER");
    }
    if matches!(section.what, What::Figure | What::FirstScreen) {
        command.arg("--out").arg(figures(document));
    }
    let began = Instant::now();
    let output = command.output().context("coua-bench cannot be run")?;
    ensure!(output.status.success(), "{bench}: {}", output.status);
    let table = String::from_utf8(output.stdout).context("a table is text")?;
    let table = match section.what {
        What::Figure => shown(section.title, &table),
        What::FirstScreen => format!("{}\n\n{LOAD}", told(&table).trim_end()),
        _ => told(&table),
    };
    let dashes = if words.is_empty() { "" } else { " -- " };
    let shipped = if are_shipped { "--shipped " } else { "" };
    Ok(format!(
        "`cargo xtask bench {shipped}{bench}{dashes}{words}`, {} s. {}\n\n{}\n",
        began.elapsed().as_secs(),
        machine()?,
        table.trim_end(),
    ))
}

/// The plot of the first screen.
const LOAD: &str = "![p99 and p50 over the offered load](figures/load.svg)";

/// A program's output as a part of the document.
fn told(table: &str) -> String {
    // Where the programs are matters only on this machine.
    let lines = table.lines().filter(|line| !line.contains(", `/"));
    let is_heading = |line: &str| line.starts_with("## ") || line.starts_with("### ");
    let lines = lines.map(|line| match is_heading(line) {
        true => format!("####{}", line.trim_start_matches('#')),
        false => line.to_owned(),
    });
    lines.collect::<Vec<String>>().join("\n")
}

/// The folder of figures, which stands beside the document.
fn figures(document: &Path) -> PathBuf {
    document.with_file_name("figures")
}

/// The files of a figure, one a line, as the document shows them: the plot, and a link to its
/// values.
fn shown(title: &str, files: &str) -> String {
    let names = files
        .lines()
        .filter_map(|line| Path::new(line).file_name()?.to_str());
    let links = names.map(|name| match name.ends_with(".svg") {
        true => format!("![{title}](figures/{name})"),
        false => format!("[Its values](figures/{name})"),
    });
    links.collect::<Vec<String>>().join("\n\n")
}

/// The machine, the commit and the day, in one line.
fn machine() -> Result<String> {
    let field = |text: &str, name: &str| {
        let line = text.lines().find(|line| line.starts_with(name));
        let value = line.and_then(|line| line.split(':').nth(1));
        value.unwrap_or("unknown").trim().to_owned()
    };
    let cpu = fs::read_to_string("/proc/cpuinfo")?;
    let memory = fs::read_to_string("/proc/meminfo")?;
    let kib: u64 = field(&memory, "MemTotal")
        .trim_end_matches(" kB")
        .parse()
        .unwrap_or(0);
    let cores = std::thread::available_parallelism()?;
    let virtual_machine = match field(&cpu, "flags").contains(" hypervisor ") {
        true => ", a virtual machine",
        false => "",
    };
    let said = |command: &mut Command| read(command).map(|text| text.trim().to_owned());
    let commit = said(program("git").args(["rev-parse", "--short", "HEAD"]))?;
    let day = said(program("date").args(["-u", "+%Y-%m-%d"]))?;
    Ok(format!(
        "{}, {cores} cores, {} GiB{virtual_machine}; Linux {}; commit {commit}{}; {day}.",
        field(&cpu, "model name"),
        kib >> 20,
        said(program("uname").arg("-r"))?,
        if is_changed()? { " and changes" } else { "" },
    ))
}

fn write(path: &PathBuf, parts: &[(&Section, Option<String>)]) -> Result<()> {
    fs::write(path, document(parts)).with_context(|| path.display().to_string())
}

/// The first screen, the aims, and the appendix.
fn document(parts: &[(&Section, Option<String>)]) -> String {
    let shown = |(section, part): &(&Section, Option<String>)| {
        let Section {
            name, title, about, ..
        } = section;
        let part = part.as_deref().unwrap_or("Not measured yet.\n");
        let (begin, end) = marks(name);
        let level = if *name == FIRST.name { "##" } else { "###" };
        format!("{level} {title}\n\n{about}\n\n{begin}\n{part}{end}")
    };
    let (first, others) = parts.split_at(parts.len().min(1));
    let mut blocks = vec![HEAD.to_owned()];
    blocks.extend(first.iter().map(shown));
    blocks.extend([AIMS, APPENDIX].map(str::to_owned));
    blocks.extend(others.iter().map(shown));
    blocks.extend([DEVICES, SIXTEEN, CARDS].map(str::to_owned));
    let blocks: Vec<&str> = blocks.iter().map(|block| block.trim_end()).collect();
    format!("{}\n", blocks.join("\n\n"))
}

fn marks(name: &str) -> (String, String) {
    (format!("<!-- {name} -->"), format!("<!-- /{name} -->"))
}

/// The text between a table's two comments.
fn between<'t>(text: &'t str, name: &str) -> Option<&'t str> {
    let (begin, end) = marks(name);
    let (_, rest) = text.split_once(&format!("{begin}\n"))?;
    let (part, _) = rest.split_once(&end)?;
    Some(part)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_figure_is_shown_from_the_folder_beside_the_document() {
        assert_eq!(
            shown(
                "Gain",
                "/a/docs/figures/gain.csv\n/a/docs/figures/gain.svg\n"
            ),
            "[Its values](figures/gain.csv)\n\n![Gain](figures/gain.svg)"
        );
        assert_eq!(figures(Path::new("docs/p.md")), Path::new("docs/figures"));
    }

    #[test]
    fn headings_are_below_the_sections() {
        assert_eq!(
            told("a\n## Traces\n| coua, `/x/coua` |\nb"),
            "a\n#### Traces\nb"
        );
    }

    /// Whoever opens the page sees an answer, then what was missed, and only then how it was measured.
    #[test]
    fn the_first_screen_and_the_aims_stand_before_the_appendix() {
        let parts: Vec<_> = sections().map(|section| (section, None)).collect();
        let document = document(&parts);
        let at = |text: &str| document.find(text).unwrap_or_else(|| panic!("{text}"));
        let order = [
            "# Performance",
            "<!-- first-screen -->",
            "## Aims",
            "## Appendix",
            "<!-- server -->",
        ];
        assert!(order.map(at).is_sorted(), "{document}");
        // Parts are found again where they were written.
        let parts = sections().map(|section| (section, Some(format!("{}!\n", section.name))));
        let parts: Vec<_> = parts.collect();
        let document = super::document(&parts);
        for (section, part) in parts {
            assert_eq!(between(&document, section.name), part.as_deref());
        }
    }

    /// The document that is there is what this program writes from its parts.
    #[test]
    fn the_document_is_written_by_this_program() {
        let there = fs::read_to_string(root().join("docs/performance.md")).unwrap();
        let parts = sections().map(|section| {
            let part = between(&there, section.name).map(str::to_owned);
            (section, part)
        });
        assert!(
            document(&parts.collect::<Vec<_>>()) == there,
            "write it again: cargo xtask bench all --only NAME"
        );
    }

    #[test]
    fn a_table_is_found_between_its_marks() {
        let text = "a\n<!-- net -->\nold\ntable\n<!-- /net -->\nb";
        assert_eq!(between(text, "net"), Some("old\ntable\n"));
        assert_eq!(between(text, "server"), None);
    }
}
