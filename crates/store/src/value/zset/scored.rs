//! Members with their scores in ordinary memory, one after the other.

use std::cmp::Ordering;
use std::collections::HashMap;

use super::aggregate::Aggregate;

/// So many bytes of members are taken from sorted sets at a time.
const AT_ONCE_BYTES: usize = 16 << 10;

/// A member: its score, and where its bytes lie.
#[derive(Clone, Copy, Debug)]
struct Scored {
    score: f64,
    start: usize,
    end: usize,
}

/// Where each of some scored members is.
pub(super) type MemberIndex = HashMap<Box<[u8]>, usize>;

/// Members with their scores.
#[derive(Debug, Default)]
pub struct ScoredMembers {
    bytes: Vec<u8>,
    scored: Vec<Scored>,
}

impl ScoredMembers {
    /// Adds a member.
    pub fn push(&mut self, score: f64, member: &[u8]) {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(member);
        self.scored.push(Scored { score, start, end: self.bytes.len() });
    }

    /// Adds a member, or to the score of one that is there. The index is of all members.
    pub(super) fn unite(&mut self, index: &mut MemberIndex, aggregate: Aggregate, score: f64, member: &[u8]) {
        if let Some(scored) = index.get(member).and_then(|&at| self.scored.get_mut(at)) {
            scored.score = aggregate.of(scored.score, score);
            return;
        }
        index.insert(member.into(), self.scored.len());
        self.push(score, member);
    }

    /// Memory that they take.
    pub fn bytes(&self) -> usize {
        self.bytes.len() + size_of_val(self.scored.as_slice())
    }

    /// Members collected.
    pub fn len(&self) -> usize {
        self.scored.len()
    }

    /// Whether no member was collected.
    pub fn is_empty(&self) -> bool {
        self.scored.is_empty()
    }

    /// Puts the members in the order of a sorted set.
    pub fn sort(&mut self) {
        let bytes = &self.bytes;
        self.scored.sort_unstable_by(|one, other| {
            let by_score = one.score.partial_cmp(&other.score).unwrap_or(Ordering::Equal);
            by_score.then_with(|| bytes[one.start..one.end].cmp(&bytes[other.start..other.end]))
        });
    }

    /// The members, in the order in which they came or were put.
    pub fn iter(&self) -> impl Iterator<Item = (f64, &[u8])> {
        self.scored.iter().map(|scored| (scored.score, &self.bytes[scored.start..scored.end]))
    }

    pub(super) fn is_full(&self) -> bool {
        self.bytes() >= AT_ONCE_BYTES
    }

    pub(super) fn clear(&mut self) {
        self.bytes.clear();
        self.scored.clear();
    }
}
