//! What is said when it does not start: one line with what to do.

use coua_transport::userspace::dpdk::{Eal, EalError, Port, PortError};

use super::child::Child;
use super::huge_pages::{self, HugePages};
use super::links::{COMMON, Meeting};
use super::roles::{options, say, setting};

type Settings<'s> = &'s [(&'s str, &'s str)];

/// Opens a port and says how that went.
pub(crate) fn open() {
    if setting("ordinary").is_some() {
        become_ordinary();
    }
    let eal = match Eal::start(&setting("eal").expect("EAL's arguments")) {
        Ok(eal) => eal,
        Err(error) => return say(&format!("error {} {error}", kind_of_eal(&error))),
    };
    match Port::open(eal, &options()) {
        Ok((port, queues)) => say(&format!("opened {} {}", port.name(), queues.len())),
        Err(error) => say(&format!("error {} {error}", kind_of_port(&error))),
    }
}

/// Starts EAL a second time.
pub(crate) fn start_twice() {
    let arguments = setting("eal").expect("EAL's arguments");
    Eal::start(&arguments).expect("EAL starts");
    let error = Eal::start(&arguments).expect_err("it has been started");
    say(&format!("error {} {error}", kind_of_eal(&error)));
}

/// Opens a port a second time, and again when it is closed.
pub(crate) fn open_twice() {
    let eal = Eal::start(&setting("eal").expect("EAL's arguments")).expect("EAL starts");
    let (port, queues) = Port::open(eal, &options()).expect("the port opens");
    let error = Port::open(eal, &options())
        .map(|_| ())
        .expect_err("it is open");
    say(&format!("error {} {error}", kind_of_port(&error)));
    drop(port);
    // The queues alone keep it open.
    assert_eq!(Port::names(eal).len(), 1);
    drop(queues);
    say(&format!("left {}", Port::names(eal).len()));
}

/// Gives the calling thread, which EAL starts on, the rights of nobody.
fn become_ordinary() {
    use rustix::process::Uid;
    rustix::thread::set_thread_uid(Uid::from_raw(65534)).expect("root may");
}

fn kind_of_eal(error: &EalError) -> &'static str {
    match error {
        EalError::Unreadable => "Unreadable",
        EalError::Arguments => "Arguments",
        EalError::NoHugePages => "NoHugePages",
        EalError::FewHugePages { .. } => "FewHugePages",
        EalError::NotMounted => "NotMounted",
        EalError::Permission => "Permission",
        EalError::Again => "Again",
        EalError::Other { .. } => "Other",
    }
}

fn kind_of_port(error: &PortError) -> &'static str {
    match error {
        PortError::NoPort => "NoPort",
        PortError::NoSuchPort { .. } => "NoSuchPort",
        PortError::InUse { .. } => "InUse",
        PortError::Queues { .. } => "Queues",
        PortError::Mtu { .. } => "Mtu",
        PortError::Memory { .. } => "Memory",
        PortError::Refused { .. } => "Refused",
    }
}

/// The role `open` fails like this.
fn fails(eal: &str, settings: &[(&str, &str)], kind: &str, hints: &[&str]) {
    let mut child = Child::start("open", eal, settings);
    expect_error(&mut child, kind, hints);
    child.end();
}

/// What a role says is one line that names `hints`.
fn expect_error(child: &mut Child, kind: &str, hints: &[&str]) {
    let said = child.hear("error");
    let (actual, line) = said.split_once(' ').expect("a kind and a line");
    assert_eq!(actual, kind, "{line}");
    for hint in hints {
        assert!(line.contains(hint), "{hint:?} is not in {line:?}");
    }
}

#[test]
fn arguments_that_cannot_be_read_are_named() {
    let _pages = HugePages::for_two();
    fails(
        "--vdev='net",
        &[],
        "Unreadable",
        &["quotation", "--dpdk-args"],
    );
    fails("--no-such-thing", &[], "Arguments", &["--dpdk-args"]);
}

