//! The strings commands.
