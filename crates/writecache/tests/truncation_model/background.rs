//! What goes on in the background: flushes, the truncator, write-back; and the steps, power cuts and recovery.
//!
//! Relies on [`World`] for the state.

use crate::{LogRecord, Mutant, SlowOp, Truncator, What, World, check};

impl World {
    fn flush(&mut self) {
        match self.flush.under_way.take() {
            None => {
                self.flush.epoch += 1;
                self.flush.under_way = Some(self.flush.epoch);
            }
            Some(epoch) => {
                self.slow.flush();
                self.memory.flights.retain(|_, flight| flight.written.is_none_or(|written| written >= epoch));
                self.flush.len_change = self.flush.len_change.filter(|changed| *changed >= epoch);
            }
        }
    }

    fn truncator(&mut self) {
        match self.truncation.truncator.clone() {
            Truncator::Idle => {
                let Some(&(upto, last)) = self.truncation.pending.last() else { return };
                let floor = self.truncation.pending.iter().map(|&(_, len)| len).min().unwrap_or(last);
                let flies =
                    self.memory.flights.iter().any(|(block, flight)| *block >= floor && flight.written.is_none());
                let moves = self.drain.is_some() && !self.is(Mutant::TruncatesUnderWriteBack);
                if self.fast.is_dead || moves || flies && !self.is(Mutant::CutsUnderFlights) {
                    return;
                }
                self.truncation.truncator = Truncator::Set { upto, floor, last, step: 0 };
            }
            Truncator::Set { upto, floor, last, step } => {
                if step < 2 {
                    self.slow.volatile.push(SlowOp::SetLen(if step == 0 { floor } else { last }));
                    self.truncation.truncator = Truncator::Set { upto, floor, last, step: step + 1 };
                    return;
                }
                if !self.is(Mutant::DoneWithoutFlush) {
                    self.slow.flush();
                    // Every flight that had been written before is durable, too.
                    let epoch = self.flush.epoch;
                    self.memory.flights.retain(|_, flight| flight.written.is_none_or(|written| written > epoch));
                }
                if self.is(Mutant::FenceFallsEarly) {
                    self.truncation.pending.retain(|&(lsn, _)| lsn > upto);
                }
                self.truncation.truncator =
                    if self.fast.is_dead { Truncator::Idle } else { Truncator::Flushed { upto } };
            }
            Truncator::Flushed { upto } => {
                if self.fast.is_dead {
                    self.truncation.truncator = Truncator::Idle;
                    return;
                }
                self.append(What::TruncateDone { upto });
                self.truncation.truncator = Truncator::Telling;
            }
            Truncator::Telling => {}
        }
    }

    /// Write-back: the oldest records' blocks, a flush, the tail.
    fn write_back(&mut self) {
        let waits = !matches!(self.truncation.truncator, Truncator::Idle) && !self.is(Mutant::TruncatesUnderWriteBack);
        if self.fast.is_dead || waits {
            return;
        }
        if let Some((block, version)) = self.drain_step.take() {
            // It was begun before whatever has come since.
            self.slow.volatile.push(SlowOp::Write(block, version));
            return;
        }
        if let Some((mut blocks, end, stage)) = self.drain.take() {
            if let Some((block, version)) = blocks.pop() {
                // What a truncation has taken away meanwhile is not moved.
                let live = self.memory.logged.get(&block).is_some_and(|&(lsn, known)| lsn < end && known == version);
                self.drain_step = live.then_some((block, version));
                self.drain = Some((blocks, end, stage));
            } else if stage == 0 {
                self.slow.flush();
                self.drain = Some((blocks, end, 1));
            } else {
                self.fast.tail = end;
                self.fast.log.retain(|record| record.lsn >= end);
                self.memory.logged.retain(|_, (lsn, _)| *lsn >= end);
            }
            return;
        }
        let mut end = self.fast.tail;
        let mut blocks = Vec::new();
        let most = 1 + self.rng.index(4);
        let mut records: Vec<LogRecord> = self.fast.log.clone();
        records.sort_by_key(|record| record.lsn);
        for record in records.iter().take(most) {
            // Gaps that the last power cut left are spare.
            if !record.durable || record.lsn != end && record.lsn >= self.fast.opened_at {
                break;
            }
            match record.what {
                What::Truncate { .. } => {
                    let is_pending = self.truncation.pending.iter().any(|&(lsn, _)| lsn == record.lsn);
                    if is_pending && !self.is(Mutant::TailPassesTruncations) {
                        break;
                    }
                }
                What::Write { block, version } => {
                    if self.memory.logged.get(&block) == Some(&(record.lsn, version)) {
                        let flies = self.memory.flights.get(&block).is_some_and(|flight| flight.written.is_none());
                        if flies {
                            break;
                        }
                        blocks.push((block, version));
                    }
                }
                What::TruncateDone { .. } => {}
            }
            end = record.lsn + 1;
        }
        if end > self.fast.tail {
            self.drain = Some((blocks, end, 0));
        }
    }

