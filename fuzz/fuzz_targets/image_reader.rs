//! cargo-fuzz's entry to target `image_reader`; the target itself is in `src/image.rs`.
//!
//! Relies on libFuzzer's main function.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| quire_fuzz::image::run(data));
