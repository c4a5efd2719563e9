//! The rounds, over a fake sight and without a thread.

use super::probe::ProbeResult;
use super::*;
use crate::criticality::classifier::VerdictSource;
use quire_writecache::TaskGraph;

/// What is to be seen, by thread; every thread below 100 is critical.
#[derive(Default)]
struct Scene(Mutex<HashMap<u32, ProbeResult>>);

impl ThreadProbe for Scene {
    fn look(&self, thread: u32) -> ProbeResult {
        self.0.lock().unwrap().get(&thread).copied().unwrap_or(ProbeResult::Elsewhere)
    }

    fn caller(&self, thread: u32) -> RequestTask {
        caller(thread)
    }
}

fn caller(thread: u32) -> RequestTask {
    let verdict = match thread {
        ..100 => CriticalityDecision::Critical,
        100..200 => CriticalityDecision::Log,
        _ => CriticalityDecision::Normal,
    };
    RequestTask { task: TaskId::external(thread), verdict, source: VerdictSource::Rule }
}

const CRITICAL: u32 = 7;
const WRITER: u32 = 107;
const HOLDER: u32 = 207;
const DATA: FileOperation = FileOperation { file: 50, is_log: false, holds_lock: true };
const LOG: FileOperation = FileOperation { file: 60, is_log: true, holds_lock: true };
const READ: FileOperation = FileOperation { file: 50, is_log: false, holds_lock: false };

struct Stage {
    scene: Arc<Scene>,
    lock_waits: LockWaitDetector,
}

impl Stage {
    /// Rounds are made by the test alone.
    fn new() -> Self {
        let scene = Arc::<Scene>::default();
        let lock_waits = LockWaitDetector::new(
            Arc::new(CriticalityGraph::new(TaskGraph::new())),
            Arc::clone(&scene) as Arc<dyn ThreadProbe>,
        );
        lock_waits.shared.state().started = true;
        Self { scene, lock_waits }
    }

    fn serve(&self, thread: u32, operation: FileOperation) -> ServedRequest {
        self.lock_waits.serve(&caller(thread), operation)
    }

    /// A request that takes long already.
    fn serve_long(&self, thread: u32, operation: FileOperation) -> ServedRequest {
        let served = self.serve(thread, operation);
        let mut state = self.lock_waits.shared.state();
        let request = served.request.and_then(|number| state.requests.get_mut(&number));
        request.unwrap().began = Instant::now().checked_sub(LONG).unwrap();
        drop(state);
        served
    }

    fn see(&self, thread: u32, seen: ProbeResult) {
        self.scene.0.lock().unwrap().insert(thread, seen);
    }

    /// Whether a thread inherits after another round.
    fn inherits(&self, thread: u32) -> bool {
        self.lock_waits.shared.round();
        self.stands(thread)
    }

    fn stands(&self, thread: u32) -> bool {
        self.lock_waits.shared.graph.tasks.criticality(TaskId::external(thread)).inherited
    }
}

#[test]
fn who_holds_a_files_lock_inherits_from_the_critical_thread_that_sleeps_on_it() {
    let stage = Stage::new();
    drop(stage.serve(CRITICAL, READ));
    let held = stage.serve_long(HOLDER, DATA);
    assert!(!stage.inherits(HOLDER));
    stage.see(CRITICAL, ProbeResult::AtFile(LOG.file));
    assert!(!stage.inherits(HOLDER), "another file's lock");
    stage.see(CRITICAL, ProbeResult::AtFile(DATA.file));
    assert!(stage.inherits(HOLDER) && stage.inherits(HOLDER));
    assert_eq!(stage.lock_waits.figures().inherited, 1);
    drop(held);
    assert!(!stage.stands(HOLDER) && !stage.inherits(HOLDER));
    assert!(!stage.lock_waits.shared.graph.tasks.criticality(TaskId::external(CRITICAL)).critical);
}

#[test]
fn a_sleeper_that_moves_on_ends_it_and_the_next_one_takes_its_place() {
    let stage = Stage::new();
    for thread in [CRITICAL, CRITICAL + 1] {
        drop(stage.serve(thread, READ));
        stage.see(thread, ProbeResult::AtFile(DATA.file));
    }
    let _held = stage.serve_long(HOLDER, DATA);
    assert!(stage.inherits(HOLDER));
    stage.see(CRITICAL, ProbeResult::Elsewhere);
    assert!(!stage.inherits(HOLDER) && stage.inherits(HOLDER));
    stage.see(CRITICAL + 1, ProbeResult::Gone);
    assert!(!stage.inherits(HOLDER));
    assert!(!stage.lock_waits.shared.state().threads.contains_key(&(CRITICAL + 1)));
}

