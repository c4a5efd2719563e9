//! `C API`: the tests in C and the examples, compiled against an installed library, and run.
//!
//! Relies on `cc`, which Rust links with, too. What needs `c++`, the address sanitizer or `nm` is skipped where they are not. Test
//! programs close with `N passed, N failed, N skipped`.

use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, bail};

use crate::install::{self, Places};
use crate::output;
use crate::packages::on_path;
use crate::steps::{self, Tally};

const TESTS: &str = "crates/capi/tests/c";
const EXAMPLE: &str = "crates/capi/examples/table.c";
const WARNINGS: &[&str] = &["-Wall", "-Wextra", "-Werror"];
const SANITIZER: &[&str] = &["-fsanitize=address,undefined", "-fno-sanitize-recover", "-fno-omit-frame-pointer"];
const COUNT_EXAMPLE: &str = "crates/capi/examples/count.c";
/// What it counts the words of.
const TEXT: &str = "ARCHITECTURE.md";
/// Mechanisms that the example of snapshots is run with: those that work everywhere. The tests try all that work here.
const EXAMPLES: &[&str] = &["best", "memcpy"];
const LIMIT: Duration = Duration::from_secs(300);

/// A program that saves a table by forking: as programs do it, and with libquire.
const TABLES: &[&str] = &["examples/c/table_fwrite.c", "examples/c/table_mdc.c"];
const TABLE_ENTRIES: &str = "20000";
/// How often the program is killed in the midst of its saves.
const TABLE_KILLS: usize = 10;

/// How programs get at the library.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Link {
    Shared,
    Static,
}

/// A place to compile in.
struct Workshop {
    prefix: PathBuf,
    programs: PathBuf,
}

/// Builds, installs, compiles and runs all of it.
pub fn run() -> anyhow::Result<Tally> {
    steps::release_binary()?;
    let folder = steps::target_dir()?.join("c-api");
    let workshop = Workshop { prefix: folder.join("prefix"), programs: folder.join("programs") };
    std::fs::create_dir_all(&workshop.programs)?;
    install::library(&Places::below(workshop.prefix.clone()))?;
    let mut total = Tally::default();
    let mut add = |tally: Tally| total += tally;
    add(as_one("the header in all dialects of C", workshop.check_header()));
    add(where_there_is("c++", "the header in C++", || workshop.check_header_in_cpp()));
    add(where_there_is("nm", "exported names", || workshop.check_exports()));
    let sanitized = workshop.has_sanitizer();
    if !sanitized {
        add(Tally::one_skip("the tests in C, sanitized", &format!("{} has no address sanitizer", compiler())));
    }
    for source in sources()? {
        add(workshop.test(&source, Link::Shared, &[], &[]));
        add(workshop.test(&source, Link::Static, &[], &[]));
        if sanitized {
            add(workshop.test(&source, Link::Shared, SANITIZER, &[]));
        }
    }
    let variants: &[&[&str]] = if sanitized { &[&[], SANITIZER] } else { &[&[]] };
    for flags in variants {
        for mechanism in EXAMPLES {
            add(workshop.test(Path::new(EXAMPLE), Link::Shared, flags, &["16", mechanism, "2"]));
        }
        add(workshop.test(Path::new(COUNT_EXAMPLE), Link::Shared, flags, &[TEXT, "1"]));
    }
    for source in TABLES {
        for flags in variants {
            let variant = if flags.is_empty() { "" } else { ", sanitized" };
            let name = format!("{source} saves, is killed, and is restored{variant}");
            add(as_one(&name, workshop.check_table(Path::new(source), flags)));
        }
    }
    Ok(total)
}

fn compiler() -> String {
    std::env::var("CC").unwrap_or_else(|_| "cc".into())
}

/// The test programs, sorted.
fn sources() -> anyhow::Result<Vec<PathBuf>> {
    let mut sources = Vec::new();
    for entry in std::fs::read_dir(TESTS).with_context(|| format!("listing {TESTS}"))? {
        sources.push(entry?.path());
    }
    sources.retain(|path| path.extension().is_some_and(|extension| extension == "c"));
    sources.sort();
    if sources.is_empty() { bail!("{TESTS} has no tests") } else { Ok(sources) }
}

fn as_one(name: &str, result: anyhow::Result<()>) -> Tally {
    match result {
        Ok(()) => {
            output::line(format_args!("test {name} ... ok"));
            Tally::one()
        }
        Err(error) => {
            output::line(format_args!("test {name} ... FAILED: {error:#}"));
            Tally::one_failure(name)
        }
    }
}

/// A test that takes a program.
fn where_there_is(program: &str, name: &str, test: impl FnOnce() -> anyhow::Result<()>) -> Tally {
    if on_path(program) { as_one(name, test()) } else { Tally::one_skip(name, &format!("there is no {program}")) }
}

fn succeed(command: &mut Command) -> anyhow::Result<()> {
    let status = command.status().with_context(|| format!("starting {:?}", command.get_program()))?;
    if status.success() { Ok(()) } else { bail!("{command:?} ended with {status}") }
}

impl Workshop {
    /// Compiles `source` and runs it with `words`.
    fn test(&self, source: &Path, link: Link, flags: &[&str], words: &[&str]) -> Tally {
        let name = source.file_stem().unwrap_or_default().to_string_lossy();
        let variant = match (link, flags.is_empty()) {
            (Link::Shared, true) => "shared",
            (Link::Static, _) => "static",
            (Link::Shared, false) => "sanitized",
        };
        output::line(format_args!("--- {name}, {variant} {}", words.join(" ")));
        let program = self.programs.join(format!("{name}-{variant}"));
        let compiled = self.flags(link).and_then(|library| {
            let mut command = Command::new(compiler());
            command.args(["-std=c11", "-g", "-O2", "-pthread"]).args(WARNINGS).args(flags).arg(source);
            succeed(command.args(library).arg("-o").arg(&program))
        });
        if compiled.is_err() {
            return as_one(&format!("{name} compiles"), compiled);
        }
        let mut command = Command::new(&program);
        command.args(words);
        steps::run(command, LIMIT).unwrap_or_else(|error| as_one(&name, Err(error)))
    }

