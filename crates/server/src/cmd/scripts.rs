//! EVAL, EVALSHA, their read-only forms, and SCRIPT.

use quire_lua::Interpreter;

use crate::args::Args;
use crate::ctx::{CmdError, Ctx};
use crate::monitor;
use crate::registry::registry;
use crate::script_host::{self, ScriptCall, ScriptName};
use crate::scripts::{self, CHUNK, CachedScript, ScriptCache, ScriptKind};

const NO_SCRIPT: &str = "NOSCRIPT No matching script. Please use EVAL.";

/// EVAL script numkeys [key …] [arg …]
pub fn eval(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    run(ctx, true, false)
}

/// EVAL_RO script numkeys [key …] [arg …]
pub fn eval_ro(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    run(ctx, true, true)
}

/// EVALSHA sha1 numkeys [key …] [arg …]
pub fn evalsha(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    run(ctx, false, false)
}

/// EVALSHA_RO sha1 numkeys [key …] [arg …]
pub fn evalsha_ro(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    run(ctx, false, true)
}

/// The words that are keys, and those behind them.
fn split_keys(args: Args<'_>) -> Result<(Args<'_>, Args<'_>), CmdError> {
    let count = args.int(2)?;
    if count > args.len() as i64 - 3 {
        return Err(CmdError::fixed("ERR Number of keys can't be greater than number of args"));
    }
    let count = usize::try_from(count).map_err(|_| CmdError::fixed("ERR Number of keys can't be negative"))?;
    Ok((args.range(3, 3 + count), args.from(3 + count)))
}

fn run(ctx: &mut Ctx<'_>, is_text: bool, read_only: bool) -> Result<(), CmdError> {
    let (keys, args) = split_keys(ctx.args)?;
    let word = ctx.args.at(1);
    let digest = if is_text { Some(ctx.server.scripts.cache.digest_of(word)) } else { ScriptCache::digest_in(word) };
    let digest = digest.ok_or(CmdError::fixed(NO_SCRIPT))?;
    if !is_text && ctx.server.scripts.cache.get(&digest).is_none() {
        return Err(CmdError::fixed(NO_SCRIPT));
    }
    if !ctx.server.clients.monitors.is_empty()
        && let Some(command) = registry().find(ctx.args.at(0))
    {
        // Before the commands that it calls.
        monitor::show(command, ctx);
    }
    with_interpreter(ctx, |ctx, interpreter| {
        let script = match ctx.server.scripts.cache.get(&digest) {
            Some(script) => script.clone(),
            None => {
                let script = compile(interpreter, word)?;
                ctx.server.scripts.cache.insert(digest, script.clone(), false);
                script
            }
        };
        let function = script.function.get(interpreter.lua());
        let function = function.map_err(|error| CmdError::owned(format!("ERR the script is gone: {error}")))?;
        let (name, flags) = (ScriptName::Digest(&digest), script.flags);
        let call = ScriptCall { function: &function, name, flags, read_only, keys, args };
        script_host::run(ctx, interpreter, &call)
    })
}

