//! The two sides of a snapshot, whatever the mechanism: the [`Origin`], which goes on being written, and the [`View`] of
//! it as it was at a cut.
//!
//! Relies on nothing but the names in [`crate::mechanism`].

use std::ops::Range;
use std::sync::Arc;

use quire_sys::mem::MemError;

use crate::mechanism::Mechanism;

/// Most bytes that [`View::take`] copies at once: the dump unit of MDC.
pub const TAKE_BYTES: usize = 256 << 10;

/// Why a mechanism can't be had for a range, or a cut not be made.
#[derive(Debug, thiserror::Error)]
pub enum MechanismError {
    /// The range is empty or not aligned.
    #[error("{len} bytes at {base:#x} are not whole pages: align both to 4096")]
    Range {
        /// Its first address.
        base: usize,
        /// Its bytes.
        len: usize,
    },
    /// An option has no meaning.
    #[error("a region of {region_bytes} bytes is none: take a power of two from 32768 to 2097152")]
    Region {
        /// The region size asked for.
        region_bytes: usize,
    },
    /// The kernel, or the container around us, forbids what the mechanism is built on.
    #[error("{mechanism} does not work here: {reason}. {suggestion}")]
    Unsupported {
        /// The mechanism.
        mechanism: Mechanism,
        /// What was refused.
        reason: String,
        /// What to do about it, or what to use instead.
        suggestion: &'static str,
    },
    /// A system call failed that has no business failing.
    #[error("{mechanism}: {call} failed: {source}. {suggestion}")]
    System {
        /// The mechanism.
        mechanism: Mechanism,
        /// Which call.
        call: &'static str,
        /// What the system said.
        source: std::io::Error,
        /// What to do about it.
        suggestion: &'static str,
    },
    /// No memory.
    #[error(transparent)]
    Memory(#[from] MemError),
    /// A bound of the mechanism is reached.
    #[error("{mechanism}: {what}; {suggestion}")]
    Exhausted {
        /// The mechanism.
        mechanism: Mechanism,
        /// Which bound.
        what: &'static str,
        /// What to do about it.
        suggestion: &'static str,
    },
}

impl MechanismError {
    /// A cut in a forked child: its mechanism acts on the memory of the parent.
    pub(crate) fn forked(mechanism: Mechanism) -> Self {
        Self::Unsupported {
            mechanism,
            reason: "this process was forked from the one that attached the mechanism".into(),
            suggestion: "Attach one in this process.",
        }
    }
}

/// Why bytes of a view can't be had.
#[derive(Debug, thiserror::Error)]
pub enum ViewError {
    /// Outside the view.
    #[error("bytes {start}..{end} lie outside the {len} of this snapshot")]
    Range {
        /// First byte asked for.
        start: usize,
        /// One past the last.
        end: usize,
        /// Bytes of the view.
        len: usize,
    },
    /// Memory for pre-images ran out, so pages that were written since the cut are lost.
    #[error(
        "the snapshot was given up: its pre-images would have taken more than {budget_bytes} bytes; raise the budget"
    )]
    GivenUp {
        /// The bound.
        budget_bytes: usize,
    },
    /// The page went to a [`PreimageConsumer`] when it was first written.
    #[error("the page at {offset} was handed to the consumer of this snapshot when it was written")]
    HandedOver {
        /// First byte of the page.
        offset: usize,
    },
    /// The bytes were taken ([`View::take`]), and their memory was given back to the system.
    #[error("the bytes at {offset} were taken from this snapshot, which holds those from {taken} on only")]
    Taken {
        /// First byte asked for.
        offset: usize,
        /// First byte that is left.
        taken: usize,
    },
    /// The child process that holds the copy is gone.
    #[error("the copy is gone: {0}")]
    Gone(String),
}

