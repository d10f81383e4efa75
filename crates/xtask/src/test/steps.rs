//! The steps of a test run, in order: those that find mistakes soonest come first.

use anyhow::Result;

use super::{
    Context, Outcome, Step, aarch64, capabilities, clients, containers, deep, fleet, java_client,
    lab, monitoring, package, proxies, tls,
};
use crate::commands::{cargo, program, run};
use crate::setup::cargo_tool;

/// All steps.
pub(crate) const STEPS: &[Step] = &[
    quick("workspace", workspace),
    quick("dpdk", dpdk),
    quick("pymemcache", clients::pymemcache),
    quick("pylibmc", clients::pylibmc),
    quick("bmemcached", clients::bmemcached),
    quick("logins", clients::logins),
    quick("aiomcache", clients::aiomcache),
    quick("meta-memcache", clients::meta_memcache),
    quick("gomemcache", clients::gomemcache),
    quick("dalli", clients::dalli),
    quick("spymemcached", clients::spymemcached),
    quick("xmemcached", clients::xmemcached),
    quick("folsom", clients::folsom),
    quick("discovery", clients::discovery),
    quick("java-client", java_client::java_client),
    quick("memjs", clients::memjs),
    quick("perl", clients::perl),
    quick("php", clients::php),
    quick("memccapable", capabilities::memccapable),
    quick("libmemcached-tools", clients::libmemcached_tools),
    quick("tls", tls::tls),
    quick("secured-clients", clients::secured_clients),
    quick("userspace-clients", clients::userspace_clients),
    quick("userspace-clients-dpdk", clients::userspace_clients_dpdk),
    quick("nutcracker", proxies::nutcracker),
    quick("memcached-proxy", proxies::memcached_proxy),
    quick("fleet", fleet::fleet),
    quick("kubernetes", containers::kubernetes),
    quick("monitoring", monitoring::monitoring),
    quick("killed", deep::killed),
    quick("loom", deep::loom),
    quick("address-sanitizer", deep::address_sanitizer),
    quick("fuzz", deep::fuzz),
    quick("aarch64", aarch64::aarch64),
    long("stress", deep::stress),
    long("restarts", deep::restarts),
    long("miri", deep::miri),
    long("thread-sanitizer", deep::thread_sanitizer),
    long("lab", lab::lab),
    long("image", containers::image),
    long("package", package::package),
    long("dependencies", dependencies),
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

/// The DPDK driver. A build without the feature does not need DPDK's library.
fn dpdk(_: &Context) -> Result<Outcome> {
    let features = [
        "--features",
        "coua/dpdk,coua-transport/dpdk,coua-bench/dpdk",
    ];
    let crates = ["coua", "coua-transport", "coua-dpdk-sys", "coua-bench"];
    let crates = crates.into_iter().flat_map(|name| ["-p", name]);
    let lints = ["--all-targets", "--", "-D", "warnings"];
    run(cargo()
        .arg("clippy")
        .args(crates)
        .args(features)
        .args(lints))?;
    run(cargo()
        .args(["test", "-p", "coua-transport", "--features", "dpdk"])
        .args(["--lib", "--test", "dpdk"]))?;
    run(cargo()
        .args(["test", "-p", "coua", "--features", "dpdk"])
        .args(["--test", "userspace", "--", "dpdk"]))?;
    Ok(Outcome::Passed)
}

/// Licences, sources and duplicates of dependencies, by the rules of `deny.toml`. Advisories are
/// not checked: they come from a server, which a test must not depend on.
fn dependencies(_: &Context) -> Result<Outcome> {
    let mut command = program(cargo_tool("cargo-deny")?);
    run(command.args(["--all-features", "check", "licenses", "bans", "sources"]))?;
    Ok(Outcome::Passed)
}
