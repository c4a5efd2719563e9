//! Threads that see to the faults of a transparent map, for code whose system calls touch it too: who faults sleeps until a
//! server has brought the page in, or allowed stores to it, and wakes it.
//!
//! Relies on a userfaultfd without signals. Servers never touch the map's memory. A server that waits (for the device, for
//! memory, for a page that is being written) waits for writers, the tender or another server, none of which waits for it.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use quire_sys::userfault::{Bell, Fault};

use super::faults::{Faults, Lost};
use crate::config::Serving;
use crate::error::PoolError;
use crate::word::State;

/// Most threads that may serve a map: no more can be reading at a time.
const MOST_THREADS: usize = 32;

/// The threads; dropping them sends them home. Nobody may be asleep in a fault then.
pub(super) struct Servers {
    post: Arc<Post>,
    threads: Vec<JoinHandle<()>>,
}

/// Where servers wait: one for faults, the others for its place. All of them would wake for every fault otherwise.
struct Post {
    turn: Mutex<()>,
    bell: Bell,
}

impl Servers {
    pub(super) fn start(faults: &Arc<Faults>, serving: Serving) -> Result<Self, PoolError> {
        let no_thread = |error: io::Error| PoolError::Thread { cause: error.to_string() };
        let post = Post { turn: Mutex::default(), bell: Bell::new().map_err(no_thread)? };
        let mut servers = Self { post: Arc::new(post), threads: Vec::new() };
        for number in 0..serving.threads.clamp(1, MOST_THREADS) {
            let (own, post) = (Arc::clone(faults), Arc::clone(&servers.post));
            let thread = std::thread::Builder::new().name(format!("quire-serve-{number}")).spawn(move || {
                own.shared.config.greet_thread();
                serve(&own, &post, serving.lost);
            });
            servers.threads.push(thread.map_err(no_thread)?);
        }
        Ok(servers)
    }
}

impl Drop for Servers {
    fn drop(&mut self) {
        self.post.bell.ring();
        for thread in self.threads.drain(..) {
            // A server that panicked has said so.
            let _ = thread.join();
        }
    }
}

/// The life of a server.
fn serve(faults: &Faults, post: &Post, lost: fn(&str)) {
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
            Err(error) => Err(Lost::Place(error)),
        };
        if let Err(loss) = seen_to {
            lost(&faults.words_for(&loss));
            std::process::abort();
        }
    }
}

impl Faults {
    /// Does what a sleeping thread waits for, and wakes it: it tries again, and sleeps again if it needs more.
    fn see_to(&self, fault: Fault) -> Result<(), Lost> {
        let frames = &self.mapped.frames;
        let page = ((fault.address - frames.at(0) as usize) / frames.page_bytes()) as u64;
        let Some((word, at, _)) = self.mapped.find(page) else {
            let end = io::Error::new(io::ErrorKind::UnexpectedEof, "an access beyond the end of the file");
            return Err(Lost::Place(end));
        };
        match word.seen().state() {
            State::Absent => self.bring_in(page, fault.is_store)?,
            State::Clean | State::Dirty if fault.is_protected => {
                if !self.allow_stores(page) {
                    return Err(Lost::Place(io::Error::other("the kernel doesn't lift write protection")));
                }
            }
            // It has come since the fault.
            State::Clean | State::Dirty => {}
            // It can be read meanwhile, and a load has nothing to wait for; a store tries again.
            State::Writing if !fault.is_protected => {}
            State::Reading | State::Evicting | State::Writing => self.await_change(page),
        }
        self.fault().wake(at, frames.page_bytes()).map_err(Lost::Place)
    }

    fn words_for(&self, loss: &Lost) -> String {
        let name = self.mapped.device.name();
        match loss {
            Lost::Memory => {
                let waited_ms = self.shared.config.patience_ms;
                let error = PoolError::Exhausted { budget_pages: self.shared.credits.total(), waited_ms };
                let poison = self.mapped.check().err();
                format!("{name}: {}", poison.unwrap_or(error))
            }
            Lost::Device(error) => error.to_string(),
            Lost::Place(error) => format!("{name}: a page could not be put in its place: {error}"),
        }
    }
}
