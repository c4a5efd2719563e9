//! What the kernel knows by number: inodes that it has looked up and not forgotten. Each has a place (`O_PATH`), which is open
//! while it is used; of the others only so many stay open as the process may hold, the ones used lately.
//!
//! A node's number is its inode number in the directory, so that programs see the same numbers with and without the mount,
//! and hard links are one node. A place that was closed is opened again by the inode's file handle; where there are none,
//! by its directory and name. Either way it is the same inode or an error. An inode whose name goes away stays open
//! ([`NodeTable::pin`]): it can't be found again. Should its number belong to another file in spite of that, the new node
//! gets a number of its own.
//!
//! Relies on the directory being one file system: what is mounted within it is not served.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use quire_sys::at::{self, FileStat, InodeType};
use quire_sys::handle;

use crate::engine::InodeRef;
use crate::node_map::{Identity, NodeEntry, NodeMap};

pub use crate::node_map::ROOT;

/// The first number of those that are no inode's.
const OTHERS: u64 = 1 << 63;
/// How often a place is looked for whose name changes meanwhile.
const MOST_TRIES: usize = 4;

/// An inode that the kernel knows.
#[derive(Clone, Debug)]
pub struct LookedUpInode {
    /// Where it is.
    pub place: Arc<OwnedFd>,
    /// Its inode number in the directory.
    pub ino: u64,
    /// What it is.
    pub kind: InodeType,
}

/// All of them.
pub struct NodeTable {
    map: Mutex<NodeMap>,
    root: File,
    root_ino: u64,
    most_open: usize,
    by_handle: bool,
}

impl NodeTable {
    /// With the root, which is never forgotten. At most `most_open` places stay open that need not.
    ///
    /// # Errors
    /// The root can't be used.
    pub fn new(root: File, most_open: usize) -> io::Result<Self> {
        let root_ino = at::facts(&root)?.ino;
        let place = Arc::new(OwnedFd::from(root.try_clone()?));
        let by_handle = handle::of(&root).and_then(|handle| handle::place(&root, &handle)).is_ok();
        let identity = Identity::Born(None);
        let entry = NodeEntry {
            place: Some(place),
            is_pinned: true,
            ..NodeEntry::new(root_ino, InodeType::Directory, identity)
        };
        let map = NodeMap { nodes: HashMap::from([(ROOT, entry)]), ..NodeMap::default() };
        Ok(Self { map: Mutex::new(map), root, root_ino, most_open, by_handle })
    }

    fn map(&self) -> MutexGuard<'_, NodeMap> {
        self.map.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The number by which the kernel knows an inode.
    pub fn number_of(&self, ino: u64) -> u64 {
        self.number_in(&self.map(), ino)
    }

    fn number_in(&self, map: &NodeMap, ino: u64) -> u64 {
        match ino {
            ino if ino == self.root_ino => ROOT,
            ino if map.others.contains_key(&ino) => map.others[&ino],
            // Taken by the root.
            ROOT => OTHERS,
            ino => ino,
        }
    }

    /// The node with this number; `None` if the kernel has forgotten it.
    ///
    /// # Errors
    /// Its place was closed, and can't be opened again.
    pub fn get(&self, number: u64) -> io::Result<Option<LookedUpInode>> {
        let mut tried = None;
        for _ in 0..MOST_TRIES {
            let (ino, kind, identity, name) = {
                let mut map = self.map();
                let Some(entry) = map.nodes.get_mut(&number) else { return Ok(None) };
                entry.is_recent = true;
                if let Some(place) = &entry.place {
                    return Ok(Some(LookedUpInode { place: Arc::clone(place), ino: entry.ino, kind: entry.kind }));
                }
                (entry.ino, entry.kind, entry.identity.clone(), entry.name.clone())
            };
            match self.find(ino, kind, &identity, name.as_ref()) {
                Ok(place) => return Ok(self.opened(number, place)),
                // It may have another name by now.
                Err(_) if name.is_some() && tried != name => tried = name,
                Err(error) => return Err(error),
            }
        }
        Err(io::ErrorKind::StaleNetworkFileHandle.into())
    }

