//! A valid checkpoint in memory, which the fuzz target changes: it may hold no `unsafe` itself.
//!
//! Relies on memory between pages that are not accessible, which no other mapping joins, so that the bytes are always the same.

use std::io;
use std::os::fd::BorrowedFd;

use quire_sys::mem::Reservation;
use quire_sys::write_queue::WriteSink;
use zerocopy::{FromBytes, IntoBytes};

use crate::checkpoint::{Checkpoint, CheckpointOptions, PassMode};
use crate::error::CheckpointError;
use crate::format::{Footer, Header, PAGE_BYTES};
use crate::target::DumpTarget;

/// Where the memory lies: far from all that the system and the library place. The file holds addresses, and is to be the same each time.
const ADDRESS: usize = 0x1000_0000_0000;
/// When the checkpoint was begun, as its header says.
const CREATED_UNIX_MS: u64 = 1_000_000;

struct Bytes<'a>(&'a mut Vec<u8>);

impl WriteSink for Bytes<'_> {
    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn write(&mut self, bytes: &[u8], offset: u64) -> io::Result<()> {
        let offset = offset as usize;
        self.0.resize(self.0.len().max(offset + bytes.len()), 0);
        self.0[offset..offset + bytes.len()].copy_from_slice(bytes);
        Ok(())
    }
}

impl DumpTarget for Bytes<'_> {
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn rename(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn flush_names(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn remove(&mut self) {}

    unsafe fn replace_memory(&self, _: *mut u8, _: usize, _: u64) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

/// Has the header say [`CREATED_UNIX_MS`].
fn fix_time(file: &mut [u8]) {
    let Some((first, rest)) = file.split_first_chunk_mut::<PAGE_BYTES>() else { return };
    let Some(last) = rest.last_chunk_mut::<PAGE_BYTES>() else { return };
    let header = Header::new(CREATED_UNIX_MS);
    first.copy_from_slice(header.as_bytes());
    if let Ok(mut footer) = Footer::read_from_bytes(last) {
        footer.header_checksum = header.checksum;
        footer.checksum = footer.own_checksum().into();
        last.copy_from_slice(footer.as_bytes());
    }
}

/// The bytes of a checkpoint with values and references.
///
/// # Errors
/// As [`Checkpoint::start`].
#[doc(hidden)]
pub fn sample() -> Result<Vec<u8>, CheckpointError> {
    let mut bytes = Vec::new();
    let none = |_| CheckpointError::System { call: "taking memory", source: io::ErrorKind::OutOfMemory.into() };
    let reservation = Reservation::near(std::ptr::without_provenance_mut(ADDRESS), 10 * PAGE_BYTES).map_err(none)?;
    reservation.commit(PAGE_BYTES..9 * PAGE_BYTES).map_err(none)?;
    let base = reservation.base().wrapping_add(PAGE_BYTES);
    for number in (0..8 * PAGE_BYTES).filter(|number| number / PAGE_BYTES != 3) {
        // SAFETY: committed memory of this function's own.
        unsafe { base.add(number).write(number as u8) };
    }
    let mut made = Checkpoint::start_on(Bytes(&mut bytes), CheckpointOptions::default())?;
    for (at, len) in [(0, 4), (100, 900), (5000, 12_000), (2 * PAGE_BYTES, 3), (7 * PAGE_BYTES, PAGE_BYTES), (20, 40)] {
        let passing = if at % 3 == 0 { PassMode::Value } else { PassMode::Reference };
        // SAFETY: bytes of this memory, which stay as they are.
        unsafe { made.write(base.add(at), len, passing) }?;
    }
    // SAFETY: no memory is given back.
    unsafe { made.end() }?;
    fix_time(&mut bytes);
    Ok(bytes)
}
