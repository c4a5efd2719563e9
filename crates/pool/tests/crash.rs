//! The power goes at any step: what was synced is there, what was not is old or new, sector by sector.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use quire_device::{
    Device, DeviceOperation, Directory, FaultInjector, FaultTrigger, InjectedFault, MemoryDirectory, PowerCut, errno,
};
use quire_pool::{MapOptions, PageNo, Pool, PoolConfig, PoolError, TransparentMap};

use crate::common::{PAGE, plain_map, small_config, tier};

const PAGES: u64 = 24;
/// What the device promises to write whole.
const SECTOR: usize = 512;

/// Sets every sector of a page to a version.
fn stamp(page: &mut [u8], version: u64) {
    for (index, word) in page.as_chunks_mut::<8>().0.iter_mut().enumerate() {
        *word = version.wrapping_mul((index % (SECTOR / 8)) as u64 + 1).to_le_bytes();
    }
}

/// The versions of a page's sectors.
fn versions(page: &[u8]) -> Vec<u64> {
    page.chunks(SECTOR)
        .map(|sector| {
            let words: Vec<u64> = sector.as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word)).collect();
            let is_whole =
                words.iter().enumerate().all(|(index, word)| *word == words[0].wrapping_mul(index as u64 + 1));
            assert!(is_whole, "a torn sector");
            words[0]
        })
        .collect()
}

/// What a run has come to know: the last version written to each page, and the last known to be durable.
struct Known {
    written: Vec<u64>,
    durable: Vec<u64>,
}

/// Writes versions here and there, syncs and flushes now and then, until the power goes.
fn run(memory: &MemoryDirectory, budget: usize) -> Known {
    run_on(memory.open("file").unwrap(), budget)
}

fn run_on(device: Arc<dyn Device>, budget: usize) -> Known {
    let mut known = Known { written: vec![0; PAGES as usize], durable: vec![0; PAGES as usize] };
    // Where pages are evicted, some come back from a second tier.
    let config = if budget < PAGES as usize {
        PoolConfig { tier: tier(32), ..small_config(budget) }
    } else {
        small_config(budget)
    };
    let pool = Pool::new(config).unwrap();
    let map = plain_map(&pool, device);
    for step in 1..200u64 {
        let page = (step * 7 + step / 5) % PAGES;
        let Ok(mut guard) = map.write(PageNo(page)) else { break };
        stamp(&mut guard, step);
        drop(guard);
        known.written[page as usize] = step;
        let synced = match step % 23 {
            0 => map.sync().map(|()| 0..PAGES),
            11 => map.flush(PageNo(4)..PageNo(12)).map(|()| 4..12),
            _ => continue,
        };
        let Ok(pages) = synced else { break };
        pages.for_each(|page| known.durable[page as usize] = known.written[page as usize]);
    }
    known
}

fn check(found: &MemoryDirectory, known: &Known) {
    let bytes = found.bytes("file").unwrap();
    assert_eq!(bytes.len(), PAGES as usize * PAGE);
    for (page, bytes) in bytes.chunks(PAGE).enumerate() {
        for version in versions(bytes) {
            let range = known.durable[page]..=known.written[page];
            assert!(range.contains(&version), "page {page} holds {version}, not one of {range:?}");
        }
    }
}

#[test]
fn what_was_synced_survives_a_power_cut_at_any_step() {
    let fresh = || MemoryDirectory::with_file("file", &vec![0; PAGES as usize * PAGE]);
    for budget in [8, 40] {
        let whole = fresh();
        run(&whole, budget);
        let steps = whole.steps();
        assert!(steps > 20);
        for off_at in (0..steps).step_by(3) {
            let memory = fresh();
            memory.power_off_at(off_at);
            let known = run(&memory, budget);
            for cut in
                [PowerCut::LoseAll, PowerCut::KeepAll, PowerCut::KeepSome(off_at), PowerCut::KeepSome(off_at + 99)]
            {
                check(&memory.after_power_cut(cut), &known);
            }
        }
    }
}

#[test]
fn a_write_that_arrives_in_part_leaves_every_sector_old_or_new() {
    for nth in 0..24 {
        let memory = MemoryDirectory::with_file("file", &vec![0; PAGES as usize * PAGE]);
        for fault in [InjectedFault::Torn(errno::EIO), InjectedFault::Sectors { errno: errno::EIO, seed: nth }] {
            let rules = vec![(FaultTrigger::From(DeviceOperation::Write, nth), fault)];
            let faulty = FaultInjector::new(Arc::new(memory.clone()), rules);
            let known = run_on(faulty.open_to_write("file").unwrap(), 8);
            check(&memory, &known);
            memory.put("file", &vec![0; PAGES as usize * PAGE]);
        }
    }
}

