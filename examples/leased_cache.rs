//! A cache of values in a file whose readers get the bytes where they lie: no value is copied, and none changes under its reader.
//!
//! Values are appended to a file behind a pool, an index in memory says where. A lease keeps the bytes of one value in place for as long as it
//! lives, also while the value is replaced or the pool needs room: the pool moves the page's writer, not the reader's bytes.
//!
//! ```sh
//! cargo run --release -p quire-pool --example leased_cache -- /var/tmp/values
//! ```

use std::collections::HashMap;
use std::error::Error;
use std::path::Path;

use quire_device::{Directory, DiskDirectory};
use quire_pool::{Lease, Map, MapOptions, PageNo, Pool, PoolConfig};

/// Addresses for the file to grow into.
const MOST_BYTES: u64 = 1 << 30;

/// Where a value lies.
#[derive(Clone, Copy)]
struct Place {
    offset: u64,
    len: usize,
}

/// Values by their names.
struct Cache {
    map: Map,
    index: HashMap<String, Place>,
    end: u64,
}

impl Cache {
    /// An empty cache in `folder`, with so much memory for pages. Of that leases may pin a half.
    fn new(folder: &Path, name: &str, budget_bytes: usize) -> Result<Self, Box<dyn Error>> {
        let pool = Pool::new(PoolConfig { budget_bytes, lease_percent: 50, ..PoolConfig::default() })?;
        let file = DiskDirectory::new(folder).create(name)?;
        let map = pool.map(file, MapOptions { reserve_bytes: MOST_BYTES, ..MapOptions::default() })?;
        Ok(Self { map, index: HashMap::new(), end: 0 })
    }

    /// Keeps a value; a former one of that name is forgotten, but its readers keep their bytes.
    fn put(&mut self, name: &str, value: &[u8]) -> Result<(), Box<dyn Error>> {
        let place = Place { offset: self.end, len: value.len() };
        self.map.grow(self.end + value.len() as u64)?;
        self.write(place.offset, value)?;
        self.end += value.len() as u64;
        self.index.insert(name.to_owned(), place);
        Ok(())
    }

    /// Changes a value where it lies. A reader that has a lease of it keeps the bytes that it has.
    fn replace(&self, name: &str, value: &[u8]) -> Result<(), Box<dyn Error>> {
        let place = self.index.get(name).filter(|place| place.len == value.len());
        self.write(place.ok_or("no value of that name and length")?.offset, value)
    }

    fn write(&self, mut offset: u64, mut bytes: &[u8]) -> Result<(), Box<dyn Error>> {
        let page_bytes = self.map.page_bytes();
        while !bytes.is_empty() {
            let (page, at) = (offset / page_bytes as u64, (offset % page_bytes as u64) as usize);
            let (now, later) = bytes.split_at(bytes.len().min(page_bytes - at));
            self.map.write(PageNo(page))?[at..at + now.len()].copy_from_slice(now);
            offset += now.len() as u64;
            bytes = later;
        }
        Ok(())
    }

    /// The value's bytes in place; `None` if there is no such value.
    fn get(&self, name: &str) -> Result<Option<Lease<'_>>, Box<dyn Error>> {
        let Some(place) = self.index.get(name) else { return Ok(None) };
        Ok(Some(self.map.lease(place.offset, place.len)?))
    }
}

/// Fills a cache, reads a value while it is replaced; what the reader had, and what is there after.
fn run(folder: &Path, name: &str, values: usize) -> Result<(Vec<u8>, Vec<u8>), Box<dyn Error>> {
    let mut cache = Cache::new(folder, name, 4 << 20)?;
    for number in 0..values {
        cache.put(&format!("value {number}"), &[number as u8; 5000])?;
    }
    let reading = cache.get("value 7")?.ok_or("value 7 is gone")?;
    cache.replace("value 7", &[255; 5000])?;
    // Others go through the pool meanwhile, so that it needs room.
    for number in (0..values).filter(|number| *number != 7) {
        let value = cache.get(&format!("value {number}"))?.ok_or("a value is gone")?;
        if value.iter().any(|byte| *byte != number as u8) {
            return Err(format!("value {number} is not what was put").into());
        }
    }
    let kept = reading.to_vec();
    drop(reading);
    let now = cache.get("value 7")?.ok_or("value 7 is gone")?.to_vec();
    Ok((kept, now))
}

fn main() -> Result<(), Box<dyn Error>> {
    let path = std::env::args_os().nth(1).ok_or("usage: leased_cache FILE (which must not exist)")?;
    let path = std::path::absolute(path)?;
    let (Some(folder), Some(name)) = (path.parent(), path.file_name().and_then(|name| name.to_str())) else {
        return Err(format!("{} names no file", path.display()).into());
    };
    if path.exists() {
        return Err(format!("{} is there already", path.display()).into());
    }
    let (kept, now) = run(folder, name, 5000)?;
    println!("the reader kept {} bytes of {}, while the value became {}", kept.len(), kept[0], now[0]);
    Ok(())
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_reader_keeps_its_bytes_while_the_value_is_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let (kept, now) = super::run(folder.path(), "values", 2000).unwrap();
        assert_eq!((kept, now), (vec![7; 5000], vec![255; 5000]));
    }
}
