//! `uffd`: write protection by userfaultfd; a thread that faults copies the page itself, in its SIGBUS handler.
//!
//! Relies on [`crate::keep`] for the copies. A handler *thread* would cost 25–50 µs a fault, the signal about 5; copying a
//! region whole costs 0.4 µs a page and leaves its huge page whole, which makes the next cut cheap.
//!
//! A system call that writes into a protected page fails with `EFAULT` instead of faulting: hence
//! [`Origin::prepare_write`].

mod parts;
mod registry;
mod retries;
mod server;
#[cfg(test)]
mod tests;

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use quire_sys::map::{Hint, advise};
use quire_sys::pagemap::{Entry, Pagemap};
use quire_sys::signal;
use quire_sys::thread::BlockedSignals;
use quire_sys::userfault::{Modes, Userfault, features};

use self::parts::Parts;
use self::registry::{Handler, Registration};
use self::retries::Retries;
use self::server::Server;
use crate::keep::chain::Chain;
use crate::keep::core::Core;
use crate::keep::keeper::{Chores, Keeper};
use crate::keep::locality::Costs;
use crate::keep::view::{KeptView, Lease, Owner};
use crate::lift_lock::LiftLock;
use crate::mechanism::{Mechanism, Options};
use crate::origin::{Consumer, Origin, OriginStats, Refused, View};
use crate::page::{PAGE_SIZE, PAGES_PER_REGION};
use crate::span::Span;

/// A fault with its page costs as much as 24 pages copied with their region, and splits a huge page. Half of that is counted,
/// as copies that nobody needs take memory too: regions of which an eighth is written are worth copying whole.
const COSTS: Costs =
    Costs { alone_percent: 1200, start_percent: 15, least_percent: 10, most_percent: 95, rest_percent: 8 };
