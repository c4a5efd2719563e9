//! Glob patterns as Redis has them: `*`, `?`, `[abc]`, `[^abc]`, `[a-z]` and `\` before a letter that means itself.
//!
//! A pattern is read once and matched against many names. What stands between two stars is looked for from left to right, each part
//! behind the one before it, so that no letter of a name is passed twice: letters by a search for a string, other parts by an automaton
//! of one bit an element. A name takes its own length then, times the length of the longest such part over 64. Patterns have a
//! longest length (`LONGEST_BYTES`), which callers look at.

use memchr::memmem;

/// No pattern may be longer.
pub const LONGEST_BYTES: usize = 64 * 1024;

/// What takes one letter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Element {
    /// Any letter.
    Any,
    /// This one.
    Letter(u8),
    /// One of a class, by its number.
    Class(u32),
}

/// The letters of a class, a bit each.
#[derive(Clone, Copy, Default, Debug)]
struct LetterSet([u64; 4]);

impl LetterSet {
    fn insert(&mut self, letter: u8) {
        self.0[usize::from(letter >> 6)] |= 1 << (letter & 63);
    }

    fn contains(self, letter: u8) -> bool {
        self.0[usize::from(letter >> 6)] >> (letter & 63) & 1 == 1
    }
}

/// A part between two stars.
#[derive(Debug)]
enum Inner {
    /// Letters alone.
    Letters(Box<memmem::Finder<'static>>),
    /// Others, too.
    Elements(BitAutomaton),
}

/// A pattern.
#[derive(Debug)]
pub struct Glob {
    ignore_case: bool,
    /// It is empty or one star: these match the empty name, as in Redis; several stars do not.
    matches_empty: bool,
    /// How many letters a name must have at least.
    least: usize,
    classes: Vec<LetterSet>,
    /// What a name must begin with.
    start: Vec<Element>,
    /// What must come behind it in this order.
    inner: Vec<Inner>,
    /// What it must end with; `None` if there is no star, so that `start` is all.
    end: Option<Vec<Element>>,
}

impl Glob {
    /// Reads a pattern.
    pub fn new(pattern: &[u8], ignore_case: bool) -> Self {
        let mut glob = Self {
            ignore_case,
            matches_empty: matches!(pattern, b"" | b"*"),
            least: 0,
            classes: Vec::new(),
            start: Vec::new(),
            inner: Vec::new(),
            end: None,
        };
        let mut parts = vec![Vec::new()];
        let mut at = 0;
        while let Some(rest) = pattern.get(at..).filter(|rest| !rest.is_empty()) {
            let (element, next) = match rest {
                [b'*', ..] => {
                    parts.push(Vec::new());
                    at += 1;
                    continue;
                }
                [b'?', ..] => (Element::Any, at + 1),
                [b'[', ..] => {
                    let (letters, next) = class(pattern, at + 1, ignore_case);
                    glob.classes.push(letters);
                    (Element::Class(glob.classes.len() as u32 - 1), next)
                }
                [b'\\', escaped, ..] => (Element::Letter(fold(*escaped, ignore_case)), at + 2),
                [own, ..] => (Element::Letter(fold(*own, ignore_case)), at + 1),
                [] => break,
            };
            if let Some(part) = parts.last_mut() {
                part.push(element);
            }
            at = next;
        }
        glob.least = parts.iter().map(Vec::len).sum();
        if parts.len() > 1 {
            glob.end = parts.pop();
        }
        let mut parts = parts.into_iter();
        glob.start = parts.next().unwrap_or_default();
        glob.inner = parts.filter(|part| !part.is_empty()).map(|part| glob.inner(&part)).collect();
        glob
    }

    fn inner(&self, part: &[Element]) -> Inner {
        let letter = |element: &Element| if let Element::Letter(letter) = element { Some(*letter) } else { None };
        match part.iter().map(letter).collect::<Option<Vec<u8>>>() {
            // A search for a string knows no cases.
            Some(letters) if !self.ignore_case => Inner::Letters(Box::new(memmem::Finder::new(&letters).into_owned())),
            _ => Inner::Elements(BitAutomaton::new(part, &self.classes)),
        }
    }

    /// Memory that it takes, about.
    pub fn memory_bytes(&self) -> usize {
        let inner = self.inner.iter().map(|inner| match inner {
            Inner::Letters(finder) => size_of_val(&**finder) + finder.needle().len(),
            Inner::Elements(automaton) => automaton.masks.len() * 8 + 256,
        });
        let elements = self.start.len() + self.end.as_ref().map_or(0, Vec::len);
        size_of::<Self>()
            + self.classes.len() * size_of::<LetterSet>()
            + elements * size_of::<Element>()
            + self.inner.len() * size_of::<Inner>()
            + inner.sum::<usize>()
    }

