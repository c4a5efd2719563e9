//! The cells that cover an area: that of its middle and its eight neighbours, of a grid so coarse that they do.

use std::ops::Range;

use super::shape::{Bounds, Shape};
use super::{Cell, LATITUDES, STEPS};

/// Half of the length of the equator on the map, in meters.
const MAP_HALF_M: f64 = 20_037_726.37;
/// The directions to the neighbours, in the order in which they are searched: columns and rows.
const DIRECTIONS: [(i32, i32); 8] = [(0, 1), (0, -1), (1, 0), (-1, 0), (1, 1), (-1, 1), (1, -1), (-1, -1)];

/// The cells in which the places of an area are looked for.
#[derive(Clone, Debug)]
pub struct SearchCells {
    cells: Vec<Cell>,
}

impl SearchCells {
    /// Those of an area.
    pub fn of(shape: &Shape) -> SearchCells {
        let bounds = shape.bounds();
        let mut steps = steps_for(shape.radius_m(), shape.middle.latitude);
        let mut middle = Cell::around(&shape.middle, steps, LATITUDES);
        if steps > 1 && !covers(&middle, &bounds) {
            steps -= 1;
            middle = Cell::around(&shape.middle, steps, LATITUDES);
        }
        let mut cells = vec![middle];
        let neighbours = DIRECTIONS.into_iter().filter(|way| steps < 2 || is_needed(&middle, &bounds, *way));
        for (columns, rows) in neighbours {
            let cell = middle.moved(columns, rows);
            // Around a small world the same cell lies in several directions.
            if cells.len() == 1 || cells.last() != Some(&cell) {
                cells.push(cell);
            }
        }
        SearchCells { cells }
    }

    /// The ranges of scores, in the order in which they are searched.
    pub fn scores(&self) -> impl Iterator<Item = Range<u64>> {
        self.cells.iter().map(Cell::scores)
    }
}

/// How fine a grid is whose cells are larger than an area of this radius.
fn steps_for(radius_m: f64, latitude: f64) -> u32 {
    if radius_m == 0.0 {
        return STEPS;
    }
    let (mut covered_m, mut steps) = (radius_m, 1);
    while covered_m < MAP_HALF_M {
        covered_m *= 2.0;
        steps += 1;
    }
    // Towards the poles cells are narrower.
    let narrower = i32::from(latitude.abs() > 66.0) + i32::from(latitude.abs() > 80.0);
    (steps - 2 - narrower).clamp(1, STEPS as i32) as u32
}

/// Whether the neighbours reach as far as the area. Those of an endless one do, as far as they can be compared.
fn covers(middle: &Cell, bounds: &Bounds) -> bool {
    let falls_short = middle.moved(0, 1).latitudes().1 < bounds.north
        || middle.moved(0, -1).latitudes().0 > bounds.south
        || middle.moved(1, 0).longitudes().1 < bounds.east
        || middle.moved(-1, 0).longitudes().0 > bounds.west;
    !falls_short
}

/// Whether the area may reach into a neighbour. As in Redis one is left out where the middle's own cell reaches farther.
fn is_needed(middle: &Cell, bounds: &Bounds, (columns, rows): (i32, i32)) -> bool {
    let ((south, north), (west, east)) = (middle.latitudes(), middle.longitudes());
    !(rows < 0 && south < bounds.south
        || rows > 0 && north > bounds.north
        || columns < 0 && west < bounds.west
        || columns > 0 && east > bounds.east)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::geohash::{Place, ShapeKind};
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn every_place_of_an_area_lies_in_its_cells(
            longitude in -150.0..150.0f64, latitude in -60.0..60.0f64, radius in 0.0..1000.0f64,
            east in -1.0..1.0f64, north in -1.0..1.0f64, is_box: bool,
        ) {
            let middle = Place { longitude, latitude };
            let kind = if is_box { ShapeKind::Box { width: radius, height: radius } } else { ShapeKind::Circle { radius } };
            let shape = Shape { middle, kind, unit_m: 1000.0 };
            let reach = radius / 111.0;
            let place = Place { longitude: longitude + 2.0 * east * reach, latitude: latitude + north * reach };
            let kept = Place::of_score(place.score() as f64);
            let found = SearchCells::of(&shape).scores().any(|scores| scores.contains(&place.score()));
            prop_assert!(found || shape.distance_within(&kept).is_none(), "{:?} {:?}", shape, place);
        }
    }

    #[test]
    fn cells_of_a_small_world_are_searched_once() {
        let middle = Place { longitude: 1.0, latitude: 1.0 };
        let shape = Shape { middle, kind: ShapeKind::Circle { radius: 1e9 }, unit_m: 1.0 };
        let mut starts: Vec<u64> = SearchCells::of(&shape).scores().map(|scores| scores.start).collect();
        assert_eq!(starts.len(), 4);
        starts.sort_unstable();
        starts.dedup();
        assert_eq!(starts.len(), 4);
    }
}
