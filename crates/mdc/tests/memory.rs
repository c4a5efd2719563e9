//! Memory: what is given back, to whom it is private then, and which memory is never touched.

mod common;

use std::ffi::CString;
use std::sync::atomic::{AtomicBool, Ordering};

use common::*;
use quire_mdc::{Checkpoint, CheckpointError, PassMode, ReadMode, Restore, RestoreError};
use quire_sys::area::AnonymousMap;
use quire_sys::child::{self, Child, WaitStatus};
use quire_sys::mem::PAGE_SIZE;
use quire_sys::pagemap::{Pagemap, PagemapEntry};

const MIB: usize = 1 << 20;

fn whole(len: usize) -> [Object; 1] {
    [Object { at: 0, len, passing: PassMode::Reference }]
}

/// Pages of `memory` that parent and child both hold a copy of, after the parent has written all of them.
fn duplicated_pages(memory: &Memory, gives_back: bool) -> usize {
    let folder = Folder::new();
    let path = folder.c_file();
    let (ours, theirs) = child::socket_pair().unwrap();
    let options = if gives_back { GIVE_BACK } else { KEEP };
    let mut work = || {
        use std::os::fd::AsFd;
        let made = checkpoint(&path, options, memory.base(), &whole(memory.len()));
        let done = [u8::from(made.is_ok())];
        // It stays until the parent has counted.
        let told = child::send_all(theirs.as_fd(), &done);
        i32::from(told.is_err() || child::receive(theirs.as_fd(), &mut [0]).is_err())
    };
    use std::os::fd::AsFd;
    // SAFETY: the work is fit for a child.
    let child: Child = unsafe { child::fork(theirs.as_fd(), &mut work) }.unwrap();
    let mut done = [0];
    child::receive(ours.as_fd(), &mut done).unwrap();
    assert_eq!(done, [1]);
    fill(memory.bytes(), 77);
    let pages = memory.len() / PAGE_SIZE;
    let held = Pagemap::open(Some(child.pid())).unwrap().read(memory.base() as usize, pages).unwrap();
    let count = held.iter().filter(|entry: &&PagemapEntry| entry.present && !entry.file_or_shared).count();
    child::send_all(ours.as_fd(), &[1]).unwrap();
    succeed(child);
    count
}

#[test]
fn memory_that_is_given_back_is_not_duplicated_by_the_writes_of_the_parent() {
    for is_huge in [false, true] {
        let memory = Memory::new(24 * MIB);
        if !is_huge {
            memory.no_huge_pages();
        }
        fill(memory.bytes(), 3);
        assert_eq!(duplicated_pages(&memory, false), memory.len() / PAGE_SIZE);
        assert_eq!(duplicated_pages(&memory, true), 0);
    }
}

#[test]
fn memory_without_references_is_neither_dumped_nor_given_back() {
    let (memory, other, folder) = (Memory::new(MIB), Memory::new(4 * MIB), Folder::new());
    fill(memory.bytes(), 1);
    fill(other.bytes(), 2);
    let path = folder.c_file();
    succeed(in_child(&mut || {
        let Ok(summary) = checkpoint(&path, GIVE_BACK, memory.base(), &whole(MIB)) else { return 1 };
        i32::from(summary.given_back_bytes != MIB as u64 || summary.dumped_bytes != MIB as u64 || summary.areas != 1)
    }));
    assert!(std::fs::metadata(folder.file()).unwrap().len() < 2 * MIB as u64);
}

#[test]
fn pages_that_were_never_written_or_are_zero_take_no_space() {
    let (memory, folder) = (Memory::new(64 * MIB), Folder::new());
    memory.no_huge_pages();
    for place in [0, 10 * MIB + 5000, 63 * MIB] {
        fill(&mut memory.bytes()[place..place + 10], 4);
    }
    let path = folder.c_file();
    succeed(in_child(&mut || i32::from(checkpoint(&path, GIVE_BACK, memory.base(), &whole(64 * MIB)).is_err())));
    assert!(std::fs::metadata(folder.file()).unwrap().len() < 2 * MIB as u64);
    // What is read has a page of zeros from then on.
    succeed(forked_checkpoint(&folder.c_file(), &memory, &whole(64 * MIB)));
    let facts = std::fs::metadata(folder.file()).unwrap();
    assert!(std::os::unix::fs::MetadataExt::blocks(&facts) * 512 < 2 * MIB as u64);
    assert_eq!(restored(&folder.file(), ReadMode::Map, &whole(64 * MIB))[0], memory.bytes());
}

