//! [`WriteCache`]: what users of the cache hold.
//!
//! Relies on [`SharedCache`] for the work; here are opening, closing and the calls in between.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;

use quire_device::Device;

use crate::agreement;
use crate::buffer_pool::BufferPool;
use crate::cache_state::WriteTicket;
use crate::config::{CacheConfig, VolumeSpec};
use crate::decision_trace::AdmissionDecision;
use crate::error::{CacheError, LostRange};
use crate::format::AREA_OFFSET;
use crate::ids::{BLOCK_BYTES, BlockAddr, BlockData, SequenceNumber, VolumeId};
use crate::jobs::mark_gaps;
use crate::lock::CacheMutex;
use crate::log_identity::{Epoch, LogIdentity, LogState};
use crate::recover::{RecoverError, RecoveredLog, recover_as_told};
use crate::shared::SharedCache;
use crate::stats::{CacheStats, WaitCause};
use crate::volume::VolumeState;
use crate::workers;
use crate::write::{DurablePath, WriteContext, check_reach};
use crate::writeback_rate::{WritebackProgress, eta_ms};

/// What was found when a cache was opened.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OpenReport {
    /// It had been closed; otherwise its log was searched for what is valid.
    pub clean: bool,
    /// Records that count.
    pub records: usize,
    /// Blocks in the log that are not on the slow devices.
    pub cached_blocks: u64,
    /// Bytes of writes that were cut off before they were acknowledged.
    pub skipped_bytes: u64,
    /// Volumes that the log names and that are not attached: write-back stops at their blocks.
    pub unattached: Vec<VolumeId>,
}

/// A write cache: a log on a fast device before slow devices. Dropping it is like a crash, except that its threads end;
/// [`WriteCache::close`] ends it in order.
pub struct WriteCache {
    shared: Arc<SharedCache>,
    threads: Vec<JoinHandle<()>>,
    report: OpenReport,
}

impl WriteCache {
    /// Makes a new cache on `fast`, which is sized as the configuration says.
    ///
    /// # Errors
    /// There is a cache on it already, or a device fails.
    pub fn create(fast: Arc<dyn Device>, volumes: &[VolumeSpec], config: CacheConfig) -> Result<Self, CacheError> {
        let area_bytes = config.area_bytes()?;
        if found_on(&*fast, false)?.is_some() {
            return Err(CacheError::Exists { device: fast.name().to_owned() });
        }
        let told = agreement::read(&config, fast.name())?;
        agreement::check_new(told, &config, fast.name())?;
        fast.allocate(AREA_OFFSET + area_bytes).map_err(CacheError::Fast)?;
        let found = RecoveredLog {
            identity: RandomState::new().build_hasher().finish(),
            generation: 0,
            granule_bytes: config.granule(&*fast),
            area_bytes,
            clean: true,
            tail_lsn: 0,
            head_lsn: 0,
            records: Vec::new(),
            skipped_bytes: 0,
            gaps: Vec::new(),
            epochs: Default::default(),
            accepted: Vec::new(),
            sums: Default::default(),
        };
        Self::start(fast, volumes, config, &found, told)
    }

    /// Opens the cache on `fast`, after whatever happened to it. The caller sees to it that no other process has it or the
    /// volumes open, a process that is being killed included: its last writes might land after newer ones.
    ///
    /// # Errors
    /// There is none, its log is damaged, or a device fails.
    pub fn open(fast: Arc<dyn Device>, volumes: &[VolumeSpec], config: CacheConfig) -> Result<Self, CacheError> {
        let Some(found) = found_on(&*fast, config.accept_damaged)? else {
            // The volumes may need one.
            agreement::check_new(agreement::read(&config, fast.name())?, &config, fast.name())?;
            return Err(CacheError::Recover { log: fast.name().to_owned(), cause: RecoverError::NoSuperblock });
        };
        let told = agreement::read(&config, fast.name())?;
        agreement::check(&found, told, &config, fast.name())?;
        Self::start(fast, volumes, config, &found, told)
    }

