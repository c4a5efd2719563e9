//! The model that a simulated cache is compared with: what was written, what was acknowledged, what a read must find.
//!
//! Relies on each sector of a block saying which version it is.

use std::collections::BTreeMap;

use crate::cache_state::{BlockLocation, WriteTicket};
use crate::format::AREA_OFFSET;
use crate::ids::{BLOCK_BYTES, BlockAddr, BlockData};
use crate::recover::RecoveredLog;
use crate::sim::{AREA_BYTES, BLOCKS, VOLUMES, World};

/// Every version of each block that was written, and the newest that was acknowledged.
#[derive(Default)]
pub(super) struct Model {
    /// What each block was given, in order: the number of the write or truncation, and the version from then on, which is 0
    /// behind a truncation.
    pub(super) written: BTreeMap<BlockAddr, Vec<(u64, u64)>>,
    pub(super) acknowledged: BTreeMap<BlockAddr, u64>,
}

impl Model {
    pub(super) fn newest(&self, addr: BlockAddr) -> u64 {
        self.written.get(&addr).and_then(|versions| versions.last()).map_or(0, |(_, version)| *version)
    }

    pub(super) fn acknowledge(&mut self, ticket: &WriteTicket) {
        for block in ticket.first..ticket.end {
            let addr = BlockAddr { volume: ticket.volume, block };
            let stamps = self.written.get(&addr).into_iter().flatten().map(|(seqno, _)| *seqno);
            let newest = stamps.filter(|seqno| *seqno <= ticket.seqno.0).max().unwrap_or(0);
            let known = self.acknowledged.entry(addr).or_default();
            *known = newest.max(*known);
        }
    }
}

/// A block whose every sector says which version it is.
pub(super) fn block_of(version: u64) -> BlockData {
    let mut bytes = vec![0; BLOCK_BYTES];
    for sector in bytes.chunks_exact_mut(512) {
        sector[..8].copy_from_slice(&version.to_le_bytes());
    }
    BlockData::split_blocks(&bytes).remove(0)
}

/// A log that holds nothing.
pub(super) fn empty_log(seed: u64, area_bytes: u64) -> RecoveredLog {
    RecoveredLog {
        identity: seed,
        generation: 0,
        granule_bytes: if seed.is_multiple_of(2) { 512 } else { 4096 },
        area_bytes,
        clean: false,
        tail_lsn: 0,
        head_lsn: 0,
        records: Vec::new(),
        skipped_bytes: 0,
        gaps: Vec::new(),
        epochs: Default::default(),
        accepted: Vec::new(),
        sums: Default::default(),
    }
}

impl World {
    pub(super) fn acknowledge(&mut self) {
        for (ticket, mut progress) in std::mem::take(&mut self.tickets) {
            if ticket.is_unsettled(&self.cache_state, &mut progress) {
                self.tickets.push((ticket, progress));
            } else {
                self.model.acknowledge(&ticket);
            }
        }
    }

    pub(super) fn addrs() -> impl Iterator<Item = BlockAddr> {
        VOLUMES.into_iter().flat_map(|volume| (0..BLOCKS).map(move |block| BlockAddr { volume, block }))
    }

    pub(super) fn read(&self, addr: BlockAddr) -> Vec<u8> {
        let mut block = vec![0; BLOCK_BYTES];
        match self.cache_state.find(addr) {
            BlockLocation::Memory(piece) => block.copy_from_slice(piece.bytes()),
            BlockLocation::Log(position) => {
                self.fast.read_at(AREA_OFFSET + position % AREA_BYTES, &mut block).unwrap();
            }
            BlockLocation::Slow => {
                let volume = &self.cache_state.volumes[&addr.volume];
                // As `SharedCache::read_slow` does it.
                if addr.offset() < volume.truncations.floor().min(volume.len) {
                    volume.device.as_ref().unwrap().read_at(addr.offset(), &mut block).unwrap();
                }
            }
        }
        block
    }

    pub(super) fn check_newest(&self) {
        let holds_still = |addr: &BlockAddr| self.cache_state.volumes[&addr.volume].holds_still(addr.block);
        for addr in Self::addrs().filter(|addr| !holds_still(addr)) {
            let expected = block_of(self.model.newest(addr));
            let found = u64::from_le_bytes(self.read(addr)[..8].try_into().unwrap());
            let known = self.model.written.get(&addr);
            assert!(
                self.read(addr) == expected.bytes(),
                "{addr:?} is version {found} by {:?}, not the last of {known:?}; {:?}",
                self.cache_state.find(addr),
                self.cache_state.volumes[&addr.volume].truncations
            );
        }
    }
}
