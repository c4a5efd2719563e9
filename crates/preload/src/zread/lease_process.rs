//! The lease process: it opens the files that are read, holds leases and sources of remaps, and breaks sharing when a writer comes.
//!
//! Relies on [`quire_sys::helper`], as the worker's `process` does: it shares the program's memory, has descriptors and
//! signal handlers of its own and is no thread of the program. It neither allocates nor uses anything thread-local but `errno`. It
//! lives from the first large read of a file that is asked for to the end of the program, or of the thread that started it.

use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use quire_sys::area::AnonymousMap;
use quire_sys::helper::{AREA_BYTES, HelperProcess, HostProcess};
use quire_sys::lease::{self, FileKey, ReadLease};
use quire_sys::{bare_thread, guest, limits};

use super::convert::{self, Converter};
use super::extents::{Extent, MOST_EXTENTS};
use super::maps::{self, MOST_FILES, MapsGuard};
use super::requests::{self, LeaseRequest};
use super::{blocks, calibration, loss_model, stats, unseen_child};
use crate::confinement::{self, CallingProcess};
use crate::{log, process};

/// It looks that often whether the program is still there.
const LOOK: Duration = Duration::from_millis(20);
/// It looks that often whether the program acts as another user, and which files are read no more.
const LONG_LOOK: Duration = Duration::from_secs(1);
/// It may end so often without having said so, before no more is started.
const MOST_KILLED: u32 = 3;
/// A call of the program's for which all leases were given back keeps new ones from being taken no longer.
const LONGEST_QUIET: Duration = Duration::from_secs(1);
/// The program's thread waits no longer for it to leave.
const LONGEST_STOP: Duration = Duration::from_secs(30);

static HELPER: HelperProcess = HelperProcess::new();
/// Where it runs, and the program as it knows it: memory that is made once, an [`AnonymousMap`] and a [`HostProcess`].
static PLACES: AtomicPtr<Places> = AtomicPtr::new(null_mut());
/// A thread is about to start it.
static STARTING: AtomicBool = AtomicBool::new(false);
/// Files can be leased and memory converted.
static READY: AtomicBool = AtomicBool::new(false);
/// It does not work here.
static GIVEN_UP: AtomicBool = AtomicBool::new(false);
/// It shall convert everything and end.
static SHALL_LEAVE: AtomicBool = AtomicBool::new(false);
/// Nothing shall be remapped in this process any more.
static CLOSED: AtomicBool = AtomicBool::new(false);
/// Calls of the program's that run without leases.
static QUIET_CALLS: AtomicU32 = AtomicU32::new(0);
static KILLED: AtomicU32 = AtomicU32::new(0);
/// Signals that told of writers, and whether figures are asked for.
static SIGNALS: AtomicU32 = AtomicU32::new(0);
static SHALL_TELL: AtomicBool = AtomicBool::new(false);
static LEFT: AtomicBool = AtomicBool::new(true);

struct Places {
    area: AnonymousMap,
    host: HostProcess,
}

/// Whether reads can be remapped.
pub fn is_ready() -> bool {
    // A process that was about to start when `close` was called is there, but not for remaps.
    READY.load(Ordering::Acquire) && !CLOSED.load(Ordering::SeqCst) && HELPER.is_alive()
}

/// Whether the calling process is it.
pub fn is_current() -> bool {
    HELPER.is_current()
}

/// Whether it runs, beside the calling process.
pub fn is_alive() -> bool {
    HELPER.is_alive() && !unseen_child::is_here()
}

/// Has it started if it isn't there; whether it is there, or soon.
pub fn start() -> bool {
    if HELPER.is_alive() {
        return true;
    }
    if GIVEN_UP.load(Ordering::Relaxed) || CLOSED.load(Ordering::Relaxed) || confinement::is_quiesced() {
        return false;
    }
    if STARTING.swap(true, Ordering::Acquire) {
        return true;
    }
    let started = start_alone();
    STARTING.store(false, Ordering::Release);
    started
}

/// In the thread that may start it.
fn start_alone() -> bool {
    let is_owner = confinement::caller() == CallingProcess::Owner && !guest::children_live_elsewhere();
    if !is_owner || HELPER.is_alive() || !HELPER.reap() {
        return HELPER.is_alive();
    }
    if !LEFT.load(Ordering::Relaxed) && KILLED.fetch_add(1, Ordering::Relaxed) + 1 >= MOST_KILLED {
        GIVEN_UP.store(true, Ordering::Relaxed);
        return false;
    }
    let (Some(host), Some(places)) = (HostProcess::of_caller(), places()) else {
        GIVEN_UP.store(true, Ordering::Relaxed);
        return false;
    };
    // SAFETY: `places` has made the memory, and no lease process runs that could read it meanwhile.
    let area = unsafe {
        (*places).host = host;
        &(*places).area
    };
    SHALL_LEAVE.store(false, Ordering::Relaxed);
    LEFT.store(false, Ordering::Relaxed);
    // SAFETY: the area is never unmapped and the process before was waited for; `run` neither allocates nor uses anything
    // thread-local but `errno`.
    unsafe { HELPER.start(area, run) }.is_ok()
}

