//! The log against a simple model: whatever is appended, covered and restarted, what is read back is what was acknowledged,
//! in order, without phantoms; whenever the power goes.

use std::sync::Arc;

use proptest::prelude::*;
use quire_device::{Directory, MemoryDirectory, PowerCut};
use quire_wal::{Log, LogError, SyncPolicy};

use crate::common::{append, base, durable, read, start};

/// What a test does with a log.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// Adds a record with a value of so many bytes.
    Append(usize),
    /// Hands over, and waits for the device.
    Commit,
    /// An image holds everything up to now.
    Cover,
    /// Ends the log and begins again behind what is read back.
    Restart,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => (0usize..3000).prop_map(Step::Append),
        1 => (20_000usize..70_000).prop_map(Step::Append),
        4 => Just(Step::Commit),
        1 => Just(Step::Cover),
        1 => Just(Step::Restart),
    ]
}

/// What must be found afterwards.
#[derive(Clone, Debug, Default)]
struct Model {
    /// Length of each record's value, from record 1 on.
    lens: Vec<usize>,
    /// The last record that the client was told is durable.
    acknowledged: u64,
    /// The last record that the image holds.
    position: u64,
}

impl Model {
    fn len(&self, sequence: u64) -> usize {
        self.lens[sequence as usize - 1]
    }
}

/// Does the steps as far as the device goes along.
fn drive(directory: &Arc<dyn Directory>, sync: SyncPolicy, steps: &[Step], model: &mut Model) -> Result<(), LogError> {
    let mut log = start(directory, sync, model.lens.len() as u64)?;
    for step in steps {
        match *step {
            Step::Append(len) => {
                if append(&mut log, len).is_some() {
                    model.lens.push(len);
                }
            }
            Step::Commit => commit(&mut log, model)?,
            Step::Cover => {
                commit(&mut log, model)?;
                model.position = log.durable();
                log.cover(model.position);
            }
            Step::Restart => {
                log.finish()?;
                model.acknowledged = model.lens.len() as u64;
                check(&**directory, model)?;
                log = start(directory, sync, model.lens.len() as u64)?;
            }
        }
    }
    log.finish()?;
    model.acknowledged = model.lens.len() as u64;
    Ok(())
}

fn commit(log: &mut Log, model: &mut Model) -> Result<(), LogError> {
    log.commit();
    log.hurry();
    if durable(log, log.appended()) {
        model.acknowledged = log.appended();
        return Ok(());
    }
    Err(log.failure().cloned().expect("it has failed"))
}

/// Reads the log back: an unbroken row from behind the image to at least what was acknowledged. Returns where it ends.
fn check(directory: &dyn Directory, model: &Model) -> Result<u64, LogError> {
    let (found, recovered) = read(directory, base(model.position), |sequence| model.len(sequence))?;
    let end = found.last().copied().unwrap_or(model.position);
    assert_eq!(found, (model.position + 1..=end).collect::<Vec<_>>());
    assert!(end >= model.acknowledged && end <= model.lens.len() as u64, "{end} {model:?}");
    assert_eq!(recovered.next_sequence, end + 1);
    Ok(end)
}

fn sync() -> impl Strategy<Value = SyncPolicy> {
    prop_oneof![Just(SyncPolicy::Always), Just(SyncPolicy::EverySecond), Just(SyncPolicy::Never)]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn what_was_appended_is_read_back(sync in sync(), steps in prop::collection::vec(step(), 1..60)) {
        let directory: Arc<dyn Directory> = Arc::new(MemoryDirectory::new());
        let mut model = Model::default();
        drive(&directory, sync, &steps, &mut model).unwrap();
        prop_assert_eq!(check(&*directory, &model).unwrap(), model.lens.len() as u64);
    }

    #[test]
    fn a_power_cut_loses_nothing_that_was_acknowledged(
        steps in prop::collection::vec(step(), 1..40),
        after in prop::collection::vec(step(), 1..20),
        at in any::<prop::sample::Index>(),
        seed: u64,
    ) {
        // How many steps it takes when the power stays.
        let rehearsal = MemoryDirectory::new();
        let directory: Arc<dyn Directory> = Arc::new(rehearsal.clone());
        drive(&directory, SyncPolicy::Always, &steps, &mut Model::default()).unwrap();
        let memory = MemoryDirectory::new();
        memory.power_off_at(at.index(rehearsal.steps() as usize + 1) as u64);
        let directory: Arc<dyn Directory> = Arc::new(memory.clone());
        let mut model = Model::default();
        // It ends when the power does.
        let _ = drive(&directory, SyncPolicy::Always, &steps, &mut model);
        for cut in [PowerCut::LoseAll, PowerCut::KeepAll, PowerCut::KeepSome(seed)] {
            let found = memory.after_power_cut(cut);
            let mut model = model.clone();
            let end = check(&found, &model).unwrap();
            // Once more from there: what was cut off must not come back, nor be in the way.
            model.lens.truncate(end as usize);
            model.acknowledged = end;
            let directory: Arc<dyn Directory> = Arc::new(found.clone());
            drive(&directory, SyncPolicy::Always, &after, &mut model).unwrap();
            prop_assert_eq!(check(&found, &model).unwrap(), model.lens.len() as u64);
        }
    }
}

/// Fixed steps that rotate, cover and reuse segments, with the power cut at every single step of the device.
#[test]
fn the_power_may_go_at_every_step() {
    let mut steps = Vec::new();
    for round in 0..4 {
        for number in 0..12 {
            steps.push(Step::Append(number * 700 + round));
            steps.push(Step::Commit);
        }
        steps.push(Step::Cover);
    }
    let rehearsal = MemoryDirectory::new();
    let directory: Arc<dyn Directory> = Arc::new(rehearsal.clone());
    drive(&directory, SyncPolicy::Always, &steps, &mut Model::default()).unwrap();
    for at in 0..rehearsal.steps() {
        let memory = MemoryDirectory::new();
        memory.power_off_at(at);
        let directory: Arc<dyn Directory> = Arc::new(memory.clone());
        let mut model = Model::default();
        let _ = drive(&directory, SyncPolicy::Always, &steps, &mut model);
        for cut in [PowerCut::LoseAll, PowerCut::KeepAll, PowerCut::KeepSome(at), PowerCut::KeepSome(at + 1000)] {
            check(&memory.after_power_cut(cut), &model).unwrap();
        }
    }
}
