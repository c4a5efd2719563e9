//! Target `glob_pattern`: any pattern matches any text as a slow and plain matcher says, in a bounded number of steps.
//!
//! Relies on the first byte of the input for where the pattern ends and whether case counts.

use quire_server::glob::matches;

/// Longest pattern and text that the plain matcher is asked about.
const MOST_PLAIN_BYTES: usize = 64;

/// The promise: the same answer as `plain` gives.
pub fn run(data: &[u8]) {
    let Some((&choice, rest)) = data.split_first() else { return };
    let (pattern, text) = rest.split_at(usize::from(choice >> 1).min(rest.len()));
    let ignore_case = choice & 1 != 0;
    let found = matches(pattern, text, ignore_case);
    if pattern.len().max(text.len()) <= MOST_PLAIN_BYTES {
        assert_eq!(found, plain(pattern, text, ignore_case), "{pattern:?} on {text:?}, ignoring case: {ignore_case}");
    }
    assert!(matches(b"*", text, ignore_case));
}

/// One element of a pattern.
enum Element {
    Star,
    Any,
    Own(u8),
    Class { negated: bool, ranges: Vec<(u8, u8)> },
}

fn elements(pattern: &[u8]) -> Vec<Element> {
    let (mut found, mut rest) = (Vec::new(), pattern);
    while let [first, tail @ ..] = rest {
        rest = tail;
        found.push(match (first, tail) {
            (b'*', _) => Element::Star,
            (b'?', _) => Element::Any,
            (b'\\', [escaped, behind @ ..]) => {
                rest = behind;
                Element::Own(*escaped)
            }
            (b'[', _) => {
                let (class, behind) = class(tail);
                rest = behind;
                class
            }
            (own, _) => Element::Own(*own),
        });
    }
    found
}

/// The class that begins behind its bracket, and what follows it.
fn class(pattern: &[u8]) -> (Element, &[u8]) {
    let negated = pattern.first() == Some(&b'^');
    let (mut rest, mut ranges) = (&pattern[usize::from(negated)..], Vec::new());
    loop {
        match rest {
            [] => break,
            [b']', tail @ ..] => {
                rest = tail;
                break;
            }
            [b'\\', own, tail @ ..] => {
                ranges.push((*own, *own));
                rest = tail;
            }
            [from, b'-', to, tail @ ..] => {
                ranges.push((*from, *to));
                rest = tail;
            }
            [own, tail @ ..] => {
                ranges.push((*own, *own));
                rest = tail;
            }
        }
    }
    (Element::Class { negated, ranges }, rest)
}

/// Every way to match, by a table of which first elements match which first letters.
fn plain(pattern: &[u8], text: &[u8], ignore_case: bool) -> bool {
    if text.is_empty() {
        // As in Redis.
        return matches!(pattern, b"" | b"*");
    }
    let fold = |letter: u8| if ignore_case { letter.to_ascii_lowercase() } else { letter };
    let takes = |element: &Element, letter: u8| match element {
        Element::Star | Element::Any => true,
        Element::Own(own) => fold(*own) == fold(letter),
        Element::Class { negated, ranges } => {
            let among = |&(from, to): &(u8, u8)| {
                let (from, to) = (fold(from), fold(to));
                (from.min(to)..=from.max(to)).contains(&fold(letter))
            };
            ranges.iter().any(among) != *negated
        }
    };
    let mut reached = vec![false; text.len() + 1];
    reached[0] = true;
    for element in elements(pattern) {
        let mut next = vec![false; text.len() + 1];
        for at in 0..=text.len() {
            let is_star = matches!(element, Element::Star);
            if is_star && (reached[at] || at > 0 && next[at - 1]) {
                next[at] = true;
            }
            if !is_star && reached[at] && at < text.len() && takes(&element, text[at]) {
                next[at + 1] = true;
            }
        }
        reached = next;
    }
    reached[text.len()]
}

/// Patterns of every kind with texts that they match or nearly match.
pub fn seeds() -> Vec<Vec<u8>> {
    let pairs = [
        ("*", "anything"),
        ("h?llo", "hello"),
        ("h[^ae]llo", "hillo"),
        ("[a-cx-z]*[0-9]", "beta7"),
        ("a\\*b\\", "a*b\\"),
        ("*a*b*c*", "xxaxxbxxcxx"),
        ("[abc", "a"),
        ("user:*:[a-", "user:12:a"),
        ("**a**", "bab"),
    ];
    let seed =
        |(pattern, text): &(&str, &str)| [&[(pattern.len() << 1) as u8], pattern.as_bytes(), text.as_bytes()].concat();
    pairs.iter().map(seed).collect()
}
