//! A dependency graph over names, and the search for a cycle in it.
//!
//! Relies on nothing; crates and modules both use it.

use std::collections::{BTreeMap, BTreeSet};

/// Who depends on whom.
#[derive(Debug, Default)]
pub struct Graph(BTreeMap<String, BTreeSet<String>>);

impl Graph {
    /// Notes that `from` depends on `to`; a dependency on oneself is none.
    pub fn add(&mut self, from: &str, to: &str) {
        if from != to {
            self.0.entry(from.to_owned()).or_default().insert(to.to_owned());
        }
    }

    /// The names along one cycle, first and last the same; `None` when there is none.
    pub fn cycle(&self) -> Option<Vec<String>> {
        let mut done = BTreeSet::new();
        self.0.keys().find_map(|start| self.search(start, &mut Vec::new(), &mut done))
    }

    fn search(&self, at: &str, path: &mut Vec<String>, done: &mut BTreeSet<String>) -> Option<Vec<String>> {
        if let Some(first) = path.iter().position(|name| name == at) {
            let mut cycle = path[first..].to_vec();
            cycle.push(at.to_owned());
            return Some(cycle);
        }
        if done.contains(at) {
            return None;
        }
        path.push(at.to_owned());
        let targets = self.0.get(at).into_iter().flatten();
        let found = targets.into_iter().find_map(|to| self.search(to, path, done));
        path.pop();
        done.insert(at.to_owned());
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cycle_is_found_and_a_diamond_is_none() {
        let mut graph = Graph::default();
        for (from, to) in [("a", "b"), ("a", "c"), ("b", "d"), ("c", "d"), ("d", "d")] {
            graph.add(from, to);
        }
        assert_eq!(graph.cycle(), None);
        graph.add("d", "b");
        assert_eq!(graph.cycle().unwrap(), ["b", "d", "b"]);
    }
}
