//! `uffd`: write protection by userfaultfd; a thread that faults copies the page itself, in its SIGBUS handler.
//!
//! Relies on [`crate::preimage`] for the copies. A handler *thread* would cost 25–50 µs a fault, the signal about 5; copying a
//! region whole costs 0.4 µs a page and leaves its huge page whole, which makes the next cut cheap.
//!
//! A system call that writes into a protected page fails with `EFAULT` instead of faulting: hence
//! [`Origin::prepare_write`].

mod fault_thread;
mod protection_map;
mod registry;
mod retries;
#[cfg(test)]
mod tests;

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use quire_sys::map::{MapAdvice, advise};
use quire_sys::pagemap::{Pagemap, PagemapEntry};
use quire_sys::signal;
use quire_sys::thread::BlockedSignals;
use quire_sys::userfault::{RegisterModes, Userfault, features};

use self::fault_thread::FaultThread;
use self::protection_map::ProtectionMap;
use self::registry::{FaultHandler, HandlerRegistration};
use self::retries::UnprotectRetries;
use crate::copy_protocol::CopyProtocol;
use crate::mechanism::{Mechanism, OriginOptions};
use crate::origin::{MechanismError, PreimageConsumer};
use crate::page::{PAGE_SIZE, PAGES_PER_REGION};
use crate::preimage::coverage::CopyCosts;
use crate::preimage::engine::PreimageEngine;
use crate::preimage::origin::{PreimageOrigin, WriteDetector};
use crate::preimage::view::EpochView;
use crate::protection_lock::ProtectionLock;
use crate::span::PageRange;

/// A fault with its page costs as much as 24 pages copied with their region, and splits a huge page. Half of that is counted,
/// as unneeded copies take memory too: regions of which an eighth is written are worth copying whole.
const COSTS: CopyCosts =
    CopyCosts { alone_percent: 1200, start_percent: 15, least_percent: 10, most_percent: 95, rest_percent: 8 };
/// More runs than this are protected by one call over everything.
const MOST_RUNS: usize = 32;
/// A huge page is made only where at least this many of its pages are there already.
const ENOUGH_PAGES: usize = PAGES_PER_REGION / 2;
/// So many refusals in a row mean that huge pages can't be had for this range in this epoch.
const MOST_REFUSALS: u32 = 32;

/// How much of a huge page is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Population {
    /// All of it, though some may be the system's page of zeroes.
    Full,
    /// Enough to make one whole by filling holes.
    Holes,
    /// Less.
    Sparse,
}

/// The origin.
pub(crate) type UffdOrigin = PreimageOrigin<WriteProtection>;

/// The write protection of one range, and the faults that it causes.
pub(crate) struct WriteProtection {
    /// Given up first: no handler may find a half-gone mechanism.
    registration: Mutex<Option<HandlerRegistration>>,
    fault: Arc<Userfault>,
    /// Serves faults instead of the threads that take them.
    server: Option<FaultThread>,
    engine: PreimageEngine,
    parts: ProtectionMap,
    /// Held by a cut, and by the copier thread while it unprotects pages.
    gate: Mutex<()>,
    /// Keeps a thread that unprotects pages for the epoch before out of a cut.
    protection: ProtectionLock,
    /// A cut waits for the gate.
    cutting: AtomicBool,
    retries: UnprotectRetries,
    /// How often in a row the kernel has refused to make a huge page.
    refusals: AtomicU32,
    /// Where the copier thread goes on looking for split huge pages.
    cursor: AtomicUsize,
    pagemap: Option<Pagemap>,
}

fn refused(source: &std::io::Error) -> MechanismError {
    MechanismError::Unsupported {
        mechanism: Mechanism::Uffd,
        reason: format!("userfaultfd: {source}"),
        suggestion: "Allow the system call userfaultfd (container profile, vm.unprivileged_userfaultfd), or use barrier \
                     or fork.",
    }
}

