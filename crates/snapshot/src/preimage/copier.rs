//! The thread that works ahead of the writers and cleans up behind the views, one for each origin.
//!
//! Relies on being woken: it sleeps when there is nothing to do. It ends with the last [`Lease`](super::view::Lease) of its
//! mechanism. Dropping that lease waits for the thread, as the memory may be gone right afterwards. Apart from that only
//! [`Copier::settle`] waits for it.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use quire_sys::fork_mark::ForkMark;
use quire_sys::futex::{self, FutexScope};
use quire_sys::thread::spawn_unsignalled;

use super::copy_on_write::CopyOnWrite;
use super::epoch_chain::EpochChain;
use crate::page::PAGE_SIZE;

/// Pages copied in one piece: short enough for a cut to wait for.
const PIECE_PAGES: usize = 64;
/// So long after the last epoch, the memory that it needed is kept warm for another one.
const LINGER: Duration = Duration::from_secs(2);

/// A mechanism, as its copier thread and its views see it.
pub(crate) trait BackgroundWork: Send + Sync {
    /// The copies.
    fn cow(&self) -> &Arc<CopyOnWrite>;

    /// The epochs.
    fn chain(&self) -> &EpochChain;

    /// The thread.
    fn copier(&self) -> &Copier;

    /// Copies `pages` of `region` ahead of the writers; `false` when no view wants them any more.
    fn copy_ahead(&self, region: usize, pages: Range<usize>) -> bool;

    /// Makes one split huge page whole again; `false` when there is nothing to do now.
    fn collapse_one(&self) -> bool;
}

/// The thread's state, and the work that waits for it.
#[derive(Default)]
pub(crate) struct Copier {
    work: Mutex<Work>,
    /// A cut was made, and there are regions to copy ahead.
    cut: AtomicBool,
    /// Rung by changing it; the thread sleeps here.
    bell: AtomicU32,
    sleeping: AtomicBool,
    idle: Condvar,
    background: bool,
    /// Origins and epochs that hold the mechanism.
    leases: AtomicUsize,
    /// A forked child has neither the thread nor, for certain, its locks.
    mark: ForkMark,
}

#[derive(Default)]
struct Work {
    /// An epoch is over.
    tidy: bool,
    /// There may be a huge page to collapse.
    collapse: bool,
    /// No epoch has followed the last one for a while.
    forget: bool,
    /// More memory is kept than the owner wants for good.
    lingers: bool,
    busy: bool,
    stop: bool,
    /// There is no thread any more, for it has panicked: the thread that ends an epoch collects the garbage.
    ended: bool,
}

impl Copier {
    pub(crate) fn new(background: bool) -> Self {
        Self { background, ..Self::default() }
    }

