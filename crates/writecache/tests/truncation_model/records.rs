//! The fates of records: durable, or unknown since the fast device died; and what a dead log held goes to the slow device.
//!
//! Relies on [`World`] for the state.

use crate::{LogRecord, Mutant, SlowOp, Truncator, What, World};

impl World {
    /// A record's fate: it is durable, or the device dies and it may be there or not.
    pub(crate) fn end_record(&mut self) {
        let under_way: Vec<usize> = (0..self.fast.log.len()).filter(|&at| !self.fast.log[at].durable).collect();
        if under_way.is_empty() || self.fast.is_dead {
            return;
        }
        let at = under_way[self.rng.index(under_way.len())];
        if self.rng.index(60) == 0 {
            return self.fast_dies();
        }
        self.fast.log[at].durable = true;
        let LogRecord { lsn, what, .. } = self.fast.log[at];
        match what {
            What::Write { block, version } => {
                let newest = self.memory.logged.get(&block).is_none_or(|(known, _)| *known < lsn);
                if newest {
                    self.memory.logged.insert(block, (lsn, version));
                }
                if self.memory.flights.get(&block).is_some_and(|flight| flight.written.is_some()) {
                    self.memory.flights.remove(&block);
                }
            }
            What::Truncate { len } => {
                if self.truncation.recording.is_some() {
                    self.apply_truncation(lsn, len);
                }
            }
            What::TruncateDone { upto } => {
                let covered = if self.is(Mutant::DoneCoversAll) { usize::MAX } else { upto };
                self.truncation.pending.retain(|&(lsn, _)| lsn > covered);
                self.truncation.truncator = Truncator::Idle;
            }
        }
    }

    pub(crate) fn fast_dies(&mut self) {
        self.fast.is_dead = true;
        // Its step ends, as one of an issuer would; the rest is begun anew.
        self.drain = None;
        self.slow.volatile.extend(self.drain_step.take().map(|(block, version)| SlowOp::Write(block, version)));
        // Records under way: each may be there.
        for record in std::mem::take(&mut self.fast.log) {
            if record.durable {
                self.fast.log.push(record);
                continue;
            }
            match record.what {
                What::Write { block, version } => {
                    // It waits again, unless the log has a newer one, or a newer one waits.
                    if self.memory.logged.get(&block).is_none_or(|(lsn, _)| *lsn < record.lsn) {
                        self.memory
                            .queued
                            .entry(block)
                            .and_modify(|known| *known = version.max(*known))
                            .or_insert(version);
                    }
                    self.memory.closed.insert(block);
                }
                What::Truncate { len } => self.truncation.retry = Some(len),
                What::TruncateDone { .. } => self.truncation.truncator = Truncator::Idle,
            }
            if self.rng.index(2) == 0 {
                self.fast.log.push(LogRecord { durable: true, ..record });
            }
        }
        if let Truncator::Telling = self.truncation.truncator {
            self.truncation.truncator = Truncator::Idle;
        }
        self.truncation.recording = None;
        if self.is(Mutant::GoesOnAtOnce) {
            self.fast.is_salvaged = true;
            let mut blocks: Vec<SlowOp> = Vec::new();
            self.truncation.pending.drain(..).for_each(|(_, len)| blocks.push(SlowOp::SetLen(len)));
            blocks.push(SlowOp::SetLen(self.len));
            blocks.extend(self.memory.logged.iter().map(|(block, (_, version))| SlowOp::Write(*block, *version)));
            self.slow.volatile.extend(blocks);
            self.slow.flush();
            self.memory.logged.clear();
            self.memory.closed.clear();
        }
    }

    /// Everything that the dead log holds goes to the slow device, in one step: its order within is that of the truncator
    /// and of write-back.
    pub(crate) fn salvage(&mut self) {
        let flies = self.memory.flights.values().any(|flight| flight.written.is_none());
        if !self.fast.is_dead || self.fast.is_salvaged || flies || !matches!(self.truncation.truncator, Truncator::Idle)
        {
            return;
        }
        if self.is(Mutant::AbandonsEarly) && self.has_witness {
            self.slow.abandoned = true;
            if self.rng.index(3) > 0 {
                return;
            }
        }
        if !self.is(Mutant::SalvagesWithoutCuts) {
            let truncations: Vec<SlowOp> =
                self.truncation.pending.iter().map(|&(_, len)| SlowOp::SetLen(len)).collect();
            self.slow.volatile.extend(truncations);
        }
        self.truncation.pending.clear();
        let blocks: Vec<SlowOp> =
            self.memory.logged.iter().map(|(block, (_, version))| SlowOp::Write(*block, *version)).collect();
        self.slow.volatile.extend(blocks);
        self.slow.flush();
        self.memory.flights.retain(|_, flight| flight.written.is_none());
        self.fast.is_salvaged = true;
        if self.has_witness {
            self.slow.abandoned = true;
            self.memory.logged.clear();
            self.memory.closed.clear();
        } else {
            // Nothing newer of these blocks may ever be acknowledged; nor anything behind the fence of what the log may
            // still do.
            let logged: Vec<usize> = self.memory.logged.keys().copied().collect();
            self.memory.closed.extend(logged);
            self.memory.logged.clear();
            let truncations_in_log = self.fast.log.iter().any(|record| matches!(record.what, What::Truncate { .. }));
            if truncations_in_log && !self.is(Mutant::ForgetsUnknownTruncation) {
                self.refused = true;
            }
        }
    }

    pub(crate) fn append_queued(&mut self) {
        let blocks: Vec<usize> = self.memory.queued.keys().copied().collect();
        if blocks.is_empty() || self.fast.is_dead || self.truncation.recording.is_some() {
            return;
        }
        let block = blocks[self.rng.index(blocks.len())];
        // A length that the log does not know must be durable first.
        if self.flush.len_change.is_some() || self.truncation.retry.is_some() {
            return;
        }
        let version = self.memory.queued.remove(&block).unwrap();
        self.append(What::Write { block, version });
    }
}
