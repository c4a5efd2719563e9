//! Glob patterns as Redis has them: `*`, `?`, `[abc]`, `[^abc]`, `[a-z]` and `\` before a letter that means itself.
//!
//! On a mismatch only the last `*` is tried again one letter further, so that no pattern takes longer than the product
//! of the two lengths.

/// Whether the whole of `text` matches `pattern`.
pub fn matches(pattern: &[u8], text: &[u8], ignore_case: bool) -> bool {
    // As in Redis, several stars do not match what is empty, though one does.
    if text.is_empty() {
        return matches!(pattern, b"" | b"*");
    }
    let (mut p, mut t) = (0, 0);
    // Where to go on after a mismatch: behind the last star, and one letter further than last time.
    let mut retry: Option<(usize, usize)> = None;
    loop {
        if pattern.get(p) == Some(&b'*') {
            p += 1;
            if p == pattern.len() {
                return true;
            }
            retry = Some((p, t));
            continue;
        }
        if t == text.len() && p == pattern.len() {
            return true;
        }
        match step(pattern, p, text.get(t).copied(), ignore_case) {
            Some(next) => (p, t) = (next, t + 1),
            None => match retry {
                Some((star, from)) if from < text.len() => {
                    retry = Some((star, from + 1));
                    (p, t) = (star, from + 1);
                }
                _ => return false,
            },
        }
    }
}

/// Where the pattern goes on if the element at `p` takes `letter`.
fn step(pattern: &[u8], p: usize, letter: Option<u8>, ignore_case: bool) -> Option<usize> {
    let letter = fold(letter?, ignore_case);
    match pattern.get(p..)? {
        [b'?', ..] => Some(p + 1),
        [b'[', ..] => {
            let (taken, next) = class(pattern, p + 1, letter, ignore_case);
            taken.then_some(next)
        }
        [b'\\', escaped, ..] => (fold(*escaped, ignore_case) == letter).then_some(p + 2),
        [own, ..] => (fold(*own, ignore_case) == letter).then_some(p + 1),
        [] => None,
    }
}

/// Whether the class whose first element is at `p` takes `letter`, and where it ends.
fn class(pattern: &[u8], mut p: usize, letter: u8, ignore_case: bool) -> (bool, usize) {
    let negated = pattern.get(p) == Some(&b'^');
    p += usize::from(negated);
    let mut taken = false;
    loop {
        match pattern.get(p..).unwrap_or_default() {
            // A class that is not closed ends with the pattern.
            [] => return (taken != negated, p),
            [b']', ..] => return (taken != negated, p + 1),
            [b'\\', escaped, ..] => {
                taken |= fold(*escaped, ignore_case) == letter;
                p += 2;
            }
            [from, b'-', to, ..] => {
                let (from, to) = (fold(*from, ignore_case), fold(*to, ignore_case));
                taken |= (from.min(to)..=from.max(to)).contains(&letter);
                p += 3;
            }
            [own, ..] => {
                taken |= fold(*own, ignore_case) == letter;
                p += 1;
            }
        }
    }
}

fn fold(letter: u8, ignore_case: bool) -> u8 {
    if ignore_case { letter.to_ascii_lowercase() } else { letter }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_as_in_redis() {
        for (pattern, text, expected) in [
            ("*", "", true),
            ("", "", true),
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
            ("[abc", "a", true),
            ("a\\", "a\\", true),
            ("save*", "SAVE", false),
        ] {
            assert_eq!(matches(pattern.as_bytes(), text.as_bytes(), false), expected, "{pattern} {text}");
        }
        assert!(matches(b"SAVE*", b"saves", true));
    }

    #[test]
    fn many_stars_do_not_take_for_ever() {
        let text = [b'a'; 5000];
        assert!(!matches(&b"a*".repeat(500).into_iter().chain(*b"b").collect::<Vec<_>>(), &text, false));
    }
}
