//! What the server calls itself. Relies on nothing.

/// The version of Redis whose behaviour the server follows; clients decide by it what they may use.
pub const COMPATIBLE_VERSION: &str = "7.2.6";
/// Quire's own version.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");
