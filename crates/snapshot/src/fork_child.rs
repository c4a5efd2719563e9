//! The child of a view by `fork`: it answers requests for bytes of its copy.
//!
//! Relies on the duty of what runs in the child: it was one thread of many, so it allocates nothing, takes no lock and never panics.
//!
//! A request is three words (what, offset, length). The child answers a read with the bytes themselves, a fork with the
//! number of the new process, whose socket came with the request, and "give back" with 0 or an error's number when it has given that
//! memory back to the system. It ends when its socket is closed.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use quire_sys::{child, map, this_thread};

pub(crate) const REQUEST_BYTES: usize = 24;
pub(crate) const READ: u64 = 1;
pub(crate) const FORK: u64 = 2;
pub(crate) const GIVE_BACK: u64 = 3;
/// The child works with memory no further from its stack and from its thread's variables.
const NEAR_BYTES: usize = 256 << 10;
/// Exit status of a child that was asked something it does not understand.
pub(crate) const CONFUSED: i32 = 3;
/// Exit status of a child that could not read its copy or answer.
pub(crate) const SPEECHLESS: i32 = 4;

/// The range as a child finds it: at the same addresses.
#[derive(Clone, Copy)]
pub(crate) struct ForkedRange {
    pub(crate) base: usize,
    pub(crate) len: usize,
}

impl ForkedRange {
    /// The life of a child. Nothing here allocates, locks or panics.
    pub(crate) fn serve(self, socket: BorrowedFd<'_>) -> i32 {
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
                (GIVE_BACK, None) => self.give_back(socket, offset, len),
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

    /// Gives memory back that is asked for no more, unless this process works there itself.
    fn give_back(self, socket: BorrowedFd<'_>, offset: u64, len: u64) -> bool {
        let (offset, len) = (offset as usize, len as usize);
        match offset.checked_add(len) {
            Some(end) if end <= self.len => {}
            _ => return false,
        }
        let start = self.base + offset;
        let is_near = |address: usize| start < address.saturating_add(NEAR_BYTES) && address < start + len + NEAR_BYTES;
        let answer = if is_near(this_thread::stack_address()) || is_near(this_thread::variables_address()) {
            0
        } else {
            // SAFETY: `discard` demands pages without references into them: they lie inside the range of which this process has a copy, and
            // it only sends from there. It is the only thread here, and what it works with lies elsewhere, as was just checked.
            let given = unsafe { map::discard(start as *mut u8, len) };
            given.map_or_else(|error| -i64::from(error.raw_os_error().unwrap_or(0)), |()| 0)
        };
        child::send_all(socket, &answer.to_ne_bytes()).is_ok()
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

/// A request in bytes.
pub(crate) fn request(what: u64, offset: u64, len: u64) -> [u8; REQUEST_BYTES] {
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
