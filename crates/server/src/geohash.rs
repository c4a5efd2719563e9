//! Places on the earth as integers, the cells around an area, and distances: the calculations of Redis' geo commands, operation by
//! operation, so that the same digits come out.
//!
//! A place is a cell of a grid of 2^26 by 2^26 that covers all longitudes and the latitudes of the web's Mercator projection. Its
//! number has the bits of both by turns, the longitude's first, so that places in a larger cell lie between two numbers. Relies on
//! nothing.

mod cells;
mod shape;

pub use cells::SearchCells;
pub use shape::{Shape, ShapeKind};

/// The bits of each coordinate in a place's number.
pub const STEPS: u32 = 26;
/// Longitudes.
pub const LONGITUDES: (f64, f64) = (-180.0, 180.0);
/// Latitudes that a place may have: those of a square map.
pub const LATITUDES: (f64, f64) = (-85.051_128_78, 85.051_128_78);
/// The latitudes of a standard geohash.
const STANDARD_LATITUDES: (f64, f64) = (-90.0, 90.0);
const EARTH_RADIUS_M: f64 = 6_372_797.560_856;
/// As Redis has it: not quite the quotient that the type could hold.
const RADIANS: f64 = std::f64::consts::PI / 180.0;
const ALPHABET: &[u8; 32] = b"0123456789bcdefghjkmnpqrstuvwxyz";
/// 2^63
const TWO_63: f64 = 9_223_372_036_854_775_808.0;

/// A place.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Place {
    /// Degrees to the east.
    pub longitude: f64,
    /// Degrees to the north.
    pub latitude: f64,
}

impl Place {
    /// The middle of the cell that a score stands for, whatever score it is.
    pub fn of_score(score: f64) -> Place {
        let cell = Cell { bits: converted(score), steps: STEPS };
        let (longitudes, latitudes) = (cell.longitudes(), cell.latitudes());
        let middle = |(min, max): (f64, f64), (least, most): (f64, f64)| ((min + max) / 2.0).min(most).max(least);
        Place { longitude: middle(longitudes, LONGITUDES), latitude: middle(latitudes, LATITUDES) }
    }

    /// Whether a place may be here.
    pub fn is_valid(&self) -> bool {
        let within = |value: f64, (min, max): (f64, f64)| value >= min && value <= max;
        within(self.longitude, LONGITUDES) && within(self.latitude, LATITUDES)
    }

    /// The number of its cell, which is its score in a sorted set.
    pub fn score(&self) -> u64 {
        Cell::around(self, STEPS, LATITUDES).bits
    }

    /// The eleven characters of its standard geohash, of which the last one tells nothing.
    pub fn text(&self) -> [u8; 11] {
        let bits = Cell::around(self, STEPS, STANDARD_LATITUDES).bits;
        let mut text = [ALPHABET[0]; 11];
        for (number, letter) in text[..10].iter_mut().enumerate() {
            *letter = ALPHABET[(bits >> (52 - 5 * (number + 1)) & 31) as usize];
        }
        text
    }

    /// Meters to another place, along a great circle.
    pub fn distance_m(&self, other: &Place) -> f64 {
        let across = ((radians(other.longitude) - radians(self.longitude)) / 2.0).sin();
        if across == 0.0 {
            return latitude_distance_m(self.latitude, other.latitude);
        }
        let (from, to) = (radians(self.latitude), radians(other.latitude));
        let along = ((to - from) / 2.0).sin();
        let chord = along * along + from.cos() * to.cos() * across * across;
        2.0 * EARTH_RADIUS_M * chord.sqrt().asin()
    }
}

/// Meters between two latitudes.
fn latitude_distance_m(from: f64, to: f64) -> f64 {
    EARTH_RADIUS_M * (radians(to) - radians(from)).abs()
}

fn radians(degrees: f64) -> f64 {
    degrees * RADIANS
}

fn degrees(radians: f64) -> f64 {
    radians / RADIANS
}

/// A score as an integer, as the instructions of Redis' machine convert one that is none.
pub fn whole(score: f64) -> i64 {
    if (-TWO_63..TWO_63).contains(&score) { score as i64 } else { i64::MIN }
}

/// The same as an integer without a sign.
fn converted(score: f64) -> u64 {
    if score >= TWO_63 { whole(score - TWO_63) as u64 ^ 1 << 63 } else { whole(score) as u64 }
}

/// A cell of a grid of 2^steps by 2^steps.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Cell {
    /// The bits of its column and its row by turns.
    bits: u64,
    steps: u32,
}

impl Cell {
    /// The cell in which a place lies.
    fn around(place: &Place, steps: u32, latitudes: (f64, f64)) -> Cell {
        let scale = (1u64 << steps) as f64;
        let part = |value: f64, (min, max): (f64, f64)| ((value - min) / (max - min) * scale) as u32;
        Cell::at(part(place.longitude, LONGITUDES), part(place.latitude, latitudes), steps)
    }

