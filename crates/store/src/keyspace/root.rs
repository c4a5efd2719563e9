//! The root object: where everything in the arena is found from.
//!
//! Plain data that `Arena::root` points to. The store works on a copy of its tables' heads and writes them through.
//!
//! Version 1 had no place in a log, versions 1 and 2 had nothing beside the keys, and versions up to 3 no index of values with expiring
//! subkeys. Their objects have the same size class, so the fields are simply filled in when there is something to say; a root gets the
//! lowest version that has what it says.

use quire_arena::{Arena, Handle};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

use crate::error::{Result, StoreError};
use crate::heap::External;
use crate::heap::reclaim::ReclaimRoot;
use crate::table::TableHead;

/// Databases that a root has room for.
pub(crate) const DATABASES: usize = 16;
const MAGIC: [u8; 8] = *b"QUIREKV\0";
const VERSION: u32 = 4;
/// Without `log_position`.
const FIRST_VERSION: u32 = 1;
/// With `log_position`, without `attachment`.
const LOGGED_VERSION: u32 = 2;
/// With `attachment`, without `subkey_index`.
const ATTACHED_VERSION: u32 = 3;

/// The tables of one database.
#[derive(Clone, Copy, Debug, Default, PartialEq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct DbRoot {
    /// All entries.
    pub(crate) keys: TableHead,
    /// The entries that have a time to live, by the same hash.
    pub(crate) expires: TableHead,
}

#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Root {
    magic: [u8; 8],
    version: u32,
    databases: u32,
    seed: [u64; 2],
    reclaim: ReclaimRoot,
    dbs: [DbRoot; DATABASES],
    /// The last record of the write-ahead log whose effect is in the data, as of the last cut.
    log_position: u64,
    /// What lies beside the keys: an [`External`].
    attachment: [u8; External::BYTES],
    /// The index of values with expiring subkeys: an [`External`].
    subkey_index: [u8; External::BYTES],
}

const VERSION_OFFSET: usize = 8;
const LOG_POSITION_OFFSET: usize = DBS_OFFSET + DATABASES * 80;
const ATTACHMENT_OFFSET: usize = LOG_POSITION_OFFSET + 8;
const PART_INDEX_OFFSET: usize = ATTACHMENT_OFFSET + External::BYTES;
/// Where the root keeps the list of what is being freed.
pub(crate) const RECLAIM_OFFSET: usize = 32;
const DBS_OFFSET: usize = 40;
const _: () = assert!(size_of::<DbRoot>() == 80 && size_of::<Root>() == PART_INDEX_OFFSET + External::BYTES);
const _: () = assert!(std::mem::offset_of!(Root, version) == VERSION_OFFSET);
const _: () = assert!(std::mem::offset_of!(Root, log_position) == LOG_POSITION_OFFSET);
const _: () = assert!(std::mem::offset_of!(Root, attachment) == ATTACHMENT_OFFSET);
const _: () = assert!(std::mem::offset_of!(Root, subkey_index) == PART_INDEX_OFFSET);
const _: () = assert!(std::mem::offset_of!(Root, reclaim) == RECLAIM_OFFSET);
const _: () = assert!(std::mem::offset_of!(Root, dbs) == DBS_OFFSET);

/// What the root says when a store starts on it.
#[derive(Debug)]
pub(crate) struct OpenedRoot {
    pub(crate) handle: Handle,
    pub(crate) seed: [u64; 2],
    pub(crate) reclaim: ReclaimRoot,
    pub(crate) dbs: Box<[DbRoot; DATABASES]>,
    pub(crate) log_position: u64,
}

/// Makes the root of an empty store.
pub(crate) fn create(arena: &mut Arena, seed: [u64; 2]) -> Result<OpenedRoot> {
    let handle = arena.alloc(size_of::<Root>())?;
    let root = arena.get_mut::<Root>(handle)?;
    *root = Root::new_zeroed();
    root.magic = MAGIC;
    root.version = LOGGED_VERSION;
    root.databases = DATABASES as u32;
    root.seed = seed;
    arena.set_root(handle);
    open(arena)
}

