//! A write cache: a log on a fast device before slow devices, which takes only the writes that a request waits for.
//!
//! [`WriteCache`] is the whole. A write goes to the log on the fast device, and is durable when it is there, or straight
//! to its slow device; [`AdmissionPolicy`] decides, by who waits for it. *Critical* is who a request waits for
//! ([`critical::enter`]); through [`CacheMutex`], [`CacheCondvar`] and writes under way, criticality passes to whatever
//! a critical task depends on ([`TaskGraph`]). Blocks in the log are written back to the slow devices, sorted, in the
//! background. `docs/design/wcache.md` has the protocol, the threads and the races; `format` the bytes.
//!
//! Relies on `quire-device` for devices. Must not know what the blocks hold, or files and directories.

#![forbid(unsafe_code)]

mod agreement;
mod attach;
mod block_sums;
mod buffer_pool;
mod cache_state;
mod config;
pub mod critical;
mod decision_trace;
mod error;
pub mod format;
mod ids;
mod jobs;
mod lock;
mod log_identity;
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
mod truncate;
mod volume;
mod workers;
mod write;
mod write_cache;
mod writeback_rate;

pub use agreement::needs_log;
pub use cache_state::WriteTicket;
pub use config::{CacheConfig, LEAST_AREA_BYTES, VolumeLength, VolumeSpec};
pub use decision_trace::{AdmissionDecision, DecisionTrace, ReasonCount};
pub use error::{CacheError, LostRange};
pub use ids::{BLOCK_BYTES, BlockAddr, SequenceNumber, VolumeId};
pub use lock::{CacheCondvar, CacheGuard, CacheMutex};
pub use log_identity::LogState;
pub use policy::{Admission, AdmissionFacts, AdmissionPolicy, AdmissionReason, UnknownAdmissionPolicy, admit};
pub use stats::{CacheStats, ContentKind, CriticalWrites, WaitCause, WaitStats};
pub use tasks::{
    BlockedOn, BlockedTask, CriticalReason, CriticalScope, Criticality, HeldResource, ResourceId, TaskGraph, TaskId,
    WaitCallback,
};
pub use volume::VolumeState;
pub use write::WriteContext;
pub use write_cache::{OpenReport, WriteCache};
pub use writeback_rate::{WritebackPressure, WritebackProgress, pause};
