//! Which directive a user may have meant by one that does not exist.

use super::table::DIRECTIVES;

/// The directive whose name differs least from `name`, if it is close enough to be meant.
pub fn closest(name: &str) -> Option<&'static str> {
    let name = name.to_ascii_lowercase().replace('_', "-");
    let (distance, closest) =
        DIRECTIVES.iter().map(|directive| (distance(&name, directive.name), directive.name)).min()?;
    (distance <= 1 + name.len() / 4).then_some(closest)
}

/// Letters to insert, delete or replace to turn one word into the other.
fn distance(a: &str, b: &str) -> usize {
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.bytes().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.bytes().enumerate() {
            let replaced = diagonal + usize::from(x != y);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}
