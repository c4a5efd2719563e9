//! Which volume of the log is which file, so that a mount after a crash finds the files to which the log's bytes belong.
//!
//! ```text
//! slot of 256 bytes, at 256 · n:
//!   0 magic "QUIREVOL" | 8 version u32 | 12 state u32 (1 in use, 2 removed) | 16 volume u64 | 24 inode u64
//!  32 handle kind i32 | 36 handle bytes u32 | 40 handle [128] | 168 born_ns u64 | 176 zeros | 248 XXH3 of bytes 0 … 247
//! ```
//! Valid is a slot with magic, version and checksum. A slot of zeros is free; anything else is damage.
//!
//! The table is itself a volume of the cache ([`TABLE`]), and a slot is durable before its volume takes the first write;
//! since the log keeps order, no record of a volume is ever found without its slot. Numbers of volumes are never used
//! twice; slots are. A file whose last name was removed is marked so, but keeps its handle: power may bring the name back. A
//! slot that names a volume of which the log holds nothing means nothing.
//!
//! Relies on the cache to be durable and to be admitted there like a log.

use std::fs::File;
use std::sync::{Mutex, PoisonError};

use quire_sys::at;
use quire_sys::handle::{self, ExportHandle, MOST_BYTES};
use quire_writecache::{CacheError, ContentKind, TaskId, VolumeId, WriteCache, WriteContext};
use twox_hash::XxHash3_64;
use zerocopy::little_endian::{I32, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The table's own volume.
pub const TABLE: VolumeId = VolumeId(1);
const FIRST: u64 = 2;
const MAGIC: [u8; 8] = *b"QUIREVOL";
const VERSION: u32 = 1;
const SLOT_BYTES: usize = 256;
const IN_USE: u32 = 1;
const REMOVED: u32 = 2;

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Slot {
    magic: [u8; 8],
    version: U32,
    state: U32,
    volume: U64,
    ino: U64,
    handle_kind: I32,
    handle_bytes: U32,
    handle: [u8; MOST_BYTES],
    born_ns: U64,
    unused: [u8; 72],
    checksum: U64,
}

const _: () = assert!(size_of::<Slot>() == SLOT_BYTES);

/// What a slot says of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeEntry {
    /// Its volume.
    pub volume: VolumeId,
    /// Its inode number.
    pub ino: u64,
    /// Its handle, if the file system has such.
    pub handle: Option<ExportHandle>,
    /// When it was made, in nanoseconds since 1970; 0 if the file system doesn't say.
    pub born_ns: u64,
    /// Its last name was being removed.
    pub removed: bool,
}

impl Slot {
    fn of(entry: &VolumeEntry) -> Self {
        let mut slot = Self {
            magic: MAGIC,
            version: VERSION.into(),
            state: if entry.removed { REMOVED } else { IN_USE }.into(),
            volume: entry.volume.0.into(),
            ino: entry.ino.into(),
            handle_kind: 0.into(),
            handle_bytes: 0.into(),
            handle: [0; MOST_BYTES],
            born_ns: entry.born_ns.into(),
            unused: [0; 72],
            checksum: 0.into(),
        };
        if let Some(handle) = &entry.handle {
            let len = handle.bytes.len().min(MOST_BYTES);
            slot.handle_kind = handle.kind.into();
            slot.handle_bytes = (len as u32).into();
            slot.handle[..len].copy_from_slice(&handle.bytes[..len]);
        }
        slot.checksum = slot.own_checksum().into();
        slot
    }

    fn own_checksum(&self) -> u64 {
        XxHash3_64::oneshot(&self.as_bytes()[..SLOT_BYTES - 8])
    }

    /// `Err` if it is damaged, `None` if it is free.
    fn read(bytes: &[u8]) -> Result<Option<VolumeEntry>, ()> {
        if bytes.iter().all(|&byte| byte == 0) {
            return Ok(None);
        }
        let slot = Self::read_from_bytes(bytes).map_err(drop)?;
        let len = slot.handle_bytes.get() as usize;
        let state = slot.state.get();
        let sound = slot.magic == MAGIC
            && slot.version.get() == VERSION
            && slot.checksum.get() == slot.own_checksum()
            && len <= MOST_BYTES
            && (state == IN_USE || state == REMOVED);
        if !sound {
            return Err(());
        }
        let handle = ExportHandle { kind: slot.handle_kind.get(), bytes: slot.handle[..len].to_vec() };
        Ok(Some(VolumeEntry {
            volume: VolumeId(slot.volume.get()),
            ino: slot.ino.get(),
            handle: (len > 0).then_some(handle),
            born_ns: slot.born_ns.get(),
            removed: state == REMOVED,
        }))
    }
}

/// Where a file stands in the table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SlotIndex(usize);

/// A file's volume, and its place in the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VolumeAttachment {
    /// The volume.
    pub volume: VolumeId,
    /// Where the table says so.
    pub slot: SlotIndex,
}

#[derive(Debug, Default)]
struct Slots {
    free: Vec<usize>,
    count: usize,
    next: u64,
}

