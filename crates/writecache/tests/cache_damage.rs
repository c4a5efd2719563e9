//! Flipped bits, and volumes and logs of different times: nothing acknowledged is lost in silence, and a cache that can't be
//! opened changes nothing.

use std::collections::BTreeMap;
use std::sync::Arc;

use quire_device::{Buffer, Device, Direction, Directory, Extent, PowerCut, Transfer};
use quire_writecache::{AdmissionPolicy, CacheConfig, CacheError, WriteCache, WriteContext};

use crate::wcache::{BLOCK, DATA, Homes, block, config};

const SUPERBLOCKS: usize = 2 * 4096;

fn settings(homes: &Homes) -> CacheConfig {
    if homes.slow.bytes("witness").is_none() {
        homes.slow.put("witness", &[0; 4096]);
    }
    let witness: Arc<dyn Device> = homes.slow.open("witness").unwrap();
    CacheConfig { witness: Some(witness), granule_bytes: Some(512), ..config(AdmissionPolicy::All) }
}

fn open(homes: &Homes) -> Result<WriteCache, CacheError> {
    WriteCache::open(homes.fast(), &homes.volumes(), settings(homes))
}

/// Writes block `at`, durably.
fn put(cache: &WriteCache, at: u64, value: u8) {
    let sync = WriteContext::current().sync();
    let ticket = cache.write(DATA, at * BLOCK as u64, &block(value), &sync).unwrap();
    cache.wait(&ticket, &sync).unwrap();
}

fn get(cache: &WriteCache, at: u64) -> u8 {
    let mut bytes = block(0);
    cache.read(DATA, at * BLOCK as u64, &mut bytes).unwrap();
    assert!(bytes.iter().all(|byte| *byte == bytes[0]));
    bytes[0]
}

/// A log with twelve acknowledged blocks that lost power, after its first half was written back and blocks of that half
/// were written again.
fn crashed() -> (Homes, BTreeMap<u64, u8>) {
    let homes = Homes::new();
    let cache = WriteCache::create(homes.fast(), &homes.volumes(), settings(&homes)).unwrap();
    let mut wanted = BTreeMap::new();
    for at in 0..6 {
        put(&cache, at, 1);
    }
    cache.drain().unwrap();
    for (at, value) in [(0, 2), (6, 2), (7, 2), (8, 2), (1, 3), (9, 3)] {
        put(&cache, at, value);
        wanted.insert(at, value);
    }
    for at in 2..6 {
        wanted.insert(at, 1);
    }
    drop(cache);
    let homes = Homes {
        fast: homes.fast.after_power_cut(PowerCut::LoseAll),
        slow: homes.slow.after_power_cut(PowerCut::LoseAll),
    };
    (homes, wanted)
}

/// The homes with other bytes.
fn with(homes: &Homes, fast: &[u8], witness: &[u8]) -> Homes {
    let copy = Homes {
        fast: homes.fast.after_power_cut(PowerCut::KeepAll),
        slow: homes.slow.after_power_cut(PowerCut::KeepAll),
    };
    copy.fast.put("fast", fast);
    copy.slow.put("witness", witness);
    copy
}

fn bytes_of(homes: &Homes) -> [Vec<u8>; 3] {
    let slow = |name| homes.slow.bytes(name).unwrap();
    [homes.fast.bytes("fast").unwrap(), slow("witness"), slow("data")]
}

/// Where the header of the last record lies, and behind its blocks.
fn last_record(fast: &[u8]) -> (usize, usize) {
    let places = (SUPERBLOCKS..fast.len()).step_by(512).filter(|&at| fast[at..].starts_with(b"QWCREC01"));
    let at = places.max_by_key(|&at| u64::from_le_bytes(fast[at + 16..at + 24].try_into().unwrap())).unwrap();
    (at, at + 512 + BLOCK)
}

