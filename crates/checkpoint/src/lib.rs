//! Image files of snapshots: dump, verify, restore.
//!
//! An image is the memory itself: page *n* lies at a fixed place of the file, so pages are written in any order and the
//! file maps straight back. The format is in `docs/format.md` and in [`format`](mod@format).
//!
//! - [`dump()`] writes a snapshot beside the previous image and publishes it by a rename.
//! - [`Image::open`] checks everything but the data; [`Image::verify`] checks the data too;
//!   [`Image::open_damaged`] makes the best of what is left of an image.
//! - [`dump_temporary()`] writes a snapshot to an image without a name, for a reader in this process.
//! - [`dump_delta()`] writes what has changed since an image, or since the delta before; [`ImageChain`] is an image with its deltas.
//! - [`DumpOptions::compression`] has regions compressed that get smaller by an eighth; these are loaded, not mapped.
//! - [`load()`] reads all into memory; [`map()`] maps the file, serves at once and replaces the mapping
//!   by verified memory in the background; [`ImageChain::map_shared`] maps the file for good.
//!
//! Relies on `quire-snapshot` for pages as they were at a cut and on `quire-device` for files. Must not know what lies
//! in the pages.

#![forbid(unsafe_code)]

mod chain;
pub mod clone;
mod compression;
mod copy;
mod damaged;
mod delta;
mod dump;
mod error;
mod fingerprint;
pub mod format;
mod identity;
mod image;
mod image_target;
mod load;
mod map;
mod overlay;
mod page_sums;
mod pages;
mod parallel_load;
mod pass;
mod progress;
mod publish;
mod rate_limit;
mod region_loader;
mod region_memory;
mod regions;
mod restore_options;
mod source;
mod table;
mod target;
mod verify;

pub use chain::{DeltaInfo, ImageChain};
pub use clone::{BackgroundCheck, CheckStatus, ClonedImage};
pub use compression::{Codec, CompressionInfo};
pub use copy::{CopyError, CopyOptions, CopySummary, copy_chain};
pub use delta::{MAX_WRITTEN_DELTA_PAGES, format as delta_format, is_delta_name};
pub use dump::{DumpOptions, DumpSummary, dump, dump_delta, dump_temporary};
pub use error::{DumpError, ImageError, ImagePart};
pub use format::{ImageMeta, LinkId};
pub use identity::ImageIdentity;
pub use image::{Image, ImageInfo};
pub use load::{LoadSummary, LoadedImage, load};
pub use map::{BackgroundRestore, MappedImage, RestoreStatus, map};
pub use progress::{DumpPhase, DumpProgress};
pub use publish::{is_temporary_name, remove_stale, temporary_files};
pub use restore_options::RestoreOptions;
pub use verify::VerifySummary;
