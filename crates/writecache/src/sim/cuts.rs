//! The simulation's power cuts, and what must hold after them and beside a volume that refuses everything.
//!
//! Relies on [`World`].

use super::*;

impl World {
    /// The power goes; what is left is checked and the cache opened again.
    pub(super) fn lose_power(mut self) -> Self {
        let truncation = |rng: &mut SplitMix64| match rng.below(4) {
            0 => PowerCut::LoseAll,
            1 => PowerCut::KeepAll,
            _ => PowerCut::KeepSome(rng.below(u64::MAX)),
        };
        let fast_home = self.fast_home.after_power_cut(truncation(&mut self.rng));
        let slow_homes = [0, 1].map(|index: usize| self.slow_homes[index].after_power_cut(truncation(&mut self.rng)));
        let fast = fast_home.open("fast").unwrap();
        let mut read = |offset: u64, into: &mut [u8]| fast.read_at(offset, into).map(drop);
        let found = recover(&mut read, AREA_OFFSET + AREA_BYTES).unwrap();
        let (model, refuses) = (std::mem::take(&mut self.model), self.faults.refuses);
        let mut found_again = Self::start(self.rng, self.policy, fast_home, slow_homes, &found, model);
        found_again.check_after_cut();
        found_again.faults.refuses = refuses;
        found_again
    }

    pub(super) fn check_after_cut(&mut self) {
        for addr in Self::addrs() {
            let acknowledged = self.model.acknowledged.get(&addr).copied().unwrap_or(0);
            let versions = self.model.written.get(&addr).cloned().unwrap_or_default();
            let block = self.read(addr);
            for sector in block.chunks_exact(512) {
                let version = u64::from_le_bytes(sector[..8].try_into().unwrap());
                let was = versions.iter().any(|&(seqno, known)| known == version && seqno >= acknowledged);
                let begins_so = version == 0 && acknowledged == 0;
                assert!(
                    was || begins_so,
                    "{addr:?} is version {version}, which it never was since {acknowledged}: {versions:?}"
                );
            }
            // What is there now is what the next steps begin with. A torn block stays one: write it anew.
            let sectors = block.chunks_exact(512).map(|sector| u64::from_le_bytes(sector[..8].try_into().unwrap()));
            let newest = sectors.clone().max().unwrap();
            if sectors.min() != Some(newest) {
                self.rewrite(addr);
                continue;
            }
            let begins_so = newest == 0 && acknowledged == 0;
            let now = if begins_so { Vec::new() } else { vec![(acknowledged, newest)] };
            self.model.written.insert(addr, now);
        }
    }

    pub(super) fn rewrite(&mut self, addr: BlockAddr) {
        let seqno = self.next_seqno();
        self.cache_state.grow(addr.volume, addr.plus(1).offset());
        self.model.written.entry(addr).or_default().push((seqno.0, seqno.0));
        self.queue(addr, 1, seqno, true);
    }

    /// Of the volumes that can't be written to the cache state knows what looking at all of them tells.
    pub(super) fn check_refused(&self) {
        let refused = || self.cache_state.volumes.values().filter(|volume| volume.is_refused());
        let known = &self.cache_state.log.refused;
        assert_eq!(known.count(), refused().count());
        assert_eq!(known.logged_blocks(), refused().map(|volume| volume.logged_blocks).sum::<u64>());
        assert_eq!(known.pending_blocks(), refused().map(|volume| volume.tally.total()).sum::<usize>());
    }

    /// One volume refuses everything, and what the others were given becomes durable and leaves the log all the same, though
    /// the log would never hold so much. Returns how many writes of others there were.
    pub(super) fn write_past(&mut self, refused: VolumeId) -> usize {
        (self.faults.sick, self.settles) = (false, true);
        let mut written = 0;
        for round in 0..500 {
            self.now_ns += 1;
            while let Some(last) = self.under.len().checked_sub(1) {
                if self.under[last].has_run() { self.finish(last) } else { self.run(last) }
            }
            let waits = self.tickets.iter().any(|(ticket, _)| ticket.volume != refused);
            if !waits && round < 400 {
                written += 1;
                self.write_to(VOLUMES.into_iter().find(|id| *id != refused).unwrap());
            }
            for (ticket, progress) in &mut self.tickets {
                let survey = ticket.survey(&self.cache_state, progress, Criticality::default(), 0);
                ticket.press(&mut self.cache_state, &survey, 1);
            }
            let begun = self.begin(true) | self.drain() | self.tell();
            self.now_ns += if begun { 0 } else { 2_000_000_000 };
            self.acknowledge();
        }
        self.settles = false;
        assert!(self.tickets.iter().all(|(ticket, _)| ticket.volume == refused), "a write of another is not settled");
        written
    }
}
