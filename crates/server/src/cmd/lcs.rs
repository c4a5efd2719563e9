//! The lcs commands.
