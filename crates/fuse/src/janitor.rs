//! What is done now and then: files learn when they were written, files of which nothing is pending are let go, files whose
//! device was full are tried again, new files that nobody flushed are flushed, files that are gone are given up, figures are written down.
//!
//! Relies on [`Engine`] for each of these. One thread; whatever it can't do it does the next time.

use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

use quire_durable::cache::WriteContext;
use quire_sys::file::sync_file_system;

use crate::bodies::Body;
use crate::engine::Engine;

/// Between two rounds.
const PERIOD: Duration = Duration::from_millis(500);
/// When bytes of a new file are flushed that no program flushed.
const PROMISE: Duration = Duration::from_secs(1);
/// More files than these at a time are flushed by flushing the whole file system.
const FEW: usize = 8;
/// How long a file of which nothing is pending is kept after its last use.
const IDLE: Duration = Duration::from_secs(2);

/// The thread.
pub struct Janitor {
    stop: Sender<()>,
    thread: JoinHandle<()>,
}

impl Janitor {
    /// Starts the thread. `also` is done in every round.
    ///
    /// # Errors
    /// The system starts no thread.
    pub fn start(engine: &Arc<Engine>, also: impl FnMut() + Send + 'static) -> std::io::Result<Self> {
        let (stop, stopped) = channel();
        let engine = Arc::downgrade(engine);
        let thread =
            std::thread::Builder::new().name("quire-janitor".into()).spawn(move || rounds(&engine, &stopped, also))?;
        Ok(Self { stop, thread })
    }

    /// Ends it.
    pub fn stop(self) {
        // It may have ended by itself.
        let _ = self.stop.send(());
        let _ = self.thread.join();
    }
}

fn rounds(engine: &Weak<Engine>, stopped: &Receiver<()>, mut also: impl FnMut()) {
    let mut round = 0_u64;
    while stopped.recv_timeout(PERIOD) == Err(RecvTimeoutError::Timeout) {
        let Some(engine) = engine.upgrade() else { return };
        for body in engine.bodies.all() {
            body.times.tell(&body.file, false);
            retry(&engine, &body);
            engine.retire(&body, IDLE);
        }
        settle(&engine);
        round += 1;
        if round.is_multiple_of(2) {
            engine.bury();
        }
        also();
    }
}

/// Flushes what lies in the directory's files without having been flushed, and is old.
fn settle(engine: &Engine) {
    if engine.straight.count() == 0 {
        return;
    }
    let is_old = |body: &Body| body.state().straight_since.is_some_and(|since| since.elapsed() >= PROMISE);
    let old: Vec<_> = engine.bodies.all().into_iter().filter(|body| is_old(body)).collect();
    if old.len() <= FEW {
        for body in &old {
            // A failure is kept with the file, and told to whoever flushes it.
            let _ = engine.pay_debt(body, false, &WriteContext::current());
        }
    } else {
        // First of all: what is written meanwhile is not flushed by this.
        old.iter().for_each(|body| engine.straight.end(&mut body.state()));
        if let Err(error) = sync_file_system(&engine.home.root) {
            tracing::warn!(%error, "flushing new files failed: whoever flushes one hears of it");
        }
    }
    old.iter().for_each(|body| engine.let_go(body));
}

/// A device that was full may have room again.
fn retry(engine: &Engine, body: &Body) {
    let Some(volume) = body.volume() else { return };
    let dead = engine.cache.volume_state(volume).and_then(|state| state.dead);
    if dead.is_none_or(|cause| !cause.is_full()) {
        return;
    }
    let has_room =
        quire_sys::at::space(&engine.home.root).is_ok_and(|space| space.available_blocks * space.block_bytes > 1 << 20);
    if has_room && engine.attach(body, volume).is_ok() {
        tracing::info!(inode = body.ino, "the slow device has room again: going on with what waited for it");
    }
}
