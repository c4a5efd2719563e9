//! Nodes by number: which are found through which, and whose places are open.
//!
//! Relies on [`NodeTable`](crate::nodes::NodeTable) for the lock, and for dropping what is returned without it: closing may free files,
//! which takes time.

use std::collections::{HashMap, VecDeque};
use std::ffi::{OsStr, OsString};
use std::os::fd::OwnedFd;
use std::sync::Arc;

use quire_sys::at::InodeType;
use quire_sys::handle::ExportHandle;

use crate::engine::InodeRef;

/// Number of the root.
pub const ROOT: u64 = 1;

/// By what an inode is found again, and known to be the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Identity {
    /// Names one inode for ever.
    ExportHandle(ExportHandle),
    /// When it was made; what has the same number and the same time of birth is the same.
    Born(Option<u64>),
}

/// A node that the kernel knows.
pub struct NodeEntry {
    pub ino: u64,
    pub kind: InodeType,
    pub identity: Identity,
    /// A directory's number and the name there; kept where there are no handles.
    pub name: Option<(u64, OsString)>,
    pub lookups: u64,
    /// Nodes that are found by a name in this one.
    pub children: usize,
    pub place: Option<Arc<OwnedFd>>,
    /// Used since it was last considered for closing.
    pub is_recent: bool,
    /// It can't be opened again.
    pub is_pinned: bool,
    /// The file without a name is in use until the kernel forgets it ([`NodeTable::keep`]).
    pub user: Option<InodeRef>,
}

impl NodeEntry {
    pub fn new(ino: u64, kind: InodeType, identity: Identity) -> Self {
        Self {
            ino,
            kind,
            identity,
            name: None,
            lookups: 0,
            children: 0,
            place: None,
            is_recent: false,
            is_pinned: false,
            user: None,
        }
    }
}

/// All nodes, by number.
#[derive(Default)]
pub struct NodeMap {
    pub nodes: HashMap<u64, NodeEntry>,
    /// Numbers of nodes whose inode number is another node's.
    pub others: HashMap<u64, u64>,
    pub next_other: u64,
    /// Nodes with an open place that may be closed, each once; some have been forgotten.
    pub open: VecDeque<u64>,
}

impl NodeMap {
    /// A node that can be opened again by this name need not be pinned.
    pub fn rename(&mut self, number: u64, parent: u64, name: &OsStr) {
        let Some(entry) = self.nodes.get_mut(&number).filter(|_| number != ROOT) else { return };
        if matches!(entry.identity, Identity::Born(_)) {
            self.place_at(number, parent, name);
        } else if entry.is_pinned {
            self.unpin(number);
        }
    }

    pub fn unpin(&mut self, number: u64) {
        if let Some(entry) = self.nodes.get_mut(&number).filter(|entry| entry.is_pinned) {
            entry.is_pinned = false;
            if entry.place.is_some() {
                self.open.push_back(number);
            }
        }
    }

    pub fn place_at(&mut self, number: u64, parent: u64, name: &OsStr) {
        let Some(entry) = self.nodes.get_mut(&number) else { return };
        let old = entry.name.replace((parent, name.to_owned()));
        if let Some(parent) = self.nodes.get_mut(&parent) {
            parent.children += 1;
        }
        self.unpin(number);
        if let Some((parent, _)) = old {
            drop(self.unlink_child(parent));
        }
    }

    /// A node is no longer found by a name in this one. What has been closed by that is returned.
    pub fn unlink_child(&mut self, parent: u64) -> Vec<NodeEntry> {
        if let Some(parent) = self.nodes.get_mut(&parent) {
            parent.children = parent.children.saturating_sub(1);
        }
        self.sweep(parent)
    }

    /// Removes a node if the kernel has forgotten it and no other is found through it; and so on upwards.
    pub fn sweep(&mut self, number: u64) -> Vec<NodeEntry> {
        let mut gone = Vec::new();
        let mut next = Some(number);
        while let Some(number) = next.take() {
            let unused = |entry: &NodeEntry| entry.lookups == 0 && entry.children == 0;
            if number == ROOT || !self.nodes.get(&number).is_some_and(unused) {
                break;
            }
            let Some(entry) = self.nodes.remove(&number) else { break };
            if self.others.get(&entry.ino) == Some(&number) {
                self.others.remove(&entry.ino);
            }
            if let Some((parent, _)) = &entry.name {
                if let Some(parent) = self.nodes.get_mut(parent) {
                    parent.children = parent.children.saturating_sub(1);
                }
                next = Some(*parent);
            }
            gone.push(entry);
        }
        // Else the list of open ones would grow with what is forgotten.
        if self.open.len() > 2 * self.nodes.len() + 64 {
            let nodes = &self.nodes;
            self.open.retain(|number| nodes.get(number).is_some_and(|entry| entry.place.is_some() && !entry.is_pinned));
        }
        gone
    }

    /// Closes places that were not used lately until at most `most` are open that need not be. They are closed by dropping
    /// the result.
    pub fn close_beyond(&mut self, most: usize) -> Vec<Arc<OwnedFd>> {
        let mut closed = Vec::new();
        // Each gets a second chance, so this ends.
        while self.open.len() > most {
            let Some(number) = self.open.pop_front() else { break };
            let Some(entry) = self.nodes.get_mut(&number).filter(|entry| !entry.is_pinned) else { continue };
            if std::mem::take(&mut entry.is_recent) {
                self.open.push_back(number);
            } else {
                closed.extend(entry.place.take());
            }
        }
        closed
    }
}
