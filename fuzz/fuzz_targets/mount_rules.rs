//! cargo-fuzz's entry to target `mount_rules`; the target itself is in `src/rules.rs`.
//!
//! Relies on libFuzzer's main function.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| quire_fuzz::rules::run(data));
