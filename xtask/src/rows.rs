//! The rows of the house: which crate may build on which.
//!
//! Relies on DESIGN's rule that a crate depends only on rows below its own, never on its own row.

/// Every crate and its row. A crate that is missing here fails `layers`, so that each new crate gets its row.
pub const ROWS: &[(&str, u8)] = &[
    ("quire-sys", 0),
    ("quire-units", 0),
    ("quire-rng", 0),
    ("quire-lua", 0),
    ("quire-snapshot", 1),
    ("quire-device", 1),
    ("quire-peers", 1),
    ("quire-metrics", 1),
    ("quire-rdb", 1),
    ("quire-arena", 2),
    ("quire-checkpoint", 2),
    ("quire-mdc", 2),
    ("quire-wal", 2),
    ("quire-writecache", 2),
    ("quire-pool", 2),
    ("quire-store", 3),
    ("quire-fuse", 3),
    ("quire-server", 4),
    ("quire-bench", 5),
    ("quire-preload", 5),
    ("quire-capi", 5),
    ("quire-sqlite", 5),
    // The command is a surface, too, but the one that all the others are reached by.
    ("quire", 6),
    // Tools beside the house: nothing may depend on them.
    ("quire-fuzz", 7),
    ("xtask", 7),
];

/// The row of `package`.
pub fn row_of(package: &str) -> Option<u8> {
    ROWS.iter().find(|(name, _)| *name == package).map(|(_, row)| *row)
}
