//! Lists that get much shorter in steps: at every point a list is what it was or what the whole command makes of it, and at the instant
//! at which that is, few of its nodes are freed or moved. An image cut at any step, work that is given up and memory that is refused
//! have nothing of it left.

use std::collections::VecDeque;
use std::ops::Range;

use proptest::prelude::*;
use quire_store::list::{self, End};
use quire_store::{
    CopyStep, DbId, Element, EncodingLimits, ImageLocation, Keyspace, RestoreMode, Store, StoreConfig, StoreError,
    string,
};

const DB: DbId = DbId(0);
const OWNER: u64 = 7;
const BUDGET: usize = 100;
const KEY: &[u8] = b"list";
/// As many nodes as elements, more than are freed or moved at once on either side of a cut.
const LEN: u64 = 3000;
/// So many are freed or moved at once.
const AT_ONCE: u64 = 512;

/// A store in which a node of a list has so many elements.
fn config(node: i64) -> StoreConfig {
    let mut limits = EncodingLimits::default();
    limits.set(&list::MAX_NODE, node);
    StoreConfig {
        max_memory_bytes: 64 << 20,
        budget_bytes: 1 << 20,
        seed: Some(2026),
        limits,
        ..StoreConfig::default()
    }
}

fn elements(range: Range<u64>) -> Vec<Vec<u8>> {
    range.map(|number| number.to_string().into_bytes()).collect()
}

fn push(store: &mut Keyspace, end: End, elements: &[Vec<u8>]) -> Result<(), StoreError> {
    let mut list = list::open_mut(store, DB, KEY).unwrap();
    list.make_room(elements.iter().map(Vec::as_slice))?;
    elements.iter().try_for_each(|element| list.push(end, element).map(drop))
}

fn filled() -> Store {
    let mut store = Store::create(config(1)).unwrap();
    push(&mut store, End::Back, &elements(0..LEN)).unwrap();
    store
}

fn text(element: Element<'_>) -> Vec<u8> {
    element.text(&mut itoa::Buffer::new()).to_vec()
}

fn all(store: &mut Keyspace) -> Vec<Vec<u8>> {
    let list = list::view(store, DB, KEY).unwrap();
    let (len, mut elements) = (list.len().unwrap(), Vec::new());
    list.range(0..len, |element| elements.push(text(element))).unwrap();
    elements
}

fn free_all(store: &mut Store) {
    while store.reclaim_step(1000).unwrap() > 0 {}
}

fn objects(store: &Store) -> u64 {
    store.arena().stats().objects
}

fn objects_of_an_empty_store() -> u64 {
    objects(&Store::create(config(1)).unwrap())
}

/// A command that makes a list shorter.
#[derive(Clone, Debug)]
enum Cut {
    Keep(Range<u64>),
    Pop(End, u64),
}

impl Cut {
    /// Asks for it; `None` while steps are under way.
    fn ask(&self, store: &mut Store, owner: u64) -> Result<Option<Vec<Vec<u8>>>, StoreError> {
        let (mut list, mut popped) = (list::open_mut(store, DB, KEY)?, Vec::new());
        let is_done = match self {
            Cut::Keep(range) => {
                let len = list.len()?;
                list.keep_in_steps(owner, range.start.min(len)..range.end.min(len).max(range.start.min(len)))?
            }
            Cut::Pop(end, count) => list
                .pop_in_steps(owner, *end, *count, &mut |element| {
                    popped.push(text(element));
                    true
                })?
                .is_some(),
        };
        assert!(is_done || popped.is_empty());
        Ok(is_done.then_some(popped))
    }

    /// What it makes of a list, and what it returns.
    fn apply(&self, list: &mut VecDeque<Vec<u8>>) -> Vec<Vec<u8>> {
        match self {
            Cut::Keep(range) => {
                list.truncate(range.end.max(range.start) as usize);
                list.drain(..(range.start as usize).min(list.len()));
                Vec::new()
            }
            Cut::Pop(End::Front, count) => (0..*count).map_while(|_| list.pop_front()).collect(),
            Cut::Pop(End::Back, count) => (0..*count).map_while(|_| list.pop_back()).collect(),
        }
    }
}

