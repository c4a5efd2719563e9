//! The steps of `test`: their names, what each does, and which of them look at the source only.
//!
//! Relies on the steps being independent, apart from the packages and the release build, which come early and whose outcome
//! the later ones find in [`World`].

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use anyhow::bail;

use crate::steps::{self, Tally, cargo};
use crate::{c_api, docs, layers, licences, load, loom, output, package, packages, peers, tidy};

const MINUTE: Duration = Duration::from_secs(60);
/// Where property tests find the seed of their inputs; without it each run has another.
const PROPERTY_SEED: &str = "PROPTEST_RNG_SEED";
/// The fuzz targets are run on so many times the inputs that `cargo test` tries. A number and not a time: what a slow machine finds a fast one finds.
const FUZZ_TIMES: &str = "10";
/// Where cargo's tests find how many of them run at a time. Most tests wait for a process, a disk or a clock, so there are more than processors.
const TEST_THREADS: &str = "RUST_TEST_THREADS";
const TESTS_PER_PROCESSOR: usize = 2;
/// Folders of Python tests, the worker that runs them, and how long one file of each may take.
const FOLDERS: [(&str, Worker, Duration); 8] = [
    ("tests/clients", Worker::Servers, Duration::from_secs(180)),
    ("tests/compat", Worker::Servers, Duration::from_secs(300)),
    ("tests/docs", Worker::Servers, Duration::from_secs(180)),
    ("tests/crash", Worker::Servers, Duration::from_secs(300)),
    ("tests/preload", Worker::Libraries, Duration::from_secs(300)),
    ("tests/sqlite", Worker::Libraries, Duration::from_secs(300)),
    ("tests/redis_mdc", Worker::Libraries, MINUTE),
    ("tests/package", Worker::Servers, Duration::from_secs(900)),
];

/// A thread that runs steps in their order, beside the other workers. Most of these steps wait most of the time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Worker {
    /// Tests of servers from outside, and the fuzz targets.
    Servers,
    /// Tests of the libraries.
    Libraries,
    /// Benches: no two run at a time.
    Benches,
}

impl Worker {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Servers, Self::Libraries, Self::Benches];
}

/// What earlier steps have found out for later ones.
#[derive(Clone, Default)]
pub struct World {
    /// What property tests and fuzz targets draw their inputs from: the run's number, so that a change passes or fails alike
    /// each time, and many runs in a row try other inputs.
    pub seed: u64,
    /// The packages are not there.
    lacks_packages: bool,
    /// How the release build ended, if there was one.
    build: Option<Result<PathBuf, ()>>,
}

impl World {
    /// The release binary, for a step that needs the packages, too.
    fn quire(&self) -> anyhow::Result<PathBuf> {
        if self.lacks_packages {
            bail!("not run: packages are missing");
        }
        match &self.build {
            Some(Ok(path)) => Ok(path.clone()),
            Some(Err(())) => bail!("not run: the release build failed"),
            // Of an earlier call, for `--only`.
            None => steps::binary(),
        }
    }
}

type Work = Box<dyn Fn(&mut World) -> anyhow::Result<Tally> + Send + Sync>;

/// A step.
pub struct Step {
    /// What it is called in the summary, and by `--only`.
    pub name: String,
    /// It looks at the source, so a second time tells nothing new.
    pub is_static: bool,
    /// Which worker runs it; without one it runs alone.
    pub worker: Option<Worker>,
    work: Work,
}

impl Step {
    fn new(
        name: impl Into<String>,
        work: impl Fn(&mut World) -> anyhow::Result<Tally> + Send + Sync + 'static,
    ) -> Self {
        Self { name: name.into(), is_static: false, worker: None, work: Box::new(work) }
    }

    /// The same step, run by `worker` beside the steps of the others.
    fn by(self, worker: Worker) -> Self {
        Self { worker: Some(worker), ..self }
    }

    /// A step that passes or fails as one and looks at the source only.
    fn check(name: &str, work: impl Fn() -> anyhow::Result<()> + Send + Sync + 'static) -> Self {
        Self { is_static: true, ..Self::new(name, move |_| work().map(|()| Tally::one())) }
    }

    /// A step with the release binary.
    fn with_binary(
        name: impl Into<String>,
        work: impl Fn(&std::path::Path) -> anyhow::Result<Tally> + Send + Sync + 'static,
    ) -> Self {
        Self::new(name, move |world| work(&world.quire()?))
    }