    /// Whether the whole of `text` matches.
    pub fn matches(&self, text: &[u8]) -> bool {
        if text.is_empty() {
            return self.matches_empty;
        }
        let Some(end) = &self.end else {
            return text.len() == self.start.len() && self.takes(&self.start, text);
        };
        if text.len() < self.least {
            return false;
        }
        let (first, rest) = text.split_at(self.start.len());
        let (mut middle, last) = rest.split_at(rest.len() - end.len());
        if !self.takes(&self.start, first) || !self.takes(end, last) {
            return false;
        }
        for inner in &self.inner {
            let found = match inner {
                Inner::Letters(finder) => finder.find(middle).map(|at| at + finder.needle().len()),
                Inner::Elements(automaton) => automaton.find_end(middle, self.ignore_case),
            };
            let Some(behind) = found else { return false };
            middle = &middle[behind..];
        }
        true
    }

    /// Whether elements take as many letters.
    fn takes(&self, elements: &[Element], letters: &[u8]) -> bool {
        elements.iter().zip(letters).all(|(element, letter)| match element {
            Element::Any => true,
            Element::Letter(own) => *own == fold(*letter, self.ignore_case),
            Element::Class(number) => self.classes[*number as usize].contains(fold(*letter, self.ignore_case)),
        })
    }
}

/// Whether the whole of `text` matches a pattern that is used once.
pub fn matches(pattern: &[u8], text: &[u8], ignore_case: bool) -> bool {
    Glob::new(pattern, ignore_case).matches(text)
}

/// Finds elements in a name: a bit says that all elements up to its own have taken the last letters.
#[derive(Debug)]
struct BitAutomaton {
    /// How many elements.
    len: usize,
    /// Which mask a letter has.
    mask_of: Box<[u8; 256]>,
    /// Which elements take a letter: `words` numbers a mask.
    masks: Vec<u64>,
    words: usize,
}

impl BitAutomaton {
    fn new(elements: &[Element], classes: &[LetterSet]) -> Self {
        let words = elements.len().div_ceil(64);
        // Letters that no element names share the first mask.
        let mut mask_of = Box::new([0u8; 256]);
        let mut named = LetterSet::default();
        for element in elements {
            match element {
                Element::Any => {}
                Element::Letter(letter) => named.insert(*letter),
                Element::Class(_) => named = LetterSet([u64::MAX; 4]),
            }
        }
        let mut count = usize::from(!(0..=u8::MAX).all(|letter| named.contains(letter)));
        for letter in (0..=u8::MAX).filter(|letter| named.contains(*letter)) {
            mask_of[usize::from(letter)] = count as u8;
            count += 1;
        }
        let mut masks = vec![0; count * words];
        for (index, element) in elements.iter().enumerate() {
            let (word, bit) = (index / 64, 1u64 << (index % 64));
            match element {
                Element::Any => (0..count).for_each(|mask| masks[mask * words + word] |= bit),
                Element::Letter(letter) => masks[usize::from(mask_of[usize::from(*letter)]) * words + word] |= bit,
                Element::Class(number) => {
                    let letters = classes[*number as usize];
                    for letter in (0..=u8::MAX).filter(|letter| letters.contains(*letter)) {
                        masks[usize::from(mask_of[usize::from(letter)]) * words + word] |= bit;
                    }
                }
            }
        }
        Self { len: elements.len(), mask_of, masks, words }
    }

