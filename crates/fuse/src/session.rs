//! A mount from its beginning to its end.
//!
//! Started in this order: lock, log, cache, files that the log names, kernel. Ended in the opposite one: the kernel lets
//! go, files are closed, everything is made durable, the log is marked as closed, the lock is released.
//!
//! Relies on the kernel ending the session when the mount is gone, whichever program unmounted it.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use fuser::{Config, MountOption, Session, SessionACL};
use quire_sys::mounts::{self, FuseMount};
use quire_writecache::{AdmissionPolicy, CacheError, WritebackProgress};
use serde_json::Value;

use crate::background_flusher::BackgroundFlusher;
use crate::backing_root::LogDevice;
use crate::config::MountConfig;
use crate::criticality::CriticalityTracker;
use crate::engine::MountEngine;
use crate::error::MountError;
use crate::recovery::{self, RecoveryReport};
use crate::report::{self, MountInfo};
use crate::serve::{FuseDispatcher, FuseServer, READERS};

/// How long requests under way may take to end after the kernel let go.
const PATIENCE: Duration = Duration::from_secs(30);
/// Between two looks at how writing back stands.
const LOOK: Duration = Duration::from_millis(100);

/// A directory that is mounted.
pub struct Mount {
    engine: Arc<MountEngine>,
    criticality: Arc<CriticalityTracker>,
    info: MountInfo,
    session: JoinHandle<io::Result<()>>,
    background_flusher: BackgroundFlusher,
    recovered: RecoveryReport,
    mount_point: PathBuf,
    _log_device: LogDevice,
}

type ServedMount = (Arc<CriticalityTracker>, JoinHandle<io::Result<()>>, BackgroundFlusher);

/// Unmounts from another thread.
#[derive(Clone, Debug)]
pub struct Unmounter {
    mount_point: PathBuf,
}

impl Unmounter {
    /// Where it is mounted.
    pub fn mount_point(&self) -> &Path {
        &self.mount_point
    }

    /// Unmounts; with `lazy` even if it is in use, which ends it when the last user does.
    ///
    /// # Errors
    /// It is in use, or the system refuses.
    pub fn remove(&self, lazy: bool) -> io::Result<()> {
        mounts::unmount(&self.mount_point, lazy)
    }
}

/// The figures of a mount, for another thread. It keeps nothing of the mount alive.
#[derive(Clone)]
pub struct MountFigures {
    engine: Weak<MountEngine>,
    criticality: Weak<CriticalityTracker>,
    info: MountInfo,
}

impl MountFigures {
    /// What the mount says of itself now; nothing once it has ended.
    pub fn read(&self) -> Option<Value> {
        let (engine, criticality) = (self.engine.upgrade()?, self.criticality.upgrade()?);
        Some(report::stats(&engine, &criticality, &self.info))
    }
}

/// A directory whose log was read, ready to be mounted. Dropped instead, it leaves the log as a crash would.
pub struct PreparedMount<'a> {
    config: &'a MountConfig,
    engine: MountEngine,
    log_device: LogDevice,
    recovered: RecoveryReport,
    mount_point: PathBuf,
    open_files: u64,
}

impl PreparedMount<'_> {
    /// Mounts.
    ///
    /// # Errors
    /// What stands in the way; nothing is mounted then.
    pub fn mount(self) -> Result<Mount, MountError> {
        let Self { config, engine, log_device, recovered, mount_point, open_files } = self;
        let info = MountInfo {
            backing: engine.backing_root.path.display().to_string(),
            mount_point: mount_point.display().to_string(),
            log: config.log.display().to_string(),
        };
        let engine = Arc::new(engine);
        let served = Mount::serve(config, &engine, &info, &mount_point, open_files);
        let (criticality, session, background_flusher) = match served {
            Ok(served) => served,
            Err(error) => {
                // Mounted already, and the connection that it would be served by is closed.
                if mounts::is_orphaned(&mount_point) {
                    let _ = mounts::unmount(&mount_point, true);
                }
                abandon(engine, log_device, &recovered);
                return Err(error);
            }
        };
        Ok(Mount {
            engine,
            criticality,
            info,
            session,
            background_flusher,
            recovered,
            mount_point,
            _log_device: log_device,
        })
    }
}

impl Mount {
    /// Mounts.
    ///
    /// # Errors
    /// What stands in the way; nothing is mounted then.
    pub fn start(config: &MountConfig) -> Result<Self, MountError> {
        Self::prepare(config)?.mount()
    }