    fn find(
        &self,
        ino: u64,
        kind: InodeType,
        identity: &Identity,
        name: Option<&(u64, OsString)>,
    ) -> io::Result<OwnedFd> {
        let stale = || io::Error::from(io::ErrorKind::StaleNetworkFileHandle);
        let place = match (identity, name) {
            (Identity::ExportHandle(handle), _) => handle::place(&self.root, handle)?,
            (Identity::Born(_), Some((parent, name))) => {
                let parent = self.get(*parent)?.ok_or_else(stale)?;
                at::place(&parent.place, name)?
            }
            (Identity::Born(_), None) => return Err(stale()),
        };
        let facts = at::facts(&place)?;
        let is_same = match identity {
            Identity::ExportHandle(_) => true,
            Identity::Born(born_ns) => at::born_ns(&place) == *born_ns,
        };
        if (facts.ino, facts.kind) == (ino, kind) && is_same { Ok(place) } else { Err(stale()) }
    }

    /// The node, which has this place now unless it got one meanwhile.
    fn opened(&self, number: u64, place: OwnedFd) -> Option<LookedUpInode> {
        let mut map = self.map();
        let entry = map.nodes.get_mut(&number)?;
        let is_new = entry.place.is_none();
        let place = Arc::clone(entry.place.get_or_insert_with(|| Arc::new(place)));
        let node = LookedUpInode { place, ino: entry.ino, kind: entry.kind };
        if is_new && !entry.is_pinned {
            map.open.push_back(number);
        }
        let closed = map.close_beyond(self.most_open);
        drop(map);
        drop(closed);
        Some(node)
    }

    fn identity_of(&self, place: impl AsFd) -> Identity {
        let handle = if self.by_handle { handle::of(&place).ok() } else { None };
        handle.map_or_else(|| Identity::Born(at::born_ns(&place)), Identity::ExportHandle)
    }

    /// The kernel is told of what `name` stands for in `parent`; returns its number.
    pub fn looked_up(&self, place: OwnedFd, facts: &FileStat, parent: u64, name: &OsStr) -> u64 {
        let mut map = self.map();
        let number = self.number_in(&map, facts.ino);
        if let Some(entry) = map.nodes.get_mut(&number)
            && entry.place.is_some()
        {
            // An inode that is open keeps its number.
            entry.lookups += 1;
            entry.is_recent = true;
            map.rename(number, parent, name);
            return number;
        }
        drop(map);
        let identity = self.identity_of(&place);
        let mut map = self.map();
        let mut number = self.number_in(&map, facts.ino);
        let is_another =
            |entry: &NodeEntry| entry.place.is_none() && (entry.identity != identity || entry.kind != facts.kind);
        if map.nodes.get(&number).is_some_and(is_another) {
            map.next_other += 1;
            number = OTHERS + map.next_other;
            map.others.insert(facts.ino, number);
        }
        let by_name = !matches!(identity, Identity::ExportHandle(_));
        let entry = map.nodes.entry(number).or_insert_with(|| NodeEntry::new(facts.ino, facts.kind, identity));
        entry.lookups += 1;
        if entry.place.is_none() {
            entry.place = Some(Arc::new(place));
            entry.is_pinned = false;
            map.open.push_back(number);
        }
        if by_name && number != ROOT {
            map.place_at(number, parent, name);
        }
        let closed = map.close_beyond(self.most_open);
        drop(map);
        drop(closed);
        number
    }

    /// The kernel is told of something that can't be looked at; returns a number for it, under which there is nothing.
    pub fn mentioned(&self, kind: InodeType) -> u64 {
        let mut map = self.map();
        map.next_other += 1;
        let number = OTHERS + map.next_other;
        map.nodes.insert(number, NodeEntry { lookups: 1, ..NodeEntry::new(0, kind, Identity::Born(None)) });
        number
    }

