//! Faults: the power goes at any step, the device is full or fails, the process is killed, any byte of the file is wrong.

mod common;

use std::ffi::CString;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use common::*;
use quire_device::{
    Device, DeviceOperation, Directory, FaultInjector, FaultTrigger, InjectedFault, MemoryDirectory as Disk, PowerCut,
    errno,
};
use quire_mdc::format::{self, Footer, Header};
use quire_mdc::{Checkpoint, CheckpointError, DumpTarget, PassMode, ReadMode, Restore, RestoreError};
use quire_sys::buffer::Buffer;
use quire_sys::mem::PAGE_SIZE;
use quire_sys::transfer::{Direction, Extent, Transfer};
use quire_sys::write_queue::WriteSink;
use zerocopy::{FromBytes, IntoBytes};

const NAME: &str = "checkpoint";
const NEW: &str = "checkpoint.mdc-tmp";

/// A file of a simulated directory.
struct Simulated {
    directory: Arc<dyn Directory>,
    device: Arc<dyn Device>,
}

impl Simulated {
    fn create(directory: Arc<dyn Directory>) -> io::Result<Self> {
        let _ = directory.remove(NEW);
        let device = directory.create(NEW).map_err(io::Error::other)?;
        Ok(Self { directory, device })
    }
}

impl WriteSink for Simulated {
    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn write(&mut self, bytes: &[u8], offset: u64) -> io::Result<()> {
        let mut buffer = Buffer::new(bytes.len()).unwrap();
        buffer[..bytes.len()].copy_from_slice(bytes);
        let extents = vec![Extent { offset, start: 0, len: bytes.len() }];
        let mut transfer = Transfer { direction: Direction::Write, buffer, extents, tag: 0 };
        self.device.run(&mut transfer).map_err(io::Error::other)
    }
}

impl DumpTarget for Simulated {
    fn flush(&mut self) -> io::Result<()> {
        self.device.flush().map_err(io::Error::other)
    }

    fn rename(&mut self) -> io::Result<()> {
        self.directory.rename(NEW, NAME).map_err(io::Error::other)
    }

    fn flush_names(&mut self) -> io::Result<()> {
        self.directory.sync().map_err(io::Error::other)
    }

    fn remove(&mut self) {
        let _ = self.directory.remove(NEW);
    }

