//! Gives the shared library its name for the loader: programs keep to the version of the interface.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libcouaclient.so.1");
}
