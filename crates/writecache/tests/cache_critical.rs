//! Criticality and its inheritance, over a slow device whose writes end only when the test says so: a task that is said not
//! to wait for the slow device would hang otherwise.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use quire_device::{Directory, IoGate, PowerCut};
use quire_writecache::{
    AdmissionPolicy, AdmissionReason, BlockedOn, CacheCondvar, CacheConfig, CacheMutex, CriticalReason, ResourceId,
    TaskGraph, TaskId, VolumeLength, VolumeSpec, WaitCallback, WriteCache, WriteContext, critical,
};

use crate::wcache::{self, BLOCK, DATA, Homes, LOG, block, config};

struct Scene {
    homes: Homes,
    tasks: Arc<TaskGraph>,
    gate: IoGate,
    cache: WriteCache,
}

/// A cache whose slow device is stuck.
fn scene(policy: AdmissionPolicy) -> Scene {
    let homes = Homes::new();
    let gate = IoGate::default();
    gate.close();
    let device = gate.before(homes.volumes()[0].device.clone());
    let volume = VolumeSpec { id: DATA, device, growth: VolumeLength::Fixed };
    let settings = CacheConfig { issuers: 2, ..config(policy) };
    let tasks = Arc::clone(&settings.tasks);
    let cache = WriteCache::create(homes.fast(), &[volume], settings).unwrap();
    Scene { homes, tasks, gate, cache }
}

fn sync() -> WriteContext {
    WriteContext::current().sync()
}

impl Scene {
    fn cached(&self, reason: AdmissionReason) -> u64 {
        self.cache.stats().reasons[reason.index()].blocks
    }

    /// The slow device works again; everything ends up there.
    fn end(self, values: &[(u64, u8)]) {
        self.gate.open();
        self.cache.drain().unwrap();
        for &(number, value) in values {
            let at = number as usize * BLOCK;
            assert_eq!(self.homes.slow.bytes("data").unwrap()[at..at + BLOCK], block(value));
        }
    }
}

#[test]
fn a_critical_task_writes_to_the_log_and_others_do_not() {
    let scene = scene(AdmissionPolicy::Critical);
    let _critical = scene.tasks.enter(critical::current(), CriticalReason::Request);
    let ticket = scene.cache.write(DATA, 0, &block(1), &sync()).unwrap();
    scene.cache.wait(&ticket, &sync()).unwrap();
    let other = WriteContext { task: TaskId::external(9), ..sync() };
    scene.cache.write(DATA, 9 * BLOCK as u64, &block(2), &other).unwrap();
    scene.gate.await_arrivals(1);
    assert_eq!((scene.cached(AdmissionReason::CriticalTask), scene.cached(AdmissionReason::NotCritical)), (1, 1));
    scene.end(&[(0, 1), (9, 2)]);
}

#[test]
fn a_holder_inherits_from_a_critical_waiter_and_loses_it_with_the_lock() {
    let scene = scene(AdmissionPolicy::CriticalProcess);
    let lock = CacheMutex::new_in(Arc::clone(&scene.tasks), ());
    let waits = AtomicBool::new(false);
    thread::scope(|threads| {
        let held = lock.lock();
        threads.spawn(|| {
            let _critical = scene.tasks.enter(critical::current(), CriticalReason::Request);
            waits.store(true, Ordering::SeqCst);
            drop(lock.lock());
        });
        while !waits.load(Ordering::SeqCst) || !scene.tasks.criticality(critical::current()).inherited {
            thread::yield_now();
        }
        let ticket = scene.cache.write(DATA, 0, &block(1), &sync()).unwrap();
        scene.cache.wait(&ticket, &sync()).unwrap();
        drop(held);
    });
    assert!(!scene.tasks.criticality(critical::current()).any());
    assert_eq!(scene.cached(AdmissionReason::InheritedTask), 1);
    scene.end(&[(0, 1)]);
}

