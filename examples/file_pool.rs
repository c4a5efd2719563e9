//! A file of counters that is larger than the memory for it: a pool holds the pages that are in use, and the disk the others.
//!
//! ```sh
//! cargo run --release -p quire-pool --example file_pool -- /var/tmp/counters
//! ```
//! Adds one to counters all over the file, makes that durable, and reads everything back through another, smaller pool.

use std::error::Error;
use std::path::Path;

use quire_device::{Directory, DiskDirectory};
use quire_pool::{AccessAdvice, Map, MapOptions, PageNo, Pool, PoolConfig};

/// Memory for pages: an eighth of the file.
const BUDGET_BYTES: usize = 4 << 20;
const FILE_BYTES: u64 = 32 << 20;
const COUNTER_BYTES: usize = 8;

/// Maps the file `name` in a pool of `budget_bytes`.
fn open(folder: &Path, name: &str, budget_bytes: usize, advice: AccessAdvice) -> Result<Map, Box<dyn Error>> {
    let pool = Pool::new(PoolConfig { budget_bytes, ..PoolConfig::default() })?;
    let file = DiskDirectory::new(folder).open_to_write(name)?;
    // Addresses are kept free for so much; memory is taken as pages come. The map keeps the pool.
    Ok(pool.map(file, MapOptions { reserve_bytes: FILE_BYTES, advice, ..MapOptions::default() })?)
}

/// Adds one to the first counter of every page, in an order that suits no disk. Pages that need room are written by the pool.
fn count(map: &Map) -> Result<(), Box<dyn Error>> {
    let pages = map.pages();
    for step in 0..pages {
        let page = PageNo(step * 7919 % pages);
        let mut guard = map.write(page)?;
        let (counter, _) = guard.split_at_mut(COUNTER_BYTES);
        let value = u64::from_le_bytes((&*counter).try_into()?) + 1;
        counter.copy_from_slice(&value.to_le_bytes());
    }
    Ok(())
}

/// The sum over the first counters of all pages.
fn sum(map: &Map) -> Result<u64, Box<dyn Error>> {
    let mut sum = 0;
    for page in 0..map.pages() {
        // Without a guard: the pool reads again if the page was changed or evicted meanwhile.
        sum += map.optimistic_read(PageNo(page), |page| page.u64(0))?.ok_or("a page without a counter")?;
    }
    Ok(sum)
}

/// Counts `rounds` times in `folder`; the sum that a second pool finds in the file, and the pages that it has.
fn run(folder: &Path, name: &str, rounds: u64) -> Result<(u64, u64), Box<dyn Error>> {
    let map = open(folder, name, BUDGET_BYTES, AccessAdvice::Random)?;
    map.grow(FILE_BYTES)?;
    for _ in 0..rounds {
        count(&map)?;
        println!("{} of {} pages are in memory", map.resident_pages(), map.pages());
    }
    // As fsync: what was written before is on the disk when it returns.
    map.sync()?;
    drop(map);
    let map = open(folder, name, BUDGET_BYTES / 2, AccessAdvice::Sequential)?;
    Ok((sum(&map)?, map.pages()))
}

fn main() -> Result<(), Box<dyn Error>> {
    let path = std::env::args_os().nth(1).ok_or("usage: file_pool FILE (which is made, or counted on)")?;
    let path = std::path::absolute(path)?;
    let (Some(folder), Some(name)) = (path.parent(), path.file_name().and_then(|name| name.to_str())) else {
        return Err(format!("{} names no file", path.display()).into());
    };
    std::fs::OpenOptions::new().create(true).append(true).open(&path)?;
    let (sum, pages) = run(folder, name, 2)?;
    println!("the counters of {pages} pages add up to {sum}");
    Ok(())
}

#[cfg(test)]
mod tests {
    #[test]
    fn counters_are_in_the_file_though_memory_holds_an_eighth_of_it() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("counters"), b"").unwrap();
        let (sum, pages) = super::run(folder.path(), "counters", 2).unwrap();
        assert_eq!(sum, 2 * pages);
        let (sum, _) = super::run(folder.path(), "counters", 1).unwrap();
        assert_eq!(sum, 3 * pages);
    }
}