/// The table.
#[derive(Debug)]
pub struct VolumeTable {
    slots: Mutex<Slots>,
}

/// The table as it was found.
pub struct LoadedTable {
    /// The table, all of whose slots but those that are kept are free.
    pub volume_table: VolumeTable,
    /// What it says, with places.
    pub entries: Vec<(SlotIndex, VolumeEntry)>,
}

impl VolumeTable {
    /// Reads the table through the cache. Slots for which `keep` says no are free to be used again.
    ///
    /// # Errors
    /// A device fails; or the byte at which it is damaged.
    pub fn read(cache: &WriteCache, keep: impl Fn(VolumeId) -> bool) -> Result<Result<LoadedTable, u64>, CacheError> {
        let len = cache.len(TABLE)?;
        let mut slots = Slots { next: FIRST, ..Slots::default() };
        let mut entries = Vec::new();
        let mut chunk = vec![0; 256 * SLOT_BYTES];
        let mut offset = 0;
        while offset < len {
            let got = cache.read(TABLE, offset, &mut chunk)?;
            for bytes in chunk[..got].chunks(SLOT_BYTES) {
                let number = slots.count;
                slots.count += 1;
                let Ok(entry) = Slot::read(bytes) else { return Ok(Err((number * SLOT_BYTES) as u64)) };
                if let Some(entry) = &entry {
                    slots.next = slots.next.max(entry.volume.0 + 1);
                }
                match entry.filter(|entry| keep(entry.volume)) {
                    Some(entry) => entries.push((SlotIndex(number), entry)),
                    None => slots.free.push(number),
                }
            }
            offset += got.max(1) as u64;
        }
        slots.free.reverse();
        Ok(Ok(LoadedTable { volume_table: Self { slots: Mutex::new(slots) }, entries }))
    }

    fn slots(&self) -> std::sync::MutexGuard<'_, Slots> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A new volume for a file, durable in the table. `task` is one that is always critical.
    ///
    /// # Errors
    /// A device fails.
    pub fn add(
        &self,
        cache: &WriteCache,
        file: &File,
        ino: u64,
        task: TaskId,
    ) -> Result<(SlotIndex, VolumeId), CacheError> {
        let (number, volume) = {
            let mut slots = self.slots();
            let number = slots.free.pop().unwrap_or_else(|| {
                slots.count += 1;
                slots.count - 1
            });
            slots.next += 1;
            (number, VolumeId(slots.next - 1))
        };
        let (handle, born_ns) = (handle::of(file).ok(), at::born_ns(file).unwrap_or(0));
        let entry = VolumeEntry { volume, ino, handle, born_ns, removed: false };
        // As a log it is admitted under every policy that admits anything.
        let context = WriteContext { task, is_sync: true, content: ContentKind::Log };
        let offset = (number * SLOT_BYTES) as u64;
        let ticket = cache.write(TABLE, offset, Slot::of(&entry).as_bytes(), &context);
        match ticket.and_then(|ticket| cache.wait(&ticket, &context)) {
            Ok(()) => Ok((SlotIndex(number), volume)),
            Err(error) => {
                self.slots().free.push(number);
                Err(error)
            }
        }
    }

    /// The file has lost its last name, which is durable here when this returns. Whether it is in the directory, too,
    /// power may decide: so the slot goes on saying which file it was. `task` is one that is always critical.
    pub fn mark_removed(&self, cache: &WriteCache, attached: &VolumeAttachment, file: &File, ino: u64, task: TaskId) {
        let (handle, born_ns) = (handle::of(file).ok(), at::born_ns(file).unwrap_or(0));
        let entry = VolumeEntry { volume: attached.volume, ino, handle, born_ns, removed: true };
        let context = WriteContext { task, is_sync: true, content: ContentKind::Log };
        let offset = (attached.slot.0 * SLOT_BYTES) as u64;
        let ticket = cache.write(TABLE, offset, Slot::of(&entry).as_bytes(), &context);
        if let Err(error) = ticket.and_then(|ticket| cache.wait(&ticket, &context)) {
            // After a crash its bytes are kept, needlessly.
            tracing::warn!(%error, inode = ino, "marking a removed file");
        }
    }

    /// The slot may be used again: the log holds nothing of its volume any more.
    pub fn free(&self, slot: SlotIndex) {
        self.slots().free.push(slot.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_says_what_was_written_and_damage_is_seen() {
        let handle = Some(ExportHandle { kind: 1, bytes: vec![7; 12] });
        let entry = VolumeEntry { volume: VolumeId(9), ino: 77, handle, born_ns: 5, removed: false };
        let mut bytes = Slot::of(&entry).as_bytes().to_vec();
        assert_eq!(Slot::read(&bytes), Ok(Some(entry)));
        bytes[20] ^= 1;
        assert_eq!(Slot::read(&bytes), Err(()));
        assert_eq!(Slot::read(&[0; SLOT_BYTES]), Ok(None));
        assert_eq!(Slot::read(&bytes[..100]), Err(()));
    }
}