#[test]
fn a_flipped_bit_anywhere_in_a_log_loses_nothing_in_silence() {
    let (homes, wanted) = crashed();
    let fast = homes.fast.bytes("fast").unwrap();
    let witness = homes.slow.bytes("witness").unwrap();
    let (last, end) = last_record(&fast);
    let mut places: Vec<usize> = (0..2 * SUPERBLOCKS / 2).filter(|at| at % 4096 < 128 || at % 37 == 0).collect();
    for at in (SUPERBLOCKS..end).step_by(512).filter(|&at| fast[at..].starts_with(b"QWCREC01")) {
        places.extend((at..at + 80).chain([at + 300, at + 504, at + 511, at + 512, at + 2000, at + 512 + BLOCK - 1]));
    }
    let (mut opened, mut refused) = (0, 0);
    for (number, at) in places.into_iter().enumerate() {
        let mut damaged = fast.clone();
        damaged[at] ^= 1 << (number % 8);
        let copy = with(&homes, &damaged, &witness);
        let before = bytes_of(&copy);
        match open(&copy) {
            Ok(cache) => {
                opened += 1;
                // Nothing is known behind the last record: a crash may have cut it off before it was acknowledged.
                let in_last = (last..end).contains(&at);
                for (&block, &value) in &wanted {
                    let found = get(&cache, block);
                    assert!(
                        found == value || in_last && block == 9,
                        "byte {at}: block {block} is {found}, not {value}"
                    );
                }
            }
            Err(error) => {
                refused += 1;
                assert!(matches!(error, CacheError::Damaged { .. }), "byte {at}: {error}");
                assert!(error.to_string().starts_with("memory:fast: "), "{error}");
                assert!(bytes_of(&copy) == before, "byte {at}: refused, and something was changed");
            }
        }
    }
    assert!(opened > 100 && refused > 100, "{opened} opened, {refused} refused");
}

/// Where the newest block `at` lies in the log.
fn place_of(fast: &[u8], at: u64) -> usize {
    let number = |place: usize| u64::from_le_bytes(fast[place..place + 8].try_into().unwrap());
    let places = (SUPERBLOCKS..fast.len()).step_by(512).filter(|&place| fast[place..].starts_with(b"QWCREC01"));
    let of_block = places.filter(|&place| number(place + 32) == at && fast[place + 40] == 1);
    of_block.max_by_key(|&place| number(place + 16)).unwrap() + 512
}

/// Turns a bit of a file over that is in use.
fn flip(device: &dyn Device, at: usize) {
    let (mut buffer, offset) = (Buffer::new(512).unwrap(), (at / 512 * 512) as u64);
    device.read_at(offset, &mut buffer).unwrap();
    buffer[at % 512] ^= 0x20;
    let extents = vec![Extent { offset, start: 0, len: 512 }];
    device.run(&mut Transfer { direction: Direction::Write, buffer, extents, tag: 0 }).unwrap();
}

#[test]
fn a_bit_that_the_log_loses_while_it_is_in_use_is_told_and_never_made_valid() {
    for reopened in [false, true] {
        let homes = Homes::new();
        let mut cache = WriteCache::create(homes.fast(), &homes.volumes(), settings(&homes)).unwrap();
        (0..6).for_each(|at| put(&cache, at, 10 + at as u8));
        if reopened {
            drop(cache);
            cache = open(&homes).unwrap();
        }
        let log = homes.fast.bytes("fast").unwrap();
        flip(&*homes.fast(), place_of(&log, 2) + 1234);
        // Bytes beside the damaged one are no better.
        let mut some = [0; 100];
        let error = cache.read(DATA, 2 * BLOCK as u64, &mut some).unwrap_err();
        assert!(
            matches!(&error, CacheError::Read { volume: DATA, cause } if cause.to_string().contains("invalid data"))
        );
        assert_eq!((get(&cache, 1), get(&cache, 3)), (11, 13));
        // A write of a part of the block would give the rest a new checksum.
        let damaged = homes.fast.bytes("fast").unwrap();
        let written = cache.write(DATA, 2 * BLOCK as u64 + 7, b"part", &WriteContext::current().sync());
        assert!(matches!(written, Err(CacheError::Read { .. })));
        assert!(homes.fast.bytes("fast").unwrap() == damaged);
        // Write-back brings what is sound to the slow device, and nothing else.
        cache.drain().unwrap();
        let slow = homes.slow.bytes("data").unwrap();
        for at in 0..6 {
            let expected = if at == 2 { 0 } else { 10 + at as u8 };
            assert!(slow[at * BLOCK..][..BLOCK] == block(expected), "block {at}");
        }
        assert_eq!(cache.lost().iter().map(|range| (range.offset, range.len)).collect::<Vec<_>>(), [(8192, 4096)]);
        assert!(matches!(cache.read(DATA, 2 * BLOCK as u64, &mut some), Err(CacheError::Lost { .. })));
    }
}

