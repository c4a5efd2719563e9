//! A mapped image serves at once, takes writes, and ends as verified memory that needs the file no more.
//!
//! Relies on real files in a temporary directory. Regions are exchanged as the owner of the memory would.

use std::sync::Arc;
use std::time::{Duration, Instant};

use proptest::prelude::*;
use quire_checkpoint::{BackgroundRestore, Image, ImageError, ImagePart, MappedImage, RestoreOptions, map};
use quire_device::{
    Device, DeviceError, DeviceOperation, Directory, DirectoryLayer, DiskDirectory, FaultInjector, FaultTrigger,
    InjectedFault, IoEngine, Layer, LayeredDevice, MemoryDirectory, Queue, errno,
};
use quire_snapshot::{PAGE_SIZE, PAGES_PER_REGION, REGION_SIZE};
use tempfile::TempDir;

use crate::common::*;

const REGION: u32 = PAGES_PER_REGION as u32;

struct Saved {
    folder: TempDir,
    disk: DiskDirectory,
    model: Pages,
}

/// A whole image of `world` on disk.
fn on_disk(mut world: World) -> Saved {
    let folder = tempfile::tempdir().unwrap();
    let disk = DiskDirectory::new(folder.path());
    world.save(&disk, 1).unwrap();
    Saved { folder, disk, model: world.model }
}

fn mapped(directory: &dyn Directory) -> Result<MappedImage, ImageError> {
    map(Image::open(directory, NAME).unwrap(), &options())
}