/// Memory that goes on being written, and of which views are cut.
///
/// Any thread may read and write the range by ordinary loads and stores ([`Origin::base`]); [`Mechanism::Barrier`] wants
/// each write announced. Dropping the origin ends the mechanism's hold on the range when its last view is gone too; what
/// the range holds stays.
///
/// A child that the program forks while no thread writes the range has a copy of it, and may read views that live (with [`Mechanism::Scoot`] range
/// and views show what the parent writes later, with [`Mechanism::Fork`] views can't be read). The child has no snapshots of its
/// own: [`Origin::cut`] is refused, [`Origin::prepare_write`] and [`Origin::settle`] do nothing, and what the child drops stays as it
/// is for the parent. What the child writes may show in its views.
pub trait Origin: Send + Sync {
    /// Which mechanism this is.
    fn mechanism(&self) -> Mechanism;

    /// First address of the range. It never changes.
    fn base(&self) -> *mut u8;

    /// Bytes of the range.
    fn len(&self) -> usize;

    /// Never: a range has a page at least.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Fixes the content of the range as it is now.
    ///
    /// No thread may write the range during the call: a store that does may be in the view or not. That is the time for
    /// which writers stall, the `last_cut_ns` of [`Origin::stats`].
    ///
    /// # Errors
    /// [`MechanismError`]: no memory, or too many views.
    ///
    /// ```
    /// use quire_snapshot::{Mechanism, OriginAccess, OriginOptions, PageRange, attach};
    ///
    /// let origin = attach(Mechanism::Memcpy, PageRange::allocate(1 << 20)?, &OriginOptions::default())?;
    /// let memory = OriginAccess::new(origin.into());
    /// let (monday, tuesday) = (memory.origin().cut()?, memory.origin().cut()?); // as many as there is memory for
    /// assert_eq!((monday.len(), memory.origin().stats().cuts), (tuesday.len(), 2));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    fn cut(&self) -> Result<Arc<dyn View>, MechanismError>;

    /// Makes `range` safe to change until the next cut. With [`Mechanism::Barrier`] a duty before every write; with
    /// [`Mechanism::Uffd`] a duty before a system call writes there (it would fail with `EFAULT`); else a hint.
    ///
    /// # Panics
    /// If the range lies outside.
    fn prepare_write(&self, range: Range<usize>);

    /// Waits until all background work that the last views left behind (giving memory back, making huge pages whole) is done.
    fn settle(&self);

    /// Figures.
    fn stats(&self) -> OriginStats;
}

/// Memory as it was at a cut. Any thread may read it, as often as it likes, for as long as the view lives.
pub trait View: Send + Sync {
    /// Bytes.
    fn len(&self) -> usize;

    /// Never: a view has a page at least.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Copies the bytes from `offset` on.
    ///
    /// # Errors
    /// [`ViewError`]; `to` is undefined then.
    fn read(&self, offset: usize, to: &mut [u8]) -> Result<(), ViewError>;

    /// The view as ordinary memory, where the mechanism has such: its first address. Valid while the view lives. Writing
    /// there changes this view alone.
    fn as_ptr(&self) -> Option<*mut u8>;