fn failed(call: &'static str, source: std::io::Error, suggestion: &'static str) -> MechanismError {
    MechanismError::System { mechanism: Mechanism::Uffd, call, source, suggestion }
}

/// Puts the mechanism on `span`.
pub(crate) fn attach(
    span: PageRange,
    options: &OriginOptions,
    consumer: Option<Arc<dyn PreimageConsumer>>,
) -> Result<UffdOrigin, MechanismError> {
    // A fault kills a thread that blocks the signal.
    let is_served = options.serve_faults || signal::is_blocked_somewhere();
    let fault = Arc::new(open_userfault(&span, is_served)?);
    // SAFETY: `on_bus_error` demands a handler that is async-signal-safe: `on_fault` takes no lock and allocates nothing.
    unsafe { signal::on_bus_error(registry::on_fault) }.map_err(|source| failed("sigaction", source, ""))?;
    let server = if is_served { Some(FaultThread::start(&fault)) } else { None };
    let server = server.transpose().map_err(|source| failed("clone", source, "Raise the limit of threads."))?;
    let protection = Arc::new(WriteProtection {
        registration: Mutex::default(),
        parts: ProtectionMap::new(span.base(), span.pages()),
        engine: PreimageEngine::new(span, Mechanism::Uffd, options, &COSTS, consumer)?,
        gate: Mutex::default(),
        protection: ProtectionLock::default(),
        cutting: AtomicBool::new(false),
        retries: UnprotectRetries::default(),
        refusals: AtomicU32::new(0),
        cursor: AtomicUsize::new(0),
        pagemap: Pagemap::open(None).ok(),
        server,
        fault,
    });
    protection.register()?;
    PreimageOrigin::start(protection)
}

/// A userfaultfd that protects pages of `span` against writes. The faulting thread gets a signal, or sleeps if a thread of the
/// mechanism serves its faults (`is_served`).
fn open_userfault(span: &PageRange, is_served: bool) -> Result<Userfault, MechanismError> {
    let wanted = features::PAGEFAULT_FLAG_WP | if is_served { 0 } else { features::SIGBUS };
    if let Ok(fault) = Userfault::open(wanted | features::WP_UNPOPULATED) {
        return Ok(fault);
    }
    let fault = Userfault::open(wanted).map_err(|source| refused(&source))?;
    // Before Linux 6.4 a page that was never touched can't be protected, so all are touched now.
    advise(span.base(), span.len(), MapAdvice::PopulateRead).map_err(|source| refused(&source))?;
    Ok(fault)
}

impl WriteProtection {
    /// Registers the range for faults, first with the signal handler and then with the kernel.
    fn register(&self) -> Result<(), MechanismError> {
        let span = &self.engine.cow.span;
        // SAFETY: `register` demands a handler that outlives the registration: it is a field of this handler, and given up
        // when this is dropped.
        let registration = unsafe { registry::register(span.base() as usize, span.len(), self) };
        let Some(registration) = registration else {
            return Err(MechanismError::Exhausted {
                mechanism: Mechanism::Uffd,
                what: "128 ranges are guarded",
                suggestion: "drop some, or join them",
            });
        };
        *self.registration.lock().unwrap_or_else(PoisonError::into_inner) = Some(registration);
        let modes = RegisterModes { write_protect: true, ..RegisterModes::default() };
        // SAFETY: `PageRange::borrow` demands that the range is private anonymous memory which no other code remaps, so it may be
        // guarded; the handler that resolves its faults is in place.
        unsafe { self.fault.register(span.base(), span.len(), modes) }
            .map_err(|source| failed("UFFDIO_REGISTER", source, "The range must be private anonymous memory."))
    }

