//! The HELP subcommand of every container, written from the table of command specifications.

use crate::ctx::{CmdError, Ctx};
use crate::registry::registry;
use crate::usage::usage;

/// HELP of the container that was called.
pub fn help(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    let registry = registry();
    let container = registry.find(ctx.args.at(0)).ok_or(CmdError::SYNTAX)?;
    let mut lines = vec![format!(
        "{} <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
        container.name.to_ascii_uppercase()
    )];
    let subcommands = container.subcommands.iter().map(|id| registry.command(*id));
    for sub in subcommands.filter(|sub| sub.spec.name != "help") {
        lines.push(
            format!("{} {}", sub.spec.name.to_ascii_uppercase(), usage(sub.spec.arguments)).trim_end().to_owned(),
        );
        lines.push(format!("    {}", sub.spec.summary));
    }
    lines.push("HELP".to_owned());
    lines.push("    Prints this help.".to_owned());
    ctx.reply.array(lines.len());
    for line in lines {
        ctx.reply.simple(&line);
    }
    Ok(())
}
