//! Copy-on-write snapshots of memory, à la carte.
//!
//! Two ways in:
//! - [`attach()`] puts one of six [mechanisms](Mechanism) on any page-aligned range: an [`Origin`], of which [`View`]s are
//!   cut and read while writers go on. [`Mechanism::best`] picks one, [`support`] says what works here.
//! - [`stream`] is what the arena uses: a [`WriteBarrier`] with one writer, one [`Snapshot`] at a time that is streamed out,
//!   a fixed budget.
//!
//! Relies on `quire-sys` for memory. Must not know what the memory holds or where a snapshot goes.

#[cfg(not(loom))]
mod attach;
#[cfg(not(loom))]
mod barrier;
#[doc(hidden)]
pub mod copy_protocol;
#[doc(hidden)]
pub mod copy_state;
#[doc(hidden)]
pub mod current_epoch;
#[cfg(not(loom))]
mod fork;
#[cfg(not(loom))]
mod fork_child;
#[cfg(not(loom))]
mod fork_run;
#[cfg(not(loom))]
mod fork_view;
#[cfg(not(loom))]
mod mechanism;
#[cfg(not(loom))]
mod memcpy;
#[cfg(not(loom))]
mod mmapcopy;
#[cfg(not(loom))]
mod origin;
#[cfg(not(loom))]
mod origin_access;
mod page;
#[cfg(not(loom))]
mod preimage;
#[doc(hidden)]
pub mod protection_lock;
#[cfg(not(loom))]
mod racy;
#[cfg(not(loom))]
mod scoot;
#[cfg(not(loom))]
mod span;
pub mod stream;
#[doc(hidden)]
pub mod sync;
#[cfg(not(loom))]
mod uffd;

#[cfg(not(loom))]
pub use attach::{MechanismChoice, MechanismSupport, Requirements, attach, attach_consumer, probe, support};
#[cfg(not(loom))]
pub use fork_run::{ChildOutput, ForkedWork, ParentDisconnected, fork_and_run};
#[cfg(not(loom))]
pub use mechanism::{Mechanism, OriginOptions, Precopy, UnknownMechanism};
#[cfg(not(loom))]
pub use origin::{MechanismError, Origin, OriginStats, PreimageConsumer, TAKE_BYTES, View, ViewError};
#[cfg(not(loom))]
pub use origin_access::OriginAccess;
pub use page::{PAGE_SIZE, PAGES_PER_REGION, REGION_SIZE};
#[cfg(not(loom))]
pub use scoot::merges_in_background;
#[cfg(not(loom))]
pub use span::PageRange;
pub use stream::{
    BackgroundPriority, FilePages, PageSet, Snapshot, SnapshotError, TakeOutcome, WriteBarrier, WriteBarrierConfig,
    WriteBarrierStats,
};

/// The examples of the README, which are run as those of the documentation are.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
