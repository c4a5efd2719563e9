//! Append-only files of Redis, read once into an empty store: several that a manifest names, or a single one.
//!
//! Relies on `rdb` for a base that is an RDB file, and on the commands themselves for the rest, as the replay of the log does.

mod command_file;
pub mod import;
pub mod manifest;