/// More runs than this are armed by one call over everything.
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
pub(crate) struct Uffd(Arc<Shared>, #[expect(dead_code, reason = "held")] Lease);

struct Shared {
    /// Given up first: no handler may find a half-gone mechanism.
    registration: Mutex<Option<Registration>>,
    fault: Arc<Userfault>,
    /// Serves faults instead of the threads that take them.
    server: Option<Server>,
    core: Arc<Core>,
    keeper: Arc<Keeper>,
    chain: Chain,
    parts: Parts,
    /// Held by a cut, and by the keeper while it lifts protection.
    gate: Mutex<()>,
    /// Keeps those who lift pages for the epoch before out of a cut.
    lifts: LiftLock,
    /// A cut waits for the gate.
    cutting: AtomicBool,
    retries: Retries,
    /// How often in a row the kernel has refused to make a huge page.
    refusals: AtomicU32,
    /// Where the keeper goes on looking for split huge pages.
    cursor: AtomicUsize,
    pagemap: Option<Pagemap>,
}

fn refused(source: &std::io::Error) -> Refused {
    Refused::Unsupported {
        mechanism: Mechanism::Uffd,
        reason: format!("userfaultfd: {source}"),
        suggestion: "Allow the system call userfaultfd (container profile, vm.unprivileged_userfaultfd), or use barrier \
                     or fork.",
    }
}

fn failed(call: &'static str, source: std::io::Error, suggestion: &'static str) -> Refused {
    Refused::System { mechanism: Mechanism::Uffd, call, source, suggestion }
}

impl Uffd {
    pub(crate) fn new(span: Span, options: &Options, consumer: Option<Arc<dyn Consumer>>) -> Result<Self, Refused> {
        // A fault kills a thread that blocks the signal.
        let is_served = options.serve_faults || signal::is_blocked_somewhere();
        let wanted = features::PAGEFAULT_FLAG_WP | if is_served { 0 } else { features::SIGBUS };
        let fault = match Userfault::open(wanted | features::WP_UNPOPULATED) {
            Ok(fault) => fault,
            Err(_) => {
                let fault = Userfault::open(wanted).map_err(|source| refused(&source))?;
                // Before Linux 6.4 a page that was never touched can't be protected, so all are touched now.
                advise(span.base(), span.len(), Hint::PopulateRead).map_err(|source| refused(&source))?;
                fault
            }
        };
        // SAFETY: `on_fault` takes no lock, allocates nothing and returns.
        unsafe { signal::on_bus_error(registry::on_fault) }.map_err(|source| failed("sigaction", source, ""))?;
        let fault = Arc::new(fault);
        let server = if is_served { Some(Server::start(&fault)) } else { None };
        let server = server.transpose().map_err(|source| failed("clone", source, "Raise the limit of threads."))?;
        let parts = Parts::new(span.base(), span.pages());
        let core = Arc::new(Core::new(span, Mechanism::Uffd, options, &COSTS, consumer)?);
        let shared = Arc::new(Shared {
            registration: Mutex::default(),
            parts,
            keeper: Arc::new(Keeper::new(options.background)),
            chain: Chain::new(Arc::clone(&core)),
            gate: Mutex::default(),
            lifts: LiftLock::default(),
            cutting: AtomicBool::new(false),
            retries: Retries::default(),
            refusals: AtomicU32::new(0),
            cursor: AtomicUsize::new(0),
            pagemap: Pagemap::open(None).ok(),
            server,
            fault,
            core,
        });
        let span = &shared.core.span;
        // SAFETY: the registration is a field of what it points to, and given up when that is dropped.
        let registration = unsafe { registry::register(span.base() as usize, span.len(), &*shared) };
        let Some(registration) = registration else {
            return Err(Refused::Exhausted {
                mechanism: Mechanism::Uffd,
                what: "128 ranges are guarded",
                suggestion: "drop some, or join them",
            });
        };
        *shared.registration.lock().unwrap_or_else(PoisonError::into_inner) = Some(registration);
        let modes = Modes { write_protect: true, ..Modes::default() };
        // SAFETY: the span is ours to guard, and the handler is in place.
        unsafe { shared.fault.register(span.base(), span.len(), modes) }
            .map_err(|source| failed("UFFDIO_REGISTER", source, "The range must be private anonymous memory."))?;
        shared.keeper.start(&shared).map_err(|source| failed("clone", source, "Raise the limit of threads."))?;
        let lease = Lease::new(Arc::clone(&shared) as Arc<dyn Owner>);
        Ok(Self(shared, lease))
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, ()> {
        self.gate.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The gate, for upkeep: a cut that waits for it goes first.
    fn lock_politely(&self) -> MutexGuard<'_, ()> {
        while self.cutting.load(Ordering::Acquire) {
            std::thread::yield_now();
        }
        self.lock()
    }

    fn protect(&self, pages: &Range<usize>, on: bool) -> std::io::Result<()> {
        let at = self.core.span.at(pages.start * PAGE_SIZE);
        self.fault.write_protect(at, pages.len() * PAGE_SIZE, on, true)
    }

    /// Lets `pages` be written. They are safe: a view that needs them has copies.
    ///
    /// # Errors
    /// For want of memory for page tables, or because the program has mapped something else there. The pages are as they were:
    /// it is tried again at the next fault.
    fn lift(&self, pages: &Range<usize>) -> std::io::Result<()> {
        self.protect(pages, false)?;
        self.parts.note_lifted(pages);
        Ok(())
    }

    /// Protects what isn't.
    fn arm(&self) -> std::io::Result<()> {
        let runs = self.parts.unarmed();
        if runs.len() > MOST_RUNS {
            self.protect(&(0..self.core.span.pages()), true)?;
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
        let address = self.core.span.at(pages.start * PAGE_SIZE) as usize;
        let Some(count) = self.pagemap.as_ref().and_then(|map| map.read_words(address, words).ok()) else {
            return Population::Full;
        };
        match words[..count].iter().filter(|&&word| Entry::from_word(word).present).count() {
            present if present == pages.len() => Population::Full,
            present if present >= ENOUGH_PAGES => Population::Holes,
            _ => Population::Sparse,
        }
    }

    fn advise(&self, pages: &Range<usize>, hint: Hint) -> std::io::Result<()> {
        advise(self.core.span.at(pages.start * PAGE_SIZE), pages.len() * PAGE_SIZE, hint)
    }

    /// Makes a huge page of `pages`, which are all of `part` and were open; `false` if the kernel has refused.
    fn join(&self, part: usize, pages: &Range<usize>) -> bool {
        match self.advise(pages, Hint::Collapse) {
            Ok(()) => {
                self.parts.note_joined(part);
                self.refusals.store(0, Ordering::Relaxed);
                self.core.figures.rejoined.fetch_add(1, Ordering::Relaxed);
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

impl Drop for Shared {
    fn drop(&mut self) {
        let registration = self.registration.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        if self.keeper.is_forked() {
            // The descriptor is the parent's, whose pages stay protected.
            std::mem::forget(self.server.take());
            return registration.into_iter().for_each(Registration::abandon);
        }
        self.keeper.stop();
        // Lifts all protection; a fault that is under way finds the range open when it is tried again.
        let _ = self.fault.unregister(self.core.span.base(), self.core.span.len());
        drop(registration);
    }
}

impl Handler for Shared {
    fn fault(&self, offset: usize) -> bool {
        if self.keeper.is_forked() {
            return false;
        }
        self.core.figures.faults.fetch_add(1, Ordering::Relaxed);
        let lifting = self.lifts.lift();
        let pages = self.core.first_write(offset / PAGE_SIZE);
        let lifted = self.lift(&pages);
        drop(lifting);
        self.keeper.nudge();
        self.retries.go_on(lifted, self.server.is_some())
    }
}

impl Chores for Shared {
    fn core(&self) -> &Arc<Core> {
        &self.core
    }

    fn chain(&self) -> &Chain {
        &self.chain
    }

    fn copy_ahead(&self, region: usize, pages: Range<usize>) -> bool {
        let is_last = pages.end == self.core.pages_of(region).end;
        let is_wanted = self.core.copy_ahead(region, pages);
        if is_wanted && is_last {
            let _gate = self.lock_politely();
            // Another cut may have been made since, for which these pages are not safe.
            if self.core.is_safe(self.core.pages_of(region)) {
                // Should it fail, a fault tries again.
                let _ = self.lift(&self.core.pages_of(region));
            }
        }
        is_wanted
    }

    /// Makes one huge page whole again.
    fn mend(&self) -> bool {
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
            if self.core.is_open() && !self.core.is_safe(pages.clone()) {
                return true;
            }
            if self.lift(&pages).is_err() {
                return true;
            }
        }
        let is_done = population == Population::Full && self.join(part, &pages);
        // The kernel joins no part of a guarded range that has holes, or pages of zeroes. A cut in between makes filling them fail.
        if !is_done && fills && self.advise(&pages, Hint::PopulateWrite).is_ok() {
            self.join(part, &pages);
        }
        true
    }
}

impl Owner for Shared {
    fn keeper(&self) -> &Arc<Keeper> {
        &self.keeper
    }
}

impl Origin for Uffd {
    fn mechanism(&self) -> Mechanism {
        Mechanism::Uffd
    }

    fn base(&self) -> *mut u8 {
        self.0.core.span.base()
    }

    fn len(&self) -> usize {
        self.0.core.span.len()
    }

    fn cut(&self) -> Result<Arc<dyn View>, Refused> {
        let start = Instant::now();
        let shared = &self.0;
        if shared.keeper.is_forked() {
            return Err(Refused::forked(Mechanism::Uffd));
        }
        let owner: Arc<dyn Owner> = Arc::clone(shared) as Arc<dyn Owner>;
        // A handler that writes would wait for the end of the cut.
        let signals = BlockedSignals::new();
        shared.cutting.store(true, Ordering::Release);
        let gate = shared.lock();
        shared.cutting.store(false, Ordering::Release);
        let alone = shared.lifts.cut();
        let epoch = shared.chain.cut()?;
        // If arming fails, dropping the view ends the epoch.
        let view = KeptView::new(owner, epoch);
        shared.arm().map_err(|source| failed("UFFDIO_WRITEPROTECT", source, "Free some memory."))?;
        // Whatever was in the way of huge pages may be over: a few are tried again.
        shared.refusals.fetch_min(1, Ordering::Relaxed);
        drop((alone, gate, signals));
        shared.core.figures.last_cut_ns.store(start.elapsed().as_nanos() as u64, Ordering::Relaxed);
        shared.keeper.note_cut(&**shared);
        Ok(Arc::new(view))
    }

    fn prepare_write(&self, range: Range<usize>) {
        let shared = &*self.0;
        assert!(range.start <= range.end && range.end <= self.len(), "{range:?} lies outside {} bytes", self.len());
        if range.is_empty() {
            return;
        }
        if shared.keeper.is_forked() {
            return;
        }
        let mut page = range.start / PAGE_SIZE;
        while page <= (range.end - 1) / PAGE_SIZE {
            if shared.parts.is_open(page) {
                page += 1;
                continue;
            }
            // A handler that writes would wait for this thread, or for a cut that waits for this thread.
            let _blocked = BlockedSignals::new();
            let _lifting = shared.lifts.lift();
            let pages =
                if shared.core.is_safe(page..page + 1) { page..page + 1 } else { shared.core.first_write(page) };
            // Should it fail, the system call that writes there tells, or a fault tries again.
            let _ = shared.lift(&pages);
            page = pages.end;
        }
    }

    fn settle(&self) {
        self.0.keeper.settle(&*self.0);
    }

    fn stats(&self) -> OriginStats {
        self.0.core.stats()
    }
}
