//! cargo-fuzz's entry to target `wcache_log`; the target itself is in `src/wcache.rs`.
//!
//! Relies on libFuzzer's main function.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| quire_fuzz::wcache::run(data));
