//! Target `wcache_log`: any bytes as the fast device of a write cache are refused with an error, or recovered; never a panic.
//!
//! Relies on a valid log of a few records. The first byte of the input says whether the rest is the whole device, or
//! patches of the valid one (offset: three bytes, length: one, up to 16, bytes), and whether the checksums of superblocks
//! and records are set right again afterwards, so that patches get past them.

use std::sync::OnceLock;

use quire_device::{Directory, MemoryDirectory};
use quire_writecache::format::{AREA_OFFSET, HEADER_BYTES, RECORD_MAGIC, RecordHeader, SUPERBLOCK_BYTES, Superblock};
use quire_writecache::recover::{RecoveredLog, recover};
use quire_writecache::{
    AdmissionPolicy, BLOCK_BYTES, CacheConfig, LEAST_AREA_BYTES, TaskGraph, VolumeId, VolumeLength, VolumeSpec,
    WriteCache, WriteContext,
};
use zerocopy::{FromBytes, IntoBytes};

use quire_rng::SplitMix64;

const WHOLE: u8 = 1;
const RESEAL: u8 = 2;

/// The promise: recovery ends in a result, and what it finds lies within bounds and in order.
pub fn run(data: &[u8]) {
    let mut bytes = match data.split_first() {
        Some((&flags, rest)) if flags & WHOLE != 0 => rest.to_vec(),
        Some((_, rest)) => patched(valid(), rest),
        None => valid().clone(),
    };
    if data.first().is_some_and(|flags| flags & RESEAL != 0) {
        reseal(&mut bytes);
    }
    let mut read = |offset: u64, into: &mut [u8]| {
        let from = (offset as usize).min(bytes.len());
        let part = (bytes.len() - from).min(into.len());
        into[..part].copy_from_slice(&bytes[from..from + part]);
        into[part..].fill(0);
        Ok(())
    };
    match recover(&mut read, bytes.len() as u64) {
        Ok(found) => check(&found, bytes.len() as u64),
        Err(error) => assert!(!data.is_empty(), "the valid log was refused: {error}"),
    }
}

fn check(found: &RecoveredLog, device_bytes: u64) {
    assert!(found.area_bytes + AREA_OFFSET <= device_bytes);
    assert!(found.tail_lsn <= found.head_lsn && found.head_lsn - found.tail_lsn <= found.area_bytes);
    let mut end = found.tail_lsn;
    for record in &found.records {
        assert!(record.lsn >= end && record.end > record.lsn && record.end <= found.head_lsn);
        assert!(record.first_block.checked_add(u64::from(record.block_count)).is_some());
        assert!(record.floor <= record.volume_len);
        end = record.end;
    }
}

fn patched(base: &[u8], patches: &[u8]) -> Vec<u8> {
    let mut bytes = base.to_vec();
    let mut rest = patches;
    while let [low, middle, high, len, tail @ ..] = rest {
        let at = u32::from_le_bytes([*low, *middle, *high, 0]) as usize % bytes.len();
        let len = (usize::from(*len) % 17).min(tail.len()).min(bytes.len() - at);
        bytes[at..at + len].copy_from_slice(&tail[..len]);
        rest = &tail[len..];
    }
    bytes
}

/// Gives superblocks and whatever looks like a record's header the checksums that fit their bytes.
fn reseal(bytes: &mut [u8]) {
    for half in bytes.chunks_exact_mut(SUPERBLOCK_BYTES).take(2) {
        if let Ok(mut superblock) = Superblock::read_from_bytes(half) {
            superblock.seal();
            half.copy_from_slice(superblock.as_bytes());
        }
    }
    for place in bytes.chunks_exact_mut(HEADER_BYTES).skip(AREA_OFFSET as usize / HEADER_BYTES) {
        if place[..8] == RECORD_MAGIC
            && let Ok(mut header) = RecordHeader::read_from_bytes(place)
        {
            header.checksum = header.own_checksum().into();
            place.copy_from_slice(header.as_bytes());
        }
    }
}

fn valid() -> &'static Vec<u8> {
    static VALID: OnceLock<Vec<u8>> = OnceLock::new();
    VALID.get_or_init(|| {
        let memory = MemoryDirectory::new();
        memory.put("fast", &[]);
        memory.put("slow", &[0; 64 * BLOCK_BYTES]);
        let config = CacheConfig {
            policy: AdmissionPolicy::All,
            capacity_bytes: AREA_OFFSET + LEAST_AREA_BYTES,
            granule_bytes: Some(512),
            low_percent: 100,
            tasks: TaskGraph::new(),
            ..CacheConfig::default()
        };
        let device = memory.open("slow").expect("it was put there");
        let volumes = [VolumeSpec { id: VolumeId(1), device, growth: VolumeLength::Growable }];
        let fast = memory.open("fast").expect("it was put there");
        let cache = WriteCache::create(fast, &volumes, config).expect("a new cache");
        let context = WriteContext::current().sync();
        for number in 0..12_u64 {
            let bytes = vec![number as u8; BLOCK_BYTES * (1 + number as usize % 3)];
            cache.write(VolumeId(1), number * 9000, &bytes, &context).expect("memory takes it");
        }
        cache.set_len(VolumeId(1), 50_000, &context).expect("memory takes it");
        drop(cache);
        memory.bytes("fast").expect("it is there")
    })
}

/// The valid log, patches of its superblocks and headers with and without right checksums, truncations.
pub fn seeds() -> Vec<Vec<u8>> {
    let mut rng = SplitMix64::new(77);
    let mut seeds = vec![vec![], vec![WHOLE], [&[WHOLE], &valid()[..9000]].concat(), vec![RESEAL]];
    let headers: Vec<usize> =
        (0..valid().len() / HEADER_BYTES).map(|index| index * HEADER_BYTES).filter(|&at| is_header(at)).collect();
    // A truncation becomes one that stands for several: its kind, and a length below its own.
    for at in headers.iter().filter(|at| valid()[**at + 44] == 2) {
        let place = |offset: usize| ((at + offset) as u32).to_le_bytes();
        let ([k0, k1, k2, _], [f0, f1, f2, _]) = (place(44), place(88));
        for floor in [0, 7, 255] {
            seeds.push(vec![RESEAL, k0, k1, k2, 1, 6, f0, f1, f2, 2, floor, floor]);
        }
    }
    for number in 0..200_u32 {
        let base = if number % 3 == 0 { 4096 * rng.index(2) } else { headers[rng.index(headers.len())] };
        let at = ((base + rng.index(72)) as u32).to_le_bytes();
        let len = 1 << rng.index(4);
        let mut seed = vec![if number % 4 < 3 { RESEAL } else { 0 }, at[0], at[1], at[2], len];
        seed.extend((rng.next_u64() >> (8 * rng.index(8))).to_le_bytes().iter().cycle().take(usize::from(len)));
        seeds.push(seed);
    }
    seeds
}

fn is_header(at: usize) -> bool {
    valid()[at..].starts_with(&RECORD_MAGIC)
}
