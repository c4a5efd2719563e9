//! A mark by which code finds that it runs in a forked child, whatever made the child.
//!
//! Relies on `MADV_WIPEONFORK` (Linux 4.14): the page of the mark is zero in a child. Where the kernel refuses that, the number of
//! the process is compared. Asking is one load, fit for a signal handler.

use std::sync::atomic::{AtomicU32, Ordering};

use crate::area::AnonymousMap;

/// A mark that a forked child does not find.
#[derive(Debug)]
pub struct ForkMark {
    /// Holds 1 in the process that made it; `None` where pages can't be wiped.
    page: Option<AnonymousMap>,
    owner: i32,
}

impl ForkMark {
    /// The mark of this process.
    pub fn new() -> Self {
        let page = AnonymousMap::private(crate::mem::PAGE_SIZE).ok().filter(wipes);
        if let Some(page) = &page {
            word(page).store(1, Ordering::Relaxed);
        }
        Self { page, owner: this_process() }
    }

    /// Whether this is a child, forked since the mark was made (or a child's child).
    pub fn is_forked(&self) -> bool {
        match &self.page {
            Some(page) => word(page).load(Ordering::Relaxed) == 0,
            None => this_process() != self.owner,
        }
    }

    /// In a child: from here on it is this process's mark; whether it was not, to the first of those who ask. Where pages can't be wiped it
    /// stays the parent's.
    pub fn renew(&self) -> bool {
        self.page.as_ref().is_some_and(|page| word(page).swap(1, Ordering::Relaxed) == 0)
    }
}

impl Default for ForkMark {
    fn default() -> Self {
        Self::new()
    }
}

fn this_process() -> i32 {
    crate::guest::process_id()
}

fn wipes(page: &AnonymousMap) -> bool {
    // SAFETY: advice about memory of our own, which no code uses yet.
    unsafe { libc::madvise(page.base().cast(), page.len(), libc::MADV_WIPEONFORK) == 0 }
}

fn word(page: &AnonymousMap) -> &AtomicU32 {
    // SAFETY: a page of our own, aligned, zeroed by the kernel, used as this word only, and mapped for as long as `page` lives.
    unsafe { &*page.base().cast::<AtomicU32>() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::child::{WaitStatus, fork, socket_pair};
    use std::os::fd::AsFd;

    #[test]
    fn a_child_finds_the_mark_of_its_parent_missing_and_its_own_there() {
        for mark in [ForkMark::new(), ForkMark { page: None, owner: this_process() }] {
            assert!(!mark.is_forked());
            let (_ours, theirs) = socket_pair().unwrap();
            // SAFETY: the child makes one mapping and compares.
            let child = unsafe {
                fork(theirs.as_fd(), &mut || {
                    let is_missing = mark.is_forked() && !ForkMark::new().is_forked();
                    let is_renewed = mark.page.is_none() || mark.renew() && !mark.renew() && !mark.is_forked();
                    i32::from(!is_missing || !is_renewed)
                })
            };
            assert_eq!(child.unwrap().wait(), WaitStatus::Exited(0));
            assert!(!mark.is_forked());
        }
    }
}
