//! The pool of this process, and the databases that its connections have open.
//!
//! Relies on nothing but the rule of POSIX locks that shapes it: as soon as a process closes *any* descriptor of a file, it loses
//! all its locks on that file, those of SQLite included. So a descriptor that was opened here is kept when its last connection
//! is gone, and used again when the file is opened again.
//!
//! A forked child has a registry of its own, since the pool's threads are its parent's. It takes no lock of its parent's for that: another
//! thread may have held it at the fork, and would hold it in the child for ever.

use std::collections::HashMap;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use quire_device::{Device, Directory, DiskDirectory};
use quire_pool::{Pool, PoolConfig, PoolError, TierConfig, TierSize};
use quire_sys::fork_mark::ForkMark;
use quire_sys::limits;

use crate::database::Database;
use crate::settings::{self, UriSizes};

/// Device and inode of a file.
type FileId = (u64, u64);

/// Databases whose descriptors are kept, but for removed files. Beyond that no further database goes through the pool.
const MOST_PARKED: u64 = 256;
/// Of the files that the process may have open, one in so many is such a database. Each has two descriptors: one goes past the page cache.
const PARKED_SHARE: u64 = 8;

/// What the process shares.
#[derive(Default)]
struct Registry {
    pool: Option<Arc<Pool>>,
    open: HashMap<(FileId, Locking), Weak<Database>>,
    /// Descriptors, which only read.
    devices: HashMap<FileId, Arc<dyn Device>>,
}

/// The registry of one process.
struct ProcessRegistry {
    mark: ForkMark,
    registry: Mutex<Registry>,
}

/// That of this process, or of one that it was forked from. Never freed.
static CURRENT: AtomicPtr<ProcessRegistry> = AtomicPtr::new(ptr::null_mut());

/// How connections see to it that no other process changes the file while they read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Locking {
    /// By SQLite's locks.
    Locks,
    /// Not at all: the program has promised that the file does not change (`immutable=1`). Such connections share no pages with others, which
    /// must not come to read what was in the file while the promise was broken.
    Immutable,
}

/// Why a database does not go through the pool.
pub(crate) type Reason = String;

/// The database at `path`, which SQLite has open already. The pool, which all databases share, gets `sizes`.
pub(crate) fn open(path: &Path, locking: Locking, sizes: UriSizes) -> Result<Arc<Database>, Reason> {
    let made = pool();
    let database = registry().open_database(path, locking, sizes)?;
    // Not under the lock of the registry: pages may have to be evicted for it.
    if let Some(pool) = made {
        sizes.apply(&pool);
    }
    Ok(database)
}

/// The pool, if there is one.
pub(crate) fn pool() -> Option<Arc<Pool>> {
    registry().pool.clone()
}

/// The registry of this process.
fn registry() -> MutexGuard<'static, Registry> {
    let mut seen = CURRENT.load(Ordering::Acquire);
    loop {
        // SAFETY: null, or a box that was leaked below and is never freed; it is only read, but for what its mutex guards.
        if let Some(own) = unsafe { seen.as_ref() }
            && !own.mark.is_forked()
        {
            return own.registry.lock().unwrap_or_else(PoisonError::into_inner);
        }
        let fresh = Box::into_raw(Box::new(ProcessRegistry { mark: ForkMark::new(), registry: Mutex::default() }));
        seen = match CURRENT.compare_exchange(seen, fresh, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => fresh,
            Err(faster) => {
                // SAFETY: `into_raw` has made the pointer just now, and no other thread has seen it.
                drop(unsafe { Box::from_raw(fresh) });
                faster
            }
        };
    }
}

impl Registry {
    fn open_database(&mut self, path: &Path, locking: Locking, sizes: UriSizes) -> Result<Arc<Database>, Reason> {
        let facts = path.metadata().map_err(|error| error.to_string())?;
        if !facts.is_file() {
            return Err("it is no regular file".into());
        }
        let id = (facts.dev(), facts.ino());
        if let Some(database) = self.open.get(&(id, locking)).and_then(Weak::upgrade) {
            return Ok(database);
        }
        let device = self.device(path, id)?;
        let pool = self.pool(sizes)?;
        let database = Arc::new(Database::new(pool, device).map_err(|error| error.to_string())?);
        self.open.retain(|_, database| database.strong_count() > 0);
        self.open.insert((id, locking), Arc::downgrade(&database));
        Ok(database)
    }

