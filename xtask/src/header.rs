//! `quire.h`, made from the sources of `crates/capi`.
//!
//! Relies on cbindgen for the translation of items, and on `crates/capi/cbindgen.toml` for its style. Doc comments arrive as
//! they are; only the heading under which Rust wants a caller's duties is worded for C.

use std::path::Path;

use anyhow::Context;

const CRATE: &str = "crates/capi";

/// The header's place.
pub const FILE: &str = "crates/capi/include/quire.h";

/// The header as the sources are now.
pub fn text() -> anyhow::Result<String> {
    let settings = Path::new(CRATE).join("cbindgen.toml");
    let config = cbindgen::Config::from_file(&settings)
        .map_err(anyhow::Error::msg)
        .with_context(|| format!("reading {}", settings.display()))?;
    let bindings = cbindgen::Builder::new()
        .with_config(config)
        .with_crate(CRATE)
        .generate()
        .with_context(|| format!("cbindgen does not understand {CRATE}"))?;
    let mut header = Vec::new();
    bindings.write(&mut header);
    Ok(for_c(&String::from_utf8(header).context("the header is text")?))
}

/// What differs between Rust's documents and C's.
fn for_c(header: &str) -> String {
    let mut text = String::with_capacity(header.len());
    for line in header.lines() {
        let words = line.trim_start_matches([' ', '*']);
        let line = if words == "# Safety" { line.replace("# Safety", "Duties of the caller:") } else { line.into() };
        // C has no mark for code in prose.
        text.push_str(line.replace('`', "").trim_end());
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn duties_are_worded_for_c() {
        let rust = "/**\n * Ends it.  \n *\n * # Safety\n * `it` is no `# Safety`.\n */\n";
        assert_eq!(for_c(rust), "/**\n * Ends it.\n *\n * Duties of the caller:\n * it is no # Safety.\n */\n");
    }
}