    fn at(column: u32, row: u32, steps: u32) -> Cell {
        Cell { bits: spread(row) | spread(column) << 1, steps }
    }

    fn column(&self) -> u32 {
        gather(self.bits >> 1)
    }

    fn row(&self) -> u32 {
        gather(self.bits)
    }

    /// The cell so many columns and rows away, around the edges.
    fn moved(&self, columns: i32, rows: i32) -> Cell {
        // A place at the very edge lies in a column that the grid doesn't have, which stays if only the row is another one.
        let wrap = |number: u32, by: i32| match by {
            0 => number,
            by => number.wrapping_add_signed(by) & ((1u64 << self.steps) - 1) as u32,
        };
        Cell::at(wrap(self.column(), columns), wrap(self.row(), rows), self.steps)
    }

    fn longitudes(&self) -> (f64, f64) {
        self.edges(self.column(), LONGITUDES)
    }

    fn latitudes(&self) -> (f64, f64) {
        self.edges(self.row(), LATITUDES)
    }

    fn edges(&self, number: u32, (min, max): (f64, f64)) -> (f64, f64) {
        let (scale, width) = ((1u64 << self.steps) as f64, max - min);
        let edge = |number: u32| min + f64::from(number) / scale * width;
        (edge(number), edge(number.wrapping_add(1)))
    }

    /// The scores of the places in it.
    fn scores(&self) -> std::ops::Range<u64> {
        let shift = 2 * (STEPS - self.steps);
        self.bits << shift..(self.bits + 1) << shift
    }
}

/// Puts a zero in front of each bit.
fn spread(number: u32) -> u64 {
    let mut bits = u64::from(number);
    for (shift, mask) in HALVES {
        bits = (bits | bits << shift) & mask;
    }
    bits
}

/// Takes every second bit.
fn gather(bits: u64) -> u32 {
    let mut bits = bits & HALVES[4].1;
    for at in (0..HALVES.len()).rev() {
        let mask = if at == 0 { u64::from(u32::MAX) } else { HALVES[at - 1].1 };
        bits = (bits | bits >> HALVES[at].0) & mask;
    }
    bits as u32
}

/// By how much groups of bits are moved apart, and where they lie then.
const HALVES: [(u32, u64); 5] = [
    (16, 0x0000_ffff_0000_ffff),
    (8, 0x00ff_00ff_00ff_00ff),
    (4, 0x0f0f_0f0f_0f0f_0f0f),
    (2, 0x3333_3333_3333_3333),
    (1, 0x5555_5555_5555_5555),
];

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const PALERMO: Place = Place { longitude: 13.361389, latitude: 38.115556 };
    const CATANIA: Place = Place { longitude: 15.087269, latitude: 37.502669 };

    #[test]
    fn scores_and_geohashes_are_those_of_redis() {
        assert_eq!((PALERMO.score(), CATANIA.score()), (3_479_099_956_230_698, 3_479_447_370_796_909));
        let kept = [PALERMO, CATANIA].map(|place| Place::of_score(place.score() as f64));
        assert_eq!(kept.map(|place| String::from_utf8(place.text().to_vec()).unwrap()), ["sqc8b49rny0", "sqdtr74hyu0"]);
        assert_eq!(format!("{:.4}", kept[0].distance_m(&kept[1])), "166274.1516");
        assert_eq!(kept[0].longitude, 13.361389338970184);
    }

    #[test]
    fn scores_that_stand_for_no_place_are_read_as_on_redis_machine() {
        assert_eq!(converted(-1.0), u64::MAX);
        assert_eq!(converted(f64::INFINITY), 0);
        assert_eq!((converted(f64::NEG_INFINITY), converted(TWO_63)), (1 << 63, 1 << 63));
        for score in [-1.0, f64::INFINITY, f64::NEG_INFINITY, 1e300, 5.5, -1e19] {
            assert!(Place::of_score(score).is_valid(), "{score}");
        }
    }

    proptest! {
        #[test]
        fn a_place_is_found_again_within_its_cell(longitude in -180.0..180.0f64, latitude in -85.0..85.0f64) {
            let place = Place { longitude, latitude };
            let kept = Place::of_score(place.score() as f64);
            prop_assert_eq!(kept.score(), place.score());
            prop_assert!((kept.longitude - longitude).abs() < 1e-5 && (kept.latitude - latitude).abs() < 1e-5);
            prop_assert!(place.distance_m(&kept) < 1.0);
        }

        #[test]
        fn bits_are_put_apart_and_together_again(column: u32, row: u32) {
            let cell = Cell::at(column, row, 32);
            prop_assert_eq!((cell.column(), cell.row()), (column, row));
            for bit in 0..32 {
                prop_assert_eq!(cell.bits >> (2 * bit) & 1, u64::from(row >> bit & 1));
                prop_assert_eq!(cell.bits >> (2 * bit + 1) & 1, u64::from(column >> bit & 1));
            }
        }
    }
}
