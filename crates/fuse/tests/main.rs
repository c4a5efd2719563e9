//! The tests of mounts as one program, of which each file is a module: one program is compiled and linked sooner than many.
//! `cargo test -p quire-fuse --test integration posix` runs those of one file.
//!
//! Relies on tests that need a process of their own being programs of their own, which `Cargo.toml` names with the reason.

mod access;
mod common;
mod faults;
mod locks;
mod many;
mod neighbours;
mod posix;
mod settling;
mod stuck;
mod write_through;

/// Nothing by itself: this is what the daemons of the tests do.
#[test]
fn serve_if_asked() {
    common::serve_if_asked();
}
