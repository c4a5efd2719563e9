//! A note on the slow side of which log belongs to these volumes, so that no other and no outdated one is ever replayed.
//!
//! ```text
//! 0   magic "QUIREWIT" | 8 version u32 | 12 state u32 | 16 identity u64 | 24 zeros | 504 XXH3 of bytes 0 … 503
//! ```
//! Valid is a note with magic, version and checksum. 512 bytes, the rest of the file's first 4096 are zero.
//!
//! When the fast device dies, newer versions go to the slow devices while the log still holds older ones. Should that
//! device come back, its log must not be used: the note says *abandoned* before the first such write. Without a note the
//! cache refuses those writes instead.
//!
//! Relies on a write of 512 bytes being whole or not at all, as on the superblock's.

use quire_device::{Device, DeviceError, Direction, Extent, Transfer};
use twox_hash::XxHash3_64;
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::cache::buffers::Buffers;

const MAGIC: [u8; 8] = *b"QUIREWIT";
const VERSION: u32 = 1;
const NOTE_BYTES: usize = 512;
const FILE_BYTES: usize = 4096;

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
struct Note {
    magic: [u8; 8],
    version: U32,
    state: U32,
    identity: U64,
    unused: [u8; 480],
    checksum: U64,
}

const _: () = assert!(size_of::<Note>() == NOTE_BYTES);

impl Note {
    fn own_checksum(&self) -> u64 {
        XxHash3_64::oneshot(&self.as_bytes()[..NOTE_BYTES - 8])
    }
}

/// The log's identity and state, if there is a valid note.
///
/// # Errors
/// The device fails.
pub fn read(device: &dyn Device) -> Result<Option<(u64, LogState)>, DeviceError> {
    let mut bytes = [0; NOTE_BYTES];
    let got = device.read_at(0, &mut bytes)?;
    let Ok(note) = Note::read_from_bytes(&bytes[..got]) else { return Ok(None) };
    if note.magic != MAGIC || note.version.get() != VERSION || note.checksum.get() != note.own_checksum() {
        return Ok(None);
    }
    let states = [LogState::InUse, LogState::Abandoned, LogState::Empty];
    let state = states.into_iter().find(|state| state.number() == note.state.get());
    Ok(state.map(|state| (note.identity.get(), state)))
}

/// Writes the note, durably.
///
/// # Errors
/// The device fails.
pub fn write(device: &dyn Device, identity: u64, state: LogState, buffers: &Buffers) -> Result<(), DeviceError> {
    let mut note = Note {
        magic: MAGIC,
        version: VERSION.into(),
        state: state.number().into(),
        identity: identity.into(),
        unused: [0; 480],
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