    fn start(
        fast: Arc<dyn Device>,
        volumes: &[VolumeSpec],
        config: CacheConfig,
        found: &RecoveredLog,
        told: Option<LogIdentity>,
    ) -> Result<Self, CacheError> {
        let mut cache_state = found.cache_state(config.policy, config.trace_len, &config.tasks);
        let buffers = BufferPool::default();
        for damage in &found.accepted {
            tracing::warn!(log = fast.name(), %damage, "damage of the write cache's log was accepted");
        }
        mark_gaps(found, &*fast, &buffers).map_err(CacheError::Fast)?;
        // From here on the log is not closed: after a crash it must be searched again.
        let told = told.filter(|told| told.identity == found.identity);
        cache_state.log.epochs = [told.map_or(found.epochs[0], |told| told.epoch), Epoch::default()];
        agreement::begin_epoch(&mut cache_state, false, LogState::InUse, &*fast, &config, &buffers)?;
        fast.flush().map_err(CacheError::Fast)?;
        let mut report = OpenReport {
            clean: found.clean,
            records: found.records.len(),
            cached_blocks: cache_state.cached_blocks(),
            skipped_bytes: found.skipped_bytes,
            unattached: Vec::new(),
        };
        let shared = Arc::new(SharedCache::new(config, fast, cache_state));
        for spec in volumes {
            shared.attach_open(spec)?;
        }
        report.unattached = shared.cache_state().unattached();
        let threads = workers::start(&shared)?;
        let cache = Self { shared, threads, report };
        // These may need room in the log, and so write-back.
        for spec in volumes {
            cache.shared.close_truncation(spec.id);
        }
        Ok(cache)
    }

    /// What was found when the cache was opened.
    pub fn report(&self) -> &OpenReport {
        &self.report
    }

    /// Attaches a volume: a new one, one that the log names, or a new device for one that died.
    ///
    /// # Errors
    /// It is attached and alive, or the device fails.
    pub fn attach(&self, spec: &VolumeSpec) -> Result<(), CacheError> {
        self.shared.attach(spec)
    }

    /// Writes bytes. A write that a task waits for (`context.is_sync`) begins at once: if it is admitted to the cache it
    /// is durable on return, else [`WriteCache::wait`] tells when. Other writes are queued.
    ///
    /// # Errors
    /// The volume can't take it, for a reason that the error names.
    pub fn write(
        &self,
        volume: VolumeId,
        offset: u64,
        bytes: &[u8],
        context: &WriteContext,
    ) -> Result<WriteTicket, CacheError> {
        let unit = BLOCK_BYTES as u64;
        let first = BlockAddr { volume, block: offset / unit };
        if bytes.is_empty() {
            return Ok(WriteTicket { volume, first: first.block, end: first.block, seqno: SequenceNumber(0) });
        }
        let end = offset.saturating_add(bytes.len() as u64);
        let order = self.order(volume, end)?;
        let mut held = Some(order.lock());
        self.check_order(volume, &order)?;
        let (start, skip) = (first.offset(), (offset % unit) as usize);
        let whole = ((end - start).div_ceil(unit) * unit) as usize;
        let pieces = if skip == 0 && bytes.len() == whole {
            BlockData::split_blocks(bytes)
        } else {
            let mut blocks = vec![0; whole];
            let last = BlockAddr { volume, block: (end - 1) / unit };
            let mut edge = |addr: BlockAddr| {
                let at = (addr.offset() - start) as usize;
                self.shared.read_edge(addr, &mut blocks[at..at + BLOCK_BYTES], context.task)
            };
            if skip != 0 {
                edge(first)?;
            }
            if !end.is_multiple_of(unit) && (last != first || skip == 0) {
                edge(last)?;
            }
            blocks[skip..skip + bytes.len()].copy_from_slice(bytes);
            BlockData::split_blocks(&blocks)
        };
        self.shared.write_blocks(first, &pieces, end, context, &mut held)
    }

