//! A program whose whole heap is the range that is snapshot, that of the mechanism included.
//!
//! Relies on an allocator of its own that takes everything from one range. Where pages are isolated, a touch of the heap would
//! wait for itself for ever.

use std::alloc::{GlobalAlloc, Layout};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use quire_snapshot::{Mechanism, OriginOptions, PAGE_SIZE, PageRange, attach, merges_in_background};
use quire_sys::area::AnonymousMap;

const HEAP_BYTES: usize = 64 << 20;

/// Hands out the range from its beginning; memory that is given back is not used again.
struct Heap;

static AREA: OnceLock<AnonymousMap> = OnceLock::new();
static NEXT: AtomicUsize = AtomicUsize::new(0);

fn base() -> *mut u8 {
    AREA.get_or_init(|| AnonymousMap::private(HEAP_BYTES).unwrap()).base()
}

// SAFETY: each call gets bytes of its own, aligned, or null.
unsafe impl GlobalAlloc for Heap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let mut start = NEXT.load(Ordering::Relaxed);
        loop {
            let at = start.next_multiple_of(layout.align());
            if at + layout.size() > HEAP_BYTES / 2 {
                return std::ptr::null_mut();
            }
            match NEXT.compare_exchange(start, at + layout.size(), Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return base().wrapping_add(at),
                Err(now) => start = now,
            }
        }
    }

    // SAFETY: nothing is taken back, so no block is given out twice.
    unsafe fn dealloc(&self, _: *mut u8, _: Layout) {}
}

#[global_allocator]
static HEAP: Heap = Heap;

#[test]
fn a_heap_can_be_snapshot_with_all_that_the_mechanism_keeps_there() {
    for background in [true, false] {
        // SAFETY: the area is never unmapped. References into it exist, whose bytes are changed by their owners only.
        let span = unsafe { PageRange::borrow(base(), HEAP_BYTES) }.unwrap();
        let options = OriginOptions { background, ..OriginOptions::default() };
        let origin = match attach(Mechanism::Scoot, span, &options) {
            Ok(origin) => origin,
            Err(error) => return quire_sys::testing::skipped(error),
        };
        println!("in the background: {background}, {:?}", merges_in_background());
        // Beyond what is handed out: no other thread has it.
        let ours = |page: usize| base().wrapping_add(HEAP_BYTES / 2 + page * PAGE_SIZE);
        for round in 1..20_u8 {
            // SAFETY: inside the area, used by this test alone.
            (0..2048).for_each(|page| unsafe { ours(page).write_volatile(round) });
            let kept = vec![round; 10_000];
            let at = kept.as_ptr() as usize - base() as usize;
            let view = origin.cut().unwrap();
            // SAFETY: inside the area, used by this test alone; the view reads its own copy.
            (0..2048).step_by(5).for_each(|page| unsafe { ours(page).write_volatile(100 + round) });
            let more: Vec<String> = (0..100).map(|number| format!("{number} of {round}")).collect();
            let mut shown = [0; 10_000];
            view.read(at, &mut shown).unwrap();
            assert_eq!(kept, shown);
            view.read(HEAP_BYTES / 2, &mut shown[..1]).unwrap();
            assert_eq!(shown[0], round);
            drop(view);
            if round % 2 == 0 {
                origin.settle();
            }
            assert!(more.iter().enumerate().all(|(number, text)| *text == format!("{number} of {round}")));
            // SAFETY: inside the area, which no other thread writes.
            let found = (0..2048).map(|page| unsafe { ours(page).read_volatile() });
            let expected = (0..2048).map(|page| if page % 5 == 0 { 100 + round } else { round });
            assert!(found.eq(expected));
        }
    }
}
