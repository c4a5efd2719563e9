//! The six policies side by side on a synthetic database: `cargo run --release -p quire-writecache --example policies`.
//!
//! Eight backends commit small transactions to a log under one lock; a log writer takes the same lock now and then; a
//! checkpointer writes scattered pages and flushes them, and then a block under the lock of the file; backends
//! sometimes need that lock, or a page that is on its way to the disk. Data and log lie on two simulated hard disks, the
//! cache in memory. What it shows is the order of the policies; the figures themselves mean nothing.
//!
//! Relies on `ThrottledDirectory` for the disks. Arguments: seconds for each run (2), capacities in KiB (1024 16384).

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use quire_device::{Directory, DiskModel, MemoryDirectory, ThrottledDirectory};
use quire_rng::SplitMix64;
use quire_writecache::{
    AdmissionPolicy, CacheConfig, CacheMutex, CacheStats, ContentKind, CriticalReason, TaskGraph, VolumeId,
    VolumeLength, VolumeSpec, WaitCause, WriteCache, WriteContext, WriteTicket, critical,
};

const DATA: VolumeId = VolumeId(1);
const LOG: VolumeId = VolumeId(2);
const BLOCK: u64 = 4096;
const DATA_BLOCKS: u64 = 64 << 10;
const LOG_BLOCKS: u64 = 4 << 10;
const BACKENDS: usize = 8;

struct Database {
    cache: WriteCache,
    tasks: Arc<TaskGraph>,
    /// Next block of the log; held while it is written, as PostgreSQL's WALWriteLock.
    log: CacheMutex<u64>,
    /// The lock of the data file.
    file: CacheMutex<()>,
    /// Pages written last, not waited for.
    pages: Mutex<Vec<WriteTicket>>,
    commits: AtomicU64,
    stop: AtomicBool,
}

fn disk(name: &str, blocks: u64) -> Arc<dyn quire_device::Device> {
    let home = MemoryDirectory::new();
    home.put(name, &[]);
    let disk = ThrottledDirectory::new(Arc::new(home), DiskModel::hard_disk());
    let device = disk.open(name).expect("it was put there");
    device.set_len(blocks * BLOCK).expect("memory grows");
    device
}

impl Database {
    fn open(policy: AdmissionPolicy, capacity_bytes: u64) -> Self {
        let fast = MemoryDirectory::new();
        fast.put("fast", &[]);
        let tasks = TaskGraph::new();
        let config = CacheConfig {
            policy,
            capacity_bytes,
            queue_bytes: 4 << 20,
            linger: Duration::from_millis(50),
            tasks: Arc::clone(&tasks),
            ..CacheConfig::default()
        };
        let volumes = [
            VolumeSpec { id: DATA, device: disk("data", DATA_BLOCKS), growth: VolumeLength::Fixed },
            VolumeSpec { id: LOG, device: disk("log", LOG_BLOCKS), growth: VolumeLength::Fixed },
        ];
        let fast = fast.open("fast").expect("it was put there");
        Self {
            cache: WriteCache::create(fast, &volumes, config).expect("a new cache"),
            log: CacheMutex::new_in(Arc::clone(&tasks), 0),
            file: CacheMutex::new_in(Arc::clone(&tasks), ()),
            tasks,
            pages: Mutex::default(),
            commits: AtomicU64::new(0),
            stop: AtomicBool::new(false),
        }
    }

    /// Appends a block to the log and waits for it.
    fn write_log(&self) {
        let context = WriteContext::current().sync().content(ContentKind::Log);
        let mut next = self.log.lock();
        let offset = *next % LOG_BLOCKS * BLOCK;
        *next += 1;
        let ticket = self.cache.write(LOG, offset, &[1; BLOCK as usize], &context).expect("the log takes it");
        self.cache.wait(&ticket, &context).expect("the log keeps it");
    }

    fn backend(&self, number: u64) {
        let _critical = self.tasks.enter(critical::current(), CriticalReason::Request);
        let mut rng = SplitMix64::new(number * 7919 + 1);
        while !self.stop.load(Relaxed) {
            std::thread::sleep(Duration::from_micros(200));
            match rng.below(40) {
                0 => drop(self.file.lock()),
                1 => self.await_page(&mut rng),
                2 => self.write_page(&mut rng),
                _ => {}
            }
            self.write_log();
            self.commits.fetch_add(1, Relaxed);
        }
    }

