//! cargo-fuzz's entry to target `acl_file`; the target itself is in `src/users.rs`.
//!
//! Relies on libFuzzer's main function.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| quire_fuzz::users::run(data));
