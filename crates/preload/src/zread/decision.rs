//! What is decided of a read before the kernel is asked for anything: most of those that are copied.
//!
//! Relies on what was learnt of the buffer ([`Block`]) and on what probes have brought ([`ProbeBudget`]). A probe is everything that a read costs
//! more than without the library: asking for the descriptor, the file and the position, and the lock of the maps.

use std::sync::atomic::{AtomicU32, Ordering};

use quire_sys::caller_file::IoVec;
use quire_sys::guest;

use super::blocks::{self, Block};
use super::loss_model;
use super::patterns;
use super::probe_budget::ProbeBudget;
use super::stats::{self, CopyReason};
use super::use_history::UseShares;

/// Reads that the loss model has copied before the next try, at first and at most.
const LEAST_BACKOFF: u32 = 256;
const MOST_BACKOFF: u32 = 65_536;
/// Of the reads that gain only where their buffers are left untouched, one in so many is remapped to see whether they are.
const EXPLORED_EVERY: u32 = 64;
/// A read that is so many times longer or shorter than the one after which a buffer was declined is another use of it.
const OTHER_USE: usize = 2;
/// So much is read by one call at most.
const MOST_BYTES: usize = 0x7fff_f000;

/// For blocks of which nothing is known.
static OVERALL: ProbeBudget = ProbeBudget::new();
/// For arrays of buffers, which have to be taken over before anything is known of them.
static ARRAYS: ProbeBudget = ProbeBudget::new();

/// A read that is probed.
#[derive(Clone, Copy, Debug)]
pub struct ReadProbe {
    /// Where its first buffer of the library's lies.
    pub block: &'static Block,
    /// Bytes that are asked for.
    pub total: usize,
    /// It may be remapped to see what becomes of its buffer.
    pub is_trial: bool,
}

/// Whether the loss model decides.
pub fn has_model() -> bool {
    patterns::settings().is_some_and(|settings| settings.has_model)
}

/// Whether a read is probed; `None` if it is copied, which is counted.
#[inline]
pub fn probe(buffers: &[IoVec]) -> Option<ReadProbe> {
    match judge(buffers) {
        Ok(probe) => Some(probe),
        Err(reason) => {
            stats::copied(reason);
            None
        }
    }
}

fn judge(buffers: &[IoVec]) -> Result<ReadProbe, CopyReason> {
    let total = buffers.iter().try_fold(0_usize, |sum, buffer| sum.checked_add(buffer.iov_len));
    let total = total.filter(|&total| total <= MOST_BYTES).ok_or(CopyReason::Unaligned)?;
    let block_of = |buffer: &IoVec| blocks::containing(buffer.iov_base as usize, buffer.iov_len.max(1));
    let block = buffers.iter().find_map(block_of).ok_or(CopyReason::ForeignBuffer)?;
    if block.is_advised() {
        return Err(CopyReason::AdvisedMemory);
    }
    let is_trial = has_model() && by_model(block, total, buffers)?;
    Ok(ReadProbe { block, total, is_trial })
}

/// Whether a read is a trial, if it is probed at all.
fn by_model(block: &Block, total: usize, buffers: &[IoVec]) -> Result<bool, CopyReason> {
    if block.has_trial() {
        return if shows_trial(block, buffers) { Ok(false) } else { Err(CopyReason::Loss) };
    }
    // What is remapped there has to be probed before a copy overwrites it.
    if block.is_remapped() {
        return Ok(false);
    }
    if is_declined(block, total) {
        block.note_model_copy();
        return Err(CopyReason::Loss);
    }
    let probes = if block.probes.is_new() { &OVERALL } else { &block.probes };
    if !probes.admits(guest::coarse_ms) {
        return Err(CopyReason::InVain);
    }
    if !loss_model::is_known() {
        return Ok(false);
    }
    is_trial(block, total, probes.is_in_debt()).inspect_err(|_| block.note_model_copy())
}

