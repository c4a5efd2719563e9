//! The second tier while another process takes the memory at once, again and again: nothing is lost, and no process is killed. What the tier
//! holds is memory that the kernel drops without swapping it out, which shows on machines without swap, too.
//!
//! Relies on root and a memory controller for the tests under a limit; the test without one takes 512 MiB for a moment, and there is
//! enough for all. The work and the other process are this program, run again.

#[allow(dead_code, reason = "the other tests use other parts of it")]
mod common;
#[path = "common/memory_group.rs"]
mod memory_group;

use std::process::Command;
use std::sync::Arc;

use common::{PAGE, plain_map, seal, sealed};
use memory_group::MemoryGroup;
use quire_device::{Device, Directory, DiskDirectory};
use quire_pool::{Map, PageNo, Pool, PoolConfig, TierCompression, TierConfig, TierSize};
use quire_rng::SplitMix64;
use quire_sys::pressure::MemoryInfo;

const MIB: usize = 1 << 20;
const BUDGET_BYTES: usize = 16 * MIB;
const TIER_BYTES: usize = 80 * MIB;
const FILE_PAGES: u64 = 20 << 10;
/// What the other process takes under a limit.
const TAKEN_BYTES: usize = 80 * MIB;
/// Less than the first tier, the second, the program itself and what the other process takes.
const LIMIT_BYTES: usize = 136 * MIB;
const ROUNDS: u64 = 8;
/// What the tier is filling, a segment of each of its 16 shards, and what each processor has not handed to the kernel's lists yet.
const FILLING_BYTES: u64 = 8 << 20;

const INSIDE: &str = "QUIRE_TEST_TIER_PRESSURE";
const TAKEN_MIB: &str = "QUIRE_TEST_TAKE_MIB";

#[test]
fn under_a_limit_the_tier_yields_to_another_process_and_loses_nothing() {
    let Some(group) = MemoryGroup::new("tier", LIMIT_BYTES) else {
        return quire_sys::testing::skipped("no memory limit can be set here");
    };
    yields_in(&group, &group);
}

#[test]
fn under_the_limit_of_a_group_above_its_own_the_tier_yields_and_loses_nothing() {
    let Some(above) = MemoryGroup::new("tier-above", LIMIT_BYTES) else {
        return quire_sys::testing::skipped("no memory limit can be set here");
    };
    let Some(own) = above.below("own") else {
        return quire_sys::testing::skipped("groups with memory controllers can't be nested here");
    };
    yields_in(&own, &above);
}

/// Works inside the group `own`, under the limit of `limited`.
fn yields_in(own: &MemoryGroup, limited: &MemoryGroup) {
    if own.killed().is_none() {
        return quire_sys::testing::skipped("this kernel doesn't say whether it has killed a process of a group");
    }
    let ended = own.run("work_inside", INSIDE, format!("{} {}", TAKEN_BYTES / MIB, LIMIT_BYTES / MIB).as_ref());
    let said = String::from_utf8_lossy(&ended.stderr).into_owned() + &String::from_utf8_lossy(&ended.stdout);
    assert!(ended.status.success() && said.contains("worked inside"), "{:?}: {said}", ended.status);
    println!("{said}");
    // Version 1 counts in the group of the process that it kills, version 2 in all groups above, too.
    assert_eq!((own.killed(), limited.killed()), (Some(0), Some(0)), "{said}");
    assert!(limited.met() > 0, "the processes did not need all of the memory: {said}");
}

/// Makes no shortage: a test must not take all memory of the machine that it runs on.
#[test]
fn with_memory_for_both_another_process_and_the_tier_get_on() {
    let ended = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "work_inside", "--nocapture"])
        .env(INSIDE, "512 0")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&ended.stderr).into_owned() + &String::from_utf8_lossy(&ended.stdout);
    assert!(ended.status.success() && said.contains("worked inside"), "{:?}: {said}", ended.status);
}

/// The other process: takes memory step by step, and ends.
#[test]
fn take_memory() {
    let Ok(mib) = std::env::var(TAKEN_MIB) else { return };
    let mut taken: Vec<Vec<u8>> = Vec::new();
    for step in 0..mib.parse().unwrap() {
        taken.push(vec![step as u8 | 1; MIB]);
    }
    assert!(taken.iter().all(|step| step[MIB / 2] & 1 == 1));
    println!("taken");
}

