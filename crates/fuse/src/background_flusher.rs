//! The thread that does what no request does: it gives files their times of writing, ends volumes of which nothing is
//! pending, tries files again whose device was full, flushes new files that no program flushed, reaps orphans, and writes
//! figures down. It tells of a file that can't be written to while the log holds bytes for it.
//!
//! Relies on [`MountEngine`] for each of these. What the thread can't do in one round it does in the next.

use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::engine::MountEngine;
use crate::inodes::Inode;
use crate::stuck_writeback::{RefusedFile, StuckWriteback};

/// Between two rounds.
const PERIOD: Duration = Duration::from_millis(500);
/// After this time the thread flushes bytes of a new file that no program flushed.
const PROMISE: Duration = Duration::from_secs(1);
/// How long a file of which nothing is pending is kept after its last use.
const IDLE: Duration = Duration::from_secs(2);

/// The thread.
pub struct BackgroundFlusher {
    stop: Sender<()>,
    thread: JoinHandle<()>,
}

impl BackgroundFlusher {
    /// Starts the thread. `also` is done in every round.
    ///
    /// # Errors
    /// The system starts no thread.
    pub fn start(engine: &Arc<MountEngine>, also: impl FnMut() + Send + 'static) -> std::io::Result<Self> {
        let (stop, stopped) = channel();
        let engine = Arc::downgrade(engine);
        let thread =
            std::thread::Builder::new().name("quire-flusher".into()).spawn(move || rounds(&engine, &stopped, also))?;
        Ok(Self { stop, thread })
    }

    /// Ends it.
    pub fn stop(self) {
        // It may have ended by itself.
        let _ = self.stop.send(());
        let _ = self.thread.join();
    }
}

fn rounds(engine: &Weak<MountEngine>, stopped: &Receiver<()>, mut also: impl FnMut()) {
    let (mut round, mut stuck) = (0_u64, StuckWriteback::default());
    while stopped.recv_timeout(PERIOD) == Err(RecvTimeoutError::Timeout) {
        let Some(engine) = engine.upgrade() else { return };
        for inode in engine.inodes.all() {
            inode.times.tell(&inode.file, false);
            retry(&engine, &inode);
            engine.detach_idle(&inode, IDLE);
        }
        engine.flush_write_through(PROMISE);
        tell_of_stuck(&engine, &mut stuck);
        round += 1;
        if round.is_multiple_of(2) {
            engine.reap_orphans();
        }
        also();
    }
}

fn tell_of_stuck(engine: &MountEngine, stuck: &mut StuckWriteback) {
    let progress = engine.cache.progress();
    let Some(RefusedFile { volume, is_stuck }) = stuck.news(&progress) else { return };
    let path = engine.inodes.all().iter().find(|inode| inode.volume() == Some(volume)).map(|inode| inode.path());
    let path = path.as_deref().unwrap_or("a removed file");
    let (log_used_percent, log_refused_percent) = (progress.used_percent, progress.refused_percent);
    if is_stuck {
        tracing::warn!(
            path,
            log_used_percent,
            log_refused_percent,
            "this file can't be written to, and the log is not freed, since most of it is of such files: when it is full, writes \
             to other files may fail, too. Mend or remove the file, or make room"
        );
        return;
    }
    tracing::warn!(
        path,
        log_used_percent,
        log_refused_percent,
        "this file can't be written to: the log keeps what it holds for it, and other files go on. Writes to it fail once such \
         files have a quarter of the log. Mend or remove the file, or make room"
    );
}

/// A device that was full may have room again.
fn retry(engine: &MountEngine, inode: &Inode) {
    let Some(volume) = inode.volume() else { return };
    let dead = engine.cache.volume_state(volume).and_then(|state| state.dead);
    if dead.is_none_or(|cause| !cause.is_full()) {
        return;
    }
    let has_room = quire_sys::at::space(&engine.backing_root.dir)
        .is_ok_and(|space| space.available_blocks * space.block_bytes > 1 << 20);
    if has_room && engine.attach(inode, volume).is_ok() {
        tracing::info!(inode = inode.ino, "the slow device has room again: going on with what waited for it");
    }
}