    /// The inode with this number is about to lose a name, perhaps its last: if it could not be opened again then, it stays
    /// open until the kernel forgets it or knows another name.
    ///
    /// # Errors
    /// It is known and can't be opened.
    pub fn pin(&self, ino: u64, is_last: bool) -> io::Result<()> {
        let number = self.number_of(ino);
        let is_needed = |entry: &NodeEntry| is_last || !matches!(entry.identity, Identity::ExportHandle(_));
        if !self.map().nodes.get(&number).is_some_and(is_needed) {
            return Ok(());
        }
        let Some(node) = self.get(number)? else { return Ok(()) };
        if let Some(entry) = self.map().nodes.get_mut(&number) {
            entry.place.get_or_insert(node.place);
            entry.is_pinned = true;
        }
        Ok(())
    }

    /// The file with this inode number has lost its last name. Until the kernel forgets it a program may still open it: one that
    /// has found the name and not opened it yet, or that opens it by a descriptor. What the cache has of it is kept for that.
    pub fn keep(&self, ino: u64, user: InodeRef) {
        let mut map = self.map();
        let number = self.number_in(&map, ino);
        let ended = match map.nodes.get_mut(&number) {
            Some(entry) => entry.user.replace(user),
            None => Some(user),
        };
        drop(map);
        // To end a use may take time.
        drop(ended);
    }

    /// The pinned inode with this number has this name (again).
    pub fn renamed(&self, ino: u64, parent: u64, name: &OsStr) {
        let mut map = self.map();
        let number = self.number_in(&map, ino);
        map.rename(number, parent, name);
    }

    /// Closes half of the places that are open, because the process may open no more.
    pub fn make_room(&self) {
        let mut map = self.map();
        let keep = map.open.len() / 2;
        let closed = map.close_beyond(keep);
        drop(map);
        drop(closed);
    }

