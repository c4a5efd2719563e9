//! cargo-fuzz's entry to target `config_file`; the target itself is in `src/config.rs`.
//!
//! Relies on libFuzzer's main function.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| quire_fuzz::config::run(data));
