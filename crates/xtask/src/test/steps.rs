//! The steps of a test run, in their order: the quickest to tell of a mistake come first.

use std::path::Path;

use anyhow::Result;

use super::{Context, Outcome, Step, capabilities, clients, deep, proxies};
use crate::commands::{cargo, program, read, run};

/// All steps.
pub(crate) const STEPS: &[Step] = &[
    quick("workspace", workspace),
    quick("pymemcache", clients::pymemcache),
    quick("pylibmc", clients::pylibmc),
    quick("bmemcached", clients::bmemcached),
    quick("aiomcache", clients::aiomcache),
    quick("meta-memcache", clients::meta_memcache),
    quick("gomemcache", clients::gomemcache),
    quick("dalli", clients::dalli),
    quick("spymemcached", clients::spymemcached),
    quick("xmemcached", clients::xmemcached),
    quick("folsom", clients::folsom),
    quick("memjs", clients::memjs),
    quick("perl", clients::perl),
    quick("php", clients::php),
    quick("memccapable", capabilities::memccapable),
    quick("libmemcached-tools", clients::libmemcached_tools),
    quick("nutcracker", proxies::nutcracker),
    quick("memcached-proxy", proxies::memcached_proxy),
    quick("loom", deep::loom),
    quick("address-sanitizer", deep::address_sanitizer),
    quick("fuzz", deep::fuzz),
    quick("aarch64", aarch64),
    long("stress", deep::stress),
    long("miri", deep::miri),
    long("thread-sanitizer", deep::thread_sanitizer),
];

const fn quick(name: &'static str, run: fn(&Context) -> Result<Outcome>) -> Step {
    Step {
        name,
        long: false,
        run,
    }
}

const fn long(name: &'static str, run: fn(&Context) -> Result<Outcome>) -> Step {
    Step {
        name,
        long: true,
        run,
    }
}

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