/// Reads and checks the root of a store.
pub(crate) fn open(arena: &Arena) -> Result<OpenedRoot> {
    let handle = arena.root();
    let root = arena.get::<Root>(handle)?;
    if root.magic != MAGIC {
        return Err(StoreError::damaged("the root object is not a keyspace's"));
    }
    let known = (FIRST_VERSION..=VERSION).contains(&root.version);
    if root.version > VERSION {
        let version = root.version;
        return Err(StoreError::newer(format!("a keyspace of version {version}, this program reads {VERSION}")));
    }
    if !known || root.databases as usize != DATABASES {
        let (version, databases) = (root.version, root.databases);
        return Err(StoreError::damaged(format!("a keyspace of version {version} with {databases} databases")));
    }
    for db in &root.dbs {
        db.keys.check(arena)?;
        db.expires.check(arena)?;
    }
    let log_position = if root.version == FIRST_VERSION { 0 } else { root.log_position };
    Ok(OpenedRoot { handle, seed: root.seed, reclaim: root.reclaim, dbs: Box::new(root.dbs), log_position })
}

/// Writes the place in the log through, unless it is there already.
pub(crate) fn set_log_position(arena: &mut Arena, root: Handle, position: u64) -> Result<()> {
    let now = arena.get::<Root>(root)?;
    let version = now.version.max(LOGGED_VERSION);
    if now.version == version && now.log_position == position {
        return Ok(());
    }
    arena.bytes_mut(root, LOG_POSITION_OFFSET, 8)?.copy_from_slice(&position.to_ne_bytes());
    arena.bytes_mut(root, VERSION_OFFSET, 4)?.copy_from_slice(&version.to_ne_bytes());
    Ok(())
}

/// Where the bytes are that lie beside the keys; the null handle if there are none.
pub(crate) fn attachment(arena: &Arena, root: Handle) -> Result<External> {
    let now = arena.get::<Root>(root)?;
    Ok(if now.version < ATTACHED_VERSION { External::default() } else { External::from_bytes(now.attachment) })
}

/// Writes through where the bytes are that lie beside the keys.
pub(crate) fn set_attachment(arena: &mut Arena, root: Handle, attachment: External) -> Result<()> {
    if arena.get::<Root>(root)?.version == FIRST_VERSION {
        set_log_position(arena, root, 0)?;
    }
    let version = arena.get::<Root>(root)?.version.max(ATTACHED_VERSION);
    arena.bytes_mut(root, ATTACHMENT_OFFSET, External::BYTES)?.copy_from_slice(&attachment.to_bytes());
    arena.bytes_mut(root, VERSION_OFFSET, 4)?.copy_from_slice(&version.to_ne_bytes());
    Ok(())
}

/// Where the index of values with expiring subkeys lies; the null handle if there is none.
pub(crate) fn subkey_index(arena: &Arena, root: Handle) -> Result<External> {
    let now = arena.get::<Root>(root)?;
    Ok(if now.version < VERSION { External::default() } else { External::from_bytes(now.subkey_index) })
}

/// Writes through where the index of values with expiring subkeys lies.
pub(crate) fn set_subkey_index(arena: &mut Arena, root: Handle, index: External) -> Result<()> {
    if arena.get::<Root>(root)?.version < ATTACHED_VERSION {
        set_attachment(arena, root, External::default())?;
    }
    let version = if index.object.is_null() { ATTACHED_VERSION } else { VERSION };
    arena.bytes_mut(root, PART_INDEX_OFFSET, External::BYTES)?.copy_from_slice(&index.to_bytes());
    arena.bytes_mut(root, VERSION_OFFSET, 4)?.copy_from_slice(&version.to_ne_bytes());
    Ok(())
}