#[test]
fn a_block_that_was_damaged_in_the_log_is_sound_again_when_it_is_written_as_a_whole() {
    let homes = Homes::new();
    let cache = WriteCache::create(homes.fast(), &homes.volumes(), settings(&homes)).unwrap();
    (0..3).for_each(|at| put(&cache, at, 1));
    let log = homes.fast.bytes("fast").unwrap();
    flip(&*homes.fast(), place_of(&log, 1));
    put(&cache, 1, 2);
    assert_eq!(get(&cache, 1), 2);
    cache.drain().unwrap();
    assert!(cache.lost().is_empty());
    assert!(homes.slow.bytes("data").unwrap()[BLOCK..][..BLOCK] == block(2));
}

#[test]
fn a_superblock_with_a_damaged_sector_is_read_from_the_other_one_and_without_both_is_refused() {
    let (homes, wanted) = crashed();
    let fast = homes.fast.bytes("fast").unwrap();
    let witness = homes.slow.bytes("witness").unwrap();
    for place in [0, 4096] {
        for sector in [0, 512] {
            let mut damaged = fast.clone();
            damaged[place + sector + 48] ^= 0x10;
            let cache = open(&with(&homes, &damaged, &witness)).unwrap();
            assert!(wanted.iter().all(|(&at, &value)| get(&cache, at) == value));
            damaged[place + 512 - sector + 48] ^= 0x10;
            let error = open(&with(&homes, &damaged, &witness)).err().unwrap();
            assert!(error.to_string().contains(&format!("at byte {place}, where the newest")), "{error}");
            // A superblock that is not there any more is none that was never written.
            damaged[place..place + 4096].fill(0);
            assert!(matches!(open(&with(&homes, &damaged, &witness)), Err(CacheError::Damaged { .. })));
        }
    }
}

#[test]
fn a_log_that_is_cut_short_anywhere_is_refused_and_left_alone() {
    let (homes, _) = crashed();
    let [fast, witness, _] = bytes_of(&homes);
    for len in (0..SUPERBLOCKS + 4096).step_by(512).chain([fast.len() - 512]) {
        let copy = with(&homes, &fast[..len], &witness);
        let before = bytes_of(&copy);
        assert!(open(&copy).is_err(), "{len} bytes of {}", fast.len());
        assert!(bytes_of(&copy) == before, "{len} bytes: something was written");
    }
}

#[test]
fn a_stretch_of_zeros_in_a_log_is_refused_and_can_be_accepted_once() {
    let (homes, wanted) = crashed();
    let mut fast = homes.fast.bytes("fast").unwrap();
    let witness = homes.slow.bytes("witness").unwrap();
    let (last, _) = last_record(&fast);
    fast[last - 4096..last].fill(0);
    let copy = with(&homes, &fast, &witness);
    let error = open(&copy).err().unwrap();
    assert!(error.to_string().contains("was durable and is damaged"), "{error}");
    let cache = WriteCache::open(copy.fast(), &copy.volumes(), CacheConfig { accept_damaged: true, ..settings(&copy) })
        .unwrap();
    assert_eq!(get(&cache, 9), wanted[&9], "what lies behind the damage is there");
    assert_eq!(get(&cache, 1), 1, "the version in the damaged record is gone: what it was before is there");
    put(&cache, 20, 7);
    drop(cache);
    let cache = open(&copy).unwrap();
    assert_eq!((get(&cache, 9), get(&cache, 20)), (wanted[&9], 7), "it is no damage any more");
}

