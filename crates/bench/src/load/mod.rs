//! Loads on a server: as fast as it answers (`closed`) or at a fixed rate whatever it does (`paced`).
//!
//! Relies on one blocking connection per thread; all loads use the keys and values of [`crate::requests`].

pub mod beside_updates;
pub mod closed_loop;
pub mod open_loop;
pub mod small_commands;
