//! What kind of program a file is, as far as preloading a library is concerned.
//!
//! Relies on the ELF headers and on `#!` lines. Nothing is executed: the program may be any user's.

use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use object::elf::{self, FileHeader32, FileHeader64};
use object::read::elf::{FileHeader, ProgramHeader as _, Sym as _};
use object::{Endianness, FileKind};

/// Most `#!` lines that are followed; the kernel follows as many.
const MOST_SCRIPTS: usize = 4;

/// Where a program's code comes from, and what it needs at its start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProgramFile {
    /// The file that the system runs: the interpreter's, for a script.
    pub path: PathBuf,
    /// Scripts on the way there, the first as it was named.
    pub scripts: Vec<PathBuf>,
    /// What the file is.
    pub kind: ProgramKind,
    /// Whether it gets privileges when it is started.
    pub privileged: Option<&'static str>,
}

/// What a file is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ProgramKind {
    /// A dynamically linked program of this machine.
    Dynamic {
        /// Its dynamic linker.
        linker: String,
        /// Whether it calls the C library's `fork` itself.
        calls_fork: bool,
        /// Whether it has an allocator of its own, such as jemalloc, in place of the C library's.
        allocates: bool,
        /// Whether it was built by the Go toolchain.
        go: bool,
    },
    /// A program that no dynamic linker starts.
    Static {
        /// Whether it was built by the Go toolchain.
        go: bool,
    },
    /// A program for another kind of processor.
    OtherProcessor,
    /// No program at all.
    Unknown,
}

/// Finds out what `name` is: a path, or a name on the PATH.
///
/// # Errors
/// When there is no such file, or it can't be read.
pub fn inspect(name: &Path) -> anyhow::Result<ProgramFile> {
    let mut path = find(name)?;
    let mut scripts = Vec::new();
    loop {
        let meta = path.metadata().with_context(|| format!("looking at {}", path.display()))?;
        if !meta.is_file() {
            bail!("{} is not a file", path.display());
        }
        let data = std::fs::read(&path).with_context(|| format!("reading {}", path.display()))?;
        let Some(interpreter) = interpreter(&data) else {
            let privileged = match meta.mode() {
                mode if mode & 0o4000 != 0 => Some("setuid"),
                mode if mode & 0o2000 != 0 => Some("setgid"),
                _ => quire_sys::xattr::has_capabilities(&path).then_some("file capabilities"),
            };
            return Ok(ProgramFile { kind: kind(&data), path, scripts, privileged });
        };
        if scripts.len() == MOST_SCRIPTS {
            bail!("{} leads through more than {MOST_SCRIPTS} scripts", name.display());
        }
        scripts.push(path);
        path = find(&interpreter)?;
    }
}

fn find(name: &Path) -> anyhow::Result<PathBuf> {
    if name.as_os_str().as_bytes().contains(&b'/') {
        let path = std::path::absolute(name).with_context(|| format!("no program {}", name.display()))?;
        return if path.exists() { Ok(path) } else { bail!("no program {}", name.display()) };
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).map(|dir| dir.join(name)).find(|path| path.is_file());
    found.with_context(|| format!("no program {} on the PATH", name.display()))
}

/// The program after `#!`; what `env` would start instead of `env`.
fn interpreter(data: &[u8]) -> Option<PathBuf> {
    let line = data.strip_prefix(b"#!")?.split(|&byte| byte == b'\n').next()?;
    let mut words = line.split(|byte| byte.is_ascii_whitespace()).filter(|word| !word.is_empty());
    let first = words.next()?;
    let program = if first.ends_with(b"/env") {
        words.find(|word| !word.starts_with(b"-") && !word.contains(&b'=')).unwrap_or(first)
    } else {
        first
    };
    Some(PathBuf::from(std::ffi::OsStr::from_bytes(program)))
}

fn kind(data: &[u8]) -> ProgramKind {
    match FileKind::parse(data) {
        Ok(FileKind::Elf64) => elf_kind::<FileHeader64<Endianness>>(data).unwrap_or(ProgramKind::Unknown),
        Ok(FileKind::Elf32) => elf_kind::<FileHeader32<Endianness>>(data).unwrap_or(ProgramKind::Unknown),
        _ => ProgramKind::Unknown,
    }
}

/// The ELF machine that this binary, and so the library beside it, was built for.
const fn own_machine() -> u16 {
    if cfg!(target_arch = "x86_64") {
        elf::EM_X86_64.0
    } else if cfg!(target_arch = "aarch64") {
        elf::EM_AARCH64.0
    } else {
        0
    }
}

