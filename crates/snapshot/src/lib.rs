//! Copy-on-write snapshots of memory, à la carte.
//!
//! Two ways in:
//! - [`attach()`] puts one of six [mechanisms](Mechanism) on any page-aligned range: an [`Origin`], of which [`View`]s are
//!   cut and read while writers go on. [`Mechanism::best`] picks one, [`support`] says what works here.
//! - [`Barrier`] and [`Snapshot`] are what the arena uses: one writer, one snapshot that is streamed out, a fixed budget.
//!
//! Relies on `quire-sys` for memory. Must not know what the memory holds or where a snapshot goes.

#[cfg(not(loom))]
mod access;
#[cfg(not(loom))]
mod announced;
#[cfg(not(loom))]
mod attach;
#[doc(hidden)]
pub mod claim;
#[doc(hidden)]
pub mod current;
#[cfg(not(loom))]
mod fork;
#[cfg(not(loom))]
mod fork_run;
#[cfg(not(loom))]
mod keep;
#[doc(hidden)]
pub mod lift_lock;
#[cfg(not(loom))]
mod mechanism;
#[cfg(not(loom))]
mod memcpy;
#[cfg(not(loom))]
mod mmapcopy;
#[cfg(not(loom))]
mod origin;
mod page;
#[cfg(not(loom))]
mod racy;
#[cfg(not(loom))]
mod scoot;
#[cfg(not(loom))]
mod span;
#[doc(hidden)]
pub mod stream;
#[doc(hidden)]
pub mod sync;
#[cfg(not(loom))]
mod uffd;

#[cfg(not(loom))]
pub use access::Access;
#[cfg(not(loom))]
pub use attach::{Choice, Support, Wants, attach, attach_consumer, probe, support};
#[cfg(not(loom))]
pub use fork_run::{Running, Sink, Unheard, fork_and_run};
#[cfg(not(loom))]
pub use mechanism::{Mechanism, Options, Precopy, UnknownMechanism};
#[cfg(not(loom))]
pub use origin::{Consumer, Origin, OriginStats, Refused, View, ViewError};
pub use page::{PAGE_SIZE, PAGES_PER_REGION, REGION_SIZE};
#[cfg(not(loom))]
pub use scoot::folds_in_background;
#[cfg(not(loom))]
pub use span::Span;
pub use stream::barrier::{Barrier, BarrierConfig, SnapshotError};
pub use stream::reader::{Snapshot, Take};
pub use stream::stats::BarrierStats;
