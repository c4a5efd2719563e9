//! cargo-fuzz's entry to target `rdb_reader`; the target itself is in `src/rdb.rs`.
//!
//! Relies on libFuzzer's main function.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| quire_fuzz::rdb::run(data));