#[test]
fn a_write_under_way_is_issued_again_for_a_critical_waiter() {
    let scene = scene(AdmissionPolicy::CriticalProcessIo);
    let other = WriteContext { task: TaskId::external(9), ..sync() };
    let ticket = scene.cache.write(DATA, 0, &block(1), &other).unwrap();
    scene.gate.await_arrivals(1);
    let _critical = scene.tasks.enter(critical::current(), CriticalReason::Request);
    scene.cache.wait(&ticket, &sync()).unwrap();
    assert_eq!(scene.cached(AdmissionReason::InheritedIo), 1);
    assert_eq!(scene.cache.stats().critical_writes.reissued_blocks[0], 1);
    // Newer data goes over the log, the old flight lands later and changes nothing.
    scene.cache.write(DATA, 0, &block(2), &sync()).unwrap();
    scene.gate.open();
    while scene.cache.stats().discarded_flights == 0 {
        thread::yield_now();
    }
    let mut found = block(0);
    scene.cache.read(DATA, 0, &mut found).unwrap();
    assert_eq!(found, block(2));
    scene.end(&[(0, 2)]);
}

#[test]
fn a_critical_flush_takes_everything_of_the_volume_with_it() {
    let scene = scene(AdmissionPolicy::CriticalProcessIo);
    let other = WriteContext { task: TaskId::external(9), ..sync() };
    for number in 0..8 {
        scene.cache.write(DATA, number * 2 * BLOCK as u64, &block(number as u8 + 1), &other).unwrap();
    }
    scene.gate.await_arrivals(1);
    scene.cache.write(DATA, BLOCK as u64, &block(99), &WriteContext::current()).unwrap();
    let _critical = scene.tasks.enter(critical::current(), CriticalReason::Request);
    scene.cache.flush(DATA, &sync()).unwrap();
    scene.end(&[(0, 1), (1, 99), (14, 8)]);
}

#[test]
fn a_chain_of_lock_and_write_is_followed_to_its_end() {
    // Task 3 waits for its write to the slow device while it holds a lock; task 2 waits for that lock while it holds
    // another; a critical task then waits for that one.
    let scene = scene(AdmissionPolicy::CriticalProcessIo);
    let [outer, inner] = [0, 1].map(|_| CacheMutex::new_in(Arc::clone(&scene.tasks), ()));
    let (holds, held) = mpsc::channel();
    thread::scope(|threads| {
        let third = {
            let (scene, inner, holds) = (&scene, &inner, holds.clone());
            threads.spawn(move || {
                let guard = inner.lock();
                holds.send(()).unwrap();
                let ticket = scene.cache.write(DATA, 0, &block(1), &sync()).unwrap();
                scene.gate.await_arrivals(1);
                scene.cache.wait(&ticket, &sync()).unwrap();
                drop(guard);
            })
        };
        held.recv().unwrap();
        let second = threads.spawn(|| {
            let guard = outer.lock();
            holds.send(()).unwrap();
            drop(inner.lock());
            drop(guard);
        });
        held.recv().unwrap();
        scene.gate.await_arrivals(1);
        let _critical = scene.tasks.enter(critical::current(), CriticalReason::Request);
        drop(outer.lock());
        second.join().unwrap();
        third.join().unwrap();
    });
    assert_eq!(scene.cached(AdmissionReason::InheritedIo) + scene.cached(AdmissionReason::InheritedTask), 1);
    scene.end(&[(0, 1)]);
}

#[test]
fn a_task_that_promised_a_signal_inherits_from_those_that_wait_for_it() {
    let tasks = TaskGraph::new();
    let lock = CacheMutex::new_in(Arc::clone(&tasks), false);
    let condition = CacheCondvar::new_in(Arc::clone(&tasks));
    thread::scope(|threads| {
        let promise = condition.promise();
        threads.spawn(|| {
            let _critical = tasks.enter(critical::current(), CriticalReason::Request);
            let mut done = lock.lock();
            while !*done {
                done = condition.wait(done);
            }
        });
        while !tasks.criticality(critical::current()).inherited {
            thread::yield_now();
        }
        *lock.lock() = true;
        condition.notify_all();
        drop(promise);
    });
    // It gave the last signal, so it is guessed to give the next one; but no task waits.
    assert!(!tasks.criticality(critical::current()).any());
}