    /// The pool, made with `sizes` if there is none yet.
    fn pool(&mut self, sizes: UriSizes) -> Result<Arc<Pool>, Reason> {
        if let Some(pool) = &self.pool {
            return Ok(Arc::clone(pool));
        }
        let tier = TierConfig {
            size: sizes.tier.unwrap_or_else(settings::tier_size),
            compression: settings::compression(),
            // What SQLite has written is in the page cache: it is taken from there, and given up.
            page_cache: true,
            ..TierConfig::default()
        };
        let budget_bytes = sizes.pool_bytes.unwrap_or_else(settings::pool_bytes);
        let config = PoolConfig { budget_bytes, tier, ..PoolConfig::default() };
        let without_tier = PoolConfig { tier: TierConfig { size: TierSize::Off, ..tier }, ..config.clone() };
        let pool = match Pool::new(config) {
            Err(error @ PoolError::Memory { .. }) if tier.size != TierSize::Off => {
                settings::warn(&format!("there is no second tier: {error}"));
                Pool::new(without_tier)
            }
            made => made,
        };
        let pool = pool.map_err(|error| error.to_string())?;
        self.pool = Some(Arc::clone(&pool));
        Ok(pool)
    }

    /// A descriptor of the file `id`, at `path`.
    fn device(&mut self, path: &Path, id: FileId) -> Result<Arc<dyn Device>, Reason> {
        if let Some(device) = self.devices.get(&id) {
            return Ok(Arc::clone(device));
        }
        self.devices.retain(|_, device| Arc::strong_count(device) > 1 || !is_removed(device.as_ref()));
        let most = MOST_PARKED.min(limits::open_files() / PARKED_SHARE);
        if self.devices.len() as u64 >= most {
            return Err(format!("{most} databases were opened already"));
        }
        let name = path.file_name().and_then(|name| name.to_str()).ok_or("its name is not UTF-8")?;
        let directory = DiskDirectory::new(path.parent().unwrap_or(Path::new("/")));
        let device = directory.open(name).map_err(|error| error.to_string())?;
        let opened = device.as_file().and_then(|file| file.metadata().ok()).map(|facts| (facts.dev(), facts.ino()));
        if opened != Some(id) {
            // Another connection may have that file open, whose locks would end if this descriptor were closed.
            std::mem::forget(device);
            return Err("another file has taken its name".into());
        }
        self.devices.insert(id, Arc::clone(&device));
        Ok(device)
    }
}

/// Whether no name leads to the file any more, so that no connection can come that needs locks on it.
fn is_removed(device: &dyn Device) -> bool {
    device.as_file().and_then(|file| file.metadata().ok()).is_some_and(|facts| facts.nlink() == 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use quire_sys::child::{WaitStatus, fork_by_library};

    #[test]
    fn a_child_that_is_forked_while_the_registry_is_in_use_has_its_own_at_once() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("test.db");
        std::fs::write(&path, [0; 8192]).unwrap();
        let ours = open(&path, Locking::Locks, UriSizes::default()).unwrap();
        assert!(Arc::ptr_eq(&ours, &open(&path, Locking::Locks, UriSizes::default()).unwrap()));
        assert!(!Arc::ptr_eq(&ours, &open(&path, Locking::Immutable, UriSizes::default()).unwrap()));
        let held = registry();
        let mut in_child = || {
            let is_own = pool().is_none() && ours.is_forked();
            let opened = open(&path, Locking::Locks, UriSizes::default());
            i32::from(!is_own) + 2 * i32::from(!opened.is_ok_and(|own| !own.is_forked()))
        };
        // SAFETY: `fork_by_library` demands a child that waits for no lock that another thread may have held: the registry's is what is tested, and
        // the C library makes its allocator's usable.
        let child = unsafe { fork_by_library(&mut in_child) };
        assert_eq!(child.unwrap().wait(), WaitStatus::Exited(0));
        drop(held);
        assert!(pool().is_some());
    }
}
