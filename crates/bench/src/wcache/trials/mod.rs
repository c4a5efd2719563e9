//! Trials: one workload, one policy, one capacity, on a storage stack of its own.
//!
//! Relies on templates, made once, from which every trial's disks are filled.

pub mod database;
pub mod key_values;
