//! A test in a process of its own.

use std::os::unix::process::ExitStatusExt;
use std::process::Command;

use crate::memory::end_after;

/// Says to the process that it is the one.
const CHILD: &str = "COUA_MEMORY_ERRORS_TEST_CHILD";

/// The child says this when it has come to its end, and before what ends it.
const REACHED: &str = "the child has come this far";

/// The child says this if the machine cannot show what the test is about.
const LEFT_OUT: &str = "left out: ";

/// A child that never ends is ended: the emulator is slow, and a handler that never lets go is what
/// these tests are to find.
const CHILD_SECONDS_MAX: u32 = 600;

/// How the child ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    Returns,
    /// By this signal.
    Signal(i32),
}

/// Runs the body of the test `module::name` in a child, which ends as it should.
pub(crate) fn run_alone(module: &str, name: &str, ending: Ending, body: impl FnOnce()) {
    let (_, module) = module.split_once("::").expect("a module of this program");
    let name = format!("{module}::{name}");
    if std::env::var_os(CHILD).is_some() {
        end_after(CHILD_SECONDS_MAX);
        body();
        reached();
        return;
    }
    let program = std::env::current_exe().expect("the system knows this program");
    let output = Command::new(program)
        .args(["--exact", &name, "--nocapture", "--test-threads=1"])
        .env(CHILD, "1")
        .output()
        .expect("this program runs again");
    let said = String::from_utf8_lossy(&output.stdout);
    if let Some(why) = said.lines().find_map(|line| line.split_once(LEFT_OUT)) {
        tell(&format!("{name} is left out: {}", why.1));
        return;
    }
    let shown = || {
        let complaints = String::from_utf8_lossy(&output.stderr);
        format!("{}\n{said}\n{complaints}", output.status)
    };
    assert!(said.contains(REACHED), "{name} stopped early:\n{}", shown());
    match ending {
        Ending::Returns => assert!(output.status.success(), "{}", shown()),
        Ending::Signal(signal) => {
            assert_eq!(output.status.signal(), Some(signal), "{}", shown());
        }
    }
    for line in said.lines().filter(|line| line.starts_with("  ")) {
        tell(line);
    }
}

/// In a child: what follows ends it.
pub(crate) fn reached() {
    tell(REACHED);
}

/// In a child: ends it, since this machine cannot show what the test is about.
pub(crate) fn leave_out(why: &str) -> ! {
    tell(&format!("{LEFT_OUT}{why}"));
    std::process::exit(0)
}

#[expect(clippy::print_stdout, reason = "what a test says")]
pub(crate) fn tell(line: &str) {
    println!("{line}");
}

/// Runs the body in a process of its own, under the name of the test that says so.
macro_rules! alone {
    ($name:ident, $ending:expr, $body:expr) => {
        #[test]
        fn $name() {
            $crate::alone::run_alone(module_path!(), stringify!($name), $ending, $body);
        }
    };
    ($name:ident, $body:expr) => {
        alone!($name, $crate::alone::Ending::Returns, $body);
    };
}
pub(crate) use alone;