#[test]
fn what_lies_in_shared_memory_on_the_stack_or_in_the_program_is_written_as_its_bytes() {
    let (shared, folder) = (AnonymousMap::shared(MIB).unwrap(), Folder::new());
    static WORD: [u8; 64] = [0x41; 64];
    let path = folder.c_file();
    // SAFETY: memory of this test.
    unsafe { shared.base().write_bytes(0x42, MIB) };
    let mut child = in_child(&mut || {
        let local = [0x43_u8; 100];
        let Ok(mut made) = Checkpoint::start(&path, GIVE_BACK) else { return 1 };
        for (from, len) in [(shared.base().cast_const(), MIB), (WORD.as_ptr(), 64), (local.as_ptr(), 100)] {
            // SAFETY: memory that is there.
            if unsafe { made.write(from, len, PassMode::Reference) }.is_err() {
                return 2;
            }
        }
        // SAFETY: a forked child.
        let Ok(summary) = (unsafe { made.end() }) else { return 3 };
        // SAFETY: `end` gives back private memory only, so the shared memory of this test is still there.
        let is_there = unsafe { shared.base().read() } == 0x42;
        i32::from(summary.areas != 0 || summary.given_back_bytes != 0 || !is_there)
    });
    assert_eq!(child.wait(), WaitStatus::Exited(0));
    let objects = [MIB, 64, 100].map(|len| Object { at: 0, len, passing: PassMode::Reference });
    let read = restored(&folder.file(), ReadMode::Load, &objects);
    assert_eq!(read, [vec![0x42; MIB], vec![0x41; 64], vec![0x43; 100]]);
}

#[test]
fn a_child_goes_on_with_the_allocator_whose_memory_it_has_given_back() {
    let folder = Folder::new();
    let path = folder.c_file();
    let boxes: Vec<Vec<u8>> = (0..2000_u32).map(|number| vec![number as u8; 100 + number as usize % 900]).collect();
    let mut work = || {
        let Ok(mut made) = Checkpoint::start(&path, GIVE_BACK) else { return 1 };
        for object in &boxes {
            // SAFETY: an object of the heap, which this child leaves alone until the end.
            if unsafe { made.write(object.as_ptr(), object.len(), PassMode::Reference) }.is_err() {
                return 2;
            }
        }
        // SAFETY: a forked child.
        let Ok(summary) = (unsafe { made.end() }) else { return 3 };
        let more: Vec<String> = (0..2000).map(|number| format!("{number:0200}")).collect();
        let sound = more.iter().enumerate().all(|(number, text)| text.ends_with(&number.to_string()));
        let same = boxes.iter().enumerate().all(|(number, bytes)| bytes.iter().all(|&byte| byte == number as u8));
        i32::from(!sound || !same || summary.given_back_bytes == 0)
    };
    // SAFETY: by the C library, which leaves the allocator in order; no other thread of this process holds a lock that is used here.
    let child = unsafe { child::fork_by_library(&mut work) }.unwrap();
    succeed(child);
    let objects: Vec<Object> =
        boxes.iter().map(|bytes| Object { at: 0, len: bytes.len(), passing: PassMode::Reference }).collect();
    assert_eq!(restored(&folder.file(), ReadMode::Map, &objects), boxes);
}

#[test]
fn a_parent_with_threads_that_allocate_and_write_is_checkpointed_as_it_was() {
    let (memory, done) = (Memory::new(8 * MIB), AtomicBool::new(false));
    fill(memory.bytes(), 11);
    let before = memory.bytes().to_vec();
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    std::hint::black_box(vec![1_u8; 100_000]);
                }
            });
        }
        for _ in 0..10 {
            let folder = Folder::new();
            succeed(forked_checkpoint(&folder.c_file(), &memory, &whole(8 * MIB)));
            assert!(restored(&folder.file(), ReadMode::Map, &whole(8 * MIB))[0] == before);
        }
        done.store(true, Ordering::Relaxed);
    });
}

