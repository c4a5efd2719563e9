//! The bytes of regular files: reading and writing them through the cache, making them durable, and giving files up.
//!
//! A file becomes a volume of the cache when it is first written, and stops being one when nothing of it is pending and
//! nobody has it open. Until then its length is the cache's, not the directory's.
//!
//! Relies on the kernel to let only one at a time write to a file or change its length.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant, SystemTime};

use fuser::Errno;
use quire_device::{CacheMode, Device, IoEngine as Transfers, errno, of_file};
use quire_sys::at::{self, AccessMode, Fallocate};
use quire_writecache::{
    BLOCK_BYTES, CacheError, CriticalReason, Growth, Scope, TaskId, Tasks, VolumeId, VolumeSpec, WriteCache,
    WriteContext,
};

use crate::backing::Backing;
use crate::bodies::{Bodies, Body, State};
use crate::config::Wrap;
use crate::error::{Answer, told};
use crate::graves::{Grave, Graves};
use crate::home::Home;
use crate::privileges::Privileges;
use crate::space::Space;
use crate::stamps::Stamps;
use crate::straight::Straight;
use crate::table::{Attached, Table};
use crate::unsynced::{Owed, Unsynced};
use crate::who::Rules;

/// The mount itself, for what it writes in nobody's name and somebody waits for.
pub const SYSTEM: TaskId = TaskId(1 << 62);
/// Most bytes that are zeroed at once; more would keep the cache busy for long.
const MOST_ZEROS: u64 = 64 << 20;

/// Requests served, by kind.
#[derive(Debug, Default)]
pub struct Counts {
    /// Reads, and their bytes.
    pub reads: AtomicU64,
    /// See `reads`.
    pub read_bytes: AtomicU64,
    /// Writes, and their bytes.
    pub writes: AtomicU64,
    /// See `writes`.
    pub written_bytes: AtomicU64,
    /// Flushes of files.
    pub flushes: AtomicU64,
    /// Of those, so many had to bring names or attributes to the slow device.
    pub slow_syncs: AtomicU64,
    /// Writes that were to be durable at once.
    pub durable_writes: AtomicU64,
    /// Bytes written straight to the directory, of small new files.
    pub straight_bytes: AtomicU64,
}

/// Everything about files' bytes.
pub struct Engine {
    /// The cache.
    pub cache: WriteCache,
    /// The directory.
    pub home: Home,
    /// Files in use.
    pub bodies: Bodies,
    /// Requests served.
    pub counts: Counts,
    /// Small new files.
    pub straight: Straight,
    /// When files were changed, that are no volumes any more.
    pub stamps: Stamps,
    /// Everything is to be brought to the directory when the mount ends.
    pub drains_at_end: AtomicBool,
    wrap_slow: Option<Wrap>,
    /// What files owe that are not in use.
    pub unsynced: Unsynced,
    graves: Graves,
    table: Table,
    space: Space,
    rules: Rules,
    _system: Scope,
}

/// What the cache knows better than the directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct View {
    /// Bytes of the file.
    pub len: u64,
    /// When it was last written.
    pub modified: Option<SystemTime>,
    /// When a program last changed anything about it.
    pub changed: Option<SystemTime>,
    /// Bytes of it may not be in the directory yet.
    pub is_pending: bool,
}

/// A body in use; dropping it ends that, which may take time if the file has no name any more.
pub struct Use {
    engine: Arc<Engine>,
    /// The body.
    pub body: Arc<Body>,
}

impl Drop for Use {
    fn drop(&mut self) {
        self.engine.release(&self.body);
    }
}

impl Engine {
    /// The engine over an open cache, in a process that may have so many files open.
    pub fn new(
        cache: WriteCache,
        home: Home,
        table: Table,
        rules: Rules,
        wrap_slow: Option<Wrap>,
        tasks: &Arc<Tasks>,
        open_files: u64,
    ) -> Self {
        let space = Space::new(home.longest_file_bytes());
        Self {
            cache,
            home,
            bodies: Bodies::default(),
            counts: Counts::default(),
            straight: Straight::new(usize::try_from(open_files / 8).unwrap_or(usize::MAX)),
            stamps: Stamps::default(),
            drains_at_end: AtomicBool::new(false),
            wrap_slow,
            unsynced: Unsynced::default(),
            graves: Graves::default(),
            table,
            space,
            rules,
            _system: tasks.enter(SYSTEM, CriticalReason::Hint),
        }
    }

