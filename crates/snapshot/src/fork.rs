//! `fork`: the copy lives in a child process, which answers requests for bytes of it.
//!
//! Relies on `quire_sys::child` for processes and sockets, and on the duty of what runs in the child: it was one thread of
//! many, so it allocates nothing, takes no lock and never panics. The kernel shares frames until parent or child writes.
//!
//! A request is three words (what, offset, length). The child answers a read with the bytes themselves, and a fork with the
//! number of the new process, whose socket came with the request. It ends when its socket is closed.

use std::io::ErrorKind;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::Instant;

use quire_sys::child::{self, Child};
use quire_sys::fork_mark::ForkMark;
use quire_sys::pagemap::{Pagemap, PagemapEntry};

use crate::mechanism::Mechanism;
use crate::origin::{MechanismError, Origin, OriginStats, View, ViewError, check};
use crate::page::PAGE_SIZE;
use crate::span::PageRange;

/// Bytes that are asked for at once, so that a long read does not keep others waiting.
const CHUNK_BYTES: usize = 1 << 20;
/// Words of the page map that are read at once.
const MAP_WORDS: usize = 4096;
const REQUEST_BYTES: usize = 24;
const READ: u64 = 1;
const FORK: u64 = 2;
/// Exit status of a child that was asked something it does not understand.
const CONFUSED: i32 = 3;
/// Exit status of a child that could not read its copy or answer.
const SPEECHLESS: i32 = 4;

/// The range of which children hold copies.
pub(crate) struct ForkOrigin {
    span: PageRange,
    shared: Arc<Shared>,
    cuts: AtomicU64,
    last_cut_ns: AtomicU64,
}

/// What an origin and its views know of each other.
#[derive(Default)]
struct Shared {
    views: Mutex<Vec<Weak<ForkView>>>,
    held_peak: AtomicU64,
    /// The sockets are those of the process that cut: another one that asked would take its answers.
    mark: ForkMark,
}

/// One child and the socket to it.
struct ForkView {
    base: usize,
    len: usize,
    connection: Mutex<Connection>,
    shared: Arc<Shared>,
}

