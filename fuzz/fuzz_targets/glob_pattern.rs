//! cargo-fuzz's entry to target `glob_pattern`; the target itself is in `src/glob.rs`.
//!
//! Relies on libFuzzer's main function.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| quire_fuzz::glob::run(data));