fn places() -> Option<*mut Places> {
    if PLACES.load(Ordering::Relaxed).is_null() {
        let (area, room) = (AnonymousMap::private(AREA_BYTES).ok()?, AnonymousMap::private(size_of::<Places>()).ok()?);
        area.keep_from_children();
        room.keep_from_children();
        let host = HostProcess::of_caller()?;
        let place = room.base().cast::<Places>();
        // SAFETY: fresh memory with room for it, aligned to a page, leaked below.
        unsafe { place.write(Places { area, host }) };
        std::mem::forget(room);
        PLACES.store(place, Ordering::Release);
    }
    Some(PLACES.load(Ordering::Relaxed))
}

/// Runs `call`, which shall not wait for a lease, while the library has none.
pub fn without_leases<T>(call: impl FnOnce() -> T) -> T {
    QUIET_CALLS.fetch_add(1, Ordering::SeqCst);
    requests::ask(LeaseRequest::GiveBack, is_alive);
    let result = call();
    QUIET_CALLS.fetch_sub(1, Ordering::SeqCst);
    result
}

/// Has all memory converted and the process end, for good: the program confines itself, or does what remapped memory is not fit for.
pub fn close() {
    CLOSED.store(true, Ordering::SeqCst);
    READY.store(false, Ordering::SeqCst);
    if is_alive() && confinement::caller() == CallingProcess::Owner {
        SHALL_LEAVE.store(true, Ordering::SeqCst);
        requests::ring();
        HELPER.wait_for_end(LONGEST_STOP);
        HELPER.reap();
    }
}

/// In the child of a fork, which has neither the process nor its memory.
pub fn forget() {
    HELPER.forget();
    PLACES.store(null_mut(), Ordering::Relaxed);
    STARTING.store(false, Ordering::Relaxed);
    QUIET_CALLS.store(0, Ordering::Relaxed);
    READY.store(false, Ordering::Relaxed);
    LEFT.store(true, Ordering::Relaxed);
    KILLED.store(0, Ordering::Relaxed);
    convert::forget();
}

/// The handler of its signals.
extern "C" fn told(signal: i32) {
    if signal == lease::WRITER_SIGNAL {
        SIGNALS.fetch_add(1, Ordering::SeqCst);
    } else {
        SHALL_TELL.store(true, Ordering::SeqCst);
    }
    requests::ring();
}

/// The life of the process.
extern "C" fn run() {
    guest::name_thread(process::NAME);
    guest::stand_aside();
    guest::leave_process_group();
    if let Err(why) = live() {
        GIVEN_UP.store(true, Ordering::Relaxed);
        log::line(format_args!("zread: all reads are copied: {why}"));
    }
    LEFT.store(true, Ordering::SeqCst);
    // All of it: its second thread, too.
    guest::exit_now(0);
}

fn live() -> Result<(), &'static str> {
    // SAFETY: null, or memory that `places` has leaked; `start` does not change it while this process runs.
    let places = unsafe { PLACES.load(Ordering::Acquire).as_ref() }.ok_or("no memory")?;
    log::in_helper_of(places.host.process());
    bare_thread::take_own_descriptors().map_err(|_| "no descriptors of its own (Linux 5.9)")?;
    // SAFETY: helpers have signal handlers of their own, and `told` changes atomics and wakes a futex.
    unsafe { lease::listen(told) }.map_err(|_| "no signals")?;
    let converter = Converter::new()?;
    if !loss_model::is_known() {
        calibration::rehearse();
        let (costs, probe_ns) = calibration::measure().ok_or("costs can't be measured")?;
        loss_model::set(&costs, probe_ns);
    }
    let mut holder = LeaseHolder {
        converter,
        host: places.host,
        standing: guest::standing(guest::process_id()),
        looked: Instant::now(),
        quiet_since: None,
        leases: [const { None }; MOST_FILES],
        signals: SIGNALS.load(Ordering::SeqCst),
    };
    holder.take_over();
    READY.store(true, Ordering::Release);
    while holder.goes_on() {
        let seen = requests::seen();
        holder.look_around();
        if SHALL_LEAVE.load(Ordering::SeqCst) {
            break;
        }
        requests::sleep(seen, LOOK);
    }
    READY.store(false, Ordering::SeqCst);
    holder.give_back_all();
    requests::serve(|_| {});
    Ok(())
}

/// What the process works with.
struct LeaseHolder {
    converter: Converter,
    host: HostProcess,
    standing: Option<guest::Credentials>,
    looked: Instant,
    /// When all leases were given back for a call that shall not wait.
    quiet_since: Option<Instant>,
    /// By the places of the files in the table of MAPS.
    leases: [Option<ReadLease>; MOST_FILES],
    signals: u32,
}

impl LeaseHolder {
    /// Whether the program is there; if it isn't, its memory is this process's alone, and needs nothing any more.
    fn has_program(&self) -> bool {
        guest::parent_id() == self.host.process()
    }

