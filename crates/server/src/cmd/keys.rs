//! The keys commands.
