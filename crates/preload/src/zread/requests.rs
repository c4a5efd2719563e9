//! What threads of the program ask the lease process for.
//!
//! Relies on both sharing memory: a few places that are claimed by an atomic exchange, and a word that the lease process sleeps at. Fit
//! for signal handlers, as nothing is locked.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use quire_sys::futex::{self, FutexScope};
use quire_sys::lease::FileKey;
use quire_sys::thread::BlockedSignals;

/// Requests at a time. If all places are taken, files are opened later, and others wait.
const MOST: usize = 16;
/// A thread that waits for an answer looks that often whether the lease process is still there.
const LOOK: Duration = Duration::from_millis(20);

/// A request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeaseRequest {
    /// Take a lease on the file that the program has open as this number. Is not waited for.
    Open(i32, FileKey),
    /// Make this memory anonymous.
    Convert {
        /// Its first address.
        start: usize,
        /// One past its last.
        end: usize,
    },
    /// Make all memory anonymous, and give all leases back.
    GiveBack,
}

const FREE: u32 = 0;
const CLAIMED: u32 = 1;
const ASKED: u32 = 2;
const DONE: u32 = 3;

struct RequestSlot {
    state: AtomicU32,
    words: [AtomicU64; 4],
}

static SLOTS: [RequestSlot; MOST] =
    [const { RequestSlot { state: AtomicU32::new(FREE), words: [const { AtomicU64::new(0) }; 4] } }; MOST];
/// Changes with every request and every signal.
static WORK: AtomicU32 = AtomicU32::new(0);

fn encode(request: LeaseRequest) -> [u64; 4] {
    match request {
        LeaseRequest::Open(number, key) => [0, number as u64, key.device, key.inode],
        LeaseRequest::Convert { start, end } => [1, start as u64, end as u64, 0],
        LeaseRequest::GiveBack => [2, 0, 0, 0],
    }
}

fn decode(words: [u64; 4]) -> LeaseRequest {
    match words[0] {
        0 => LeaseRequest::Open(words[1] as i32, FileKey { device: words[2], inode: words[3] }),
        1 => LeaseRequest::Convert { start: words[1] as usize, end: words[2] as usize },
        _ => LeaseRequest::GiveBack,
    }
}

fn post(request: LeaseRequest) -> Option<&'static RequestSlot> {
    let is_claimed =
        |slot: &&RequestSlot| slot.state.compare_exchange(FREE, CLAIMED, Ordering::Acquire, Ordering::Relaxed).is_ok();
    let slot = SLOTS.iter().find(is_claimed)?;
    for (place, word) in slot.words.iter().zip(encode(request)) {
        place.store(word, Ordering::Relaxed);
    }
    // Release publishes the words to `serve`.
    slot.state.store(ASKED, Ordering::Release);
    ring();
    Some(slot)
}

/// Asks for a lease on a file, without waiting; whether there was a place for that.
pub fn open(number: i32, key: FileKey) -> bool {
    post(LeaseRequest::Open(number, key)).is_some()
}

/// Asks for something and waits until it is done; `false` if the lease process ends before. `is_there` says whether it is there.
///
/// Meanwhile no handler of the program's runs in this thread: one that jumps away would leave the place taken for good.
pub fn ask(request: LeaseRequest, is_there: impl Fn() -> bool) -> bool {
    let _blocked = BlockedSignals::with_the_c_library_s();
    let slot = loop {
        match post(request) {
            Some(slot) => break slot,
            None if !is_there() => return false,
            None => quire_sys::bare_thread::sleep(Duration::from_micros(100)),
        }
    };
    while slot.state.load(Ordering::Acquire) == ASKED && is_there() {
        futex::wait(&slot.state, ASKED, Some(LOOK), FutexScope::Process);
    }
    slot.state.swap(FREE, Ordering::AcqRel) == DONE
}

/// In the lease process: goes through what is asked for.
pub fn serve(mut answer: impl FnMut(LeaseRequest)) {
    for slot in &SLOTS {
        // Acquire pairs with the release in `post`.
        if slot.state.load(Ordering::Acquire) != ASKED {
            continue;
        }
        let request = decode(std::array::from_fn(|at| slot.words[at].load(Ordering::Relaxed)));
        let is_waited_for = !matches!(request, LeaseRequest::Open(..));
        answer(request);
        slot.state.store(if is_waited_for { DONE } else { FREE }, Ordering::Release);
        if is_waited_for {
            futex::wake_all(&slot.state, FutexScope::Process);
        }
    }
}

/// Has the lease process look around. Fit for its signal handler.
pub fn ring() {
    WORK.fetch_add(1, Ordering::SeqCst);
    futex::wake_all(&WORK, FutexScope::Process);
}

/// In the lease process, before it looks around: what [`sleep`] is given.
pub fn seen() -> u32 {
    WORK.load(Ordering::SeqCst)
}

/// In the lease process: sleeps until there is something new since [`seen`].
pub fn sleep(seen: u32, limit: Duration) {
    futex::wait(&WORK, seen, Some(limit), FutexScope::Process);
}

/// In the child of a fork: none of them is waited for here.
pub fn forget() {
    SLOTS.iter().for_each(|slot| slot.state.store(FREE, Ordering::Relaxed));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_comes_through_as_it_was_and_its_asker_is_woken() {
        let _alone = crate::state::alone();
        let key = FileKey { device: u64::MAX, inode: 7 };
        let all =
            [LeaseRequest::Open(5, key), LeaseRequest::Convert { start: 1, end: usize::MAX }, LeaseRequest::GiveBack];
        assert!(all.iter().all(|&request| decode(encode(request)) == request));
        assert!(!ask(LeaseRequest::GiveBack, || false), "no process is there");
        std::thread::scope(|threads| {
            let asker = threads.spawn(|| ask(LeaseRequest::GiveBack, || true));
            let mut count = 0;
            while count == 0 {
                let now = seen();
                serve(|request| {
                    assert_eq!(request, LeaseRequest::GiveBack);
                    count += 1;
                });
                if count == 0 {
                    sleep(now, LOOK);
                }
            }
            assert!(asker.join().unwrap());
        });
        assert!((0..MOST).all(|_| open(1, key)) && !open(1, key));
        forget();
    }
}