#[test]
fn a_task_that_is_declared_critical_while_it_waits_goes_on() {
    let scene = scene(AdmissionPolicy::CriticalProcessIo);
    let task = TaskId::external(42);
    let context = WriteContext { task, ..sync() };
    thread::scope(|threads| {
        let waiter = threads.spawn(|| {
            let ticket = scene.cache.write(DATA, 0, &block(1), &context).unwrap();
            scene.cache.wait(&ticket, &context).unwrap();
        });
        scene.gate.await_arrivals(1);
        let _critical = scene.tasks.enter(task, CriticalReason::Hint);
        waiter.join().unwrap();
    });
    scene.end(&[(0, 1)]);
}

#[test]
fn without_inheritance_a_critical_waiter_waits_for_the_slow_device() {
    let scene = scene(AdmissionPolicy::CriticalProcess);
    let other = WriteContext { task: TaskId::external(9), ..sync() };
    let ticket = scene.cache.write(DATA, 0, &block(1), &other).unwrap();
    scene.gate.await_arrivals(1);
    let done = AtomicBool::new(false);
    thread::scope(|threads| {
        threads.spawn(|| {
            let _critical = scene.tasks.enter(critical::current(), CriticalReason::Request);
            scene.cache.wait(&ticket, &sync()).unwrap();
            done.store(true, Ordering::SeqCst);
        });
        thread::sleep(Duration::from_millis(20));
        assert!(!done.load(Ordering::SeqCst));
        scene.gate.open();
    });
    assert_eq!(scene.cached(AdmissionReason::InheritedIo), 0);
    scene.end(&[(0, 1)]);
}

#[test]
fn circles_and_crowds_of_tasks_end_the_walk() {
    struct Count(std::sync::atomic::AtomicUsize);
    impl WaitCallback for Count {
        fn wake(&self) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }
    let tasks = TaskGraph::new();
    let resources: Vec<ResourceId> = (0..1200).map(|_| ResourceId::next()).collect();
    let task = |number: usize| TaskId::external(number as u32 + 1);
    let waker = Arc::new(Count(std::sync::atomic::AtomicUsize::new(0)));
    let mut kept = Vec::new();
    // Each task holds its resource and waits for the next one's, the last for the first's; one also waits for a write.
    for (number, resource) in resources.iter().enumerate() {
        kept.push(tasks.hold(task(number), *resource, false));
    }
    let mut blocked = vec![tasks.block(task(5), BlockedOn::Write(waker.clone())).0];
    for number in 0..resources.len() {
        let next = resources[(number + 1) % resources.len()];
        blocked.push(tasks.block(task(number), BlockedOn::Resource(next)).0);
    }
    assert!(!tasks.criticality(task(0)).any());
    let scope = tasks.enter(task(0), CriticalReason::Hint);
    assert_eq!(waker.0.load(Ordering::SeqCst), 1, "the write five tasks away was woken once");
    assert!(tasks.criticality(task(5)).inherited);
    drop(scope);
    assert!(!tasks.criticality(task(5)).any());
}

#[test]
fn a_lock_may_make_every_holder_critical() {
    let tasks = TaskGraph::new();
    let lock = CacheMutex::new_in(Arc::clone(&tasks), ()).always_critical();
    let guard = lock.lock();
    assert!(tasks.criticality(critical::current()).critical);
    drop(guard);
    assert!(!tasks.criticality(critical::current()).any());
}

#[test]
fn critical_tasks_that_keep_a_slow_device_busy_let_others_get_on() {
    let homes = Homes::new();
    let settings = config(AdmissionPolicy::CriticalProcessIo);
    let tasks = Arc::clone(&settings.tasks);
    let cache = homes.create(settings);
    let critical = WriteContext { task: TaskId::external(5), ..WriteContext::current() };
    let other = WriteContext { task: TaskId::external(6), ..WriteContext::current() };
    let _critical = tasks.enter(critical.task, CriticalReason::Request);
    let _using = cache.make_way(&critical);
    let done = AtomicBool::new(false);
    thread::scope(|threads| {
        threads.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                cache.write(LOG, 0, &block(1), &critical).unwrap();
                cache.flush_through(LOG, &critical).unwrap();
            }
        });
        let (told, hears) = mpsc::channel();
        let (cache, other) = (&cache, &other);
        threads.spawn(move || {
            cache.write(DATA, 0, &block(2), other).unwrap();
            cache.flush(DATA, other).unwrap();
            let _ = told.send(());
        });
        let got_on = hears.recv_timeout(Duration::from_secs(60));
        done.store(true, Ordering::Relaxed);
        got_on.unwrap();
    });
}

