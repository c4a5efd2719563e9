//! The databases commands.
