//! The classes of events that keyspace notifications tell, and how a setting names them. Relies on nothing.

/// A class of events; one bit of [`NotifyClasses`].
pub type EventClass = u16;

/// Told on the channel of the key.
pub const KEYSPACE: EventClass = 1 << 0;
/// Told on the channel of the event.
pub const KEYEVENT: EventClass = 1 << 1;
/// What happens to keys of any type.
pub const GENERIC: EventClass = 1 << 2;
/// What happens to strings.
pub const STRING: EventClass = 1 << 3;
/// To lists.
pub const LIST: EventClass = 1 << 4;
/// To sets.
pub const SET: EventClass = 1 << 5;
/// To hashes.
pub const HASH: EventClass = 1 << 6;
/// To sorted sets.
pub const ZSET: EventClass = 1 << 7;
/// Keys whose time had come.
pub const EXPIRED: EventClass = 1 << 8;
/// Keys that were evicted.
pub const EVICTED: EventClass = 1 << 9;
/// What happens to streams.
pub const STREAM: EventClass = 1 << 10;
/// Reads of keys that are not there.
pub const MISS: EventClass = 1 << 11;
/// What modules tell.
pub const MODULE: EventClass = 1 << 12;
/// Keys that are new.
pub const NEW: EventClass = 1 << 13;
/// What `A` stands for.
pub const ALL: EventClass = GENERIC | STRING | LIST | SET | HASH | ZSET | EXPIRED | EVICTED | STREAM | MODULE;

/// The letters of the classes, in the order in which Redis writes them.
const LETTERS: [(char, EventClass); 14] = [
    ('g', GENERIC),
    ('$', STRING),
    ('l', LIST),
    ('s', SET),
    ('h', HASH),
    ('z', ZSET),
    ('x', EXPIRED),
    ('e', EVICTED),
    ('t', STREAM),
    ('d', MODULE),
    ('n', NEW),
    ('K', KEYSPACE),
    ('E', KEYEVENT),
    ('m', MISS),
];

/// Which events are told, and on which channels.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct NotifyClasses(EventClass);

impl NotifyClasses {
    /// Reads the letters; `None` if one is none of a class.
    pub fn parse(text: &str) -> Option<Self> {
        text.chars()
            .try_fold(0, |classes, letter| match letter {
                'A' => Some(classes | ALL),
                _ => LETTERS.iter().find(|(other, _)| *other == letter).map(|(_, class)| classes | class),
            })
            .map(Self)
    }

    /// The bits.
    #[inline]
    pub const fn bits(self) -> EventClass {
        self.0
    }

    /// Whether events of a class are told.
    #[inline]
    pub const fn tells(self, class: EventClass) -> bool {
        self.any() && self.0 & class != 0
    }

    /// Whether any event is told.
    #[inline]
    pub const fn any(self) -> bool {
        self.0 & (KEYSPACE | KEYEVENT) != 0
    }
}

impl std::fmt::Display for NotifyClasses {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let all = self.0 & ALL == ALL;
        if all {
            f.write_str("A")?;
        }
        for (letter, class) in LETTERS {
            if self.0 & class != 0 && !(all && ALL & class != 0) {
                write!(f, "{letter}")?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_are_read_and_written_as_redis_does() {
        for (given, written) in
            [("", ""), ("KEA", "AKE"), ("Ex", "xE"), ("g$lshzxetdK", "AK"), ("Klm", "lKm"), ("AKEn", "AnKE")]
        {
            assert_eq!(
                NotifyClasses::parse(given).map(|classes| classes.to_string()).as_deref(),
                Some(written),
                "{given}"
            );
        }
        assert_eq!(NotifyClasses::parse("Kq"), None);
        assert!(!NotifyClasses::parse("Ag").unwrap().any());
        let tells_misses = |text| NotifyClasses::parse(text).unwrap().tells(MISS);
        assert!(tells_misses("Km") && tells_misses("mAE") && !tells_misses("m") && !tells_misses("KEA"));
    }
}
