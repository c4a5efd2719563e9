//! What goes on in the background: flushes, the cutter, write-back; and the steps, power cuts and recovery.
//!
//! Relies on [`World`] for the state.

use crate::{Cutter, Mutant, Record, SlowOp, What, World, check};

impl World {
    fn flush(&mut self) {
        match self.flushing.take() {
            None => {
                self.epoch += 1;
                self.flushing = Some(self.epoch);
            }
            Some(epoch) => {
                self.slow.flush();
                self.flights.retain(|_, flight| flight.written.is_none_or(|written| written >= epoch));
                self.len_change = self.len_change.filter(|changed| *changed >= epoch);
            }
        }
    }

    fn cutter(&mut self) {
        match self.cutter.clone() {
            Cutter::Idle => {
                let Some(&(upto, last)) = self.pending.last() else { return };
                let floor = self.pending.iter().map(|&(_, len)| len).min().unwrap_or(last);
                let flies = self.flights.iter().any(|(block, flight)| *block >= floor && flight.written.is_none());
                let moves = self.drain.is_some() && !self.is(Mutant::CutsUnderWriteBack);
                if self.fast_dead || moves || flies && !self.is(Mutant::CutsUnderFlights) {
                    return;
                }
                self.cutter = Cutter::Set { upto, floor, last, step: 0 };
            }
            Cutter::Set { upto, floor, last, step } => {
                if step < 2 {
                    self.slow.volatile.push(SlowOp::SetLen(if step == 0 { floor } else { last }));
                    self.cutter = Cutter::Set { upto, floor, last, step: step + 1 };
                    return;
                }
                if !self.is(Mutant::DoneWithoutFlush) {
                    self.slow.flush();
                    // Every flight that had been written before is durable, too.
                    let epoch = self.epoch;
                    self.flights.retain(|_, flight| flight.written.is_none_or(|written| written > epoch));
                }
                if self.is(Mutant::FenceFallsEarly) {
                    self.pending.retain(|&(lsn, _)| lsn > upto);
                }
                self.cutter = if self.fast_dead { Cutter::Idle } else { Cutter::Flushed { upto } };
            }
            Cutter::Flushed { upto } => {
                if self.fast_dead {
                    self.cutter = Cutter::Idle;
                    return;
                }
                self.append(What::CutDone { upto });
                self.cutter = Cutter::Telling;
            }
            Cutter::Telling => {}
        }
    }

    /// Write-back: the oldest records' blocks, a flush, the tail.
    fn write_back(&mut self) {
        let waits = !matches!(self.cutter, Cutter::Idle) && !self.is(Mutant::CutsUnderWriteBack);
        if self.fast_dead || waits {
            return;
        }
        if let Some((block, version)) = self.drain_step.take() {
            // It was begun before whatever has come since.
            self.slow.volatile.push(SlowOp::Write(block, version));
            return;
        }
        if let Some((mut blocks, end, stage)) = self.drain.take() {
            if let Some((block, version)) = blocks.pop() {
                // What a cut has taken away meanwhile is not moved.
                let live = self.logged.get(&block).is_some_and(|&(lsn, known)| lsn < end && known == version);
                self.drain_step = live.then_some((block, version));
                self.drain = Some((blocks, end, stage));
            } else if stage == 0 {
                self.slow.flush();
                self.drain = Some((blocks, end, 1));
            } else {
                self.tail = end;
                self.log.retain(|record| record.lsn >= end);
                self.logged.retain(|_, (lsn, _)| *lsn >= end);
            }
            return;
        }
        let mut end = self.tail;
        let mut blocks = Vec::new();
        let most = 1 + self.dice.roll(4);
        let mut records: Vec<Record> = self.log.clone();
        records.sort_by_key(|record| record.lsn);
        for record in records.iter().take(most) {
            // Gaps that the last power cut left are spare.
            if !record.durable || record.lsn != end && record.lsn >= self.opened_at {
                break;
            }
            match record.what {
                What::Cut { .. } => {
                    if self.pending.iter().any(|&(lsn, _)| lsn == record.lsn) && !self.is(Mutant::TailPassesCuts) {
                        break;
                    }
                }
                What::Write { block, version } => {
                    if self.logged.get(&block) == Some(&(record.lsn, version)) {
                        let flies = self.flights.get(&block).is_some_and(|flight| flight.written.is_none());
                        if flies {
                            break;
                        }
                        blocks.push((block, version));
                    }
                }
                What::CutDone { .. } => {}
            }
            end = record.lsn + 1;
        }
        if end > self.tail {
            self.drain = Some((blocks, end, 0));
        }
    }

    /// A program that flushed the file is told that everything is durable.
    fn fsync(&mut self) {
        let logging = self.log.iter().any(|record| !record.durable && matches!(record.what, What::Write { .. }));
        let flies = self.flights.iter().any(|(block, flight)| !flight.void && !self.logged.contains_key(block));
        if !self.is_held() && self.queued.is_empty() && !logging && !flies && self.len_change.is_none() {
            self.history.drain(..self.history.len() - 1);
        }
    }

    pub(crate) fn step(&mut self) {
        match self.dice.roll(16) {
            0 => self.write(),
            1 if self.queued.len() < 2 => self.write(),
            1 => self.append_queued(),
            2 => self.cut(),
            3 | 4 => self.fsync(),
            5 => self.append_queued(),
            6 => self.issue(),
            7 => self.land(),
            8 | 12 => self.flush(),
            9 => self.cutter(),
            10 => self.write_back(),
            11 => {
                self.salvage();
                self.cut_directly();
            }
            _ => self.end_record(),
        }
    }

    /// Power goes for both; what is left is opened again.
    pub(crate) fn lose_power(mut self) -> Self {
        self.slow.lose_power(&mut self.dice);
        let mut log = std::mem::take(&mut self.log);
        let dice = &mut self.dice;
        log.retain(|record| record.durable || dice.roll(2) == 0);
        log.iter_mut().for_each(|record| record.durable = true);
        log.sort_by_key(|record| record.lsn);
        if self.slow.abandoned {
            // The log is refused, and a new one begins.
            self.slow.abandoned = false;
            log.clear();
        }
        let (tail, version) = (self.tail, self.version);
        let next_lsn = log.iter().map(|record| record.lsn + 1).max().unwrap_or(tail);
        let mut next =
            Self::start(self.dice, self.mutant, self.has_witness, self.slow, log, tail, version, self.history);
        next.next_lsn = next_lsn.max(tail);
        next.opened_at = next.next_lsn + 1;
        next.replay();
        let content = next.content();
        check(&next.history, &content);
        next.history = vec![content];
        next
    }

    fn replay(&mut self) {
        let mut len = 0;
        for record in self.log.clone() {
            match record.what {
                What::Write { block, version } => {
                    self.logged.insert(block, (record.lsn, version));
                    len = len.max(block + 1);
                }
                What::Cut { len: cut } => {
                    self.logged.retain(|block, _| *block < cut);
                    self.pending.push((record.lsn, cut));
                    len = 0;
                }
                What::CutDone { upto } => {
                    let covered = if self.is(Mutant::DoneCoversAll) { record.lsn } else { upto };
                    self.pending.retain(|&(lsn, _)| lsn > covered);
                }
            }
        }
        if self.is(Mutant::LastCutOnly)
            && let Some(&last) = self.pending.last()
        {
            self.pending = vec![last];
        }
        if let Some(&(_, last)) = self.pending.last() {
            self.len = len.max(last);
            return;
        }
        self.len = self.slow.durable.len().max(len);
    }
}
