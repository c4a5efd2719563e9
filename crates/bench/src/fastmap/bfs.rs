//! Breadth-first search over a graph on a device, level by level, as Ligra's sparse mode does it.
//!
//! Relies on each vertex being claimed once, by an atomic exchange of its level. A level is worked through in the order in
//! which it was found, so pages come in random order. Threads take blocks of the level; within a block the search looks
//! two groups of vertices ahead (first their offsets, then their edges) and tells a candidate that prefetches. Levels and
//! frontiers are in memory, beside the budget.

use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};

use anyhow::{Context, ensure};
use serde::{Deserialize, Serialize};

use super::graph::Graph;
use super::pages::{Page, Pages};
use super::phase_stats::{PhaseStats, PhaseTimer, histogram};
use super::testbed::{PAGE_WORDS, Testbed};

/// Vertices that a thread takes at a time, and that it looks at together.
const BLOCK: usize = 512;
const GROUP: usize = 32;
/// Most pages of one vertex that are asked for ahead; a popular vertex has thousands, which read themselves in order.
const MOST_AHEAD: u64 = 16;
const UNSEEN: u32 = u32::MAX;

/// What is searched.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Bfs {
    /// The graph.
    pub graph: Graph,
    /// Threads.
    pub threads: usize,
}

impl Bfs {
    /// Bytes that a search keeps in memory beside pages: levels, and two frontiers of up to all vertices.
    pub fn memory_bytes(&self) -> u64 {
        self.graph.vertices * 12
    }
}

/// Vertices of a level, in the order in which they were found. All memory is touched from the start, so that no candidate's page
/// cache can use what the search will need.
struct Frontier {
    vertices: Vec<AtomicU32>,
    len: AtomicUsize,
}

impl Frontier {
    fn new(vertices: usize) -> Self {
        let vertices = (0..vertices).map(|_| AtomicU32::new(UNSEEN)).collect();
        Self { vertices, len: AtomicUsize::new(0) }
    }

    fn len(&self) -> usize {
        self.len.load(Ordering::Relaxed)
    }

    /// Takes `found` out of its vector. No vertex is found twice, so there is room.
    fn append(&self, found: &mut Vec<u32>) {
        let start = self.len.fetch_add(found.len(), Ordering::Relaxed);
        for (slot, vertex) in self.vertices[start..].iter().zip(found.drain(..)) {
            slot.store(vertex, Ordering::Relaxed);
        }
    }

    /// Vertices `start` and up of the level, as many as a block has.
    fn block(&self, start: usize) -> Vec<u32> {
        let end = self.len().min(start + BLOCK);
        self.vertices[start.min(end)..end].iter().map(|vertex| vertex.load(Ordering::Relaxed)).collect()
    }
}

struct Search<'a, P> {
    pages: &'a P,
    graph: &'a Graph,
    levels: Vec<AtomicU32>,
}

/// Edges of a vertex: numbers of the first target and of the one after the last.
#[derive(Clone, Copy, Default)]
struct Edges {
    first: u64,
    end: u64,
}

/// Searches the whole graph. The phase's operations are the edges looked at; its counters tell how many vertices were
/// reached and the sum of their levels, the same for every correct search.
///
/// # Errors
/// The device failed, or the graph is damaged.
pub fn run<P: Pages>(pages: &P, bfs: &Bfs, testbed: &Testbed) -> anyhow::Result<PhaseStats> {
    let vertices = bfs.graph.vertices as usize;
    let levels: Vec<AtomicU32> = (0..vertices).map(|_| AtomicU32::new(UNSEEN)).collect();
    let search = Search { pages, graph: &bfs.graph, levels };
    let timer = PhaseTimer::begin(testbed, pages.counters());
    let mut frontiers = [Frontier::new(vertices), Frontier::new(vertices)];
    frontiers[0].append(&mut vec![bfs.graph.source as u32]);
    search.levels[bfs.graph.source as usize].store(0, Ordering::Relaxed);
    let (mut edges, mut level) = (0, 0);
    while frontiers[0].len() > 0 {
        level += 1;
        edges += search.level(&frontiers[0], level, bfs.threads, &frontiers[1])?;
        frontiers.swap(0, 1);
        frontiers[1].len.store(0, Ordering::Relaxed);
    }
    let mut stats = timer.end("bfs", edges, &histogram(), pages.counters());
    let reached = search.levels.iter().map(|level| level.load(Ordering::Relaxed)).filter(|&level| level != UNSEEN);
    let (count, sum) = reached.fold((0_u64, 0_u64), |(count, sum), level| (count + 1, sum + u64::from(level)));
    stats.counters.extend([("reached".to_owned(), count as f64), ("level_sum".to_owned(), sum as f64)]);
    Ok(stats)
}

