//! The steps of a test run, in their order: the quickest to tell of a mistake come first.

use std::path::Path;

use anyhow::Result;

use super::{Context, Outcome, Step, clients, deep};
use crate::commands::{cargo, program, read, run};

/// All steps.
pub(crate) const STEPS: &[Step] = &[
    Step {
        name: "workspace",
        long: false,
        run: workspace,
    },
    Step {
        name: "pymemcache",
        long: false,
        run: clients::pymemcache,
    },
    Step {
        name: "pylibmc",
        long: false,
        run: clients::pylibmc,
    },
    Step {
        name: "gomemcache",
        long: false,
        run: clients::gomemcache,
    },
    Step {
        name: "memccapable",
        long: false,
        run: clients::memccapable,
    },
    Step {
        name: "nutcracker",
        long: false,
        run: clients::nutcracker,
    },
    Step {
        name: "loom",
        long: false,
        run: deep::loom,
    },
    Step {
        name: "address-sanitizer",
        long: false,
        run: deep::address_sanitizer,
    },
    Step {
        name: "fuzz",
        long: false,
        run: deep::fuzz,
    },
    Step {
        name: "aarch64",
        long: false,
        run: aarch64,
    },
    Step {
        name: "stress",
        long: true,
        run: deep::stress,
    },
    Step {
        name: "miri",
        long: true,
        run: deep::miri,
    },
    Step {
        name: "thread-sanitizer",
        long: true,
        run: deep::thread_sanitizer,
    },
];

/// Every crate's unit, property, script and hostile-client tests, and the examples in the documentation.
fn workspace(context: &Context) -> Result<Outcome> {
    let mut command = cargo();
    command
        .args(["test", "--workspace", "--no-fail-fast"])
        .env("MEMCACHED_BIN", &context.tools.memcached);
    if let Some(filter) = &context.test_filter {
        command.args(["--", filter]);
    }
    run(&mut command)?;
    Ok(Outcome::Passed)
}

/// Compiles for the other architecture; nothing is run.
fn aarch64(_: &Context) -> Result<Outcome> {
    const TARGET: &str = "aarch64-unknown-linux-gnu";
    let library = read(program("rustc").args(["--print", "sysroot"])).map(|sysroot| {
        Path::new(&sysroot)
            .join("lib/rustlib")
            .join(TARGET)
            .is_dir()
    });
    if !library.unwrap_or(false) {
        return Ok(Outcome::LeftOut(format!(
            "no standard library: `rustup target add {TARGET}`"
        )));
    }
    run(cargo().args(["check", "--workspace", "--target", TARGET]))?;
    Ok(Outcome::Passed)
}
