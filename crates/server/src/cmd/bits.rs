//! The bits commands.
