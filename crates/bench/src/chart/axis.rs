//! An axis of a chart: how values lie on it, and what is marked on it.
//!
//! Relies on logarithms for scales by powers: such an axis is drawn linear and labelled by what its places stand for.

use std::fmt::Write as _;

/// A goal or a bound more than so many times as high as the highest point is told, and not drawn.
const FAR: f64 = 3.0;

/// How values lie on an axis.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AxisScale {
    /// In proportion, from zero.
    Linear,
    /// By powers of two, from the least value.
    PowersOfTwo,
    /// By powers of ten, from the one below the least value, or from a hundredth.
    PowersOfTen,
}

impl AxisScale {
    /// All, with the names that CSV files have for them.
    const NAMES: [(Self, &str); 3] =
        [(Self::Linear, "linear"), (Self::PowersOfTwo, "powers of two"), (Self::PowersOfTen, "powers of ten")];

    /// The one that a CSV file calls so.
    pub fn named(name: &str) -> Option<Self> {
        Self::NAMES.into_iter().find(|(_, own)| *own == name).map(|(scale, _)| scale)
    }

    fn name(self) -> &'static str {
        Self::NAMES.into_iter().find(|(scale, _)| *scale == self).map_or("", |(_, name)| name)
    }

    pub(super) fn position(self, value: f64) -> f64 {
        match self {
            Self::Linear => value,
            Self::PowersOfTwo => value.log2(),
            Self::PowersOfTen if value.is_nan() => value,
            Self::PowersOfTen => value.max(0.01).log10(),
        }
    }

    pub(super) fn label(self, position: f64) -> String {
        match self {
            Self::Linear => format!("{}", (position * 1e6).round() / 1e6),
            Self::PowersOfTwo => format!("{:.0}", position.exp2()),
            Self::PowersOfTen => format!("{}", (10_f64.powf(position) * 100.0).round() / 100.0),
        }
    }

    /// Ends of an axis that shows all of `positions`.
    pub(super) fn range(self, positions: impl Iterator<Item = f64> + Clone) -> (f64, f64) {
        let finite = positions.filter(|position| position.is_finite());
        let (least, most) = (finite.clone().fold(f64::INFINITY, f64::min), finite.fold(f64::NEG_INFINITY, f64::max));
        match self {
            Self::Linear => (0.0, most.max(1e-9) * 1.05),
            Self::PowersOfTwo if least.is_finite() => (least, most.max(least + 1.0)),
            Self::PowersOfTwo => (0.0, 1.0),
            // From a whole power, with a decade at least.
            Self::PowersOfTen if least.is_finite() => (least.floor(), most.max(least.floor() + 1.0)),
            Self::PowersOfTen => (-2.0, 0.0),
        }
    }

    /// Labels that fit on an axis from `least` to `most`.
    pub(super) fn labels(self, (least, most): (f64, f64)) -> usize {
        match self {
            Self::PowersOfTwo => (most - least) as usize + 1,
            Self::PowersOfTen => (most - least).ceil() as usize + 1,
            Self::Linear => 10,
        }
    }
}

/// An axis.
#[derive(Debug, Clone)]
pub struct Axis {
    /// What stands at it.
    pub label: String,
    /// The head of its column in the CSV.
    pub column: String,
    /// How values lie on it.
    pub scale: AxisScale,
    /// Values are drawn divided by this; the CSV has them as they are.
    pub unit: f64,
    /// A value that the axis reaches in any case, so that several charts can be compared.
    pub reach: f64,
    /// Values that a dashed line marks across the chart, with their names: a goal, a bound.
    pub levels: Vec<(String, f64)>,
    /// Values that a stroke marks at one place across: goals and bounds that hold there only.
    pub marks: Vec<Mark>,
}

/// A goal or a bound at one place across. Several may have one name.
#[derive(Debug, Clone)]
pub struct Mark {
    /// Its name.
    pub name: String,
    /// The place across; in columns the number of the column.
    pub x: f64,
    /// The value.
    pub y: f64,
}

impl Axis {
    /// An axis of undivided values.
    pub fn new(label: impl Into<String>, column: impl Into<String>, scale: AxisScale) -> Self {
        Self {
            label: label.into(),
            column: column.into(),
            scale,
            unit: 1.0,
            reach: f64::NAN,
            levels: Vec::new(),
            marks: Vec::new(),
        }
    }

    /// How it is drawn, for the CSV.
    pub(super) fn described(&self) -> String {
        let mut how = self.scale.name().to_owned();
        if self.unit != 1.0 {
            let _ = write!(how, ", unit {}", self.unit);
        }
        if self.reach.is_finite() {
            let _ = write!(how, ", reach {}", self.reach);
        }
        for (name, value) in &self.levels {
            let _ = write!(how, ", level {value} {name}");
        }
        for Mark { name, x, y } in &self.marks {
            let _ = write!(how, ", mark {x} {y} {name}");
        }
        format!("({how}): {}", self.label).trim_end().to_owned()
    }

    pub(super) fn position(&self, value: f64) -> f64 {
        self.scale.position(value / self.unit)
    }

    /// Whether a goal or a bound lies so far above the points, of which the highest is at `highest`, that an axis up to it would squeeze them.
    pub(super) fn is_far(&self, value: f64, highest: f64) -> bool {
        self.scale == AxisScale::Linear && highest > 0.0 && self.position(value) > FAR * highest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_axis_of_powers_of_ten_begins_at_the_power_below_its_values() {
        let range = |values: [f64; 2]| {
            AxisScale::PowersOfTen.range(values.map(|value| AxisScale::PowersOfTen.position(value)).into_iter())
        };
        assert_eq!((range([4.0, 100.0]), range([2.0, 3.0])), ((0.0, 2.0), (0.0, 1.0)));
        assert_eq!((range([0.0, 1.0]), range([f64::NAN; 2])), ((-2.0, 0.0), (-2.0, 0.0)));
    }

    #[test]
    fn an_axis_of_powers_shows_the_values_and_not_their_logarithms() {
        assert_eq!(AxisScale::PowersOfTwo.label(AxisScale::PowersOfTwo.position(512.0)), "512");
        assert_eq!(AxisScale::PowersOfTen.label(AxisScale::PowersOfTen.position(0.01)), "0.01");
        assert_eq!(AxisScale::PowersOfTwo.labels(AxisScale::PowersOfTwo.range([0.0, 5.0].into_iter())), 6);
    }
}
