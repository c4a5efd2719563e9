//! Random operations against a plain vector, in pools so small that nearly every operation evicts (or where each does), over
//! all kinds of devices and with pages of several sizes, with and without a second tier whose memory the kernel takes. Leases are kept
//! over the operations that follow, and must show what they showed at first.

use std::sync::Arc;

use proptest::prelude::*;
use quire_device::{
    CacheMode, Device, DeviceOperation, Directory, DiskDirectory, FaultInjector, FaultTrigger, InjectedFault, IoEngine,
    MemoryDirectory, errno,
};
use quire_pool::{Lease, Map, MapOptions, PageNo, Pool, PoolConfig, PoolError, TierCompression, TierConfig, TierSize};

use crate::common::{PAGE, cases};

/// Leases kept at a time; more of them would leave small pools too little.
const MOST_LEASES: usize = 3;
/// Pages that the file may grow to.
const MOST_PAGES: u64 = 40;

#[derive(Clone, Debug)]
enum Op {
    Read(u64),
    OptimisticRead(u64),
    Write(u64, u16, u8),
    Overwrite(u64, u8),
    Flush(u64, u64),
    Sync,
    Evict,
    Grow(u64),
    Prefetch(Vec<u64>),
    WillNeed(u64, u64),
    DontNeed(u64, u64),
    Discard(u64, u64),
    /// Bytes from an offset on, for so many pages' worth.
    Lease(u64, u64),
    /// One of the leases ends.
    EndLease(usize),
    Advise(u8),
    /// The kernel takes one page in so many of the second tier.
    TakeBack(u64, u64),
    /// The second tier shrinks to so many pages.
    Shrink(usize),
    /// Another program reads the file through the page cache.
    ReadElsewhere,
    Reopen,
}

fn operation() -> impl Strategy<Value = Op> {
    let page = || 0..MOST_PAGES;
    prop_oneof![
        8 => page().prop_map(Op::Read),
        4 => page().prop_map(Op::OptimisticRead),
        8 => (page(), 0..PAGE as u16, any::<u8>()).prop_map(|(page, at, byte)| Op::Write(page, at, byte)),
        2 => (page(), any::<u8>()).prop_map(|(page, byte)| Op::Overwrite(page, byte)),
        2 => (page(), page()).prop_map(|(from, to)| Op::Flush(from, to)),
        1 => Just(Op::Sync),
        1 => Just(Op::Evict),
        1 => (0..MOST_PAGES * PAGE as u64).prop_map(Op::Grow),
        2 => prop::collection::vec(page(), 0..12).prop_map(Op::Prefetch),
        1 => (page(), page()).prop_map(|(from, to)| Op::WillNeed(from, to)),
        1 => (page(), page()).prop_map(|(from, to)| Op::DontNeed(from, to)),
        1 => (page(), page()).prop_map(|(from, to)| Op::Discard(from, to)),
        4 => (0..MOST_PAGES * PAGE as u64, 0..3 * PAGE as u64).prop_map(|(offset, len)| Op::Lease(offset, len)),
        2 => (0..MOST_LEASES).prop_map(Op::EndLease),
        1 => (0..3u8).prop_map(Op::Advise),
        1 => (any::<u64>(), 1..4u64).prop_map(|(seed, one_in)| Op::TakeBack(seed, one_in)),
        1 => (0..64usize).prop_map(Op::Shrink),
        1 => Just(Op::ReadElsewhere),
        1 => Just(Op::Reopen),
    ]
}

/// How a map is made and used.
#[derive(Clone, Copy, Debug)]
struct Setting {
    budget_pages: usize,
    page_bytes: usize,
    len: usize,
    /// Everything that can go goes after every operation.
    evicts_always: bool,
    /// Pages of the second tier.
    tier_pages: usize,
    compression: TierCompression,
    page_cache: bool,
}

impl Setting {
    /// A length for pages of 4096 bytes, for pages of this size; odd as well.
    fn scaled(self, len: u64) -> u64 {
        let scale = (self.page_bytes / PAGE) as u64;
        len * scale - len % scale
    }