/// The pool; nothing if this is not the inside.
#[test]
fn work_inside() {
    let Ok(sizes) = std::env::var(INSIDE) else { return };
    let (taken_mib, limit_mib) = sizes.split_once(' ').unwrap();
    let limit_bytes = Some(limit_mib.parse::<u64>().unwrap() * MIB as u64).filter(|&bytes| bytes > 0);
    if limit_bytes.is_some() {
        assert_eq!(MemoryInfo::now().group_limit_bytes, limit_bytes, "the limit that holds here is found");
    }
    let folder = tempfile::tempdir().unwrap();
    let device = DiskDirectory::new(folder.path()).create("large").unwrap();
    device.allocate(FILE_PAGES * PAGE as u64).unwrap();
    let tier = TierConfig {
        size: TierSize::Bytes(TIER_BYTES),
        compression: TierCompression::None,
        is_adaptive: false,
        ..TierConfig::default()
    };
    let pool = Pool::new(PoolConfig { budget_bytes: BUDGET_BYTES, tier, ..PoolConfig::default() }).unwrap();
    let map = plain_map(&pool, Arc::clone(&device));
    let mut values: Vec<u64> = (0..FILE_PAGES).map(|page| page + 1).collect();
    for page in 0..FILE_PAGES {
        seal(&mut map.overwrite(PageNo(page)).unwrap(), values[page as usize]);
    }
    let mut rng = SplitMix64::new(9);
    let mut yielded_bytes = 0;
    for round in 0..ROUNDS {
        check(&map, &values, (0..FILE_PAGES).rev());
        assert!(pool.tier_stats().entries > 0, "the tier was used before the memory is taken");
        check_droppable(&pool, limit_bytes);
        let before = pool.tier_stats().resident_bytes;
        take(taken_mib);
        let after = pool.tier_stats().resident_bytes;
        yielded_bytes += before.saturating_sub(after);
        if let Some(limit_bytes) = limit_bytes {
            // The other process had its memory all at once, and the tier does not grow before the next victim.
            assert!(after <= limit_bytes - TAKEN_BYTES as u64, "the tier still has {after} bytes of {before}");
        }
        check(&map, &values, (0..2000).map(|_| rng.below(FILE_PAGES)));
        for _ in 0..500 {
            let page = rng.below(FILE_PAGES);
            values[page as usize] += FILE_PAGES * (round + 1);
            seal(&mut map.write(PageNo(page)).unwrap(), values[page as usize]);
        }
    }
    map.sync().unwrap();
    let stats = pool.stats();
    println!("{yielded_bytes} bytes yielded, {:?} {:?}", stats.paths, pool.tier_stats());
    assert!(limit_bytes.is_none() || yielded_bytes > 0, "no memory of the tier was taken back");
    check(&map, &values, 0..FILE_PAGES);
    assert_eq!(swapped_kib(), Some(0), "memory of the pool was swapped out");
    drop(map);
    check_file(&*device, &values);
    println!("worked inside");
}

/// All that the tier holds but for what it is filling is memory that the kernel may drop (`LazyFree`): it is never swapped out.
fn check_droppable(pool: &Pool, limit_bytes: Option<u64>) {
    // Under a limit the kernel takes memory between two looks.
    let lazy = lazily_freed_bytes();
    let held = pool.tier_stats().resident_bytes;
    assert!(lazy + FILLING_BYTES >= held, "of {held} bytes of the tier the kernel may drop only {lazy}");
    assert!(limit_bytes.is_some() || held > 4 * FILLING_BYTES, "the tier holds only {held} bytes");
}

/// What the kernel may drop of this process, which nothing but the tier lets it.
fn lazily_freed_bytes() -> u64 {
    let maps = std::fs::read_to_string("/proc/self/smaps").unwrap();
    let sizes = maps.lines().filter_map(|line| line.strip_prefix("LazyFree:")?.trim().strip_suffix("kB"));
    sizes.map(|kib| kib.trim().parse::<u64>().unwrap() * 1024).sum()
}

/// What is swapped out of this process.
fn swapped_kib() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    status.lines().find_map(|line| line.strip_prefix("VmSwap:"))?.trim().strip_suffix("kB")?.trim().parse().ok()
}

fn check(map: &Map, values: &[u64], pages: impl Iterator<Item = u64>) {
    for page in pages {
        assert_eq!(sealed(&map.read(PageNo(page)).unwrap()), Some(values[page as usize]), "page {page}");
    }
}

fn check_file(device: &dyn Device, values: &[u64]) {
    let mut bytes = vec![0; PAGE];
    for (page, value) in values.iter().enumerate() {
        device.read_at((page * PAGE) as u64, &mut bytes).unwrap();
        assert_eq!(sealed(&bytes), Some(*value), "page {page} of the file");
    }
}

/// Lets the other process run, which stands in for any that starts.
fn take(mib: &str) {
    let ended = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "take_memory", "--nocapture"])
        .env_remove(INSIDE)
        .env(TAKEN_MIB, mib)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&ended.stdout).into_owned();
    assert!(ended.status.success() && said.contains("taken"), "{:?}: {said}", ended.status);
}