/// Those for which neither what goes nor what stays lies near an end.
fn cuts() -> [Cut; 6] {
    [
        Cut::Keep(1000..2000),
        Cut::Keep(1400..1410),
        Cut::Keep(600..2999),
        Cut::Pop(End::Front, 1300),
        Cut::Pop(End::Back, 600),
        Cut::Pop(End::Front, 2400),
    ]
}

/// Asks until it is done, with steps between; returns the reply and the steps.
fn run(store: &mut Store, cut: &Cut) -> (Vec<Vec<u8>>, usize) {
    let mut steps = 0;
    loop {
        if let Some(popped) = cut.ask(store, OWNER).unwrap() {
            return (popped, steps);
        }
        loop {
            steps += 1;
            if store.copy_step(BUDGET).unwrap() != CopyStep::More {
                break;
            }
        }
    }
}

#[test]
fn a_long_list_is_cut_at_one_instant_that_frees_few_nodes() {
    for (cut, node) in cuts().iter().flat_map(|cut| [(cut, 1), (cut, 3)]) {
        let mut store = Store::create(config(node)).unwrap();
        let len = LEN * node as u64;
        push(&mut store, End::Back, &elements(0..len)).unwrap();
        let cut = match cut {
            // Through the middle of nodes.
            Cut::Keep(range) => Cut::Keep(range.start * node as u64 + 1..range.end * node as u64 - 1),
            Cut::Pop(end, count) => Cut::Pop(*end, count * node as u64 + 1),
        };
        store.set_expiry(DB, KEY, Some(99_000)).unwrap();
        let mut expected = VecDeque::from(elements(0..len));
        let reply = cut.apply(&mut expected);
        store.watch(1, DB, KEY);
        let changes = store.changes();
        assert_eq!(cut.ask(&mut store, OWNER).unwrap(), None);
        let mut steps = 1;
        while store.copy_step(BUDGET).unwrap() == CopyStep::More {
            assert!(cut.ask(&mut store, OWNER).unwrap().is_none() && store.copied_bytes(OWNER) > 0);
            steps += 1;
        }
        assert_eq!((steps, store.longest_copy_step()), (LEN as usize / BUDGET, BUDGET), "{cut:?}");
        assert_eq!((store.changes(), all(&mut store)), (changes, elements(0..len)));
        let before = objects(&store);
        assert_eq!(cut.ask(&mut store, OWNER).unwrap(), Some(reply), "{cut:?}");
        // A node whose elements go only in part may get another place; a list of few elements is packed.
        assert!(before - objects(&store) <= 6, "{cut:?}: {before} {}", objects(&store));
        assert_eq!((store.stats().reclaim_pending, store.copy_owner()), (2, None), "{cut:?}");
        assert!(store.check_value(DB, KEY).unwrap());
        assert!(all(&mut store).iter().eq(&expected), "{cut:?}");
        assert_eq!((store.changes() - changes, store.take_touched()), (len - expected.len() as u64, vec![1]));
        assert_eq!(store.expiry(DB, KEY).unwrap(), Some(Some(99_000)));
        let mut turns = 0;
        while store.reclaim_step(BUDGET).unwrap() > 0 {
            turns += 1;
        }
        assert!(turns > 5, "{turns}");
        assert!(store.check_value(DB, KEY).unwrap() && all(&mut store).iter().eq(&expected), "{cut:?}");
        assert!(objects(&store) < before - (len - expected.len() as u64) / node as u64, "{cut:?}");
        // It goes on as a list that never was longer.
        push(&mut store, End::Front, &elements(0..100)).unwrap();
        push(&mut store, End::Back, &elements(0..100)).unwrap();
        assert!(store.check_value(DB, KEY).unwrap());
        assert_eq!(all(&mut store).len(), expected.len() + 200);
        store.flush_all().unwrap();
        free_all(&mut store);
        assert_eq!(objects(&store), objects_of_an_empty_store(), "{cut:?}");
    }
}

