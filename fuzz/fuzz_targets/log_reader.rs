//! cargo-fuzz's entry to target `log_reader`; the target itself is in `src/log.rs`.
//!
//! Relies on libFuzzer's main function.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| quire_fuzz::log::run(data));