    /// Starts the thread, if there is to be one.
    ///
    /// # Errors
    /// The system has no more threads.
    pub(crate) fn start<C: BackgroundWork + 'static>(self: &Arc<Self>, mechanism: &Arc<C>) -> std::io::Result<()> {
        if !self.background {
            return Ok(());
        }
        self.lock().collapse = true;
        let copier = Arc::clone(self);
        let mechanism: Weak<dyn BackgroundWork> = Arc::downgrade(mechanism) as Weak<dyn BackgroundWork>;
        spawn_unsignalled("quire-copier", move || copier.run(&mechanism)).map(drop)
    }

    /// Whether this is a forked child of the process that made the mechanism. It has the memory as it was, but not the thread. A
    /// lock that another thread held stays locked for ever. So the child may wait for nothing, and must not act on the parent.
    pub(crate) fn is_forked(&self) -> bool {
        self.mark.is_forked()
    }

    /// Ends the thread when it has finished what it is at.
    pub(crate) fn stop(&self) {
        if self.is_forked() {
            return;
        }
        self.lock().stop = true;
        self.ring();
        self.idle.notify_all();
    }

    /// One more holds the mechanism.
    pub(crate) fn enter(&self) {
        self.leases.fetch_add(1, Ordering::Relaxed);
    }

    /// One holds it no longer. After the last one, the thread doesn't touch the memory any more.
    pub(crate) fn leave(&self) {
        if self.is_forked() {
            return;
        }
        if self.leases.fetch_sub(1, Ordering::AcqRel) > 1 {
            return;
        }
        self.stop();
        let mut work = self.lock();
        while work.busy {
            work = self.idle.wait(work).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Work> {
        self.work.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes the thread. May be called in a signal handler.
    fn ring(&self) {
        self.bell.fetch_add(1, Ordering::SeqCst);
        if self.sleeping.swap(false, Ordering::SeqCst) {
            futex::wake_all(&self.bell, FutexScope::Process);
        }
    }

    /// A cut was made. Waking a thread takes longer than the cut did, so that is left to the first write, which pays more
    /// for its copy anyway.
    pub(crate) fn note_cut(&self, mechanism: &dyn BackgroundWork) {
        let cow = mechanism.cow();
        if self.background && (cow.coverage.copies_ahead() || cow.store.is_short() || mechanism.chain().has_garbage()) {
            self.cut.store(true, Ordering::SeqCst);
        }
    }

    /// A page was written for the first time: if that was the first one after a cut, there is work. May be called in a
    /// signal handler.
    pub(crate) fn nudge(&self) {
        if self.cut.load(Ordering::Relaxed) && self.sleeping.load(Ordering::Relaxed) {
            self.ring();
        }
    }

    /// An epoch is over.
    pub(crate) fn note_end(&self, mechanism: &dyn BackgroundWork) {
        if self.is_forked() {
            return;
        }
        if self.background {
            let mut work = self.lock();
            if !work.ended {
                work.tidy = true;
                work.collapse = true;
                drop(work);
                return self.ring();
            }
        }
        mechanism.chain().collect_garbage();
        while mechanism.cow().store.trim(mechanism.cow().options.keep_bytes) {}
    }

    /// Waits until there is nothing left to do.
    pub(crate) fn settle(&self, mechanism: &dyn BackgroundWork) {
        if self.is_forked() {
            return;
        }
        let mut work = self.lock();
        if !self.background || work.ended {
            drop(work);
            while mechanism.collapse_one() {}
            return;
        }
        work.collapse = true;
        self.ring();
        while !work.stop && !work.ended && (work.busy || work.collapse || work.tidy || self.cut.load(Ordering::SeqCst))
        {
            // A cut made meanwhile is told only by the next write, which may never come.
            self.ring();
            work = self.idle.wait(work).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn run(&self, mechanism: &Weak<dyn BackgroundWork>) {
        let _end = End(self);
        loop {
            let seen = self.bell.load(Ordering::SeqCst);
            let mut work = self.lock();
            if work.stop {
                return;
            }
            let tidy = std::mem::take(&mut work.tidy);
            let cut = !tidy && self.cut.swap(false, Ordering::SeqCst);
            let forget = !tidy && !cut && std::mem::take(&mut work.forget);
            let collapse = !tidy && !cut && (std::mem::take(&mut work.collapse) || forget);
            work.busy = tidy || cut || collapse;
            if !work.busy {
                self.idle.notify_all();
                let patience = work.lingers.then_some(LINGER);
                drop(work);
                let start = Instant::now();
                self.sleeping.store(true, Ordering::SeqCst);
                // A bell rung since `seen` was read lets this return at once.
                futex::wait(&self.bell, seen, patience, FutexScope::Process);
                self.sleeping.store(false, Ordering::SeqCst);
                if patience.is_some_and(|patience| start.elapsed() >= patience) {
                    self.lock().forget = true;
                }
                continue;
            }
            drop(work);
            // Dropped after `mechanism`, or a thread that waits would find the mechanism still held.
            let _busy = Busy(self);
            let Some(mechanism) = mechanism.upgrade() else { return };
            if tidy {
                mechanism.chain().collect_garbage();
            } else if cut {
                self.copy_ahead(&*mechanism);
                mechanism.chain().collect_garbage();
            } else {
                if forget {
                    mechanism.cow().store.forget_lately();
                }
                self.tidy(&*mechanism);
            }
            let cow = mechanism.cow();
            self.lock().lingers = cow.store.lingers(cow.options.keep_bytes);
        }
    }

    /// Whether work waits that is more urgent than trimming and collapsing.
    fn is_wanted(&self) -> bool {
        let work = self.lock();
        work.stop || work.tidy || self.cut.load(Ordering::SeqCst)
    }

    /// Lets time pass, until something more urgent comes.
    fn pause(&self, time: Duration) {
        let start = Instant::now();
        loop {
            let seen = self.bell.load(Ordering::SeqCst);
            let left = time.saturating_sub(start.elapsed());
            if left.is_zero() || self.is_wanted() {
                return;
            }
            self.sleeping.store(true, Ordering::SeqCst);
            futex::wait(&self.bell, seen, Some(left), FutexScope::Process);
            self.sleeping.store(false, Ordering::SeqCst);
        }
    }

    fn tidy(&self, mechanism: &dyn BackgroundWork) {
        let cow = mechanism.cow();
        while cow.store.trim(cow.options.keep_bytes) || mechanism.collapse_one() {
            if self.is_wanted() {
                self.lock().collapse = true;
                return;
            }
        }
    }

    /// Copies the regions of high coverage, the highest first, no faster than allowed.
    fn copy_ahead(&self, mechanism: &dyn BackgroundWork) {
        let cow = mechanism.cow();
        while cow.store.warm_ahead() {}
        if !cow.coverage.copies_ahead() {
            return;
        }
        let start = Instant::now();
        let mut copied_bytes = 0;
        for region in cow.coverage.high_regions() {
            let pages = cow.pages_of(region);
            for first in pages.clone().step_by(PIECE_PAGES) {
                if self.is_wanted() {
                    return;
                }
                let piece = first..(first + PIECE_PAGES).min(pages.end);
                copied_bytes += piece.len() * PAGE_SIZE;
                if !mechanism.copy_ahead(region, piece) {
                    return;
                }
                let due = copied_bytes as f64 / cow.options.precopy_bytes_per_second.max(1) as f64;
                let early = Duration::from_secs_f64(due).saturating_sub(start.elapsed());
                // Sleeps shorter than this are longer than they say.
                if early > Duration::from_micros(200) {
                    self.pause(early);
                }
            }
            cow.store.warm_ahead();
        }
    }
}

/// Says that there is no thread any more, whichever way it ended: no thread must wait for it, nor leave work to it.
struct End<'a>(&'a Copier);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.lock().ended = true;
        self.0.idle.notify_all();
    }
}

/// The thread is at something, as long as this lives.
struct Busy<'a>(&'a Copier);

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        self.0.lock().busy = false;
        self.0.idle.notify_all();
    }
}