/// Writes one database's heads through.
pub(crate) fn set_db(arena: &mut Arena, root: Handle, db: usize, value: &DbRoot) -> Result<()> {
    let offset = DBS_OFFSET + db * size_of::<DbRoot>();
    arena.bytes_mut(root, offset, size_of::<DbRoot>())?.copy_from_slice(value.as_bytes());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use quire_arena::ArenaConfig;

    #[test]
    fn a_root_without_a_place_in_the_log_gets_one_when_there_is_something_to_say() {
        let mut arena = Arena::create(ArenaConfig { max_bytes: 64 << 20, budget_bytes: 1 << 20 }).unwrap();
        let handle = create(&mut arena, [1, 2]).unwrap().handle;
        let root = arena.get_mut::<Root>(handle).unwrap();
        // What lies behind an object of the first version is anything.
        (root.version, root.log_position) = (FIRST_VERSION, 0xabcd);
        assert_eq!(open(&arena).unwrap().log_position, 0);
        assert!(arena.usable_size(handle).unwrap() >= size_of::<Root>());
        set_log_position(&mut arena, handle, 77).unwrap();
        assert_eq!(
            (open(&arena).unwrap().log_position, arena.get::<Root>(handle).unwrap().version),
            (77, LOGGED_VERSION)
        );
        arena.get_mut::<Root>(handle).unwrap().version = VERSION + 1;
        assert!(open(&arena).unwrap_err().to_string().contains("version 5"));
    }

    #[test]
    fn a_root_has_the_version_of_what_it_says() {
        assert_eq!(VERSION, 4, "a new version gets a fixture in tests/released.rs");
        let mut arena = Arena::create(ArenaConfig { max_bytes: 64 << 20, budget_bytes: 1 << 20 }).unwrap();
        let handle = create(&mut arena, [1, 2]).unwrap().handle;
        let version = |arena: &Arena| arena.get::<Root>(handle).unwrap().version;
        assert_eq!(version(&arena), LOGGED_VERSION);
        let root = arena.get_mut::<Root>(handle).unwrap();
        root.version = FIRST_VERSION;
        // What lies behind an object of the first version is anything.
        (root.log_position, root.attachment) = (7, External { object: handle, size: 9 }.to_bytes());
        assert_eq!(attachment(&arena, handle).unwrap(), External::default());
        let bytes = External { object: handle, size: 5 };
        set_attachment(&mut arena, handle, bytes).unwrap();
        assert_eq!((attachment(&arena, handle).unwrap(), version(&arena)), (bytes, ATTACHED_VERSION));
        assert_eq!(open(&arena).unwrap().log_position, 0);
        set_log_position(&mut arena, handle, 3).unwrap();
        assert_eq!((open(&arena).unwrap().log_position, version(&arena)), (3, ATTACHED_VERSION));
        assert_eq!(subkey_index(&arena, handle).unwrap(), External::default());
        set_subkey_index(&mut arena, handle, bytes).unwrap();
        assert_eq!((subkey_index(&arena, handle).unwrap(), version(&arena)), (bytes, VERSION));
        assert_eq!(attachment(&arena, handle).unwrap(), bytes);
        set_attachment(&mut arena, handle, External::default()).unwrap();
        assert_eq!((subkey_index(&arena, handle).unwrap(), version(&arena)), (bytes, VERSION));
        set_subkey_index(&mut arena, handle, External::default()).unwrap();
        assert_eq!((subkey_index(&arena, handle).unwrap(), version(&arena)), (External::default(), ATTACHED_VERSION));
    }

    #[test]
    fn an_index_of_parts_in_an_old_root_brings_nothing_else_with_it() {
        let mut arena = Arena::create(ArenaConfig { max_bytes: 64 << 20, budget_bytes: 1 << 20 }).unwrap();
        let handle = create(&mut arena, [1, 2]).unwrap().handle;
        let bytes = External { object: handle, size: 5 };
        let root = arena.get_mut::<Root>(handle).unwrap();
        root.version = FIRST_VERSION;
        // What lies behind an object of the first version is anything.
        (root.log_position, root.attachment) = (7, bytes.to_bytes());
        set_subkey_index(&mut arena, handle, bytes).unwrap();
        assert_eq!((open(&arena).unwrap().log_position, attachment(&arena, handle).unwrap()), (0, External::default()));
        assert_eq!(subkey_index(&arena, handle).unwrap(), bytes);
    }
}
