//! What the kernel knows by number: inodes that it has looked up and not forgotten, each held open as a place (`O_PATH`).
//!
//! A node's number is its inode number in the directory, so that programs see the same numbers with and without the mount,
//! and hard links are one node. While a node is held its inode number can't be used again for another file.
//!
//! Relies on the directory being one file system: what is mounted within it is not served.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use quire_sys::at::Kind;

/// Number of the root.
pub const ROOT: u64 = 1;

/// An inode that the kernel knows.
#[derive(Clone, Debug)]
pub struct Node {
    /// Where it is.
    pub place: Arc<OwnedFd>,
    /// Its inode number in the directory.
    pub ino: u64,
    /// What it is.
    pub kind: Kind,
}

struct Held {
    node: Node,
    lookups: u64,
}

/// All of them.
pub struct Nodes {
    map: Mutex<HashMap<u64, Held>>,
    root_ino: u64,
}

impl Nodes {
    /// With the root, which is never forgotten.
    pub fn new(root: OwnedFd, root_ino: u64) -> Self {
        let node = Node { place: Arc::new(root), ino: root_ino, kind: Kind::Directory };
        Self { map: Mutex::new(HashMap::from([(ROOT, Held { node, lookups: 1 })])), root_ino }
    }

    fn map(&self) -> MutexGuard<'_, HashMap<u64, Held>> {
        self.map.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The number by which the kernel knows an inode.
    pub fn number_of(&self, ino: u64) -> u64 {
        match ino {
            ino if ino == self.root_ino => ROOT,
            // Taken by the root.
            ROOT => ROOT | (1 << 63),
            ino => ino,
        }
    }

    /// The node with this number.
    pub fn get(&self, number: u64) -> Option<Node> {
        self.map().get(&number).map(|held| held.node.clone())
    }

    /// The kernel is told of an inode; returns its number.
    pub fn looked_up(&self, place: OwnedFd, ino: u64, kind: Kind) -> u64 {
        let number = self.number_of(ino);
        let mut map = self.map();
        let new = || Held { node: Node { place: Arc::new(place), ino, kind }, lookups: 0 };
        map.entry(number).or_insert_with(new).lookups += 1;
        number
    }

    /// The kernel forgets so many times that it was told.
    pub fn forget(&self, number: u64, times: u64) {
        if number == ROOT {
            return;
        }
        let mut map = self.map();
        let Some(held) = map.get_mut(&number) else { return };
        held.lookups = held.lookups.saturating_sub(times);
        if held.lookups == 0 {
            let gone = map.remove(&number);
            drop(map);
            // Closing it may free the file, which takes time.
            drop(gone);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place() -> OwnedFd {
        std::fs::File::open("/").unwrap().into()
    }

    #[test]
    fn a_node_lives_until_every_lookup_is_forgotten() {
        let nodes = Nodes::new(place(), 2);
        let number = nodes.looked_up(place(), 9, Kind::File);
        assert_eq!(nodes.looked_up(place(), 9, Kind::File), number);
        nodes.forget(number, 1);
        assert!(nodes.get(number).is_some());
        nodes.forget(number, 1);
        assert!(nodes.get(number).is_none());
        nodes.forget(ROOT, 100);
        assert!(nodes.get(ROOT).is_some() && nodes.number_of(2) == ROOT);
        assert_ne!(nodes.number_of(1), ROOT);
    }
}
