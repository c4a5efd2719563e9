//! A chain that is opened while its server saves is that of one moment, and never older than what had been saved.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use quire_checkpoint::{ImageChain, ImageError};
use quire_device::{Device, DeviceError, Directory, MemoryDirectory};

use crate::common::*;

/// What a server does to the directory just before, or just after, the files are listed for the n-th time.
type Change = Box<dyn FnMut(u32, &MemoryDirectory) + Send>;

/// A directory in which a server saves at the worst moments.
struct Saving {
    memory: MemoryDirectory,
    lists: AtomicU32,
    before_list: Mutex<Change>,
    after_list: Mutex<Change>,
}

impl Saving {
    fn new(memory: MemoryDirectory, before_list: Change, after_list: Change) -> Self {
        Self { memory, lists: AtomicU32::new(0), before_list: before_list.into(), after_list: after_list.into() }
    }
}

impl Directory for Saving {
    fn path_of(&self, name: &str) -> String {
        self.memory.path_of(name)
    }
    fn create(&self, name: &str) -> Result<Arc<dyn Device>, DeviceError> {
        self.memory.create(name)
    }
    fn open(&self, name: &str) -> Result<Arc<dyn Device>, DeviceError> {
        self.memory.open(name)
    }
    fn open_to_write(&self, name: &str) -> Result<Arc<dyn Device>, DeviceError> {
        self.memory.open_to_write(name)
    }
    fn rename(&self, from: &str, to: &str) -> Result<(), DeviceError> {
        self.memory.rename(from, to)
    }
    fn link(&self, from: &str, to: &str) -> Result<(), DeviceError> {
        self.memory.link(from, to)
    }
    fn remove(&self, name: &str) -> Result<(), DeviceError> {
        self.memory.remove(name)
    }
    fn sync(&self) -> Result<(), DeviceError> {
        self.memory.sync()
    }
    fn list(&self) -> Result<Vec<String>, DeviceError> {
        let number = self.lists.fetch_add(1, Ordering::SeqCst);
        (self.before_list.lock().unwrap())(number, &self.memory);
        let found = self.memory.list();
        (self.after_list.lock().unwrap())(number, &self.memory);
        found
    }
    fn free_bytes(&self) -> Option<u64> {
        self.memory.free_bytes()
    }
}

fn nothing() -> Change {
    Box::new(|_, _| {})
}

/// An image and a delta over it, and the world that they hold.
fn begun() -> (MemoryDirectory, World) {
    let memory = MemoryDirectory::new();
    let mut world = World::varied(300);
    world.track();
    let mut links = world.begin_chain(&memory, 1).unwrap();
    world.write(3, 7);
    world.save_delta(&memory, &mut links, 2).unwrap();
    (memory, world)
}

#[test]
fn an_image_that_is_replaced_before_its_deltas_are_listed_is_not_taken_without_them() {
    let (memory, mut world) = begun();
    let save: Change = Box::new(move |number, memory| {
        if number == 0 {
            world.write(4, 9);
            world.begin_chain(memory, 3).unwrap();
        }
    });
    let chain = ImageChain::open_shared(&Saving::new(memory, save, nothing()), NAME).unwrap();
    assert_eq!((chain.info().epoch, chain.deltas().len()), (3, 0));
}

#[test]
fn a_delta_that_is_removed_after_it_was_listed_belongs_to_an_image_that_is_gone() {
    let (memory, mut world) = begun();
    let save: Change = Box::new(move |number, memory| {
        if number == 0 {
            world.write(4, 9);
            world.begin_chain(memory, 3).unwrap();
        }
    });
    let chain = ImageChain::open_shared(&Saving::new(memory, nothing(), save), NAME).unwrap();
    assert_eq!((chain.info().epoch, chain.deltas().len()), (3, 0));
}

#[test]
fn a_chain_that_never_stands_still_is_given_up_and_one_that_nothing_changes_is_opened_at_once() {
    let (memory, mut world) = begun();
    let still = Saving::new(memory.clone(), nothing(), nothing());
    let chain = ImageChain::open_shared(&still, NAME).unwrap();
    assert_eq!((chain.info().epoch, chain.deltas().len(), still.lists.load(Ordering::SeqCst)), (2, 1, 1));
    let save: Change = Box::new(move |number, memory| {
        world.begin_chain(memory, u64::from(number) + 3).map(drop).unwrap();
    });
    let restless = Saving::new(memory, save, nothing());
    assert!(matches!(ImageChain::open_shared(&restless, NAME), Err(ImageError::Changing { .. })));
    assert!(matches!(ImageChain::open_shared(&MemoryDirectory::new(), NAME), Err(ImageError::Missing { .. })));
}
