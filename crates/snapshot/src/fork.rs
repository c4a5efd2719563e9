//! `fork`: the copy lives in a child process, which answers requests for bytes of it.
//!
//! Relies on `quire_sys::child` for processes and sockets, and on [`ForkedRange`] for what runs in the child. The kernel shares frames until parent
//! or child writes.

use std::ops::Range;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Instant;

use quire_sys::child;

use crate::fork_child::ForkedRange;
use crate::fork_view::{ForkView, ForkedViews, locked, refused};
use crate::mechanism::Mechanism;
use crate::origin::{MechanismError, Origin, OriginStats, View};
use crate::span::PageRange;

/// The range of which children hold copies.
pub(crate) struct ForkOrigin {
    span: PageRange,
    shared: Arc<ForkedViews>,
    cuts: AtomicU64,
    last_cut_ns: AtomicU64,
}

impl ForkOrigin {
    pub(crate) fn new(span: PageRange) -> Result<Self, MechanismError> {
        probe()?;
        Ok(Self { span, shared: Arc::default(), cuts: AtomicU64::new(0), last_cut_ns: AtomicU64::new(0) })
    }
}

/// Whether this process may fork as we need it, found out once.
fn probe() -> Result<(), MechanismError> {
    static WORKS: OnceLock<Result<(), String>> = OnceLock::new();
    let works = WORKS.get_or_init(|| {
        let (_ours, theirs) = child::socket_pair().map_err(|error| format!("socketpair: {error}"))?;
        // SAFETY: the child does nothing but end.
        let child = unsafe { child::fork(theirs.as_fd(), &mut || 0) };
        match child.map_err(|error| format!("clone: {error}"))?.wait() {
            child::WaitStatus::Exited(0) => Ok(()),
            other => Err(format!("a first trial failed: {other}")),
        }
    });
    works.clone().map_err(|reason| MechanismError::Unsupported {
        mechanism: Mechanism::Fork,
        reason,
        suggestion: "Allow clone and pidfds (Linux 5.4, seccomp), raise RLIMIT_NPROC, or use barrier.",
    })
}

impl Origin for ForkOrigin {
    fn mechanism(&self) -> Mechanism {
        Mechanism::Fork
    }

    fn base(&self) -> *mut u8 {
        self.span.base()
    }

    fn len(&self) -> usize {
        self.span.len()
    }

    fn cut(&self) -> Result<Arc<dyn View>, MechanismError> {
        if self.shared.mark.is_forked() {
            return Err(MechanismError::forked(Mechanism::Fork));
        }
        let start = Instant::now();
        let (socket, theirs) = child::socket_pair().map_err(|source| refused("socketpair", source))?;
        let copy = ForkedRange { base: self.span.base() as usize, len: self.span.len() };
        // SAFETY: `child::fork` demands async-signal-safe work: `serve` allocates nothing, takes no lock and never panics.
        let child = unsafe { child::fork(theirs.as_fd(), &mut || copy.serve(theirs.as_fd())) }
            .map_err(|source| refused("clone", source))?;
        drop(theirs);
        let view = ForkView::new(&self.shared, copy, socket, child, 0);
        self.cuts.fetch_add(1, Ordering::Relaxed);
        self.last_cut_ns.store(start.elapsed().as_nanos() as u64, Ordering::Relaxed);
        Ok(view)
    }

    fn prepare_write(&self, range: Range<usize>) {
        assert!(range.start <= range.end && range.end <= self.len(), "{range:?} lies outside {} bytes", self.len());
    }

    fn settle(&self) {}

