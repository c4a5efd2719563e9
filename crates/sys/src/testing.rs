//! What tests of many crates share: what a test says that cannot run on this machine, and files that are kept as fixtures.
//!
//! Relies on the environment variable `CI`: where it is `true` the machine is meant to have all that tests ask for. Not part of
//! the product; it is here because the tests of all crates reach it.

use std::fmt::Display;
use std::fs::File;
use std::io::{self, Write};

use rustix::mm::{MlockAllFlags, mlockall};

/// Says that the calling test does not run, and why. Where `CI` is `true`, the test fails instead.
///
/// # Panics
///
/// If `CI` is `true`.
pub fn skipped(why: impl Display) {
    say(&why);
    assert!(std::env::var("CI").as_deref() != Ok("true"), "skipped, but nothing may be skipped where CI=true: {why}");
}

/// As [`skipped`], for what the machines of the CI lack too: huge pages at the moment, an address beside the loopback.
pub fn skipped_even_in_ci(why: impl Display) {
    say(&why);
}

/// An empty file that takes space and no bytes, as a full disk may: each write fails with EPERM.
///
/// # Errors
/// As `memfd_create` and `fcntl`.
pub fn file_without_writes() -> io::Result<File> {
    use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};
    let file = File::from(memfd_create("quire-test", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?);
    fcntl_add_seals(&file, SealFlags::FUTURE_WRITE)?;
    Ok(file)
}

/// The file that a fixture stands for. The fixture has the parts of the file that are not zero: the file's length, then place,
/// length and bytes of each part, numbers in 8, 8 and 4 bytes.
///
/// # Panics
///
/// If it is no such fixture.
pub fn unfold(fixture: &[u8]) -> Vec<u8> {
    let (len, mut rest) = fixture.split_first_chunk::<8>().expect("a length");
    let mut file = vec![0; u64::from_le_bytes(*len) as usize];
    while let Some((place, tail)) = rest.split_first_chunk::<8>() {
        let (count, tail) = tail.split_first_chunk::<4>().expect("a part's length");
        let (bytes, tail) = tail.split_at(u32::from_le_bytes(*count) as usize);
        let place = u64::from_le_bytes(*place) as usize;
        file[place..place + bytes.len()].copy_from_slice(bytes);
        rest = tail;
    }
    file
}

/// Past the test harness, which keeps what a test prints and shows it only if the test fails.
fn say(why: &dyn Display) {
    let thread = std::thread::current();
    let line = format!("skipped: {}: {why}\n", thread.name().unwrap_or("a test"));
    let _ = std::io::stdout().lock().write_all(line.as_bytes());
}

/// Locks all memory that this process has and gets from now on, as a program does that may never wait for a page.
///
/// # Errors
/// As `mlockall`: the process may not lock as much.
pub fn lock_all_memory() -> io::Result<()> {
    Ok(mlockall(MlockAllFlags::CURRENT | MlockAllFlags::FUTURE)?)
}