#[test]
fn a_gap_that_a_crash_left_stays_one_while_the_log_goes_on() {
    let (homes, wanted) = crashed();
    let fast = homes.fast.bytes("fast").unwrap();
    let witness = homes.slow.bytes("witness").unwrap();
    // As if two records had been under way at the crash and only the second had come through.
    let (last, end) = last_record(&fast);
    let mut torn = fast.clone();
    let (first, second) = torn[last..].split_at_mut(end - last);
    second[..first.len()].copy_from_slice(first);
    first[512] ^= 1;
    let lsn = u64::from_le_bytes(fast[last + 16..last + 24].try_into().unwrap());
    let (moved, blocks) = second[..first.len()].split_at_mut(512);
    moved[16..24].copy_from_slice(&(lsn + first.len() as u64).to_le_bytes());
    moved[32..40].copy_from_slice(&30_u64.to_le_bytes());
    moved[64..72].copy_from_slice(&(lsn + first.len() as u64).to_le_bytes());
    let seed = lsn + first.len() as u64;
    moved[56..64].copy_from_slice(&twox_hash::XxHash3_64::oneshot_with_seed(seed, blocks).to_le_bytes());
    let checksum = twox_hash::XxHash3_64::oneshot(&moved[..504]);
    moved[504..].copy_from_slice(&checksum.to_le_bytes());
    let copy = with(&homes, &torn, &witness);
    for round in 0..3_u8 {
        let cache = open(&copy).unwrap();
        assert_eq!((get(&cache, 30), get(&cache, 8)), (3, wanted[&8]));
        assert_eq!(cache.report().skipped_bytes > 0, round == 0, "it is marked as spare");
        put(&cache, 40 + u64::from(round), round);
        if round == 1 {
            cache.close().unwrap();
        }
    }
}

#[test]
fn a_witness_that_is_damaged_is_none_that_is_missing() {
    let (homes, wanted) = crashed();
    let fast = homes.fast.bytes("fast").unwrap();
    let witness = homes.slow.bytes("witness").unwrap();
    for at in (0..512).filter(|at| *at < 40 || *at > 500 || at % 41 == 0) {
        let mut damaged = witness.clone();
        damaged[at] ^= 1;
        let copy = with(&homes, &fast, &damaged);
        let before = bytes_of(&copy);
        let error = open(&copy).err().unwrap();
        assert!(matches!(error, CacheError::WitnessDamaged { .. }), "byte {at}: {error}");
        // Nor is a new log made beside it.
        copy.fast.put("new", &[]);
        let new = WriteCache::create(copy.fast.open("new").unwrap(), &copy.volumes(), settings(&copy));
        assert!(matches!(new, Err(CacheError::WitnessDamaged { .. })), "byte {at}: {:?}", new.err());
        assert!(bytes_of(&copy) == before);
    }
    let error = open(&with(&homes, &fast, &witness[..100])).err().unwrap();
    assert!(error.to_string().contains("witness, which says which log"), "{error}");
    let error = open(&with(&homes, &fast, &[])).err().unwrap();
    assert!(matches!(error, CacheError::Unclaimed { .. }), "{error}");
    let copy = with(&homes, &fast, &witness[..100]);
    let accepting = CacheConfig { accept_damaged: true, ..settings(&copy) };
    let cache = WriteCache::open(copy.fast(), &copy.volumes(), accepting).unwrap();
    assert!(wanted.iter().all(|(&at, &value)| get(&cache, at) == value));
}

#[test]
fn a_log_that_holds_nothing_is_not_that_of_volumes_without_its_witness() {
    let homes = Homes::new();
    let cache = WriteCache::create(homes.fast(), &homes.volumes(), settings(&homes)).unwrap();
    put(&cache, 3, 7);
    cache.drain().unwrap();
    cache.close().unwrap();
    let fast = homes.fast.bytes("fast").unwrap();
    let witness = homes.slow.bytes("witness").unwrap();
    // What is below the place where the volumes would be mounted.
    let bare = with(&homes, &fast, &[]);
    let before = bytes_of(&bare);
    let error = open(&bare).err().unwrap();
    assert!(matches!(error, CacheError::OtherVolumes { .. }) && error.to_string().contains("not mounted"), "{error}");
    assert!(bytes_of(&bare) == before, "nothing is written");
    let cache = open(&with(&homes, &fast, &witness)).unwrap();
    assert_eq!(get(&cache, 3), 7);
    drop(cache);
    let accepting = CacheConfig { accept_damaged: true, ..settings(&bare) };
    assert!(WriteCache::open(bare.fast(), &bare.volumes(), accepting).is_ok());
}

