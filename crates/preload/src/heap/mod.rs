//! The program's heap on a file (`QUIRE_HEAP=path:size:pool`): memory that a program allocates lies in a transparent map, of
//! which a pool holds as much as it may, so an unmodified program may allocate more than there is memory.
//!
//! ```text
//! the program ──malloc──▶ hooks ──▶ arena (mimalloc) ──▶ addresses of the map
//!                           │ inert, or the library's thread    │ absent, or not to be stored to
//!                           ▼                                    ▼ the thread sleeps in its fault
//!                         real_libc                       a server of the pool ──▶ HeapFile ──▶ the file
//! ```
//! Relies on `quire-pool` for the map. The rule here: the library's threads never touch the heap. They are
//! [known](internal_threads), what they allocate comes from the C library, and they have all signals blocked and a table of file
//! descriptors of their own, so that neither a handler nor a `close` of the program's gets in their way.
//!
//! A [fork](forks) gives the child the heap as it was: the parent stores nothing to the file while the child lives, and a
//! [thread](child) in the child reads from the file what was not in memory.

pub mod arena;
pub mod child;
pub mod file;
pub mod forks;
pub mod heap_error;
pub mod hooks;
pub mod internal_threads;
pub mod private_heap;
pub mod real_libc;
pub mod refaults;
pub mod setup;
pub mod spec;
pub mod written_pages;
