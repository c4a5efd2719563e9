//! The hashes commands.
