//! A range larger than 4 GiB, little of which is ever touched.

use quire_snapshot::{Mechanism, OriginOptions, PAGE_SIZE};

use crate::common::attach_or_skip;
use crate::common::memory::{Kind, Memory, read, write};

const LEN: usize = 5 << 30;

pub fn a_range_beyond_four_gib_is_cut_and_read(mechanism: Mechanism) {
    let memory = Memory::new(Kind::Small, LEN / PAGE_SIZE);
    let Some(origin) = attach_or_skip(mechanism, memory.span(), &OriginOptions::default()) else { return };
    let places = [0, 4096 + 5, (2 << 30) - 3, (4 << 30) - 8, 4 << 30, (4 << 30) + 12_345, LEN - 16];
    let put = |value: u8| {
        for at in places {
            origin.prepare_write(at..at + 16);
            write(origin.base(), at, &[value; 16]);
        }
    };
    put(1);
    let first = origin.cut().unwrap();
    put(2);
    let second = origin.cut().unwrap();
    let again = first.cut().unwrap();
    put(3);
    for (view, value) in [(&first, 1), (&second, 2), (&again, 1)] {
        for at in places {
            let mut bytes = [0; 16];
            view.read(at, &mut bytes).unwrap();
            // The places overlap: the later one of two is on top.
            assert_eq!(bytes, [value; 16], "byte {at}");
        }
        let mut bytes = [9; 64];
        view.read((3 << 30) + 1, &mut bytes).unwrap();
        assert_eq!(bytes, [0; 64]);
        assert!(view.read(LEN - 63, &mut bytes).is_err());
    }
    drop(first);
    drop(origin);
    let mut bytes = [0; 16];
    again.read(LEN - 16, &mut bytes).unwrap();
    assert_eq!(bytes, [1; 16]);
    assert_eq!(read(memory.span.base(), LEN - 16, 16), [3; 16]);
}
