//! What connections read of a database, by whatever way it was changed.
//!
//! Relies on a file that tests change as SQLite's own VFS does, and as other programs do.

use super::*;
use quire_device::{Directory, DiskDirectory};
use quire_pool::{PoolConfig, TierConfig, TierSize};
use std::fs::File;
use std::os::unix::fs::FileExt;

const HEADERS: [HeaderBytes; 2] = [[1; 24], [2; 24]];

struct World {
    _dir: tempfile::TempDir,
    /// As SQLite's own VFS has it.
    file: File,
    database: Database,
}

impl World {
    fn new(budget_pages: usize) -> Self {
        Self::with_tier(budget_pages, TierSize::Off)
    }

    fn with_tier(budget_pages: usize, size: TierSize) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let file = File::options().create_new(true).read(true).write(true).open(dir.path().join("db")).unwrap();
        let device = DiskDirectory::new(dir.path()).open("db").unwrap();
        let tier = TierConfig { size, is_adaptive: false, page_cache: true, ..TierConfig::default() };
        let config = PoolConfig { budget_bytes: budget_pages * 4096, tier, ..PoolConfig::default() };
        Self { database: Database::new(Pool::new(config).unwrap(), device).unwrap(), file, _dir: dir }
    }

    fn write(&self, data: &[u8], offset: usize) {
        self.file.write_all_at(data, offset as u64).unwrap();
        self.database.note_write(offset as u64, data, true);
    }

    /// Of which only the first half comes to be in the file, and the caller is told of the failure.
    fn write_in_part(&self, data: &[u8], offset: usize) {
        self.file.write_all_at(&data[..data.len() / 2], offset as u64).unwrap();
        self.database.note_write(offset as u64, data, false);
    }

    fn byte(&self, offset: u64) -> u8 {
        let mut into = [0];
        assert!(self.database.read(&mut into, offset));
        into[0]
    }
}

#[test]
fn a_read_gives_what_was_written_last_or_leaves_it_to_the_file() {
    read_as_a_model(&World::new(8));
    let world = World::with_tier(8, TierSize::Bytes(64 * 4096));
    read_as_a_model(&world);
    let paths = world.database.pool.stats().paths;
    assert!(paths.read_tier > 0 && paths.evict_clean > 0, "{paths:?}");
}

fn read_as_a_model(world: &World) {
    let mut model: Vec<u8> = Vec::new();
    let mut dice = quire_rng::SplitMix64::new(11);
    let mut served = 0;
    for step in 0..3000 {
        let (offset, len) = (dice.below(100_000) as usize, 1 + dice.below(9000) as usize);
        match dice.below(11) {
            10 if offset + len <= model.len() => {
                world.write_in_part(&vec![step as u8; len], offset);
                model[offset..offset + len / 2].fill(step as u8);
            }
            0..4 => {
                world.write(&vec![step as u8; len], offset);
                model.resize(model.len().max(offset + len), 0);
                model[offset..offset + len].fill(step as u8);
            }
            4..8 => {
                let mut into = vec![0; len];
                if world.database.read(&mut into, offset as u64) {
                    assert!(into == model[offset..offset + len], "step {step}");
                    served += 1;
                }
            }
            8 => {
                world.file.set_len(offset as u64).unwrap();
                world.database.note_length(offset as u64);
                model.resize(offset, 0);
            }
            // Seldom: it gives all up, and leaves nothing for the second tier.
            _ if dice.below(10) == 0 => world.database.invalidate(),
            _ => {}
        }
    }
    assert!(served > 300, "{served}");
}

#[test]
fn a_read_that_fails_half_way_is_left_to_the_file() {
    let world = World::new(16);
    world.write(&[1; 16384], 0);
    assert_eq!(world.byte(0), 1);
    world.file.set_len(8192).unwrap();
    let mut into = [7; 16384];
    assert!(!world.database.read(&mut into, 0), "SQLite's own VFS says what the file has");
    assert!(world.database.read(&mut into[..8192], 0) && into[..8192] == [1; 8192]);
}

#[test]
fn what_another_program_has_changed_is_read_once_the_header_has_changed() {
    let world = World::new(16);
    world.write(&[1; 8192], 0);
    world.database.note_header(Some(HEADERS[0]));
    world.database.check_header(HEADERS[0]);
    assert_eq!((world.byte(5000), world.database.invalidations()), (1, 0));
    world.file.write_all_at(&[2; 8192], 0).unwrap();
    world.database.check_header(HEADERS[1]);
    assert_eq!((world.byte(5000), world.database.invalidations()), (2, 1));
    world.database.check_header(HEADERS[1]);
    assert_eq!(world.database.invalidations(), 1);
    world.database.note_header(None);
    world.database.check_header(HEADERS[1]);
    assert_eq!(world.database.invalidations(), 2, "what it was could not be read");
}