fn with_interpreter<R>(
    ctx: &mut Ctx<'_>,
    work: impl FnOnce(&mut Ctx<'_>, &Interpreter) -> Result<R, CmdError>,
) -> Result<R, CmdError> {
    let limit_bytes = ctx.server.config.scripts.max_memory_bytes;
    let interpreter = ctx.server.scripts.take_interpreter(limit_bytes);
    let interpreter = interpreter.map_err(|error| CmdError::owned(format!("ERR no script can run: {error}")))?;
    let result = work(ctx, &interpreter);
    ctx.server.scripts.put_back(interpreter);
    result
}

fn compile(interpreter: &Interpreter, text: &[u8]) -> Result<CachedScript, CmdError> {
    let (flags, start) = scripts::parse_shebang(text).map_err(|error| CmdError::owned(format!("ERR {error}")))?;
    let function = interpreter.compile_stored(CHUNK, &text[start..]).map_err(|error| {
        let error = error.replace(['\r', '\n'], " ");
        CmdError::owned(format!("ERR Error compiling script (new function): {error}"))
    })?;
    Ok(CachedScript { function, flags, text_bytes: text.len() })
}

/// SCRIPT LOAD script
pub fn load(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    let text = ctx.args.at(2);
    let digest = scripts::digest_of(text);
    if ctx.server.scripts.cache.get(&digest).is_some() {
        ctx.server.scripts.cache.keep(&digest);
    } else {
        with_interpreter(ctx, |ctx, interpreter| {
            let script = compile(interpreter, text)?;
            ctx.server.scripts.cache.insert(digest, script, true);
            Ok(())
        })?;
    }
    ctx.reply.bulk_str(&scripts::digest_text(&digest));
    Ok(())
}

/// SCRIPT EXISTS sha1 …
pub fn exists(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    ctx.reply.array(ctx.args.len() - 2);
    for word in ctx.args.from(2).iter() {
        let known = ScriptCache::digest_in(word).is_some_and(|digest| ctx.server.scripts.cache.get(&digest).is_some());
        ctx.reply.int(i64::from(known));
    }
    Ok(())
}

/// SCRIPT FLUSH [ASYNC | SYNC]
pub fn flush(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    let valid = match ctx.args.len() {
        2 => true,
        3 => ctx.args.is(2, "ASYNC") || ctx.args.is(2, "SYNC"),
        _ => false,
    };
    if !valid {
        return Err(CmdError::fixed("ERR SCRIPT FLUSH only support SYNC|ASYNC option"));
    }
    ctx.server.scripts.flush();
    ctx.reply.ok();
    Ok(())
}

/// SCRIPT KILL
pub fn kill(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    kill_running(ctx, ScriptKind::Script)
}

/// Asks for the end of what runs, if it is of this kind and has not written.
pub(super) fn kill_running(ctx: &mut Ctx<'_>, kind: ScriptKind) -> Result<(), CmdError> {
    let Some(running) = &mut ctx.server.scripts.running else {
        return Err(CmdError::fixed("NOTBUSY No scripts in execution right now."));
    };
    if running.wrote {
        return Err(CmdError::fixed(
            "UNKILLABLE Sorry the script already executed write commands against the dataset. You can either wait the \
             script termination or kill the server in a hard way using the SHUTDOWN NOSAVE command.",
        ));
    }
    if running.kind != kind {
        return Err(CmdError::fixed(running.kind.busy_line()));
    }
    running.killed = true;
    ctx.reply.ok();
    Ok(())
}

/// SCRIPT DEBUG NO
pub fn debug(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    if ctx.args.is(2, "YES") || ctx.args.is(2, "SYNC") {
        return Err(CmdError::fixed("ERR scripts can't be debugged step by step on this server"));
    }
    if !ctx.args.is(2, "NO") {
        return Err(CmdError::fixed("ERR Use SCRIPT DEBUG YES/SYNC/NO"));
    }
    ctx.reply.ok();
    Ok(())
}

/// SCRIPT HELP
pub fn help(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    const LINES: &[&str] = &[
        "SCRIPT <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
        "DEBUG (YES|SYNC|NO)",
        "    Set the debug mode for subsequent scripts executed.",
        "EXISTS <sha1> [<sha1> ...]",
        "    Return information about the existence of the scripts in the script cache.",
        "FLUSH [ASYNC|SYNC]",
        "    Flush the Lua scripts cache. Very dangerous on replicas.",
        "    When called without the optional mode argument, the behavior is determined by the",
        "    lazyfree-lazy-user-flush configuration directive. Valid modes are:",
        "    * ASYNC: Asynchronously flush the scripts cache.",
        "    * SYNC: Synchronously flush the scripts cache.",
        "KILL",
        "    Kill the currently executing Lua script.",
        "LOAD <script>",
        "    Load a script into the scripts cache without executing it.",
        "HELP",
        "    Prints this help.",
    ];
    ctx.reply.array(LINES.len());
    LINES.iter().for_each(|line| ctx.reply.simple(line));
    Ok(())
}
