//! Writing to the cache, and waiting until what was written is durable.
//!
//! Relies on the ledger for the order of versions: a write finds its place in it while it holds the volume's order.

use std::sync::Arc;
use std::sync::MutexGuard;
use std::time::Instant;

use crate::config::Growth;
use crate::critical;
use crate::error::CacheError;
use crate::format::{MOST_BLOCK, MOST_BLOCKS, record_bytes};
use crate::ids::{BLOCK_BYTES, Piece, Place, Stamp, VolumeId};
use crate::ledger::{Appended, Headway, Ledger, Ticket, Version};
use crate::lock::CacheGuard;
use crate::policy::{Admission, Policy, admit};
use crate::ring::NoRoom;
use crate::shared::Shared;
use crate::stats::{Cause, Content};
use crate::tasks::{Blocked, BlockedOn, Standing, TaskId, Wake};

/// Most blocks of a write that are ordered at once.
const CHUNK_BLOCKS: usize = MOST_BLOCKS as usize;

/// Most blocks that are sent to the slow device because somebody waits for a flush of it anyway.
const MOST_DIRECT: usize = 256;

/// How a write becomes durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
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
    pub content: Content,
}

impl WriteContext {
    /// The current task writes data and does not wait.
    pub fn current() -> Self {
        Self { task: critical::current(), is_sync: false, content: Content::Data }
    }

    /// The same, and waits.
    #[must_use]
    pub fn sync(mut self) -> Self {
        self.is_sync = true;
        self
    }

    /// The same, with other content.
    #[must_use]
    pub fn content(mut self, content: Content) -> Self {
        self.content = content;
        self
    }
}

/// A piece of a write that is ordered at once.
struct Chunk<'a> {
    first: Place,
    pieces: &'a [Piece],
    stamp: Stamp,
    /// Nothing of the write comes after it.
    is_last: bool,
}

impl Shared {
    /// Orders a write whose blocks are whole, and begins it if somebody waits. The volume's order is held, and released as
    /// soon as every block has its place. `len` is the volume's length with the write.
    pub(crate) fn write_blocks(
        self: &Arc<Self>,
        first: Place,
        pieces: &[Piece],
        len: u64,
        context: &WriteContext,
        order: &mut Option<CacheGuard<'_, ()>>,
    ) -> Result<Ticket, CacheError> {
        let end = first.block + pieces.len() as u64;
        let mut ticket = Ticket { volume: first.volume, first: first.block, end, stamp: Stamp(0) };
        let mut grows = false;
        for (index, pieces) in pieces.chunks(CHUNK_BLOCKS).enumerate() {
            let first = first.plus((index * CHUNK_BLOCKS) as u64);
            let mut ledger = self.ledger();
            check_reach(&ledger, first.volume, len)?;
            grows |= ledger.grow(first.volume, len);
            ledger.stats.written_bytes += (pieces.len() * BLOCK_BYTES) as u64;
            let stamp = ledger.next_stamp();
            ticket.stamp = stamp;
            let known = ledger.pass_by_known(first, pieces, context.content, len, grows);
            let (first, pieces) = (first.plus(known as u64), &pieces[known..]);
            let is_last = first.block + pieces.len() as u64 == end;
            if pieces.is_empty() {
                continue;
            }
            let chunk = Chunk { first, pieces, stamp, is_last };
            let written = if context.is_sync {
                self.write_now(ledger, &chunk, context, order)
            } else {
                self.write_later(ledger, &chunk, context, order)
            };
            if written.is_err() {
                self.ledger().forget_tail(first.volume);
                return written.map(|()| ticket);
            }
        }
        Ok(ticket)
    }