    unsafe fn replace_memory(&self, _: *mut u8, _: usize, _: u64) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

/// Memory with a few objects, some of them too large for one chunk or unit.
fn world(seed: u64) -> (Memory, Vec<Object>) {
    let memory = Memory::new(1 << 20);
    memory.no_huge_pages();
    fill(memory.bytes(), seed);
    memory.bytes()[300_000..500_000].fill(0);
    let objects = [
        (0, 600_000, PassMode::Reference),
        (700_000, 300_000, PassMode::Value),
        (100, 5, PassMode::Reference),
        (650_000, 90, PassMode::Reference),
    ];
    (memory, objects.map(|(at, len, passing)| Object { at, len, passing }).into())
}

fn save(directory: Arc<dyn Directory>, world: &(Memory, Vec<Object>)) -> Result<(), CheckpointError> {
    let target = Simulated::create(directory).map_err(|source| CheckpointError::System { call: "creating", source })?;
    let mut made = Checkpoint::start_on(target, KEEP)?;
    write_all(&mut made, world.0.base(), &world.1)?;
    // SAFETY: no memory is given back.
    unsafe { made.end() }.map(|_| ())
}

fn expected(world: &(Memory, Vec<Object>)) -> Vec<Vec<u8>> {
    contents(world.0.bytes(), &world.1)
}

fn found(disk: &Disk, objects: &[Object]) -> Result<Vec<Vec<u8>>, RestoreError> {
    let mut restore = Restore::from_bytes(NAME, disk.bytes(NAME).unwrap_or_default())?;
    restore.verify()?;
    read_all(&mut restore, objects)
}

#[test]
fn whenever_the_power_goes_the_old_or_the_new_checkpoint_is_whole() {
    let (old, new) = (world(1), world(2));
    let (steps, all) = {
        let disk = Disk::new();
        save(Arc::new(disk.clone()), &old).unwrap();
        let steps = disk.steps();
        save(Arc::new(disk.clone()), &new).unwrap();
        (steps, disk.steps())
    };
    assert!(all - steps > 8, "{steps} {all}");
    let cuts = [PowerCut::LoseAll, PowerCut::KeepAll].into_iter().chain((0..10).map(PowerCut::KeepSome));
    let cuts: Vec<PowerCut> = cuts.collect();
    let mut seen = [0; 2];
    for step in steps..=all {
        let disk = Disk::new();
        save(Arc::new(disk.clone()), &old).unwrap();
        disk.power_off_at(step);
        let result = save(Arc::new(disk.clone()), &new);
        assert_eq!(result.is_ok(), step == all, "{result:?}");
        for &cut in &cuts {
            let objects = found(&disk.after_power_cut(cut), &new.1).unwrap();
            let is_new = objects == expected(&new);
            assert!(is_new || objects == expected(&old), "step {step}, {cut:?}");
            assert!(is_new || result.is_err(), "a checkpoint that ended well was lost at step {step}, {cut:?}");
            seen[usize::from(is_new)] += 1;
        }
    }
    assert!(seen[0] > 50 && seen[1] > 5, "{seen:?}");
}

#[test]
fn a_full_or_failing_disk_is_told_and_leaves_the_old_checkpoint() {
    let (old, new) = (world(1), world(2));
    let mut struck = 0;
    let faults = [InjectedFault::Error(errno::ENOSPC), InjectedFault::Torn(errno::EIO)];
    let actions = [
        DeviceOperation::Create,
        DeviceOperation::Write,
        DeviceOperation::Flush,
        DeviceOperation::Rename,
        DeviceOperation::SyncDirectory,
    ];
    for (action, fault) in actions.into_iter().flat_map(|action| faults.map(|fault| (action, fault))) {
        for turn in 0.. {
            let disk = Disk::new();
            save(Arc::new(disk.clone()), &old).unwrap();
            let faulty =
                Arc::new(FaultInjector::new(Arc::new(disk.clone()), vec![(FaultTrigger::Nth(action, turn), fault)]));
            let result = save(faulty.clone(), &new);
            if faulty.struck() == 0 {
                assert!(result.is_ok() && turn > 0, "{action:?} {turn} {result:?}");
                break;
            }
            struck += 1;
            match result {
                Err(CheckpointError::NotDurable { .. }) => assert!(found(&disk, &new.1).unwrap() == expected(&new)),
                Ok(()) => panic!("{action:?} {turn}: a fault was not told"),
                Err(_) => {
                    assert!(found(&disk, &new.1).unwrap() == expected(&old));
                    assert_eq!(disk.list().unwrap(), [NAME], "{fault:?} {turn}");
                }
            }
        }
    }
    assert!(struck > 20, "{struck}");
}

#[test]
fn after_a_failed_write_every_call_fails_and_the_end_too() {
    let new = world(2);
    let rules = vec![(FaultTrigger::Nth(DeviceOperation::Write, 3), InjectedFault::Error(errno::ENOSPC))];
    let faulty = Arc::new(FaultInjector::new(Arc::new(Disk::new()), rules));
    let mut made = Checkpoint::start_on(Simulated::create(faulty).unwrap(), KEEP).unwrap();
    let mut failed = None;
    for _ in 0..20 {
        // SAFETY: an object of the world.
        let done = unsafe { made.write(new.0.base(), 300_000, PassMode::Value) };
        failed = failed.or(done.err());
    }
    assert!(matches!(failed, Some(CheckpointError::System { call: "writing the log", .. })), "{failed:?}");
    // SAFETY: an object of the world, whose memory is there until the end of the test; with `KEEP` no memory is given back.
    unsafe {
        assert!(matches!(made.write(new.0.base(), 5, PassMode::Value), Err(CheckpointError::Failed)));
        assert!(matches!(made.end(), Err(CheckpointError::Failed)));
    }
}

#[test]
fn a_child_that_is_killed_at_any_moment_leaves_the_old_or_the_new_checkpoint() {
    let (folder, old, new) = (Folder::new(), world(1), world(2));
    let path: CString = folder.c_file();
    succeed(forked_checkpoint(&path, &old.0, &old.1));
    for turn in 0..30_u64 {
        let child = forked_checkpoint(&path, &new.0, &new.1);
        // Any moment will do: nothing is expected of which one it is.
        for spent in 0..turn * turn * 20_000 {
            std::hint::black_box(spent);
        }
        child.kill();
        drop(child);
        let read = restored(&folder.file(), ReadMode::Load, &new.1);
        assert!(read == expected(&old) || read == expected(&new), "turn {turn}");
    }
    succeed(forked_checkpoint(&path, &new.0, &new.1));
    assert!(restored(&folder.file(), ReadMode::Load, &new.1) == expected(&new));
    assert_eq!(folder.names(), [NAME]);
}

fn valid() -> (Vec<u8>, Vec<Object>, Vec<Vec<u8>>) {
    let (disk, world) = (Disk::new(), world(3));
    save(Arc::new(disk.clone()), &world).unwrap();
    let wanted = expected(&world);
    (disk.bytes(NAME).unwrap(), world.1, wanted)
}

/// Reads all of it; what is read is right, or an error.
fn outcome(bytes: Vec<u8>, objects: &[Object], wanted: &[Vec<u8>]) -> Result<(), RestoreError> {
    let mut restore = Restore::from_bytes(NAME, bytes)?;
    let read = read_all(&mut restore, objects)?;
    assert!(read == wanted, "wrong contents were read");
    Ok(())
}

#[test]
fn a_wrong_byte_in_any_structure_is_found() {
    let (bytes, objects, wanted) = valid();
    outcome(bytes.clone(), &objects, &wanted).unwrap();
    let footer = Footer::read_from_bytes(&bytes[bytes.len() - PAGE_SIZE..]).unwrap();
    let (dump, table) = (footer.dump_offset.get() as usize, footer.table_offset.get() as usize);
    let header: Vec<usize> = (0..PAGE_SIZE).step_by(61).chain(0..40).collect();
    let log = (PAGE_SIZE..PAGE_SIZE + 20).chain((PAGE_SIZE..PAGE_SIZE + 300_000).step_by(30_011));
    let unit = [dump, dump + 4095, dump + format::UNIT_BYTES, dump + format::UNIT_BYTES + 70_000];
    let entries = table..bytes.len();
    let places = header.into_iter().chain(log).chain(unit).chain(entries.step_by(13));
    for place in places {
        for bit in [0, 7] {
            let mut wrong = bytes.clone();
            wrong[place] ^= 1 << bit;
            let error = outcome(wrong, &objects, &wanted).expect_err(&format!("byte {place} was not missed"));
            let is_named = matches!(error, RestoreError::Foreign { .. }) && place < 8;
            assert!(error.is_damage() || is_named, "{place}: {error}");
        }
    }
}

#[test]
fn a_file_that_was_cut_off_is_refused() {
    let (bytes, objects, wanted) = valid();
    for len in (0..bytes.len()).step_by(40_009).chain([1, 7, 8, 4095, 4096, 8192, bytes.len() - 1, bytes.len() - 4096])
    {
        assert!(outcome(bytes[..len].to_vec(), &objects, &wanted).is_err(), "{len}");
    }
    let mut longer = bytes;
    longer.extend([0; PAGE_SIZE]);
    assert!(outcome(longer, &objects, &wanted).is_err());
}

#[test]
fn other_files_and_newer_versions_are_named() {
    let (mut bytes, ..) = valid();
    let foreign = Restore::from_bytes("x", b"REDIS0011 and so on".to_vec()).unwrap_err();
    assert!(foreign.to_string().starts_with("x is not a checkpoint of mdc"), "{foreign}");
    let mut header = Header::read_from_bytes(&bytes[..PAGE_SIZE]).unwrap();
    header.version = 2.into();
    header.checksum = header.own_checksum().into();
    bytes[..PAGE_SIZE].copy_from_slice(header.as_bytes());
    let newer = Restore::from_bytes("x", bytes).unwrap_err();
    assert!(matches!(newer, RestoreError::Version { found: 2, .. }), "{newer}");
    let folder = Folder::new();
    assert!(matches!(Restore::open(&folder.file(), ReadMode::Map), Err(RestoreError::Missing { .. })));
    assert!(matches!(
        Restore::open(std::path::Path::new("/dev/null"), ReadMode::Map),
        Err(RestoreError::System { .. })
    ));
}
