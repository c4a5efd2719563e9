//! The quire command.
fn main() {}