    /// For somebody who waits: to the log, or urgently to the slow device.
    fn write_now<'a>(
        self: &'a Arc<Self>,
        mut ledger: MutexGuard<'a, Ledger>,
        chunk: &Chunk<'_>,
        context: &WriteContext,
        order: &mut Option<CacheGuard<'_, ()>>,
    ) -> Result<(), CacheError> {
        let mut standing = self.standing(context.task);
        let (mut done, mut stalled, mut blocked) = (0, false, None);
        while done < chunk.pieces.len() {
            let first = chunk.first.plus(done as u64);
            let pieces = &chunk.pieces[done..];
            let facts = ledger.facts_of_run(first, pieces.len() as u64, context.content, true, standing);
            let must = facts.cached || facts.slow_dead;
            let reason = admit(ledger.policy, &facts);
            let attempt = match reason.admission() {
                Admission::Slow => Appended::NoRoom(NoRoom::Never),
                Admission::Fast => {
                    let item = |(index, piece): (usize, &Piece)| {
                        (Ledger::item(first.plus(index as u64), piece.clone(), context.content, chunk.stamp), reason)
                    };
                    let items: Vec<_> = pieces.iter().enumerate().map(item).collect();
                    ledger.begin_log(&items, must || standing.any(), context.task.0, self.now_ns())
                }
            };
            match attempt {
                Appended::Job { job, taken } => {
                    done += taken;
                    drop(ledger);
                    if chunk.is_last && done == chunk.pieces.len() {
                        *order = None;
                    }
                    self.run_log(&job, standing);
                    ledger = self.ledger();
                }
                Appended::NoRoom(NoRoom::InFlight) => ledger = self.wait_room(ledger, standing),
                Appended::NoRoom(_) if must && reason.is_fast() => {
                    ledger.stats.stalls += u64::from(!std::mem::replace(&mut stalled, true));
                    ledger.writable(first.volume)?;
                    ledger.check_room(first.volume)?;
                    ledger.drain_now();
                    self.call_drain();
                    ledger = self.wait_room(ledger, standing);
                }
                Appended::NoRoom(_) => {
                    if reason.is_fast() {
                        ledger.drain_now();
                        self.call_drain();
                    }
                    if !ledger.queue_is_full(first.volume, pieces.len()) {
                        // Where it goes in the end is decided, traced and counted when it is issued.
                        self.queue_chunk(&mut ledger, first, pieces, chunk.stamp, context, true);
                        break;
                    }
                    ledger = self.wait_queue(ledger, first.volume, context.task, &mut blocked, &mut standing)?;
                }
            }
        }
        Ok(())
    }

    /// Sleeps until there may be room in the queue; says how the task stands then.
    fn wait_queue<'a>(
        self: &'a Arc<Self>,
        ledger: MutexGuard<'a, Ledger>,
        id: VolumeId,
        task: TaskId,
        blocked: &mut Option<Blocked>,
        standing: &mut Standing,
    ) -> Result<MutexGuard<'a, Ledger>, CacheError> {
        let volume = ledger.writable(id)?;
        if let Some(cause) = volume.dead.as_ref().filter(|_| volume.len_change.is_some()) {
            return Err(CacheError::Slow { volume: id, cause: cause.clone() });
        }
        ledger.check_room(id)?;
        // Registered first, asked afterwards: a critical task that comes later wakes us.
        if blocked.is_none() {
            let on = BlockedOn::Write(Arc::clone(self) as Arc<dyn Wake>);
            *blocked = Some(self.config.tasks.block(task, on).0);
            *standing = self.standing(task);
            return Ok(ledger);
        }
        let began = Instant::now();
        let ledger = self.wait_log_changed(ledger);
        *standing = self.standing(task);
        self.waits.note(Cause::QueueRoom, standing.any(), began.elapsed().as_nanos() as u64);
        Ok(ledger)
    }

    fn wait_room<'a>(&'a self, ledger: MutexGuard<'a, Ledger>, standing: Standing) -> MutexGuard<'a, Ledger> {
        let began = Instant::now();
        let ledger = self.wait_log_changed(ledger);
        self.waits.note(Cause::LogRoom, standing.any(), began.elapsed().as_nanos() as u64);
        ledger
    }

    fn queue_chunk(
        &self,
        ledger: &mut Ledger,
        first: Place,
        pieces: &[Piece],
        stamp: Stamp,
        context: &WriteContext,
        urgent: bool,
    ) {
        let now_ns = self.now_ns();
        for (index, piece) in pieces.iter().enumerate() {
            let version = Version { piece: piece.clone(), content: context.content };
            ledger.queue(first.plus(index as u64), version, stamp, urgent, context.task.0, now_ns);
        }
        if urgent || ledger.needs_issuer(&self.rules(), now_ns) {
            self.call_issuers();
        }
    }

    /// For somebody who does not wait: queued, unless the queue is full for too long for somebody critical.
    fn write_later<'a>(
        self: &'a Arc<Self>,
        mut ledger: MutexGuard<'a, Ledger>,
        chunk: &Chunk<'_>,
        context: &WriteContext,
        order: &mut Option<CacheGuard<'_, ()>>,
    ) -> Result<(), CacheError> {
        let (mut blocked, mut standing) = (None, Standing::default());
        while ledger.queue_is_full(chunk.first.volume, chunk.pieces.len()) {
            ledger = self.wait_queue(ledger, chunk.first.volume, context.task, &mut blocked, &mut standing)?;
            let policy = ledger.policy;
            let may =
                standing.critical && policy >= Policy::Critical || standing.inherited && policy.inherits_process();
            let least = chunk.pieces.len().min(ledger.most_record_blocks()) as u32;
            let room = ledger.ring.has_room_reserved(record_bytes(BLOCK_BYTES as u64, least));
            if may && room && ledger.fast_dead.is_none() {
                return self.write_now(ledger, chunk, context, order);
            }
        }
        self.queue_chunk(&mut ledger, chunk.first, chunk.pieces, chunk.stamp, context, false);
        Ok(())
    }

    /// Makes everything of a volume durable on its device, of which a flush is needed anyway: its bytes go along. Where they are
    /// so many that the log is the shorter way, that is taken.
    pub(crate) fn flush_through(self: &Arc<Self>, id: VolumeId, task: TaskId) -> Result<(), CacheError> {
        let mut ledger = self.ledger();
        let ticket = Ticket::everything(id, ledger.last_stamp());
        let volume = ledger.volumes.get_mut(&id).ok_or(CacheError::Unattached(id))?;
        if volume.tally.queued > MOST_DIRECT || volume.alive().is_none() {
            drop(ledger);
            return self.wait(&ticket, task, Way::Any);
        }
        let hasty = self.standing(task).any();
        volume.hasty += usize::from(hasty);
        ledger.send_direct(id);
        drop(ledger);
        let result = {
            let _using = self.use_slow(task);
            self.wait(&ticket, task, Way::Device)
        };
        if hasty && let Some(volume) = self.ledger().volumes.get_mut(&id) {
            volume.hasty = volume.hasty.saturating_sub(1);
        }
        result
    }

    /// Waits until the ticket's write is durable.
    ///
    /// A task that is or becomes critical while it waits takes what it waits for to the log itself, as far as the policy
    /// allows; it then depends on the fast device only. Unless it needs the device anyway.
    pub(crate) fn wait(self: &Arc<Self>, ticket: &Ticket, task: TaskId, way: Way) -> Result<(), CacheError> {
        let most = if way == Way::Any { CHUNK_BLOCKS } else { 0 };
        let (mut blocked, mut stalled, mut headway) = (None, false, Headway::default());
        let mut ledger = self.ledger();
        while ledger.unsettled(ticket, &mut headway) {
            // Registered first, asked afterwards: a critical task that comes later wakes us.
            let on = BlockedOn::Write(Arc::clone(self) as Arc<dyn Wake>);
            let _registered = blocked.get_or_insert_with(|| self.config.tasks.block(task, on));
            let standing = self.standing(task);
            let survey = ledger.survey(ticket, &mut headway, standing, most);
            ledger.hopeless(ticket, &survey)?;
            if !survey.items.is_empty() {
                let demanded = survey.items.iter().all(|(_, reason)| reason.is_demand());
                match ledger.begin_log(&survey.items, demanded || standing.any(), task.0, self.now_ns()) {
                    Appended::Job { job, .. } => {
                        drop(ledger);
                        self.run_log(&job, standing);
                        ledger = self.ledger();
                        continue;
                    }
                    Appended::NoRoom(_) => {
                        ledger.stats.stalls += u64::from(!std::mem::replace(&mut stalled, true));
                        ledger.drain_now();
                        self.call_drain();
                    }
                }
            }
            ledger.press(ticket, &survey, task.0);
            let cause = if survey.flush_only { Cause::SlowFlush } else { Cause::PendingWrite };
            let began = Instant::now();
            let others_log = survey.logging || !survey.items.is_empty();
            ledger = if others_log { self.wait_log_changed(ledger) } else { self.wait_changed(ledger) };
            self.waits.note(cause, standing.any(), began.elapsed().as_nanos() as u64);
        }
        Ok(())
    }
}

pub(crate) fn check_reach(ledger: &Ledger, id: VolumeId, end: u64) -> Result<(), CacheError> {
    let volume = ledger.writable(id)?;
    let too_far = end > MOST_BLOCK * BLOCK_BYTES as u64;
    if too_far || (volume.growth == Growth::Fixed && end > volume.len) {
        return Err(CacheError::Beyond { volume: id, len: volume.len, end });
    }
    Ok(())
}
