//! Whether the process is a child that no handler of forks has seen (`clone`): it has memory of its own and no lease process.
//!
//! Relies on a page that the kernel wipes in children; asking is one load.

use std::sync::OnceLock;

use quire_sys::fork_mark::ForkMark;

static MARK: OnceLock<ForkMark> = OnceLock::new();

/// Makes the mark, from which on children are told.
pub fn begin() {
    MARK.get_or_init(ForkMark::new);
}

/// In a child that a handler has seen: from here on it is the process that is meant.
pub fn adopt() {
    if let Some(mark) = MARK.get() {
        mark.renew();
    }
}

/// Whether this is such a child. What its parent's library knows is not so here: nothing is remapped, and nothing waited for.
pub fn is_here() -> bool {
    MARK.get().is_some_and(ForkMark::is_forked)
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_process_that_begins_is_none() {
        super::begin();
        assert!(!super::is_here());
        super::adopt();
        assert!(!super::is_here());
    }
}
