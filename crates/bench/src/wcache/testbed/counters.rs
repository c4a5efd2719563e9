//! What the write cache counts, as names and numbers, and what it counted between two looks.
//!
//! Relies on the attribute `user.quire.stats` of the mount's root being JSON with the cache's numbers in `cache`.
//! Nothing else is presumed of its shape: an inner field is called `outer.inner`, an element of a list by its own
//! `name`, or else by its index.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::Context;
use serde_json::Value;

/// The attribute.
const ATTRIBUTE: &str = "user.quire.stats";
/// How fields end that tell a state, not a sum.
const STATES: [&str; 8] = [
    "longest_ns",
    "cached_blocks",
    "used_bytes",
    "log_bytes",
    "pending_bytes",
    "open_truncations",
    "cached_share",
    "capacity_bytes",
];
/// Which field of a list's element says what it is about.
const LABELS: [&str; 4] = ["name", "cause", "reason", "content"];

/// Names and numbers.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CacheCounters(BTreeMap<String, f64>);

impl CacheCounters {
    /// Asks the mount at `point`.
    ///
    /// # Errors
    /// When it doesn't tell.
    pub fn ask(point: &Path) -> anyhow::Result<Self> {
        let bytes = quire_sys::xattr::get_at(point, ATTRIBUTE)
            .with_context(|| format!("asking {} for {ATTRIBUTE}", point.display()))?;
        let value: Value = serde_json::from_slice(&bytes).with_context(|| format!("{ATTRIBUTE} is not JSON"))?;
        let mut counters = Self::of(value.get("cache").unwrap_or(&value));
        counters.gather("requests", &value["requests"]);
        Ok(counters)
    }

    /// The numbers in `value`.
    pub fn of(value: &Value) -> Self {
        let mut counters = Self::default();
        counters.gather("", value);
        counters
    }

    fn gather(&mut self, name: &str, value: &Value) {
        let inner = |part: &str| if name.is_empty() { part.to_owned() } else { format!("{name}.{part}") };
        match value {
            Value::Number(number) => {
                self.0.insert(name.to_owned(), number.as_f64().unwrap_or(f64::NAN));
            }
            Value::Object(fields) => fields.iter().for_each(|(part, value)| self.gather(&inner(part), value)),
            Value::Array(elements) => {
                for (index, element) in elements.iter().enumerate() {
                    let label = LABELS.iter().find_map(|label| element.get(label)?.as_str());
                    let part = label.map_or_else(|| index.to_string(), str::to_owned);
                    self.gather(&inner(&part), element);
                }
            }
            Value::Null | Value::Bool(_) | Value::String(_) => {}
        }
    }

    /// What was counted since `earlier`.
    pub fn since(&self, earlier: &Self) -> Self {
        let difference = |(name, value): (&String, &f64)| {
            let is_state = STATES.iter().any(|end| name.ends_with(end));
            let before = if is_state { 0.0 } else { earlier.0.get(name).copied().unwrap_or(0.0) };
            (name.clone(), value - before)
        };
        Self(self.0.iter().map(difference).collect())
    }

    /// The number called `name`.
    pub fn get(&self, name: &str) -> Option<f64> {
        self.0.get(name).copied()
    }

    /// Notes one more number.
    pub fn set(&mut self, name: &str, value: f64) {
        self.0.insert(name.to_owned(), value);
    }

    /// Everything below `outer`: inner names and numbers.
    pub fn below<'a>(&'a self, outer: &'a str) -> impl Iterator<Item = (&'a str, f64)> {
        self.0.iter().filter_map(move |(name, value)| Some((name.strip_prefix(outer)?.strip_prefix('.')?, *value)))
    }

    /// Bytes of blocks that entered the cache.
    pub fn cached_bytes(&self) -> Option<f64> {
        self.get("logged_bytes")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn inner_fields_and_lists_get_names() {
        let counters = CacheCounters::of(&json!({
            "policy": "ALL", "logged_bytes": 10, "critical_waits": [{"cause": "lock", "count": 2, "longest_ns": 7}],
            "reasons": {"log": {"blocks": 3}}, "plain": [4, 5],
        }));
        assert_eq!(counters.get("critical_waits.lock.count"), Some(2.0));
        assert_eq!(counters.get("reasons.log.blocks"), Some(3.0));
        assert_eq!(counters.get("plain.1"), Some(5.0));
        assert_eq!(counters.cached_bytes(), Some(10.0));
        assert_eq!(counters.below("plain").count(), 2);
        assert_eq!(counters.get("policy"), None);
    }

    #[test]
    fn sums_are_subtracted_and_states_stay() {
        let earlier = CacheCounters::of(&json!({"logged_bytes": 10, "cached_blocks": 5}));
        let later = CacheCounters::of(&json!({"logged_bytes": 30, "cached_blocks": 4, "new": 1}));
        let between = later.since(&earlier);
        assert_eq!(between.get("logged_bytes"), Some(20.0));
        assert_eq!(between.get("cached_blocks"), Some(4.0));
        assert_eq!(between.get("new"), Some(1.0));
    }
}
