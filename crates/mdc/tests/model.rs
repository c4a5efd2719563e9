//! What is restored is what the objects were at the fork, whatever the parent does meanwhile.

mod common;

use common::*;
use proptest::prelude::*;
use quire_mdc::{PassMode, ReadMode};

const BYTES: usize = 3 << 20;

fn object() -> impl Strategy<Value = Object> {
    let len = prop_oneof![4 => 1_usize..64, 3 => 64_usize..9000, 1 => 9000_usize..700_000];
    let passing = prop_oneof![Just(PassMode::Value), Just(PassMode::Reference), Just(PassMode::Reference)];
    (len, 0.0..1.0_f64, passing).prop_map(|(len, place, passing)| {
        let at = (place * (BYTES - len) as f64) as usize;
        Object { at, len, passing }
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_restore_reads_what_was_there_at_the_fork(
        objects in prop::collection::vec(object(), 0..60),
        filled in prop::collection::vec((0_usize..BYTES / 8192, 1_usize..20), 0..30),
        is_huge in any::<bool>(),
        seed in any::<u64>(),
    ) {
        let memory = Memory::new(BYTES);
        if !is_huge {
            memory.no_huge_pages();
        }
        for (number, &(place, pages)) in filled.iter().enumerate() {
            let end = (place * 8192 + pages * 4096).min(BYTES);
            fill(&mut memory.bytes()[place * 8192..end], seed ^ number as u64);
        }
        let folder = Folder::new();
        let child = forked_checkpoint(&folder.c_file(), &memory, &objects);
        let model = contents(memory.bytes(), &objects);
        // The parent goes on while the child is at work: its writes must not show.
        for turn in 0..3 {
            fill(memory.bytes(), seed.wrapping_add(turn));
        }
        succeed(child);
        for reading in [ReadMode::Map, ReadMode::Load] {
            prop_assert_eq!(&restored(&folder.file(), reading, &objects), &model);
        }
        prop_assert_eq!(folder.names(), ["checkpoint"]);
    }
}

#[test]
fn objects_may_be_read_in_other_pieces_than_they_were_written_in() {
    let (memory, folder) = (Memory::new(1 << 20), Folder::new());
    fill(memory.bytes(), 5);
    let objects: Vec<Object> = (0..200)
        .map(|number| Object {
            at: number * 5000,
            len: 1 + number * 7,
            passing: if number % 3 == 0 { PassMode::Value } else { PassMode::Reference },
        })
        .collect();
    succeed(forked_checkpoint(&folder.c_file(), &memory, &objects));
    let all = contents(memory.bytes(), &objects).concat();
    let mut restore = quire_mdc::Restore::open(&folder.file(), ReadMode::Map).unwrap();
    let mut read = vec![0; all.len() + 10];
    let mut done = 0;
    for piece in (1..).map(|number| number * 13 % 1009 + 1) {
        let end = (done + piece).min(read.len());
        let count = restore.read(&mut read[done..end]).unwrap();
        done += count;
        if count < end - (done - count) {
            break;
        }
    }
    assert!(done == all.len() && read[..done] == all);
}

#[test]
fn a_log_of_many_chunks_and_an_empty_checkpoint_come_back() {
    let (memory, folder) = (Memory::new(1 << 20), Folder::new());
    fill(memory.bytes(), 9);
    let objects: Vec<Object> =
        (0..40_000).map(|number| Object { at: number * 20, len: 5 + number % 40, passing: PassMode::Value }).collect();
    succeed(forked_checkpoint(&folder.c_file(), &memory, &objects));
    assert_eq!(restored(&folder.file(), ReadMode::Map, &objects), contents(memory.bytes(), &objects));
    succeed(forked_checkpoint(&folder.c_file(), &memory, &[]));
    assert!(restored(&folder.file(), ReadMode::Load, &[]).is_empty());
}