struct Connection {
    socket: OwnedFd,
    child: Child,
    /// Why the child is gone, once that is known.
    gone: Option<String>,
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

fn refused(call: &'static str, source: std::io::Error) -> MechanismError {
    let suggestion = "If memory is short, see vm.overcommit_memory; if processes are, raise RLIMIT_NPROC.";
    MechanismError::System { mechanism: Mechanism::Fork, call, source, suggestion }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
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
        let view = ForkView::new(&self.shared, copy, socket, child);
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

/// The range as a child finds it: at the same addresses.
#[derive(Clone, Copy)]
struct ForkedRange {
    base: usize,
    len: usize,
}

impl ForkedRange {
    /// The life of a child. Nothing here allocates, locks or panics.
    fn serve(self, socket: BorrowedFd<'_>) -> i32 {
        let mut request = [0; REQUEST_BYTES];
        loop {
            let carried = match child::receive_with_descriptor(socket, &mut request) {
                Ok((0, _)) => return 0,
                Ok((REQUEST_BYTES, carried)) => carried,
                _ => return CONFUSED,
            };
            let [what, offset, len] = words(&request);
            let done = match (what, carried) {
                (READ, None) => self.send(socket, offset, len),
                (FORK, Some(new)) => self.fork(socket, new),
                _ => return CONFUSED,
            };
            if !done {
                return SPEECHLESS;
            }
        }
    }

    fn send(self, socket: BorrowedFd<'_>, offset: u64, len: u64) -> bool {
        let (offset, len) = (offset as usize, len as usize);
        match offset.checked_add(len) {
            Some(end) if end <= self.len => {}
            _ => return false,
        }
        // SAFETY: inside the range of which this process is to show its copy; it is the only thread here.
        unsafe { child::send_memory(socket, (self.base + offset) as *const u8, len) }.is_ok()
    }

    /// Makes a process like this one that answers at `new`; the parent of both waits for it.
    fn fork(self, socket: BorrowedFd<'_>, new: OwnedFd) -> bool {
        // SAFETY: `fork_sibling` demands async-signal-safe work, which `serve` is; the parent adopts the number that it is told.
        let made = unsafe { child::fork_sibling(new.as_fd(), &mut || self.serve(new.as_fd())) };
        let answer = match made {
            Ok(pid) => i64::from(pid),
            Err(errno) => -i64::from(errno),
        };
        child::send_all(socket, &answer.to_ne_bytes()).is_ok()
    }
}

fn request(what: u64, offset: u64, len: u64) -> [u8; REQUEST_BYTES] {
    let mut bytes = [0; REQUEST_BYTES];
    for (to, word) in bytes.chunks_exact_mut(8).zip([what, offset, len]) {
        to.copy_from_slice(&word.to_ne_bytes());
    }
    bytes
}

fn words(request: &[u8; REQUEST_BYTES]) -> [u64; 3] {
    let mut words = [0; 3];
    for (word, bytes) in words.iter_mut().zip(request.chunks_exact(8)) {
        let mut copy = [0; 8];
        copy.copy_from_slice(bytes);
        *word = u64::from_ne_bytes(copy);
    }
    words
}

impl ForkView {
    fn new(shared: &Arc<Shared>, held: ForkedRange, socket: OwnedFd, child: Child) -> Arc<Self> {
        let connection = Mutex::new(Connection { socket, child, gone: None });
        let copy = Arc::new(Self { base: held.base, len: held.len, connection, shared: Arc::clone(shared) });
        let mut views = locked(&shared.views);
        views.retain(|view| view.strong_count() > 0);
        views.push(Arc::downgrade(&copy));
        copy
    }
}

impl Connection {
    /// One request and its answer, which fills `answer` exactly.
    fn ask(&mut self, request: &[u8], carried: Option<BorrowedFd<'_>>, answer: &mut [u8]) -> Result<(), ViewError> {
        if let Some(reason) = &self.gone {
            return Err(ViewError::Gone(reason.clone()));
        }
        let socket = self.socket.as_fd();
        let sent = match carried {
            None => child::send_all(socket, request),
            Some(descriptor) => child::send_with_descriptor(socket, request, descriptor),
        };
        let wanted = answer.len();
        let reason = match sent.and_then(|()| child::receive(socket, answer)) {
            Ok(count) if count == wanted => return Ok(()),
            Ok(_) => self.child.wait().to_string(),
            Err(error) if matches!(error.kind(), ErrorKind::BrokenPipe | ErrorKind::ConnectionReset) => {
                self.child.wait().to_string()
            }
            Err(error) => {
                // It may live, but the two ends no longer agree on where the next answer begins.
                self.child.kill();
                self.child.wait();
                format!("talking to the child process failed: {error}")
            }
        };
        self.gone = Some(reason.clone());
        Err(ViewError::Gone(reason))
    }
}

impl View for ForkView {
    fn len(&self) -> usize {
        self.len
    }

    fn read(&self, offset: usize, to: &mut [u8]) -> Result<(), ViewError> {
        check(offset, to.len(), self.len)?;
        if self.shared.mark.is_forked() {
            return Err(ViewError::Gone("it answers the process that made it, from which this one was forked".into()));
        }
        let mut at = offset as u64;
        for chunk in to.chunks_mut(CHUNK_BYTES) {
            let len = chunk.len() as u64;
            locked(&self.connection).ask(&request(READ, at, len), None, chunk)?;
            at += len;
        }
        Ok(())
    }

    fn as_ptr(&self) -> Option<*mut u8> {
        None
    }

    fn cut(&self) -> Result<Arc<dyn View>, MechanismError> {
        if self.shared.mark.is_forked() {
            return Err(MechanismError::forked(Mechanism::Fork));
        }
        let (socket, theirs) = child::socket_pair().map_err(|source| refused("socketpair", source))?;
        let mut answer = [0; 8];
        let asked = locked(&self.connection).ask(&request(FORK, 0, 0), Some(theirs.as_fd()), &mut answer);
        drop(theirs);
        asked.map_err(|error| refused("clone in the child", std::io::Error::other(error.to_string())))?;
        let answer = i64::from_ne_bytes(answer);
        let pid = u32::try_from(answer).map_err(|_| {
            let errno = i32::try_from(-answer).unwrap_or(0);
            refused("clone in the child", std::io::Error::from_raw_os_error(errno))
        })?;
        let child = Child::adopt(pid).map_err(|source| refused("pidfd_open", source))?;
        Ok(Self::new(&self.shared, ForkedRange { base: self.base, len: self.len }, socket, child))
    }

    /// Pages that only the child has: the parent has written its own since.
    fn held_bytes(&self) -> usize {
        if self.shared.mark.is_forked() {
            return 0;
        }
        let map = {
            // Under the lock no thread waits for the child, so its number stays its own; the open map is tied to it.
            let connection = locked(&self.connection);
            if connection.gone.is_some() { None } else { Pagemap::open(Some(connection.child.pid())).ok() }
        };
        let Some(map) = map else { return 0 };
        let mut words = vec![0; MAP_WORDS.min(self.len / PAGE_SIZE)];
        let mut exclusive = 0;
        for start in (0..self.len).step_by(MAP_WORDS * PAGE_SIZE) {
            let pages = ((self.len - start) / PAGE_SIZE).min(MAP_WORDS);
            let Ok(count) = map.read_words(self.base + start, &mut words[..pages]) else { break };
            exclusive += words[..count].iter().filter(|&&word| PagemapEntry::is_exclusive(word)).count();
        }
        exclusive * PAGE_SIZE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        for (what, offset, status) in [(9, 0, CONFUSED), (READ, u64::MAX, SPEECHLESS)] {
            let held = ForkedRange { base: copy.base, len: copy.len };
            let (socket, theirs) = child::socket_pair().unwrap();
            // SAFETY: `child::fork` demands async-signal-safe work: `serve` allocates nothing, takes no lock and never panics.
            let child = unsafe { child::fork(theirs.as_fd(), &mut || held.serve(theirs.as_fd())) }.unwrap();
            drop(theirs);
            let copy = ForkView::new(&origin.shared, held, socket, child);
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

    #[test]
    fn what_only_the_child_has_counts_as_held() {
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
}