    fn config(self) -> PoolConfig {
        let budget_bytes = self.budget_pages * self.page_bytes;
        let size = TierSize::Bytes(self.tier_pages * self.page_bytes);
        let tier = TierConfig { size, compression: self.compression, page_cache: self.page_cache, is_adaptive: false };
        PoolConfig {
            budget_bytes,
            page_bytes: self.page_bytes,
            miss_timeout_ms: 2000,
            lease_percent: 50,
            tier,
            ..PoolConfig::default()
        }
    }
}

/// A map, what it should hold, and what has become of it.
struct Pair {
    pool: Arc<Pool>,
    device: Arc<dyn Device>,
    map: Option<Map>,
    model: Vec<u8>,
    /// Leases, and what they showed at first.
    leases: Vec<(Lease<'static>, Vec<u8>)>,
    setting: Setting,
    /// Writing has failed: dirty data stays readable until the map goes.
    poisoned: bool,
}

impl Pair {
    fn new(device: Arc<dyn Device>, setting: Setting) -> Self {
        let len = setting.scaled(setting.len as u64);
        device.set_len(len).unwrap();
        let pool = Pool::new(setting.config()).unwrap();
        let mut pair = Self {
            pool,
            device,
            map: None,
            model: vec![0; len as usize],
            leases: Vec::new(),
            setting,
            poisoned: false,
        };
        pair.open();
        pair
    }

    fn open(&mut self) {
        let reserve_bytes = MOST_PAGES * self.setting.page_bytes as u64;
        let options = MapOptions { reserve_bytes, read_ahead_pages: 4, ..MapOptions::default() };
        self.map = Some(self.pool.map(Arc::clone(&self.device), options).unwrap());
    }

    fn map(&self) -> &Map {
        self.map.as_ref().unwrap()
    }

    fn expected(&self, page: u64) -> Option<&[u8]> {
        let start = page as usize * self.setting.page_bytes;
        (start < self.model.len()).then(|| &self.model[start..self.model.len().min(start + self.setting.page_bytes)])
    }

    /// Whether an operation went well. It may fail as the device has, and outside the file.
    fn accept<T>(&mut self, page: Option<u64>, result: Result<T, PoolError>) -> Option<T> {
        match result {
            Ok(value) => {
                assert!(page.is_none_or(|page| self.expected(page).is_some()), "outside the file");
                Some(value)
            }
            Err(PoolError::Outside { page, .. }) => {
                assert!(self.expected(page.0).is_none());
                None
            }
            Err(PoolError::Device(error)) => {
                assert_eq!(error.errno, Some(errno::EIO));
                None
            }
            Err(PoolError::Poisoned { cause, .. }) => {
                assert_eq!(cause.errno, Some(errno::EIO));
                self.poisoned = true;
                None
            }
            // Everything is dirty, and can't be written any more.
            Err(PoolError::Exhausted { .. }) if matches!(self.map().sync(), Err(PoolError::Poisoned { .. })) => {
                self.poisoned = true;
                None
            }
            Err(other) => panic!("{other}"),
        }
    }

    fn write(&mut self, page: u64, change: impl Fn(&mut [u8]), whole: bool) {
        let map = self.map().clone();
        let result = if whole { map.overwrite(PageNo(page)) } else { map.write(PageNo(page)) };
        assert!(!self.poisoned || result.is_err(), "a poisoned map takes no writes");
        if let Some(mut guard) = self.accept(Some(page), result) {
            let start = page as usize * self.setting.page_bytes;
            assert_eq!(guard.len(), self.expected(page).unwrap().len());
            change(&mut guard);
            let end = start + guard.len();
            change(&mut self.model[start..end]);
        }
    }

