//! Many threads over one cache, under every policy: while they run, power cuts are tried on copies of both devices, and
//! nothing that was acknowledged before one is older after it.
//!
//! Every thread has blocks of its own, whose sectors say which version they are; locks, waits for others' writes,
//! truncations of a file and criticality are shared. Relies on `MemoryDirectory` for copies of one moment of log and files.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use quire_device::{Directory, MemoryDirectory, PowerCut};
use quire_rng::SplitMix64;
use quire_writecache::{
    AdmissionPolicy, CacheConfig, CacheMutex, CriticalReason, TaskGraph, VolumeId, VolumeLength, VolumeSpec,
    WriteCache, WriteContext, WriteTicket, critical,
};

use crate::wcache::{BLOCK, DATA, config};

const THREADS: u64 = 6;
const BLOCKS: u64 = 48;
const FILE: VolumeId = VolumeId(7);

fn block_of(version: u64) -> Vec<u8> {
    let mut bytes = vec![0; BLOCK];
    for sector in bytes.chunks_exact_mut(512) {
        sector[..8].copy_from_slice(&version.to_le_bytes());
    }
    bytes
}

fn versions(block: &[u8]) -> Vec<u64> {
    block.chunks_exact(512).map(|sector| u64::from_le_bytes(sector[..8].try_into().unwrap())).collect()
}

fn specs(home: &MemoryDirectory) -> [VolumeSpec; 2] {
    [
        VolumeSpec { id: DATA, device: home.open("data").unwrap(), growth: VolumeLength::Fixed },
        VolumeSpec { id: FILE, device: home.open("file").unwrap(), growth: VolumeLength::Growable },
    ]
}

fn settings(policy: AdmissionPolicy, seed: u64) -> CacheConfig {
    CacheConfig {
        capacity_bytes: if seed.is_multiple_of(2) { 300 << 10 } else { 2 << 20 },
        linger: Duration::from_micros(500),
        queue_bytes: 128 << 10,
        batch_bytes: 64 << 10,
        low_percent: 5,
        ..config(policy)
    }
}

struct Crowd {
    home: MemoryDirectory,
    cache: WriteCache,
    tasks: Arc<TaskGraph>,
    lock: CacheMutex<u64>,
    tickets: Mutex<Vec<WriteTicket>>,
    written: Vec<AtomicU64>,
    acknowledged: Vec<AtomicU64>,
    stop: AtomicBool,
}

impl Crowd {
    fn new(policy: AdmissionPolicy, seed: u64) -> Self {
        let home = MemoryDirectory::new();
        home.put("fast", &[]);
        home.put("data", &vec![0; BLOCKS as usize * BLOCK]);
        home.put("file", &[]);
        let settings = settings(policy, seed);
        let tasks = Arc::clone(&settings.tasks);
        let cache = WriteCache::create(home.open("fast").unwrap(), &specs(&home), settings).unwrap();
        let zeros = || (0..BLOCKS).map(|_| AtomicU64::new(0)).collect();
        Self {
            lock: CacheMutex::new_in(Arc::clone(&tasks), 0),
            tickets: Mutex::default(),
            written: zeros(),
            acknowledged: zeros(),
            stop: AtomicBool::new(false),
            home,
            cache,
            tasks,
        }
    }

    /// Writes the thread's next version of one of its blocks; returns the block and its ticket.
    fn write(&self, thread: u64, rng: &mut SplitMix64, context: &WriteContext) -> (usize, u64, WriteTicket) {
        let block = rng.below(BLOCKS / THREADS) * THREADS + thread;
        let version = self.written[block as usize].load(SeqCst) + 1;
        self.written[block as usize].store(version, SeqCst);
        let ticket = self.cache.write(DATA, block * BLOCK as u64, &block_of(version), context).unwrap();
        let mut tickets = self.tickets.lock().unwrap();
        tickets.push(ticket);
        if tickets.len() > 32 {
            tickets.remove(0);
        }
        (block as usize, version, ticket)
    }