/// A file of four blocks on a slow device that is stuck.
fn scene_of_a_file() -> Scene {
    let homes = Homes::new();
    homes.slow.put("file", &[1; 4 * BLOCK]);
    let gate = IoGate::default();
    gate.close();
    let device = gate.before(homes.slow.open("file").unwrap());
    let file = VolumeSpec { id: DATA, device, growth: VolumeLength::Growable };
    let settings = CacheConfig { issuers: 2, linger: Duration::ZERO, ..config(AdmissionPolicy::CriticalProcessIo) };
    let tasks = Arc::clone(&settings.tasks);
    let cache = WriteCache::create(homes.fast(), &[file], settings).unwrap();
    Scene { homes, tasks, gate, cache }
}

#[test]
fn a_critical_truncation_does_not_wait_for_a_slow_device_that_is_stuck() {
    let Scene { homes, tasks, gate, cache } = scene_of_a_file();
    let scope = tasks.enter(critical::current(), CriticalReason::Request);
    cache.write(DATA, 0, &block(2), &sync()).unwrap();
    // Within a block that only the device has, then behind it, then back.
    for len in [2 * BLOCK as u64 + 100, 9000, 100] {
        cache.set_len(DATA, len, &sync()).unwrap();
        cache.flush(DATA, &sync()).unwrap();
    }
    cache.write(DATA, 3 * BLOCK as u64, &[3; 10], &sync()).unwrap();
    cache.flush(DATA, &sync()).unwrap();
    let wanted = [vec![2; 100], vec![0; 3 * BLOCK - 100], vec![3; 10]].concat();
    assert!(wcache::read_all(&cache, DATA) == wanted);
    // The next program finds the same, whatever of it the device has.
    let after = homes.fast.after_power_cut(PowerCut::LoseAll).open("fast").unwrap();
    let file = homes.slow.after_power_cut(PowerCut::LoseAll).open("file").unwrap();
    let file = VolumeSpec { id: DATA, device: file, growth: VolumeLength::Growable };
    let again = WriteCache::open(after, &[file], config(AdmissionPolicy::CriticalProcessIo)).unwrap();
    assert!(wcache::read_all(&again, DATA) == wanted);
    drop(scope);
    gate.open();
    cache.drain().unwrap();
    assert!(homes.slow.bytes("file").unwrap() == wanted);
}

#[test]
fn what_was_under_way_when_it_was_cut_off_is_not_there_when_the_file_grows_again() {
    let Scene { homes, tasks, gate, cache } = scene_of_a_file();
    let other = WriteContext { task: TaskId::external(9), ..sync() };
    cache.write(DATA, 2 * BLOCK as u64, &[vec![7; BLOCK], block(7)].concat(), &other).unwrap();
    gate.await_arrivals(1);
    let scope = tasks.enter(critical::current(), CriticalReason::Request);
    cache.write(DATA, 0, &block(2), &sync()).unwrap();
    cache.set_len(DATA, BLOCK as u64, &sync()).unwrap();
    cache.write(DATA, 5 * BLOCK as u64, &block(3), &sync()).unwrap();
    cache.flush(DATA, &sync()).unwrap();
    let wanted = [block(2), vec![0; 4 * BLOCK], block(3)].concat();
    assert!(wcache::read_all(&cache, DATA) == wanted);
    drop(scope);
    gate.open();
    cache.drain().unwrap();
    assert!(wcache::read_all(&cache, DATA) == wanted);
    assert!(homes.slow.bytes("file").unwrap() == wanted);
}