    fn apply(&mut self, op: &Op) {
        let map = self.map().clone();
        match op {
            Op::Read(page) => {
                if let Some(guard) = self.accept(Some(*page), map.read(PageNo(*page))) {
                    assert_eq!(Some(&*guard), self.expected(*page), "page {page}");
                }
            }
            Op::OptimisticRead(page) => {
                let found = map.optimistic_read(PageNo(*page), |view| {
                    let mut bytes = vec![0; view.len()];
                    view.copy_to(0, &mut bytes).unwrap();
                    bytes
                });
                if let Some(bytes) = self.accept(Some(*page), found) {
                    assert_eq!(Some(&bytes[..]), self.expected(*page), "page {page}");
                }
            }
            Op::Write(page, at, byte) => {
                let at = usize::from(*at) * (self.setting.page_bytes / PAGE);
                let set = |bytes: &mut [u8]| {
                    if let Some(place) = bytes.get_mut(at) {
                        *place = *byte;
                    }
                };
                self.write(*page, set, false);
            }
            Op::Overwrite(page, byte) => self.write(*page, |bytes| bytes.fill(*byte), true),
            Op::Flush(from, to) => {
                self.accept(None, map.flush(PageNo(*from)..PageNo(*to)));
            }
            Op::Sync => {
                self.accept(None, map.sync());
            }
            Op::Grow(len) => {
                let len = self.setting.scaled(*len);
                if self.accept(None, map.grow(len)).is_some() && len as usize > self.model.len() {
                    self.model.resize(len as usize, 0);
                }
            }
            Op::Lease(offset, len) => self.lease(*offset, *len),
            Op::EndLease(index) => {
                if *index < self.leases.len() {
                    self.leases.swap_remove(*index);
                }
            }
            Op::Reopen => {
                drop(map);
                self.leases.clear();
                if !self.poisoned && self.map().sync().is_ok() {
                    self.map = None;
                    assert_eq!(self.pool.stats().resident_pages, 0, "memory has gone with the map");
                    self.open();
                }
            }
            _ => self.hint(op, &map),
        }
    }

    fn lease(&mut self, offset: u64, len: u64) {
        let (offset, len) = (self.setting.scaled(offset), self.setting.scaled(len) as usize);
        if self.leases.len() == MOST_LEASES {
            self.leases.remove(0);
        }
        let map = self.map().clone();
        if offset >= self.model.len() as u64 {
            assert!(matches!(map.try_lease(offset, len), Err(PoolError::Outside { .. })));
            return;
        }
        let result = match map.try_lease(offset, len) {
            // What is leased by then is this thread's own.
            Err(PoolError::LeaseLimit { .. }) => return,
            result => result,
        };
        let page = offset / self.setting.page_bytes as u64;
        if let Some(lease) = self.accept(Some(page), result) {
            let start = offset as usize;
            let expected = self.model[start..self.model.len().min(start + len)].to_vec();
            assert!(*lease == *expected, "a lease of {len} bytes at {offset}");
            self.leases.push((lease.into_owned(), expected));
        }
    }

    /// Operations that change where pages are, and nothing that a user of the map can see.
    fn hint(&self, op: &Op, map: &Map) {
        match op {
            Op::TakeBack(seed, one_in) => {
                self.pool.take_back_tier_memory(*seed, *one_in);
            }
            Op::ReadElsewhere => {
                if let Some(file) = self.device.as_file() {
                    let mut elsewhere = quire_sys::page_cache::open_cached(file).unwrap();
                    std::io::copy(&mut elsewhere, &mut std::io::sink()).unwrap();
                }
            }
            Op::Shrink(pages) => self.pool.shrink_tier(pages * self.setting.page_bytes),
            Op::Evict => {
                self.pool.evict(usize::MAX);
            }
            Op::Prefetch(pages) => {
                map.prefetch(&pages.iter().copied().map(PageNo).collect::<Vec<_>>());
            }
            Op::WillNeed(from, to) => map.will_need(PageNo(*from)..PageNo(*to)),
            Op::DontNeed(from, to) => {
                map.dont_need(PageNo(*from)..PageNo(*to));
            }
            Op::Discard(from, to) => map.discard(PageNo(*from)..PageNo(*to)),
            Op::Advise(0) => map.normal(),
            Op::Advise(1) => map.sequential(),
            Op::Advise(_) => map.random(),
            other => unreachable!("{other:?} changes what users see"),
        }
    }

