//! What was remapped, what was copied and why: counted, and told at the program's end or when the lease process gets SIGUSR1.
//!
//! Relies on atomics alone.

use std::fmt::{self, Write};
use std::sync::atomic::{AtomicU64, Ordering};

use quire_units::Bytes;

use super::patterns;
use crate::{log, state};

macro_rules! counted {
    ($(#[$docs:meta])* $name:ident { $($(#[$doc:meta])* $case:ident = $words:literal,)* }) => {
        $(#[$docs])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $name { $($(#[$doc])* $case,)* }
        impl $name {
            const ALL: &'static [(Self, &'static str)] = &[$((Self::$case, $words),)*];
        }
    };
}

counted! {
    /// Why a large read was copied.
    CopyReason {
        /// The buffer is no memory that the library has handed out.
        ForeignBuffer = "into other memory",
        /// Buffer and offset lie differently within a page, or there is no whole page.
        Unaligned = "unaligned",
        /// No regular file, or read past the page cache.
        Uncacheable = "no cached file",
        /// The descriptor may write, so that no process gets a lease on the file.
        Writable = "open for writing",
        /// No pattern fits the path.
        NotAskedFor = "not asked for",
        /// The kernel gives no lease: the file is open for writing, lies on such a file system, or isn't the user's.
        NoLease = "no lease",
        /// The lease process is not there (yet), or has not opened the file yet.
        NotReady = "not ready",
        /// Another thread remaps, or the lease process converts.
        Contended = "lock taken",
        /// A thread forks.
        Forking = "forks",
        /// Not all of it is in the page cache.
        NotCached = "not cached",
        /// The loss model expects a loss.
        Loss = "loss expected",
        /// Probes of such reads were in vain lately, so this one was not probed.
        InVain = "not probed",
        /// The file is small, or little of it is left from there on.
        Short = "too little left",
        /// The file ends there.
        AtEnd = "at the end",
        /// There are too many ranges.
        TableFull = "too many ranges",
        /// The program has few mappings left, or there are none to convert what is remapped by.
        NoMaps = "no mappings to spare",
        /// The program has given advice about the memory, locked or protected it.
        AdvisedMemory = "advised memory",
        /// The kernel refused the remap.
        Refused = "refused",
    }
}

static COPIES: [AtomicU64; CopyReason::ALL.len()] = [const { AtomicU64::new(0) }; CopyReason::ALL.len()];
/// Reads of which a part was remapped.
pub static REMAPS: AtomicU64 = AtomicU64::new(0);
/// Bytes that were remapped.
pub static REMAPPED_BYTES: AtomicU64 = AtomicU64::new(0);
/// Bytes that were made anonymous memory again.
pub static CONVERTED_BYTES: AtomicU64 = AtomicU64::new(0);
/// Pages that could not be converted: they can't be read any more, or their memory is gone.
pub static LOST_PAGES: AtomicU64 = AtomicU64::new(0);
/// Leases that writers have broken.
pub static BROKEN: AtomicU64 = AtomicU64::new(0);
/// Leases that were taken.
pub static LEASES: AtomicU64 = AtomicU64::new(0);

/// A read was copied.
pub fn copied(reason: CopyReason) {
    COPIES[reason as usize].fetch_add(1, Ordering::Relaxed);
}

/// Adds to a figure.
pub fn add(figure: &AtomicU64, count: u64) {
    figure.fetch_add(count, Ordering::Relaxed);
}

/// How often reads were copied for which reason.
struct Copies;

impl fmt::Display for Copies {
    fn fmt(&self, text: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut is_first = true;
        for (reason, words) in CopyReason::ALL {
            let count = COPIES[*reason as usize].load(Ordering::Relaxed);
            if count > 0 {
                text.write_str(if is_first { "" } else { ", " })?;
                write!(text, "{count} {words}")?;
                is_first = false;
            }
        }
        if is_first { text.write_char('0') } else { Ok(()) }
    }
}

/// Prints a line with all figures.
pub fn tell() {
    let [remaps, bytes, leases, broken, converted, lost] =
        [&REMAPS, &REMAPPED_BYTES, &LEASES, &BROKEN, &CONVERTED_BYTES, &LOST_PAGES]
            .map(|figure| figure.load(Ordering::Relaxed));
    log::line(format_args!(
        "zread: {remaps} reads remapped, {}; copied: {Copies}; {leases} leases, {broken} broken; {} converted, {lost} pages lost",
        Bytes(bytes),
        Bytes(converted)
    ));
}

/// Before the program's end: the figures, if they are asked for.
pub fn about_to_end() {
    if patterns::settings().is_some_and(|settings| settings.tells_stats || state::settings().log >= 1) {
        tell();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_are_told_with_their_number() {
        for (at, (reason, _)) in CopyReason::ALL.iter().enumerate() {
            assert_eq!(*reason as usize, at);
        }
        copied(CopyReason::Forking);
        assert!(Copies.to_string().contains(" forks"));
    }
}
