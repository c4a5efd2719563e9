//! FUNCTION and its subcommands, FCALL and FCALL_RO.
//!
//! Relies on `scripts` for libraries, on `library_store` to keep them, on `script_host` to run functions. A change takes place when the
//! new set of libraries is whole and kept; while the log is read back only what is kept is changed.

use std::time::{Duration, Instant};

use quire_rdb::{LibraryError, PayloadReader, read_libraries, write_libraries};

use super::scan::check_length;
use super::scripts::kill_running;
use crate::ctx::{Args, CmdError, Ctx};
use crate::glob::Glob;
use crate::library_store;
use crate::monitor;
use crate::registry::registry;
use crate::resp::Reply;
use crate::script_host::{self, ScriptCall, ScriptName};
use crate::scripts::{FunctionEngine, LOAD_LIMIT, Library, LibrarySet, ScriptKind};

const ENGINE: &str = "LUA";

/// How long a library may take that a client sends.
const LIMIT: Option<Duration> = Some(LOAD_LIMIT);
/// How long all those together may take that it restores: no other client is served meanwhile.
const RESTORE_LIMIT: Duration = Duration::from_secs(5);

/// FCALL function numkeys [key …] [arg …]
pub fn fcall(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    call(ctx, false)
}

/// FCALL_RO function numkeys [key …] [arg …]
pub fn fcall_ro(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    call(ctx, true)
}

fn call(ctx: &mut Ctx<'_>, read_only: bool) -> Result<(), CmdError> {
    if !ctx.server.clients.monitors.is_empty()
        && let Some(command) = registry().find(ctx.args.at(0))
    {
        // Before the commands that it calls.
        monitor::show(command, ctx);
    }
    let found = ctx.server.scripts.functions.libraries.function(ctx.args.at(1));
    let (library, index) = found.ok_or(CmdError::fixed("ERR Function not found"))?;
    let (keys, args) = split_keys(ctx.args)?;
    with_engine(ctx, |ctx, engine| {
        let function = &library.functions[index];
        let callback = function.callback.get(engine.interpreter().lua());
        let callback = callback.map_err(|error| CmdError::owned(format!("ERR the function is gone: {error}")))?;
        let (name, flags) = (ScriptName::Function(&function.name), function.flags);
        let call = ScriptCall { function: &callback, name, flags, read_only, keys, args };
        script_host::run(ctx, engine.interpreter(), &call)
    })
}

/// The words that are keys, and those behind them.
fn split_keys(args: Args<'_>) -> Result<(Args<'_>, Args<'_>), CmdError> {
    let count = args.int(2).map_err(|_| CmdError::fixed("ERR Bad number of keys provided"))?;
    if count > args.len() as i64 - 3 {
        return Err(CmdError::fixed("ERR Number of keys can't be greater than number of args"));
    }
    let count = usize::try_from(count).map_err(|_| CmdError::fixed("ERR Number of keys can't be negative"))?;
    Ok((args.range(3, 3 + count), args.from(3 + count)))
}