    /// The body of the regular file at `place`, opened if need be.
    ///
    /// # Errors
    /// The file can't be opened.
    pub fn open(self: &Arc<Self>, place: impl AsFd, ino: u64) -> io::Result<Use> {
        let mut map = self.bodies.map();
        let body = match map.get(&ino) {
            Some(body) => Arc::clone(body),
            None => {
                let (file, writable) = match at::open(&place, AccessMode::ReadWrite) {
                    Ok(file) => (file, true),
                    // Read-only file systems, immutable files, programs that are being run.
                    Err(_) => (at::open(&place, AccessMode::Read)?, false),
                };
                let body = Arc::new(Body::new(ino, file, writable, self.unsynced.take(ino)));
                map.insert(ino, Arc::clone(&body));
                body
            }
        };
        body.state().users += 1;
        drop(map);
        Ok(self.begun(body))
    }

    /// The body of a file that was just made.
    pub fn adopt(self: &Arc<Self>, file: File, ino: u64) -> Use {
        self.made(ino);
        let mut map = self.bodies.map();
        let new = || Arc::new(Body::new(ino, file, true, Owed::default()));
        let body = Arc::clone(map.entry(ino).or_insert_with(new));
        body.state().users += 1;
        drop(map);
        body.debt.owe(Owed::NAME);
        self.begun(body)
    }

    /// A file was just made: what was owed for one that had its inode number before is not its affair.
    pub fn made(&self, ino: u64) {
        self.unsynced.begin(ino);
    }

    fn begun(self: &Arc<Self>, body: Arc<Body>) -> Use {
        if self.rules.names_logs() {
            body.set_log(self.is_log(&body.file));
        }
        Use { engine: Arc::clone(self), body }
    }

    fn is_log(&self, file: &File) -> bool {
        let path = at::path_of(file);
        let inside = path.as_deref().map(Path::new).and_then(|path| path.strip_prefix(&self.home.path).ok());
        inside.is_some_and(|path| self.rules.is_log(&path.to_string_lossy()))
    }

    /// One user of the body less; the last lets go of it unless something of it is pending.
    pub fn release(&self, body: &Arc<Body>) {
        let mut map = self.bodies.map();
        let mut state = body.state();
        state.users -= 1;
        state.unused_since = Instant::now();
        if state.users > 0 {
            return;
        }
        let removed = state.removed.clone();
        let ends = removed.is_some() || state.attached.is_none() && state.straight_since.is_none();
        let attached = if ends { state.attached.take() } else { None };
        let owed = body.debt.owed();
        if ends {
            self.straight.end(&mut state);
            map.remove(&body.ino);
            if removed.is_none() {
                self.unsynced.note(body.ino, owed);
            }
        }
        drop(state);
        drop(map);
        body.times.tell(&body.file, true);
        if let (Some(attached), Some(dir)) = (attached, removed) {
            self.graves.dig(Grave { body: Arc::clone(body), attached, dir });
        }
    }

    fn forget(&self, attached: Attached, ino: u64) {
        match self.cache.forget(attached.volume) {
            Ok(()) => self.table.free(attached.place),
            Err(error) => drop(told(&error, "giving a file up", ino)),
        }
    }

    /// A name was taken away in `dir` from a file that had `links`: if it was the last, its bytes are given up when nobody uses
    /// it and the directory durably lacks the name.
    pub fn lost_name(&self, ino: u64, links: u64, dir: &Arc<OwnedFd>) {
        let mut map = self.bodies.map();
        let Some(body) = map.get(&ino).map(Arc::clone) else {
            if links <= 1 {
                self.unsynced.begin(ino);
            }
            return;
        };
        // Where it can't be told, bytes that may be wanted are kept.
        if at::facts(&*body.file).map_or(links > 1, |facts| facts.links > 0) {
            body.times.change();
            return;
        }
        let mut state = body.state();
        state.removed = Some(Arc::clone(dir));
        let attached = state.attached;
        if state.users == 0 {
            state.attached = None;
            self.straight.end(&mut state);
            map.remove(&ino);
        }
        let unused = state.users == 0;
        drop(state);
        drop(map);
        let Some(attached) = attached else { return };
        if unused && self.cache.volume_state(attached.volume).is_some_and(|known| known.is_idle) {
            return self.forget(attached, ino);
        }
        self.table.mark_removed(&self.cache, &attached, &body.file, ino, SYSTEM);
        if unused {
            self.graves.dig(Grave { body, attached, dir: Arc::clone(dir) });
        }
    }

