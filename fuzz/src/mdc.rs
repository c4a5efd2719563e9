//! Target `mdc_reader`: any bytes as a checkpoint of a forked child are refused with an error, or read; never a panic.
//!
//! Relies on a valid checkpoint with a few objects. The first byte of the input says whether the rest is the whole file, or patches of
//! the valid one (offset: three bytes, length: one, up to 16, bytes), and whether checksums are set right again afterwards.

use std::sync::OnceLock;

use quire_mdc::format::{ChunkHead, Footer, Header, LOG_OFFSET, UNIT_BYTES, checksum};
use quire_mdc::{Restore, RestoreError};
use zerocopy::{FromBytes, IntoBytes};

use quire_rng::SplitMix64;

const PAGE: usize = 4096;
const WHOLE: u8 = 1;
const RESEAL: u8 = 2;
/// Reads of a file end after that many: its records may say that objects are as long as memory.
const READS: usize = 64;

/// The promise: opening, verifying and reading end in a result.
pub fn run(data: &[u8]) {
    let mut bytes = match data.split_first() {
        Some((&flags, rest)) if flags & WHOLE != 0 => rest.to_vec(),
        Some((_, rest)) => patched(valid(), rest),
        None => valid().clone(),
    };
    if data.first().is_some_and(|flags| flags & RESEAL != 0) {
        reseal(&mut bytes);
    }
    let read = || -> Result<usize, RestoreError> {
        let mut restore = Restore::from_bytes("checkpoint", bytes)?;
        let mut total = 0;
        for turn in 1..READS {
            let mut piece = vec![0; turn * turn * 7];
            let count = restore.read(&mut piece)?;
            total += count;
            if count < piece.len() {
                break;
            }
        }
        restore.verify()?;
        Ok(total)
    };
    let read = read();
    assert!(!data.is_empty() || read.is_ok_and(|total| total > PAGE), "the valid checkpoint was refused");
}

fn patched(base: &[u8], patches: &[u8]) -> Vec<u8> {
    let mut bytes = base.to_vec();
    let mut rest = patches;
    while let [low, middle, high, len, tail @ ..] = rest {
        let at = u32::from_le_bytes([*low, *middle, *high, 0]) as usize;
        // A high top bit counts from the end, where table and footer are.
        let at = if high & 0x80 != 0 { bytes.len() - 1 - (at & 0xffff) % bytes.len() } else { at % bytes.len() };
        let len = (usize::from(*len) % 17).min(tail.len()).min(bytes.len() - at);
        bytes[at..at + len].copy_from_slice(&tail[..len]);
        rest = &tail[len..];
    }
    bytes
}

/// Gives header, first chunk, table and footer the checksums that fit their bytes.
fn reseal(bytes: &mut [u8]) {
    let Some(end) = bytes.len().checked_sub(PAGE).filter(|&end| end >= PAGE) else { return };
    let Ok(mut header) = Header::read_from_bytes(&bytes[..PAGE]) else { return };
    header.checksum = header.own_checksum().into();
    bytes[..PAGE].copy_from_slice(header.as_bytes());
    let log = LOG_OFFSET as usize;
    if let Some(Ok(mut head)) = bytes.get(log..log + size_of::<ChunkHead>()).map(ChunkHead::read_from_bytes) {
        let from = log + size_of::<ChunkHead>();
        if let Some(payload) = bytes.get(from..from + (head.used.get() as usize).min(UNIT_BYTES)) {
            head.checksum = checksum(payload, 0).into();
            bytes[log..from].copy_from_slice(head.as_bytes());
        }
    }
    let Ok(mut footer) = Footer::read_from_bytes(&bytes[end..]) else { return };
    footer.header_checksum = header.checksum;
    let table = usize::try_from(footer.table_offset.get()).ok().and_then(|start| bytes.get(start..end));
    footer.table_checksum = checksum(table.unwrap_or_default(), 0).into();
    footer.checksum = footer.own_checksum().into();
    bytes[end..].copy_from_slice(footer.as_bytes());
}

fn valid() -> &'static Vec<u8> {
    static VALID: OnceLock<Vec<u8>> = OnceLock::new();
    VALID.get_or_init(|| quire_mdc::sample().expect("a checkpoint of this process"))
}

/// The valid checkpoint, patches of its start and its end with and without right checksums.
pub fn seeds() -> Vec<Vec<u8>> {
    let mut rng = SplitMix64::new(77);
    let mut seeds = vec![vec![], vec![WHOLE], [&[WHOLE], &valid()[..PAGE]].concat(), vec![RESEAL]];
    for number in 0..200_u32 {
        // The header's fields, the log's first records, the footer's and the table's.
        let place = match number % 4 {
            0 => rng.index(64),
            1 => PAGE + rng.index(64),
            2 => PAGE - rng.index(80),
            _ => PAGE + rng.index(PAGE),
        };
        let at = (place as u32).to_le_bytes();
        let from_end = if number % 4 > 1 { 0x80 } else { 0 };
        let mut seed = vec![if number % 3 > 0 { RESEAL } else { 0 }, at[0], at[1], from_end, 1 + rng.index(8) as u8];
        seed.extend((rng.next_u64() >> (8 * rng.index(8))).to_le_bytes());
        seeds.push(seed);
    }
    seeds
}

#[cfg(test)]
mod tests {
    use zerocopy::FromBytes;

    #[test]
    fn the_valid_checkpoint_is_the_same_each_time() {
        let sample = || quire_mdc::sample().unwrap();
        assert!(sample() == sample());
        assert_eq!(super::Header::read_from_bytes(&sample()[..super::PAGE]).unwrap().created_unix_ms.get(), 1_000_000);
    }
}