    fn stats(&self) -> OriginStats {
        if self.shared.mark.is_forked() {
            return OriginStats::default();
        }
        // Taken out of the list first: the last holder of a view may let go of it meanwhile, and it ends here then.
        let views: Vec<_> = locked(&self.shared.views).iter().filter_map(Weak::upgrade).collect();
        let held = views.iter().map(|view| view.held_bytes() as u64).sum();
        let peak = self.shared.held_peak.fetch_max(held, Ordering::Relaxed).max(held);
        OriginStats {
            cuts: self.cuts.load(Ordering::Relaxed),
            last_cut_ns: self.last_cut_ns.load(Ordering::Relaxed),
            held_bytes_now: held,
            held_bytes_peak: peak,
            ..OriginStats::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fork_child::{CONFUSED, SPEECHLESS};
    use crate::fork_child::{GIVE_BACK, READ, request};
    use crate::origin::{TAKE_BYTES, ViewError};
    use crate::page::PAGE_SIZE;
    use quire_sys::map;
    use quire_sys::mem::HUGE_PAGE_SIZE;
    use quire_sys::pagemap::{Pagemap, PagemapEntry};
    use std::sync::Mutex;

    fn origin(pages: usize) -> (ForkOrigin, *mut u8) {
        let span = PageRange::allocate(pages * PAGE_SIZE).unwrap();
        let base = span.base();
        (ForkOrigin::new(span).unwrap(), base)
    }

    #[test]
    fn a_view_whose_child_was_killed_says_so_and_leaves_the_others_alone() {
        let (origin, _) = origin(4);
        let views: Vec<_> = (0..2).map(|_| origin.cut().unwrap()).collect();
        let lines: Vec<_> = locked(&origin.shared.views).iter().filter_map(Weak::upgrade).collect();
        locked(&lines[0].connection).child.kill();
        let mut bytes = [1; 16];
        for _ in 0..2 {
            let error = views[0].read(0, &mut bytes).unwrap_err();
            assert!(matches!(&error, ViewError::Gone(reason) if reason.contains("signal 9")), "{error}");
        }
        assert!(matches!(views[0].cut(), Err(MechanismError::System { .. })));
        assert_eq!(views[0].held_bytes(), 0);
        views[1].read(0, &mut bytes).unwrap();
        assert_eq!(bytes, [0; 16]);
    }

    #[test]
    fn a_child_that_is_asked_nonsense_ends_and_tells_its_status() {
        let (origin, _) = origin(1);
        let _view = origin.cut().unwrap();
        let copy = locked(&origin.shared.views)[0].upgrade().unwrap();
        for (what, offset, status) in
            [(9, 0, CONFUSED), (READ, u64::MAX, SPEECHLESS), (GIVE_BACK, u64::MAX, SPEECHLESS)]
        {
            let held = ForkedRange { base: copy.base, len: copy.len };
            let (socket, theirs) = child::socket_pair().unwrap();
            // SAFETY: `child::fork` demands async-signal-safe work: `serve` allocates nothing, takes no lock and never panics.
            let child = unsafe { child::fork(theirs.as_fd(), &mut || held.serve(theirs.as_fd())) }.unwrap();
            drop(theirs);
            let copy = ForkView::new(&origin.shared, held, socket, child, 0);
            let error = locked(&copy.connection).ask(&request(what, offset, 8), None, &mut [0; 8]).unwrap_err();
            assert!(error.to_string().contains(&format!("status {status}")), "{error}");
        }
    }

    #[test]
    fn a_copy_outlives_the_thread_that_cut_it() {
        let (origin, base) = origin(1);
        let view = std::thread::scope(|scope| scope.spawn(|| origin.cut().unwrap()).join().unwrap());
        // SAFETY: the span is the origin's, and this test is its only writer.
        unsafe { base.write(9) };
        let again = view.cut().unwrap();
        drop(view);
        let mut bytes = [7];
        again.read(0, &mut bytes).unwrap();
        assert_eq!(bytes, [0]);
    }

    /// A child has the pages of every test of this process. Two tests that wait, each with a child, until their pages are no
    /// longer shared would wait for one another.
    static WAITS_FOR_CHILDREN: Mutex<()> = Mutex::new(());

    #[test]
    fn what_only_the_child_has_counts_as_held() {
        let _alone = locked(&WAITS_FOR_CHILDREN);
        let (origin, base) = origin(600);
        // SAFETY: the span is the origin's, and this test is its only writer.
        unsafe { base.write_bytes(1, 600 * PAGE_SIZE) };
        let view = origin.cut().unwrap();
        assert_eq!(view.held_bytes(), 0);
        // SAFETY: the span is the origin's, and this test is its only writer.
        unsafe { base.write_bytes(2, 600 * PAGE_SIZE) };
        // Children of other tests may have the same pages for a while.
        let patience = std::time::Instant::now() + std::time::Duration::from_secs(30);
        while view.held_bytes() < 600 * PAGE_SIZE {
            assert!(std::time::Instant::now() < patience, "{} bytes are held", view.held_bytes());
            std::thread::yield_now();
        }
        assert_eq!(origin.stats().held_bytes_now, view.held_bytes() as u64);
        drop(view);
        assert_eq!(origin.stats().held_bytes_now, 0);
    }

    /// Pages of the range with contents in the child of a view.
    fn pages_of_child(view: &ForkView) -> usize {
        let map = Pagemap::open(Some(locked(&view.connection).child.pid())).unwrap();
        let mut words = vec![0; view.len / PAGE_SIZE];
        assert_eq!(map.read_words(view.base, &mut words).unwrap(), words.len());
        words.iter().filter(|&&word| PagemapEntry::has_contents(word)).count()
    }

    fn view_of(origin: &ForkOrigin) -> Arc<ForkView> {
        let _cut = origin.cut().unwrap();
        locked(&origin.shared.views).last().and_then(Weak::upgrade).unwrap()
    }

    #[test]
    fn the_child_holds_no_page_that_was_taken_and_the_origin_s_pages_are_its_own_again() {
        let _alone = locked(&WAITS_FOR_CHILDREN);
        let pages = 4 * HUGE_PAGE_SIZE / PAGE_SIZE;
        let (origin, base) = origin(pages);
        // SAFETY: the span is the origin's, and this test is its only writer.
        unsafe { base.write_bytes(1, pages * PAGE_SIZE) };
        let view = view_of(&origin);
        assert_eq!(pages_of_child(&view), pages);
        let (mut to, mut at, mut units) = (vec![0; TAKE_BYTES], 0, 0);
        loop {
            let unit = view.take(at, &mut to).unwrap();
            if unit.is_empty() {
                break;
            }
            assert!(unit.start == at && to[..unit.len()].iter().all(|&byte| byte == 1), "{unit:?}");
            (at, units) = (unit.end, units + 1);
            // Of what was taken before this unit, a part of a huge page is left at most.
            assert!(pages_of_child(&view) * PAGE_SIZE < origin.len() - unit.start + HUGE_PAGE_SIZE);
        }
        assert_eq!((at, units, pages_of_child(&view)), (origin.len(), origin.len() / TAKE_BYTES, 0));
        // Children of other tests may have the same pages for a while.
        let map = Pagemap::open(None).unwrap();
        let patience = std::time::Instant::now() + std::time::Duration::from_secs(30);
        let mut words = vec![0; pages];
        loop {
            map.read_words(base as usize, &mut words).unwrap();
            if words.iter().all(|&word| PagemapEntry::is_exclusive(word)) {
                break;
            }
            assert!(std::time::Instant::now() < patience, "the origin still shares pages");
            std::thread::yield_now();
        }
        // SAFETY: the span is the origin's, and this test is its only writer.
        unsafe { base.write_bytes(2, pages * PAGE_SIZE) };
        assert_eq!(view.held_bytes(), 0);
    }

    #[test]
    fn memory_that_the_child_does_not_have_is_an_error_and_no_zeros() {
        let (origin, base) = origin(64);
        // SAFETY: the span is the origin's, and this test is its only writer.
        unsafe { base.write_bytes(7, 64 * PAGE_SIZE) };
        let hole = base.wrapping_add(32 * PAGE_SIZE);
        map::advise(hole, PAGE_SIZE, map::MapAdvice::DontFork).unwrap();
        let view = view_of(&origin);
        let (mut to, mut at) = (vec![0; PAGE_SIZE], 0);
        let end = loop {
            match view.take(at, &mut to) {
                Ok(unit) if unit.is_empty() => break Ok(at),
                Ok(unit) => at = unit.end,
                Err(error) => break Err((at, error)),
            }
        };
        assert!(matches!(end, Err((at, ViewError::Gone(_))) if at == 32 * PAGE_SIZE), "{end:?}");
    }

    #[test]
    fn a_page_map_that_is_empty_since_the_child_is_being_killed_is_not_believed() {
        let (origin, base) = origin(64);
        // SAFETY: the span is the origin's, and this test is its only writer.
        unsafe { base.write_bytes(7, 64 * PAGE_SIZE) };
        let view = view_of(&origin);
        // Another program has nothing mapped there, as a child whose memory the system has taken has not.
        let mut other = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        {
            let mut connection = locked(&view.connection);
            connection.is_anonymous = Some(true);
            connection.pagemap = Some(Pagemap::open(Some(other.id())).unwrap());
            connection.child.kill();
        }
        let taken = view.take(0, &mut vec![0; PAGE_SIZE]);
        other.kill().unwrap();
        other.wait().unwrap();
        assert!(matches!(taken, Err(ViewError::Gone(_))), "{taken:?}");
    }

    #[test]
    fn pages_without_contents_are_passed_over_and_only_where_they_are_zeros() {
        let (origin, base) = origin(4 * HUGE_PAGE_SIZE / PAGE_SIZE);
        map::advise(base, origin.len(), map::MapAdvice::NoHuge).unwrap();
        // SAFETY: the span is the origin's, and this test is its only writer.
        unsafe { base.add(HUGE_PAGE_SIZE + 5 * PAGE_SIZE + 7).write(9) };
        let (view, mut to) = (view_of(&origin), vec![0; TAKE_BYTES]);
        let unit = view.take(0, &mut to).unwrap();
        assert_eq!((unit.start, to[7]), (HUGE_PAGE_SIZE + 5 * PAGE_SIZE, 9));
        assert!(view.take(unit.end, &mut to).unwrap().is_empty());
        // Shared memory has no entries in a child that has not touched it.
        let shared = quire_sys::area::AnonymousMap::shared(HUGE_PAGE_SIZE).unwrap();
        // SAFETY: memory of this test, which outlives the origin below.
        let origin = unsafe {
            shared.base().add(3 * PAGE_SIZE).write(5);
            ForkOrigin::new(PageRange::borrow(shared.base(), shared.len()).unwrap()).unwrap()
        };
        assert_eq!(view_of(&origin).take(0, &mut to).unwrap(), 0..TAKE_BYTES);
        assert_eq!(to[3 * PAGE_SIZE], 5);
    }

    #[test]
    fn a_child_that_is_killed_while_its_bytes_are_taken_is_told() {
        let (origin, base) = origin(HUGE_PAGE_SIZE / PAGE_SIZE);
        // SAFETY: the span is the origin's, and this test is its only writer.
        unsafe { base.write_bytes(1, HUGE_PAGE_SIZE) };
        let (view, mut to) = (view_of(&origin), vec![0; TAKE_BYTES]);
        let unit = view.take(0, &mut to).unwrap();
        locked(&view.connection).child.kill();
        for _ in 0..2 {
            let error = view.take(unit.end, &mut to).unwrap_err();
            assert!(matches!(&error, ViewError::Gone(reason) if reason.contains("signal 9")), "{error}");
        }
    }
}
