//! Asking the lease process for leases: for which files, how often, and at what cost at most.
//!
//! Relies on a few places that are chosen by the file's number: files that share one are asked for more often than they need be.

use std::sync::atomic::{AtomicU64, Ordering};

use quire_sys::caller_file::{CallerFile, FileAccess};
use quire_sys::guest;
use quire_sys::lease::FileKey;

use super::stats::CopyReason;
use super::{lease_process, maps, patterns, requests};

/// Answers of the files that were refused lately, by their number: the number, the device, until when, and how often leases were asked for.
static REFUSED: [[AtomicU64; 4]; 64] = [const { [const { AtomicU64::new(0) }; 4] }; 64];
/// A lease on a file is asked for again after this time, and after twice as long each time: one that writers take away again and again is not
/// worth what that costs.
const ASKED_AGAIN_MS: u64 = 100;
/// Times that the time is doubled.
const MOST_DOUBLINGS: u64 = 7;
const NEVER_LEASED_MS: u64 = 1000;
/// Files for which leases are asked for within [`ASKED_AGAIN_MS`]. A program that opens many files and reads each once gains nothing by leases.
const MOST_ASKED: u64 = 16;

/// After a read that was copied without a probe: has the lease process started and the file leased, if they shall be.
pub fn ask_after(number: i32) {
    let Some(caller) = CallerFile::new(number).filter(|caller| caller.access() == FileAccess::ReadOnly) else { return };
    if let Some(file) = caller.regular() {
        ask_for(caller, number, file.key);
    }
}

/// A file that is not leased: asks for that, if it may be. Returns why it is copied, if that is not for want of a lease.
pub fn ask_for(caller: CallerFile, number: i32, key: FileKey) -> Option<CopyReason> {
    // The lease process looks once a second which files are read no more.
    if maps::is_full() {
        return None;
    }
    let now = guest::coarse_ms();
    let mixed = key.inode.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ key.device;
    let [inode, device, until, asks] = &REFUSED[(mixed >> 58) as usize];
    let is_known = inode.load(Ordering::Relaxed) == key.inode && device.load(Ordering::Relaxed) == key.device;
    let (ends, is_wanted) = (until.load(Ordering::Relaxed) >> 1, until.load(Ordering::Relaxed) & 1 != 0);
    if is_known && now < ends {
        return (!is_wanted).then_some(CopyReason::NotAskedFor);
    }
    if !may_ask(now) {
        return None;
    }
    if guest::is_on_signal_stack() {
        return Some(CopyReason::NotReady);
    }
    let is_wanted = is_asked_for(caller);
    // Neither another machine nor another process, which may not answer, is to be asked by the lease process. A lease of the program's own would
    // be broken by it.
    let is_leasable = is_wanted && caller.is_local() && !caller.has_own_lease();
    let asked = if is_known { asks.load(Ordering::Relaxed).min(MOST_DOUBLINGS) } else { 0 };
    let ends = now + if is_leasable { ASKED_AGAIN_MS << asked } else { NEVER_LEASED_MS };
    asks.store(asked + 1, Ordering::Relaxed);
    inode.store(key.inode, Ordering::Relaxed);
    device.store(key.device, Ordering::Relaxed);
    until.store(ends << 1 | u64::from(is_wanted), Ordering::Relaxed);
    if !is_wanted {
        return Some(CopyReason::NotAskedFor);
    }
    if !is_leasable {
        return None;
    }
    let is_there = lease_process::start();
    if is_there {
        requests::open(number, key);
    }
    (!is_there).then_some(CopyReason::NotReady)
}

/// Whether a file may be asked for now: what that costs is bounded for each time.
fn may_ask(now_ms: u64) -> bool {
    /// The time by numbers of [`ASKED_AGAIN_MS`], and in the low bits how many were asked for in it.
    static ASKED: AtomicU64 = AtomicU64::new(0);
    let (period, asked) = (now_ms / ASKED_AGAIN_MS, ASKED.load(Ordering::Relaxed));
    let count = if asked >> 8 == period { (asked & 0xff) + 1 } else { 1 };
    // Two threads that come at once may count as one.
    ASKED.store(period << 8 | count.min(MOST_ASKED + 1), Ordering::Relaxed);
    count <= MOST_ASKED
}

/// Whether a pattern fits the file's path.
#[inline(never)]
fn is_asked_for(caller: CallerFile) -> bool {
    let mut path = [0; 4096];
    let path = caller.path(&mut path).unwrap_or_default();
    patterns::settings().is_some_and(|settings| settings.has(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn so_many_files_are_asked_for_in_a_time() {
        let asked = |now_ms| (0..100).filter(|_| may_ask(now_ms)).count() as u64;
        assert_eq!((asked(1 << 40), asked((1 << 40) + ASKED_AGAIN_MS)), (MOST_ASKED, MOST_ASKED));
    }
}