    /// The order of a volume that takes a write up to `end`.
    fn order(&self, volume: VolumeId, end: u64) -> Result<Arc<CacheMutex<()>>, CacheError> {
        let cache_state = self.shared.cache_state();
        check_reach(&cache_state, volume, end)?;
        Ok(Arc::clone(&cache_state.writable(volume)?.order))
    }

    /// Whether the volume, whose order is held now, is still the one that it was.
    fn check_order(&self, volume: VolumeId, order: &Arc<CacheMutex<()>>) -> Result<(), CacheError> {
        let same = Arc::ptr_eq(&self.shared.cache_state().writable(volume)?.order, order);
        if same { Ok(()) } else { Err(CacheError::Unattached(volume)) }
    }

    /// Reads the newest bytes from `offset` on, up to the end of the volume; returns how many.
    ///
    /// # Errors
    /// The volume is not attached, or a device fails.
    pub fn read(&self, volume: VolumeId, offset: u64, into: &mut [u8]) -> Result<usize, CacheError> {
        self.shared.read(volume, offset, into, crate::critical::current())
    }

    /// Waits in the name of `context.task` until a write is durable.
    ///
    /// # Errors
    /// It can't become durable; it stays queued all the same.
    pub fn wait(&self, ticket: &WriteTicket, context: &WriteContext) -> Result<(), CacheError> {
        self.shared.wait(ticket, context.task, DurablePath::Any)
    }

    /// Makes everything written to the volume so far durable, in the name of `context.task`.
    ///
    /// # Errors
    /// As [`WriteCache::wait`].
    pub fn flush(&self, volume: VolumeId, context: &WriteContext) -> Result<(), CacheError> {
        let ticket = {
            let cache_state = self.shared.cache_state();
            if !cache_state.volumes.contains_key(&volume) {
                return Err(CacheError::Unattached(volume));
            }
            WriteTicket::everything(volume, cache_state.last_seqno())
        };
        self.shared.wait(&ticket, context.task, DurablePath::Any)
    }

    /// As [`WriteCache::flush`], for a caller that needs a flush of the slow device anyway, because that has more to make
    /// durable than the bytes: these go the same way, unless they are many. A device may hold something back for its
    /// flushes, but if nothing was to be made durable there, there is none.
    ///
    /// # Errors
    /// As [`WriteCache::wait`].
    pub fn flush_through(&self, volume: VolumeId, context: &WriteContext) -> Result<(), CacheError> {
        self.shared.flush_through(volume, context.task)
    }

