//! What the tests share: memory with objects, children that checkpoint it, and the objects read again.
//!
//! Relies on memory between pages that are not accessible, so that no other mapping of this process joins it.

#![allow(dead_code, reason = "each test uses its part of it")]

use std::ffi::{CStr, CString};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use quire_mdc::{
    Checkpoint, CheckpointError, CheckpointOptions, CheckpointSummary, DumpTarget, PassMode, ReadMode, Restore,
    RestoreError,
};
use quire_rng::SplitMix64;
use quire_sys::child::{self, Child, WaitStatus};
use quire_sys::mem::{PAGE_SIZE, Reservation};

/// An object: where it begins in the memory, and how long it is.
#[derive(Clone, Copy, Debug)]
pub struct Object {
    pub at: usize,
    pub len: usize,
    pub passing: PassMode,
}

/// Memory with nothing beside it.
pub struct Memory {
    reservation: Reservation,
    len: usize,
}

impl Memory {
    /// `len` bytes that read as zero.
    pub fn new(len: usize) -> Self {
        let reservation = Reservation::new(len + 2 * PAGE_SIZE).unwrap();
        let len = len.next_multiple_of(PAGE_SIZE);
        reservation.commit(PAGE_SIZE..PAGE_SIZE + len).unwrap();
        Self { reservation, len }
    }

    pub fn base(&self) -> *mut u8 {
        self.reservation.base().wrapping_add(PAGE_SIZE)
    }

    pub fn len(&self) -> usize {
        self.len
    }

    pub fn reservation(&self) -> &Reservation {
        &self.reservation
    }

    /// The bytes. No other reference to them is in use while a test has these.
    #[allow(clippy::mut_from_ref, reason = "memory, not a value")]
    pub fn bytes(&self) -> &mut [u8] {
        // SAFETY: committed memory of the test's own, used by one thread at a time.
        unsafe { std::slice::from_raw_parts_mut(self.base(), self.len) }
    }

    pub fn no_huge_pages(&self) {
        quire_sys::map::advise(self.base(), self.len, quire_sys::map::MapAdvice::NoHuge).unwrap();
    }
}

/// A folder that goes with its test.
pub struct Folder(tempfile::TempDir);

impl Folder {
    pub fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    pub fn file(&self) -> PathBuf {
        self.0.path().join("checkpoint")
    }

    pub fn c_file(&self) -> CString {
        CString::new(self.file().to_str().unwrap()).unwrap()
    }

    pub fn names(&self) -> Vec<String> {
        let mut names: Vec<String> = std::fs::read_dir(self.0.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }
}

pub const GIVE_BACK: CheckpointOptions = CheckpointOptions { gives_back: true };
pub const KEEP: CheckpointOptions = CheckpointOptions { gives_back: false };

/// Writes all objects of the memory at `base`.
pub fn write_all<T: DumpTarget>(
    made: &mut Checkpoint<T>,
    base: *const u8,
    objects: &[Object],
) -> Result<(), CheckpointError> {
    for object in objects {
        // SAFETY: objects of the tests lie in their memory, which stays as it is.
        unsafe { made.write(base.wrapping_add(object.at), object.len, object.passing) }?;
    }
    Ok(())
}

/// A whole checkpoint of the memory at `base`.
pub fn checkpoint(
    path: &CStr,
    options: CheckpointOptions,
    base: *const u8,
    objects: &[Object],
) -> Result<CheckpointSummary, CheckpointError> {
    let mut made = Checkpoint::start(path, options)?;
    write_all(&mut made, base, objects)?;
    // SAFETY: memory is given back only in children that the tests fork.
    unsafe { made.end() }
}

/// Forks a child that runs `work`, which allocates nothing, and tells its status.
pub fn in_child(work: &mut dyn FnMut() -> i32) -> Child {
    let (_ours, theirs) = child::socket_pair().unwrap();
    // SAFETY: the work of the tests is what this crate promises to be fit for a child.
    unsafe { child::fork(theirs.as_fd(), work) }.unwrap()
}

/// Forks a child that makes a checkpoint and gives memory back; the memory has to be the same to it afterwards.
pub fn forked_checkpoint(path: &CStr, memory: &Memory, objects: &[Object]) -> Child {
    let before = sum(memory);
    in_child(&mut || match checkpoint(path, GIVE_BACK, memory.base(), objects) {
        Ok(_) if sum(memory) == before => 0,
        Ok(_) => 2,
        Err(_) => 1,
    })
}

/// A checksum of the memory.
pub fn sum(memory: &Memory) -> u64 {
    memory.bytes().iter().fold(7, |sum, &byte| sum.wrapping_mul(31).wrapping_add(u64::from(byte)))
}

pub fn succeed(mut child: Child) {
    assert_eq!(child.wait(), WaitStatus::Exited(0));
}

/// Reads objects of these lengths.
pub fn read_all(restore: &mut Restore, objects: &[Object]) -> Result<Vec<Vec<u8>>, RestoreError> {
    let mut read = Vec::new();
    for object in objects {
        let mut bytes = vec![0xee; object.len];
        assert_eq!(restore.read(&mut bytes)?, object.len);
        read.push(bytes);
    }
    assert_eq!(restore.read(&mut [0; 4])?, 0, "nothing follows the last object");
    Ok(read)
}

pub fn restored(path: &Path, reading: ReadMode, objects: &[Object]) -> Vec<Vec<u8>> {
    read_all(&mut Restore::open(path, reading).unwrap(), objects).unwrap()
}

/// What the objects are in `bytes`.
pub fn contents(bytes: &[u8], objects: &[Object]) -> Vec<Vec<u8>> {
    objects.iter().map(|object| bytes[object.at..object.at + object.len].to_vec()).collect()
}

/// Bytes that are different everywhere.
pub fn fill(bytes: &mut [u8], seed: u64) {
    SplitMix64::new(seed).fill(bytes);
}