/// The interpreter is not among the server's state meanwhile.
fn with_engine<R>(
    ctx: &mut Ctx<'_>,
    work: impl FnOnce(&mut Ctx<'_>, &FunctionEngine) -> Result<R, CmdError>,
) -> Result<R, CmdError> {
    let limit_bytes = ctx.server.config.scripts.max_memory_bytes;
    let engine = ctx.server.scripts.functions.take_engine(limit_bytes);
    let engine = engine.map_err(|error| CmdError::owned(format!("ERR no function can run: {error}")))?;
    let result = work(ctx, &engine);
    ctx.server.scripts.functions.put_back(engine);
    result
}

fn told(error: String) -> CmdError {
    CmdError::owned(format!("ERR {error}"))
}

/// Keeps these libraries, which then take the place of those that are there.
fn take_over(ctx: &mut Ctx<'_>, set: LibrarySet) -> Result<(), CmdError> {
    let texts: Vec<&[u8]> = set.iter().map(|library| &*library.text).collect();
    library_store::write(ctx.store, texts.into_iter())?;
    ctx.server.scripts.functions.libraries = set;
    Ok(())
}

/// FUNCTION LOAD [REPLACE] code
pub fn load(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    let last = ctx.args.len() - 1;
    for at in 2..last {
        if !ctx.args.is(at, "REPLACE") {
            return Err(CmdError::owned(format!("ERR Unknown option given: {}", ctx.args.text(at))));
        }
    }
    let text = ctx.args.at(last);
    if ctx.is_replayed() {
        return Ok(library_store::put(ctx.store, vec![text.to_vec()], false)?);
    }
    let name = with_engine(ctx, |ctx, engine| {
        let mut set = ctx.server.scripts.functions.libraries.clone();
        let name = set.load(engine, text, (last > 2, LIMIT)).map_err(told)?;
        take_over(ctx, set)?;
        Ok(name)
    })?;
    ctx.reply.bulk_str(&name);
    Ok(())
}

/// FUNCTION DELETE library
pub fn delete(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    let name = ctx.args.at(2);
    if ctx.is_replayed() {
        return Ok(library_store::remove(ctx.store, name)?);
    }
    let mut set = ctx.server.scripts.functions.libraries.clone();
    if !set.remove(name) {
        return Err(CmdError::fixed("ERR Library not found"));
    }
    take_over(ctx, set)?;
    ctx.server.scripts.functions.drop_unused();
    ctx.reply.ok();
    Ok(())
}

/// A request has too many words.
fn too_many_words(ctx: &Ctx<'_>) -> CmdError {
    CmdError::subcommand_syntax(ctx.args.at(0), ctx.args.at(1))
}

/// FUNCTION FLUSH [ASYNC | SYNC]
pub fn flush(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    match ctx.args.len() {
        2 => {}
        3 if ctx.args.is(2, "ASYNC") || ctx.args.is(2, "SYNC") => {}
        3 => return Err(CmdError::fixed("ERR FUNCTION FLUSH only supports SYNC|ASYNC option")),
        _ => return Err(too_many_words(ctx)),
    }
    take_over(ctx, LibrarySet::default())?;
    ctx.server.scripts.functions.drop_unused();
    ctx.reply.ok();
    Ok(())
}

/// FUNCTION DUMP
pub fn dump(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    let texts = ctx.server.scripts.functions.libraries.iter().map(|library| &*library.text);
    let payload = write_libraries(texts);
    ctx.reply.bulk(&payload);
    Ok(())
}

/// What becomes of the libraries that are there when others are restored.
#[derive(Clone, Copy, PartialEq, Eq)]
enum RestorePolicy {
    Append,
    Replace,
    Flush,
}

impl RestorePolicy {
    fn parse(ctx: &Ctx<'_>) -> Result<Self, CmdError> {
        match ctx.args.len() {
            3 => Ok(Self::Append),
            4 if ctx.args.is(3, "APPEND") => Ok(Self::Append),
            4 if ctx.args.is(3, "REPLACE") => Ok(Self::Replace),
            4 if ctx.args.is(3, "FLUSH") => Ok(Self::Flush),
            4 => {
                Err(CmdError::fixed("ERR Wrong restore policy given, value should be either FLUSH, APPEND or REPLACE."))
            }
            _ => Err(too_many_words(ctx)),
        }
    }
}

/// FUNCTION RESTORE payload [FLUSH | APPEND | REPLACE]
pub fn restore(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    let policy = RestorePolicy::parse(ctx)?;
    let payload = ctx.args.at(2);
    if ctx.is_replayed() {
        let texts = read_libraries(payload).map_err(|error| told(error.to_string()))?;
        return Ok(library_store::put(ctx.store, texts, policy == RestorePolicy::Flush)?);
    }
    let reader = PayloadReader::open(payload);
    let mut reader = reader.map_err(|_| CmdError::fixed("ERR DUMP payload version or checksum are wrong"))?;
    with_engine(ctx, |ctx, engine| {
        let (mut new, began) = (LibrarySet::default(), Instant::now());
        while let Some(text) = reader.next_library().map_err(|error| unreadable(&error))? {
            let left = RESTORE_LIMIT.saturating_sub(began.elapsed());
            if left.is_zero() {
                return Err(CmdError::fixed("ERR FUNCTION RESTORE timeout"));
            }
            new.load(engine, &text, (false, Some(LOAD_LIMIT.min(left)))).map_err(told)?;
        }
        if policy == RestorePolicy::Flush {
            return take_over(ctx, new);
        }
        let mut set = ctx.server.scripts.functions.libraries.clone();
        set.join(&new, policy == RestorePolicy::Replace).map_err(told)?;
        take_over(ctx, set)
    })?;
    ctx.reply.ok();
    Ok(())
}

fn unreadable(error: &LibraryError) -> CmdError {
    CmdError::fixed(match error {
        LibraryError::Foreign => "ERR given type is not a function",
        LibraryError::EarlyForm => "ERR Pre-GA function format not supported",
        LibraryError::Code(_) => "ERR Failed loading library payload",
    })
}

/// FUNCTION LIST [LIBRARYNAME pattern] [WITHCODE]
pub fn list(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    let (mut pattern, mut with_code) = (None, false);
    let mut at = 2;
    while at < ctx.args.len() {
        if !with_code && ctx.args.is(at, "WITHCODE") {
            with_code = true;
        } else if pattern.is_none() && ctx.args.is(at, "LIBRARYNAME") {
            at += 1;
            let name = ctx.args.get(at).ok_or(CmdError::fixed("ERR library name argument was not given"))?;
            check_length(name)?;
            pattern = Some(Glob::new(name, true));
        } else {
            return Err(CmdError::owned(format!("ERR Unknown argument {}", ctx.args.text(at))));
        }
        at += 1;
    }
    let all = ctx.server.scripts.functions.libraries.iter();
    let shown: Vec<&Library> =
        all.filter(|library| pattern.as_ref().is_none_or(|pattern| pattern.matches(library.name.as_bytes()))).collect();
    ctx.reply.array(shown.len());
    shown.iter().for_each(|library| write_library(ctx.reply, library, with_code));
    Ok(())
}

fn write_library(reply: &mut Reply, library: &Library, with_code: bool) {
    reply.map(if with_code { 4 } else { 3 });
    reply.bulk_str("library_name");
    reply.bulk_str(&library.name);
    reply.bulk_str("engine");
    reply.bulk_str(ENGINE);
    reply.bulk_str("functions");
    reply.array(library.functions.len());
    for function in &library.functions {
        reply.map(3);
        reply.bulk_str("name");
        reply.bulk_str(&function.name);
        reply.bulk_str("description");
        match &function.description {
            Some(description) => reply.bulk(description),
            None => reply.null(),
        }
        reply.bulk_str("flags");
        let flags = function.flags.names();
        reply.set(flags.len());
        flags.iter().for_each(|flag| reply.simple(flag));
    }
    if with_code {
        reply.bulk_str("library_code");
        reply.bulk(&library.text);
    }
}

/// FUNCTION STATS
pub fn stats(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    let scripts = &ctx.server.scripts;
    let running = scripts.running.as_ref();
    if let Some(running) = running.filter(|running| running.kind == ScriptKind::Script) {
        return Err(CmdError::fixed(running.kind.busy_line()));
    }
    ctx.reply.map(2);
    ctx.reply.bulk_str("running_script");
    match running {
        None => ctx.reply.null(),
        Some(running) => {
            ctx.reply.map(3);
            ctx.reply.bulk_str("name");
            ctx.reply.bulk_str(&running.name);
            ctx.reply.bulk_str("command");
            ctx.reply.array(running.command.len());
            running.command.iter().for_each(|word| ctx.reply.bulk(word));
            ctx.reply.bulk_str("duration_ms");
            ctx.reply.int(running.elapsed().as_millis() as i64);
        }
    }
    ctx.reply.bulk_str("engines");
    ctx.reply.map(1);
    ctx.reply.bulk_str(ENGINE);
    ctx.reply.map(2);
    ctx.reply.bulk_str("libraries_count");
    ctx.reply.int(scripts.functions.libraries.len() as i64);
    ctx.reply.bulk_str("functions_count");
    ctx.reply.int(scripts.functions.libraries.functions() as i64);
    Ok(())
}

/// FUNCTION KILL
pub fn kill(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    kill_running(ctx, ScriptKind::Function)
}

/// FUNCTION HELP
pub fn help(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    const LINES: &[&str] = &[
        "FUNCTION <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
        "LOAD [REPLACE] <FUNCTION CODE>",
        "    Create a new library with the given library name and code.",
        "DELETE <LIBRARY NAME>",
        "    Delete the given library.",
        "LIST [LIBRARYNAME PATTERN] [WITHCODE]",
        "    Return general information on all the libraries:",
        "    * Library name",
        "    * The engine used to run the Library",
        "    * Library description",
        "    * Functions list",
        "    * Library code (if WITHCODE is given)",
        "    It also possible to get only function that matches a pattern using LIBRARYNAME argument.",
        "STATS",
        "    Return information about the current function running:",
        "    * Function name",
        "    * Command used to run the function",
        "    * Duration in MS that the function is running",
        "    If no function is running, return nil",
        "    In addition, returns a list of available engines.",
        "KILL",
        "    Kill the current running function.",
        "FLUSH [ASYNC|SYNC]",
        "    Delete all the libraries.",
        "    When called without the optional mode argument, the behavior is determined by the",
        "    lazyfree-lazy-user-flush configuration directive. Valid modes are:",
        "    * ASYNC: Asynchronously flush the libraries.",
        "    * SYNC: Synchronously flush the libraries.",
        "DUMP",
        "    Return a serialized payload representing the current libraries, can be restored using FUNCTION RESTORE command",
        "RESTORE <PAYLOAD> [FLUSH|APPEND|REPLACE]",
        "    Restore the libraries represented by the given payload, it is possible to give a restore policy to",
        "    control how to handle existing libraries (default APPEND):",
        "    * FLUSH: delete all existing libraries.",
        "    * APPEND: appends the restored libraries to the existing libraries. On collision, abort.",
        "    * REPLACE: appends the restored libraries to the existing libraries, On collision, replace the old",
        "      libraries with the new libraries (notice that even on this option there is a chance of failure",
        "      in case of functions name collision with another library).",
        "HELP",
        "    Prints this help.",
    ];
    ctx.reply.array(LINES.len());
    LINES.iter().for_each(|line| ctx.reply.simple(line));
    Ok(())
}