    /// The caller does something with a slow device by itself, in the name of `context.task`; if that is critical, the
    /// cache makes way until the result is dropped.
    pub fn make_way(&self, context: &WriteContext) -> impl Drop + '_ {
        self.shared.use_slow(context.task)
    }

    /// Bytes of the volume, pending writes included.
    ///
    /// # Errors
    /// It is not attached.
    pub fn len(&self, volume: VolumeId) -> Result<u64, CacheError> {
        let cache_state = self.shared.cache_state();
        cache_state.volumes.get(&volume).map(|volume| volume.len).ok_or(CacheError::Unattached(volume))
    }

    /// How an attached volume stands. `None` if it is not attached.
    pub fn volume_state(&self, volume: VolumeId) -> Option<VolumeState> {
        let cache_state = self.shared.cache_state();
        let volume = cache_state.volumes.get(&volume).filter(|volume| volume.device.is_some())?;
        Some(volume.state())
    }

    /// Makes a volume that may grow `len` bytes long. Durable with the next flush.
    ///
    /// # Errors
    /// The volume can't grow, or a device fails.
    pub fn set_len(&self, volume: VolumeId, len: u64, context: &WriteContext) -> Result<(), CacheError> {
        let order = self.order(volume, 0)?;
        let _held = order.lock();
        self.check_order(volume, &order)?;
        self.shared.set_len(volume, len, context.task)
    }

    /// Waits in the name of `context.task` until the volume's device has every truncation: for a caller that uses the space
    /// behind its end by itself.
    ///
    /// # Errors
    /// The device fails, or the volume is not attached.
    pub fn await_truncations(&self, volume: VolumeId, context: &WriteContext) -> Result<(), CacheError> {
        self.shared.await_truncations(volume, context.task)
    }

    /// Forgets a volume that is being removed: what of it is in the cache is dropped, and nothing more is begun on its device.
    /// Its number may be attached again when this returns, unless the fast device is dead or the log full and stuck.
    ///
    /// # Errors
    /// None today; a dead device does not matter to a volume that is gone.
    pub fn forget(&self, volume: VolumeId) -> Result<(), CacheError> {
        let order = self.shared.cache_state().volumes.get(&volume).map(|volume| Arc::clone(&volume.order));
        let _held = order.as_ref().map(|order| order.lock());
        self.shared.forget(volume)
    }

    /// Writes everything back to the slow devices; returns when the log is empty.
    ///
    /// # Errors
    /// A device fails.
    pub fn drain(&self) -> Result<(), CacheError> {
        self.flush_all()?;
        self.shared.drain_all.store(true, Ordering::Relaxed);
        self.shared.rouse();
        let mut cache_state = self.shared.cache_state();
        let result = loop {
            let stuck = cache_state.stuck_on();
            let done = cache_state.cached_blocks() == 0 && cache_state.oldest_ns().is_none();
            if done || cache_state.fast.dead.is_some() && cache_state.fast.salvaged {
                break Ok(());
            }
            if let Some(id) = stuck {
                let cause = cache_state.volumes.get(&id).and_then(|volume| volume.dead.clone());
                break Err(cause.map_or(CacheError::Unattached(id), |cause| CacheError::Slow { volume: id, cause }));
            }
            cache_state = self.shared.wait_changed(cache_state);
        };
        drop(cache_state);
        self.shared.drain_all.store(false, Ordering::Relaxed);
        result
    }

    fn flush_all(&self) -> Result<(), CacheError> {
        self.shared.hurry.store(true, Ordering::Relaxed);
        let ids: Vec<VolumeId> = {
            let cache_state = self.shared.cache_state();
            let attached = cache_state.volumes.iter().filter(|(_, volume)| volume.device.is_some());
            attached.map(|(id, _)| *id).collect()
        };
        let mut result = Ok(());
        for id in ids {
            let flushed = self.flush(id, &WriteContext::current());
            result = result.and(flushed);
        }
        self.shared.hurry.store(false, Ordering::Relaxed);
        result
    }

    /// Makes everything durable, ends the threads, and marks the log as closed. What is in the log stays there: call
    /// [`WriteCache::drain`] before if the slow devices are to be used without it.
    ///
    /// # Errors
    /// Something could not be made durable, or the mark could not be written; the log is then searched at the next start.
    pub fn close(mut self) -> Result<(), CacheError> {
        let flushed = self.flush_all();
        self.shared.cache_state().closed = true;
        self.end_threads();
        flushed?;
        let mut cache_state = self.shared.cache_state();
        if let Some(cause) = &cache_state.fast.dead {
            return if cache_state.fast.salvaged { Ok(()) } else { Err(CacheError::Fast(cause.clone())) };
        }
        let state = if cache_state.is_needed() { LogState::InUse } else { LogState::Empty };
        let (fast, config) = (&*self.shared.fast, &self.shared.config);
        agreement::begin_epoch(&mut cache_state, true, state, fast, config, &self.shared.buffers)
    }

    fn end_threads(&mut self) {
        {
            let _ledger = self.shared.cache_state();
            self.shared.stop.store(true, Ordering::Relaxed);
        }
        self.shared.rouse();
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }

    /// Everything counted so far.
    pub fn stats(&self) -> CacheStats {
        let mut stats = {
            let cache_state = self.shared.cache_state();
            let mut stats = cache_state.stats.clone();
            stats.reasons = cache_state.trace.counts();
            stats.cached_blocks = cache_state.cached_blocks();
            stats.refused_blocks = cache_state.log.refused.logged_blocks();
            stats.log_used_bytes = cache_state.log.ring.used_bytes();
            stats.log_bytes = cache_state.log.ring.area_bytes();
            stats.pending_bytes = cache_state.pending_bytes() as u64;
            stats.open_truncations = cache_state.open_truncations() as u64;
            stats
        };
        stats.critical_slow_uses = self.shared.critical_slow_uses();
        stats.critical_waits = self.shared.waits.read(true);
        stats.other_waits = self.shared.waits.read(false);
        let tasks = &self.shared.config.tasks.waits;
        for cause in [WaitCause::Lock, WaitCause::Signal] {
            stats.critical_waits[cause as usize] = tasks.read(true)[cause as usize];
            stats.other_waits[cause as usize] = tasks.read(false)[cause as usize];
        }
        stats
    }

    /// The last decisions, oldest first: where writes went and why.
    pub fn trace(&self) -> Vec<AdmissionDecision> {
        self.shared.cache_state().trace.last()
    }

    /// How write-back stands, and how long it would take to end.
    pub fn progress(&self) -> WritebackProgress {
        let cache_state = self.shared.cache_state();
        let state = cache_state.drain_state();
        WritebackProgress {
            cached_blocks: cache_state.cached_blocks(),
            used_percent: cache_state.used_percent(),
            batch_blocks: state.batch_blocks,
            batch_done: state.batch_done,
            batches: state.batches,
            bytes_per_s: state.bytes_per_s,
            eta_ms: eta_ms(cache_state.cached_blocks(), state.bytes_per_s),
            stuck_on: cache_state.stuck_on(),
            refused: cache_state.log.refused.with_blocks(),
            refused_percent: cache_state.refused_percent(),
        }
    }

    /// What was lost with a dead fast device.
    pub fn lost(&self) -> Vec<LostRange> {
        self.shared.cache_state().lost()
    }

    /// The owner knows what is lost and has restored it or does without: the volume may be used again.
    pub fn accept_loss(&self, volume: VolumeId) -> Vec<LostRange> {
        let mut cache_state = self.shared.cache_state();
        let lost = cache_state.lost().into_iter().filter(|range| range.volume == volume).collect();
        if let Some(volume) = cache_state.volumes.get_mut(&volume) {
            volume.lost.clear();
            volume.tail.forget();
        }
        lost
    }
}

