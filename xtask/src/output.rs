//! What the steps print. A line of a step that runs beside others begins with the step's name.
//!
//! Relies on a step printing from the thread that runs it.

use std::cell::RefCell;
use std::fmt::Display;

thread_local! {
    static NAME: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// From now on each line of this thread begins with `name`.
pub fn name_lines(name: &str) {
    NAME.with(|own| *own.borrow_mut() = Some(name.to_owned()));
}

/// Prints a line.
pub fn line(text: impl Display) {
    NAME.with(|own| match &*own.borrow() {
        Some(name) => println!("[{name}] {text}"),
        None => println!("{text}"),
    });
}
