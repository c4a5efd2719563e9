//! Writing to the cache, and waiting until what was written is durable.
//!
//! Relies on the cache state for the order of versions: a write finds its place in it while it holds the volume's order.

use std::sync::Arc;
use std::sync::MutexGuard;
use std::time::Instant;

use crate::cache_state::{AppendOutcome, BlockVersion, CacheState, WaitProgress, WriteTicket};
use crate::config::VolumeLength;
use crate::critical;
use crate::error::CacheError;
use crate::format::{MOST_BLOCK, MOST_BLOCKS, record_bytes};
use crate::ids::{BLOCK_BYTES, BlockAddr, BlockData, SequenceNumber, VolumeId};
use crate::lock::CacheGuard;
use crate::policy::{Admission, AdmissionPolicy, admit};
use crate::ring::NoRoom;
use crate::shared::SharedCache;
use crate::stats::{ContentKind, WaitCause};
use crate::tasks::{BlockedOn, BlockedTask, Criticality, TaskId, WaitCallback};

/// Most blocks of a write that are ordered at once.
const CHUNK_BLOCKS: usize = MOST_BLOCKS as usize;

/// Most blocks that are sent to the slow device because a task waits for a flush of it anyway.
const MOST_DIRECT: usize = 256;

/// How a write becomes durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DurablePath {
    /// As the policy says.
    Any,
    /// On its slow device, as far as order allows.
    Device,
}

/// Who writes, and what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriteContext {
    /// The task.
    pub task: TaskId,
    /// It waits for the write: the write begins now.
    pub is_sync: bool,
    /// What the bytes are, as far as known.
    pub content: ContentKind,
}

impl WriteContext {
    /// The current task writes data and does not wait.
    pub fn current() -> Self {
        Self { task: critical::current(), is_sync: false, content: ContentKind::Data }
    }

    /// The same, and waits.
    #[must_use]
    pub fn sync(mut self) -> Self {
        self.is_sync = true;
        self
    }

    /// The same, with other content.
    #[must_use]
    pub fn content(mut self, content: ContentKind) -> Self {
        self.content = content;
        self
    }
}

/// A piece of a write that is ordered at once.
struct Chunk<'a> {
    first: BlockAddr,
    pieces: &'a [BlockData],
    seqno: SequenceNumber,
    /// Nothing of the write comes after it.
    is_last: bool,
}

impl SharedCache {
    /// Orders a write whose blocks are whole, and begins it if a task waits. The volume's order is held, and released as
    /// soon as every block has its place. `len` is the volume's length with the write.
    pub(crate) fn write_blocks(
        self: &Arc<Self>,
        first: BlockAddr,
        pieces: &[BlockData],
        len: u64,
        context: &WriteContext,
        order: &mut Option<CacheGuard<'_, ()>>,
    ) -> Result<WriteTicket, CacheError> {
        let end = first.block + pieces.len() as u64;
        let mut ticket = WriteTicket { volume: first.volume, first: first.block, end, seqno: SequenceNumber(0) };
        let mut grows = false;
        for (index, pieces) in pieces.chunks(CHUNK_BLOCKS).enumerate() {
            let first = first.plus((index * CHUNK_BLOCKS) as u64);
            let mut cache_state = self.cache_state();
            check_reach(&cache_state, first.volume, len)?;
            grows |= cache_state.grow(first.volume, len);
            cache_state.stats.written_bytes += (pieces.len() * BLOCK_BYTES) as u64;
            let seqno = cache_state.next_seqno();
            ticket.seqno = seqno;
            let known = cache_state.pass_by_known(first, pieces, context.content, len, grows);
            let (first, pieces) = (first.plus(known as u64), &pieces[known..]);
            let is_last = first.block + pieces.len() as u64 == end;
            if pieces.is_empty() {
                continue;
            }
            let chunk = Chunk { first, pieces, seqno, is_last };
            let written = if context.is_sync {
                self.write_now(cache_state, &chunk, context, order)
            } else {
                self.write_later(cache_state, &chunk, context, order)
            };
            if written.is_err() {
                self.cache_state().forget_tail(first.volume);
                return written.map(|()| ticket);
            }
        }
        Ok(ticket)
    }

