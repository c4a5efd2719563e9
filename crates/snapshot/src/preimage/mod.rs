//! Pre-images: copies of pages on their first write, kept for as long as a view needs them. [`uffd`](crate::uffd) and
//! [`barrier`](crate::barrier) have this in common.
//!
//! A cut opens an *epoch*. Until the next cut, a thread that is about to change a page first copies it into the epoch's part of
//! a [store](store::PreimageStore). A [view](view::EpochView) looks for a page in its own epoch, then in the newer ones of the
//! [chain](epoch_chain::EpochChain). If no thread has changed the page since, the view finds it in the range itself.
//!
//! Relies on a mechanism to tell of each page's first write ([`origin::WriteDetector`]).

pub(crate) mod copier;
pub(crate) mod copy_on_write;
pub(crate) mod coverage;
pub(crate) mod engine;
pub(crate) mod epoch_chain;
pub(crate) mod origin;
pub(crate) mod slot;
pub(crate) mod store;
pub(crate) mod view;
