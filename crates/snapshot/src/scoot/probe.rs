//! What this kernel and this container let the mechanism do.
//!
//! Relies on trying it on two pages: version numbers say little about containers.

use quire_sys::map::{self, MapSharing, Protection};
use quire_sys::mem::Reservation;
use quire_sys::pagemap::{Pagemap, PagemapEntry};
use quire_sys::userfault::{RegisterModes, Userfault, features};

use crate::mechanism::Mechanism;
use crate::origin::MechanismError;
use crate::page::PAGE_SIZE;

/// Whether `scoot` merges in the background here. Where it doesn't, cuts do it, and take as long as it takes.
///
/// # Errors
/// What forbids it, and what to do about it.
///
/// ```
/// if let Err(why) = quire_snapshot::merges_in_background() {
///     println!("cuts by scoot will take longer: {why}");
/// }
/// ```
pub fn merges_in_background() -> Result<(), String> {
    open_userfault().map(drop)
}

fn unsupported(what: &str, error: impl std::fmt::Display, suggestion: &'static str) -> MechanismError {
    MechanismError::Unsupported { mechanism: Mechanism::Scoot, reason: format!("{what}: {error}"), suggestion }
}

/// Whether files in memory and the page map do what the mechanism is built on.
pub(super) fn check_mappings() -> Result<(), MechanismError> {
    const PROCFS: &str = "Mount procfs, or use barrier or memcpy";
    const MEMFD: &str = "Allow memfd_create in the seccomp profile, or use barrier or memcpy";
    let file = map::memory_file("quire-scoot", 2 * PAGE_SIZE as u64)
        .map_err(|error| unsupported("memfd_create", error, MEMFD))?;
    let pagemap = Pagemap::open(None).map_err(|error| unsupported("/proc/self/pagemap", error, PROCFS))?;
    let place = Reservation::new(2 * PAGE_SIZE)?;
    // SAFETY: no other code knows the addresses of the reservation, which was made just now.
    unsafe { map::map_file_over(place.base(), 2 * PAGE_SIZE, &file, 0, MapSharing::Private, Protection::ReadWrite) }
        .map_err(|error| unsupported("mmap of a memfd", error, MEMFD))?;
    // SAFETY: the two pages were mapped readable and writable just now, and no other code knows them.
    unsafe {
        place.base().write_volatile(1);
        place.base().wrapping_add(PAGE_SIZE).read_volatile();
    }
    let mut words = [0; 2];
    let read = pagemap.read_words(place.base() as usize, &mut words);
    let [own, shared] = words.map(PagemapEntry::from_word);
    match read {
        Ok(2) if own.present && !own.file_or_shared && shared.present && shared.file_or_shared => Ok(()),
        Ok(_) => Err(unsupported("/proc/self/pagemap", "does not tell private pages from shared ones", PROCFS)),
        Err(error) => Err(unsupported("/proc/self/pagemap", error, PROCFS)),
    }
}

/// A userfaultfd that puts faults in private mappings of files in memory to sleep, also those inside system calls.
pub(super) fn open_userfault() -> Result<Userfault, String> {
    let fault = Userfault::open(features::MISSING_SHMEM | features::MINOR_SHMEM).map_err(|error| {
        format!("userfaultfd can't be had ({error}): set vm.unprivileged_userfaultfd to 1 or allow /dev/userfaultfd")
    })?;
    if fault.is_user_mode_only() {
        return Err("userfaultfd catches faults of user mode only, so a system call that writes into the range would \
                    fail: set vm.unprivileged_userfaultfd to 1 or allow /dev/userfaultfd"
            .into());
    }
    try_moving(&fault).map_err(|error| format!("pages of a private file mapping can't be isolated ({error})"))?;
    Ok(fault)
}

/// Does what merging does: registers, moves pages away, looks for them.
fn try_moving(fault: &Userfault) -> std::io::Result<()> {
    let file = map::memory_file("quire-scoot", PAGE_SIZE as u64)?;
    let reserve = || Reservation::new(PAGE_SIZE).map_err(std::io::Error::other);
    let (from, to) = (reserve()?, reserve()?);
    // SAFETY: no other code knows the addresses of the two reservations, so no thread touches `from` while it is registered.
    unsafe {
        map::map_file_over(from.base(), PAGE_SIZE, &file, 0, MapSharing::Private, Protection::ReadWrite)?;
        from.base().write_volatile(7);
        fault.register(from.base(), PAGE_SIZE, RegisterModes { missing: true, write_protect: false, minor: true })?;
        map::move_over(from.base(), PAGE_SIZE, to.base())?;
        let arrived = to.base().read_volatile() == 7;
        fault.unregister(from.base(), PAGE_SIZE)?;
        if arrived { Ok(()) } else { Err(std::io::Error::other("the page did not arrive")) }
    }
}
