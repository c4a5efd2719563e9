//! The keeper: the one thread of an origin, which does its upkeep and sleeps when there is none.
//!
//! Relies on [`crate::scoot::upkeep`] for what there is to do. It ends with the origin, not with the views: what they leave
//! behind after that is unmapped by whoever drops them.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use quire_sys::thread::spawn_unsignalled;

use super::state::State;
use super::upkeep::{Step, Upkeep};

/// See the head of this file. Without a thread the upkeep waits for [`Keeper::settle`] and for cuts.
pub(super) struct Keeper {
    state: Arc<State>,
    upkeep: Arc<Mutex<Upkeep>>,
    thread: Option<JoinHandle<()>>,
}

impl Keeper {
    /// Starts the thread if the options want one.
    ///
    /// # Errors
    /// The system starts no more threads.
    pub(super) fn new(state: &Arc<State>) -> io::Result<Self> {
        let upkeep = Arc::new(Mutex::new(Upkeep::new(state.memory.layout.regions())));
        let mut keeper = Self { state: Arc::clone(state), upkeep, thread: None };
        if state.options.background {
            let (state, upkeep) = (Arc::clone(state), Arc::clone(&keeper.upkeep));
            keeper.state.lock().kept = true;
            keeper.thread = Some(spawn_unsignalled("quire-scoot", move || run(&state, &upkeep))?);
        }
        Ok(keeper)
    }

    /// Returns when there is nothing left to do.
    pub(super) fn settle(&self) {
        if self.state.is_forked() {
            return;
        }
        let mut desk = self.state.lock();
        desk.join_due = true;
        desk.settled = false;
        if self.thread.is_none() {
            drop(desk);
            let mut upkeep = self.upkeep.lock().unwrap_or_else(PoisonError::into_inner);
            while upkeep.step(&self.state) == Step::Worked {}
            return;
        }
        self.state.work.notify_one();
        while !desk.settled && desk.kept {
            desk = self.state.idle.wait(desk).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        if self.state.is_forked() {
            // There is no such thread here to wait for.
            return std::mem::forget(self.thread.take());
        }
        let mut desk = self.state.lock();
        desk.closing = true;
        desk.kept = false;
        drop(desk);
        self.state.work.notify_one();
        self.state.idle.notify_all();
        if let Some(thread) = self.thread.take() {
            // A keeper that panicked has said so already.
            let _ = thread.join();
        }
        let graves = std::mem::take(&mut self.state.lock().graves);
        drop(graves);
    }
}

/// Says that there is no keeper any more, whichever way it ended: nobody must wait for it, nor leave work to it.
struct End<'a>(&'a State);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.lock().kept = false;
        self.0.idle.notify_all();
    }
}

fn run(state: &State, upkeep: &Mutex<Upkeep>) {
    let _end = End(state);
    loop {
        let step = upkeep.lock().unwrap_or_else(PoisonError::into_inner).step(state);
        let Step::Rest(rest) = step else { continue };
        let mut desk = state.lock_last();
        if desk.closing {
            return;
        }
        if !desk.settled || desk.woken {
            desk.woken = false;
            continue;
        }
        // A wake-up too many costs a look at the desk.
        let mut desk = match rest {
            None => state.work.wait(desk).unwrap_or_else(PoisonError::into_inner),
            Some(rest) => state.work.wait_timeout(desk, rest).unwrap_or_else(PoisonError::into_inner).0,
        };
        desk.woken = false;
    }
}