/// While a trial lies in a block: whether a read is probed, and so inspects it first. One to a part of it is, as it would overwrite that. Reads to
/// other places of the block leave it as it is, and the program has its turn with it; one of many sees it, in case none comes there again.
fn shows_trial(block: &Block, buffers: &[IoVec]) -> bool {
    let range = |buffer: &IoVec| buffer.iov_base as usize..(buffer.iov_base as usize).saturating_add(buffer.iov_len);
    buffers.iter().any(|buffer| block.is_trial_in(&range(buffer))) || block.is_turn_past_trial(EXPLORED_EVERY)
}

/// Whether a read of `total` bytes is a trial, if the loss model doesn't have it copied for what is known of the buffer. Where probes are rare
/// anyway (`is_rare`), the next that is admitted is one.
fn is_trial(block: &Block, total: usize, is_rare: bool) -> Result<bool, CopyReason> {
    if !loss_model::favours(total, UseShares::UNTOUCHED) {
        return Err(CopyReason::Loss);
    }
    match block.history.shares() {
        Some(shares) if loss_model::favours(total, shares) => Ok(false),
        // Learnt of the buffer: it is left alone for a while.
        Some(_) => {
            decline(block, total);
            Err(CopyReason::Loss)
        }
        None if loss_model::favours(total, UseShares::UNKNOWN) => Ok(false),
        None if is_rare || is_turn_of_trial() => Ok(true),
        None => Err(CopyReason::Loss),
    }
}

/// How much of a buffer is touched can be learnt only by remapping: whether it is this read's turn.
pub fn is_turn_of_trial() -> bool {
    static TURN: AtomicU32 = AtomicU32::new(0);
    TURN.fetch_add(1, Ordering::Relaxed).is_multiple_of(EXPLORED_EVERY)
}

/// Whether the loss model has this buffer copied without a further probe.
fn is_declined(block: &Block, total: usize) -> bool {
    let left = block.declines.load(Ordering::Relaxed);
    if left == 0 {
        return false;
    }
    let declined = block.declined_bytes.load(Ordering::Relaxed);
    let is_other_use = total / OTHER_USE >= declined || declined / OTHER_USE >= total;
    if is_other_use {
        block.backoff.store(0, Ordering::Relaxed);
    }
    if left == 1 || is_other_use {
        // The next read is another try: what was seen is forgotten, and probes begin anew.
        block.history.clear();
        block.remaps.store(0, Ordering::Relaxed);
    }
    block.declines.store(if is_other_use { 0 } else { left - 1 }, Ordering::Relaxed);
    !is_other_use
}

/// The loss model has decided against a buffer after a read of `total` bytes: it is left alone for twice as long as the last time.
pub fn decline(block: &Block, total: usize) {
    let backoff = block.backoff.load(Ordering::Relaxed).saturating_mul(2).clamp(LEAST_BACKOFF, MOST_BACKOFF);
    block.backoff.store(backoff, Ordering::Relaxed);
    block.declined_bytes.store(total, Ordering::Relaxed);
    block.declines.store(backoff, Ordering::Relaxed);
}

/// A probe was in vain: the read is copied.
pub fn lost(block: &Block) {
    let (probe_ns, now) = (loss_model::probe_ns(), guest::coarse_ms());
    // The account of all is for blocks that have none of their own: others must not keep them from their first probe.
    if block.probes.is_new() {
        OVERALL.lost(probe_ns, now);
    }
    block.probes.lost(probe_ns, now);
}

/// A read was remapped, which gains so much.
pub fn gained(block: &Block, gain_ns: u32) {
    let probe_ns = loss_model::probe_ns();
    for probes in [&block.probes, &OVERALL] {
        probes.gained(gain_ns, probe_ns);
    }
}

/// Whether an array of buffers is taken over. `is_plain`: nothing is remapped anywhere, so no read has to be probed.
pub fn admits_array(is_plain: bool) -> bool {
    let is_admitted = !is_plain || !has_model() || ARRAYS.admits(guest::coarse_ms);
    if !is_admitted {
        stats::copied(CopyReason::InVain);
    }
    is_admitted
}

