//! cargo-fuzz's entry to target `delta_reader`; the target itself is in `src/delta.rs`.
//!
//! Relies on libFuzzer's main function.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| quire_fuzz::delta::run(data));
