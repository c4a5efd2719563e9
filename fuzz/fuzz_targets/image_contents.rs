//! cargo-fuzz's entry to target `image_contents`; the target itself is in `src/contents.rs`.
//!
//! Relies on libFuzzer's main function.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| quire_fuzz::contents::run(data));
