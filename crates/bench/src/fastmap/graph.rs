//! An R-MAT graph (Chakrabarti, Zhan, Faloutsos, SDM 2004) in compressed sparse rows, written to a file of pages.
//!
//! Relies on two passes with the same seed, so that the list of edges is never held: one counts, one fills. Offsets come
//! first, a word for each vertex and one more; targets follow on a page of their own, two to a word. Vertices are numbered
//! by a permutation, or the popular ones would all be neighbours.

use std::path::Path;

use anyhow::Context;
use serde::{Deserialize, Serialize};

use super::testbed::{DeviceKind, PAGE_BYTES, PAGE_WORDS, Testbed};
use quire_rng::SplitMix64;
use quire_rng::zipf::RankPermutation;

/// Edges for each vertex, on average: as Graph500; the paper has 10.
pub const EDGE_FACTOR: u64 = 16;
/// Chances of the four quarters of the matrix, of 256: 0.57, 0.19, 0.19, 0.05.
const QUARTERS: [u64; 3] = [146, 195, 244];

/// Where a graph's parts lie.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Graph {
    /// Vertices.
    pub vertices: u64,
    /// Edges, each in one direction.
    pub edges: u64,
    /// The page on which targets begin.
    pub first_target_page: u64,
    /// The vertex with the most edges, to begin from.
    pub source: u64,
}

impl Graph {
    /// Writes the graph of `1 << scale` vertices that belongs to `seed` to a new file.
    ///
    /// # Errors
    /// When the file can't be written.
    pub fn write(path: &Path, scale: u32, seed: u64) -> anyhow::Result<(Self, Testbed)> {
        let (vertices, edges) = (1_u64 << scale, EDGE_FACTOR << scale);
        let mut offsets = vec![0_u64; vertices as usize + 1];
        each_edge(scale, edges, seed, |from, _| offsets[from as usize + 1] += 1);
        let degrees = offsets[1..].iter().zip(0..);
        let source = degrees.max_by_key(|(degree, _)| **degree).map_or(0, |(_, vertex)| vertex);
        for vertex in 0..vertices as usize {
            offsets[vertex + 1] += offsets[vertex];
        }
        let mut targets = vec![0_u32; edges as usize];
        let mut next = offsets.clone();
        each_edge(scale, edges, seed, |from, to| {
            let slot = &mut next[from as usize];
            targets[*slot as usize] = to as u32;
            *slot += 1;
        });
        drop(next);
        let words = offsets.len().next_multiple_of(PAGE_WORDS);
        let graph = Self { vertices, edges, first_target_page: (words / PAGE_WORDS) as u64, source };
        let testbed = write_parts(path, &offsets, &targets)?;
        Ok((graph, testbed))
    }

    /// Page and word of the offset of `vertex`.
    pub fn offset_place(&self, vertex: u64) -> (u64, usize) {
        (vertex / PAGE_WORDS as u64, vertex as usize % PAGE_WORDS)
    }

    /// Page of target number `index`, and its place there.
    pub fn target_place(&self, index: u64) -> (u64, usize) {
        let per_page = 2 * PAGE_WORDS as u64;
        (self.first_target_page + index / per_page, (index % per_page) as usize)
    }
}

/// Draws all edges, always the same ones.
fn each_edge(scale: u32, edges: u64, seed: u64, mut each: impl FnMut(u64, u64)) {
    let mut rng = SplitMix64::new(seed);
    let scatter = RankPermutation::new(1 << scale, seed);
    for _ in 0..edges {
        let (mut from, mut to) = (0, 0);
        let mut bits = 0;
        for level in 0..scale {
            if level.is_multiple_of(8) {
                bits = rng.next_u64();
            }
            let quarter = QUARTERS.iter().filter(|&&end| bits & 0xff >= end).count() as u64;
            bits >>= 8;
            from = from << 1 | quarter >> 1;
            to = to << 1 | quarter & 1;
        }
        each(scatter.key(from), scatter.key(to));
    }
}

fn write_parts(path: &Path, offsets: &[u64], targets: &[u32]) -> anyhow::Result<Testbed> {
    use std::io::Write;
    let mut bytes = 0_u64;
    let file = quire_sys::file::create_new(path).with_context(|| format!("creating {}", path.display()))?;
    let mut out = std::io::BufWriter::with_capacity(1 << 20, file);
    let failed = || format!("writing {}", path.display());
    for offset in offsets {
        out.write_all(&offset.to_le_bytes()).with_context(failed)?;
        bytes += 8;
    }
    bytes = pad(&mut out, bytes).with_context(failed)?;
    for target in targets {
        out.write_all(&target.to_le_bytes()).with_context(failed)?;
        bytes += 4;
    }
    bytes = pad(&mut out, bytes).with_context(failed)?;
    let file = out.into_inner().map_err(std::io::IntoInnerError::into_error).with_context(failed)?;
    file.sync_all().with_context(failed)?;
    Ok(Testbed { kind: DeviceKind::Disk, path: path.to_owned(), pages: bytes / PAGE_BYTES as u64 })
}

fn pad(out: &mut impl std::io::Write, bytes: u64) -> std::io::Result<u64> {
    let padded = bytes.next_multiple_of(PAGE_BYTES as u64);
    out.write_all(&vec![0; (padded - bytes) as usize])?;
    Ok(padded)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_holds_every_edge_where_it_belongs() {
        let dir = tempfile::tempdir_in(".").unwrap();
        let (graph, testbed) = Graph::write(&dir.path().join("graph"), 10, 7).unwrap();
        assert_eq!((graph.vertices, graph.edges, graph.first_target_page), (1024, 16 << 10, 3));
        let bytes = std::fs::read(&testbed.path).unwrap();
        assert_eq!(bytes.len() as u64, testbed.pages * PAGE_BYTES as u64);
        let word = |(page, word): (u64, usize)| {
            let at = page as usize * PAGE_BYTES + word * 8;
            u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap())
        };
        let target = |index| {
            let (page, slot) = graph.target_place(index);
            let at = page as usize * PAGE_BYTES + slot * 4;
            u64::from(u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap()))
        };
        let mut results: Vec<(u64, u64)> = (0..graph.vertices)
            .flat_map(|vertex| {
                let ends = [vertex, vertex + 1].map(|vertex| word(graph.offset_place(vertex)));
                (ends[0]..ends[1]).map(move |index| (vertex, target(index))).collect::<Vec<_>>()
            })
            .collect();
        let mut drawn = Vec::new();
        each_edge(10, graph.edges, 7, |from, to| drawn.push((from, to)));
        results.sort_unstable();
        drawn.sort_unstable();
        assert!(results == drawn);
        let of_source = drawn.iter().filter(|(from, _)| *from == graph.source).count();
        assert!(of_source > 200, "an R-MAT graph has popular vertices: {of_source}");
    }
}
