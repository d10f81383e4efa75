//! What `-h` and the manual page say beside the flags: the options of `-o`, examples, signals,
//! environment, exit status. Both are made of the same sections.

use std::fmt::Write;
use std::io;

use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, roman};

use super::FlagError;
use super::extended::{ALL, Effect, Suboption};

/// Columns that the help's tables take at most.
const WIDTH: usize = 90;

/// Columns in front of the explanations of a table.
const INDENT: usize = 27;

/// A table of terms and what they mean, under a heading.
struct Section {
    title: &'static str,
    entries: Vec<(String, String)>,
}

const EXAMPLES: &[(&str, &str)] = &[
    (
        "coua doctor",
        "look at the machine and say what to change; coua doctor -h has more",
    ),
    (
        "coua",
        "listen on port 11211 of all addresses; keep 64 MiB and evict the least used items",
    ),
    ("coua -m 1024", "take 1 GiB of memory"),
    (
        "coua -l 127.0.0.1:11311 -vv",
        "listen on one address and log all requests",
    ),
    (
        "coua -s /run/coua.sock -a 770",
        "listen on a unix socket for the user and the group, not on the network",
    ),
    (
        "coua -m 8g -c 20000 -o idle_timeout=300",
        "serve many clients and close connections that are idle for five minutes",
    ),
    (
        "coua --cores 2-5 -k",
        "pin four threads to cores and lock memory, so that it is never swapped out",
    ),
    (
        "coua -m 8g -e /dev/shm/coua",
        "items that outlive the process",
    ),
    (
        "coua -Z -o ssl_chain_cert=cert.pem,ssl_key=key.pem",
        "serve with TLS",
    ),
    (
        "coua -d -u memcache -P /run/coua/coua.pid",
        "run in the background, without root's rights",
    ),
];

const SIGNALS: &[(&str, &str)] = &[
    (
        "SIGTERM, SIGINT, SIGUSR1",
        "Accept no more, let connections finish what they have begun (-o drain_timeout), then end \
         with status 0; a second one ends it at once. With -e the next process goes on with the \
         items; it does after any other end, too, until the machine restarts.",
    ),
    (
        "SIGUSR2",
        "With -e: execute the program anew, after an upgrade say, with the same flags, sockets and \
         items. Connections finish what they have begun (-o drain_timeout) and end once; new ones \
         wait until it serves. The card of --net xdp, packet and memif is opened anew, for which \
         the user (-u) needs the rights; not with --net dpdk and tap.",
    ),
    (
        "SIGHUP",
        "Read the file of --config, that of -Y and the certificates of -Z again. The log says what has changed, \
         and what needs a restart. Who has logged in, or is connected, stays so.",
    ),
];

const ENVIRONMENT: &[(&str, &str)] = &[
    (
        "MEMCACHED_PORT_FILENAME",
        "File that coua writes its ports to, one a line, such as TCP INET: 11211.",
    ),
    (
        "LISTEN_FDS, LISTEN_PID",
        "Sockets that a service manager has opened (sd_listen_fds(3)). They take the place of those \
         that -l, -p, -U and -s name.",
    ),
    (
        "NOTIFY_SOCKET, WATCHDOG_USEC",
        "Where a service manager is told that coua serves, hands over and stops, and how often it \
         wants to hear that it works (sd_notify(3), sd_watchdog_enabled(3)).",
    ),
];

const EXIT_STATUS: &[(&str, &str)] = &[
    ("0", "It was asked to stop."),
    ("64", "A flag is wrong."),
    ("67", "There is no such user (-u)."),
    (
        "71",
        "The system refuses an address, memory or descriptors.",
    ),
    (
        "78",
        "The file of --config is wrong, or what it names cannot be used.",
    ),
];