    /// Compiles a table, saves it, kills it while it saves, and looks each time at what it has saved.
    fn check_table(&self, source: &Path, flags: &[&str]) -> anyhow::Result<()> {
        let program = self.programs.join(source.file_stem().unwrap_or_default());
        let file = program.with_extension("saved");
        let mut command = Command::new(compiler());
        command.args(["-std=c11", "-g", "-O2"]).args(WARNINGS).args(flags).arg(source);
        succeed(command.args(self.flags(Link::Shared)?).arg("-o").arg(&program))?;
        let run = |what: &str, turns: &str| {
            let mut command = Command::new(&program);
            command.arg(what).arg(&file).args([TABLE_ENTRIES, turns]);
            // A program ends with its table: that is no leak.
            command.env("ASAN_OPTIONS", "detect_leaks=0");
            command
        };
        succeed(&mut run("fill", "2"))?;
        succeed(&mut run("check", "1"))?;
        let mut kills = 0;
        for _ in 0..TABLE_KILLS * 20 {
            // With its child, which is of the same group. The first save is done when it is killed; the others may be anywhere.
            let mut filling = run("fill", "1000000").stdout(Stdio::piped()).process_group(0).spawn()?;
            let mut output = BufReader::new(filling.stdout.take().context("a program without output")?);
            // Without a line it could not save: the child of the killed one still had the file.
            if output.read_line(&mut String::new())? > 0 {
                succeed(Command::new("kill").args(["-9", "--", &format!("-{}", filling.id())]))?;
                kills += 1;
            }
            // Up to the end of both processes.
            output.read_to_end(&mut Vec::new())?;
            filling.wait()?;
            succeed(&mut run("check", "1"))?;
            if kills == TABLE_KILLS {
                return Ok(());
            }
        }
        bail!("it was killed only {kills} times: its saves failed")
    }

    /// What `pkg-config` says, as users ask it.
    fn flags(&self, link: Link) -> anyhow::Result<Vec<String>> {
        let lib = self.prefix.join("lib");
        let mut command = Command::new("pkg-config");
        command.args(["--cflags", "--libs", "quire"]).env("PKG_CONFIG_PATH", lib.join("pkgconfig"));
        if link == Link::Static {
            command.arg("--static");
        }
        let output = command.output().context("starting pkg-config")?;
        if !output.status.success() {
            bail!("pkg-config: {}", String::from_utf8_lossy(&output.stderr));
        }
        let mut flags: Vec<String> =
            String::from_utf8_lossy(&output.stdout).split_whitespace().map(str::to_owned).collect();
        match link {
            Link::Shared => flags.push(format!("-Wl,-rpath,{}", lib.display())),
            // The linker prefers the shared one where it has the choice.
            Link::Static => flags.iter_mut().filter(|flag| *flag == "-lquire").for_each(|flag| {
                *flag = lib.join("libquire.a").display().to_string();
            }),
        }
        Ok(flags)
    }

    /// Every dialect of C that may include the header, without a warning.
    fn check_header(&self) -> anyhow::Result<()> {
        for dialect in ["-std=c99", "-std=c11", "-std=c2x"] {
            let mut command = self.check_syntax(&compiler(), dialect);
            succeed(command.args(["-include", "quire.h", "-x", "c", "/dev/null"]))?;
        }
        Ok(())
    }

    /// The same for C++.
    fn check_header_in_cpp(&self) -> anyhow::Result<()> {
        for dialect in ["-std=c++11", "-std=c++20"] {
            succeed(self.check_syntax("c++", dialect).arg(Path::new(TESTS).join("header.cpp")))?;
        }
        Ok(())
    }

    fn check_syntax(&self, compiler: &str, dialect: &str) -> Command {
        let mut command = Command::new(compiler);
        command.args([dialect, "-pedantic", "-fsyntax-only"]).args(WARNINGS);
        command.arg("-I").arg(self.prefix.join("include"));
        command
    }

    /// Only what the header declares may be seen from outside, and all of that.
    fn check_exports(&self) -> anyhow::Result<()> {
        let library = self.prefix.join("lib/libquire.so");
        let output = Command::new("nm").args(["-D", "--defined-only"]).arg(library).output().context("starting nm")?;
        let listing = String::from_utf8_lossy(&output.stdout);
        let names: Vec<&str> = listing.lines().filter_map(|line| line.split_whitespace().nth(2)).collect();
        let header = std::fs::read_to_string(self.prefix.join("include/quire.h"))?;
        if let Some(name) = names.iter().find(|name| !header.contains(&format!("{name}("))) {
            bail!("libquire.so exports {name}, which quire.h does not declare");
        }
        if names.is_empty() { bail!("libquire.so exports nothing") } else { Ok(()) }
    }

    /// Whether a sanitized program can be compiled and run.
    fn has_sanitizer(&self) -> bool {
        let (source, program) = (self.programs.join("probe.c"), self.programs.join("probe"));
        if std::fs::write(&source, "int main(void) { return 0; }\n").is_err() {
            return false;
        }
        let mut command = Command::new(compiler());
        command.args(SANITIZER).arg(&source).arg("-o").arg(&program).stderr(Stdio::null());
        let mut run = Command::new(&program);
        succeed(&mut command).is_ok() && succeed(run.stderr(Stdio::null())).is_ok()
    }
}