impl<P: Pages> Search<'_, P> {
    /// Works through `frontier`; adds the vertices of `level` to `found` and returns how many edges were looked at.
    fn level(&self, frontier: &Frontier, level: u32, threads: usize, found: &Frontier) -> anyhow::Result<u64> {
        let next_block = AtomicUsize::new(0);
        let edges = AtomicU64::new(0);
        // A thread costs more than a few vertices do.
        let threads = threads.min(frontier.len().div_ceil(GROUP));
        std::thread::scope(|scope| {
            let work = || -> anyhow::Result<()> {
                let mut own = Vec::new();
                loop {
                    let block = frontier.block(next_block.fetch_add(1, Ordering::Relaxed) * BLOCK);
                    if block.is_empty() {
                        return Ok(());
                    }
                    edges.fetch_add(self.block(&block, level, &mut own)?, Ordering::Relaxed);
                    found.append(&mut own);
                }
            };
            let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
            workers.into_iter().try_for_each(|worker| worker.join().expect("a searching thread does not panic"))
        })?;
        Ok(edges.into_inner())
    }

    fn block(&self, block: &[u32], level: u32, found: &mut Vec<u32>) -> anyhow::Result<u64> {
        let groups: Vec<&[u32]> = block.chunks(GROUP).collect();
        let mut edges = [[Edges::default(); GROUP]; 2];
        let mut ahead = Vec::new();
        let mut count = 0;
        self.expect_offsets(groups.first().copied().unwrap_or_default(), &mut ahead)?;
        self.expect_offsets(groups.get(1).copied().unwrap_or_default(), &mut ahead)?;
        self.look_up(groups.first().copied().unwrap_or_default(), &mut edges[0], &mut ahead)?;
        for (index, group) in groups.iter().enumerate() {
            self.expect_offsets(groups.get(index + 2).copied().unwrap_or_default(), &mut ahead)?;
            let next = groups.get(index + 1).copied().unwrap_or_default();
            self.look_up(next, &mut edges[(index + 1) % 2], &mut ahead)?;
            for &edges in &edges[index % 2][..group.len()] {
                count += edges.end - edges.first;
                self.follow(edges, level, found)?;
            }
        }
        Ok(count)
    }

    /// Asks for the pages with the offsets of `group`.
    fn expect_offsets(&self, group: &[u32], ahead: &mut Vec<u64>) -> anyhow::Result<()> {
        if !P::AHEAD || group.is_empty() {
            return Ok(());
        }
        ahead.clear();
        ahead.extend(group.iter().map(|&vertex| self.graph.offset_place(u64::from(vertex)).0));
        ahead.sort_unstable();
        ahead.dedup();
        self.pages.prefetch(ahead)
    }

    /// Reads the offsets of `group`, and asks for the pages with its edges.
    fn look_up(&self, group: &[u32], edges: &mut [Edges; GROUP], ahead: &mut Vec<u64>) -> anyhow::Result<()> {
        ahead.clear();
        for (&vertex, edges) in group.iter().zip(edges) {
            *edges = self.edges_of(u64::from(vertex))?;
            if P::AHEAD && edges.first < edges.end {
                let first = self.graph.target_place(edges.first).0;
                let last = self.graph.target_place(edges.end - 1).0;
                ahead.extend((first..=last).take(MOST_AHEAD as usize));
            }
        }
        if ahead.is_empty() {
            return Ok(());
        }
        ahead.sort_unstable();
        ahead.dedup();
        self.pages.prefetch(ahead)
    }

    fn edges_of(&self, vertex: u64) -> anyhow::Result<Edges> {
        let (page, word) = self.graph.offset_place(vertex);
        let offsets = self.pages.read(page)?;
        let first = offsets.word(word);
        let end = if word + 1 < PAGE_WORDS {
            offsets.word(word + 1)
        } else {
            drop(offsets);
            self.pages.read(page + 1)?.word(0)
        };
        ensure!(first <= end && end <= self.graph.edges, "the offsets of vertex {vertex} are damaged");
        Ok(Edges { first, end })
    }

    /// Claims the targets of `edges` that the search has not reached yet.
    fn follow(&self, edges: Edges, level: u32, found: &mut Vec<u32>) -> anyhow::Result<()> {
        let mut at = edges.first;
        while at < edges.end {
            let (page, slot) = self.graph.target_place(at);
            let targets = self.pages.read(page)?;
            let count = (2 * PAGE_WORDS - slot).min((edges.end - at) as usize);
            for slot in slot..slot + count {
                let word = targets.word(slot / 2);
                let target = if slot.is_multiple_of(2) { word as u32 } else { (word >> 32) as u32 };
                let seen = self.levels.get(target as usize).context("an edge leads out of the graph")?;
                // Most targets are known already; a load is cheaper than an exchange that fails.
                if seen.load(Ordering::Relaxed) == UNSEEN
                    && seen.compare_exchange(UNSEEN, level, Ordering::Relaxed, Ordering::Relaxed).is_ok()
                {
                    found.push(target);
                }
            }
            at += count as u64;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fastmap::candidate::{Candidate, PagesWorkload, with_pages};
    use std::collections::VecDeque;

    struct Run<'a>(&'a Bfs, &'a Testbed);

    impl PagesWorkload for Run<'_> {
        type Out = PhaseStats;

        fn run_on<P: Pages>(self, pages: &P) -> anyhow::Result<PhaseStats> {
            run(pages, self.0, self.1)
        }
    }

    /// Vertices reached and the sum of their levels, by the plainest of searches.
    fn plain(testbed: &Testbed, graph: &Graph) -> (f64, f64) {
        let bytes = std::fs::read(&testbed.path).unwrap();
        let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
        let targets = graph.first_target_page as usize * 4096;
        let mut levels = vec![u32::MAX; graph.vertices as usize];
        let mut queue = VecDeque::from([graph.source as usize]);
        levels[graph.source as usize] = 0;
        while let Some(vertex) = queue.pop_front() {
            for index in word(vertex * 8)..word(vertex * 8 + 8) {
                let at = targets + index as usize * 4;
                let target = u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap()) as usize;
                if levels[target] == u32::MAX {
                    levels[target] = levels[vertex] + 1;
                    queue.push_back(target);
                }
            }
        }
        let reached = levels.iter().filter(|&&level| level != u32::MAX);
        (reached.clone().count() as f64, reached.map(|&level| f64::from(level)).sum())
    }

    #[test]
    fn every_candidate_reaches_the_same_vertices_at_the_same_levels() {
        let dir = tempfile::tempdir_in(".").unwrap();
        let (graph, testbed) = Graph::write(&dir.path().join("graph"), 12, 7).unwrap();
        let expected = plain(&testbed, &graph);
        assert!(expected.0 > 1000.0);
        for &candidate in Candidate::PAGED {
            let bfs = Bfs { graph: graph.clone(), threads: 3 };
            let stats = with_pages(candidate, &testbed, 32 * 4096, Run(&bfs, &testbed)).unwrap();
            assert_eq!((stats.counters["reached"], stats.counters["level_sum"]), expected, "{candidate:?}");
        }
    }
}
