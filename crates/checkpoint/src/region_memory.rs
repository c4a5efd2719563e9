//! Memory that regions are restored to.
//!
//! Relies on a [`BumpAllocator`], which gives each byte out once.

use quire_device::{Buffer, BumpAllocator};
use quire_snapshot::REGION_SIZE;
use quire_sys::mem::MemError;

use crate::error::ImageError;
use crate::image::Image;

/// The bytes of `region` as a buffer. See [`touch`].
pub(crate) fn carve(carver: &mut BumpAllocator, region: u32) -> Result<Buffer, MemError> {
    let start = region as usize * REGION_SIZE;
    carver.carve(start..start + REGION_SIZE)
}

/// Has the memory of a region backed by an ordinary page fault. The read itself would fault under a lock, for which the thread
/// that remaps regions would have to wait.
pub(crate) fn touch(mut buffer: Buffer) -> Buffer {
    buffer[0] = 0;
    buffer
}

pub(crate) fn no_memory(image: &Image, error: &impl std::fmt::Display) -> ImageError {
    ImageError::Memory { file: image.device().name().to_owned(), why: error.to_string() }
}