/// Stores versions through a transparent map; `None` where there are none to be had.
fn run_transparent(memory: &MemoryDirectory) -> Option<Known> {
    let mut known = Known { written: vec![0; PAGES as usize], durable: vec![0; PAGES as usize] };
    // Room for all pages: a store for which no memory can be freed ends the program.
    let pool = Pool::new(small_config(2 * PAGES as usize)).unwrap();
    let map = match TransparentMap::new(&pool, memory.open("file").unwrap(), MapOptions::default()) {
        Err(refusal @ PoolError::Unsupported { .. }) => {
            quire_sys::testing::skipped(refusal);
            return None;
        }
        map => map.unwrap(),
    };
    for step in 1..120u64 {
        let page = (step * 7 + step / 5) % PAGES;
        known.written[page as usize] = step;
        let words = PAGE / 8;
        for (index, word) in map.words()[page as usize * words..][..words].iter().enumerate() {
            word.store(step.wrapping_mul((index % (SECTOR / 8)) as u64 + 1).to_le(), Ordering::Relaxed);
        }
        if step % 17 == 0 {
            if map.sync().is_err() {
                break;
            }
            known.durable.clone_from(&known.written);
        }
    }
    Some(known)
}

#[test]
fn what_was_stored_and_synced_survives_a_power_cut() {
    let fresh = || MemoryDirectory::with_file("file", &vec![0; PAGES as usize * PAGE]);
    let whole = fresh();
    run_transparent(&whole);
    for off_at in (0..whole.steps()).step_by(4) {
        let memory = fresh();
        memory.power_off_at(off_at);
        let Some(known) = run_transparent(&memory) else { return };
        for cut in [PowerCut::LoseAll, PowerCut::KeepAll, PowerCut::KeepSome(off_at)] {
            check(&memory.after_power_cut(cut), &known);
        }
    }
}

/// Bytes of the file that grows.
const GROWN: usize = 5 * PAGE + 300;

/// What a growing file may hold: the versions that each byte may have, as bits, and how long it is at least.
struct Grown {
    versions: Vec<u64>,
    newest: Vec<u8>,
    durable_len: u64,
}

/// Grows a file by odd lengths and fills its pages, until the power goes.
fn grow(memory: &MemoryDirectory) -> Grown {
    let mut known = Grown { versions: vec![1; 2 * GROWN], newest: vec![0; 2 * GROWN], durable_len: 0 };
    let pool = Pool::new(small_config(4)).unwrap();
    let options = MapOptions { reserve_bytes: GROWN as u64, ..MapOptions::default() };
    let map = pool.map(memory.open("file").unwrap(), options).unwrap();
    for step in 1..61u8 {
        let len = (usize::from(step) * 351).min(GROWN) as u64;
        if map.grow(len).is_err() {
            break;
        }
        let page = u64::from(step) * 5 % map.pages();
        let Ok(mut guard) = map.write(PageNo(page)) else { break };
        guard.fill(step);
        let start = page as usize * PAGE;
        let bytes = start..start + guard.len();
        drop(guard);
        known.versions[bytes.clone()].iter_mut().for_each(|versions| *versions |= 1 << step);
        known.newest[bytes].fill(step);
        if step % 6 == 0 {
            if map.sync().is_err() {
                break;
            }
            known.durable_len = len;
            known.versions.iter_mut().zip(&known.newest).for_each(|(versions, newest)| *versions = 1 << newest);
        }
    }
    known
}

#[test]
fn a_file_that_grows_by_odd_lengths_keeps_what_was_synced() {
    let fresh = || MemoryDirectory::with_file("file", b"");
    let whole = fresh();
    assert!(grow(&whole).newest[..GROWN] == whole.bytes("file").unwrap());
    for off_at in 0..whole.steps() {
        let memory = fresh();
        memory.power_off_at(off_at);
        let known = grow(&memory);
        for cut in [PowerCut::LoseAll, PowerCut::KeepAll, PowerCut::KeepSome(off_at), PowerCut::KeepSome(off_at + 77)] {
            let bytes = memory.after_power_cut(cut).bytes("file").unwrap();
            assert!(bytes.len() as u64 >= known.durable_len, "{} bytes of {}", bytes.len(), known.durable_len);
            assert!(bytes.len() <= GROWN.next_multiple_of(PAGE));
            for (at, (byte, versions)) in bytes.iter().zip(&known.versions).enumerate() {
                assert!(versions >> byte & 1 == 1, "byte {at} holds {byte} after {cut:?} at {off_at}");
            }
        }
    }
}

#[test]
fn a_map_goes_on_from_what_a_power_cut_has_left() {
    let memory = MemoryDirectory::with_file("file", &vec![0; PAGES as usize * PAGE]);
    run(&memory, 8);
    let found = memory.after_power_cut(PowerCut::LoseAll);
    let pool = Pool::new(small_config(8)).unwrap();
    let map = plain_map(&pool, found.open("file").unwrap());
    let sum: u64 = (0..PAGES).map(|page| versions(&map.read(PageNo(page)).unwrap())[0]).sum();
    assert!(sum > 0);
    stamp(&mut map.write(PageNo(3)).unwrap(), 1000);
    map.sync().unwrap();
    let map = plain_map(&pool, Arc::clone(&found.after_power_cut(PowerCut::LoseAll).open("file").unwrap()));
    assert_eq!(versions(&map.read(PageNo(3)).unwrap()), vec![1000; PAGE / SECTOR]);
}
