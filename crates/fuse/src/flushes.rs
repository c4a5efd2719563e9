//! Making files durable: because a program asks for it, and because no program does.
//!
//! A program that asks is told of every failure, also of one that came about while no program had the file open. What flushes a
//! file without being asked by a program leaves its failure with the file's [`Debt`](crate::debt::Debt).
//!
//! Relies on the system telling each opening of a file once of bytes that it lost.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use fuser::Errno;
use quire_sys::file::{sync_file_system, write_out};
use quire_writecache::WriteContext;

use crate::bodies::{Body, State};
use crate::engine::Engine;
use crate::error::{Answer, told};
use crate::unsynced::Owed;

/// More files than these at a time are flushed by flushing the whole file system.
const FEW: usize = 8;

impl Engine {
    /// Answers a program that asked for something durable by `work`. It has been told then if the file can't be trusted.
    pub fn promise(&self, body: &Body, work: impl FnOnce() -> Answer<()>) -> Answer<()> {
        let result = work();
        let result = if result.is_ok() && body.debt.has_failed() { Err(Errno::EIO) } else { result };
        result.inspect_err(|_| body.debt.tell())
    }

    /// Makes everything written to the file durable, in the name of `context.task`; with `data_only`, not what is known
    /// about it besides its name and length.
    ///
    /// # Errors
    /// A device fails.
    pub fn flush(&self, body: &Body, data_only: bool, context: &WriteContext) -> Answer<()> {
        self.counts.flushes.fetch_add(1, Relaxed);
        self.promise(body, || {
            if let Some(volume) = body.volume() {
                // If the directory's file must be flushed anyway, its bytes go along: one flush instead of two.
                let through = body.debt.is_due(data_only);
                let flushed =
                    if through { self.cache.flush_through(volume, context) } else { self.cache.flush(volume, context) };
                flushed.map_err(|error| told(&error, "flushing", body.ino))?;
            }
            self.pay_debt(body, data_only, context)
        })
    }

    /// Flushes the directory's file if that is due; with `data_only` not for attributes. A failure stays with the file.
    ///
    /// # Errors
    /// The device fails.
    pub fn pay_debt(&self, body: &Body, data_only: bool, context: &WriteContext) -> Answer<()> {
        let paid = body.debt.pay(data_only, || {
            let _way = self.cache.make_way(context);
            self.counts.slow_syncs.fetch_add(1, Relaxed);
            body.times.tell(&body.file, true);
            // What is written from now on is not flushed by this.
            self.straight.end(&mut body.state());
            body.file.sync_all()
        });
        if let Some(Err(error)) = paid {
            tracing::error!(%error, inode = body.ino, "flushing a file of the directory failed: it is not trusted any more");
            return Err(Errno::from(error));
        }
        Ok(())
    }

    /// Files with lost bytes of which no program was told: inode numbers, and where they are as far as that is known.
    pub fn failures(&self) -> Vec<(u64, String)> {
        let bodies = self.bodies.all();
        let known = bodies.iter().filter(|body| body.debt.owed().failure && body.state().removed.is_none());
        let name = |body: &Arc<Body>| (body.ino, body.path());
        let closed = self.unsynced.failures().into_iter().map(|ino| (ino, format!("inode {ino}")));
        known.map(name).chain(closed).collect()
    }

    /// Names or attributes of a file were changed.
    pub fn owe(&self, ino: u64, owed: Owed) {
        // Under the map's lock: the thread that takes a body out of it hands on what that owes.
        let map = self.bodies.map();
        match map.get(&ino) {
            Some(body) => {
                body.debt.owe(owed);
                body.times.change();
            }
            None => self.unsynced.note(ino, owed),
        }
    }

    /// Flushes the small new files that have waited for a flush for `age`, and lets go of those that no program uses.
    pub fn settle(&self, age: Duration) {
        if self.straight.count() == 0 {
            return;
        }
        let is_old = |state: &State| state.straight_since.is_some_and(|since| since.elapsed() >= age);
        // In use meanwhile: who opens a file that is being flushed must find what that flush has taken upon itself, and its failure.
        let old = self.bodies.use_where(is_old);
        if old.len() <= FEW {
            for body in &old {
                // The debt keeps a failure until a program was told.
                let _ = self.pay_debt(body, false, &WriteContext::current());
            }
        } else {
            // First of all: what is written meanwhile is not flushed by this.
            old.iter().for_each(|body| self.straight.end(&mut body.state()));
            self.settle_together(&old);
        }
        old.iter().for_each(|body| self.release(body));
    }

    /// Flushes the whole file system for these. What the system says of that is about all files at once, and it may have told
    /// others before; so every file is asked for its own failure, which costs the device nothing.
    fn settle_together(&self, bodies: &[Arc<Body>]) {
        let synced = sync_file_system(&self.home.root);
        if let Err(error) = &synced {
            tracing::warn!(%error, "flushing new files failed: the next fsync of each tells it");
        }
        for body in bodies {
            let checked = body.debt.check(|| match &synced {
                Ok(()) => write_out(&body.file, 0, i64::MAX.unsigned_abs()),
                Err(_) => body.file.sync_all(),
            });
            if let Err(error) = checked {
                tracing::error!(%error, inode = body.ino, "bytes of a new file are lost: its next flush says so");
            }
        }
    }
}