    /// Copies the next bytes from `from` on to the beginning of `to`, at most [`TAKE_BYTES`], and returns which they are; bytes that are
    /// passed over are zeros. Empty at the end of the view. To dump a view, call it from 0 on, each time with the end of what the
    /// last call returned.
    ///
    /// The caller has no more use for what lies before `from`: the view may give the memory back that it holds for it. With
    /// [`Mechanism::Fork`] it does, by 2 MiB, so that the origin's writers copy no more pages there, and bytes before the largest `from` can't be
    /// read any more ([`ViewError::Taken`]). With other mechanisms they can. A snapshot of this one ([`View::cut`]) that was made before keeps them.
    ///
    /// # Errors
    /// [`ViewError`]; `to` is undefined then. `to` must not be empty.
    ///
    /// ```
    /// use quire_snapshot::{Mechanism, OriginAccess, OriginOptions, PageRange, TAKE_BYTES, attach};
    ///
    /// let origin = attach(Mechanism::Fork, PageRange::allocate(1 << 20)?, &OriginOptions::default())?;
    /// let memory = OriginAccess::new(origin.into());
    /// memory.write(0, &[7; 1 << 20]);
    /// let view = memory.origin().cut()?;
    /// let (mut at, mut piece) = (0, vec![0; TAKE_BYTES]);
    /// loop {
    ///     let bytes = view.take(at, &mut piece)?;
    ///     if bytes.is_empty() {
    ///         break;
    ///     }
    ///     // Here piece[..bytes.len()] goes to where it is kept, as the bytes from bytes.start on.
    ///     at = bytes.end;
    /// }
    /// assert_eq!(at, view.len());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    fn take(&self, from: usize, to: &mut [u8]) -> Result<Range<usize>, ViewError> {
        check(from, 0, self.len())?;
        let end = from + (self.len() - from).min(TAKE_BYTES).min(to.len());
        self.read(from, &mut to[..end - from])?;
        Ok(from..end)
    }

    /// A snapshot of this snapshot. It outlives this view, and later writes to this view don't show in it.
    ///
    /// # Errors
    /// [`MechanismError`]: no memory, or too many views.
    fn cut(&self) -> Result<Arc<dyn View>, MechanismError>;

    /// Bytes that this view holds now beyond the origin's own, as far as they can be told.
    fn held_bytes(&self) -> usize;
}

/// Takes what pages held at the cut, in the place of a store: a view needs no memory then, and only pages that
/// were not written since can be read.
///
/// # Safety
/// - With [`Mechanism::Uffd`], [`PreimageConsumer::preimage`] runs in a signal handler of a thread that may be anywhere: it takes no
///   lock, allocates nothing, doesn't panic and doesn't write to the range.
/// - It reads no more than the bytes it is given, and not after it has returned.
pub unsafe trait PreimageConsumer: Send + Sync {
    /// The `len` bytes at `bytes` are what whole pages from `offset` on held at the last cut; they are about to change. Each
    /// page is handed over once in an epoch, by the thread that writes it, which waits.
    fn preimage(&self, offset: usize, bytes: *const u8, len: usize);
}

impl std::fmt::Debug for dyn Origin {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Origin").field("mechanism", &self.mechanism()).field("len", &self.len()).finish()
    }
}

impl std::fmt::Debug for dyn View {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("View").field("len", &self.len()).finish()
    }
}

/// What an origin has done and cost since it was made, except where "now" says otherwise. Figures that a mechanism has no
/// way to know stay zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OriginStats {
    /// Cuts made.
    pub cuts: u64,
    /// Time that the last cut kept its caller, in nanoseconds.
    pub last_cut_ns: u64,
    /// Pages copied because (or ahead of when) they were written.
    pub copied_pages: u64,
    /// Those of them that were copied with their region, not for themselves.
    pub precopied_pages: u64,
    /// Precopied pages found to have been written while their view lived (estimated from a sample where counting would
    /// cost more than it tells).
    pub needed_pages: u64,
    /// Precopied pages found not to have been.
    pub unneeded_pages: u64,
    /// Faults taken in writers.
    pub faults: u64,
    /// Waits of writers for a copy that another thread was making.
    pub waits: u64,
    /// Total of these waits, in nanoseconds.
    pub wait_total_ns: u64,
    /// Longest of these waits, in nanoseconds.
    pub wait_longest_ns: u64,
    /// Bytes held now for views.
    pub held_bytes_now: u64,
    /// Most bytes held at once.
    pub held_bytes_peak: u64,
    /// Huge pages that were split and made whole again.
    pub rejoined_regions: u64,
    /// The coverage, in percent, from which regions are precopied now; over 100 for none.
    pub threshold_percent: u8,
}

/// Whether `len` bytes at `offset` lie within `all`.
pub(crate) fn check(offset: usize, len: usize, all: usize) -> Result<(), ViewError> {
    match offset.checked_add(len) {
        Some(end) if end <= all => Ok(()),
        end => Err(ViewError::Range { start: offset, end: end.unwrap_or(usize::MAX), len: all }),
    }
}
