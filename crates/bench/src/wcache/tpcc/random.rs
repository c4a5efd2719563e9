//! Random numbers and texts as TPC-C wants them (clauses 2.1.6 and 4.3.2).
//!
//! Relies on [`SplitMix64`], so that a run can be repeated from its seed.

use quire_rng::SplitMix64;

/// The constants C of the non-uniform choice: while loading, and in runs. Those of last names differ as clause 2.1.6.1
/// wants.
const C_LAST_LOAD: u64 = 123;
const C_LAST_RUN: u64 = 207;
const C_CUSTOMER: u64 = 259;
const C_ITEM: u64 = 4711;

const SYLLABLES: [&str; 10] = ["BAR", "OUGHT", "ABLE", "PRI", "PRES", "ESE", "ANTI", "CALLY", "ATION", "EING"];
const LETTERS: &[u8] = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";

/// A source of random values.
#[derive(Clone, Debug)]
pub struct TpccRandom(SplitMix64);

impl TpccRandom {
    /// A source whose whole sequence follows from `seed`.
    pub fn new(seed: u64) -> Self {
        Self(SplitMix64::new(seed))
    }

    /// A number of `low..=high`.
    pub fn between(&mut self, low: u32, high: u32) -> u32 {
        low + self.0.below(u64::from(high - low) + 1) as u32
    }

    /// Whether something happens that happens `percent` times of a hundred.
    pub fn happens(&mut self, percent: u32) -> bool {
        self.between(1, 100) <= percent
    }

    /// A number of `low..=high`, some far more often than others.
    fn uneven(&mut self, spread: u64, constant: u64, low: u32, high: u32) -> u32 {
        let both = self.0.below(spread + 1) | u64::from(self.between(low, high));
        low + ((both + constant) % (u64::from(high - low) + 1)) as u32
    }

    /// A customer of `1..=customers`.
    pub fn customer(&mut self, customers: u32) -> u32 {
        self.uneven(1023, C_CUSTOMER, 1, customers)
    }

    /// An item of `1..=items`.
    pub fn item(&mut self, items: u32) -> u32 {
        self.uneven(8191, C_ITEM, 1, items)
    }

    /// The number of a last name below `names`, as it is chosen in a run.
    pub fn last_name_in_run(&mut self, names: u32) -> u32 {
        self.uneven(255, C_LAST_RUN, 0, names - 1)
    }

    /// The same, as it is chosen while loading.
    pub fn last_name_in_load(&mut self, names: u32) -> u32 {
        self.uneven(255, C_LAST_LOAD, 0, names - 1)
    }

    /// Appends `low..=high` letters and digits to `to`.
    pub fn letters(&mut self, low: u32, high: u32, to: &mut String) {
        let mut left = self.between(low, high);
        while left > 0 {
            let mut roll = self.0.next_u64();
            // Ten letters of each number.
            for _ in 0..left.min(10) {
                to.push(char::from(LETTERS[(roll % LETTERS.len() as u64) as usize]));
                roll /= LETTERS.len() as u64;
            }
            left -= left.min(10);
        }
    }

    /// Appends `count` digits to `to`.
    pub fn digits(&mut self, count: u32, to: &mut String) {
        for _ in 0..count {
            to.push(char::from(b'0' + self.0.below(10) as u8));
        }
    }

    /// Appends letters that hold the word `ORIGINAL` one time of ten (clause 4.3.3.1).
    pub fn data(&mut self, to: &mut String) {
        let start = to.len();
        self.letters(26, 50, to);
        if self.happens(10) {
            let at = start + self.0.below((to.len() - start - 8) as u64) as usize;
            to.replace_range(at..at + 8, "ORIGINAL");
        }
    }

    /// The numbers `1..=count` in random order.
    pub fn permutation(&mut self, count: u32) -> Vec<u32> {
        let mut numbers: Vec<u32> = (1..=count).collect();
        self.shuffle(&mut numbers);
        numbers
    }

    /// Puts `cards` in random order.
    pub fn shuffle<T>(&mut self, cards: &mut [T]) {
        for last in (1..cards.len()).rev() {
            cards.swap(last, self.0.below(last as u64 + 1) as usize);
        }
    }
}

/// Last name number `number` of a thousand.
pub fn last_name(number: u32) -> String {
    [number / 100 % 10, number / 10 % 10, number % 10].map(|digit| SYLLABLES[digit as usize]).concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_made_of_three_syllables() {
        assert_eq!(last_name(371), "PRICALLYOUGHT");
        assert_eq!(last_name(0), "BARBARBAR");
        assert_eq!(last_name(999), "EINGEINGEING");
    }

    #[test]
    fn uneven_numbers_keep_to_their_range_and_reach_its_ends() {
        let mut random = TpccRandom::new(3);
        let picks: Vec<u32> = (0..50_000).map(|_| random.customer(150)).collect();
        assert!(picks.iter().all(|pick| (1..=150).contains(pick)) && picks.contains(&1) && picks.contains(&150));
        assert!((0..1000).all(|_| random.last_name_in_run(150) < 150 && random.item(100_000) <= 100_000));
    }

    #[test]
    fn one_text_of_ten_is_original() {
        let mut random = TpccRandom::new(4);
        let originals = (0..5000).filter(|_| {
            let mut text = String::new();
            random.data(&mut text);
            assert!((26..=50).contains(&text.len()), "{text}");
            text.contains("ORIGINAL")
        });
        assert!((400..600).contains(&originals.count()));
    }

    #[test]
    fn a_permutation_has_every_number_once() {
        let mut numbers = TpccRandom::new(5).permutation(100);
        assert_ne!(numbers[..10], [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]);
        numbers.sort_unstable();
        assert_eq!(numbers, (1..=100).collect::<Vec<u32>>());
    }
}
