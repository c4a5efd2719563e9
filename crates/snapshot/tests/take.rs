//! Views that are taken in the order of addresses while the origin is written, against memory at the cut, with every mechanism.
//!
//! Relies on the origin's writer announcing its writes, as some mechanisms want it.

use std::sync::atomic::{AtomicBool, Ordering};

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use quire_snapshot::{Mechanism, OriginOptions, PAGE_SIZE, PageRange, View, ViewError, attach, probe};

/// What is done with a view.
#[derive(Clone, Debug)]
struct Plan {
    pages: usize,
    /// Pages that are written before the cut, each with its byte.
    filled: Vec<(usize, u8)>,
    /// How much is taken at once, in turn.
    sizes: Vec<usize>,
    /// After so many takes a view of the view is cut.
    cut_after: usize,
}

fn plan() -> impl Strategy<Value = Plan> {
    let pages = prop_oneof![1..80usize, 500..1600usize];
    let size = prop_oneof![1..5000usize, Just(PAGE_SIZE), 200_000..300_000usize];
    let filled = prop::collection::vec((any::<prop::sample::Index>(), 1..=255u8), 0..40);
    (pages, filled, prop::collection::vec(size, 1..5), 0..6usize).prop_map(|(pages, filled, sizes, cut_after)| {
        let filled = filled.into_iter().map(|(page, byte)| (page.index(pages), byte)).collect();
        Plan { pages, filled, sizes, cut_after }
    })
}

/// What all takes from `from` on give, with zeros where they pass over.
fn take_all(view: &dyn View, plan: &Plan, from: usize, mut after: impl FnMut(usize, usize)) -> Vec<u8> {
    let (mut bytes, mut at, mut number) = (vec![0; view.len()], from, 0);
    loop {
        // Small takes of a large view would take long.
        let size = plan.sizes[number % plan.sizes.len()].max(view.len() / 200);
        let mut to = vec![0xEE; size];
        let taken = view.take(at, &mut to).unwrap();
        if taken.is_empty() {
            assert_eq!(taken.start, view.len());
            return bytes;
        }
        assert!(at <= taken.start && taken.len() <= size && taken.end <= view.len(), "{taken:?} from {at}");
        bytes[taken.clone()].copy_from_slice(&to[..taken.len()]);
        after(number, at);
        (at, number) = (taken.end, number + 1);
    }
}

/// Ends the writer also when the test fails.
struct StopOnDrop<'a>(&'a AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn run(mechanism: Mechanism, plan: &Plan) {
    let span = PageRange::allocate(plan.pages * PAGE_SIZE).unwrap();
    let (base, len) = (span.base() as usize, span.len());
    let origin = attach(mechanism, span, &OriginOptions::default()).unwrap();
    let put = |page: usize, at: usize, byte: u8| {
        let offset = page * PAGE_SIZE + at;
        origin.prepare_write(offset..offset + 1);
        // SAFETY: a byte of the origin's range, of which this test has the only writer at a time.
        unsafe { ((base + offset) as *mut u8).write_volatile(byte) };
    };
    let mut model = vec![0; len];
    for &(page, byte) in &plan.filled {
        let at = usize::from(byte) * 13 % PAGE_SIZE;
        put(page, at, byte);
        model[page * PAGE_SIZE + at] = byte;
    }
    let view = origin.cut().unwrap();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut page = 0;
            while !stop.load(Ordering::Relaxed) {
                put(page % plan.pages, page * 31 % PAGE_SIZE, 0xAA);
                page += 7;
            }
        });
        let _stop = StopOnDrop(&stop);
        let whole = view.cut().unwrap();
        let mut later = None;
        let taken = take_all(&*view, plan, 0, |number, from| {
            let mut byte = [0];
            if mechanism == Mechanism::Fork && from > 0 {
                let error = view.read(from - 1, &mut byte).unwrap_err();
                assert!(matches!(error, ViewError::Taken { taken, .. } if taken == from), "{error}");
                assert!(matches!(view.take(from - 1, &mut byte), Err(ViewError::Taken { .. })));
            }
            view.read(len - 1, &mut byte).unwrap();
            assert_eq!(byte[0], model[len - 1]);
            if number == plan.cut_after {
                later = Some((from, view.cut().unwrap()));
            }
        });
        assert!(taken == model, "taken");
        if let Some((from, later)) = later {
            assert!(
                take_all(&*later, plan, from, |_, _| {})[from..] == model[from..],
                "taken of a view cut from {from} on"
            );
        }
        assert!(take_all(&*whole, plan, 0, |_, _| {}) == model, "taken of a view that was cut before");
    });
    assert!(view.take(len + 1, &mut [0]).is_err());
}

#[test]
fn what_is_taken_is_memory_at_the_cut_while_the_origin_is_written() {
    for mechanism in Mechanism::ALL {
        if let Err(error) = probe(mechanism) {
            quire_sys::testing::skipped(format_args!("{mechanism}: {error}"));
            continue;
        }
        let cases = if mechanism == Mechanism::Fork { 30 } else { 8 };
        let config = Config { cases, failure_persistence: None, ..Config::default() };
        let tried = TestRunner::new(config).run(&plan(), |plan| {
            run(mechanism, &plan);
            Ok(())
        });
        tried.unwrap();
    }
}
