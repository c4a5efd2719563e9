//! From a log, after whatever happened to the mount before, to files: opening the cache and finding what its volumes are.
//!
//! A volume that the log names is looked for by its file's handle; where handles don't work, by inode number and time of
//! birth in the whole directory. If the file is gone, its bytes go to a file of their own under `.quire/lost`, unless the
//! table says that its last name was removed; one that is there in spite of that, since power went before the directory
//! knew, is as good as any. Nothing is thrown away because it can't be found.
//!
//! Relies on the table being written before the first byte of a volume.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::path::PathBuf;

use quire_device::errno;
use quire_sys::at::{self, AccessMode, FileStat, InodeType};
use quire_sys::handle;
use quire_writecache::recover::RecoverError;
use quire_writecache::{CacheConfig, CacheError, OpenReport, VolumeId, VolumeLength, VolumeSpec, WriteCache};

use crate::backing_root::{self, BackingRoot, FOLDER, LogDevice};
use crate::config::MountConfig;
use crate::dirty_inodes::DirtyFlags;
use crate::engine::MountEngine;
use crate::error::MountError;
use crate::volume_table::{SlotIndex, TABLE, VolumeAttachment, VolumeEntry, VolumeTable};

/// What was found when the log was opened.
#[derive(Clone, Debug, Default)]
pub struct RecoveryReport {
    /// What the cache says.
    pub log: OpenReport,
    /// The log is a new one.
    pub is_new: bool,
    /// Files of which the log holds bytes.
    pub files: usize,
    /// Files with bytes for which there is no name any more.
    pub lost: Vec<PathBuf>,
}

/// Opens everything below the mount, in a process that may have so many files open.
///
/// # Errors
/// Devices fail, are in use, or don't belong together.
pub fn start(config: &MountConfig, open_files: u64) -> Result<(MountEngine, LogDevice, RecoveryReport), MountError> {
    let backing_root = BackingRoot::open(&config.backing)?;
    let log_device = LogDevice::open(&config.log)?;
    match open_cache(config, &backing_root, &log_device) {
        Ok((cache, is_new)) => name_files(config, backing_root, cache, is_new, open_files)
            .map(|(engine, report)| (engine, log_device, report)),
        Err(error) => {
            // The directory may know it already.
            let is_known = log_device.device.len() != Ok(0) && backing_root::needs_log(&config.backing).unwrap_or(true);
            if !is_known {
                log_device.take_back();
            }
            Err(error)
        }
    }
}

/// The cache, and whether it is a new one.
fn open_cache(
    config: &MountConfig,
    backing_root: &BackingRoot,
    log_device: &LogDevice,
) -> Result<(WriteCache, bool), MountError> {
    let spec = VolumeSpec { id: TABLE, device: backing_root.device("volumes")?, growth: VolumeLength::Growable };
    // What programs, or a daemon that was killed, did before is durable from here on: no later flush has to cover it.
    backing_root.sync()?;
    let capacity_bytes = config.cache.capacity_bytes.min(log_device.fixed_bytes.unwrap_or(u64::MAX));
    let witness = Some(backing_root.device("witness")?);
    let cache_config = CacheConfig { capacity_bytes, witness, slow_synced: true, ..config.cache.clone() };
    let device =
        config.wrap_fast.as_ref().map_or_else(|| log_device.device.clone(), |wrap| wrap(log_device.device.clone()));
    let specs = [spec];
    match WriteCache::open(device.clone(), &specs, cache_config.clone()) {
        Err(CacheError::Recover { cause: RecoverError::NoSuperblock, .. }) => {
            Ok((WriteCache::create(device, &specs, cache_config)?, true))
        }
        result => Ok((result?, false)),
    }
}

/// The engine over an open cache, once every volume that the log names has its file.
fn name_files(
    config: &MountConfig,
    backing_root: BackingRoot,
    cache: WriteCache,
    is_new: bool,
    open_files: u64,
) -> Result<(MountEngine, RecoveryReport), MountError> {
    let mut report = RecoveryReport { is_new, ..RecoveryReport::default() };
    report.log = cache.report().clone();
    let wanted = report.log.unattached.clone();
    let volume_table = VolumeTable::read(&cache, |volume| wanted.contains(&volume))?;
    let volume_table = volume_table.map_err(|offset| MountError::VolumeTable {
        file: backing_root.path.join(FOLDER).join("volumes").display().to_string(),
        offset,
    })?;
    let tasks = &config.cache.tasks;
    let engine = MountEngine::new(
        cache,
        backing_root,
        volume_table.volume_table,
        config.rules.clone(),
        config.wrap_slow.clone(),
        tasks,
        open_files,
    );
    for ino in engine.backing_root.failures()? {
        engine.dirty_inodes.note(ino, DirtyFlags { error: true, ..DirtyFlags::ALL });
    }
    find_files(&engine, &wanted, volume_table.entries, &mut report)?;
    Ok((engine, report))
}

/// Finds the file of every volume in `wanted`.
fn find_files(
    engine: &MountEngine,
    wanted: &[VolumeId],
    entries: Vec<(SlotIndex, VolumeEntry)>,
    report: &mut RecoveryReport,
) -> Result<(), MountError> {
    let mut known: HashMap<VolumeId, (SlotIndex, VolumeEntry)> =
        entries.into_iter().map(|(place, entry)| (entry.volume, (place, entry))).collect();
    let mut missing = Vec::new();
    for &volume in wanted {
        let Some((place, entry)) = known.remove(&volume) else {
            tracing::error!(%volume, "the log names a volume that the table doesn't know");
            keep_lost(engine, volume, report)?;
            continue;
        };
        match open(&engine.backing_root.dir, &entry) {
            Ok(Some(file)) => {
                engine.restore(file, entry.ino, VolumeAttachment { volume, slot: place })?;
                report.files += 1;
            }
            Ok(None) if entry.removed => engine.cache.forget(volume)?,
            Ok(None) => keep_lost(engine, volume, report)?,
            Err(cause) => missing.push((place, entry, cause)),
        }
    }
    if missing.is_empty() { Ok(()) } else { search(engine, missing, report) }
}

