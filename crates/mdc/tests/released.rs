//! Checkpoints that released versions have written can be read for ever.

mod common;

use common::*;
use quire_mdc::format::VERSION;
use quire_mdc::{PassMode, ReadMode, Restore};
use quire_sys::testing::unfold;

/// The objects of the fixture: over some units of the dump and over two chunks of the log, a short one, one amid zeros.
const OBJECTS: [Object; 4] = [
    Object { at: 0, len: 600_000, passing: PassMode::Reference },
    Object { at: 700_000, len: 300_000, passing: PassMode::Value },
    Object { at: 100, len: 5, passing: PassMode::Reference },
    Object { at: 640_250, len: 90, passing: PassMode::Reference },
];

/// What the program had in memory: 300 bytes of every 40,000, zeros between.
fn memory() -> Vec<u8> {
    let mut bytes = vec![0; 1 << 20];
    for (number, piece) in bytes.chunks_mut(40_000).enumerate() {
        piece.iter_mut().take(300).enumerate().for_each(|(at, byte)| *byte = (number * 7 + at) as u8);
    }
    bytes
}

#[test]
fn a_checkpoint_of_version_1_is_verified_and_read() {
    let file = unfold(include_bytes!("fixtures/checkpoint-v1.sparse"));
    assert_eq!((file[8], VERSION), (1, 1), "a new version gets a fixture of its own");
    let folder = Folder::new();
    std::fs::write(folder.file(), &file).unwrap();
    let expected = contents(&memory(), &OBJECTS);
    for reading in [ReadMode::Map, ReadMode::Load] {
        assert!(restored(&folder.file(), reading, &OBJECTS) == expected, "{reading:?}");
    }
    let mut restore = Restore::from_bytes("checkpoint", file).unwrap();
    restore.verify().unwrap();
    assert!(read_all(&mut restore, &OBJECTS).unwrap() == expected);
}