    /// For a task that waits: to the log, or urgently to the slow device.
    fn write_now<'a>(
        self: &'a Arc<Self>,
        mut cache_state: MutexGuard<'a, CacheState>,
        chunk: &Chunk<'_>,
        context: &WriteContext,
        order: &mut Option<CacheGuard<'_, ()>>,
    ) -> Result<(), CacheError> {
        let mut criticality = self.criticality(context.task);
        let (mut done, mut stalled, mut blocked) = (0, false, None);
        while done < chunk.pieces.len() {
            let first = chunk.first.plus(done as u64);
            let pieces = &chunk.pieces[done..];
            let facts = cache_state.facts_of_run(first, pieces.len() as u64, context.content, true, criticality);
            let must = facts.needs_log();
            let reason = admit(cache_state.policy, &facts);
            let attempt = match reason.admission() {
                Admission::Slow => AppendOutcome::NoRoom(NoRoom::Never),
                Admission::Fast => {
                    let item = |(index, piece): (usize, &BlockData)| {
                        let addr = first.plus(index as u64);
                        (CacheState::item(addr, piece.clone(), context.content, chunk.seqno), reason)
                    };
                    let items: Vec<_> = pieces.iter().enumerate().map(item).collect();
                    cache_state.begin_log(&items, must || criticality.any(), context.task.0, self.now_ns())
                }
            };
            match attempt {
                AppendOutcome::Job { job, taken } => {
                    done += taken;
                    drop(cache_state);
                    if chunk.is_last && done == chunk.pieces.len() {
                        *order = None;
                    }
                    self.run_log(&job, criticality);
                    cache_state = self.cache_state();
                }
                AppendOutcome::NoRoom(NoRoom::InFlight) => cache_state = self.wait_room(cache_state, criticality),
                AppendOutcome::NoRoom(_) if must && reason.is_fast() => {
                    cache_state.stats.stalls += u64::from(!std::mem::replace(&mut stalled, true));
                    cache_state.writable(first.volume)?;
                    cache_state.check_room(first.volume)?;
                    self.ask_for_room(&mut cache_state);
                    cache_state = self.wait_room(cache_state, criticality);
                }
                AppendOutcome::NoRoom(_) => {
                    if reason.is_fast() {
                        self.ask_for_room(&mut cache_state);
                    }
                    if cache_state.has_queue_room(first.volume, pieces.len(), reason.is_fast())? {
                        // Where it goes in the end is decided, traced and counted when it is issued.
                        self.queue_chunk(&mut cache_state, first, pieces, chunk.seqno, context, true);
                        break;
                    }
                    cache_state =
                        self.wait_queue(cache_state, first.volume, context.task, &mut blocked, &mut criticality)?;
                }
            }
        }
        Ok(())
    }

    /// Write-back is to make room in the log.
    fn ask_for_room(&self, cache_state: &mut CacheState) {
        cache_state.drain_now();
        self.call_drain();
    }

    /// Sleeps until there may be room in the queue; says how the task stands then.
    fn wait_queue<'a>(
        self: &'a Arc<Self>,
        cache_state: MutexGuard<'a, CacheState>,
        id: VolumeId,
        task: TaskId,
        blocked: &mut Option<BlockedTask>,
        criticality: &mut Criticality,
    ) -> Result<MutexGuard<'a, CacheState>, CacheError> {
        let volume = cache_state.writable(id)?;
        if let Some(cause) = volume.dead.as_ref().filter(|_| volume.flush.len_change.is_some()) {
            return Err(CacheError::Slow { volume: id, cause: cause.clone() });
        }
        cache_state.check_room(id)?;
        // Registered first, asked afterwards: a critical task that comes later wakes us.
        if blocked.is_none() {
            let on = BlockedOn::Write(Arc::clone(self) as Arc<dyn WaitCallback>);
            *blocked = Some(self.config.tasks.block(task, on).0);
            *criticality = self.criticality(task);
            return Ok(cache_state);
        }
        let began = Instant::now();
        let cache_state = self.wait_log_changed(cache_state);
        *criticality = self.criticality(task);
        self.waits.note(WaitCause::QueueRoom, criticality.any(), began.elapsed().as_nanos() as u64);
        Ok(cache_state)
    }

    fn wait_room<'a>(
        &'a self,
        cache_state: MutexGuard<'a, CacheState>,
        criticality: Criticality,
    ) -> MutexGuard<'a, CacheState> {
        let began = Instant::now();
        let cache_state = self.wait_log_changed(cache_state);
        self.waits.note(WaitCause::LogRoom, criticality.any(), began.elapsed().as_nanos() as u64);
        cache_state
    }

    fn queue_chunk(
        &self,
        cache_state: &mut CacheState,
        first: BlockAddr,
        pieces: &[BlockData],
        seqno: SequenceNumber,
        context: &WriteContext,
        urgent: bool,
    ) {
        let now_ns = self.now_ns();
        for (index, piece) in pieces.iter().enumerate() {
            let version = BlockVersion { piece: piece.clone(), content: context.content };
            cache_state.queue(first.plus(index as u64), version, seqno, urgent, context.task.0, now_ns);
        }
        if urgent || cache_state.needs_issuer(&self.rules(), now_ns) {
            self.call_issuers();
        }
    }

    /// For a task that does not wait: queued, unless the queue is full for too long for a critical task.
    fn write_later<'a>(
        self: &'a Arc<Self>,
        mut cache_state: MutexGuard<'a, CacheState>,
        chunk: &Chunk<'_>,
        context: &WriteContext,
        order: &mut Option<CacheGuard<'_, ()>>,
    ) -> Result<(), CacheError> {
        let (mut blocked, mut criticality) = (None, Criticality::default());
        while cache_state.queue_is_full(chunk.first.volume, chunk.pieces.len()) {
            cache_state =
                self.wait_queue(cache_state, chunk.first.volume, context.task, &mut blocked, &mut criticality)?;
            let policy = cache_state.policy;
            let may = criticality.critical && policy >= AdmissionPolicy::Critical
                || criticality.inherited && policy.inherits_process();
            let least = chunk.pieces.len().min(cache_state.most_record_blocks()) as u32;
            let room = cache_state.log.ring.has_room_reserved(record_bytes(BLOCK_BYTES as u64, least));
            if may && room && cache_state.fast.dead.is_none() {
                return self.write_now(cache_state, chunk, context, order);
            }
            cache_state.check_queue(chunk.first.volume, chunk.pieces.len())?;
        }
        self.queue_chunk(&mut cache_state, chunk.first, chunk.pieces, chunk.seqno, context, false);
        Ok(())
    }

    /// Makes everything of a volume durable on its device, of which a flush is needed anyway: its bytes go along. Where
    /// they are so many that the log is the shorter way, that is taken.
    pub(crate) fn flush_through(self: &Arc<Self>, id: VolumeId, task: TaskId) -> Result<(), CacheError> {
        let mut cache_state = self.cache_state();
        let ticket = WriteTicket::everything(id, cache_state.last_seqno());
        let volume = cache_state.volumes.get_mut(&id).ok_or(CacheError::Unattached(id))?;
        if volume.tally.queued > MOST_DIRECT || volume.alive().is_none() {
            drop(cache_state);
            return self.wait(&ticket, task, DurablePath::Any);
        }
        let hasty = self.criticality(task).any();
        volume.hasty += usize::from(hasty);
        cache_state.send_direct(id);
        drop(cache_state);
        let result = {
            let _using = self.use_slow(task);
            self.wait(&ticket, task, DurablePath::Device)
        };
        if hasty && let Some(volume) = self.cache_state().volumes.get_mut(&id) {
            volume.hasty = volume.hasty.saturating_sub(1);
        }
        result
    }

    /// Waits until the ticket's write is durable.
    ///
    /// A task that is or becomes critical while it waits takes what it waits for to the log itself, as far as the policy
    /// allows; it then depends on the fast device only. Unless it needs the device anyway.
    pub(crate) fn wait(
        self: &Arc<Self>,
        ticket: &WriteTicket,
        task: TaskId,
        way: DurablePath,
    ) -> Result<(), CacheError> {
        let most = if way == DurablePath::Any { CHUNK_BLOCKS } else { 0 };
        let (mut blocked, mut stalled, mut progress) = (None, false, WaitProgress::default());
        let mut cache_state = self.cache_state();
        while ticket.is_unsettled(&cache_state, &mut progress) {
            // Registered first, asked afterwards: a critical task that comes later wakes us.
            let on = BlockedOn::Write(Arc::clone(self) as Arc<dyn WaitCallback>);
            let _registered = blocked.get_or_insert_with(|| self.config.tasks.block(task, on));
            let criticality = self.criticality(task);
            let survey = ticket.survey(&cache_state, &mut progress, criticality, most);
            ticket.hopeless(&cache_state, &survey)?;
            if !survey.items.is_empty() {
                let demanded = survey.items.iter().all(|(_, reason)| reason.is_demand());
                match cache_state.begin_log(&survey.items, demanded || criticality.any(), task.0, self.now_ns()) {
                    AppendOutcome::Job { job, .. } => {
                        drop(cache_state);
                        self.run_log(&job, criticality);
                        cache_state = self.cache_state();
                        continue;
                    }
                    AppendOutcome::NoRoom(_) => {
                        cache_state.stats.stalls += u64::from(!std::mem::replace(&mut stalled, true));
                        cache_state.drain_now();
                        self.call_drain();
                    }
                }
            }
            ticket.press(&mut cache_state, &survey, task.0);
            let cause = if survey.flush_only { WaitCause::SlowFlush } else { WaitCause::PendingWrite };
            let began = Instant::now();
            let others_log = survey.logging || !survey.items.is_empty();
            cache_state = if others_log { self.wait_log_changed(cache_state) } else { self.wait_changed(cache_state) };
            self.waits.note(cause, criticality.any(), began.elapsed().as_nanos() as u64);
        }
        Ok(())
    }
}

pub(crate) fn check_reach(cache_state: &CacheState, id: VolumeId, end: u64) -> Result<(), CacheError> {
    let volume = cache_state.writable(id)?;
    let too_far = end > MOST_BLOCK * BLOCK_BYTES as u64;
    if too_far || (volume.growth == VolumeLength::Fixed && end > volume.len) {
        return Err(CacheError::Beyond { volume: id, len: volume.len, end });
    }
    Ok(())
}
