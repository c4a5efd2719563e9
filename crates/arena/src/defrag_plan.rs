//! Which mostly empty slabs of each class are to be filled, so that the others of the class become empty.
//!
//! Of each class the slabs that lie first are filled, as many as hold what is in all mostly empty ones: so no page is taken for it,
//! and the end of the arena becomes empty. A plan may be old but is never wrong: the caller looks at a slab again before it takes a
//! slot of it. It lies outside the arena's bytes, and nothing is lost with it.

use crate::classes::{CLASSES, SizeClass};
use crate::descriptor::PageDescriptor;

/// Slabs that one plan has at most: 16 MiB of their numbers. What lies beyond comes into a later plan.
const MOST_SLABS: usize = 4 << 20;

/// What is to be filled and emptied.
#[derive(Debug, Default)]
pub(crate) struct DefragPlan {
    /// The page at which the survey goes on.
    pub(crate) cursor: u32,
    is_made: bool,
    /// By class; none as long as no slab was noted.
    classes: Vec<ClassPlan>,
    /// Slabs of all classes.
    slabs: usize,
}

#[derive(Clone, Debug, Default)]
struct ClassPlan {
    /// Pages at which mostly empty slabs begin, the first ones first: in a made plan those to be filled.
    slabs: Vec<u32>,
    /// Which of them is being filled.
    next: usize,
    /// Slots in use in all mostly empty slabs.
    used: usize,
    /// Mostly empty slabs from this page on are to be emptied.
    boundary: u32,
}

/// Whether fewer than three quarters of the slots are in use.
fn is_mostly_empty(slab: &PageDescriptor) -> bool {
    usize::from(slab.used) * 4 < SizeClass(slab.class).slots() * 3
}

impl DefragPlan {
    pub(crate) fn is_made(&self) -> bool {
        self.is_made
    }

    /// Whether slabs are to be filled.
    pub(crate) fn has_slabs(&self) -> bool {
        self.classes.iter().any(|plan| plan.next < plan.slabs.len())
    }

    /// Notes the slab at `page`, which has this checked descriptor. Slabs are noted in the order of pages.
    pub(crate) fn note_slab(&mut self, page: u32, slab: &PageDescriptor) {
        if !is_mostly_empty(slab) || self.slabs >= MOST_SLABS {
            return;
        }
        self.slabs += 1;
        self.classes.resize_with(CLASSES, ClassPlan::default);
        let plan = &mut self.classes[usize::from(slab.class)];
        plan.used += usize::from(slab.used);
        plan.slabs.push(page);
    }

    /// All slabs have been noted.
    pub(crate) fn make(&mut self) {
        for (class, plan) in self.classes.iter_mut().enumerate() {
            let needed = plan.used.div_ceil(SizeClass(class as u8).slots());
            match plan.slabs.get(needed) {
                Some(&boundary) => plan.boundary = boundary,
                // All of them are needed.
                None => plan.slabs.clear(),
            }
            plan.slabs.truncate(needed);
        }
        self.is_made = true;
    }

    /// Whether the slab at `page`, which has this checked descriptor, is to be emptied.
    #[inline]
    pub(crate) fn empties(&self, page: u32, slab: &PageDescriptor) -> bool {
        let planned = self.classes.get(usize::from(slab.class)).filter(|_| self.is_made);
        planned.is_some_and(|plan| plan.next < plan.slabs.len() && page >= plan.boundary) && is_mostly_empty(slab)
    }

    /// The slab of a class that is to be filled now.
    pub(crate) fn filled(&self, class: SizeClass) -> Option<u32> {
        let plan = self.classes.get(usize::from(class.0)).filter(|_| self.is_made)?;
        plan.slabs.get(plan.next).copied()
    }

    /// That slab has no room: the next one is to be filled.
    pub(crate) fn pass_filled(&mut self, class: SizeClass) {
        if let Some(plan) = self.classes.get_mut(usize::from(class.0)) {
            plan.next += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::descriptor::SLAB_HEAD;

    /// Slots of 64 bytes, 64 to a slab.
    const CLASS: SizeClass = SizeClass::of(64);

    fn slab(used: u16) -> PageDescriptor {
        PageDescriptor { kind: SLAB_HEAD, class: CLASS.0, used, ..PageDescriptor::default() }
    }

    #[test]
    fn the_first_slabs_are_filled_with_what_the_last_ones_hold() {
        let mut plan = DefragPlan::default();
        // 16 of 64 slots in use each, so that a quarter of the slabs is enough; full ones stay.
        for page in 0..100 {
            plan.note_slab(2000 + page, &slab(if page % 5 == 4 { 60 } else { 16 }));
        }
        assert!(!plan.empties(2099, &slab(16)) && plan.filled(CLASS).is_none(), "it is not made yet");
        plan.make();
        let mut filled = Vec::new();
        while let Some(page) = plan.filled(CLASS) {
            assert!(!plan.empties(page, &slab(16)) && plan.empties(2098, &slab(16)) && !plan.empties(2099, &slab(60)));
            filled.push(page);
            plan.pass_filled(CLASS);
        }
        assert_eq!((filled.len(), filled[0], filled[19]), (20, 2000, 2023));
        assert!(!plan.empties(2098, &slab(16)) && !plan.has_slabs(), "there is no room any more");
    }

    #[test]
    fn nothing_moves_if_no_slab_would_become_empty() {
        let mut plan = DefragPlan::default();
        plan.note_slab(2000, &slab(40));
        plan.note_slab(2001, &slab(40));
        plan.make();
        assert!(!plan.has_slabs() && plan.filled(CLASS).is_none() && !plan.empties(2001, &slab(40)));
    }
}
