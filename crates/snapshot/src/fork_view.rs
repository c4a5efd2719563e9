//! A view that a forked child holds, and the socket over which the child is asked for bytes.
//!
//! Relies on [`ForkedRange`] for what runs in the child. One request is under way at a time: an answer belongs to the last one.

use std::io::ErrorKind;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use quire_sys::child::{self, Child};
use quire_sys::fork_mark::ForkMark;
use quire_sys::mem::HUGE_PAGE_SIZE;
use quire_sys::pagemap::{Pagemap, PagemapEntry};
use quire_sys::proc_maps;

use crate::fork_child::{FORK, ForkedRange, GIVE_BACK, READ, request};
use crate::mechanism::Mechanism;
use crate::origin::{MechanismError, TAKE_BYTES, View, ViewError, check};
use crate::page::PAGE_SIZE;

/// Bytes that are asked for at once, so that a long read does not keep others waiting.
const CHUNK_BYTES: usize = 1 << 20;
/// Words of the page map that are read at once.
const MAP_WORDS: usize = 4096;

/// What an origin and its views know of each other.
#[derive(Default)]
pub(crate) struct ForkedViews {
    pub(crate) views: Mutex<Vec<Weak<ForkView>>>,
    pub(crate) held_peak: AtomicU64,
    /// The sockets are those of the process that cut: another one that asked would take its answers.
    pub(crate) mark: ForkMark,
}

/// One child and the socket to it.
pub(crate) struct ForkView {
    pub(crate) base: usize,
    pub(crate) len: usize,
    pub(crate) connection: Mutex<Connection>,
    shared: Arc<ForkedViews>,
}

/// The socket to a child, and what is known of the child.
pub(crate) struct Connection {
    socket: OwnedFd,
    pub(crate) child: Child,
    /// Why the child is gone, once that is known.
    gone: Option<String>,
    /// Bytes before it were taken.
    taken: usize,
    /// Bytes before it are given back: `taken`, but for a part of a huge page.
    given_back: usize,
    /// The child's page map, once it was asked for.
    pub(crate) pagemap: Option<Pagemap>,
    /// Whether a page that has no entry in the page map reads as zero, in all of the range: it is mapped, no file's and not shared.
    /// Asked of the child itself, whose mappings stay what they were at the cut.
    pub(crate) is_anonymous: Option<bool>,
}

/// Whether all of a range is mapped in the process `pid`, as private memory of no file.
fn is_anonymous(pid: u32, range: &Range<usize>) -> bool {
    let (mut buffer, mut covered) = (vec![0; proc_maps::BUFFER_BYTES], range.start);
    let read = proc_maps::each_of(pid, &mut buffer, |mapping| {
        if mapping.anonymous && mapping.start <= covered && covered < mapping.end {
            covered = mapping.end;
        }
        covered < range.end && mapping.start < range.end
    });
    read.is_ok() && covered >= range.end
}

pub(crate) fn refused(call: &'static str, source: std::io::Error) -> MechanismError {
    let suggestion = "If memory is short, see vm.overcommit_memory; if processes are, raise RLIMIT_NPROC.";
    MechanismError::System { mechanism: Mechanism::Fork, call, source, suggestion }
}

pub(crate) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl ForkView {
    pub(crate) fn new(
        shared: &Arc<ForkedViews>,
        held: ForkedRange,
        socket: OwnedFd,
        child: Child,
        taken: usize,
    ) -> Arc<Self> {
        // What a view of a view has of memory that was taken, is given back with the next.
        let connection =
            Connection { socket, child, gone: None, taken, given_back: 0, pagemap: None, is_anonymous: None };
        let connection = Mutex::new(connection);
        let copy = Arc::new(Self { base: held.base, len: held.len, connection, shared: Arc::clone(shared) });
        let mut views = locked(&shared.views);
        views.retain(|view| view.strong_count() > 0);
        views.push(Arc::downgrade(&copy));
        copy
    }
}

impl Connection {
    /// Reads bytes that were not taken.
    fn read(&mut self, offset: usize, to: &mut [u8]) -> Result<(), ViewError> {
        if offset < self.taken {
            return Err(ViewError::Taken { offset, taken: self.taken });
        }
        self.ask(&request(READ, offset as u64, to.len() as u64), None, to)
    }

