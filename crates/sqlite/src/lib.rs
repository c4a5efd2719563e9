//! `libquire_sqlite.so`: an SQLite VFS whose database files are read through a [`quire_pool::Pool`].
//!
//! The VFS `quire` stands before the VFS that SQLite uses by default, and leaves to it what it does well: writes, locks, the shared
//! memory of the WAL index, journals, temporary files, names. Only reads of main database files go another way: their pages are
//! cached by the pool, and the kernel's page cache holds no second copy of what was read. Since the locks are those of the
//! default VFS, programs that use it can have the same database open at the same time; [`coherence`] says how each
//! side sees the other's commits.
//!
//! Relies on the loadable extension interface of SQLite 3.34.1 and later, and on `quire-pool`. Must not know: SQL, the B-trees in
//! the pages, how pages are cached.

mod coherence;
mod database;
mod extension;
mod file;
mod methods;
mod pragma;
mod registry;
mod settings;
mod vfs;