    fn run(&mut self, ops: &[Op]) {
        for op in ops {
            self.apply(op);
            if self.setting.evicts_always {
                self.pool.evict(usize::MAX);
            }
            for (lease, first) in &self.leases {
                assert!(**lease == **first, "a lease changed by {op:?}");
            }
            let stats = self.pool.stats();
            assert!(stats.resident_pages <= stats.budget_pages, "{stats:?}");
        }
    }

    /// The file holds what was written.
    fn check_file(&mut self) {
        self.map().sync().unwrap();
        let mut bytes = vec![0; self.model.len() + 1];
        assert_eq!(self.device.read_at(0, &mut bytes).unwrap(), self.model.len());
        assert!(bytes[..self.model.len()] == self.model[..], "the file differs from the model");
    }
}

fn settings() -> impl Strategy<Value = Setting> {
    let page_bytes = prop_oneof![3 => Just(PAGE), 1 => Just(4 * PAGE), 1 => Just(16 * PAGE)];
    // Fewer than 16 pages are no second tier.
    let tier_pages = prop_oneof![1 => Just(0), 3 => 16..80usize];
    let compression = prop_oneof![Just(TierCompression::Lz4), Just(TierCompression::Zstd), Just(TierCompression::None)];
    let pool = (8..64usize, page_bytes, 0..MOST_PAGES as usize * PAGE, any::<bool>());
    (pool, tier_pages, compression, any::<bool>()).prop_map(
        |((budget_pages, page_bytes, len, evicts_always), tier_pages, compression, page_cache)| Setting {
            budget_pages,
            page_bytes,
            len,
            evicts_always,
            tier_pages,
            compression,
            page_cache,
        },
    )
}

fn operations() -> impl Strategy<Value = Vec<Op>> {
    prop::collection::vec(operation(), 1..120)
}

proptest! {
    #![proptest_config(cases(60))]

    #[test]
    fn a_map_over_memory_is_a_vector(setting in settings(), ops in operations()) {
        let mut pair = Pair::new(MemoryDirectory::new().create("file").unwrap(), setting);
        pair.run(&ops);
        pair.check_file();
    }

    #[test]
    fn failed_reads_change_nothing(setting in settings(), ops in operations(), nth in 0..20u64) {
        let rules = (0..4).map(|step| (FaultTrigger::Nth(DeviceOperation::Read, nth * (step + 1)), InjectedFault::Error(errno::EIO)));
        let faulty = FaultInjector::new(Arc::new(MemoryDirectory::new()), rules.collect());
        let mut pair = Pair::new(faulty.create("file").unwrap(), setting);
        pair.run(&ops);
        prop_assert!(!pair.poisoned);
        // The last of the faults may strike here.
        (0..MOST_PAGES).for_each(|page| pair.apply(&Op::Read(page)));
        (0..MOST_PAGES).for_each(|page| pair.apply(&Op::Read(page)));
    }

    #[test]
    fn after_a_failed_write_what_is_dirty_can_still_be_read(
        setting in settings(),
        ops in operations(),
        nth in 0..12u64,
        torn: bool,
    ) {
        let fault = if torn { InjectedFault::Torn(errno::EIO) } else { InjectedFault::Error(errno::EIO) };
        let faulty = FaultInjector::new(Arc::new(MemoryDirectory::new()), vec![(FaultTrigger::From(DeviceOperation::Write, nth), fault)]);
        let mut pair = Pair::new(faulty.create("file").unwrap(), setting);
        pair.run(&ops);
        if pair.poisoned {
            let is_told = matches!(pair.map().sync(), Err(PoolError::Poisoned { .. }));
            prop_assert!(is_told);
        }
    }
}

proptest! {
    #![proptest_config(cases(10))]

    #[test]
    fn a_map_over_a_real_file_is_a_vector(setting in settings(), ops in operations(), buffered: bool, threads: bool) {
        let folder = tempfile::tempdir().unwrap();
        let caching = if buffered { CacheMode::Buffered } else { CacheMode::Direct };
        let engine = if threads { IoEngine::Threads } else { IoEngine::Auto };
        let disk = DiskDirectory::new(folder.path()).with(caching, engine);
        let mut pair = Pair::new(disk.create("file").unwrap(), setting);
        pair.run(&ops);
        pair.check_file();
    }
}
