//! cargo-fuzz's entry to target `mdc_reader`; the target itself is in `src/mdc.rs`.
//!
//! Relies on libFuzzer's main function.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| quire_fuzz::mdc::run(data));
