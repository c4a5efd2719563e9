//! Why a value could not be put into the store.

use quire_rdb::RdbError;
use quire_store::StoreError;

/// Why a value could not be put into the store.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// Its bytes can't be read.
    #[error(transparent)]
    Rdb(#[from] RdbError),
    /// The store refused.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// It contradicts itself.
    #[error("{0}")]
    Content(&'static str),
}