#[test]
fn what_is_no_log_is_left_alone() {
    for content in [&b"# a file of another user's\n"[..], &[7; 20_000], &[&[0; 5000][..], &[1; 10_000]].concat()] {
        let homes = Homes::new();
        homes.fast.put("fast", content);
        let made = WriteCache::create(homes.fast(), &homes.volumes(), settings(&homes));
        assert!(matches!(made, Err(CacheError::Foreign { .. })), "{:?}", made.err());
        assert!(matches!(open(&homes), Err(CacheError::Foreign { .. })));
        assert_eq!(homes.fast.bytes("fast").unwrap(), content);
    }
}

#[test]
fn volumes_from_a_backup_are_refused_with_the_log_that_went_on_without_them() {
    let (homes, _) = crashed();
    let backup = homes.slow.after_power_cut(PowerCut::KeepAll);
    for closes in [false, true] {
        let log_backup = homes.fast.after_power_cut(PowerCut::KeepAll);
        let cache = open(&homes).unwrap();
        put(&cache, 11, 9);
        cache.drain().unwrap();
        put(&cache, 12, 9);
        if closes {
            cache.close().unwrap();
        } else {
            drop(cache);
        }
        // The directory is older than the log, then the log older than the directory.
        for mixed in [
            Homes {
                fast: homes.fast.after_power_cut(PowerCut::KeepAll),
                slow: backup.after_power_cut(PowerCut::KeepAll),
            },
            Homes { fast: log_backup, slow: homes.slow.after_power_cut(PowerCut::KeepAll) },
        ] {
            let before = bytes_of(&mixed);
            let error = open(&mixed).err().unwrap();
            assert!(matches!(error, CacheError::Epochs { .. }), "{error}");
            let words = error.to_string();
            assert!(
                words.contains("fast") && words.contains("witness") && words.contains("restored from a backup"),
                "{words}"
            );
            assert!(bytes_of(&mixed) == before);
        }
        let cache = open(&homes).unwrap();
        assert_eq!((get(&cache, 11), get(&cache, 12)), (9, 9));
    }
}

#[test]
fn volumes_that_needed_no_log_go_with_a_later_empty_one() {
    let homes = Homes::new();
    let closed_empty = |cache: WriteCache| {
        put(&cache, 3, 4);
        cache.drain().unwrap();
        cache.close().unwrap();
    };
    closed_empty(WriteCache::create(homes.fast(), &homes.volumes(), settings(&homes)).unwrap());
    let backup = homes.slow.after_power_cut(PowerCut::KeepAll);
    closed_empty(open(&homes).unwrap());
    let restored = Homes { fast: homes.fast.clone(), slow: backup };
    let cache = open(&restored).unwrap();
    assert_eq!(get(&cache, 3), 4);
    put(&cache, 3, 5);
    drop(cache);
    assert_eq!(get(&open(&restored).unwrap(), 3), 5);
}

#[test]
fn a_power_cut_between_any_two_steps_of_opening_and_closing_leaves_log_and_volumes_together() {
    let (homes, wanted) = crashed();
    for shared in [true, false] {
        for step in 0..40 {
            let copy = Homes {
                fast: homes.fast.after_power_cut(PowerCut::KeepAll),
                slow: homes.slow.after_power_cut(PowerCut::KeepAll),
            };
            // The power of either device goes at a step of its own: whatever was done on the other one stays.
            let off = if shared { &copy.fast } else { &copy.slow };
            off.power_off_at(off.steps() + step);
            let ended = open(&copy).and_then(WriteCache::close);
            for cut in [PowerCut::LoseAll, PowerCut::KeepAll, PowerCut::KeepSome(step)] {
                let after = Homes { fast: copy.fast.after_power_cut(cut), slow: copy.slow.after_power_cut(cut) };
                let cache = open(&after).unwrap_or_else(|error| panic!("step {step}, {cut:?}, {ended:?}: {error}"));
                assert!(wanted.iter().all(|(&at, &value)| get(&cache, at) == value), "step {step}, {cut:?}");
            }
        }
    }
}

