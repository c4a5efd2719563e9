//! Names of databases and of what a write does to a key's time to live.

/// The number of a database, from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct DbId(pub u8);

/// What a write does to the key's time to live.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExpiryChange {
    /// Leaves it.
    Keep,
    /// Removes it.
    Clear,
    /// Sets it to unix milliseconds.
    At(i64),
}
