//! A note on the slow side of which log belongs to these volumes, so that no other and no outdated one is ever replayed.
//!
//! ```text
//! 0   magic "QUIREWIT" | 8 version u32 | 12 state u32 | 16 identity u64 | 24 epoch u64 | 32 zeros | 504 XXH3 of bytes 0 … 503
//! ```
//! Valid is a note with magic, version and checksum. 512 bytes, the rest of the file's first 4096 are zero. A file that is
//! empty or zeros holds no note; anything else is damage, and no log is used then.
//!
//! Log and volumes have an *epoch*, too, and only those of one epoch fit together: else volumes that were restored from a
//! backup would be taken for those whose last writes a newer log lacks. A new epoch begins whenever the cache is opened or
//! closed: the log says that it is about to begin, durably, then the note that it has, then the log. Between the first and
//! the last of these the log goes with either, and nothing else is written.
//!
//! When the fast device dies, newer versions go to the slow devices while the log still holds older ones. Should that
//! device come back, its log must not be used: the note says *abandoned* before the first such write. Without a note the
//! cache refuses those writes instead.
//!
//! Relies on a write of 512 bytes being whole or not at all, as on the superblock's.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};

use quire_device::{Device, DeviceError, Direction, Extent, Transfer};
use twox_hash::XxHash3_64;
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::buffer_pool::BufferPool;

const MAGIC: [u8; 8] = *b"QUIREWIT";
const VERSION: u32 = 1;
const NOTE_BYTES: usize = 512;
const FILE_BYTES: usize = 4096;

/// Number of a stretch of time in which a log and its volumes went together. Its upper half counts; the lower is drawn, so
/// that two copies of a log that both went on don't come to the same. Zero: from before there were epochs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Epoch(pub u64);

impl Epoch {
    /// One that comes after both.
    pub fn after(self, other: Self) -> Self {
        let count = self.count().max(other.count()).wrapping_add(1).max(1);
        Self(u64::from(count) << 32 | RandomState::new().build_hasher().finish() & u64::from(u32::MAX))
    }

    /// How many there were.
    pub fn count(self) -> u32 {
        (self.0 >> 32) as u32
    }
}

/// A note.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogIdentity {
    /// The log.
    pub identity: u64,
    /// How it stands.
    pub state: LogState,
    /// The epoch of the volumes.
    pub epoch: Epoch,
}

/// What the note says of its log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogState {
    /// It may hold what the slow devices lack.
    InUse,
    /// It must not be used again.
    Abandoned,
    /// It was closed empty: the slow devices have everything.
    Empty,
}

impl LogState {
    fn number(self) -> u32 {
        match self {
            Self::InUse => 1,
            Self::Abandoned => 2,
            Self::Empty => 3,
        }
    }
}

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct AgreementNote {
    magic: [u8; 8],
    version: U32,
    state: U32,
    identity: U64,
    epoch: U64,
    unused: [u8; 472],
    checksum: U64,
}

const _: () = assert!(size_of::<AgreementNote>() == NOTE_BYTES);

impl AgreementNote {
    fn own_checksum(&self) -> u64 {
        XxHash3_64::oneshot(&self.as_bytes()[..NOTE_BYTES - 8])
    }
}

/// The note, if there is one; `Err(None)` if there is something else.
///
/// # Errors
/// The device fails, or the note is damaged.
pub fn read(device: &dyn Device) -> Result<Option<LogIdentity>, Option<DeviceError>> {
    let mut bytes = [0; NOTE_BYTES];
    let got = device.read_at(0, &mut bytes)?;
    if bytes.iter().all(|&byte| byte == 0) {
        return Ok(None);
    }
    let note = AgreementNote::read_from_bytes(&bytes[..got]).map_err(|_| None)?;
    if note.magic != MAGIC || note.version.get() != VERSION || note.checksum.get() != note.own_checksum() {
        return Err(None);
    }
    let states = [LogState::InUse, LogState::Abandoned, LogState::Empty];
    let state = states.into_iter().find(|state| state.number() == note.state.get()).ok_or(None)?;
    Ok(Some(LogIdentity { identity: note.identity.get(), state, epoch: Epoch(note.epoch.get()) }))
}

/// Writes the note, durably.
///
/// # Errors
/// The device fails.
pub fn write(device: &dyn Device, told: LogIdentity, buffers: &BufferPool) -> Result<(), DeviceError> {
    let mut note = AgreementNote {
        magic: MAGIC,
        version: VERSION.into(),
        state: told.state.number().into(),
        identity: told.identity.into(),
        epoch: told.epoch.0.into(),
        unused: [0; 472],
        checksum: 0.into(),
    };
    note.checksum = note.own_checksum().into();
    let mut buffer = buffers.take(FILE_BYTES)?;
    buffer[..NOTE_BYTES].copy_from_slice(note.as_bytes());
    buffer[NOTE_BYTES..FILE_BYTES].fill(0);
    let extents = vec![Extent { offset: 0, start: 0, len: FILE_BYTES }];
    let mut transfer = Transfer { direction: Direction::Write, buffer, extents, tag: 0 };
    let result = device.write_durable(&mut transfer).and_then(|()| device.flush());
    buffers.put(transfer.buffer);
    result
}