    /// Whether there is still something to do; looks now and then whether the program acts as another user.
    fn goes_on(&mut self) -> bool {
        if !self.has_program() {
            guest::exit_now(0);
        }
        if CLOSED.load(Ordering::SeqCst) {
            return false;
        }
        if self.looked.elapsed() >= LONG_LOOK {
            self.looked = Instant::now();
            if guest::standing(self.host.thread()) != self.standing {
                return false;
            }
            if limits::bounds_addresses(self.host.process()) {
                // Another program has set them (`prlimit`).
                CLOSED.store(true, Ordering::SeqCst);
                blocks::give_up_addresses();
                return false;
            }
            self.give_back_unused();
        }
        self.host.is_there()
    }

    fn maps(&self) -> MapsGuard {
        loop {
            if let Some(maps) = maps::lock(|| self.has_program()) {
                return maps;
            }
            if !self.has_program() {
                guest::exit_now(0);
            }
        }
    }

    /// What a process that was killed has left: memory is converted, if late, and no file is leased.
    fn take_over(&mut self) {
        // SAFETY: this is the lease process, which is started when the one before it was waited for.
        unsafe { maps::release_of_killed() };
        let mut maps = self.maps();
        while let Some(&first) = maps.extents.all().first() {
            self.convert_around(&mut maps, first);
        }
        // Leases go with the files that are mapped.
        maps.clear();
    }

    fn look_around(&mut self) {
        let signals = SIGNALS.load(Ordering::SeqCst);
        if signals != self.signals {
            self.signals = signals;
            for file in 0..MOST_FILES {
                if self.leases.get(file).and_then(Option::as_ref).is_some_and(ReadLease::is_being_broken) {
                    stats::add(&stats::BROKEN, 1);
                    self.give_back(file);
                }
            }
        }
        requests::serve(|request| match request {
            LeaseRequest::Open(number, key) => self.open(number, key),
            LeaseRequest::Convert { start, end } => {
                let mut maps = self.maps();
                while let Some(part) = maps.extents.first_within(&(start..end)) {
                    self.convert_around(&mut maps, part);
                }
            }
            LeaseRequest::GiveBack => {
                self.give_back_all();
                self.quiet_since = Some(Instant::now());
            }
        });
        if SHALL_TELL.swap(false, Ordering::SeqCst) {
            stats::tell();
        }
        self.converter.look_at_maps();
        let mut maps = self.maps();
        // Room for the next ones: what was remapped first lies at the front, mostly.
        while maps.extents.all().len() > MOST_EXTENTS * 3 / 4 {
            let Some(&first) = maps.extents.all().first() else { break };
            self.convert_around(&mut maps, first);
        }
    }

    /// Converts the whole range that `part` belongs to.
    fn convert_around(&self, maps: &mut MapsGuard, part: Extent) {
        let has_it = |extent: &&Extent| extent.within(&part.range()).is_some();
        if let Some(whole) = maps.extents.all().iter().find(has_it).copied() {
            self.converter.convert(whole.range());
            maps.extents.remove(&whole.range());
        }
    }

    /// Takes a lease on a file, if there is one to be had.
    fn open(&mut self, number: i32, key: FileKey) {
        // A call that never returned, as its thread was cancelled there, does not count for long.
        let is_quiet = QUIET_CALLS.load(Ordering::SeqCst) > 0;
        if is_quiet && self.quiet_since.is_some_and(|since| since.elapsed() < LONGEST_QUIET) {
            return;
        }
        let mut maps = self.maps();
        if maps.find(key).is_some() {
            return;
        }
        // Those that are read no more are looked for once a second.
        let Some(place) = self.leases.iter().position(Option::is_none) else { return };
        let Ok(lease) = ReadLease::take(self.host.process(), number, key) else { return };
        let Ok(base) = lease.map() else { return };
        maps.begin(place, key, base, lease.len());
        self.leases[place] = Some(lease);
        stats::add(&stats::LEASES, 1);
    }

    /// Converts all that is remapped of a file, and gives its lease back.
    fn give_back(&mut self, file: usize) {
        let Some(lease) = self.leases.get_mut(file).and_then(Option::take) else { return };
        let mut maps = self.maps();
        while let Some(extent) = maps.extents.first_of(file) {
            self.convert_around(&mut maps, extent);
        }
        let base = maps.files[file].base;
        maps.end(file);
        drop(maps);
        lease::unmap(base, lease.len());
        drop(lease);
    }

    fn give_back_all(&mut self) {
        (0..MOST_FILES).for_each(|file| self.give_back(file));
    }

    /// Gives files back that were not read since the last time and of which nothing is remapped.
    fn give_back_unused(&mut self) {
        for file in 0..MOST_FILES {
            let mut maps = self.maps();
            let was_used = std::mem::take(&mut maps.files[file].is_used);
            let is_remapped = maps.extents.first_of(file).is_some();
            drop(maps);
            if !was_used && !is_remapped {
                self.give_back(file);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_the_process_nothing_is_ready_and_closing_it_changes_nothing() {
        let _alone = crate::state::alone();
        assert!(!is_ready() && !is_alive());
        close();
        assert!(!start());
        CLOSED.store(false, Ordering::Relaxed);
        forget();
    }
}
