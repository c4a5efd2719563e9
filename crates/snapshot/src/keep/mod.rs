//! Copies on first write, kept for as long as a view needs them: what [`uffd`](crate::uffd) and
//! [`announced`](crate::announced) have in common.
//!
//! A cut opens an *epoch*. Until the next cut, whoever is about to change a page first copies it into the epoch's part of a
//! [store](store::Store). A [view](view::KeptView) looks for a page in its own epoch, then in the newer ones of the
//! [chain](chain::Chain), and finds it in the range itself if nobody has changed it since.

pub(crate) mod chain;
pub(crate) mod core;
pub(crate) mod keeper;
pub(crate) mod locality;
pub(crate) mod slot;
pub(crate) mod store;
pub(crate) mod view;
