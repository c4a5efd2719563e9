//! Image files of snapshots: dump, verify, restore.
//!
//! An image is the memory itself: page *n* lies at a fixed place of the file, so pages are written in any order and the
//! file maps straight back. The format is in `docs/format.md` and in [`format`](mod@format).
//!
//! - [`dump()`] writes a snapshot beside the previous image and publishes it by a rename.
//! - [`Image::open`] checks everything but the data; [`Image::verify`] checks the data too;
//!   [`Image::open_damaged`] makes the best of what is left of an image.
//! - [`dump_delta()`] writes what has changed since an image, or since the delta before; [`Chain`] is an image with its deltas.
//! - [`load()`] reads all into memory; [`map()`] maps the file, serves at once and replaces the mapping
//!   by verified memory in the background.
//!
//! Relies on `quire-snapshot` for pages as they were at a cut and on `quire-device` for files. Must not know what lies
//! in the pages.

#![forbid(unsafe_code)]

mod chain;
mod delta;
mod dump;
mod error;
pub mod format;
mod image;
mod image_target;
mod load;
mod map;
mod pages;
mod progress;
mod publish;
mod rate_limit;
mod regions;
mod replaced;
mod salvage;
mod table;
mod target;
mod verify;

pub use chain::{Chain, DeltaInfo};
pub use delta::{MAX_DELTA_PAGES, format as delta_format, is_delta_name};
pub use dump::{DumpOptions, DumpSummary, dump, dump_delta};
pub use error::{DumpError, ImageError, ImagePart};
pub use format::{ImageMeta, LinkId};
pub use image::{Image, ImageInfo};
pub use load::{LoadSummary, LoadedImage, RestoreOptions, load};
pub use map::{BackgroundRestore, MappedImage, RestoreStatus, map};
pub use progress::{DumpPhase, DumpProgress};
pub use publish::remove_stale;
pub use verify::VerifySummary;