#[test]
fn a_process_with_several_threads_is_not_allowed_to_give_memory_back() {
    let (memory, folder) = (Memory::new(MIB), Folder::new());
    let (done, waits) = std::sync::mpsc::channel::<()>();
    let other = std::thread::spawn(move || waits.recv());
    let error = checkpoint(&folder.c_file(), GIVE_BACK, memory.base(), &whole(MIB)).unwrap_err();
    assert!(matches!(error, CheckpointError::Threads { count } if count > 1), "{error}");
    checkpoint(&folder.c_file(), KEEP, memory.base(), &whole(MIB)).unwrap();
    assert_eq!(folder.names(), ["checkpoint"]);
    drop(done);
    let _ = other.join();
}

#[test]
fn memory_that_grows_shrinks_or_goes_between_the_calls_is_found_as_it_is_at_the_end() {
    let (memory, folder) = (Memory::new(4 * MIB), Folder::new());
    let path = folder.c_file();
    fill(memory.bytes(), 6);
    let gone = 2 * MIB;
    let mut child = in_child(&mut || {
        let Ok(mut made) = Checkpoint::start(&path, GIVE_BACK) else { return 1 };
        let objects = [
            Object { at: 0, len: MIB, passing: PassMode::Reference },
            Object { at: gone, len: 5000, passing: PassMode::Reference },
        ];
        if write_all(&mut made, memory.base(), &objects).is_err() {
            return 2;
        }
        // New memory, which the checkpoint does not know yet, and memory that goes although an object is in it.
        let Ok(new) = AnonymousMap::private(MIB) else { return 3 };
        // SAFETY: memory of this child's.
        let written = unsafe {
            new.base().write_bytes(0x55, MIB);
            made.write(new.base(), MIB, PassMode::Reference)
        };
        // SAFETY: memory of this child's, into which no reference exists; that it loses an object's memory is what is tested.
        let unmapped =
            unsafe { quire_sys::map::protect(memory.base().add(gone), MIB, quire_sys::map::Protection::Read) };
        // SAFETY: a forked child.
        i32::from(written.is_err() || unmapped.is_err() || unsafe { made.end() }.is_err())
    });
    assert_eq!(child.wait(), WaitStatus::Exited(0));
    let mut restore = Restore::open(&folder.file(), ReadMode::Map).unwrap();
    let mut bytes = vec![0; MIB];
    assert_eq!(restore.read(&mut bytes).unwrap(), MIB);
    assert!(bytes == memory.bytes()[..MIB]);
    let error = restore.read(&mut bytes[..5000]).unwrap_err();
    assert!(matches!(error, RestoreError::Unmapped { .. }) && error.to_string().contains("unmapped"), "{error}");
}

#[test]
fn an_object_that_is_not_mapped_is_refused_and_the_others_are_kept() {
    let (memory, folder) = (Memory::new(MIB), Folder::new());
    let mut made = Checkpoint::start(&folder.c_file(), KEEP).unwrap();
    let beyond = memory.base().wrapping_add(MIB - 10);
    // SAFETY: references to memory that isn't mapped are allowed, and refused.
    unsafe {
        let error = made.write(beyond, 100, PassMode::Reference).unwrap_err();
        assert!(matches!(error, CheckpointError::NotMapped { len: 100, .. }), "{error}");
        assert!(matches!(made.write(beyond, usize::MAX, PassMode::Reference), Err(CheckpointError::TooLong { .. })));
        made.write(memory.base(), 100, PassMode::Reference).unwrap();
        made.end().unwrap();
    }
    assert_eq!(restored(&folder.file(), ReadMode::Load, &whole(100)), [vec![0; 100]]);
}

#[test]
fn one_checkpoint_at_a_time_is_written_to_a_name() {
    let (memory, folder) = (Memory::new(MIB), Folder::new());
    let path: CString = folder.c_file();
    let first = Checkpoint::start(&path, KEEP).unwrap();
    assert!(matches!(Checkpoint::start(&path, KEEP), Err(CheckpointError::Busy)));
    drop(first);
    assert!(folder.names().is_empty());
    checkpoint(&path, KEEP, memory.base(), &whole(MIB)).unwrap();
}
