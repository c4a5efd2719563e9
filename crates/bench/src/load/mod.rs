//! Loads on a server: as fast as it answers (`closed_loop`, and `pipelined`, which costs the least for a request) or at a fixed rate
//! whatever it does (`open_loop`).
//!
//! Relies on one blocking connection per thread, `pipelined` aside; all loads but that one use the keys and values of [`crate::requests`].

pub mod beside_updates;
pub mod closed_loop;
pub mod open_loop;
pub mod pipelined;
pub mod request_batch;
pub mod small_commands;
