//! cargo-fuzz's entry to target `resp_parser`; the target itself is in `src/resp.rs`.
//!
//! Relies on libFuzzer's main function.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| quire_fuzz::resp::run(data));
