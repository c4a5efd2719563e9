//! What the key-value loads need of a store.

/// Where a request will go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AccessHint {
    /// The key, or the first one of a scan.
    pub key: u64,
    /// Entries from there on that will be looked at.
    pub entries: usize,
}

/// Keys of 64 evenly spread bits with values of [`super::node::VALUE_BYTES`] bytes.
pub trait KvStore: Sync {
    /// Adds an entry, or replaces its value.
    ///
    /// # Errors
    /// The store is full, or its device failed.
    fn insert(&self, key: u64, value: &[u8]) -> anyhow::Result<()>;

    /// Copies the value of `key` out; `false` if there is none.
    ///
    /// # Errors
    /// The device failed.
    fn read(&self, key: u64, into: &mut [u8]) -> anyhow::Result<bool>;

    /// Shows at most `most` entries from key `from` on, in order; returns how many.
    ///
    /// # Errors
    /// The device failed.
    fn scan(&self, from: u64, most: usize, each: &mut dyn FnMut(u64, &[u8])) -> anyhow::Result<usize>;

    /// Requests to these places will follow soon. Whether anything comes of it is the store's business.
    ///
    /// # Errors
    /// The device failed.
    fn expect(&self, _aims: &[AccessHint]) -> anyhow::Result<()> {
        Ok(())
    }

    /// Bytes of pages in use.
    fn bytes(&self) -> u64;
}
