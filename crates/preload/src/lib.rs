//! `libquire_preload.so`: for programs that need no change. It makes the copy-on-write after their forks cheaper, or lays
//! their [heap] on a file, of which a pool holds as much in memory as it may.
//!
//! With `LD_PRELOAD` it notices [forks](hooks), and while the child lives a [worker] beside the parent breaks the
//! sharing of those regions that were mostly written in earlier epochs, before the program itself gets there. With
//! `QUIRE_HEAP` the program's allocations come from a transparent map, and nothing is copied ahead. With `QUIRE_ZREAD` large
//! [reads](zread) remap pages of the page cache.
//!
//! Relies on glibc's symbol interposition and on Linux 5.14. It is a guest in the program: it allocates nothing from it,
//! has file descriptors of its own, keeps `errno`, and in a child does only what is async-signal-safe. It changes which
//! frame holds a page and when it is copied, never what a page holds.

pub mod child;
pub mod confinement;
pub mod context;
pub mod copy;
pub mod epoch;
pub mod epoch_stats;
pub mod fixed_vec;
pub mod heap;
pub mod hooks;
pub mod host_monitor;
pub mod log;
pub mod lookup;
pub mod parent;
pub mod precopy;
pub mod process;
pub mod quiesce;
pub mod rate_limiter;
pub mod recollapse;
pub mod regions;
pub mod sampler;
pub mod settings;
pub mod state;
pub mod stats_page;
pub mod worker;
pub mod zread;

pub use settings::PreloadSettings;

/// Whatever this library allocates for itself, it has from the allocator behind the one that it stands in front of.
#[global_allocator]
static PRIVATE_HEAP: heap::private_heap::PrivateHeap = heap::private_heap::PrivateHeap;