    /// Does it; what can't be done counts as one failure.
    pub fn run(&self, world: &mut World) -> Tally {
        (self.work)(world).unwrap_or_else(|error| {
            output::line(format_args!("{error:#}"));
            Tally::one_failure(&format!("{}: {error:#}", self.name))
        })
    }
}

/// All steps in their order.
pub fn steps() -> anyhow::Result<Vec<Step>> {
    let mut all = vec![
        Step {
            is_static: true,
            ..Step::new("packages", |world| {
                let done = packages::ensure();
                world.lacks_packages = done.is_err();
                done.map(|()| Tally::one())
            })
        },
        Step::check("format", || succeed(cargo_with(&["fmt", "--all", "--check"]), MINUTE)),
        Step::check("clippy", || {
            succeed(cargo_with(&["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"]), 15 * MINUTE)
        }),
        Step::check("layers", layers::run),
        Step::check("tidy", tidy::run),
        Step::check("API documentation", documentation),
        Step::check("licences", || licences::run(&licences::Choice::default())),
        Step::new("cargo test", cargo_test),
        Step::new("loom", |_| loom::run(20 * MINUTE)),
        Step {
            is_static: true,
            ..Step::new("release build", |world| {
                let built = steps::release_binary();
                world.build = Some(built.as_ref().map(Clone::clone).map_err(|_| ()));
                built.map(|_| Tally::one())
            })
        },
        Step::check("docs --check", || docs::run(true, None)),
        Step::new("C API", |_| c_api::run()).by(Worker::Libraries),
    ];
    for (folder, worker, limit) in FOLDERS {
        for file in peers::python_files(folder)? {
            let step = Step::with_binary(file.display().to_string(), move |quire| match package::lacks(&file) {
                Some(what) => Ok(Tally::one_skip(&file.display().to_string(), &what)),
                None => peers::python(&file, quire, limit),
            });
            all.push(step.by(worker));
        }
    }
    all.push(Step::with_binary("measure", peers::measure).by(Worker::Benches));
    for experiment in peers::EXPERIMENTS {
        let name = format!("bench {} --quick", experiment.name);
        all.push(Step::with_binary(name, |quire| peers::bench_shape(quire, experiment)).by(Worker::Benches));
    }
    let fuzz = Step::new("fuzz smoke", |world| {
        let mut command = Command::new(steps::smoke_binary()?);
        command.args(["all", "--times", FUZZ_TIMES, "--seed", &world.seed.to_string()]);
        steps::run(command, 20 * MINUTE)
    });
    all.push(fuzz.by(Worker::Servers));
    Ok(all)
}

fn cargo_test(world: &mut World) -> anyhow::Result<Tally> {
    let mut command = cargo_with(&["test", "--workspace", "--no-fail-fast"]);
    let threads = TESTS_PER_PROCESSOR * load::processors();
    for (name, value) in [(PROPERTY_SEED, world.seed.to_string()), (TEST_THREADS, threads.to_string())] {
        if std::env::var_os(name).is_none() {
            command.env(name, value);
        }
    }
    // Two free cores compile and run the tests in less than 17 minutes; those of a busy machine take twice as long.
    steps::run(command, 45 * MINUTE)
}

/// The documentation of all crates has no link that leads nowhere, and no other warning.
fn documentation() -> anyhow::Result<()> {
    let mut command = cargo_with(&["doc", "--workspace", "--no-deps"]);
    command.env("RUSTDOCFLAGS", "-D warnings");
    succeed(command, 15 * MINUTE)
}

fn cargo_with(words: &[&str]) -> Command {
    let mut command = cargo();
    command.args(words);
    command
}

fn succeed(command: Command, limit: Duration) -> anyhow::Result<()> {
    if steps::run(command, limit)?.failed == 0 { Ok(()) } else { bail!("see above") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_build_leaves_no_binary_to_test_with() {
        let broken = World { build: Some(Err(())), ..World::default() };
        assert!(broken.quire().unwrap_err().to_string().contains("release build failed"));
        let bare = World { lacks_packages: true, build: Some(Ok("/bin/true".into())), ..World::default() };
        assert!(bare.quire().unwrap_err().to_string().contains("packages"));
    }
}
