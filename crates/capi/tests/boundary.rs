//! The functions as C calls them, from Rust: what `cargo test` can see without a C compiler. The whole suite is in C, in
//! `tests/c`.
//!
//! Relies on nothing but the exported functions.

use core::ffi::{CStr, c_void};
use std::ptr::{null, null_mut};

use quire::mechanism::{quire_mechanism, quire_mechanism_name};
use quire::message::quire_last_error;
use quire::range::{
    quire_cut, quire_prepare_write, quire_range, quire_range_adopt, quire_range_base, quire_range_create,
    quire_range_mechanism, quire_range_release, quire_range_settle, quire_range_size,
};
use quire::snapshot::{
    quire_read, quire_snapshot, quire_snapshot_cut, quire_snapshot_data, quire_snapshot_release, quire_snapshot_size,
};
use quire::stats::{quire_range_stats, quire_stats};
use quire::status::quire_status::{self, QUIRE_INVALID, QUIRE_OK};
use quire::support::quire_mechanism_supported;

const SIZE: usize = 4 << 20;

fn last_error() -> String {
    // SAFETY: valid until the next failure of this thread.
    unsafe { CStr::from_ptr(quire_last_error()) }.to_str().unwrap().into()
}

fn range_of(mechanism: i32) -> *mut quire_range {
    let mut range = null_mut();
    // SAFETY: usual options and a place for the range.
    assert_eq!(unsafe { quire_range_create(SIZE, mechanism, null(), &mut range) }, QUIRE_OK, "{}", last_error());
    range
}

fn byte_of(snapshot: *const quire_snapshot, offset: usize) -> Result<u8, quire_status> {
    let mut byte = 0_u8;
    // SAFETY: a live snapshot, and one byte of ours.
    match unsafe { quire_read(snapshot, offset, (&raw mut byte).cast(), 1) } {
        QUIRE_OK => Ok(byte),
        status => Err(status),
    }
}

#[test]
fn every_mechanism_that_works_here_goes_all_the_way() {
    for mechanism in 1..=6 {
        // SAFETY: no room for a reason.
        if unsafe { quire_mechanism_supported(mechanism, null_mut(), 0) } != QUIRE_OK {
            quire_sys::testing::skipped(last_error());
            continue;
        }
        let range = range_of(mechanism);
        let (mut snapshot, mut copy) = (null_mut(), null_mut());
        // SAFETY: a live range and live snapshots throughout; only this thread writes, inside the range.
        unsafe {
            assert_eq!((quire_range_size(range), quire_range_mechanism(range) as i32), (SIZE, mechanism));
            let base = quire_range_base(range).cast::<u8>();
            let write = |value| {
                assert_eq!(quire_prepare_write(range, 5000, 1), QUIRE_OK);
                base.add(5000).write_volatile(value);
            };
            write(1);
            assert_eq!(quire_cut(range, &mut snapshot), QUIRE_OK, "{}", last_error());
            write(2);
            assert_eq!(quire_snapshot_cut(snapshot, &mut copy), QUIRE_OK, "{}", last_error());
            assert_eq!(
                (byte_of(snapshot, 5000), byte_of(copy, 5000), base.add(5000).read_volatile()),
                (Ok(1), Ok(1), 2)
            );
            assert_eq!((byte_of(snapshot, SIZE), quire_snapshot_size(snapshot)), (Err(QUIRE_INVALID), SIZE));
            let data = quire_snapshot_data(snapshot).cast::<u8>();
            assert!(data.is_null() || *data.add(5000) == 1);
            assert_eq!(quire_snapshot_release(snapshot), QUIRE_OK);
            assert_eq!(quire_range_settle(range), QUIRE_OK);
            let mut stats = quire_stats { struct_size: size_of::<quire_stats>(), ..Default::default() };
            assert_eq!((quire_range_stats(range, &mut stats), stats.cuts), (QUIRE_OK, 1));
            assert_eq!(quire_range_release(range), QUIRE_OK);
            assert_eq!(byte_of(copy, 5000), Ok(1), "a snapshot outlives its range");
            assert_eq!(quire_snapshot_release(copy), QUIRE_OK);
        }
    }
}

#[test]
fn what_isn_t_there_is_told_and_never_touched() {
    let mut range = std::ptr::dangling_mut::<quire_range>();
    // SAFETY: null is allowed everywhere, and told.
    unsafe {
        assert!(quire_range_base(null()).is_null() && last_error() == "`range` is NULL");
        assert_eq!(quire_range_mechanism(null()), quire_mechanism::QUIRE_BEST);
        assert_eq!(quire_cut(null(), null_mut()), QUIRE_INVALID);
        assert_eq!(quire_read(null(), 0, null_mut(), 1), QUIRE_INVALID);
        assert_eq!(quire_range_create(SIZE, 9, null(), &mut range), QUIRE_INVALID);
        assert!(range.is_null() && quire_mechanism_name(9).is_null() && last_error().contains('9'));
        assert_eq!(quire_range_adopt(null_mut::<c_void>(), SIZE, 6, null(), &mut range), QUIRE_INVALID);
        assert_eq!((quire_range_release(null_mut()), quire_snapshot_release(null_mut())), (QUIRE_OK, QUIRE_OK));
    }
}