/// The entry's file; `None` if it is gone for certain.
fn open(root: &File, entry: &VolumeEntry) -> io::Result<Option<File>> {
    let Some(handle) = &entry.handle else {
        return Err(io::ErrorKind::Unsupported.into());
    };
    match handle::open(root, handle) {
        Ok(file) => {
            let facts = at::facts(&file)?;
            // It may be a copy of the directory in which the handle happens to name something else.
            let same = facts.ino == entry.ino && facts.kind == InodeType::File;
            Ok((same && facts.links > 0).then_some(file))
        }
        Err(error) if matches!(error.raw_os_error(), Some(code) if code == errno::ENOENT) => Ok(None),
        Err(error) if error.kind() == io::ErrorKind::StaleNetworkFileHandle => Ok(None),
        Err(error) => Err(error),
    }
}

/// Looks for files in the whole directory.
fn search(
    engine: &MountEngine,
    missing: Vec<(SlotIndex, VolumeEntry, io::Error)>,
    report: &mut RecoveryReport,
) -> Result<(), MountError> {
    tracing::warn!(files = missing.len(), "file handles can't be used here: searching the whole directory");
    let mut wanted = missing.into_iter().map(|missing| (missing.1.ino, missing)).collect();
    let hidden = walk(engine, &mut wanted, report)?;
    let is_complete = hidden.is_none();
    if let Some((cause, (_, entry, _))) = hidden.zip(wanted.values().find(|(_, entry, _)| !entry.removed)) {
        return Err(MountError::Unreachable { ino: entry.ino, cause });
    }
    for (_, (_, entry, cause)) in wanted {
        if entry.removed && is_complete {
            engine.cache.forget(entry.volume)?;
            continue;
        }
        if entry.born_ns == 0 && !entry.removed {
            return Err(MountError::Unreachable { ino: entry.ino, cause });
        }
        keep_lost(engine, entry.volume, report)?;
    }
    Ok(())
}

/// Goes through the whole directory and restores the files of `wanted` that it finds, by inode number. Returns the error of a
/// directory that this process may not look at: the files may be there.
fn walk(
    engine: &MountEngine,
    wanted: &mut HashMap<u64, (SlotIndex, VolumeEntry, io::Error)>,
    report: &mut RecoveryReport,
) -> Result<Option<io::Error>, MountError> {
    let path = &engine.backing_root.path;
    let failed = |cause| MountError::Backing { path: path.clone(), cause };
    let root_dev = at::facts(&engine.backing_root.dir).map_err(failed)?.dev;
    // As many directories are open as the tree is deep.
    let listed = |dir: File| at::list(&dir).map(|entries| (dir, entries)).map_err(failed);
    let mut todo = vec![listed(engine.backing_root.dir.try_clone().map_err(failed)?)?];
    let mut hidden = None;
    while let Some((dir, entries)) = todo.last_mut().filter(|_| !wanted.is_empty()) {
        let Some(entry) = entries.pop() else {
            todo.pop();
            continue;
        };
        let is_ours = entry.name != "." && entry.name != ".." && entry.name != FOLDER;
        if !is_ours
            || !(entry.kind == InodeType::Directory || entry.kind == InodeType::File && wanted.contains_key(&entry.ino))
        {
            continue;
        }
        let place = match at::place(&*dir, &entry.name) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                hidden = Some(error);
                continue;
            }
            place => place.map_err(failed)?,
        };
        let facts = at::facts(&place).map_err(failed)?;
        if facts.dev != root_dev {
            continue;
        }
        if facts.kind == InodeType::Directory {
            match at::open(&place, AccessMode::List) {
                Err(error) if error.kind() == io::ErrorKind::PermissionDenied => hidden = Some(error),
                dir => todo.push(listed(dir.map_err(failed)?)?),
            }
        } else if wanted.get(&entry.ino).is_some_and(|(_, wanted, _)| is_same(&place, &facts, wanted)) {
            let Some((slot, entry, _)) = wanted.remove(&entry.ino) else { continue };
            let file = at::open(&place, AccessMode::ReadWrite)
                .map_err(|cause| MountError::Unreachable { ino: entry.ino, cause })?;
            engine.restore(file, entry.ino, VolumeAttachment { volume: entry.volume, slot })?;
            report.files += 1;
        }
    }
    Ok(hidden)
}

fn is_same(place: impl AsFd, facts: &FileStat, entry: &VolumeEntry) -> bool {
    facts.ino == entry.ino && entry.born_ns != 0 && at::born_ns(&place) == Some(entry.born_ns)
}

/// Gives the bytes of a file that is gone a file of their own.
fn keep_lost(engine: &MountEngine, volume: VolumeId, report: &mut RecoveryReport) -> Result<(), MountError> {
    let (device, path) = engine.backing_root.lost(&format!("volume-{}", volume.0))?;
    let spec = VolumeSpec { id: volume, device, growth: VolumeLength::Growable };
    engine.cache.attach(&spec)?;
    report.lost.push(path);
    Ok(())
}