    /// Gives up the bytes of files that are gone. Not before the directory durably lacks their names: else a power cut
    /// might bring a name back without its bytes.
    pub fn bury(&self) {
        for Grave { body, attached, .. } in self.graves.take_durable(&self.home.root) {
            self.forget(attached, body.ino);
        }
    }

    /// The volume of a file that nobody has used for `idle` and of which nothing is pending.
    fn unused(&self, state: &State, idle: Duration) -> Option<Attached> {
        let attached = state.attached.filter(|_| state.users == 0 && state.unused_since.elapsed() >= idle)?;
        let known = self.cache.volume_state(attached.volume);
        // The cache does not know the volume of a file that refused what the log has for it: that stays in the log.
        known.is_some_and(|known| known.is_idle && known.dead.is_none()).then_some(attached)
    }

    /// Ends the volume of a file that nobody has used for `idle` and of which nothing is pending.
    pub fn retire(&self, body: &Arc<Body>, idle: Duration) {
        if self.unused(&body.state(), idle).is_none() {
            return;
        }
        // As long as nobody sees the directory's times.
        body.times.tell(&body.file, true);
        let behind = at::facts(&*body.file);
        let mut map = self.bodies.map();
        let mut state = body.state();
        let Some(attached) = self.unused(&state, idle) else { return };
        state.attached = None;
        map.remove(&body.ino);
        self.unsynced.note(body.ino, body.debt.owed());
        if let (Ok(behind), Some(shown)) = (behind, body.times.changed()) {
            self.stamps.keep(body.ino, shown, behind.changed);
        }
        drop(state);
        drop(map);
        self.forget(attached, body.ino);
    }

    /// Ends what it can of the files that are open though nobody uses them; waits for devices.
    pub fn make_room(&self) {
        self.settle(Duration::ZERO);
        for body in self.bodies.all() {
            let volume = body.volume().filter(|_| body.state().users == 0);
            // A failure stays with the volume.
            if let Some(volume) = volume
                && self.cache.flush_through(volume, &WriteContext::current()).is_ok()
            {
                self.retire(&body, Duration::ZERO);
            }
        }
        self.bury();
    }

    /// A file recovered from the log's names, with its volume's number. If the file refuses what the log has for it, that stays in
    /// the log, and programs that use the file get errors until a mount finds it willing; other files have nothing to do with it.
    ///
    /// # Errors
    /// The cache can't take it, for a reason that is not this file's.
    pub fn restore(&self, file: File, ino: u64, attached: Attached) -> Result<(), CacheError> {
        let body = Arc::new(Body::new(ino, file, true, Owed::ALL));
        if let Err(error) = body.privileges.adopt(&body.file) {
            tracing::warn!(%error, inode = ino, "what running this file gives is not known, and may go when its bytes are brought back");
        }
        match self.attach(&body, attached.volume) {
            Err(CacheError::Slow { cause, .. }) if !matches!(cause.errno, Some(errno::EMFILE | errno::ENFILE)) => {
                let path = body.path();
                tracing::error!(
                    path,
                    "the file refuses what the log holds for it ({cause}): reading and writing it fails until a mount finds \
                     that mended; its bytes stay in the log, and removing the file gives them up"
                );
            }
            result => result?,
        }
        body.state().attached = Some(attached);
        self.bodies.map().insert(ino, body);
        Ok(())
    }

    /// Files that refused what the log holds for them when the mount began.
    pub fn refused(&self) -> Vec<String> {
        let is_refused = |body: &&Arc<Body>| {
            let volume = body.volume().filter(|_| body.state().removed.is_none());
            volume.is_some_and(|volume| self.cache.volume_state(volume).is_none())
        };
        self.bodies.all().iter().filter(is_refused).map(|body| body.path()).collect()
    }

    /// Attaches the body's file to the cache; also anew, after its device was full.
    ///
    /// # Errors
    /// The cache can't take it.
    pub fn attach(&self, body: &Body, volume: VolumeId) -> Result<(), CacheError> {
        let name = body.path();
        // An opening of its own: the system tells each once of bytes that it lost, and neither is to take that from the other.
        let file = at::open(&*body.file, AccessMode::ReadWrite).or_else(|_| body.file.try_clone());
        let file = file.map_err(|error| CacheError::Slow {
            volume,
            cause: quire_device::DeviceError::new(quire_device::Action::Open, &name, &error),
        })?;
        if let Ok(facts) = at::facts(&file) {
            body.times.adopt(facts.modified, self.stamps.shown(body.ino, facts.changed));
        }
        let inner = of_file(name, file, CacheMode::Buffered, Transfers::Threads);
        let inner = self.wrap_slow.as_ref().map_or(Arc::clone(&inner), |wrap| wrap(inner));
        let device: Arc<dyn Device> = Backing::over(inner, body);
        self.cache.attach(&VolumeSpec { id: volume, device, growth: Growth::Grows })
    }