#[test]
fn without_huge_pages_it_says_how_to_have_some() {
    let pages = HugePages::only(0);
    let hint = "/proc/sys/vm/nr_hugepages";
    // Another program may hold some, which stay.
    let kind = if huge_pages::count() == 0 {
        "NoHugePages"
    } else {
        "FewHugePages"
    };
    fails(COMMON, &[], kind, &[hint]);
    drop(pages);
    let _pages = HugePages::only(8);
    fails(COMMON, &[], "FewHugePages", &[hint, "2048 KiB", "-m"]);
}

#[test]
fn who_may_not_is_told_what_is_needed() {
    let _pages = HugePages::for_two();
    let eal = "--no-pci -m 64 --no-telemetry --file-prefix=coua-test";
    let mount = "mount -t hugetlbfs -o mode=0700 none /mnt";
    let mut child = Child::start_after(mount, "open", eal, &[("ordinary", "1")]);
    expect_error(&mut child, "Permission", &["root", "/dev/hugepages"]);
    child.end();
    let unmount = "! umount -a -t hugetlbfs";
    let mut child = Child::start_after(unmount, "open", eal, &[]);
    expect_error(&mut child, "NotMounted", &["hugetlbfs", "--in-memory"]);
    child.end();
}

#[test]
fn ports_that_cannot_be_had_are_named() {
    let _pages = HugePages::for_two();
    fails(COMMON, &[], "NoPort", &["dpdk-devbind.py", "--vdev"]);
    let cases: [(Settings<'_>, &str, &[&str]); 5] = [
        (
            &[("name", "net_memif7")],
            "NoSuchPort",
            &["net_memif7", "net_memif0"],
        ),
        (
            &[("queues", "257")],
            "Queues",
            &["net_memif0", "255", "257"],
        ),
        (&[("queues", "0")], "Queues", &["net_memif0"]),
        (&[("mtu", "9000")], "Mtu", &["net_memif0", "9000", "1500"]),
        (&[("mtu", "1279")], "Mtu", &["1279", "1280"]),
    ];
    for (settings, kind, hints) in cases {
        // A socket in the file system stays where its port is not opened and closed.
        fails(&Meeting::new().memif_server(), settings, kind, hints);
    }
    // Nobody waits at the other end.
    let refused = ["net_memif0", "refuses to start"];
    fails(&Meeting::new().memif_client(), &[], "Refused", &refused);
}

#[test]
fn too_little_memory_says_how_much_is_needed() {
    let _pages = HugePages::for_two();
    let meeting = Meeting::new();
    let eal = meeting
        .memif_server()
        .replace("-m 64", "-m 8 --socket-limit=8");
    fails(&eal, &[], "Memory", &["net_memif0", "MiB", "-m"]);
}

#[test]
fn it_starts_once_and_a_port_opens_once() {
    let _pages = HugePages::for_two();
    let mut child = Child::start("start-twice", COMMON, &[]);
    assert!(child.hear("error").starts_with("Again "));
    child.end();
    let meeting = Meeting::new();
    let mut child = Child::start("open-twice", &meeting.memif_server(), &[]);
    assert!(child.hear("error").starts_with("InUse "));
    assert_eq!(child.hear("left"), "0");
    child.end();
}

#[test]
fn a_port_is_found_by_its_name() {
    let _pages = HugePages::for_two();
    for (name, expected) in [(None, "net_memif0 1"), (Some("net_memif1"), "net_memif1 1")] {
        let (one, two) = (Meeting::new(), Meeting::new());
        let second = two.memif_server().replace(COMMON, "");
        // Two devices of one driver are told apart by their identifiers.
        let second = second.replace("net_memif0,", "net_memif1,id=1,");
        let eal = format!("{}{second}", one.memif_server());
        let settings: Vec<_> = name.map(|name| ("name", name)).into_iter().collect();
        let mut child = Child::start("open", &eal, &settings);
        assert_eq!(child.hear("opened"), expected);
        child.end();
    }
}
