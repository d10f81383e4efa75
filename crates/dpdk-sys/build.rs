//! Compiles the shim against the DPDK that pkg-config finds.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    #[cfg(feature = "dpdk")]
    shim::build();
}

#[cfg(feature = "dpdk")]
mod shim {
    use std::process::Command;

    const SOURCE: &str = "src/shim.c";

    pub(crate) fn build() {
        println!("cargo::rerun-if-changed={SOURCE}");
        // The drivers are not linked: EAL loads them from its own folder at start.
        let found = pkg_config::Config::new()
            .atleast_version("22.11")
            .cargo_metadata(false)
            .probe("libdpdk");
        let library = found.unwrap_or_else(|error| {
            panic!(
                "the feature `dpdk` needs DPDK 22.11 or newer with its headers and pkg-config \
                 (on Debian: apt install libdpdk-dev pkg-config): {error}"
            )
        });
        let mut shim = cc::Build::new();
        shim.file(SOURCE).opt_level(3).warnings(false);
        // Flags, not folders alone: the headers need DPDK's own configuration and instruction set.
        for flag in compiler_flags() {
            shim.flag(flag);
        }
        shim.compile("coua_dpdk_shim");

        // After the shim, which needs them.
        for library in [
            "rte_ethdev",
            "rte_net",
            "rte_mbuf",
            "rte_mempool",
            "rte_ring",
            "rte_eal",
        ] {
            println!("cargo::rustc-link-lib=dylib={library}");
        }
        for path in library.link_paths {
            println!("cargo::rustc-link-search=native={}", path.display());
        }
    }

    fn compiler_flags() -> Vec<String> {
        let program = std::env::var("PKG_CONFIG").unwrap_or_else(|_| "pkg-config".to_owned());
        let output = Command::new(program)
            .args(["--cflags", "libdpdk"])
            .output()
            .expect("pkg-config has just been run");
        let flags = String::from_utf8_lossy(&output.stdout).into_owned();
        flags.split_whitespace().map(str::to_owned).collect()
    }
}
