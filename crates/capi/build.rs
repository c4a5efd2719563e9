//! Link arguments of `libquire.so`.
//!
//! Relies on a linker that takes the arguments of GNU ld.

fn main() {
    let major = std::env::var("CARGO_PKG_VERSION_MAJOR").unwrap_or_default();
    println!("cargo::rerun-if-changed=build.rs");
    // Programs link to the interface, not to the version: libquire.so.0 serves all versions that keep it.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libquire.so.{major}");
    // Threads of ours and the handler of SIGBUS outlive a dlclose, so the code has to stay.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
}
