//! Goals and bounds of a chart: where they are drawn, and what stands beside the drawing for them.
//!
//! Relies on [`Axis`] for where a value lies. What is too far above the points is named with its value and not drawn.

use super::axis::{Axis, Mark};

/// Goals and bounds in places of a drawing.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Guides {
    /// Heights of lines across.
    pub levels: Vec<f64>,
    /// Places of strokes.
    pub marks: Vec<(f64, f64)>,
    /// What stands beside the drawing.
    pub names: Vec<GuideName>,
}

/// A name beside the drawing.
#[derive(Debug, PartialEq)]
pub(super) struct GuideName {
    /// The goal or the bound.
    pub text: String,
    /// Its height; infinite for what lies above.
    pub height: f64,
    /// Of a dashed line across, and not of strokes.
    pub is_level: bool,
}

impl Guides {
    /// Those that stand on the axis upwards of a chart whose highest point is at `highest`.
    pub(super) fn of(x: &Axis, y: &Axis, highest: f64) -> Self {
        let mut guides = Self::default();
        for (name, value) in y.levels.iter().filter(|(_, value)| value.is_finite()) {
            if y.is_far(*value, highest) {
                guides.name_far(y, name, *value, true);
            } else {
                let height = y.position(*value);
                guides.levels.push(height);
                guides.names.push(GuideName { text: name.clone(), height, is_level: true });
            }
        }
        for Mark { name, x: place, y: value } in y.marks.iter().filter(|mark| mark.y.is_finite()) {
            if y.is_far(*value, highest) {
                guides.name_far(y, name, *value, false);
                continue;
            }
            let height = y.position(*value);
            guides.marks.push((x.position(*place), height));
            // One name for all strokes that share it, at the height of the last.
            match guides.names.iter_mut().find(|own| own.text == *name && !own.is_level) {
                Some(own) => own.height = height,
                None => guides.names.push(GuideName { text: name.clone(), height, is_level: false }),
            }
        }
        guides
    }

    fn name_far(&mut self, y: &Axis, name: &str, value: f64, is_level: bool) {
        let shown = y.position(value);
        let shown = if shown < 100.0 { (shown * 10.0).round() / 10.0 } else { shown.round() };
        self.names.push(GuideName { text: format!("↑ {name}: {shown}"), height: f64::INFINITY, is_level });
    }

    /// The heights that the axis has to reach.
    pub(super) fn heights(&self) -> impl Iterator<Item = f64> + Clone {
        self.levels.iter().copied().chain(self.marks.iter().map(|mark| mark.1))
    }
}

#[cfg(test)]
mod tests {
    use super::super::axis::AxisScale;
    use super::*;

    #[test]
    fn what_is_far_above_the_points_is_named_with_its_value_and_not_drawn() {
        let x = Axis::new("", "x", AxisScale::PowersOfTwo);
        let mark = |name: &str, x, y| Mark { name: name.into(), x, y };
        let y = Axis {
            unit: 1e3,
            levels: vec![("goal".into(), 15e3), ("bound".into(), 66_664.0), ("unknown".into(), f64::NAN)],
            marks: vec![mark("goal here", 4.0, 12e3), mark("goal here", 16.0, 8e3), mark("goal there", 4.0, 5e6)],
            ..Axis::new("", "y", AxisScale::Linear)
        };
        let guides = Guides::of(&x, &y, 10.0);
        assert_eq!(guides.levels, [15.0]);
        assert_eq!(guides.marks, [(2.0, 12.0), (4.0, 8.0)]);
        let names: Vec<(&str, f64)> = guides.names.iter().map(|name| (name.text.as_str(), name.height)).collect();
        assert_eq!(guides.names.iter().map(|name| name.is_level).collect::<Vec<_>>(), [true, true, false, false]);
        let above = f64::INFINITY;
        assert_eq!(
            names,
            [("goal", 15.0), ("↑ bound: 66.7", above), ("goal here", 8.0), ("↑ goal there: 5000", above)]
        );
        assert_eq!(guides.heights().fold(0.0, f64::max), 15.0);
    }
}
