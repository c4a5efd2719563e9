//! COMMAND and its subcommands, and HELP of every container: the table of command specifications, told to clients.

use super::scan::check_length;
use crate::categories::categories;
use crate::ctx::{Args, CmdError, Ctx};
use crate::glob::Glob;
use crate::registry::{Command, registry};
use crate::resp::Reply;
use crate::table::*;

const NO_KEYS: CmdError = CmdError::fixed("ERR The command has no key arguments");

const FLAG_NAMES: &[(Flags, &str)] = &[
    (WRITE, "write"),
    (READONLY, "readonly"),
    (DENYOOM, "denyoom"),
    (ADMIN, "admin"),
    (PUBSUB, "pubsub"),
    (NOSCRIPT, "noscript"),
    (BLOCKING, "blocking"),
    (LOADING, "loading"),
    (STALE, "stale"),
    (SKIP_MONITOR, "skip_monitor"),
    (SKIP_SLOWLOG, "skip_slowlog"),
    (FAST, "fast"),
    (NO_AUTH, "no_auth"),
    (NO_MANDATORY_KEYS, "no_mandatory_keys"),
    (NO_ASYNC_LOADING, "no_async_loading"),
    (NO_MULTI, "no_multi"),
    (ALLOW_BUSY, "allow_busy"),
];

const USAGE_NAMES: &[(KeyUse, &str)] = &[
    (RO, "RO"),
    (RW, "RW"),
    (OW, "OW"),
    (RM, "RM"),
    (ACCESS, "access"),
    (UPDATE, "update"),
    (INSERT, "insert"),
    (DELETE, "delete"),
    (VARIABLE, "variable_flags"),
    (INCOMPLETE, "incomplete"),
    (NOT_KEY, "not_key"),
];

/// COMMAND
pub fn command(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    let commands: Vec<&Command> = registry().tops().collect();
    ctx.reply.array(commands.len());
    for command in commands {
        write_info(ctx.reply, command);
    }
    Ok(())
}

/// COMMAND COUNT
pub fn count(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    ctx.reply.int(registry().tops().count() as i64);
    Ok(())
}

/// COMMAND INFO [name …]
pub fn info(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    if ctx.args.len() == 2 {
        return command(ctx);
    }
    ctx.reply.array(ctx.args.len() - 2);
    for name in ctx.args.from(2).iter() {
        match registry().find_full(name) {
            Some(command) => write_info(ctx.reply, command),
            None => ctx.reply.null(),
        }
    }
    Ok(())
}

/// COMMAND DOCS [name …]
pub fn docs(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    let commands: Vec<&Command> = if ctx.args.len() == 2 {
        registry().tops().collect()
    } else {
        ctx.args.from(2).iter().filter_map(|name| registry().find_full(name)).collect()
    };
    ctx.reply.map(commands.len());
    for command in commands {
        ctx.reply.bulk_str(command.name);
        write_docs(ctx.reply, command);
    }
    Ok(())
}

/// COMMAND LIST [FILTERBY MODULE name | ACLCAT category | PATTERN pattern]
pub fn list(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    let args = ctx.args;
    let mut names: Vec<&str> = Vec::new();
    match args.len() {
        2 => names.extend(registry().all().iter().map(|command| command.name)),
        5 if args.is(2, "FILTERBY") => {
            let wanted = args.at(4);
            if args.is(3, "PATTERN") {
                let all = registry().all().iter();
                check_length(wanted)?;
                let glob = Glob::new(wanted, true);
                names.extend(all.map(|c| c.name).filter(|name| glob.matches(name.as_bytes())));
            } else if args.is(3, "ACLCAT") {
                let has = |command: &Command| {
                    categories(command.spec).iter().any(|name| name.as_bytes()[1..].eq_ignore_ascii_case(wanted))
                };
                names.extend(registry().all().iter().filter(|command| has(command)).map(|command| command.name));
            } else if !args.is(3, "MODULE") {
                return Err(CmdError::SYNTAX);
            }
        }
        _ => return Err(CmdError::SYNTAX),
    }
    ctx.reply.array(names.len());
    for name in names {
        ctx.reply.bulk_str(name);
    }
    Ok(())
}