#[test]
fn only_long_requests_of_tasks_that_no_task_helps_yet_are_looked_at() {
    let stage = Stage::new();
    drop(stage.serve(CRITICAL, READ));
    stage.see(CRITICAL, ProbeResult::AtFile(DATA.file));
    let _helped = stage.serve(CRITICAL + 1, DATA);
    let _reads = stage.serve(HOLDER, READ);
    let _new = stage.serve(HOLDER, DATA);
    stage.lock_waits.shared.state().requests.values_mut().for_each(|request| {
        request.began += Duration::from_secs(60);
    });
    assert!(!stage.inherits(HOLDER));
    assert_eq!(stage.lock_waits.figures(), LockWaitStats::default());
}

#[test]
fn a_thread_that_is_being_served_sleeps_on_no_lock() {
    let stage = Stage::new();
    stage.see(CRITICAL, ProbeResult::AtFile(DATA.file));
    let _held = stage.serve_long(HOLDER, DATA);
    let served = stage.serve(CRITICAL, LOG);
    assert!(!stage.inherits(HOLDER));
    drop(served);
    assert!(stage.inherits(HOLDER));
}

#[test]
fn a_thread_that_has_only_opened_a_file_is_judged_when_it_sleeps() {
    let stage = Stage::new();
    stage.lock_waits.opens(HOLDER + 1);
    stage.see(HOLDER + 1, ProbeResult::AtFile(DATA.file));
    let _held = stage.serve_long(HOLDER, DATA);
    assert!(!stage.inherits(HOLDER));
    assert!(stage.lock_waits.shared.state().threads.is_empty(), "no critical thread");
    stage.lock_waits.opens(CRITICAL);
    stage.see(CRITICAL, ProbeResult::AtFile(DATA.file));
    assert!(stage.inherits(HOLDER));
}

#[test]
fn a_task_that_counts_at_a_log_only_sleeps_and_holds_accordingly() {
    let stage = Stage::new();
    for operation in [DATA, LOG] {
        drop(stage.serve(WRITER, READ));
        stage.see(WRITER, ProbeResult::AtFile(operation.file));
        let _held = stage.serve_long(HOLDER, operation);
        assert_eq!(stage.inherits(HOLDER), operation.is_log);
    }
    assert!(stage.serve(WRITER, LOG).request.is_none());
    drop(stage.serve(CRITICAL, READ));
    stage.see(CRITICAL, ProbeResult::AtFile(DATA.file));
    let _held = stage.serve_long(WRITER, DATA);
    assert!(stage.inherits(WRITER));
}

#[test]
fn a_thread_of_which_the_system_tells_nothing_is_asked_about_once() {
    let stage = Stage::new();
    drop(stage.serve(CRITICAL, READ));
    stage.see(CRITICAL, ProbeResult::Refused);
    let _held = stage.serve_long(HOLDER, DATA);
    assert!(!stage.inherits(HOLDER) && !stage.inherits(HOLDER));
    assert_eq!((stage.lock_waits.figures().refused, stage.lock_waits.figures().looks), (1, 1));
}

#[test]
fn rounds_are_bounded_and_every_thread_has_a_turn() {
    let stage = Stage::new();
    for thread in 1..100 {
        drop(stage.serve(thread, READ));
    }
    for thread in 1000..1000 + 2 * MOST as u32 {
        stage.lock_waits.opens(thread);
    }
    assert_eq!(stage.lock_waits.shared.state().threads.len(), MOST);
    let last = 1000 + 2 * MOST as u32 - 1;
    stage.see(last, ProbeResult::AtFile(DATA.file));
    let _held = stage.serve_long(HOLDER, DATA);
    for _ in 0..MOST / LOOKS {
        stage.lock_waits.shared.round();
    }
    assert_eq!(stage.lock_waits.figures().looks, MOST as u64);
    assert!(!stage.lock_waits.shared.state().threads.contains_key(&last), "it was found, and classified");
}

#[test]
fn the_one_who_looks_sleeps_while_nothing_is_written() {
    let stage = Stage::new();
    drop(stage.serve(HOLDER, DATA));
    while stage.lock_waits.shared.round().is_some() {}
    assert!(stage.lock_waits.shared.state().asleep);
    let _served = stage.serve(HOLDER, DATA);
    assert!(!stage.lock_waits.shared.state().asleep);
}
