//! Histories of threads that count in pages: each can be put in one order that agrees with real time and with what every
//! operation has seen, and a sync that has returned has made durable all that had ended before it.
//!
//! Relies on counters: the value that an addition finds is its place in the order, so checking a history takes no search.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use proptest::prelude::*;
use quire_device::{
    Device, DeviceOperation, Directory, DiskDirectory, FaultInjector, FaultTrigger, InjectedFault, IoEngine,
    MemoryDirectory, errno,
};
use quire_pool::{Map, PageNo, Pool, PoolConfig, PoolError};
use quire_rng::SplitMix64;

use crate::common::{PAGE, Stop, cases, plain_map, seal, sealed, small_config, tier};

const PAGES: u64 = 10;
const THREADS: u64 = 4;
const ROUNDS: u64 = 250;

/// An operation on a page, with the moments when it was begun and had ended.
#[derive(Clone, Copy, Debug)]
struct Event {
    page: u64,
    begun: u64,
    ended: u64,
    what: What,
}

#[derive(Clone, Copy, Debug)]
enum What {
    /// Added one to what it found.
    Added(u64),
    /// Saw a value.
    Saw(u64),
    /// Made durable; this was found on the device afterwards.
    Synced(u64),
}

impl Event {
    /// Where the event belongs among those of its page: a value is seen after the addition that made it.
    fn place(&self) -> u64 {
        match self.what {
            What::Added(found) => 2 * found + 1,
            What::Saw(value) | What::Synced(value) => 2 * value,
        }
    }
}

/// Threads at work on one map.
struct Work<'a> {
    map: &'a Map,
    pool: &'a Pool,
    device: &'a dyn Device,
    clock: &'a AtomicU64,
}

impl Work<'_> {
    fn now(&self) -> u64 {
        self.clock.fetch_add(1, Ordering::SeqCst)
    }

    /// One operation; `None` if the device has failed.
    fn event(&self, page: u64, work: impl FnOnce() -> Result<What, PoolError>) -> Option<Event> {
        let begun = self.now();
        let what = match work() {
            Ok(what) => what,
            Err(PoolError::Device(error)) if error.errno == Some(errno::EIO) => return None,
            Err(error) => panic!("{error}"),
        };
        Some(Event { page, begun, ended: self.now(), what })
    }

    fn add(&self, page: u64) -> Option<Event> {
        self.event(page, || {
            let mut guard = self.map.write(PageNo(page))?;
            let found = sealed(&guard).expect("a page is whole");
            seal(&mut guard, found + 1);
            Ok(What::Added(found))
        })
    }

    fn read(&self, page: u64) -> Option<Event> {
        self.event(page, || Ok(What::Saw(sealed(&self.map.read(PageNo(page))?).expect("a page is whole"))))
    }

    fn optimistic_read(&self, page: u64) -> Option<Event> {
        self.event(page, || {
            let bytes = self.map.optimistic_read(PageNo(page), |view| {
                let mut bytes = vec![0; view.len()];
                view.copy_to(0, &mut bytes).map(|()| bytes)
            })?;
            Ok(What::Saw(sealed(&bytes.expect("the whole page")).expect("a validated read is whole")))
        })
    }

    fn sync(&self, page: u64) -> Option<Event> {
        let begun = self.now();
        self.map.flush(PageNo(page)..PageNo(page + 1)).unwrap();
        let ended = self.now();
        let mut bytes = vec![0; PAGE];
        // A read that the plan lets fail, or that meets the page being written once more, tells nothing.
        let read = self.device.read_at(page * PAGE as u64, &mut bytes).ok()?;
        let value = sealed(&bytes).filter(|_| read == PAGE)?;
        Some(Event { page, begun, ended, what: What::Synced(value) })
    }

    fn thread(&self, mut rng: SplitMix64) -> Vec<Event> {
        let mut events = Vec::new();
        for _ in 0..ROUNDS {
            let page = rng.below(PAGES);
            let event = match rng.below(16) {
                0..6 => self.add(page),
                6..9 => self.read(page),
                9..12 => self.optimistic_read(page),
                12 => self.sync(page),
                13 => {
                    self.map.prefetch(&[PageNo(page), PageNo((page + 3) % PAGES)]);
                    None
                }
                14 => {
                    self.map.dont_need(PageNo(page)..PageNo(PAGES));
                    None
                }
                _ => {
                    self.pool.evict(1 + rng.below(4) as usize);
                    None
                }
            };
            events.extend(event);
        }
        events
    }
}