impl Drop for WriteCache {
    fn drop(&mut self) {
        self.end_threads();
    }
}

/// The log on a fast device; `None` if nothing was ever written there.
fn found_on(fast: &dyn Device, accept_damaged: bool) -> Result<Option<RecoveredLog>, CacheError> {
    let device_bytes = fast.len().map_err(CacheError::Fast)?;
    let mut reader = |offset: u64, into: &mut [u8]| read_all(fast, offset, into);
    let log = || fast.name().to_owned();
    match recover_as_told(&mut reader, device_bytes, accept_damaged) {
        Ok(found) => Ok(Some(found)),
        Err(RecoverError::NoSuperblock) => Ok(None),
        Err(cause @ RecoverError::Foreign) => Err(CacheError::Foreign { log: log(), cause }),
        Err(cause @ (RecoverError::Device(_) | RecoverError::BlockVersion { .. })) => {
            Err(CacheError::Recover { log: log(), cause })
        }
        Err(
            cause @ (RecoverError::SuperblockDamaged { .. }
            | RecoverError::RecordDamaged { .. }
            | RecoverError::Superblock { .. }
            | RecoverError::Damaged { .. }
            | RecoverError::Outdated { .. }),
        ) => Err(CacheError::Damaged { log: log(), cause }),
    }
}

fn read_all(device: &dyn Device, offset: u64, into: &mut [u8]) -> Result<(), quire_device::DeviceError> {
    let got = device.read_at(offset, into)?;
    // A hole at the end of the file reads as zero.
    into[got..].fill(0);
    Ok(())
}
