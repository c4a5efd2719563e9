//! The fates of records: durable, or unknown since the fast device died; and what a dead log held goes to the slow device.
//!
//! Relies on [`World`] for the state.

use crate::{Cutter, Mutant, Record, SlowOp, What, World};

impl World {
    /// A record's fate: it is durable, or the device dies and it may be there or not.
    pub(crate) fn end_record(&mut self) {
        let under_way: Vec<usize> = (0..self.log.len()).filter(|&at| !self.log[at].durable).collect();
        if under_way.is_empty() || self.fast_dead {
            return;
        }
        let at = under_way[self.dice.roll(under_way.len())];
        if self.dice.roll(60) == 0 {
            return self.fast_dies();
        }
        self.log[at].durable = true;
        let Record { lsn, what, .. } = self.log[at];
        match what {
            What::Write { block, version } => {
                let newest = self.logged.get(&block).is_none_or(|(known, _)| *known < lsn);
                if newest {
                    self.logged.insert(block, (lsn, version));
                }
                if self.flights.get(&block).is_some_and(|flight| flight.written.is_some()) {
                    self.flights.remove(&block);
                }
            }
            What::Cut { len } => {
                if self.cutting.is_some() {
                    self.apply_cut(lsn, len);
                }
            }
            What::CutDone { upto } => {
                let covered = if self.is(Mutant::DoneCoversAll) { usize::MAX } else { upto };
                self.pending.retain(|&(lsn, _)| lsn > covered);
                self.cutter = Cutter::Idle;
            }
        }
    }

    pub(crate) fn fast_dies(&mut self) {
        self.fast_dead = true;
        // Its step ends, as one of an issuer would; the rest is begun anew.
        self.drain = None;
        self.slow.volatile.extend(self.drain_step.take().map(|(block, version)| SlowOp::Write(block, version)));
        // Records under way: each may be there.
        for record in std::mem::take(&mut self.log) {
            if record.durable {
                self.log.push(record);
                continue;
            }
            match record.what {
                What::Write { block, version } => {
                    // It waits again, unless the log has a newer one, or a newer one waits.
                    if self.logged.get(&block).is_none_or(|(lsn, _)| *lsn < record.lsn) {
                        self.queued.entry(block).and_modify(|known| *known = version.max(*known)).or_insert(version);
                    }
                    self.closed.insert(block);
                }
                What::Cut { len } => self.retry = Some(len),
                What::CutDone { .. } => self.cutter = Cutter::Idle,
            }
            if self.dice.roll(2) == 0 {
                self.log.push(Record { durable: true, ..record });
            }
        }
        if let Cutter::Telling = self.cutter {
            self.cutter = Cutter::Idle;
        }
        self.cutting = None;
        if self.is(Mutant::GoesOnAtOnce) {
            self.salvaged = true;
            let mut blocks: Vec<SlowOp> = Vec::new();
            self.pending.drain(..).for_each(|(_, len)| blocks.push(SlowOp::SetLen(len)));
            blocks.push(SlowOp::SetLen(self.len));
            blocks.extend(self.logged.iter().map(|(block, (_, version))| SlowOp::Write(*block, *version)));
            self.slow.volatile.extend(blocks);
            self.slow.flush();
            self.logged.clear();
            self.closed.clear();
        }
    }

    /// Everything that the dead log holds goes to the slow device, in one step: its order within is that of the cutter and of write-back.
    pub(crate) fn salvage(&mut self) {
        let flies = self.flights.values().any(|flight| flight.written.is_none());
        if !self.fast_dead || self.salvaged || flies || !matches!(self.cutter, Cutter::Idle) {
            return;
        }
        if self.is(Mutant::AbandonsEarly) && self.has_witness {
            self.slow.abandoned = true;
            if self.dice.roll(3) > 0 {
                return;
            }
        }
        if !self.is(Mutant::SalvagesWithoutCuts) {
            let cuts: Vec<SlowOp> = self.pending.iter().map(|&(_, len)| SlowOp::SetLen(len)).collect();
            self.slow.volatile.extend(cuts);
        }
        self.pending.clear();
        let blocks: Vec<SlowOp> =
            self.logged.iter().map(|(block, (_, version))| SlowOp::Write(*block, *version)).collect();
        self.slow.volatile.extend(blocks);
        self.slow.flush();
        self.flights.retain(|_, flight| flight.written.is_none());
        self.salvaged = true;
        if self.has_witness {
            self.slow.abandoned = true;
            self.logged.clear();
            self.closed.clear();
        } else {
            // Nothing newer of these blocks may ever be acknowledged; nor anything behind the fence of what the log may still do.
            let logged: Vec<usize> = self.logged.keys().copied().collect();
            self.closed.extend(logged);
            self.logged.clear();
            let cuts_in_log = self.log.iter().any(|record| matches!(record.what, What::Cut { .. }));
            if cuts_in_log && !self.is(Mutant::ForgetsUnknownCut) {
                self.refused = true;
            }
        }
    }

    pub(crate) fn append_queued(&mut self) {
        let blocks: Vec<usize> = self.queued.keys().copied().collect();
        if blocks.is_empty() || self.fast_dead || self.cutting.is_some() {
            return;
        }
        let block = blocks[self.dice.roll(blocks.len())];
        // A length that the log does not know must be durable first.
        if self.len_change.is_some() || self.retry.is_some() {
            return;
        }
        let version = self.queued.remove(&block).unwrap();
        self.append(What::Write { block, version });
    }
}
