//! The memory commands.
