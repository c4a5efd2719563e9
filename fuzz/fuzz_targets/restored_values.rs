//! cargo-fuzz's entry to target `restored_values`; the target itself is in `src/restored.rs`.
//!
//! Relies on libFuzzer's main function.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| quire_fuzz::restored::run(data));