    fn lock(&self) -> MutexGuard<'_, ()> {
        self.gate.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The gate, for the copier thread: a cut that waits for it goes first.
    fn lock_politely(&self) -> MutexGuard<'_, ()> {
        while self.cutting.load(Ordering::Acquire) {
            std::thread::yield_now();
        }
        self.lock()
    }

    fn protect(&self, pages: &Range<usize>, on: bool) -> std::io::Result<()> {
        let at = self.engine.cow.span.at(pages.start * PAGE_SIZE);
        self.fault.write_protect(at, pages.len() * PAGE_SIZE, on, true)
    }

    /// Lets `pages` be written. They are safe: a view that needs them has copies.
    ///
    /// # Errors
    /// For want of memory for page tables, or because the program has mapped something else there. The pages are as they were:
    /// it is tried again at the next fault.
    fn unprotect(&self, pages: &Range<usize>) -> std::io::Result<()> {
        self.protect(pages, false)?;
        self.parts.note_unprotected(pages);
        Ok(())
    }

    /// Protects what isn't.
    fn protect_all(&self) -> std::io::Result<()> {
        let runs = self.parts.unarmed();
        if runs.len() > MOST_RUNS {
            self.protect(&(0..self.engine.cow.span.pages()), true)?;
        } else {
            runs.iter().try_for_each(|run| self.protect(run, true))?;
        }
        (0..self.parts.count()).for_each(|part| self.parts.note_armed(part));
        Ok(())
    }

    /// How much of a huge page is there.
    fn population(&self, pages: &Range<usize>) -> Population {
        let mut words = [0; PAGES_PER_REGION];
        let words = &mut words[..pages.len()];
        let address = self.engine.cow.span.at(pages.start * PAGE_SIZE) as usize;
        let Some(count) = self.pagemap.as_ref().and_then(|map| map.read_words(address, words).ok()) else {
            return Population::Full;
        };
        match words[..count].iter().filter(|&&word| PagemapEntry::from_word(word).present).count() {
            present if present == pages.len() => Population::Full,
            present if present >= ENOUGH_PAGES => Population::Holes,
            _ => Population::Sparse,
        }
    }

    fn advise(&self, pages: &Range<usize>, hint: MapAdvice) -> std::io::Result<()> {
        advise(self.engine.cow.span.at(pages.start * PAGE_SIZE), pages.len() * PAGE_SIZE, hint)
    }

    /// Makes a huge page of `pages`, which are all of `part` and were open; `false` if the kernel has refused.
    fn collapse(&self, part: usize, pages: &Range<usize>) -> bool {
        match self.advise(pages, MapAdvice::Collapse) {
            Ok(()) => {
                self.parts.note_collapsed(part);
                self.refusals.store(0, Ordering::Relaxed);
                self.engine.cow.figures.collapsed.fetch_add(1, Ordering::Relaxed);
            }
            // The range was told not to use huge pages, or there are none; or the part was protected again meanwhile, which says
            // nothing. Other errors are for want of memory, or another thread was holding a page.
            Err(error) if error.kind() == std::io::ErrorKind::InvalidInput && self.parts.is_open(pages.start) => {
                self.refusals.fetch_add(1, Ordering::Relaxed);
                return false;
            }
            Err(_) => {}
        }
        true
    }
}

impl Drop for WriteProtection {
    fn drop(&mut self) {
        let registration = self.registration.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        if self.engine.copier.is_forked() {
            // The descriptor is the parent's, whose pages stay protected.
            std::mem::forget(self.server.take());
            return registration.into_iter().for_each(HandlerRegistration::abandon);
        }
        self.engine.copier.stop();
        // Lifts all protection; a fault that is under way finds the range open when it is tried again.
        let _ = self.fault.unregister(self.engine.cow.span.base(), self.engine.cow.span.len());
        drop(registration);
    }
}

impl FaultHandler for WriteProtection {
    fn fault(&self, offset: usize) -> bool {
        if self.engine.copier.is_forked() {
            return false;
        }
        self.engine.cow.figures.faults.fetch_add(1, Ordering::Relaxed);
        let unprotecting = self.protection.unprotecting();
        let pages = self.engine.cow.first_write(offset / PAGE_SIZE);
        let unprotected = self.unprotect(&pages);
        drop(unprotecting);
        self.engine.copier.nudge();
        self.retries.go_on(unprotected, self.server.is_some())
    }
}

