//! Known weaknesses of the crates of others: cargo-audit, or cargo-deny, compares `Cargo.lock` with RustSec's list.
//!
//! Relies on one of the two programs being installed, and on the network: both fetch the list from GitHub.

use std::time::Duration;

use crate::steps;

/// The programs that know the list: what asks for their version, what has them compare, and what installs them.
const PROGRAMS: [Program; 2] = [
    Program { name: "cargo audit", compare: &["audit", "--deny", "unsound", "--deny", "yanked"] },
    Program { name: "cargo deny", compare: &["deny", "check", "advisories"] },
];
/// How to get one.
pub const INSTALL: &str = "cargo install cargo-audit --locked";
/// With it the list is fetched, too.
const LIMIT: Duration = Duration::from_secs(300);

struct Program {
    name: &'static str,
    compare: &'static [&'static str],
}

/// Why it is not known that no crate has a known weakness; nothing if it is.
pub fn fault() -> anyhow::Result<Option<String>> {
    let Some(program) = PROGRAMS.iter().find(|program| is_installed(program)) else {
        return Ok(Some(missing()));
    };
    println!("audit: {} compares Cargo.lock with RustSec's list, which it fetches from GitHub", program.name);
    let mut command = steps::cargo();
    command.args(program.compare);
    let failed = steps::run(command, LIMIT)?.failed > 0;
    let fault = format!(
        "`cargo {}` fails, see above: raise what it names in Cargo.toml, or run `cargo update`",
        program.compare.join(" ")
    );
    Ok(failed.then_some(fault))
}

fn missing() -> String {
    let names = PROGRAMS.map(|program| program.name).join(" nor ");
    format!(
        "known weaknesses were not looked for: there is neither {names}; run `{INSTALL}`, which takes the network, and this again"
    )
}

/// Cargo finds a subcommand as a program of this name.
fn is_installed(program: &Program) -> bool {
    let name = program.name.replace(' ', "-");
    let folders = std::env::var_os("PATH").unwrap_or_default();
    let own = std::env::var_os("CARGO_HOME").map(|home| std::path::Path::new(&home).join("bin"));
    std::env::split_paths(&folders).chain(own).any(|folder| folder.join(&name).is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_program_is_told_with_the_command_that_installs_it() {
        assert!(!is_installed(&Program { name: "cargo no-such-subcommand", compare: &[] }));
        let told = missing();
        assert!(
            told.contains("neither cargo audit nor cargo deny")
                && told.contains("`cargo install cargo-audit --locked`"),
            "{told}"
        );
    }
}