fn elf_kind<Elf: FileHeader<Endian = Endianness>>(data: &[u8]) -> object::Result<ProgramKind> {
    let header = Elf::parse(data)?;
    let endian = header.endian()?;
    if header.e_machine(endian).0 != own_machine() || !header.is_type_64() {
        return Ok(ProgramKind::OtherProcessor);
    }
    let sections = header.sections(endian, data)?;
    let go = sections.iter().any(|section| {
        sections.section_name(endian, section).is_ok_and(|name| name == b".go.buildinfo" || name == b".note.go.buildid")
    });
    let mut linker = None;
    for segment in header.program_headers(endian, data)? {
        if let Some(name) = segment.interpreter(endian, data)? {
            linker = Some(String::from_utf8_lossy(name).into_owned());
        }
    }
    let Some(linker) = linker else { return Ok(ProgramKind::Static { go }) };
    let symbols = sections.symbols(endian, data, elf::SHT_DYNSYM)?;
    let has = |wanted: &[u8], is_defined: bool| {
        symbols.iter().any(|symbol| {
            (symbol.st_shndx(endian) != elf::SHN_UNDEF) == is_defined
                && symbols.symbol_name(endian, symbol).is_ok_and(|name| name == wanted)
        })
    };
    Ok(ProgramKind::Dynamic { linker, calls_fork: has(b"fork", false), allocates: has(b"malloc", true), go })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scripts_lead_to_their_interpreters() {
        let words = |text: &str| interpreter(text.as_bytes()).map(|path| path.to_string_lossy().into_owned());
        assert_eq!(words("#!/bin/sh -e\n"), Some("/bin/sh".into()));
        assert_eq!(words("#! /usr/bin/env python3\nprint()"), Some("python3".into()));
        assert_eq!(words("#!/usr/bin/env -S A=1 perl -w\n"), Some("perl".into()));
        assert_eq!(words("echo"), None);
        let dir = tempfile::tempdir().unwrap();
        let script = dir.path().join("script");
        std::fs::write(&script, "#!/bin/sh\n").unwrap();
        let program = inspect(&script).unwrap();
        assert_eq!(program.scripts.len(), 1);
        assert!(matches!(program.kind, ProgramKind::Dynamic { .. }), "{program:?}");
    }

    #[test]
    fn scripts_that_lead_in_a_circle_are_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let script = dir.path().join("script");
        std::fs::write(&script, format!("#!{}\n", script.display())).unwrap();
        assert!(inspect(&script).unwrap_err().to_string().contains("scripts"));
    }

    #[test]
    fn real_programs_are_told_apart() {
        let ls = inspect(Path::new("ls")).unwrap();
        assert!(
            matches!(&ls.kind, ProgramKind::Dynamic { go: false, linker, .. } if linker.starts_with('/')),
            "{ls:?}"
        );
        assert_eq!((ls.privileged, ls.scripts.len()), (None, 0));
        let shell = inspect(Path::new("/bin/bash")).unwrap();
        assert!(matches!(shell.kind, ProgramKind::Dynamic { calls_fork: true, allocates: false, .. }), "{shell:?}");
        assert!(inspect(Path::new("no-such-program")).unwrap_err().to_string().contains("on the PATH"));
        assert!(inspect(Path::new("/tmp")).is_err());
    }

    #[test]
    fn files_that_are_no_programs_are_unknown_and_damage_is_no_panic() {
        assert_eq!(kind(b""), ProgramKind::Unknown);
        assert_eq!(kind(b"hello"), ProgramKind::Unknown);
        let mut data = std::fs::read("/bin/ls").unwrap();
        for at in (0..400).step_by(3) {
            let before = std::mem::replace(&mut data[at], 0xff);
            let _ = kind(&data);
            data[at] = before;
        }
        assert_eq!(kind(&data[..100]), ProgramKind::Unknown);
    }

    /// The smallest header of an ELF program: no sections and no segments.
    fn bare_elf(machine: u16) -> Vec<u8> {
        let mut data = vec![0; 64];
        data[..6].copy_from_slice(&[0x7f, b'E', b'L', b'F', 2, 1]);
        data[6] = 1;
        data[16..18].copy_from_slice(&2_u16.to_le_bytes());
        data[18..20].copy_from_slice(&machine.to_le_bytes());
        data[20] = 1;
        data[52..54].copy_from_slice(&64_u16.to_le_bytes());
        data
    }

    #[test]
    fn programs_without_linker_and_of_other_processors_are_known_by_their_header() {
        assert_eq!(kind(&bare_elf(own_machine())), ProgramKind::Static { go: false });
        assert_eq!(kind(&bare_elf(elf::EM_S390.0)), ProgramKind::OtherProcessor);
    }
}