/// Waits until so many regions are staged.
fn wait_for(restore: &BackgroundRestore, staged: u32) {
    let start = Instant::now();
    while restore.status().staged < staged {
        assert!(restore.status().failed.is_none() && start.elapsed() < PATIENCE, "{:?}", restore.status());
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Regions 0, 1 and 3 have pages, 2 has none, 4 has a few and isn't full.
fn sparse() -> World {
    let mut world = World::new(4 * REGION + 50, 4096);
    for page in (0..2 * REGION).chain(3 * REGION..4 * REGION).filter(|page| page % 11 < 4).chain([4 * REGION + 20]) {
        world.write(page, 3);
    }
    world
}

#[derive(Clone, Debug)]
enum Step {
    Write(u32, u8),
    Adopt(u32),
    Save,
    Check,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        12 => (any::<u32>(), any::<u8>()).prop_map(|(page, value)| Step::Write(page, value)),
        4 => (1u32..4).prop_map(Step::Adopt),
        1 => Just(Step::Save),
        1 => Just(Step::Check),
    ];
    prop::collection::vec(step, 0..40)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn writes_survive_the_exchange_and_saves_meanwhile_are_right(steps in steps()) {
        let saved = on_disk(sparse());
        let MappedImage { barrier, restore: mut background, .. } = mapped(&saved.disk).unwrap();
        let mut world = World::of(barrier, 4 * REGION + 50, saved.model);
        world.barrier.set_restoring(true);
        for step in steps {
            match step {
                Step::Write(page, value) => world.write(page % world.page_count, value),
                Step::Adopt(most) => drop(adopt(&mut world.barrier, &mut background, most)),
                Step::Check => world.check(),
                Step::Save => {
                    let (memory, expected) = (MemoryDirectory::new(), world.model.clone());
                    let snapshot = world.cut();
                    std::thread::scope(|scope| {
                        let dumper = scope.spawn(|| save(snapshot, &memory, 9).map(drop));
                        for page in (0..world.page_count).step_by(97) {
                            world.write(page, 66);
                            adopt(&mut world.barrier, &mut background, 1);
                        }
                        dumper.join().unwrap().unwrap();
                    });
                    assert!(world.barrier.try_finish());
                    assert_same(&image(&memory).1, &expected);
                }
            }
        }
        world.check();
        adopt_all(&mut world.barrier, &mut background).unwrap();
        world.check();
    }
}

#[test]
fn holes_of_an_image_on_tmpfs_are_not_mapped_since_reading_them_would_take_space_there() {
    use std::os::unix::fs::MetadataExt;
    let folder = tempfile::tempdir_in("/dev/shm").ok();
    let is_tmpfs = |folder: &TempDir| quire_sys::file::fills_mapped_holes(&std::fs::File::open(folder.path()).unwrap());
    let Some(folder) = folder.filter(is_tmpfs) else {
        return quire_sys::testing::skipped("there is no tmpfs at /dev/shm");
    };
    let disk = DiskDirectory::new(folder.path());
    let mut world = World::new(3 * REGION, 4096);
    // The second one is whole, the others have holes.
    for page in (0..3 * REGION).filter(|page| page / REGION == 1 || page % 11 < 4) {
        world.write(page, 3);
    }
    world.save(&disk, 1).unwrap();
    let blocks = || folder.path().join(NAME).metadata().unwrap().blocks();
    let before = blocks();
    let MappedImage { barrier, mut restore, regions_loaded, .. } = mapped(&disk).unwrap();
    assert_eq!((regions_loaded, restore.status().regions_total), (2, 1));
    let mut world = World::of(barrier, 3 * REGION, world.model);
    world.barrier.set_restoring(true);
    world.check();
    (0..3 * REGION).step_by(5).for_each(|page| world.write(page, 8));
    world.check();
    assert_eq!(blocks(), before);
    adopt_all(&mut world.barrier, &mut restore).unwrap();
    world.check();
    assert_eq!(blocks(), before);
}

#[test]
fn all_is_there_before_anything_is_exchanged() {
    for engine in [IoEngine::Auto, IoEngine::Threads] {
        let saved = on_disk(sparse());
        let disk = saved.disk.clone().with(Default::default(), engine);
        let mapped = mapped(&disk).unwrap();
        assert_eq!(mapped.committed_bytes, (4 * REGION + 50) as usize * PAGE_SIZE);
        let mut world = World::of(mapped.barrier, 4 * REGION + 50, saved.model);
        world.check();
        assert_eq!(mapped.restore.status().regions_total, 4);
        assert_eq!(mapped.restore.status().adopted, 0);
        let mut restore = mapped.restore;
        adopt_all(&mut world.barrier, &mut restore).unwrap();
        world.check();
    }
}

#[test]
fn after_the_exchange_the_file_is_needed_no_more() {
    let saved = on_disk(sparse());
    let MappedImage { barrier, mut restore, .. } = mapped(&saved.disk).unwrap();
    let mut world = World::of(barrier, 4 * REGION + 50, saved.model);
    adopt_all(&mut world.barrier, &mut restore).unwrap();
    drop(restore);
    // A process that still had a page of the file mapped would be killed by touching it now.
    let file = std::fs::File::options().write(true).open(saved.folder.path().join(NAME)).unwrap();
    file.set_len(0).unwrap();
    world.check();
    // Region 2 had no pages, and was never exchanged.
    for page in 0..world.page_count {
        world.write(page, 8);
    }
    world.check();
}

#[test]
fn memory_grows_beyond_a_last_region_that_is_not_full() {
    let saved = on_disk(sparse());
    let MappedImage { barrier, mut restore, committed_bytes, .. } = mapped(&saved.disk).unwrap();
    barrier.memory().commit(committed_bytes..6 * REGION_SIZE).unwrap();
    let mut world = World::of(barrier, 6 * REGION, saved.model);
    for page in [4 * REGION + 49, 4 * REGION + 50, 5 * REGION - 1, 5 * REGION] {
        world.write(page, 4);
    }
    adopt_all(&mut world.barrier, &mut restore).unwrap();
    for page in [4 * REGION + 51, 5 * REGION - 2] {
        world.write(page, 5);
    }
    world.check();
}

#[test]
fn the_mapped_image_may_be_replaced() {
    let saved = on_disk(sparse());
    let MappedImage { barrier, mut restore, .. } = mapped(&saved.disk).unwrap();
    let mut world = World::of(barrier, 4 * REGION + 50, saved.model);
    world.write(9, 200);
    world.save(&saved.disk, 2).unwrap();
    World::varied(30).save(&saved.disk, 3).unwrap();
    adopt_all(&mut world.barrier, &mut restore).unwrap();
    world.check();
}

#[test]
fn damage_in_the_background_is_told_with_region_and_byte() {
    let saved = on_disk(sparse());
    let path = saved.folder.path().join(NAME);
    let mut bytes = std::fs::read(&path).unwrap();
    let page = 3 * REGION + 4;
    bytes[REGION_SIZE + page as usize * PAGE_SIZE + 100] ^= 1;
    std::fs::write(&path, &bytes).unwrap();
    let MappedImage { mut barrier, mut restore, .. } = mapped(&saved.disk).unwrap();
    let error = adopt_all(&mut barrier, &mut restore).unwrap_err();
    let text = error.to_string();
    assert!(text.contains(&format!("in its region 3, at byte {}:", 4 * REGION_SIZE)), "{text}");
    assert!(text.contains(path.to_str().unwrap()) && error.is_damage(), "{text}");
    assert!(!restore.status().done);
    drop(restore);

    let accepting = RestoreOptions { accept_damaged: true, ..options() };
    let MappedImage { barrier, mut restore, .. } = map(Image::open(&saved.disk, NAME).unwrap(), &accepting).unwrap();
    let mut model = saved.model;
    model.get_mut(&page).unwrap()[100] ^= 1;
    let mut world = World::of(barrier, 4 * REGION + 50, model);
    adopt_all(&mut world.barrier, &mut restore).unwrap();
    world.check();
}

#[test]
fn a_failing_read_in_the_background_is_told_with_its_region() {
    let saved = on_disk(sparse());
    // Three reads open the image.
    for (number, region) in [(3, 0), (5, 3)] {
        let rules = vec![(FaultTrigger::Nth(DeviceOperation::Read, number), InjectedFault::Error(errno::EIO))];
        let faulty = FaultInjector::new(Arc::new(saved.disk.clone()), rules);
        let MappedImage { mut barrier, mut restore, .. } = mapped(&faulty).unwrap();
        let error = adopt_all(&mut barrier, &mut restore).unwrap_err();
        assert!(
            matches!(error, ImageError::Unreadable { part: ImagePart::Region(found), .. } if found == region),
            "{error}"
        );
        assert!(!error.is_damage());
    }
}

#[test]
fn no_more_is_staged_than_there_is_room_for_and_dropping_ends_it() {
    let mut world = World::new(60 * REGION, 64);
    for region in 0..60 {
        world.write(region * REGION + region, 1);
    }
    let saved = on_disk(world);
    let MappedImage { barrier, mut restore, .. } = mapped(&saved.disk).unwrap();
    let mut world = World::of(barrier, 60 * REGION, saved.model);
    assert_eq!(restore.status().regions_total, 60);
    // 32 wait to be taken over, one waits for room; the reads after it wait for that one.
    wait_for(&restore, 33);
    std::thread::sleep(Duration::from_millis(20));
    assert_eq!(restore.status().staged, 33);
    assert!(adopt(&mut world.barrier, &mut restore, 16));
    world.check();
    // With the thread waiting for room.
    drop(restore);
    world.check();
}

#[test]
fn dropping_at_once_is_fine() {
    let saved = on_disk(sparse());
    for _ in 0..20 {
        let MappedImage { barrier, restore, .. } = mapped(&saved.disk).unwrap();
        drop(restore);
        World::of(barrier, 4 * REGION + 50, saved.model.clone()).check();
    }
}

#[test]
fn neighbours_are_handed_out_together_and_all_but_once() {
    let saved = on_disk(sparse());
    let MappedImage { mut restore, barrier: _memory, .. } = mapped(&saved.disk).unwrap();
    wait_for(&restore, 4);
    let mut seen = Vec::new();
    while let Some(regions) = restore.next_ready(2) {
        assert!((1..=2).contains(&regions.len()));
        restore.adopted(regions.clone());
        seen.extend(regions);
    }
    seen.sort_unstable();
    assert_eq!(seen, [0, 1, 3, 4]);
    assert!(restore.status().done);
}

#[test]
fn an_image_without_pages_is_done_at_once() {
    let saved = on_disk(World::new(700, 8));
    let mut mapped = mapped(&saved.disk).unwrap();
    assert!(mapped.restore.status().done && mapped.restore.next_ready(1).is_none());
    assert!(mapped.restore.status().failed.is_none());
}

#[test]
fn what_cannot_be_mapped_is_refused() {
    let (memory, ..) = saved(100);
    assert!(matches!(mapped(&memory), Err(ImageError::NotMappable { .. })));
    let saved = on_disk(World::varied(3 * REGION));
    let too_little = RestoreOptions { max_bytes: REGION_SIZE as u64, ..options() };
    let image = Image::open(&saved.disk, NAME).unwrap();
    assert!(matches!(map(image, &too_little), Err(ImageError::TooLarge { .. })));
}

/// Panics in the thread that opens a queue.
struct Crashing;

impl Layer for Crashing {
    fn queue(&self, _: &Arc<dyn Device>, _: usize) -> Result<Box<dyn Queue>, DeviceError> {
        panic!("as this test wants it");
    }
}

struct CrashingDirectory(DiskDirectory);

impl DirectoryLayer for CrashingDirectory {
    fn inner(&self) -> &dyn Directory {
        &self.0
    }

    fn wrap(&self, device: Arc<dyn Device>) -> Arc<dyn Device> {
        LayeredDevice::new(device, Crashing)
    }
}

#[test]
fn a_crash_in_the_background_is_a_failure_and_not_a_wait_for_ever() {
    let saved = on_disk(sparse());
    let MappedImage { barrier, mut restore, .. } = mapped(&CrashingDirectory(saved.disk.clone())).unwrap();
    let mut world = World::of(barrier, 4 * REGION + 50, saved.model);
    let error = adopt_all(&mut world.barrier, &mut restore).unwrap_err();
    assert!(matches!(error, ImageError::Crashed { .. }), "{error}");
    world.check();
}
