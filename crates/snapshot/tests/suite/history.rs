//! Any history of writes, cuts, reads and drops, against a model: a vector for the origin, another for each view.

use std::sync::Arc;

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use quire_snapshot::{Mechanism, Origin, OriginOptions, PAGE_SIZE, View};

use crate::common::memory::{KINDS, Kind, Memory, read, write};
use crate::common::{all_options, attach_or_skip};

/// Views alive at once; a cut beyond that drops the oldest.
const MOST_VIEWS: usize = 6;

/// Where and how much, in parts of the range and in bytes.
#[derive(Clone, Copy, Debug)]
struct ByteRange {
    at: u32,
    len: u32,
}

#[derive(Clone, Debug)]
enum Step {
    Write(ByteRange, u8, bool),
    Cut,
    Read(usize, ByteRange),
    DropView(usize),
    CutView(usize),
    WriteView(usize, ByteRange, u8),
    Settle,
    DropOrigin,
}

#[derive(Clone, Debug)]
struct History {
    kind: Kind,
    pages: usize,
    options: OriginOptions,
    filled: bool,
    steps: Vec<Step>,
}

fn place() -> impl Strategy<Value = ByteRange> {
    let len = prop_oneof![6 => 1..200u32, 4 => 1..3 * PAGE_SIZE as u32, 1 => 1..6_000_000u32];
    (any::<u32>(), len).prop_map(|(at, len)| ByteRange { at, len })
}

fn step() -> impl Strategy<Value = Step> {
    let view = 0..MOST_VIEWS;
    prop_oneof![
        40 => (place(), any::<u8>(), any::<bool>()).prop_map(|(place, value, say)| Step::Write(place, value, say)),
        12 => Just(Step::Cut),
        14 => (view.clone(), place()).prop_map(|(view, place)| Step::Read(view, place)),
        8 => view.clone().prop_map(Step::DropView),
        5 => view.clone().prop_map(Step::CutView),
        8 => (view, place(), any::<u8>()).prop_map(|(view, place, value)| Step::WriteView(view, place, value)),
        4 => Just(Step::Settle),
        1 => Just(Step::DropOrigin),
    ]
}

fn history() -> impl Strategy<Value = History> {
    let pages = prop_oneof![Just(1), 2..40usize, 500..530usize, 1000..1300usize];
    let (kind, options) = (prop::sample::select(&KINDS[..]), prop::sample::select(all_options()));
    (kind, pages, options, any::<bool>(), prop::collection::vec(step(), 1..70))
        .prop_map(|(kind, pages, options, filled, steps)| History { kind, pages, options, filled, steps })
}

/// A mechanism and the model beside it.
struct Pair {
    origin: Option<Box<dyn Origin>>,
    views: Vec<(Arc<dyn View>, Vec<u8>)>,
    model: Vec<u8>,
    base: *mut u8,
    announced: bool,
    /// Views and origin go before it.
    _memory: Memory,
}

pub fn any_history_reads_as_at_the_cuts(mechanism: Mechanism) {
    let probe = Memory::new(Kind::Huge, 1);
    if attach_or_skip(mechanism, probe.span(), &OriginOptions::default()).is_none() {
        return;
    }
    let mut runner =
        TestRunner::new(Config { cases: 40, max_shrink_iters: 400, source_file: Some(file!()), ..Config::default() });
    let outcome = runner.run(&history(), |history| {
        Pair::new(mechanism, &history).play(&history.steps);
        Ok(())
    });
    if let Err(error) = outcome {
        panic!("{mechanism}: {error}");
    }
}

/// Bytes that differ from place to place, so that a shifted copy is found.
fn pattern(at: usize, len: usize, value: u8) -> Vec<u8> {
    (at..at + len).map(|offset| value.wrapping_add((offset / 61) as u8)).collect()
}

impl Pair {
    fn new(mechanism: Mechanism, history: &History) -> Self {
        let memory = Memory::new(history.kind, history.pages);
        let len = memory.span.len();
        let base = memory.span.base();
        let mut model = vec![0; len];
        if history.filled {
            model = pattern(0, len, 1);
            write(base, 0, &model);
        }
        let origin = attach_or_skip(mechanism, memory.span(), &history.options);
        let announced = mechanism.needs_announcement();
        Self { origin, views: Vec::new(), model, base, announced, _memory: memory }
    }

