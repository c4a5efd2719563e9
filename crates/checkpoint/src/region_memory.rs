//! Memory that regions are restored to.
//!
//! Relies on a [`BumpAllocator`], which gives each byte out once.

use std::fmt::Display;
use std::sync::Arc;

use quire_device::{Buffer, BumpAllocator};
use quire_snapshot::REGION_SIZE;
use quire_sys::mem::{MemError, Reservation};

use crate::error::ImageError;
use crate::image::Image;

/// A reservation with room for every region at its place.
pub(crate) struct RegionMemory(BumpAllocator);

impl RegionMemory {
    pub(crate) fn new(memory: Reservation) -> Self {
        Self(BumpAllocator::new(memory))
    }

    /// The reservation.
    pub(crate) fn reservation(&self) -> &Arc<Reservation> {
        self.0.memory()
    }

    /// The bytes of `region` as a buffer. See [`touch`].
    pub(crate) fn take(&mut self, region: u32) -> Result<Buffer, MemError> {
        let start = region as usize * REGION_SIZE;
        self.0.carve(start..start + REGION_SIZE)
    }
}

/// Has the memory of a region backed by an ordinary page fault. The read itself would fault under a lock, for which the thread
/// that remaps regions would have to wait.
pub(crate) fn touch(mut buffer: Buffer) -> Buffer {
    buffer[0] = 0;
    buffer
}

/// There is no memory for `image`.
pub(crate) fn no_memory(image: &Image, error: &impl Display) -> ImageError {
    ImageError::Memory { file: image.device().name().to_owned(), why: error.to_string() }
}
