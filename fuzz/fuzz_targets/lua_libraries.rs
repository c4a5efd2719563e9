//! cargo-fuzz's entry to target `lua_libraries`; the target itself is in `src/lua.rs`.
//!
//! Relies on libFuzzer's main function.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| quire_fuzz::lua::run(data));