    /// A page that is being written must not change until it is there.
    fn await_page(&self, rng: &mut SplitMix64) {
        let ticket = {
            let pages = self.pages.lock().expect("no holder panics");
            if pages.is_empty() { None } else { Some(pages[rng.index(pages.len())]) }
        };
        if let Some(ticket) = ticket {
            self.cache.wait(&ticket, &WriteContext::current().sync()).expect("the page gets there");
        }
    }

    fn write_page(&self, rng: &mut SplitMix64) {
        let offset = rng.below(DATA_BLOCKS) * BLOCK;
        let ticket = self.cache.write(DATA, offset, &[2; BLOCK as usize], &WriteContext::current());
        let mut pages = self.pages.lock().expect("no holder panics");
        pages.push(ticket.expect("the data file takes it"));
        if pages.len() > 64 {
            pages.remove(0);
        }
    }

    fn checkpointer(&self) {
        let mut rng = SplitMix64::new(99);
        while !self.stop.load(Relaxed) {
            for _ in 0..256 {
                self.write_page(&mut rng);
            }
            let context = WriteContext::current().sync();
            self.cache.flush(DATA, &context).expect("the data file keeps it");
            // As a file system does at the end: a block of its own, under a lock that others need.
            let held = self.file.lock();
            let ticket = self.cache.write(DATA, 0, &[3; BLOCK as usize], &context).expect("the data file takes it");
            self.cache.wait(&ticket, &context).expect("the data file keeps it");
            drop(held);
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn log_writer(&self) {
        while !self.stop.load(Relaxed) {
            std::thread::sleep(Duration::from_millis(20));
            self.write_log();
        }
    }

    fn run(&self, time: Duration) -> f64 {
        let began = Instant::now();
        std::thread::scope(|threads| {
            for number in 0..BACKENDS {
                threads.spawn(move || self.backend(number as u64 + 1));
            }
            threads.spawn(|| self.checkpointer());
            threads.spawn(|| self.log_writer());
            std::thread::sleep(time);
            self.stop.store(true, Relaxed);
        });
        self.commits.load(Relaxed) as f64 / began.elapsed().as_secs_f64()
    }
}

fn waits(stats: &CacheStats) -> String {
    let of = |cause: WaitCause| stats.critical_waits[cause as usize].total_ns as f64 / 1e9;
    format!(
        "{:>8.2}{:>8.2}{:>8.2}{:>8.2}{:>8.2}",
        of(WaitCause::LogWrite),
        of(WaitCause::LogRoom) + of(WaitCause::QueueRoom),
        of(WaitCause::PendingWrite),
        of(WaitCause::SlowFlush),
        of(WaitCause::Lock)
    )
}

fn main() {
    let mut arguments = std::env::args().skip(1).filter_map(|argument| argument.parse::<u64>().ok());
    let time = Duration::from_secs(arguments.next().unwrap_or(2));
    let mut capacities: Vec<u64> = arguments.collect();
    if capacities.is_empty() {
        capacities = vec![1024, 16_384];
    }
    for capacity in capacities {
        println!("cache of {capacity} KiB; waits of critical tasks in seconds");
        println!(
            "{:<11}{:>9}{:>8}{:>8}{:>9} |{:>8}{:>8}{:>8}{:>8}{:>8}",
            "policy", "commits/s", "cached", "stalls", "reissued", "log", "room", "pending", "flush", "lock"
        );
        for policy in AdmissionPolicy::EVERY {
            let database = Database::open(policy, capacity << 10);
            let rate = database.run(time);
            let stats = database.cache.stats();
            let reissued: u64 = stats.critical_writes.reissued_blocks.iter().sum();
            println!(
                "{:<11}{rate:>9.0}{:>7.0}%{:>8}{reissued:>9} |{}",
                policy.name(),
                stats.cached_share() * 100.0,
                stats.stalls,
                waits(&stats)
            );
        }
    }
}
