//! Threads that see to the faults of a transparent map, for code whose system calls touch it too: a thread that faults sleeps
//! until a fault thread has brought the page in, or allowed stores to it, and wakes it.
//!
//! Relies on a userfaultfd without signals. Fault threads never touch the map's memory. One that waits (for the device, for
//! memory, for a page that is being written) waits for writers, the evictor or another fault thread, none of which waits for it.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use quire_sys::thread::spawn_unsignalled;
use quire_sys::userfault::{PageFault, WaitWaker};

use super::fault_handler::{FaultError, FaultHandler};
use crate::config::FaultThreadOptions;
use crate::error::PoolError;
use crate::page_state::PageStatus;

/// Most threads that may serve a map: no more can be reading at a time.
const MOST_THREADS: usize = 32;

/// The threads; dropping this ends them. No thread may be asleep in a fault then.
pub(super) struct FaultThreads {
    post: Arc<FaultWait>,
    threads: Vec<JoinHandle<()>>,
}

/// Where fault threads wait: one for faults, the others for its turn. All of them would wake for every fault otherwise.
struct FaultWait {
    turn: Mutex<()>,
    bell: WaitWaker,
}

impl FaultThreads {
    pub(super) fn start(faults: &Arc<FaultHandler>, serving: FaultThreadOptions) -> Result<Self, PoolError> {
        let no_thread = |error: io::Error| PoolError::Thread { cause: error.to_string() };
        let post = FaultWait { turn: Mutex::default(), bell: WaitWaker::new().map_err(no_thread)? };
        let mut all = Self { post: Arc::new(post), threads: Vec::new() };
        for number in 0..serving.threads.clamp(1, MOST_THREADS) {
            let (own, post) = (Arc::clone(faults), Arc::clone(&all.post));
            let thread = spawn_unsignalled(&format!("quire-fault-{number}"), move || {
                own.shared.config.call_on_thread_start();
                serve(&own, &post, serving.lost);
            });
            all.threads.push(thread.map_err(no_thread)?);
        }
        Ok(all)
    }
}

impl Drop for FaultThreads {
    fn drop(&mut self) {
        self.post.bell.ring();
        for thread in self.threads.drain(..) {
            // A thread that panicked has said so.
            let _ = thread.join();
        }
    }
}

/// The life of a fault thread.
fn serve(faults: &FaultHandler, post: &FaultWait, lost: fn(&str)) {
    loop {
        let turn = post.turn.lock().unwrap_or_else(PoisonError::into_inner);
        let next = match faults.fault().wait(Some(&post.bell)) {
            Ok(true) => faults.fault().next(),
            Ok(false) => return,
            Err(error) => Err(error),
        };
        drop(turn);
        let seen_to = match next {
            Ok(Some(fault)) => faults.see_to(fault),
            Ok(None) => Ok(()),
            Err(error) => Err(FaultError::HandlerSlot(error)),
        };
        if let Err(loss) = seen_to {
            lost(&faults.message_for(&loss));
            std::process::abort();
        }
    }
}

impl FaultHandler {
    /// Does what a sleeping thread waits for, and wakes it: it tries again, and sleeps again if it needs more.
    fn see_to(&self, fault: PageFault) -> Result<(), FaultError> {
        let frames = &self.mapped.frames;
        let page = ((fault.address - frames.at(0) as usize) / frames.page_bytes()) as u64;
        let Some((state, at, _)) = self.mapped.find(page) else {
            let end = io::Error::new(io::ErrorKind::UnexpectedEof, "an access beyond the end of the file");
            return Err(FaultError::HandlerSlot(end));
        };
        match state.load().status() {
            PageStatus::Absent => self.bring_in(page, fault.is_store)?,
            PageStatus::Clean | PageStatus::Dirty if fault.is_protected => {
                if !self.allow_stores(page) {
                    return Err(FaultError::HandlerSlot(io::Error::other("the kernel doesn't lift write protection")));
                }
            }
            // It has come since the fault.
            PageStatus::Clean | PageStatus::Dirty => {}
            // It can be read meanwhile, and a load has nothing to wait for; a store tries again.
            PageStatus::Writing if !fault.is_protected => {}
            PageStatus::Reading | PageStatus::Evicting | PageStatus::Writing => self.await_change(page),
        }
        self.fault().wake(at, frames.page_bytes()).map_err(FaultError::HandlerSlot)
    }

    fn message_for(&self, loss: &FaultError) -> String {
        let name = self.mapped.device.name();
        match loss {
            FaultError::Memory => {
                let waited_ms = self.shared.config.miss_timeout_ms;
                let error = PoolError::Exhausted { budget_pages: self.shared.credits.total(), waited_ms };
                let poison = self.mapped.check().err();
                format!("{name}: {}", poison.unwrap_or(error))
            }
            FaultError::Device(error) => error.to_string(),
            FaultError::HandlerSlot(error) => format!("{name}: a page could not be put in its place: {error}"),
        }
    }
}