    /// The body's volume, which it gets now if it has none.
    fn volume_of(&self, body: &Body) -> Answer<VolumeId> {
        if let Some(volume) = body.volume() {
            return Ok(volume);
        }
        // Not under the body's state: whoever opens a file looks at that, and the table may have to wait for a device.
        let _one = body.attaching();
        if let Some(volume) = body.volume() {
            return Ok(volume);
        }
        if !body.writable {
            return Err(Errno::EROFS);
        }
        let failed = |error| told(&error, "preparing a file for writing", body.ino);
        let (place, volume) = self.table.add(&self.cache, &body.file, body.ino, SYSTEM).map_err(failed)?;
        if let Err(error) = self.attach(body, volume) {
            self.table.free(place);
            return Err(failed(error));
        }
        let mut state = body.state();
        state.attached = Some(Attached { volume, place });
        // The next flush of the volume covers those.
        self.straight.end(&mut state);
        let removed = state.removed.is_some();
        drop(state);
        if removed {
            // Its last name went before there was a volume to tell that of.
            self.table.mark_removed(&self.cache, &Attached { volume, place }, &body.file, body.ino, SYSTEM);
        }
        Ok(volume)
    }

    /// What the cache knows better than the directory about the file with this inode number.
    pub fn view(&self, ino: u64) -> Option<View> {
        let body = self.bodies.get(ino)?;
        let state = self.cache.volume_state(body.volume()?)?;
        let (modified, changed) = (body.times.modified(), body.times.changed());
        Some(View { len: state.len, modified, changed, is_pending: !state.is_idle })
    }

    /// Reads at most `len` bytes.
    ///
    /// # Errors
    /// A device fails.
    pub fn read(&self, body: &Body, offset: u64, len: usize) -> Answer<Vec<u8>> {
        let mut bytes = vec![0; len];
        let got = match body.volume() {
            Some(volume) => {
                self.cache.read(volume, offset, &mut bytes).map_err(|error| told(&error, "reading", body.ino))?
            }
            None => read_file(&body.file, offset, &mut bytes)?,
        };
        bytes.truncate(got);
        self.counts.reads.fetch_add(1, Relaxed);
        self.counts.read_bytes.fetch_add(got as u64, Relaxed);
        Ok(bytes)
    }

    /// Writes; if `context` says that somebody waits, until it is durable.
    ///
    /// # Errors
    /// The slow device is full, or a device fails.
    pub fn write(&self, body: &Body, offset: u64, bytes: &[u8], context: &WriteContext) -> Answer<()> {
        self.counts.writes.fetch_add(1, Relaxed);
        self.counts.written_bytes.fetch_add(bytes.len() as u64, Relaxed);
        self.counts.durable_writes.fetch_add(u64::from(context.is_sync), Relaxed);
        let admit = |len| self.admit_growth(len, offset, bytes.len());
        // A wrapped device is to see everything.
        let straight = if self.wrap_slow.is_none() { self.straight.write(body, offset, bytes, admit) } else { None };
        match straight {
            Some(written) => {
                self.counts.straight_bytes.fetch_add(bytes.len() as u64, Relaxed);
                written?;
            }
            None => self.write_to_cache(body, offset, bytes, context)?,
        }
        if context.is_sync { self.promise(body, || self.pay_debt(body, true, context)) } else { Ok(()) }
    }

    fn write_to_cache(&self, body: &Body, offset: u64, bytes: &[u8], context: &WriteContext) -> Answer<()> {
        let volume = self.volume_of(body)?;
        body.privileges.lose(&body.file)?;
        let failed = |error| told(&error, "writing", body.ino);
        self.admit_growth(self.cache.len(volume).map_err(failed)?, offset, bytes.len())?;
        body.times.touch();
        let ticket = self.cache.write(volume, offset, bytes, context).map_err(failed)?;
        if context.is_sync {
            self.cache.wait(&ticket, context).map_err(failed)?;
        }
        Ok(())
    }