impl WriteDetector for WriteProtection {
    const MECHANISM: Mechanism = Mechanism::Uffd;

    fn engine(&self) -> &PreimageEngine {
        &self.engine
    }

    fn begin_epoch(self: &Arc<Self>) -> Result<EpochView, MechanismError> {
        // A signal handler that writes the range would wait for the end of the cut, and the cut for the handler.
        let signals = BlockedSignals::new();
        self.cutting.store(true, Ordering::Release);
        let gate = self.lock();
        self.cutting.store(false, Ordering::Release);
        let alone = self.protection.protecting();
        let epoch = self.engine.chain.cut()?;
        // If the pages can't be protected, dropping the view ends the epoch.
        let view = EpochView::new(self, epoch);
        self.protect_all().map_err(|source| failed("UFFDIO_WRITEPROTECT", source, "Free some memory."))?;
        // What kept the kernel from making huge pages may be over: a few are tried again.
        self.refusals.fetch_min(1, Ordering::Relaxed);
        drop((alone, gate, signals));
        Ok(view)
    }

    fn prepare_write(&self, range: Range<usize>) {
        let cow = &self.engine.cow;
        if self.engine.copier.is_forked() {
            return;
        }
        let mut page = range.start / PAGE_SIZE;
        while page <= (range.end - 1) / PAGE_SIZE {
            if self.parts.is_open(page) {
                page += 1;
                continue;
            }
            // A signal handler that writes would wait for this thread, or for a cut that waits for this thread.
            let _blocked = BlockedSignals::new();
            let _unprotecting = self.protection.unprotecting();
            let pages = if cow.is_safe(page..page + 1) { page..page + 1 } else { cow.first_write(page) };
            // If this fails, the system call that writes there fails too, or a fault tries again.
            let _ = self.unprotect(&pages);
            page = pages.end;
        }
    }

    fn copy_ahead(&self, region: usize, pages: Range<usize>) -> bool {
        let is_last = pages.end == self.engine.cow.pages_of(region).end;
        let is_wanted = self.engine.cow.copy_ahead(pages);
        if is_wanted && is_last {
            let _gate = self.lock_politely();
            // Another cut may have been made since, for which these pages are not safe.
            if self.engine.cow.is_safe(self.engine.cow.pages_of(region)) {
                // Should it fail, a fault tries again.
                let _ = self.unprotect(&self.engine.cow.pages_of(region));
            }
        }
        is_wanted
    }

    /// Makes one huge page whole again.
    fn collapse_one(&self) -> bool {
        if self.refusals.load(Ordering::Relaxed) >= MOST_REFUSALS {
            return false;
        }
        let from = self.cursor.load(Ordering::Relaxed);
        let Some(part) = self.parts.next_small(from) else {
            self.cursor.store(0, Ordering::Relaxed);
            return false;
        };
        self.cursor.store(part + 1, Ordering::Relaxed);
        let pages = self.parts.pages_of(part);
        let population = self.population(&pages);
        // Filling holes takes memory, so it is done only where the last try was a success.
        let fills = self.refusals.load(Ordering::Relaxed) == 0;
        if population == Population::Sparse || population == Population::Holes && !fills {
            return true;
        }
        {
            let _gate = self.lock_politely();
            if self.engine.cow.is_open() && !self.engine.cow.is_safe(pages.clone()) {
                return true;
            }
            if self.unprotect(&pages).is_err() {
                return true;
            }
        }
        let is_done = population == Population::Full && self.collapse(part, &pages);
        // The kernel collapses no part of a guarded range that has holes, or pages of zeroes. A cut in between makes filling them fail.
        if !is_done && fills && self.advise(&pages, MapAdvice::PopulateWrite).is_ok() {
            self.collapse(part, &pages);
        }
        true
    }
}
