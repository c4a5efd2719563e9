//! A write cache: a log on a fast device before slow devices, which takes only the writes that a request waits for.
//!
//! [`WriteCache`] is the whole. A write goes to the log on the fast device, and is durable when it is there, or straight
//! to its slow device; [`Policy`] decides, by who waits for it. *Critical* is who a request waits for
//! ([`critical::enter`]); through [`CacheMutex`], [`CacheCondvar`] and writes under way, criticality passes to whatever
//! a critical task depends on ([`TaskGraph`]). Blocks in the log are written back to the slow devices, sorted, in the
//! background. `docs/design/wcache.md` has the protocol, the threads and the races; [`format`] the bytes.
//!
//! Relies on `quire-device` for devices. Must not know what the blocks hold, or files and directories.

#![forbid(unsafe_code)]

mod agreement;
mod attach;
mod buffers;
mod cache_state;
mod cached;
mod config;
pub mod critical;
mod error;
pub mod format;
mod ids;
mod jobs;
mod lock;
mod log_identity;
mod pace;
mod pending_truncations;
mod policy;
#[doc(hidden)]
pub mod protocol;
mod read;
pub mod recover;
mod ring;
mod shared;
#[cfg(test)]
mod sim;
mod stats;
mod tail;
mod tasks;
mod trace;
mod truncate;
mod volume;
mod workers;
mod write;

pub use agreement::needs_log;
pub use cache_state::Ticket;
pub use cached::{OpenReport, WriteCache};
pub use config::{CacheConfig, Growth, LEAST_AREA_BYTES, VolumeSpec};
pub use error::{CacheError, LostRange};
pub use ids::{BLOCK_BYTES, BlockAddr, SequenceNumber, VolumeId};
pub use lock::{CacheCondvar, CacheGuard, CacheMutex};
pub use log_identity::LogState;
pub use pace::{Pressure, Progress, pause};
pub use policy::{Admission, AdmissionFacts, AdmissionReason, Policy, UnknownPolicy, admit};
pub use stats::{CacheStats, Content, CriticalWrites, WaitCause, WaitStats};
pub use tasks::{
    BlockedOn, BlockedTask, CriticalReason, CriticalScope, Criticality, HeldResource, ResourceId, TaskGraph, TaskId,
    Wake,
};
pub use trace::{Decision, DecisionTrace, ReasonCount};
pub use volume::VolumeState;
pub use write::WriteContext;
