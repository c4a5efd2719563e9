//! What makes writes durable before somebody who waits for them is told so.
//!
//! [`log`] is a write-ahead log; [`cache`] a log on a fast device before slow ones, which takes what a request waits for.
//! Relies on `quire-device` for files.

#![forbid(unsafe_code)]

pub mod cache;
pub mod log;