#[test]
fn only_checkpoints_of_other_processes_give_the_pages_up() {
    let world = World::new(16);
    let mut words = [0_u32; 33];
    let index = |words: &[u32; 33]| {
        // SAFETY: the words are aligned, as many as an index has, and used while they live.
        unsafe { WalIndex::new(words.as_ptr().cast()) }
    };
    world.database.add_wal_user(&index(&words));
    let first = world.database.invalidations();
    let given_up = || world.database.invalidations() - first;
    world.database.check_wal(&index(&words));
    assert_eq!(given_up(), 0);

    world.database.begin_checkpoint(&index(&words));
    (words[24], words[32]) = (5, 5);
    world.database.check_wal(&index(&words));
    world.database.end_checkpoint(&index(&words));
    world.database.check_wal(&index(&words));
    assert_eq!(given_up(), 0, "it was our own");

    words[32] = 9;
    world.database.check_wal(&index(&words));
    assert_eq!(given_up(), 1, "another process has begun a checkpoint");
    words[24] = 9;
    world.database.check_wal(&index(&words));
    assert_eq!(given_up(), 2, "and ended it: what was read in between may be half of it");

    // Nothing is left to be written back when a connection of ours begins the WAL anew.
    words[16 / 4] = 9;
    world.database.begin_wal_write(&index(&words));
    (words[8], words[24], words[32]) = (77, 0, 0);
    world.database.check_wal(&index(&words));
    assert_eq!(given_up(), 2, "another connection reads meanwhile");
    world.database.end_wal_write(&index(&words));
    world.database.check_wal(&index(&words));
    assert_eq!(given_up(), 2);
    words[8] = 78;
    world.database.check_wal(&index(&words));
    assert_eq!(given_up(), 3, "another process has begun it anew");

    world.database.check_length();
    assert_eq!(given_up(), 3);
    world.write(&[1; 8192], 0);
    world.file.set_len(4096).unwrap();
    world.database.check_length();
    assert_eq!(given_up(), 4, "another program has cut it off");
    world.database.check_length();
    world.database.remove_wal_user();
    world.database.check_header(HEADERS[0]);
    assert_eq!(given_up(), 5, "checkpoints that were made unseen");
}

#[test]
fn bytes_in_place_stay_as_they_were_whatever_is_done_to_the_file_meanwhile() {
    let world = World::new(64);
    world.write(&[1; 10 * 4096], 0);
    let one = world.database.lease(4096, 4096).unwrap();
    let wide = world.database.lease(8192, 16384).unwrap();
    world.write(&[2; 4096], 4096);
    assert_eq!((one[0], world.byte(4096), world.byte(8192)), (1, 2, 1));
    assert!(world.database.lease(4096, 4096).is_none(), "a copy is left to SQLite while older bytes are leased");
    world.file.set_len(8192).unwrap();
    world.database.note_length(8192);
    assert_eq!(wide[16383], 1);
    world.write(&[3; 10 * 4096], 0);
    world.database.invalidate();
    assert!(one.iter().chain(wide.iter()).all(|&byte| byte == 1));
    assert_eq!((world.byte(4096), world.byte(12288)), (3, 3));
    drop((one, wide));
    assert_eq!(world.database.lease(4096, 4096).unwrap()[4095], 3);
    assert_eq!(world.database.pool.stats().leases.pinned_pages, 0);
}

#[test]
fn bytes_in_place_are_what_a_read_gives_or_are_left_to_be_read() {
    let world = World::new(64);
    let mut dice = quire_rng::SplitMix64::new(5);
    let (mut held, mut served): (Vec<(Lease<'static>, Vec<u8>)>, u32) = (Vec::new(), 0);
    for step in 0..3000 {
        let (offset, pages) = (4096 * dice.below(40), 1 + dice.below(4));
        match dice.below(12) {
            0..3 => world.write(&vec![step as u8; 4096 * pages as usize], offset as usize),
            3 => {
                world.file.set_len(offset).unwrap();
                world.database.note_length(offset);
            }
            4 => world.database.invalidate(),
            5..8 if !held.is_empty() => drop(held.swap_remove(dice.below(held.len() as u64) as usize)),
            _ => {
                let mut read = vec![0; 4096 * pages as usize];
                if let Some(lease) = world.database.lease(offset, read.len()) {
                    world.file.read_exact_at(&mut read, offset).unwrap();
                    assert!(lease[..] == read, "step {step}");
                    held.push((lease, read));
                    served += 1;
                }
            }
        }
        assert!(held.iter().all(|(lease, seen)| lease[..] == seen[..]), "step {step}");
        let leases = world.database.pool.stats().leases;
        assert!(leases.pinned_pages <= leases.limit_pages, "step {step}: {leases:?}");
    }
    assert!(served > 300, "{served}");
}

#[test]
fn the_end_of_the_file_and_what_leases_may_not_pin_are_left_to_be_read() {
    let world = World::new(64);
    world.write(&[1; 40 * 4096], 0);
    assert!(world.database.lease(39 * 4096, 4096).is_none(), "nothing is behind its end");
    assert!(world.database.lease(38 * 4096, 4096).is_some());
    for (offset, len) in [(u64::MAX, 4096), (0, usize::MAX), (40 * 4096, 4096), (1 << 50, 1)] {
        assert!(world.database.lease(offset, len).is_none(), "{offset} {len}");
    }
    let limit = world.database.pool.stats().leases.limit_pages;
    assert!(0 < limit && limit < 38);
    let held: Vec<_> = (0..limit).map(|page| world.database.lease(page * 4096, 4096).unwrap()).collect();
    assert!(world.database.lease(limit * 4096, 4096).is_none());
    assert_eq!(world.byte(limit * 4096), 1, "it is read all the same");
    drop(held);
    assert!(world.database.lease(limit * 4096, 4096).is_some());
}
