//! PostgreSQL as a child process, and pgbench beside it.
//!
//! Relies on Debian's packages `postgresql-15` and `postgresql-client-15`, or a later PostgreSQL.

pub mod cluster;
pub mod pgbench;
