//! Programs that wait for memory, beside which another one reads files: a chase of pointers and a stream.
//!
//! Relies on working sets that no processor's cache holds.

use std::hint::black_box;

use quire_rng::SplitMix64;

use super::spec::{Counters, TrialSpec};

/// Words that the chase goes through: 32 MiB.
const CHASE_WORDS: usize = 4 << 20;
/// Words of each of the stream's three arrays: 32 MiB.
const STREAM_WORDS: usize = 4 << 20;
/// Steps after which it is looked whether the trial is over.
const STEPS: usize = 4096;

/// One cycle through all words, in random order.
fn cycle(words: usize, seed: u64) -> Vec<u64> {
    let mut next: Vec<u64> = (0..words as u64).collect();
    let mut rng = SplitMix64::new(seed);
    // Sattolo's shuffle leaves a single cycle.
    for at in (1..words).rev() {
        next.swap(at, rng.below(at as u64) as usize);
    }
    next
}

/// A thread that goes from word to word.
pub fn chase(spec: &TrialSpec, counters: &Counters) -> anyhow::Result<()> {
    let next = cycle(CHASE_WORDS, spec.seed);
    let mut at = 0;
    counters.begin();
    while !counters.is_done() {
        for _ in 0..STEPS {
            at = next[at as usize];
        }
        black_box(at);
        counters.add(STEPS as u64, 0);
    }
    Ok(())
}

/// A thread that goes through three arrays.
pub fn stream(_: &TrialSpec, counters: &Counters) -> anyhow::Result<()> {
    let (mut to, from, other) = (vec![0.0; STREAM_WORDS], vec![1.0; STREAM_WORDS], vec![2.0; STREAM_WORDS]);
    let mut at = 0;
    counters.begin();
    while !counters.is_done() {
        let range = at..at + STEPS;
        let sources = from[range.clone()].iter().zip(&other[range.clone()]);
        for (to, (from, other)) in to[range].iter_mut().zip(sources) {
            *to = from + 3.0 * other;
        }
        black_box(&mut to);
        at = (at + STEPS) % STREAM_WORDS;
        counters.add(STEPS as u64, 0);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_chase_comes_by_every_word_before_it_is_back() {
        let next = cycle(1000, 3);
        let (mut at, mut steps) = (0, 0);
        loop {
            (at, steps) = (next[at as usize], steps + 1);
            if at == 0 {
                break;
            }
        }
        assert_eq!(steps, 1000);
        assert!(STREAM_WORDS.is_multiple_of(STEPS));
    }
}
