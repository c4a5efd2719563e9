//! Which ranges of memory are remapped pages of which file.
//!
//! Relies on its owner to change it together with the mappings: both under the lock of [`super::maps`].

use std::ops::Range;

/// Most ranges at a time: each is a mapping of its own, and parts the memory around it in two.
pub const MOST_EXTENTS: usize = 512;

/// Memory that is a private mapping of a file, in whole pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Extent {
    /// Its first address.
    pub start: usize,
    /// Its bytes.
    pub len: usize,
    /// The place of the file in the table of files.
    pub file: usize,
    /// Where it begins in the file.
    pub offset: u64,
    /// [`Block::model_copies`](super::blocks::Block::model_copies) when it was remapped. If the number has grown since, a copy may have stored to
    /// these pages, and they tell nothing of the program any more.
    pub model_copies: u32,
}

impl Extent {
    /// Its addresses.
    pub fn range(&self) -> Range<usize> {
        self.start..self.start + self.len
    }

    /// The part of it that lies in `range`.
    pub fn within(&self, range: &Range<usize>) -> Option<Self> {
        let start = self.start.max(range.start);
        let end = (self.start + self.len).min(range.end);
        let offset = self.offset + (start - self.start.min(start)) as u64;
        (start < end).then(|| Self { start, len: end - start, offset, ..*self })
    }
}

/// All of them, in no order.
#[derive(Debug)]
pub struct Extents {
    list: [Extent; MOST_EXTENTS],
    count: usize,
}

impl Extents {
    /// None.
    #[expect(clippy::new_without_default, reason = "it is made for statics")]
    pub const fn new() -> Self {
        Self { list: [Extent { start: 0, len: 0, file: 0, offset: 0, model_copies: 0 }; MOST_EXTENTS], count: 0 }
    }

    /// Those there are.
    pub fn all(&self) -> &[Extent] {
        &self.list[..self.count]
    }

    /// Whether another can be put in, whatever it parts.
    pub fn has_room(&self) -> bool {
        self.count + 2 <= MOST_EXTENTS
    }

    /// The first that lies in `range`, as far as it does.
    pub fn first_within(&self, range: &Range<usize>) -> Option<Extent> {
        self.all().iter().find_map(|extent| extent.within(range))
    }

    /// The first that a part of lies in `range`, all of it, of those that no copy of the loss model's has overwritten since.
    pub fn first_in_use(&self, range: &Range<usize>, model_copies: u32) -> Option<Extent> {
        let mut in_use = self.all().iter().filter(|extent| extent.model_copies == model_copies);
        in_use.find(|extent| extent.within(range).is_some()).copied()
    }

    /// The first of a file.
    pub fn first_of(&self, file: usize) -> Option<Extent> {
        self.all().iter().find(|extent| extent.file == file).copied()
    }

    /// Takes `range` out: other memory lies there.
    pub fn remove(&mut self, range: &Range<usize>) {
        let mut at = 0;
        while at < self.count {
            let whole = self.list[at];
            let Some(gone) = whole.within(range) else {
                at += 1;
                continue;
            };
            let before = whole.within(&(0..gone.start));
            let behind = whole.within(&(gone.start + gone.len..usize::MAX));
            match (before, behind) {
                (None, None) => {
                    self.count -= 1;
                    self.list[at] = self.list[self.count];
                    continue;
                }
                (Some(left), None) | (None, Some(left)) => self.list[at] = left,
                (Some(before), Some(behind)) => {
                    self.list[at] = before;
                    // Only `insert` parts one, for which `has_room` was asked; all others take out whole ones.
                    if self.count < MOST_EXTENTS {
                        self.list[self.count] = behind;
                        self.count += 1;
                    }
                }
            }
            at += 1;
        }
    }

    /// Puts one in, in place of what was there; to be asked only while it [has room](Self::has_room).
    pub fn insert(&mut self, extent: Extent) {
        self.remove(&extent.range());
        let mut whole = extent;
        let mut at = 0;
        while at < self.count {
            let other = self.list[at];
            let is_before = other.range().end == whole.start && other.offset + other.len as u64 == whole.offset;
            let is_behind = whole.range().end == other.start && whole.offset + whole.len as u64 == other.offset;
            let is_alike = other.file == whole.file && other.model_copies == whole.model_copies;
            if is_alike && (is_before || is_behind) {
                let first = if is_before { other } else { whole };
                whole = Extent { len: whole.len + other.len, ..first };
                self.count -= 1;
                self.list[at] = self.list[self.count];
                at = 0;
            } else {
                at += 1;
            }
        }
        if self.count < MOST_EXTENTS {
            self.list[self.count] = whole;
            self.count += 1;
        }
    }

    /// Forgets all of them.
    pub fn clear(&mut self) {
        self.count = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use quire_rng::SplitMix64;
    use std::collections::BTreeMap;

    #[test]
    fn pages_are_of_the_file_that_a_map_of_single_pages_says() {
        const PAGE: usize = 4096;
        let mut random = SplitMix64::new(5);
        let mut draw = |most: u64| (random.next_u64() % most) as usize;
        let mut extents = Extents::new();
        let mut model = BTreeMap::<usize, (usize, u64)>::new();
        for _ in 0..4000 {
            let (start, pages) = (draw(200), 1 + draw(20));
            let range = start * PAGE..(start + pages) * PAGE;
            if draw(3) == 0 {
                extents.remove(&range);
                model.retain(|page, _| !(start..start + pages).contains(page));
            } else {
                // Few of them fit together by chance, so some files begin where memory does.
                let (file, offset) = (draw(3), if draw(2) == 0 { start * PAGE } else { draw(50) * PAGE });
                assert!(extents.has_room());
                extents.insert(Extent {
                    start: range.start,
                    len: range.len(),
                    file,
                    offset: offset as u64,
                    model_copies: 0,
                });
                for page in 0..pages {
                    model.insert(start + page, (file, (offset + page * PAGE) as u64));
                }
            }
            let mut listed = BTreeMap::new();
            for extent in extents.all() {
                for page in 0..extent.len / PAGE {
                    let at = (extent.offset + (page * PAGE) as u64, extent.start / PAGE + page);
                    assert!(listed.insert(at.1, (extent.file, at.0)).is_none(), "two lie at the same place");
                }
            }
            assert_eq!(listed, model);
            let first = extents.first_within(&range);
            assert_eq!(first.is_some(), (start..start + pages).any(|page| model.contains_key(&page)));
            assert!((0..3).all(|file| extents.first_of(file).is_none_or(|extent| extent.file == file)));
        }
        extents.clear();
        assert!(extents.all().is_empty());
    }

    #[test]
    fn neighbours_of_one_file_are_one() {
        let mut extents = Extents::new();
        for at in [0, 2, 1] {
            extents.insert(Extent {
                start: at << 20,
                len: 1 << 20,
                file: 4,
                offset: (at << 20) as u64,
                model_copies: 7,
            });
        }
        let whole = Extent { start: 0, len: 3 << 20, file: 4, offset: 0, model_copies: 7 };
        assert_eq!(extents.all(), [whole]);
        // One that was remapped after more reads were copied is another, though it follows.
        let later = Extent { start: 3 << 20, len: 1 << 20, offset: 3 << 20, model_copies: 8, ..whole };
        extents.insert(later);
        assert_eq!(extents.all(), [whole, later]);
        assert_eq!(extents.first_in_use(&(1..4 << 20), 8), Some(later));
        assert_eq!(extents.first_in_use(&(5..6), 7), Some(whole));
        assert_eq!(extents.first_in_use(&(0..3 << 20), 8), None);
    }
}
