//! The mechanism against a simple model: a vector of bytes for the origin and one for each view.
//!
//! Relies on single-threaded steps; what threads can do to each other is tested in `races`.

use proptest::prelude::*;

use super::*;

const LEN: usize = 2 * REGION_SIZE + PAGE_SIZE;
/// Places that are written and compared: few, so that steps meet.
const PLACES: [usize; 9] = [
    0,
    1,
    PAGE_SIZE,
    5 * PAGE_SIZE + 77,
    REGION_SIZE - 1,
    REGION_SIZE,
    REGION_SIZE + 300 * PAGE_SIZE,
    2 * REGION_SIZE - PAGE_SIZE,
    LEN - 1,
];

#[derive(Clone, Debug)]
enum Step {
    Write { place: usize, value: u8 },
    Fill { value: u8 },
    Cut,
    WriteView { view: usize, place: usize, value: u8 },
    CutView { view: usize },
    Drop { view: usize },
    Settle,
    Pause,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        6 => (0..PLACES.len(), any::<u8>()).prop_map(|(place, value)| Step::Write { place, value }),
        1 => any::<u8>().prop_map(|value| Step::Fill { value }),
        4 => Just(Step::Cut),
        2 => (0..4_usize, 0..PLACES.len(), any::<u8>())
            .prop_map(|(view, place, value)| Step::WriteView { view, place, value }),
        1 => (0..4_usize).prop_map(|view| Step::CutView { view }),
        4 => (0..4_usize).prop_map(|view| Step::Drop { view }),
        1 => Just(Step::Settle),
        1 => Just(Step::Pause),
    ];
    prop::collection::vec(step, 1..40)
}

/// Only the places: comparing megabytes after each step would take its time.
type Model = [u8; PLACES.len()];

struct World {
    origin: ScootOrigin,
    model: Model,
    views: Vec<(Arc<dyn View>, Model)>,
}

impl World {
    fn step(&mut self, step: &Step) {
        let count = self.views.len().max(1);
        match *step {
            Step::Write { place, value } => {
                put(self.origin.base(), PLACES[place], value);
                self.model[place] = value;
            }
            Step::Fill { value } => {
                (0..LEN).step_by(PAGE_SIZE).for_each(|offset| put(self.origin.base(), offset, value));
                let whole = PLACES.iter().zip(&mut self.model).filter(|(place, _)| **place % PAGE_SIZE == 0);
                whole.for_each(|(_, byte)| *byte = value);
            }
            Step::Cut => self.views.push((self.origin.cut().unwrap(), self.model)),
            Step::WriteView { view, place, value } => {
                if let Some((view, model)) = self.views.get_mut(view % count) {
                    put(view.as_ptr().unwrap(), PLACES[place], value);
                    model[place] = value;
                }
            }
            Step::CutView { view } => {
                if let Some((view, model)) = self.views.get(view % count) {
                    let cut = (view.cut().unwrap(), *model);
                    self.views.push(cut);
                }
            }
            Step::Drop { view } => {
                if !self.views.is_empty() {
                    self.views.remove(view % count);
                }
            }
            Step::Settle => self.origin.settle(),
            Step::Pause => std::thread::sleep(std::time::Duration::from_millis(3)),
        }
    }

    fn check(&self) {
        let shown = PLACES.map(|place| get(self.origin.base(), place));
        assert_eq!(shown, self.model, "the origin");
        for (index, (view, model)) in self.views.iter().enumerate() {
            assert_eq!(&PLACES.map(|place| seen(&**view, place)), model, "view {index}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn origin_and_views_are_as_a_simple_model_has_them(
        steps in steps(),
        setting in 0..SETTINGS.len(),
        shift in 0..2_usize,
        precopy in prop::sample::select(vec![Precopy::None, Precopy::All, Precopy::Adaptive, Precopy::Threshold(20)]),
    ) {
        let setting = SETTINGS[setting];
        let memory = Reservation::new(LEN + REGION_SIZE).unwrap();
        memory.commit(0..memory.len()).unwrap();
        // SAFETY: the reservation outlives origin and views.
        let span = unsafe { PageRange::borrow(memory.base().wrapping_add(shift * 7 * PAGE_SIZE), LEN) }.unwrap();
        let options = OriginOptions { precopy, region_bytes: 32 << 10, keep_bytes: 0, ..options(setting) };
        let mut world = World { origin: attach(span, setting, &options), model: [0; PLACES.len()], views: Vec::new() };
        for step in &steps {
            world.step(step);
            world.check();
        }
    }
}