/// An array of buffers was taken over; whether any of it was remapped.
pub fn note_array(is_remapped: bool) {
    let probe_ns = loss_model::probe_ns();
    if is_remapped { ARRAYS.gained(probe_ns, probe_ns) } else { ARRAYS.lost(probe_ns, guest::coarse_ms()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_of_others_and_reads_that_are_too_long_are_copied() {
        let _alone = crate::state::alone();
        let mut bytes = [0_u8; 8];
        let mut buffer = |len| IoVec { iov_base: bytes.as_mut_ptr().cast(), iov_len: len };
        let (own, long) = (buffer(8), buffer(usize::MAX));
        assert_eq!(judge(&[own]).unwrap_err(), CopyReason::ForeignBuffer);
        assert_eq!(judge(&[own, long]).unwrap_err(), CopyReason::Unaligned);
        assert!(probe(&[]).is_none());
    }

    #[test]
    fn a_buffer_that_is_declined_is_left_alone_for_longer_each_time() {
        let block = Block::default();
        let mut last = 0;
        for _ in 0..12 {
            decline(&block, 4096);
            block.history.note(4, 4, 4);
            let copied = (0..1 << 20).take_while(|_| is_declined(&block, 5000)).count() as u32;
            assert!((LEAST_BACKOFF.max(last)..=MOST_BACKOFF).contains(&copied));
            assert_eq!(block.history.shares(), None, "what was seen is forgotten");
            last = copied;
        }
        assert_eq!(last, MOST_BACKOFF);
    }

    #[test]
    fn what_the_model_has_copied_is_noted_and_what_comes_past_a_trial_is_not() {
        let _alone = crate::state::alone();
        let block = Block::default();
        let buffer = |at: usize| [IoVec { iov_base: at as *mut _, iov_len: 1 << 20 }];
        decline(&block, 1 << 20);
        assert_eq!(by_model(&block, 1 << 20, &buffer(1 << 20)), Err(CopyReason::Loss));
        assert_eq!(block.model_copies(), 1, "the copy has overwritten what was remapped");
        block.set_trial(&(2 << 20..3 << 20));
        let others = || (0..2 * EXPLORED_EVERY).filter(|_| by_model(&block, 1 << 20, &buffer(5 << 20)).is_ok()).count();
        assert_eq!((others(), block.model_copies()), (2, 1), "the program has its turn before it is looked at");
        assert_eq!(by_model(&block, 1 << 20, &buffer(2 << 20)), Ok(false));
        assert_eq!(by_model(&block, 1 << 20, &buffer((1 << 20) + 4096)), Ok(false));
        assert_eq!(by_model(&block, 1 << 20, &buffer((3 << 20) - 4096)), Ok(false), "it would overwrite the end");
        assert_eq!(by_model(&block, 1 << 20, &buffer(1 << 20)), Err(CopyReason::Loss));
        assert_eq!(by_model(&block, 1 << 20, &buffer(3 << 20)), Err(CopyReason::Loss));
    }

    #[test]
    fn a_read_of_another_length_is_another_use_of_a_declined_buffer() {
        for other in [32 << 10, 128 << 10, 1 << 20, 1] {
            let block = Block::default();
            decline(&block, 64 << 10);
            decline(&block, 64 << 10);
            block.history.note(4, 4, 4);
            assert!(is_declined(&block, 64 << 10) && is_declined(&block, 100 << 10) && is_declined(&block, 40 << 10));
            assert!(!is_declined(&block, other) && !is_declined(&block, 64 << 10));
            assert_eq!(block.history.shares(), None);
            decline(&block, other);
            assert_eq!(block.declines.load(Ordering::Relaxed), LEAST_BACKOFF);
        }
    }

    #[test]
    fn probes_in_vain_are_made_for_few_reads_of_a_block_and_of_new_ones() {
        let _alone = crate::state::alone();
        let (block, other) = (Block::default(), Block::default());
        for _ in 0..12 {
            lost(&block);
        }
        assert!(!block.probes.is_new() && other.probes.is_new());
        assert!(!block.probes.admits(|| 0) && !OVERALL.admits(|| 0));
        assert!(OVERALL.admits(|| 0), "a block that has its own account does not fill that of all");
        gained(&other, 1 << 20);
        assert!(other.probes.admits(|| 0) && OVERALL.admits(|| 0) && !block.probes.admits(|| 0));
    }
}
