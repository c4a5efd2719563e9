//! `quire mount`: a directory on a slow device, served through the write cache to programs that nobody can change.
//!
//! [`Mounted::start`] is the whole. Names, permissions and directories pass through to the directory; the bytes of regular
//! files go through [`quire_writecache::WriteCache`], one volume a file, in the name of whoever asked ([`Who`]). The
//! table of volumes, the witness and the lock lie in the directory's hidden folder [`home::FOLDER`].
//! `docs/design/mount.md` has the ways of a request, what is durable when, and what is not.
//!
//! Relies on `fuser` for the kernel's protocol. Must not know which program is in front of it; rules say who is critical.

#![forbid(unsafe_code)]

mod acl;
mod attr;
mod backing;
mod bodies;
mod config;
mod crew;
mod debt;
mod dirs;
pub mod ending;
mod engine;
mod error;
mod flushes;
mod graves;
pub mod home;
mod janitor;
mod names;
mod nodes;
mod privileges;
mod recovery;
pub mod report;
mod serve;
mod session;
mod space;
mod stamps;
mod straight;
mod table;
mod times;
mod unsynced;
mod who;
mod xattrs;

pub use config::{LEAST_QUEUE_BYTES, MountConfig, Wrap};
pub use error::MountError;
pub use recovery::Recovered;
pub use session::{Mounted, Remover};
pub use who::{BadRule, DEFAULT_RULES, Hint, POSTGRESQL_RULES, REDIS_RULES, Rules, SQLITE_RULES, Verdict, Who};