/// COMMAND GETKEYS command …
pub fn getkeys(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    let (request, positions, _) = keys_of(ctx.args)?;
    ctx.reply.array(positions.len());
    for position in positions {
        ctx.reply.bulk(request.at(position));
    }
    Ok(())
}

/// COMMAND GETKEYSANDFLAGS command …
pub fn getkeysandflags(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    let (request, positions, command) = keys_of(ctx.args)?;
    let uses = command.spec.key_uses(request);
    ctx.reply.array(positions.len());
    for position in positions {
        ctx.reply.array(2);
        ctx.reply.bulk(request.at(position));
        let usage = uses.iter().find(|(at, _)| *at == position).map_or(0, |(_, usage)| *usage);
        write_usage(ctx.reply, usage);
    }
    Ok(())
}

fn keys_of<'a>(args: Args<'a>) -> Result<(Args<'a>, Vec<usize>, &'static Command), CmdError> {
    let request = args.from(2);
    let mut command = registry().find(request.at(0)).ok_or(CmdError::fixed("ERR Invalid command specified"))?;
    if !command.subcommands.is_empty() {
        let sub = request.get(1).and_then(|name| registry().find_sub(command, name));
        command = sub.ok_or(CmdError::fixed("ERR Invalid command specified"))?;
    }
    if command.spec.key_specs.iter().all(|spec| spec.usage & NOT_KEY != 0) {
        return Err(NO_KEYS);
    }
    if !command.spec.takes(request.len()) {
        return Err(CmdError::fixed("ERR Invalid number of arguments specified for command"));
    }
    let positions = command.spec.key_positions(request);
    if positions.is_empty() && !command.spec.has(NO_MANDATORY_KEYS) {
        return Err(CmdError::fixed("ERR Invalid arguments specified for command"));
    }
    Ok((request, positions, command))
}

fn write_info(reply: &mut Reply, command: &Command) {
    let spec = command.spec;
    let (first, last, step) = spec.key_range();
    reply.array(10);
    reply.bulk_str(command.name);
    reply.int(i64::from(spec.arity));
    let flags: Vec<_> = FLAG_NAMES.iter().filter(|(flag, _)| spec.flags & flag != 0).collect();
    let moves = spec.moves_keys();
    reply.set(flags.len() + usize::from(moves));
    for (_, name) in flags {
        reply.simple(name);
    }
    if moves {
        // Where its keys are can't be said by first, last and step.
        reply.simple("movablekeys");
    }
    reply.int(i64::from(first));
    reply.int(i64::from(last));
    reply.int(i64::from(step));
    let categories = categories(spec);
    reply.set(categories.len());
    for name in categories {
        reply.simple(name);
    }
    reply.set(spec.tips.len());
    for tip in spec.tips {
        reply.bulk_str(tip);
    }
    reply.set(spec.key_specs.len());
    for spec in spec.key_specs {
        write_key_spec(reply, spec);
    }
    // As in Redis: an array, but an empty set where there is none.
    match command.subcommands.len() {
        0 => reply.set(0),
        len => reply.array(len),
    }
    for id in &command.subcommands {
        write_info(reply, registry().command(*id));
    }
}

fn write_usage(reply: &mut Reply, usage: KeyUse) {
    let names: Vec<_> = USAGE_NAMES.iter().filter(|(flag, _)| usage & flag != 0).collect();
    reply.set(names.len());
    for (_, name) in names {
        reply.simple(name);
    }
}

