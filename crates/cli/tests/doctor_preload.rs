//! `quire doctor --preload` on real programs.
//!
//! Relies on Debian's essential programs; on `cc` for a static one, where it can link one.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::common;

/// Runs the doctor, told of a library wherever that is.
fn doctor(program: &str, more: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_quire"));
    command.args(["doctor", "--preload", program]).args(more);
    command.env("QUIRE_PRELOAD_LIBRARY", env!("CARGO_BIN_EXE_quire")).output().unwrap()
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn refused(program: &str) -> String {
    let output = doctor(program, &[]);
    assert_eq!(output.status.code(), Some(1), "{program}: {}", text(&output));
    text(&output)
}

#[test]
fn dynamic_programs_get_a_command_line() {
    for program in ["/bin/ls", "bash", "redis-server"] {
        if program == "redis-server" && !on_path(program) {
            quire_sys::testing::skipped("no redis-server");
            continue;
        }
        let output = doctor(program, &[]);
        let text = text(&output);
        assert!(output.status.success(), "{program}: {text}{}", common::complaint(&output));
        assert!(
            text.starts_with("works") && text.contains(&format!("LD_PRELOAD={}", env!("CARGO_BIN_EXE_quire"))),
            "{text}"
        );
        assert_eq!(text.contains("it calls fork"), program != "/bin/ls", "{text}");
    }
}

fn on_path(name: &str) -> bool {
    std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default()).any(|dir| dir.join(name).is_file())
}

#[test]
fn scripts_stand_for_their_interpreter() {
    let dir = tempfile::tempdir().unwrap();
    let script = dir.path().join("start");
    std::fs::write(&script, "#!/usr/bin/env bash\nexec redis-server\n").unwrap();
    let output = doctor(script.to_str().unwrap(), &["--json"]);
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(json["works"], true);
    assert!(json["program"].as_str().unwrap().ends_with("/bash"), "{json}");
    assert!(json["reasons"][0].as_str().unwrap().contains("is a script"), "{json}");
}

#[test]
fn static_programs_cannot_be_helped() {
    let dir = tempfile::tempdir().unwrap();
    let program = static_program(dir.path());
    let text = refused(program.to_str().unwrap());
    assert!(text.contains("statically linked") && text.contains("dynamically linked build"), "{text}");
}

/// A static program, or at least the header of one.
fn static_program(dir: &Path) -> PathBuf {
    let (source, program) = (dir.join("p.c"), dir.join("p"));
    std::fs::write(&source, "int main(void) { return 0; }\n").unwrap();
    let built = Command::new("cc").arg("-static").arg("-o").arg(&program).arg(&source).output();
    if !built.is_ok_and(|output| output.status.success()) {
        let mut header = std::fs::read(env!("CARGO_BIN_EXE_quire")).unwrap()[..64].to_vec();
        // No segments and no sections: nothing names a dynamic linker.
        header[32..48].fill(0);
        header[54..64].fill(0);
        std::fs::write(&program, header).unwrap();
    }
    program
}

#[test]
fn privileges_other_files_and_missing_ones_are_named() {
    if Path::new("/usr/bin/passwd").is_file() {
        assert!(refused("/usr/bin/passwd").contains("LD_PRELOAD"));
    } else {
        quire_sys::testing::skipped("no passwd, a program with the privileges of its owner");
    }
    assert!(refused("/etc/passwd").contains("not a program"));
    let output = doctor("no-such-program", &[]);
    assert!(common::complaint(&output).contains("no program no-such-program on the PATH"));
}
