//! The properties of a request, where they are not those of its command: a script, or a function, may say that it does not write.
//!
//! Relies on the table of commands, and on the scripts and functions that are known.

use crate::args::Args;
use crate::scripts::{ScriptCache, Scripts, parse_shebang};
use crate::table::{CommandSpec, Flags, MAY_WRITE};

/// The properties of a request: one that runs what says that it does not write need not wait where commands that write do.
#[inline]
pub fn of(scripts: &Scripts, spec: &CommandSpec, args: Args<'_>) -> Flags {
    if spec.has(MAY_WRITE) && says_it_only_reads(scripts, spec, args) { spec.flags & !MAY_WRITE } else { spec.flags }
}

#[cold]
fn says_it_only_reads(scripts: &Scripts, spec: &CommandSpec, args: Args<'_>) -> bool {
    let named = args.get(1).unwrap_or_default();
    let flags = match spec.name {
        "eval" => parse_shebang(named).ok().map(|(flags, _)| flags),
        "evalsha" => {
            let known = ScriptCache::digest_in(named).and_then(|digest| scripts.cache.get(&digest));
            known.map(|script| script.flags)
        }
        "fcall" => {
            let known = scripts.functions.libraries.function(named);
            known.map(|(library, index)| library.functions[index].flags)
        }
        _ => None,
    };
    flags.is_some_and(|flags| flags.no_writes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::ArgRange;
    use crate::registry::Registry;
    use crate::specs;

    #[test]
    fn a_script_that_says_that_it_does_not_write_has_not_the_flag_of_those_that_may() {
        let (registry, scripts) = (Registry::build(specs::ALL), Scripts::default());
        let may_write = |name: &str, word: &str| {
            let words = format!("{name}{word}");
            let ranges = [(0, name.len()), (name.len(), word.len())]
                .map(|(start, len)| ArgRange { start: start as u32, len: len as u32 });
            let spec = registry.find(name.as_bytes()).unwrap().spec;
            of(&scripts, spec, Args::new(words.as_bytes(), &ranges)) & MAY_WRITE != 0
        };
        assert!(may_write("eval", "return 1") && may_write("eval", "#!lua\nreturn 1"));
        assert!(!may_write("eval", "#!lua flags=no-writes\nreturn 1") && !may_write("eval_ro", "return 1"));
        assert!(may_write("evalsha", "e0e1f9fabfc9d4800c877a703b823ac0578ff8db") && may_write("fcall", "unknown"));
        assert!(!may_write("get", "#!lua"));
    }
}