fn write_key_spec(reply: &mut Reply, spec: &KeySpec) {
    reply.map(3);
    reply.bulk_str("flags");
    write_usage(reply, spec.usage);
    reply.bulk_str("begin_search");
    match spec.begin {
        KeyBegin::Index(index) => {
            write_rule(reply, "index", 1);
            write_number(reply, "index", index);
        }
        KeyBegin::Keyword { word, from } => {
            write_rule(reply, "keyword", 2);
            reply.bulk_str("keyword");
            reply.bulk_str(word);
            write_number(reply, "startfrom", from);
        }
        KeyBegin::Unknown => write_rule(reply, "unknown", 0),
    }
    reply.bulk_str("find_keys");
    match spec.find {
        KeyFind::Range { last, step, limit } => {
            write_rule(reply, "range", 3);
            write_number(reply, "lastkey", last);
            write_number(reply, "keystep", step);
            write_number(reply, "limit", limit);
        }
        KeyFind::Counted => {
            write_rule(reply, "keynum", 3);
            write_number(reply, "keynumidx", 0);
            write_number(reply, "firstkey", 1);
            write_number(reply, "keystep", 1);
        }
        KeyFind::Unknown => write_rule(reply, "unknown", 0),
    }
}

/// The kind of a rule, and the head of the map with its `len` parts.
fn write_rule(reply: &mut Reply, kind: &str, len: usize) {
    reply.map(2);
    reply.bulk_str("type");
    reply.bulk_str(kind);
    reply.bulk_str("spec");
    reply.map(len);
}

fn write_number(reply: &mut Reply, name: &str, number: i16) {
    reply.bulk_str(name);
    reply.int(i64::from(number));
}

fn write_docs(reply: &mut Reply, command: &Command) {
    let spec = command.spec;
    let fields = 4 + usize::from(!spec.arguments.is_empty()) + usize::from(!command.subcommands.is_empty());
    reply.map(fields);
    for (name, value) in [
        ("summary", spec.summary),
        ("since", spec.since),
        ("group", spec.group.name()),
        ("complexity", spec.complexity),
    ] {
        reply.bulk_str(name);
        reply.bulk_str(value);
    }
    if !spec.arguments.is_empty() {
        reply.bulk_str("arguments");
        write_arguments(reply, spec.arguments, spec.key_specs.len());
    }
    if !command.subcommands.is_empty() {
        reply.bulk_str("subcommands");
        reply.map(command.subcommands.len());
        for id in &command.subcommands {
            let sub = registry().command(*id);
            reply.bulk_str(sub.name);
            write_docs(reply, sub);
        }
    }
}

fn write_arguments(reply: &mut Reply, arguments: &[Arg], key_specs: usize) {
    reply.array(arguments.len());
    let mut keys = 0;
    for arg in arguments {
        let flags: Vec<&str> =
            [(arg.optional, "optional"), (arg.multiple, "multiple"), (arg.multiple_token, "multiple_token")]
                .iter()
                .filter_map(|(set, name)| set.then_some(*name))
                .collect();
        let is_key = arg.kind == ArgKind::Key || arg.key_spec.is_some();
        let optional_fields =
            [is_key, arg.token.is_some(), arg.since.is_some(), !flags.is_empty(), !arg.parts.is_empty()];
        reply.map(2 + optional_fields.iter().filter(|present| **present).count());
        reply.bulk_str("name");
        reply.bulk_str(arg.name);
        reply.bulk_str("type");
        reply.bulk_str(arg.kind.name());
        if is_key {
            // Keys belong to the specs in their order; those for which none is left, to the last one.
            reply.bulk_str("key_spec_index");
            reply.int(arg.key_spec.map_or(keys.min(key_specs.saturating_sub(1)) as i64, i64::from));
            keys += 1;
        }
        if let Some(token) = arg.token {
            reply.bulk_str("token");
            reply.bulk_str(token);
        }
        if let Some(since) = arg.since {
            reply.bulk_str("since");
            reply.bulk_str(since);
        }
        if !flags.is_empty() {
            reply.bulk_str("flags");
            reply.set(flags.len());
            for flag in flags {
                reply.simple(flag);
            }
        }
        if !arg.parts.is_empty() {
            reply.bulk_str("arguments");
            write_arguments(reply, arg.parts, key_specs);
        }
    }
}

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
