//! `quire mount`: a directory on a slow device, served through the write cache to programs that need no change.
//!
//! [`Mount::start`] is the whole. Names, permissions and directories pass through to the directory; the bytes of regular
//! files go through [`quire_writecache::WriteCache`], one volume a file, in the name of the thread that asked
//! ([`CriticalityTracker`]). The table of volumes, the witness and the lock lie in the directory's hidden folder
//! [`backing_root::FOLDER`].
//! `docs/design/mount.md` has the ways of a request, what is durable when, and what is not.
//!
//! Relies on `fuser` for the kernel's protocol. Must not know which program is in front of it; rules say who is critical.

#![forbid(unsafe_code)]

mod acl;
mod attr;
mod background_flusher;
mod backing_file;
pub mod backing_root;
mod config;
mod criticality;
mod ctimes;
mod dirs;
mod dirty_inodes;
mod engine;
mod error;
mod file_io;
mod file_state;
mod flushes;
mod inodes;
mod names;
mod node_map;
mod nodes;
mod offload_pool;
mod orphans;
mod pending_sync;
mod privileges;
mod recovery;
pub mod report;
mod serve;
mod session;
mod space;
mod stuck_writeback;
mod times;
pub mod unmount_result;
mod volume_table;
mod write_path;
mod write_through;
mod xattrs;

pub use config::{DeviceWrapper, LEAST_QUEUE_BYTES, MountConfig};
pub use criticality::{
    CriticalityDecision, CriticalityHint, CriticalityRules, CriticalityTracker, DEFAULT_RULES, POSTGRESQL_RULES,
    REDIS_RULES, RuleError, SQLITE_RULES,
};
pub use error::MountError;
pub use recovery::RecoveryReport;
pub use session::{Mount, MountFigures, PreparedMount, Unmounter};
