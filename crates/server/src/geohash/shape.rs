//! The areas that are searched: circles, and rectangles whose sides lie along the parallels and the meridians.

use super::{EARTH_RADIUS_M, Place, degrees, latitude_distance_m, radians};

/// An area around a place.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// Its middle.
    pub middle: Place,
    /// Its form and size, in units.
    pub kind: ShapeKind,
    /// Meters of a unit.
    pub unit_m: f64,
}

/// What kind of an area it is.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum ShapeKind {
    /// All places not farther away than this.
    Circle {
        /// Its radius.
        radius: f64,
    },
    /// All places between two parallels and two meridians, measured at the place's latitude.
    Box {
        /// From west to east.
        width: f64,
        /// From south to north.
        height: f64,
    },
}

/// Degrees between which an area lies.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    pub(super) west: f64,
    pub(super) south: f64,
    pub(super) east: f64,
    pub(super) north: f64,
}

impl Shape {
    /// Meters to a place, if it lies in the area.
    pub fn distance_within(&self, place: &Place) -> Option<f64> {
        match self.kind {
            ShapeKind::Circle { radius } => {
                let distance_m = self.middle.distance_m(place);
                (distance_m <= radius * self.unit_m).then_some(distance_m)
            }
            ShapeKind::Box { width, height } => {
                if latitude_distance_m(place.latitude, self.middle.latitude) > height * self.unit_m / 2.0 {
                    return None;
                }
                let beside = Place { longitude: self.middle.longitude, latitude: place.latitude };
                (place.distance_m(&beside) <= width * self.unit_m / 2.0).then(|| self.middle.distance_m(place))
            }
        }
    }

    /// Meters from the middle to the farthest point.
    pub(super) fn radius_m(&self) -> f64 {
        match self.kind {
            ShapeKind::Circle { radius } => radius * self.unit_m,
            ShapeKind::Box { width, height } => {
                ((width / 2.0) * (width / 2.0) + (height / 2.0) * (height / 2.0)).sqrt() * self.unit_m
            }
        }
    }

    /// Degrees between which it lies. The longitudes are those of the edge that is nearer to a pole.
    pub(super) fn bounds(&self) -> Bounds {
        let (half_width, half_height) = match self.kind {
            ShapeKind::Circle { radius } => (radius, radius),
            ShapeKind::Box { width, height } => (width / 2.0, height / 2.0),
        };
        let (width_m, height_m) = (self.unit_m * half_width, self.unit_m * half_height);
        let Place { longitude, latitude } = self.middle;
        let high = degrees(height_m / EARTH_RADIUS_M);
        let edge = if latitude < 0.0 { latitude - high } else { latitude + high };
        let wide = degrees(width_m / EARTH_RADIUS_M / radians(edge).cos());
        Bounds { west: longitude - wide, south: latitude - high, east: longitude + wide, north: latitude + high }
    }
}