    /// Whether a file of `len` bytes may be written at `offset`, as far as the slow device's room goes.
    fn admit_growth(&self, len: u64, offset: u64, count: usize) -> Answer<()> {
        let end = self.space.end_of(offset, count as u64)?;
        let growth = end.saturating_sub(len).min(count as u64);
        let admit = || self.space.admit(&self.home.root, growth, || self.pending_bytes());
        if growth > 0 && !admit() {
            // Files that are gone may still have theirs.
            self.bury();
            if !admit() {
                return Err(Errno::ENOSPC);
            }
        }
        Ok(())
    }

    fn pending_bytes(&self) -> u64 {
        let stats = self.cache.stats();
        stats.pending_bytes + stats.cached_blocks * BLOCK_BYTES as u64
    }

    /// Makes the file `len` bytes long.
    ///
    /// # Errors
    /// A device fails.
    pub fn set_len(&self, body: &Body, len: u64, context: &WriteContext) -> Answer<()> {
        if !body.writable {
            return Err(Errno::EROFS);
        }
        self.space.end_of(len, 0)?;
        match body.volume() {
            Some(volume) => {
                body.privileges.lose(&body.file)?;
                body.times.touch();
                // The directory's file is cut and flushed: others leave the slow device to somebody critical.
                let _way = self.cache.make_way(context);
                self.cache.set_len(volume, len, context).map_err(|error| told(&error, "cutting", body.ino))?;
            }
            None => body.file.set_len(len)?,
        }
        body.debt.owe(Owed::NAME);
        body.times.change();
        Ok(())
    }

    /// Takes space for bytes, or makes them zero.
    ///
    /// # Errors
    /// `ENOTSUP` for more zeros than are reasonable to write; the slow device is full, or a device fails.
    pub fn reserve(&self, body: &Body, offset: u64, len: u64, wish: Fallocate, context: &WriteContext) -> Answer<()> {
        let old_len = self.len_of(body)?;
        let end = self.space.end_of(offset, len)?;
        if wish.zeros {
            // Written, not punched: whatever is pending for these bytes keeps its place in the order.
            let until = if wish.keep_len { end.min(old_len) } else { end };
            if until.saturating_sub(offset) > MOST_ZEROS {
                return Err(Errno::ENOTSUP);
            }
            let zeros = vec![0; 1 << 20];
            let mut at = offset;
            while at < until {
                let part = (until - at).min(zeros.len() as u64);
                self.write(body, at, &zeros[..part as usize], context)?;
                at += part;
            }
            return Ok(());
        }
        at::reserve_within(&body.file, offset, len)?;
        if !wish.keep_len && end > old_len {
            self.set_len(body, end, context)?;
        }
        body.debt.owe(Owed::NAME);
        body.times.change();
        Ok(())
    }

    /// Where the next data or hole begins. While anything is pending all of the file counts as data.
    ///
    /// # Errors
    /// `ENXIO` beyond the end.
    pub fn seek(&self, body: &Body, offset: u64, hole: bool) -> Answer<u64> {
        let idle = body.volume().is_none_or(|volume| self.cache.volume_state(volume).is_none_or(|state| state.is_idle));
        if idle {
            // The file's own position is nobody's.
            return Ok(at::seek(&body.file, offset, hole)?);
        }
        let len = self.len_of(body)?;
        if offset >= len {
            return Err(Errno::ENXIO);
        }
        Ok(if hole { len } else { offset })
    }

    fn len_of(&self, body: &Body) -> Answer<u64> {
        match body.volume() {
            Some(volume) => self.cache.len(volume).map_err(|error| told(&error, "sizing", body.ino)),
            None => Ok(body.file.metadata()?.len()),
        }
    }

    /// What running the file gives, for whoever changes that; of one that is not in use, nothing need be kept.
    pub fn privileges(&self, ino: u64) -> Arc<Privileges> {
        self.bodies.get(ino).map_or_else(Arc::default, |body| Arc::clone(&body.privileges))
    }

    /// A program has set the file's time of writing (or has had the file told the present).
    pub fn set_modified(&self, ino: u64, modified: SystemTime) {
        if let Some(body) = self.bodies.get(ino)
            && body.volume().is_some()
        {
            body.times.set(modified);
        }
    }
}

fn read_file(file: &File, offset: u64, into: &mut [u8]) -> io::Result<usize> {
    let mut done = 0;
    while done < into.len() {
        match file.read_at(&mut into[done..], offset + done as u64) {
            Ok(0) => break,
            Ok(read) => done += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(done)
}