#[test]
fn a_cut_that_frees_and_moves_few_nodes_is_at_once() {
    let (few, len) = (AT_ONCE, LEN);
    for cut in [
        Cut::Pop(End::Front, few),
        Cut::Pop(End::Back, few),
        Cut::Keep(200..len - (few - 200)),
        Cut::Keep(0..few),
        Cut::Keep(len - few..len),
        Cut::Keep(few - 10..few),
        Cut::Keep(0..0),
        Cut::Keep(0..len),
        Cut::Pop(End::Front, len),
        Cut::Pop(End::Back, 0),
    ] {
        let mut store = filled();
        let (mut expected, before) = (VecDeque::from(elements(0..len)), objects(&store));
        let reply = cut.apply(&mut expected);
        assert_eq!(run(&mut store, &cut), (reply, 0), "{cut:?}");
        assert!(before.saturating_sub(objects(&store)) <= few + 50, "{cut:?}");
        assert!(all(&mut store).iter().eq(&expected), "{cut:?}");
    }
    for cut in [
        Cut::Pop(End::Front, few + 1),
        Cut::Pop(End::Back, few + 1),
        Cut::Keep(200..len - (few - 199)),
        Cut::Keep(1..few + 1),
    ] {
        assert!(run(&mut filled(), &cut).1 > 0, "{cut:?}");
    }
    let mut short = Store::create(config(1)).unwrap();
    push(&mut short, End::Back, &elements(0..AT_ONCE - 1)).unwrap();
    assert_eq!(run(&mut short, &Cut::Keep(100..300)).1, 0);
}

type Event = fn(&mut Store);

#[test]
fn a_list_that_changes_meanwhile_is_cut_as_it_is_then() {
    let events: [Event; 8] = [
        |store| assert!(store.remove(DB, KEY).unwrap()),
        |store| assert!(store.rename(DB, KEY, b"elsewhere").unwrap()),
        |store| assert_eq!(store.flush_all().unwrap(), 1),
        |store| store.set_now_ms(5000),
        |store| push(store, End::Front, &elements(7..9)).unwrap(),
        |store| assert!(list::open_mut(store, DB, KEY).unwrap().set(1500, b"new").unwrap()),
        |store| list::open_mut(store, DB, KEY).unwrap().keep(500..2900).unwrap(),
        |store| {
            // It may get the same places again.
            store.remove(DB, KEY).unwrap();
            free_all(store);
            push(store, End::Back, &elements(1..LEN + 1)).unwrap();
        },
    ];
    for (cut, whole) in cuts().iter().flat_map(|cut| [(cut, false), (cut, true)]) {
        for (number, event) in events.iter().enumerate() {
            let mut store = filled();
            store.set_expiry(DB, KEY, Some(5000)).unwrap();
            assert_eq!(cut.ask(&mut store, OWNER).unwrap(), None);
            while store.copy_step(BUDGET).unwrap() == CopyStep::More && whole {}
            event(&mut store);
            if !whole {
                assert_eq!(store.copy_step(BUDGET).unwrap(), CopyStep::Ended);
            }
            let mut expected = VecDeque::from(all(&mut store));
            let reply = cut.apply(&mut expected);
            assert_eq!(run(&mut store, cut).0, reply, "{cut:?} {number}");
            assert!(all(&mut store).iter().eq(&expected), "{cut:?} {number}");
            store.flush_all().unwrap();
            free_all(&mut store);
            assert_eq!(objects(&store), objects_of_an_empty_store(), "{cut:?} {number}");
        }
    }
}