fn sections() -> [Section; 7] {
    let table = |title, entries: &[(&str, &str)]| Section {
        title,
        entries: entries
            .iter()
            .map(|(term, text)| ((*term).to_owned(), (*text).to_owned()))
            .collect(),
    };
    [
        Section {
            title: "Options of -o",
            entries: options(Effect::Works),
        },
        Section {
            title: "Options of -o without effect",
            entries: options(Effect::None),
        },
        Section {
            title: "Options of -o that are refused",
            entries: options(Effect::Refused),
        },
        table("Signals", SIGNALS),
        table("Environment", ENVIRONMENT),
        table("Exit status", EXIT_STATUS),
        table("Examples", EXAMPLES),
    ]
}

/// The options of one effect; neighbours of one text stand together.
fn options(effect: Effect) -> Vec<(String, String)> {
    let mut entries: Vec<(String, String)> = Vec::new();
    for option in ALL.iter().filter(|option| option.effect == effect) {
        let name = shown(option);
        match entries.last_mut() {
            Some((names, text)) if text == option.text => {
                names.push_str(", ");
                names.push_str(&name);
            }
            _ => entries.push((name, option.text.to_owned())),
        }
    }
    entries
}

fn shown(option: &Suboption) -> String {
    match option.form() {
        Some(value) if option.effect == Effect::Works => format!("{}={value}", option.name),
        _ => option.name.to_owned(),
    }
}

/// What stands behind the flags in the help.
pub(super) fn after_flags() -> String {
    let mut text = String::new();
    for Section { title, entries } in sections() {
        let gap = if text.is_empty() { "" } else { "\n" };
        // Writing to a string does not fail.
        let _ = writeln!(text, "{gap}{title}:");
        for (term, meaning) in entries {
            entry(&mut text, &term, &meaning);
        }
    }
    text.truncate(text.trim_end().len());
    text
}

/// One entry: the term, then its meaning in a column beside it or on lines below it.
fn entry(text: &mut String, term: &str, meaning: &str) {
    let mut terms = lines(term, WIDTH - 2);
    let last = terms.pop().unwrap_or_default();
    for line in terms {
        let _ = writeln!(text, "  {line}");
    }
    let _ = write!(text, "  {last}");
    let mut column = 2 + last.len();
    if column + 2 > INDENT {
        text.push('\n');
        column = 0;
    }
    for line in lines(meaning, WIDTH - INDENT) {
        let _ = writeln!(text, "{:1$}{line}", "", INDENT - column);
        column = 0;
    }
}

/// The text in lines of at most `width` letters.
fn lines(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split(' ') {
        match lines.last_mut() {
            Some(line) if line.len() + 1 + word.len() <= width => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

/// The manual page, in the language of man(7).
pub(super) fn manual(command: clap::Command) -> io::Result<String> {
    let mut page = Vec::new();
    let man = Man::new(command).manual("coua");
    man.render_title(&mut page)?;
    man.render_name_section(&mut page)?;
    man.render_synopsis_section(&mut page)?;
    man.render_description_section(&mut page)?;
    man.render_options_section(&mut page)?;
    for Section { title, entries } in sections() {
        let mut roff = Roff::new();
        roff.control("SH", [title.to_uppercase().as_str()]);
        for (term, meaning) in entries {
            roff.control("TP", []);
            roff.text([bold(term)]);
            roff.text([roman(meaning)]);
        }
        roff.to_writer(&mut page)?;
    }
    Ok(String::from_utf8_lossy(&page).into_owned())
}

/// A script by which a shell completes flags.
pub(super) fn completions(mut command: clap::Command, shell: &str) -> Result<String, FlagError> {
    let known: clap_complete::Shell = shell.parse().map_err(|_| {
        let takes = "bash, elvish, fish, powershell or zsh";
        FlagError::value("--completions", shell, takes)
    })?;
    let mut script = Vec::new();
    clap_complete::generate(known, &mut command, "coua", &mut script);
    Ok(String::from_utf8_lossy(&script).into_owned())
}