    /// A program that flushed the file is told that everything is durable.
    fn fsync(&mut self) {
        let logging = self.fast.log.iter().any(|record| !record.durable && matches!(record.what, What::Write { .. }));
        let flies =
            self.memory.flights.iter().any(|(block, flight)| !flight.void && !self.memory.logged.contains_key(block));
        if !self.is_held() && self.memory.queued.is_empty() && !logging && !flies && self.flush.len_change.is_none() {
            self.history.drain(..self.history.len() - 1);
        }
    }

    pub(crate) fn step(&mut self) {
        match self.rng.index(16) {
            0 => self.write(),
            1 if self.memory.queued.len() < 2 => self.write(),
            1 => self.append_queued(),
            2 => self.truncate(),
            3 | 4 => self.fsync(),
            5 => self.append_queued(),
            6 => self.issue(),
            7 => self.land(),
            8 | 12 => self.flush(),
            9 => self.truncator(),
            10 => self.write_back(),
            11 => {
                self.salvage();
                self.truncate_directly();
            }
            _ => self.end_record(),
        }
    }

    /// Power goes for both; what is left is opened again.
    pub(crate) fn lose_power(mut self) -> Self {
        self.slow.lose_power(&mut self.rng);
        let mut log = std::mem::take(&mut self.fast.log);
        let rng = &mut self.rng;
        log.retain(|record| record.durable || rng.index(2) == 0);
        log.iter_mut().for_each(|record| record.durable = true);
        log.sort_by_key(|record| record.lsn);
        if self.slow.abandoned {
            // The log is refused, and a new one begins.
            self.slow.abandoned = false;
            log.clear();
        }
        let (tail, version) = (self.fast.tail, self.version);
        let next_lsn = log.iter().map(|record| record.lsn + 1).max().unwrap_or(tail);
        let mut next =
            Self::start(self.rng, self.mutant, self.has_witness, self.slow, log, tail, version, self.history);
        next.fast.next_lsn = next_lsn.max(tail);
        next.fast.opened_at = next.fast.next_lsn + 1;
        next.replay();
        let content = next.content();
        check(&next.history, &content);
        next.history = vec![content];
        next
    }

    fn replay(&mut self) {
        let mut len = 0;
        for record in self.fast.log.clone() {
            match record.what {
                What::Write { block, version } => {
                    self.memory.logged.insert(block, (record.lsn, version));
                    len = len.max(block + 1);
                }
                What::Truncate { len: truncation } => {
                    self.memory.logged.retain(|block, _| *block < truncation);
                    self.truncation.pending.push((record.lsn, truncation));
                    len = 0;
                }
                What::TruncateDone { upto } => {
                    let covered = if self.is(Mutant::DoneCoversAll) { record.lsn } else { upto };
                    self.truncation.pending.retain(|&(lsn, _)| lsn > covered);
                }
            }
        }
        if self.is(Mutant::LastCutOnly)
            && let Some(&last) = self.truncation.pending.last()
        {
            self.truncation.pending = vec![last];
        }
        if let Some(&(_, last)) = self.truncation.pending.last() {
            self.len = len.max(last);
            return;
        }
        self.len = self.slow.durable.len().max(len);
    }
}