#[test]
fn a_cut_that_is_given_up_at_any_step_leaves_the_list_and_no_memory() {
    for steps in 0..LEN as usize / BUDGET + 1 {
        let mut store = filled();
        let before = objects(&store);
        assert_eq!(cuts()[0].ask(&mut store, OWNER).unwrap(), None);
        for _ in 0..steps {
            store.copy_step(BUDGET).unwrap();
        }
        if steps % 2 == 0 {
            store.cancel_copy(OWNER).unwrap();
        } else {
            // Another command of the same client, which needs no steps.
            Cut::Pop(End::Front, 0).ask(&mut store, OWNER).unwrap();
            Cut::Keep(0..LEN).ask(&mut store, OWNER).unwrap().unwrap();
        }
        free_all(&mut store);
        assert_eq!((objects(&store), store.copy_owner()), (before, None), "{steps}");
        assert!(store.check_value(DB, KEY).unwrap() && all(&mut store) == elements(0..LEN));
    }
}

#[test]
fn an_image_cut_at_any_step_has_the_whole_list_and_none_of_the_memory() {
    let dir = tempfile::tempdir().unwrap();
    let place = ImageLocation::new(dir.path(), "dump.quire");
    let all_steps = LEN as usize / BUDGET;
    for steps in [0, 1, all_steps / 2, all_steps - 1, all_steps, all_steps + 1] {
        let mut store = filled();
        let before = objects(&store);
        assert_eq!(cuts()[0].ask(&mut store, OWNER).unwrap(), None);
        for _ in 0..steps.min(all_steps) {
            store.copy_step(BUDGET).unwrap();
        }
        let mut expected = VecDeque::from(elements(0..LEN));
        if steps > all_steps {
            cuts()[0].ask(&mut store, OWNER).unwrap().unwrap();
            cuts()[0].apply(&mut expected);
        }
        let pending = store.stats().reclaim_pending;
        store.save_blocking(&place).unwrap();
        assert_eq!(store.stats().reclaim_pending, pending, "the work goes on here");
        let (mut again, _) = Store::open(config(1), &place, RestoreMode::Load, false).unwrap();
        assert_eq!(again.stats().reclaim_pending, 2);
        free_all(&mut again);
        assert!(again.check_value(DB, KEY).unwrap() && all(&mut again).iter().eq(&expected), "{steps}");
        if steps <= all_steps {
            assert_eq!(objects(&again), before, "{steps}");
            cuts()[0].apply(&mut expected);
            run(&mut store, &cuts()[0]);
        }
        free_all(&mut store);
        assert!(all(&mut store).iter().eq(&expected), "{steps}");
        again.flush_all().unwrap();
        free_all(&mut again);
        assert_eq!(objects(&again), objects_of_an_empty_store());
    }
}

#[test]
fn a_cut_without_memory_for_two_tables_is_done_at_once() {
    let mut store = Store::create(StoreConfig { max_memory_bytes: 8 << 20, ..config(1) }).unwrap();
    // Until not even the smallest object has room.
    for len in [500, 100, 20, 1] {
        while push(&mut store, End::Back, &[vec![b'x'; len]]).is_ok() {}
    }
    while string::append(&mut store, DB, b"other", b"x").is_ok() {}
    let len = list::view(&mut store, DB, KEY).unwrap().len().unwrap();
    assert!(len > LEN, "{len}");
    let cut = Cut::Keep(len / 3..len * 2 / 3);
    let mut expected = VecDeque::from(all(&mut store));
    cut.apply(&mut expected);
    run(&mut store, &cut);
    assert!(store.check_value(DB, KEY).unwrap() && all(&mut store).iter().eq(&expected));
    store.flush_all().unwrap();
    free_all(&mut store);
    assert_eq!(objects(&store), objects_of_an_empty_store());
}

#[derive(Clone, Debug)]
enum Op {
    Ask(Cut),
    /// In percents of the list.
    AskPart(u64, u64),
    Step(usize),
    Push(End, u64),
    Set(u64),
    Delete,
    Reclaim,
    Cancel,
    Restart,
}