    fn play(mut self, steps: &[Step]) {
        for step in steps {
            self.step(step);
        }
        self.check_all();
        while !self.views.is_empty() {
            self.views.remove(self.views.len() / 2);
            self.check_all();
        }
        let held = self.origin.as_ref().map(|origin| {
            origin.settle();
            origin.stats().held_bytes_now
        });
        self.origin = None;
        self.check_all();
        assert!(held.is_none_or(|held| held <= 2 * self.model.len() as u64 + (4 << 20)), "{held:?} bytes for no view");
        // No origin has a hold on the range any more: it may be written at will, announced or not.
        self.model.fill(0xee);
        write(self.base, 0, &self.model);
        self.check_all();
    }

    fn place(&self, place: ByteRange) -> (usize, usize) {
        let at = ((u64::from(place.at) * self.model.len() as u64) >> 32) as usize;
        (at, (place.len as usize).min(self.model.len() - at))
    }

    fn step(&mut self, step: &Step) {
        match *step {
            Step::Write(place, value, announce) => self.write(place, value, announce),
            Step::Cut => {
                if let Some(origin) = &self.origin {
                    let view = origin.cut().unwrap();
                    self.add(view, self.model.clone());
                }
            }
            Step::Read(view, place) => {
                let (at, len) = self.place(place);
                if let Some((view, model)) = self.views.get(view) {
                    let mut bytes = vec![0xaa; len];
                    view.read(at, &mut bytes).unwrap();
                    assert_same(&bytes, &model[at..at + len], at);
                }
            }
            Step::DropView(view) => {
                if view < self.views.len() {
                    self.views.remove(view);
                }
            }
            Step::CutView(view) => {
                if let Some((view, model)) = self.views.get(view) {
                    let (again, model) = (view.cut().unwrap(), model.clone());
                    self.add(again, model);
                }
            }
            Step::WriteView(view, place, value) => {
                let (at, len) = self.place(place);
                if let Some((view, model)) = self.views.get_mut(view)
                    && let Some(base) = view.as_ptr()
                {
                    let bytes = pattern(at, len, value);
                    write(base, at, &bytes);
                    model[at..at + len].copy_from_slice(&bytes);
                }
            }
            Step::Settle => self.origin.iter().for_each(|origin| origin.settle()),
            Step::DropOrigin => self.origin = None,
        }
    }

    fn add(&mut self, view: Arc<dyn View>, model: Vec<u8>) {
        if self.views.len() == MOST_VIEWS {
            self.views.remove(0);
        }
        assert_eq!(view.len(), model.len());
        self.views.push((view, model));
    }

    fn write(&mut self, place: ByteRange, value: u8, announce: bool) {
        let (at, len) = self.place(place);
        match &self.origin {
            Some(origin) if announce || self.announced => origin.prepare_write(at..at + len),
            // There is no origin to announce the write to, but views that would need it.
            None if self.announced && !self.views.is_empty() => return,
            _ => {}
        }
        let bytes = pattern(at, len, value);
        write(self.base, at, &bytes);
        self.model[at..at + len].copy_from_slice(&bytes);
    }

    fn check_all(&self) {
        assert_same(&read(self.base, 0, self.model.len()), &self.model, 0);
        let mut bytes = vec![0; self.model.len()];
        for (view, model) in &self.views {
            view.read(0, &mut bytes).unwrap();
            assert_same(&bytes, model, 0);
            if let Some(base) = view.as_ptr() {
                assert_same(&read(base, 0, model.len()), model, 0);
            }
            view.held_bytes();
        }
    }
}

fn assert_same(found: &[u8], expected: &[u8], at: usize) {
    if found != expected {
        let first = found.iter().zip(expected).position(|(found, expected)| found != expected).unwrap();
        let wrong = found.iter().zip(expected).filter(|(found, expected)| found != expected).count();
        let page = (at + first) / PAGE_SIZE;
        panic!(
            "byte {} (page {page}) is {:#x}, not {:#x}; {wrong} bytes are wrong",
            at + first,
            found[first],
            expected[first]
        );
    }
}
