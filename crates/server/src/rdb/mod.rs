//! Where Redis's RDB format meets the store: values read into it and written from it, whole files imported and exported, the
//! `dump.rdb` that a server starts from which has no image, and what a client is sent that asks for a whole file.
//!
//! Relies on `quire-rdb` for the format and on the store for the values; knows no clients.

pub mod encode;
pub mod export;
pub mod import;
pub mod load;
mod load_error;
pub mod send;
pub mod start;
mod streams;
