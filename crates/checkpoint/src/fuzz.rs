//! Images from hostile bytes, for the fuzzer.

use quire_device::Memory;

use crate::image::Image;

/// Opens and verifies an image of these bytes. Must never panic, hang or take memory out of proportion.
pub fn fuzz_open(bytes: &[u8]) {
    let memory = Memory::new();
    memory.put("image", bytes);
    if let Ok(image) = Image::open(&memory, "image") {
        let _ = image.info();
        let _ = image.verify(|_, _| {});
    }
}