    /// Notes that bytes before `from` are of no more use, and has the child give back whole huge pages of them, or all at the end.
    fn give_up(&mut self, range: ForkedRange, from: usize) -> Result<(), ViewError> {
        self.taken = self.taken.max(from);
        let whole = ((range.base + self.taken) / HUGE_PAGE_SIZE * HUGE_PAGE_SIZE).saturating_sub(range.base);
        let until = if self.taken == range.len { range.len } else { whole };
        if until > self.given_back {
            let mut answer = [0; 8];
            let len = (until - self.given_back) as u64;
            self.ask(&request(GIVE_BACK, self.given_back as u64, len), None, &mut answer)?;
            // Where the system refuses, the child holds it until the end; `held_bytes` tells.
            self.given_back = until;
        }
        Ok(())
    }

    /// The first byte from `from` on whose page has contents, as far as the page map tells.
    fn next_contents(&mut self, range: ForkedRange, from: usize) -> Result<usize, ViewError> {
        let pid = self.child.pid();
        if self.gone.is_none() {
            let addresses = range.base..range.base + range.len;
            let is_anonymous = *self.is_anonymous.get_or_insert_with(|| is_anonymous(pid, &addresses));
            if is_anonymous && self.pagemap.is_none() {
                self.pagemap = Pagemap::open(Some(pid)).ok();
            }
        }
        let found = self.next_mapped(range, from);
        if found > from {
            // The system takes the memory of a process that it kills before the process is gone: its page map is empty then. A process
            // that still answers had all of its memory when the page map was read.
            let mut answer = [0; 8];
            self.ask(&request(GIVE_BACK, 0, 0), None, &mut answer)?;
        }
        Ok(found)
    }

    fn next_mapped(&self, range: ForkedRange, from: usize) -> usize {
        let Some(map) = &self.pagemap else { return from };
        let (mut words, mut at) = ([0; TAKE_BYTES / PAGE_SIZE], from);
        while at < range.len {
            let page = at / PAGE_SIZE * PAGE_SIZE;
            let pages = ((range.len - page) / PAGE_SIZE).min(words.len());
            match map.read_words(range.base + page, &mut words[..pages]) {
                Ok(count) if count == pages => {}
                _ => return at,
            }
            if let Some(found) = words[..pages].iter().position(|&word| PagemapEntry::has_contents(word)) {
                return at.max(page + found * PAGE_SIZE);
            }
            at = page + pages * PAGE_SIZE;
        }
        range.len
    }

    /// One request and its answer, which fills `answer` exactly.
    pub(crate) fn ask(
        &mut self,
        request: &[u8],
        carried: Option<BorrowedFd<'_>>,
        answer: &mut [u8],
    ) -> Result<(), ViewError> {
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
        let mut at = offset;
        for chunk in to.chunks_mut(CHUNK_BYTES) {
            locked(&self.connection).read(at, chunk)?;
            at += chunk.len();
        }
        Ok(())
    }

    /// The child holds no page any more that was taken, so what the origin's writers change there is theirs alone.
    fn take(&self, from: usize, to: &mut [u8]) -> Result<Range<usize>, ViewError> {
        check(from, 0, self.len)?;
        if self.shared.mark.is_forked() {
            return Err(ViewError::Gone("it answers the process that made it, from which this one was forked".into()));
        }
        let (mut connection, range) = (locked(&self.connection), ForkedRange { base: self.base, len: self.len });
        if from < connection.taken {
            return Err(ViewError::Taken { offset: from, taken: connection.taken });
        }
        connection.give_up(range, from)?;
        let start = connection.next_contents(range, from)?;
        // Up to the next multiple, so that later units are whole ones.
        let end = ((start / TAKE_BYTES + 1) * TAKE_BYTES).min(self.len).min(start.saturating_add(to.len()));
        if start < end {
            connection.read(start, &mut to[..end - start])?;
        }
        Ok(start..end)
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
        let (asked, taken) = {
            let mut connection = locked(&self.connection);
            (connection.ask(&request(FORK, 0, 0), Some(theirs.as_fd()), &mut answer), connection.taken)
        };
        drop(theirs);
        asked.map_err(|error| refused("clone in the child", std::io::Error::other(error.to_string())))?;
        let answer = i64::from_ne_bytes(answer);
        let pid = u32::try_from(answer).map_err(|_| {
            let errno = i32::try_from(-answer).unwrap_or(0);
            refused("clone in the child", std::io::Error::from_raw_os_error(errno))
        })?;
        let child = Child::adopt(pid).map_err(|source| refused("pidfd_open", source))?;
        Ok(Self::new(&self.shared, ForkedRange { base: self.base, len: self.len }, socket, child, taken))
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
