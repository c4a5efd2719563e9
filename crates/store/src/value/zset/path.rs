//! A way down the tree of a large sorted set, from the root to a place in a leaf, and from leaf to leaf.
//!
//! Relies on `nodes` for the nodes: the ways are bounded, since each level is one below the last.

use quire_arena::Arena;

use crate::error::{Result, StoreError};

use super::nodes::{LEVELS, Node};
use super::order::Direction;

fn damaged() -> StoreError {
    StoreError::damaged("a way down a sorted set's tree that has no end")
}

/// A node on the way down, and the slot where the way goes on.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Step {
    pub(super) node: Node,
    pub(super) at: usize,
}

/// A way from the root to a place in a leaf.
#[derive(Clone, Copy, Debug)]
pub(super) struct Path {
    pub(super) steps: [Step; LEVELS],
    pub(super) len: usize,
}

impl Path {
    pub(super) fn new() -> Path {
        Path { steps: [Step::default(); LEVELS], len: 0 }
    }

    pub(super) fn push(&mut self, node: Node, at: usize) -> Result<()> {
        *self.steps.get_mut(self.len).ok_or_else(damaged)? = Step { node, at };
        self.len += 1;
        Ok(())
    }

    pub(super) fn leaf(&self) -> &Step {
        &self.steps[self.len.saturating_sub(1)]
    }

    /// Whether it goes by the first slot of every node.
    pub(super) fn is_first(&self) -> bool {
        self.steps[..self.len].iter().all(|step| step.at == 0)
    }

    /// Whether it goes by the last slot of every node above the leaf, and behind the last member.
    pub(super) fn is_last(&self) -> bool {
        let inner = &self.steps[..self.len.saturating_sub(1)];
        inner.iter().all(|step| step.at + 1 == step.node.used) && self.leaf().at == self.leaf().node.used
    }

    /// Goes to the neighbour of the leaf; false if there is none.
    pub(super) fn go_on(&mut self, arena: &Arena, direction: Direction) -> Result<bool> {
        let mut top = self.len.saturating_sub(1);
        loop {
            let Some(above) = top.checked_sub(1) else { return Ok(false) };
            top = above;
            let step = &mut self.steps[top];
            match direction {
                Direction::Up if step.at + 1 < step.node.used => step.at += 1,
                Direction::Down if step.at > 0 => step.at -= 1,
                Direction::Up | Direction::Down => continue,
            }
            break;
        }
        let end = |node: &Node| if direction == Direction::Up { 0 } else { node.used - 1 };
        self.len = top + 1;
        while self.leaf().node.level > 0 {
            let child = self.leaf().node.child(arena, self.leaf().at)?;
            self.push(child, end(&child))?;
        }
        Ok(true)
    }
}