#[test]
fn a_log_of_the_first_release_opens_and_gets_what_it_lacks() {
    let (homes, wanted) = crashed();
    // What that release wrote: zeros where trails, copies and epochs are now.
    let mut fast = homes.fast.bytes("fast").unwrap();
    for place in [0, 4096] {
        fast[place + 8] = 1;
        fast[place + 64..place + 4088].fill(0);
        let checksum = twox_hash::XxHash3_64::oneshot(&fast[place..place + 4088]);
        fast[place + 4088..place + 4096].copy_from_slice(&checksum.to_le_bytes());
    }
    for at in (SUPERBLOCKS..fast.len()).step_by(512) {
        if fast[at..].starts_with(b"QWCREC01") {
            fast[at + 64..at + 504].fill(0);
            let checksum = twox_hash::XxHash3_64::oneshot(&fast[at..at + 504]);
            fast[at + 504..at + 512].copy_from_slice(&checksum.to_le_bytes());
        }
    }
    let mut witness = homes.slow.bytes("witness").unwrap();
    witness[24..504].fill(0);
    let checksum = twox_hash::XxHash3_64::oneshot(&witness[..504]);
    witness[504..512].copy_from_slice(&checksum.to_le_bytes());
    let copy = with(&homes, &fast, &witness);
    for _ in 0..2 {
        let cache = open(&copy).unwrap();
        assert!(wanted.iter().all(|(&at, &value)| get(&cache, at) == value));
    }
    let now = copy.fast.bytes("fast").unwrap();
    let newer = if now[24] > now[4096 + 24] { &now[..4096] } else { &now[4096..] };
    assert!(newer[64..72] != [0; 8] && newer[64..72] == copy.slow.bytes("witness").unwrap()[24..32], "epochs");
}

/// Makes the superblock in this place one of another version, right in all else.
fn set_version(fast: &mut [u8], place: usize, version: u8) {
    fast[place + 8] = version;
    let sector = twox_hash::XxHash3_64::oneshot(&fast[place..place + 504]);
    fast[place + 504..place + 512].copy_from_slice(&sector.to_le_bytes());
    fast.copy_within(place..place + 512, place + 512);
    let whole = twox_hash::XxHash3_64::oneshot(&fast[place..place + 4088]);
    fast[place + 4088..place + 4096].copy_from_slice(&whole.to_le_bytes());
}

#[test]
fn a_log_of_every_version_so_far_opens() {
    let (homes, wanted) = crashed();
    let witness = homes.slow.bytes("witness").unwrap();
    for version in 1..=3 {
        let mut fast = homes.fast.bytes("fast").unwrap();
        set_version(&mut fast, 0, version);
        set_version(&mut fast, 4096, version);
        let copy = with(&homes, &fast, &witness);
        for _ in 0..2 {
            let cache = open(&copy).unwrap();
            assert!(wanted.iter().all(|(&at, &value)| get(&cache, at) == value), "version {version}");
        }
    }
}

#[test]
fn a_log_of_a_newer_version_is_refused_by_name_and_left_as_it_is() {
    let (homes, _) = crashed();
    let witness = homes.slow.bytes("witness").unwrap();
    for places in [&[0, 4096][..], &[0], &[4096]] {
        let mut fast = homes.fast.bytes("fast").unwrap();
        places.iter().for_each(|&place| set_version(&mut fast, place, 4));
        for accept_damaged in [false, true] {
            let copy = with(&homes, &fast, &witness);
            let settings = CacheConfig { accept_damaged, ..settings(&copy) };
            let error = WriteCache::open(copy.fast(), &copy.volumes(), settings).err().unwrap();
            assert!(error.to_string().contains("version 4"), "{error}");
            assert!(copy.fast.bytes("fast").unwrap() == fast, "{places:?}");
        }
    }
}