    /// Where the first place ends whose letters the elements take.
    fn find_end(&self, text: &[u8], ignore_case: bool) -> Option<usize> {
        let last = 1u64 << ((self.len - 1) % 64);
        let mut state = vec![0u64; self.words];
        for (index, letter) in text.iter().enumerate() {
            let first = usize::from(self.mask_of[usize::from(fold(*letter, ignore_case))]) * self.words;
            let mut carry = 1;
            for (word, mask) in state.iter_mut().zip(&self.masks[first..first + self.words]) {
                let next = *word >> 63;
                *word = (*word << 1 | carry) & mask;
                carry = next;
            }
            if state[self.words - 1] & last != 0 {
                return Some(index + 1);
            }
        }
        None
    }
}

/// The class whose first element is at `at`, and where it ends.
fn class(pattern: &[u8], mut at: usize, ignore_case: bool) -> (LetterSet, usize) {
    let negated = pattern.get(at) == Some(&b'^');
    at += usize::from(negated);
    let mut letters = LetterSet::default();
    let end = loop {
        match pattern.get(at..).unwrap_or_default() {
            // A class that is not closed ends with the pattern.
            [] => break at,
            [b']', ..] => break at + 1,
            [b'\\', escaped, ..] => {
                letters.insert(fold(*escaped, ignore_case));
                at += 2;
            }
            [from, b'-', to, ..] => {
                let (from, to) = (fold(*from, ignore_case), fold(*to, ignore_case));
                (from.min(to)..=from.max(to)).for_each(|letter| letters.insert(letter));
                at += 3;
            }
            [own, ..] => {
                letters.insert(fold(*own, ignore_case));
                at += 1;
            }
        }
    };
    if negated {
        letters.0.iter_mut().for_each(|word| *word = !*word);
    }
    (letters, end)
}

fn fold(letter: u8, ignore_case: bool) -> u8 {
    if ignore_case { letter.to_ascii_lowercase() } else { letter }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn patterns_match_as_in_redis() {
        for (pattern, text, expected) in [
            ("*", "", true),
            ("", "", true),
            ("**", "", false),
            ("", "a", false),
            ("h?llo", "hello", true),
            ("h*llo", "heeello", true),
            ("h[ae]llo", "hallo", true),
            ("h[^e]llo", "hello", false),
            ("h[a-c]llo", "hbllo", true),
            ("h[c-a]llo", "hbllo", true),
            ("a\\*b", "a*b", true),
            ("a\\*b", "axb", false),
            ("*a*b*c*", "xxaxxbxxcxx", true),
            ("*a*b", "ab_ab_a", false),
            ("a*a", "a", false),
            ("[abc", "a", true),
            ("a\\", "a\\", true),
            ("save*", "SAVE", false),
        ] {
            assert_eq!(matches(pattern.as_bytes(), text.as_bytes(), false), expected, "{pattern} {text}");
        }
        assert!(matches(b"SAVE*", b"saves", true) && matches(b"*[A]v*", b"SAVE", true));
    }

    #[test]
    fn no_pattern_takes_long() {
        let began = Instant::now();
        let text = vec![b'a'; 1 << 20];
        let many = |part: &[u8], times: usize, end: &[u8]| [part.repeat(times).as_slice(), end].concat();
        for pattern in [
            many(b"a*", 500, b"b"),
            [b"*".as_slice(), &vec![b'a'; LONGEST_BYTES - 3], b"b*"].concat(),
            [b"*".as_slice(), &many(b"?a", 2000, b"b*")].concat(),
            [b"*[".as_slice(), &vec![b'x'; LONGEST_BYTES - 4], b"]!"].concat(),
            many(b"*?[ab]", LONGEST_BYTES / 6, b"b"),
        ] {
            assert!(!matches(&pattern, &text, false), "{:?}", &pattern[..4]);
        }
        // Tried letter by letter each takes minutes.
        assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
    }

    /// Whether `text` matches `pattern`, tried in every way.
    fn model(pattern: &[u8], text: &[u8]) -> bool {
        match (pattern, text) {
            ([], _) => text.is_empty(),
            ([b'*', rest @ ..], _) => (0..=text.len()).any(|at| model(rest, &text[at..])),
            (_, []) => false,
            ([b'?', rest @ ..], [_, left @ ..]) => model(rest, left),
            ([b'[', ..], [letter, left @ ..]) => {
                let (letters, end) = class(pattern, 1, false);
                letters.contains(*letter) && model(&pattern[end.min(pattern.len())..], left)
            }
            ([b'\\', own, rest @ ..] | [own, rest @ ..], [letter, left @ ..]) => own == letter && model(rest, left),
        }
    }

    proptest! {
        #[test]
        fn a_pattern_matches_what_some_way_of_reading_it_matches(
            pattern in proptest::collection::vec(proptest::sample::select(b"aab*?[]^-\\".to_vec()), 0..12),
            text in proptest::collection::vec(proptest::sample::select(b"aab*\\".to_vec()), 1..12),
        ) {
            prop_assert_eq!(matches(&pattern, &text, false), model(&pattern, &text));
        }

        #[test]
        fn long_parts_are_found_where_they_are(
            before in 0..200usize, long in 60..140usize, behind in 0..70usize, odd in 0..140usize,
        ) {
            let mut part = b"a?".repeat(long / 2);
            part[(odd % long.saturating_sub(1)) & !1] = b'b';
            let text = [vec![b'a'; before], part.iter().map(|l| if *l == b'?' { b'z' } else { *l }).collect(), vec![b'a'; behind]].concat();
            let pattern = [b"*".as_slice(), &part, b"*"].concat();
            prop_assert!(matches(&pattern, &text, false));
            prop_assert!(!matches(&pattern, &text[..before + part.len() - 1], false));
        }
    }
}