/// Checks the history of one page.
fn check(page: u64, mut events: Vec<Event>) {
    let mut found: Vec<u64> = events
        .iter()
        .filter_map(|event| if let What::Added(found) = event.what { Some(found) } else { None })
        .collect();
    found.sort_unstable();
    assert_eq!(found, (0..found.len() as u64).collect::<Vec<_>>(), "page {page}: an addition was lost or made twice");
    let additions_before = |moment: u64| {
        let ended = |event: &&Event| matches!(event.what, What::Added(_)) && event.ended < moment;
        events.iter().filter(ended).count() as u64
    };
    for event in &events {
        if let What::Synced(value) = event.what {
            assert!(value >= additions_before(event.begun), "page {page}: not durable: {event:?}");
        }
    }
    events.retain(|event| !matches!(event.what, What::Synced(_)));
    events.sort_by_key(Event::place);
    let (mut latest_begun, mut at) = (0, 0);
    for place in events.chunk_by(|one, other| one.place() == other.place()) {
        for event in place {
            assert!(event.ended > latest_begun, "page {page}: {event:?} comes too late, after {:?}", &events[..at]);
        }
        at += place.len();
        latest_begun = place.iter().map(|event| event.begun).fold(latest_begun, u64::max);
    }
}

fn run(device: &Arc<dyn Device>, config: PoolConfig, seed: u64) {
    device.set_len(PAGES * PAGE as u64).unwrap();
    let pool = Pool::new(config).unwrap();
    let map = plain_map(&pool, Arc::clone(device));
    let (clock, stop) = (AtomicU64::new(1), Stop::default());
    let work = Work { map: &map, pool: &pool, device: &**device, clock: &clock };
    let events: Vec<Event> = std::thread::scope(|threads| {
        let _later = stop.later();
        // Pages go at every step.
        threads.spawn(|| {
            while !stop.is_set() {
                pool.evict(1);
                std::thread::yield_now();
            }
        });
        let workers: Vec<_> = (0..THREADS)
            .map(|thread| {
                let work = &work;
                threads.spawn(move || work.thread(SplitMix64::new(seed ^ (thread << 40))))
            })
            .collect();
        workers.into_iter().flat_map(|worker| worker.join().unwrap()).collect()
    });
    for page in 0..PAGES {
        check(page, events.iter().filter(|event| event.page == page).copied().collect());
    }
    map.sync().unwrap();
}

fn config(budget: usize, shards: usize) -> PoolConfig {
    // Half of the histories with a second tier.
    let tier = if budget.is_multiple_of(2) { tier(16) } else { PoolConfig::default().tier };
    PoolConfig { shards, writers: shards, queue_depth: 4, tier, ..small_config(budget) }
}

proptest! {
    #![proptest_config(cases(6))]

    #[test]
    fn histories_over_memory_have_an_order(seed: u64, budget in 4..14usize, shards in 1..3usize) {
        run(&MemoryDirectory::new().create("counters").unwrap(), config(budget, shards), seed);
    }

    #[test]
    fn histories_with_failing_reads_have_an_order(seed: u64, budget in 4..14usize, every in 3..20u64) {
        let rules = (1..2000).map(|step| (FaultTrigger::Nth(DeviceOperation::Read, step * every), InjectedFault::Error(errno::EIO)));
        let faulty = FaultInjector::new(Arc::new(MemoryDirectory::new()), rules.collect());
        run(&faulty.create("counters").unwrap(), config(budget, 1), seed);
    }
}

proptest! {
    #![proptest_config(cases(2))]

    #[test]
    fn histories_on_disk_have_an_order(seed: u64, budget in 4..14usize, threads: bool) {
        let folder = tempfile::tempdir().unwrap();
        let engine = if threads { IoEngine::Threads } else { IoEngine::Auto };
        let disk = DiskDirectory::new(folder.path()).with(Default::default(), engine);
        run(&disk.create("counters").unwrap(), config(budget, 2), seed);
    }
}

#[test]
#[should_panic(expected = "comes too late")]
fn a_history_that_has_no_order_is_found_out() {
    let event = |begun, ended, what| Event { page: 0, begun, ended, what };
    check(0, vec![event(1, 2, What::Added(0)), event(3, 4, What::Saw(1)), event(5, 6, What::Saw(0))]);
}

#[test]
#[should_panic(expected = "not durable")]
fn a_sync_that_came_back_too_soon_is_found_out() {
    let event = |begun, ended, what| Event { page: 0, begun, ended, what };
    check(0, vec![event(1, 2, What::Added(0)), event(3, 4, What::Synced(0))]);
}