    /// All that comes before the kernel knows of the mount, which may take as long as there is log to read.
    ///
    /// # Errors
    /// What stands in the way.
    pub fn prepare(config: &MountConfig) -> Result<PreparedMount<'_>, MountError> {
        let at = |cause| MountError::Mount { path: config.mount_point.clone(), cause };
        if mounts::is_orphaned(&config.mount_point) {
            tracing::warn!(path = %config.mount_point.display(), "removing the mount of a process that is gone");
            mounts::unmount(&config.mount_point, true).map_err(at)?;
        }
        let open_files = quire_sys::limits::raise_open_files(1 << 20);
        let mount_point = config.mount_point.canonicalize().map_err(at)?;
        warn_of_hidden(&mount_point);
        let (engine, log_device, recovered) = recovery::start(config, open_files)?;
        Ok(PreparedMount { config, engine, log_device, recovered, mount_point, open_files })
    }

    /// Puts the engine before the kernel.
    fn serve(
        config: &MountConfig,
        engine: &Arc<MountEngine>,
        info: &MountInfo,
        mount_point: &Path,
        open_files: u64,
    ) -> Result<ServedMount, MountError> {
        let at = |cause| MountError::Mount { path: config.mount_point.clone(), cause };
        let (rules, critical) = (config.rules.clone(), &config.critical);
        let criticality =
            CriticalityTracker::new(Arc::clone(&config.cache.tasks), rules, critical, config.auto_critical);
        if config.cache.policy >= AdmissionPolicy::Critical {
            criticality.count_unclassified();
        }
        let inherits = config.cache.policy.inherits_process();
        let criticality = Arc::new(if inherits { criticality.detecting_lock_waits(mount_point) } else { criticality });
        let server =
            FuseServer::new(Arc::clone(engine), Arc::clone(&criticality), info.clone(), open_files).map_err(at)?;
        let options = options(config, info);
        let protocol = FuseDispatcher(Arc::new(server));
        let how = FuseMount { source: &info.backing, read_only: config.read_only, allow_other: config.allow_other };
        // `fuser` would unmount what is at the mount point when the session has ended, whatever that is by then.
        let session = match mounts::mount_fuse(mount_point, &how) {
            Ok(device) => Session::from_fd(protocol, device, options.acl, options),
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                Session::new(protocol, mount_point, &options)
            }
            Err(error) => Err(error),
        };
        let session = session.map_err(at)?;
        let session = std::thread::Builder::new()
            .name("quire-mount".into())
            .spawn(move || session.run())
            .map_err(MountError::Threads)?;
        let also = stats_writer(config.stats_file.clone(), engine, &criticality, info);
        let background_flusher = BackgroundFlusher::start(engine, also)
            // The session's thread serves it already, and ends with it.
            .inspect_err(|_| drop(mounts::unmount(mount_point, true)))
            .map_err(MountError::Threads)?;
        Ok((criticality, session, background_flusher))
    }

    /// What was found in the log.
    pub fn recovered(&self) -> &RecoveryReport {
        &self.recovered
    }

    /// Unmounts from another thread.
    pub fn unmounter(&self) -> Unmounter {
        Unmounter { mount_point: self.mount_point.clone() }
    }

    /// Figures.
    pub fn stats(&self) -> Value {
        report::stats(&self.engine, &self.criticality, &self.info)
    }

    /// The same for another thread.
    pub fn figures(&self) -> MountFigures {
        MountFigures {
            engine: Arc::downgrade(&self.engine),
            criticality: Arc::downgrade(&self.criticality),
            info: self.info.clone(),
        }
    }

    /// Whether it is still mounted.
    pub fn is_served(&self) -> bool {
        !self.session.is_finished()
    }

    /// Bytes that the log may hold.
    pub fn log_bytes(&self) -> u64 {
        self.engine.cache.stats().log_bytes
    }

    /// Waits until it is unmounted, then makes everything durable. With `drain`, also brings everything in the log to the
    /// directory, telling how that stands. Returns the last figures.
    ///
    /// # Errors
    /// Something could not be made durable; it is in the log, or the error says what is lost.
    pub fn finish(self, drain: Option<&mut dyn FnMut(&WritebackProgress)>) -> Result<Value, MountError> {
        let Self { mut engine, criticality, info, session, background_flusher, mount_point, _log_device, .. } = self;
        match session.join() {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::error!(%error, "the connection to the kernel broke"),
            Err(_) => tracing::error!("a thread of the mount panicked"),
        }
        if mounts::is_orphaned(&mount_point) {
            let _ = mounts::unmount(&mount_point, true);
        }
        background_flusher.stop();
        let began = Instant::now();
        let engine = loop {
            match Arc::try_unwrap(engine) {
                Ok(engine) => break engine,
                Err(shared) if began.elapsed() < PATIENCE => engine = shared,
                Err(shared) => {
                    // Requests that hang in a device: what they wanted was never acknowledged.
                    let flushed = drained(&shared, None);
                    let stats = report::stats(&shared, &criticality, &info);
                    let untold = hand_on_failures(&shared);
                    let ended = flushed.map_err(MountError::Cache).and(untold);
                    shared.backing_root.note_end(ended.as_ref().err());
                    return ended.map(|()| stats);
                }
            }
            std::thread::sleep(Duration::from_millis(2));
        };
        for inode in engine.inodes.all() {
            inode.times.tell(&inode.file, true);
        }
        engine.flush_write_through(Duration::ZERO);
        engine.reap_orphans();
        let written_back = match drain {
            Some(tell) => drained(&engine, Some(tell)),
            None if engine.drains_at_end.load(Ordering::Acquire) => drained(&engine, None),
            None => Ok(()),
        };
        let stats = report::stats(&engine, &criticality, &info);
        let untold = hand_on_failures(&engine);
        let MountEngine { cache, backing_root, .. } = engine;
        let closed = cache.close();
        // Names, and what else no program asked to be flushed.
        let synced = backing_root.sync();
        let ended = written_back.and(closed).map_err(MountError::Cache).and(untold).and(synced);
        backing_root.note_end(ended.as_ref().err());
        drop(backing_root);
        ended.map(|()| stats)
    }
}

