//! `quire doctor --preload PROGRAM`: whether `libquire_preload.so` can work in a program, and how to start it then.
//!
//! Relies on [`crate::program`] for what the program is, and on trying the kernel's part here.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use quire_bench::forkers::library;
use quire_sys::helper::HostProcess;
use quire_sys::mem::{PAGE_SIZE, Reservation};
use quire_sys::pagemap::{Pagemap, PagemapEntry};
use quire_sys::probe::{self, Feature, FeatureState};
use serde_json::json;

use crate::program::{self, ProgramFile, ProgramKind};

/// What was found, in lines for people.
#[derive(Debug, PartialEq, Eq)]
struct Verdict {
    /// Whether it can work.
    works: bool,
    /// Why, or why not.
    reasons: Vec<String>,
    /// What to do; the exact command if it works.
    advice: String,
}

/// Prints the verdict on `name`; the exit code is 1 if it can't work.
pub fn run(name: &Path, as_json: bool) -> anyhow::Result<ExitCode> {
    let program = program::inspect(name)?;
    let verdict = judge(name, &program, kernel(), library::find());
    if as_json {
        let value = json!({
            "program": program.path,
            "works": verdict.works,
            "reasons": verdict.reasons,
            "advice": verdict.advice,
        });
        quire_sys::outln!("{value}")?;
    } else {
        quire_sys::outln!("{} {}", if verdict.works { "works  " } else { "can't  " }, program.path.display())?;
        for reason in &verdict.reasons {
            quire_sys::outln!("         {reason}")?;
        }
        quire_sys::outln!("         {}", verdict.advice)?;
    }
    Ok(if verdict.works { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn judge(name: &Path, program: &ProgramFile, kernel: Result<(), String>, library: Option<PathBuf>) -> Verdict {
    let mut reasons: Vec<String> = Vec::new();
    for script in &program.scripts {
        reasons.push(format!("{} is a script; what counts is its interpreter", script.display()));
    }
    let refused = |mut reasons: Vec<String>, why: &str, advice: &str| {
        reasons.push(why.to_owned());
        Verdict { works: false, reasons, advice: advice.to_owned() }
    };
    let (linker, calls_fork, allocates) = match &program.kind {
        ProgramKind::Dynamic { go: true, .. } => {
            let why = "a Go program: its runtime makes system calls itself, so its forks can't be noticed";
            return refused(reasons, why, "Go programs start others without copying their memory; nothing is lost");
        }
        ProgramKind::Dynamic { linker, calls_fork, allocates, .. } => (linker, *calls_fork, *allocates),
        ProgramKind::Static { go: true } => {
            let why = "a statically linked Go program: no dynamic linker takes part in its start";
            return refused(reasons, why, "Go programs start others without copying their memory; nothing is lost");
        }
        ProgramKind::Static { go: false } => {
            let why = "statically linked: no dynamic linker takes part in its start, so no library can be preloaded";
            return refused(reasons, why, "use a dynamically linked build, such as your distribution's package");
        }
        ProgramKind::OtherProcessor => {
            let why = "built for another kind of processor than the library";
            return refused(reasons, why, "use a build of this machine's architecture");
        }
        ProgramKind::Unknown => {
            return refused(reasons, "not a program (neither ELF nor a #! script)", "name the program itself");
        }
    };
    if linker.contains("ld-musl") {
        let why = format!("linked with musl ({linker}); the library is built for glibc");
        return refused(reasons, &why, "use a glibc build, such as Debian's package or image instead of Alpine's");
    }
    if let Some(how) = program.privileged {
        let why = format!("it gets privileges by {how}, and the dynamic linker ignores LD_PRELOAD for such programs");
        return refused(reasons, &why, "start it as the user it shall run as, without those privileges on the file");
    }
    if let Err(why) = kernel {
        return refused(reasons, &why, "Linux 5.14 or later is needed, with /proc mounted");
    }
    reasons.push(format!("dynamically linked with glibc ({linker})"));
    reasons.push(match calls_fork {
        true => "it calls fork".to_owned(),
        false => "it does not call fork itself; that helps only if one of its libraries does".to_owned(),
    });
    reasons.push(heap(allocates, &probe::faults_of_calls()));
    match library {
        Some(library) => {
            let advice = format!("LD_PRELOAD={} {} …", quoted(&library), quoted(name));
            Verdict { works: true, reasons, advice }
        }
        None => {
            let places: Vec<String> = library::places().iter().map(|path| path.display().to_string()).collect();
            let why = format!("{} was not found (looked at {})", library::NAME, places.join(", "));
            refused(reasons, &why, library::HOW_TO_BUILD)
        }
    }
}

/// Whether the program's heap can lie on a file.
fn heap(allocates: bool, faults: &Feature) -> String {
    match (allocates, faults.state) {
        (true, _) => "its heap can't lie on a file (QUIRE_HEAP): it brings an allocator of its own".to_owned(),
        (false, FeatureState::Works) => "its heap can lie on a file: QUIRE_HEAP=PATH:SIZE:POOL".to_owned(),
        (false, _) => format!("its heap can't lie on a file (QUIRE_HEAP): {}; {}", faults.detail, faults.advice),
    }
}

/// The kernel's part: copying ahead, and telling which pages are shared.
fn kernel() -> Result<(), String> {
    let page = Reservation::new(PAGE_SIZE).and_then(|memory| {
        memory.commit(0..PAGE_SIZE)?;
        memory.populate(0..PAGE_SIZE)?;
        Ok(memory)
    });
    let page = page.map_err(|error| format!("the kernel has no MADV_POPULATE_WRITE: {error}"))?;
    let mut word = [0];
    Pagemap::open(None)
        .and_then(|map| map.read_words(page.base() as usize, &mut word))
        .map_err(|error| format!("/proc/self/pagemap can't be read: {error}"))?;
    if !PagemapEntry::is_exclusive(word[0]) {
        return Err("/proc/self/pagemap doesn't tell who maps a page".into());
    }
    match HostProcess::of_caller() {
        Some(_) => Ok(()),
        None => Err("the kernel doesn't tell where a thread's end is noted (CONFIG_CHECKPOINT_RESTORE)".into()),
    }
}

/// A path as a shell takes it.
fn quoted(path: &Path) -> String {
    let text = path.display().to_string();
    let plain = |letter: char| letter.is_ascii_alphanumeric() || "/._-+=:,@%".contains(letter);
    if !text.is_empty() && text.chars().all(plain) { text } else { format!("'{}'", text.replace('\'', r"'\''")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn program(kind: ProgramKind) -> ProgramFile {
        ProgramFile { path: "/usr/bin/x".into(), scripts: Vec::new(), kind, privileged: None }
    }

    fn dynamic(linker: &str) -> ProgramKind {
        ProgramKind::Dynamic { linker: linker.into(), calls_fork: true, allocates: false, go: false }
    }

    fn judged(program: &ProgramFile) -> Verdict {
        judge(Path::new("x"), program, Ok(()), Some("/opt/my lib/libquire_preload.so".into()))
    }

    #[test]
    fn a_glibc_program_gets_its_command_line() {
        let verdict = judged(&program(dynamic("/lib64/ld-linux-x86-64.so.2")));
        assert!(verdict.works);
        assert_eq!(verdict.advice, "LD_PRELOAD='/opt/my lib/libquire_preload.so' x …");
    }

    #[test]
    fn what_cannot_work_is_refused_with_a_reason() {
        let privileged = ProgramFile { privileged: Some("setuid"), ..program(dynamic("/lib64/ld-linux-x86-64.so.2")) };
        for (program, word) in [
            (program(ProgramKind::Static { go: false }), "statically linked"),
            (program(ProgramKind::Static { go: true }), "Go program"),
            (
                program(ProgramKind::Dynamic { linker: "/l".into(), calls_fork: false, allocates: false, go: true }),
                "Go program",
            ),
            (program(dynamic("/lib/ld-musl-x86_64.so.1")), "musl"),
            (program(ProgramKind::OtherProcessor), "another kind of processor"),
            (program(ProgramKind::Unknown), "not a program"),
            (privileged, "setuid"),
        ] {
            let verdict = judged(&program);
            assert!(!verdict.works && verdict.reasons.iter().any(|reason| reason.contains(word)), "{verdict:?}");
            assert!(!verdict.advice.is_empty());
        }
    }

    #[test]
    fn a_missing_library_or_kernel_is_named() {
        let program = program(dynamic("/lib64/ld-linux-x86-64.so.2"));
        let verdict = judge(Path::new("x"), &program, Ok(()), None);
        assert!(!verdict.works && verdict.advice.contains("cargo build"), "{verdict:?}");
        let verdict = judge(Path::new("x"), &program, Err("too old".into()), None);
        assert!(!verdict.works && verdict.reasons.contains(&"too old".to_owned()), "{verdict:?}");
        assert_eq!(kernel(), Ok(()));
    }

    #[test]
    fn whether_a_heap_can_lie_on_a_file_is_told() {
        let faults = |state| Feature { name: "", state, detail: "forbidden".into(), advice: "be root" };
        assert!(heap(false, &faults(FeatureState::Works)).contains("PATH:SIZE:POOL"));
        assert!(heap(true, &faults(FeatureState::Works)).contains("allocator of its own"));
        assert!(heap(false, &faults(FeatureState::Missing)).ends_with("forbidden; be root"));
    }

    #[test]
    fn paths_are_quoted_for_the_shell() {
        assert_eq!(quoted(Path::new("/a/b-1.so")), "/a/b-1.so");
        assert_eq!(quoted(Path::new("it's")), r"'it'\''s'");
    }
}
