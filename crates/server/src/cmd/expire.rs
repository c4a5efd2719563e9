//! The expire commands.