fn op() -> impl Strategy<Value = Op> {
    let end = || prop_oneof![Just(End::Front), Just(End::Back)];
    prop_oneof![
        3 => (end(), 0u64..3000).prop_map(|(end, count)| Op::Ask(Cut::Pop(end, count))),
        6 => (0u64..100, 0u64..100).prop_map(|(start, part)| Op::AskPart(start, part)),
        12 => (1usize..2000).prop_map(Op::Step),
        6 => (end(), 1u64..3000).prop_map(|(end, count)| Op::Push(end, count)),
        1 => (0u64..3000).prop_map(Op::Set),
        1 => Just(Op::Delete),
        3 => Just(Op::Reclaim),
        1 => Just(Op::Cancel),
        1 => Just(Op::Restart),
    ]
}

struct Pair {
    store: Store,
    model: VecDeque<Vec<u8>>,
    /// What the client has asked for and has no reply to.
    asked: Option<Cut>,
    node: i64,
    dir: tempfile::TempDir,
}

impl Pair {
    fn run(&mut self, op: &Op) {
        let (store, model) = (&mut self.store, &mut self.model);
        match *op {
            Op::Ask(ref cut) => {
                self.asked.get_or_insert_with(|| cut.clone());
                self.ask();
            }
            Op::AskPart(start, part) => {
                let len = model.len() as u64;
                let (start, part) = (len * start / 100, len * part / 100);
                self.asked.get_or_insert(Cut::Keep(start..(start + part).min(len)));
                self.ask();
            }
            Op::Step(budget) => {
                if store.copy_step(budget).unwrap() == CopyStep::Ended {
                    self.ask();
                }
            }
            Op::Push(end, count) => {
                push(store, end, &elements(0..count)).unwrap();
                match end {
                    End::Front => elements(0..count).into_iter().for_each(|element| model.push_front(element)),
                    End::Back => model.extend(elements(0..count)),
                }
            }
            Op::Set(at) => {
                let found = list::open_mut(store, DB, KEY).unwrap().set(at, b"set").unwrap();
                assert_eq!(found, model.get_mut(at as usize).map(|slot| *slot = b"set".to_vec()).is_some());
            }
            Op::Delete => {
                assert_eq!(store.remove(DB, KEY).unwrap(), !model.is_empty());
                model.clear();
            }
            Op::Reclaim => drop(store.reclaim_step(300).unwrap()),
            Op::Cancel => {
                store.cancel_copy(OWNER).unwrap();
                self.asked = None;
            }
            Op::Restart => self.restart(),
        }
    }

    /// The client asks (again) for what it wants.
    fn ask(&mut self) {
        let Some(cut) = self.asked.take() else { return };
        match cut.ask(&mut self.store, OWNER).unwrap() {
            None => self.asked = Some(cut),
            Some(popped) => assert_eq!(popped, cut.apply(&mut self.model)),
        }
    }

    /// An image is cut as things are, and the store goes on as what was restored from it.
    fn restart(&mut self) {
        let place = ImageLocation::new(self.dir.path(), "dump.quire");
        self.store.save_blocking(&place).unwrap();
        (self.store, _) = Store::open(config(self.node), &place, RestoreMode::Load, false).unwrap();
        self.asked = None;
        self.check();
    }

    fn check(&mut self) {
        assert_eq!(self.store.check_value(DB, KEY).unwrap(), !self.model.is_empty());
        assert!(all(&mut self.store).iter().eq(&self.model));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(60) })]

    #[test]
    fn lists_that_are_cut_between_other_commands_are_what_the_model_says(
        node in 1i64..4,
        ops in prop::collection::vec(op(), 1..60),
    ) {
        let store = Store::create(config(node)).unwrap();
        let dir = tempfile::tempdir().unwrap();
        let mut pair = Pair { store, model: VecDeque::new(), asked: None, node, dir };
        for op in &ops {
            pair.run(op);
            pair.check();
        }
        pair.store.cancel_copy(OWNER).unwrap();
        pair.store.flush_all().unwrap();
        free_all(&mut pair.store);
        prop_assert_eq!(objects(&pair.store), objects_of_an_empty_store());
    }
}