    /// The kernel forgets so many times that it was told.
    pub fn forget(&self, number: u64, times: u64) {
        if number == ROOT {
            return;
        }
        let mut map = self.map();
        let Some(entry) = map.nodes.get_mut(&number) else { return };
        entry.lookups = entry.lookups.saturating_sub(times);
        let gone = map.sweep(number);
        drop(map);
        // Closing them may free files, which takes time.
        drop(gone);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Tree {
        dir: tempfile::TempDir,
        root: File,
    }

    impl Tree {
        fn new() -> Self {
            let dir = tempfile::tempdir().unwrap();
            let root = File::open(dir.path()).unwrap();
            Self { dir, root }
        }

        fn nodes(&self, most_open: usize, by_handle: bool) -> NodeTable {
            let nodes = NodeTable::new(self.root.try_clone().unwrap(), most_open).unwrap();
            NodeTable { by_handle: nodes.by_handle && by_handle, ..nodes }
        }

        /// Looks `name` up in the directory at `path`.
        fn look_up(&self, nodes: &NodeTable, parent: u64, path: &str, name: &str) -> u64 {
            let dir = File::open(self.dir.path().join(path)).unwrap();
            let place = at::place(&dir, OsStr::new(name)).unwrap();
            let facts = at::facts(&place).unwrap();
            nodes.looked_up(place, &facts, parent, OsStr::new(name))
        }

        fn write(&self, path: &str) {
            std::fs::write(self.dir.path().join(path), path).unwrap();
        }
    }

    fn open_places(nodes: &NodeTable) -> usize {
        nodes.map().nodes.values().filter(|entry| entry.place.is_some()).count()
    }

    fn ino(nodes: &NodeTable, number: u64) -> io::Result<u64> {
        Ok(at::facts(&nodes.get(number)?.unwrap().place)?.ino)
    }

    #[test]
    fn a_node_lives_until_every_lookup_is_forgotten() {
        let tree = Tree::new();
        tree.write("f");
        let nodes = tree.nodes(8, true);
        let number = tree.look_up(&nodes, ROOT, "", "f");
        assert_eq!(tree.look_up(&nodes, ROOT, "", "f"), number);
        nodes.forget(number, 1);
        assert!(nodes.get(number).unwrap().is_some());
        nodes.forget(number, 1);
        assert!(nodes.get(number).unwrap().is_none());
        nodes.forget(ROOT, 100);
        assert!(nodes.get(ROOT).unwrap().is_some() && nodes.number_of(nodes.root_ino) == ROOT);
        assert_ne!(nodes.number_of(1), ROOT);
    }

    #[test]
    fn few_places_are_open_and_every_node_is_found_again_by_handle_and_by_name() {
        let tree = Tree::new();
        std::fs::create_dir(tree.dir.path().join("sub")).unwrap();
        for by_handle in [true, false] {
            let nodes = tree.nodes(3, by_handle);
            let sub = tree.look_up(&nodes, ROOT, "", "sub");
            let names: Vec<String> = (0..20).map(|number| format!("f{number}")).collect();
            let numbers: Vec<u64> = names
                .iter()
                .map(|name| {
                    tree.write(&format!("sub/{name}"));
                    tree.look_up(&nodes, sub, "sub", name)
                })
                .collect();
            assert!(open_places(&nodes) <= 4, "{} are open", open_places(&nodes));
            for number in &numbers {
                assert_eq!(ino(&nodes, *number).unwrap(), *number);
            }
            // A directory that was renamed takes along what is in it.
            let moved = nodes.get(sub).unwrap().unwrap().ino;
            nodes.pin(moved, false).unwrap();
            std::fs::rename(tree.dir.path().join("sub"), tree.dir.path().join("other")).unwrap();
            nodes.renamed(moved, ROOT, OsStr::new("other"));
            for number in &numbers {
                assert_eq!(ino(&nodes, *number).unwrap(), *number);
            }
            // The directory's node stays as long as others are found through it.
            nodes.forget(sub, 1);
            assert_eq!(ino(&nodes, numbers[0]).unwrap(), numbers[0]);
            numbers.iter().for_each(|number| nodes.forget(*number, 1));
            assert_eq!(nodes.map().nodes.len(), 1);
            std::fs::rename(tree.dir.path().join("other"), tree.dir.path().join("sub")).unwrap();
        }
    }

    #[test]
    fn what_took_the_place_of_a_closed_node_is_never_taken_for_it() {
        let tree = Tree::new();
        for by_handle in [true, false] {
            let nodes = tree.nodes(0, by_handle);
            tree.write("f");
            let number = tree.look_up(&nodes, ROOT, "", "f");
            assert_eq!(open_places(&nodes), 1, "only the root");
            // Behind the mount's back: perhaps with the same inode number.
            std::fs::remove_file(tree.dir.path().join("f")).unwrap();
            tree.write("f");
            let found = ino(&nodes, number);
            assert!(found.is_err(), "{found:?}");
            let again = tree.look_up(&nodes, ROOT, "", "f");
            assert_ne!(again, number);
            assert!(ino(&nodes, again).is_ok());
        }
    }

    #[test]
    fn an_inode_without_a_name_stays_open_and_one_that_gets_another_need_not() {
        let tree = Tree::new();
        for by_handle in [true, false] {
            let nodes = tree.nodes(0, by_handle);
            tree.write("f");
            let number = tree.look_up(&nodes, ROOT, "", "f");
            nodes.pin(number, true).unwrap();
            std::fs::remove_file(tree.dir.path().join("f")).unwrap();
            nodes.make_room();
            assert_eq!(ino(&nodes, number).unwrap(), number);
            nodes.forget(number, 1);
            assert_eq!(open_places(&nodes), 1);
            tree.write("g");
            let number = tree.look_up(&nodes, ROOT, "", "g");
            std::fs::hard_link(tree.dir.path().join("g"), tree.dir.path().join("h")).unwrap();
            nodes.pin(number, false).unwrap();
            std::fs::remove_file(tree.dir.path().join("g")).unwrap();
            assert_eq!(tree.look_up(&nodes, ROOT, "", "h"), number);
            nodes.make_room();
            assert_eq!((open_places(&nodes), ino(&nodes, number).unwrap()), (1, number));
            std::fs::remove_file(tree.dir.path().join("h")).unwrap();
        }
    }

    #[test]
    fn what_can_not_be_looked_at_has_a_number_under_which_there_is_nothing() {
        let nodes = Tree::new().nodes(8, true);
        let (one, two) = (nodes.mentioned(InodeType::File), nodes.mentioned(InodeType::File));
        assert_ne!(one, two);
        assert!(nodes.get(one).is_err());
        nodes.forget(one, 1);
        assert!(nodes.get(one).unwrap().is_none());
    }
}
