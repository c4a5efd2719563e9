//! YCSB's workloads A and B on redis-server: the records, the requests, the clients.
//!
//! Relies on the mapping of YCSB's own Redis binding: a record is a hash of ten fields of 100 bytes, a read gets all of
//! them, an update sets one, and a sorted set knows all keys.

pub mod clients;
pub mod records;