/// Has the next mount know of files with lost bytes of which no program was told; an error names them.
fn hand_on_failures(engine: &MountEngine) -> Result<(), MountError> {
    let failures = engine.unreported_errors();
    let inodes: Vec<u64> = failures.iter().map(|(ino, _)| *ino).collect();
    if let Err(error) = engine.backing_root.keep_failures(&inodes) {
        tracing::error!(%error, "which files have lost bytes is not known to the next mount");
    }
    if failures.is_empty() {
        return Ok(());
    }
    Err(MountError::Untold { files: failures.into_iter().map(|(_, name)| name).collect() })
}

/// What lies below the mount point was written past the mount, while there was none.
fn warn_of_hidden(mount_point: &Path) {
    let hidden = std::fs::read_dir(mount_point).map_or(0, Iterator::count);
    if hidden > 0 {
        tracing::warn!(path = %mount_point.display(), entries = hidden, "the mount hides what lies at its mount point");
    }
}

/// Closes what was opened for a mount that can't be; a log that was made for it goes again.
fn abandon(engine: Arc<MountEngine>, log_device: LogDevice, recovered: &RecoveryReport) {
    // If a thread serves it already, it ends with the process.
    let Ok(engine) = Arc::try_unwrap(engine) else { return };
    let closed = engine.cache.close();
    match closed {
        Ok(()) if recovered.is_new => log_device.take_back(),
        Ok(()) => {}
        Err(error) => tracing::error!(%error, "closing the log failed"),
    }
}

/// Writes everything back, telling how that stands.
fn drained(engine: &MountEngine, tell: Option<&mut dyn FnMut(&WritebackProgress)>) -> Result<(), CacheError> {
    let Some(tell) = tell else { return engine.cache.drain() };
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let work = scope.spawn(|| {
            let result = engine.cache.drain();
            done.store(true, Ordering::Release);
            result
        });
        while !done.load(Ordering::Acquire) && !work.is_finished() {
            tell(&engine.cache.progress());
            std::thread::sleep(LOOK);
        }
        tell(&engine.cache.progress());
        work.join().unwrap_or(Err(CacheError::Closed))
    })
}

fn options(config: &MountConfig, info: &MountInfo) -> Config {
    let mut options = Config::default();
    options.mount_options = vec![
        MountOption::FSName(info.backing.replace(',', "_")),
        MountOption::Subtype("quire".into()),
        MountOption::DefaultPermissions,
    ];
    if config.read_only {
        options.mount_options.push(MountOption::RO);
    }
    options.acl = if config.allow_other { SessionACL::All } else { SessionACL::Owner };
    options.n_threads = Some(READERS);
    options
}

/// Writes the figures to a file every other round.
fn stats_writer(
    file: Option<PathBuf>,
    engine: &Arc<MountEngine>,
    criticality: &Arc<CriticalityTracker>,
    info: &MountInfo,
) -> impl FnMut() + Send + 'static {
    let (engine, criticality, info) = (Arc::downgrade(engine), Arc::clone(criticality), info.clone());
    let mut round = 0_u64;
    move || {
        round += 1;
        let (Some(file), Some(engine)) = (file.as_deref().filter(|_| round.is_multiple_of(2)), engine.upgrade()) else {
            return;
        };
        if let Err(error) = put(file, &report::stats(&engine, &criticality, &info)) {
            tracing::warn!(%error, file = %file.display(), "the figures can't be written");
        }
    }
}

fn put(file: &Path, stats: &Value) -> io::Result<()> {
    let next = file.with_extension("tmp");
    std::fs::write(&next, format!("{stats}\n"))?;
    std::fs::rename(next, file)
}
