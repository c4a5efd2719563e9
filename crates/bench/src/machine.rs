//! What machine the figures come from, for the report.
//!
//! Relies on `/proc` and `/sys`; what they don't tell is left out.

use std::path::Path;

use serde_json::{Map, Value, json};

/// Facts of this machine and of the file system that holds `data`.
pub fn facts(data: &Path) -> Map<String, Value> {
    let mut facts = Map::new();
    facts.insert("processor".into(), json!(quire_sys::proc::processor()));
    facts.insert("cores".into(), json!(std::thread::available_parallelism().map_or(1, usize::from)));
    facts.insert("kernel".into(), json!(quire_sys::proc::kernel_release()));
    if let Some(bytes) = quire_sys::proc::meminfo_bytes("MemTotal") {
        facts.insert("memory_mib".into(), json!(bytes >> 20));
    }
    if let Some((device, kind)) = file_system(data) {
        facts.insert("data_device".into(), json!(device));
        facts.insert("data_file_system".into(), json!(kind));
    }
    if let Ok(text) = std::fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled") {
        facts.insert("huge_pages".into(), json!(text.trim()));
    }
    facts.insert("unix_time_s".into(), json!(unix_seconds()));
    facts
}

/// Device and type of the file system that holds `path`: the mount with the longest matching prefix.
fn file_system(path: &Path) -> Option<(String, String)> {
    let path = path.canonicalize().ok()?;
    let mounts = std::fs::read_to_string("/proc/mounts").ok()?;
    mounts
        .lines()
        .filter_map(|line| {
            let mut words = line.split(' ');
            let (device, point, kind) = (words.next()?, words.next()?, words.next()?);
            path.starts_with(point).then(|| (point.len(), device.to_owned(), kind.to_owned()))
        })
        .max_by_key(|(length, ..)| *length)
        .map(|(_, device, kind)| (device, kind))
}

fn unix_seconds() -> u64 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_facts_name_cores_and_kernel() {
        let facts = facts(Path::new("/"));
        assert!(facts["cores"].as_u64().unwrap() >= 1);
        assert!(!facts["kernel"].as_str().unwrap().is_empty());
    }
}