    fn step(&self, thread: u64, rng: &mut SplitMix64) {
        let sync = WriteContext::current().sync();
        match rng.below(12) {
            0..=3 => {
                let (block, version, ticket) = self.write(thread, rng, &sync);
                self.cache.wait(&ticket, &sync).unwrap();
                self.acknowledged[block].fetch_max(version, SeqCst);
            }
            4..=6 => drop(self.write(thread, rng, &WriteContext::current())),
            7 => {
                let mine = |block: &u64| block % THREADS == thread;
                let now: Vec<_> =
                    (0..BLOCKS).filter(mine).map(|block| self.written[block as usize].load(SeqCst)).collect();
                self.cache.flush(DATA, &sync).unwrap();
                for (block, version) in (0..BLOCKS).filter(mine).zip(now) {
                    self.acknowledged[block as usize].fetch_max(version, SeqCst);
                }
            }
            8 => {
                let mut guard = self.lock.lock();
                *guard += 1;
                let (block, version, ticket) = self.write(thread, rng, &sync);
                self.cache.wait(&ticket, &sync).unwrap();
                self.acknowledged[block].fetch_max(version, SeqCst);
            }
            9 => {
                let other = self.tickets.lock().unwrap().first().copied();
                other.iter().for_each(|ticket| self.cache.wait(ticket, &sync).unwrap());
            }
            10 => self.change_file(rng.next_u64(), &sync),
            _ => {
                let mut found = vec![0; BLOCK];
                let block = rng.below(BLOCKS / THREADS) * THREADS + thread;
                self.cache.read(DATA, block * BLOCK as u64, &mut found).unwrap();
                assert_eq!(found, block_of(self.written[block as usize].load(SeqCst)), "block {block}");
            }
        }
    }

    fn change_file(&self, number: u64, sync: &WriteContext) {
        let len = number % 30_000;
        if number.is_multiple_of(3) {
            self.cache.set_len(FILE, len, sync).unwrap();
        } else {
            self.cache.write(FILE, len, &[7; 5000], sync).unwrap();
        }
        if number.is_multiple_of(5) {
            self.cache.flush(FILE, sync).unwrap();
        }
    }

    fn work(&self, thread: u64, seed: u64) {
        let mut rng = SplitMix64::new((seed + 1) * 7919 + thread * 104_729);
        while !self.stop.load(SeqCst) {
            let _scope = (rng.below(3) == 0).then(|| self.tasks.enter(critical::current(), CriticalReason::Request));
            for _ in 0..4 {
                self.step(thread, &mut rng);
            }
        }
    }

    /// A copy of this moment loses its power; what it holds then is checked through a cache of its own.
    fn try_crash(&self, policy: AdmissionPolicy, seed: u64) {
        let read = |all: &[AtomicU64]| all.iter().map(|version| version.load(SeqCst)).collect::<Vec<_>>();
        let least = read(&self.acknowledged);
        let home = self.home.after_power_cut(if seed.is_multiple_of(3) {
            PowerCut::LoseAll
        } else {
            PowerCut::KeepSome(seed)
        });
        let most = read(&self.written);
        let cache = WriteCache::open(home.open("fast").unwrap(), &specs(&home), settings(policy, seed)).unwrap();
        for block in 0..BLOCKS as usize {
            let mut found = vec![0; BLOCK];
            cache.read(DATA, (block * BLOCK) as u64, &mut found).unwrap();
            for version in versions(&found) {
                assert!(version >= least[block], "{policy}: block {block} is {version}, {} was durable", least[block]);
                assert!(version <= most[block], "{policy}: block {block} is {version} of {}", most[block]);
            }
        }
        let mut bytes = vec![0; 64 << 10];
        let got = cache.read(FILE, 0, &mut bytes).unwrap();
        assert!(bytes[..got].iter().all(|byte| *byte == 0 || *byte == 7));
        cache.drain().unwrap();
    }
}

fn rounds() -> u64 {
    std::env::var("QUIRE_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(1)
}

#[test]
fn nothing_acknowledged_is_lost_among_many_threads_under_any_policy() {
    for round in 0..rounds() {
        for policy in AdmissionPolicy::EVERY {
            let crowd = Crowd::new(policy, round);
            std::thread::scope(|threads| {
                for thread in 0..THREADS {
                    let crowd = &crowd;
                    threads.spawn(move || crowd.work(thread, round));
                }
                for number in 0..12 {
                    std::thread::sleep(Duration::from_millis(5));
                    crowd.try_crash(policy, round * 12 + number);
                }
                crowd.stop.store(true, SeqCst);
            });
            crowd.cache.drain().unwrap();
            let bytes = crowd.home.bytes("data").unwrap();
            for (block, found) in bytes.chunks_exact(BLOCK).enumerate() {
                assert_eq!(found, block_of(crowd.written[block].load(SeqCst)), "{policy}: block {block} in the end");
            }
            let stats = crowd.cache.stats();
            assert_eq!(stats.pending_bytes, 0, "{policy}");
        }
    }
}
