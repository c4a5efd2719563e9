//! Runs a script: each command that it calls is checked as a client's would be, and run by the same handler; its effects
//! go into one record of the log, as those of a transaction.
//!
//! Relies on `dispatch` for the commands and on `scripts` for the interpreter; while a script is over its time, other
//! clients are served by what the network layer has put into the server's hooks.

use std::time::Duration;

use quire_lua::mlua::{Function, IntoLuaMulti, Lua, MultiValue, Table, Value};
use quire_lua::{CommandOutcome, Interpreter, Raise, Results, ScriptError, ScriptHost, TICK, WordList, shortest_of};

use crate::ctx::{Args, CmdError, Ctx};
use crate::dispatch;
use crate::invalidation;
use crate::permission;
use crate::registry::{Command, registry};
use crate::resp::Protocol;
use crate::scripts::{self, CommandBuffers, REGISTER, RunningScript, SETRESP, ScriptDigest, ScriptFlags, ScriptKind};
use crate::table::{ADMIN, COUNTS_AS_WRITE, DENYOOM, NO_MULTI, NOSCRIPT, READONLY, WRITE};

const READ_ONLY: &str = "ERR Write commands are not allowed from read-only scripts.";

/// What a script or a function is called in errors.
#[derive(Clone, Copy, Debug)]
pub enum ScriptName<'a> {
    /// A script, by the digest of its text.
    Digest(&'a ScriptDigest),
    /// A function of a library.
    Function(&'a str),
}

impl ScriptName<'_> {
    fn text(self) -> String {
        match self {
            ScriptName::Digest(digest) => scripts::digest_text(digest),
            ScriptName::Function(name) => name.to_owned(),
        }
    }

    fn kind(self) -> ScriptKind {
        match self {
            ScriptName::Digest(_) => ScriptKind::Script,
            ScriptName::Function(_) => ScriptKind::Function,
        }
    }
}

/// A script, and what its caller says about it.
pub struct ScriptCall<'a> {
    /// What is run.
    pub function: &'a Function,
    /// Its name in errors.
    pub name: ScriptName<'a>,
    /// What its first line says.
    pub flags: ScriptFlags,
    /// It was called by a command that only reads.
    pub read_only: bool,
    /// Its keys, and its other arguments.
    pub keys: Args<'a>,
    /// The same.
    pub args: Args<'a>,
}

/// What a script may do.
#[derive(Clone, Copy)]
struct Rules {
    /// Commands that write are refused.
    read_only: bool,
    /// `maxmemory` was reached when it began: commands that need memory are refused until it has written.
    out_of_memory: bool,
}

/// Numbers below this are whole and exact as `f64`.
const EXACT_NUMBERS: f64 = (1_u64 << 53) as f64;
const TOO_LONG: &str = "ERR the arguments of the command are too long";

/// Serves a script.
struct CommandRunner<'h, 'c> {
    ctx: &'h mut Ctx<'c>,
    name: ScriptName<'h>,
    rules: Rules,
    buffers: CommandBuffers,
}

/// Runs a script and writes its reply. The interpreter is not among the server's state meanwhile.
pub fn run(ctx: &mut Ctx<'_>, interpreter: &Interpreter, call: &ScriptCall<'_>) -> Result<(), CmdError> {
    let rules = check(ctx, call)?;
    let bound = bind_arguments(interpreter, call).map_err(|error| failed(call, &error.to_string()))?;
    let before = (ctx.client.db, ctx.client.in_exec, ctx.server.clock.command_start);
    ctx.client.in_exec = true;
    ctx.server.scripts.running = Some(RunningScript::new(call.name.kind(), ctx.server.clock.command_start));
    let buffers = ctx.server.scripts.take_buffers();
    let mut host = CommandRunner { ctx, name: call.name, rules, buffers };
    let result = match &bound {
        Some(function) => interpreter.run(function, &mut host),
        None => {
            let (keys, args) = (call.keys, call.args);
            let lists: [WordList<'_, '_>; 2] =
                [(c"KEYS", keys.len(), &|at| keys.at(at)), (c"ARGV", args.len(), &|at| args.at(at))];
            interpreter.run_script(call.function, &lists, &mut host)
        }
    };
    let CommandRunner { buffers, .. } = host;
    let protocol = buffers.reply.protocol();
    ctx.server.scripts.give_buffers(buffers);
    ctx.server.scripts.running = None;
    (ctx.client.db, ctx.client.in_exec, ctx.server.clock.command_start) = before;
    match result {
        Ok(value) => {
            let start = ctx.reply.len();
            if let Err(error) = scripts::write_reply(ctx.reply, &value, protocol) {
                ctx.reply.truncate(start);
                return Err(failed(call, &error.to_string()));
            }
            ctx.server.scripts.error_counted = scripts::is_counted_error(&value);
            Ok(())
        }
        Err(ScriptError::Raised { line, place, counted }) => {
            ctx.server.scripts.error_counted = counted;
            // What is behind the end of a line is cut off, unless there follows where it happened.
            let whole = if place.is_some() { &line[..] } else { scripts::without_line_end(&line) };
            let mut line = String::from_utf8_lossy(whole).replace(['\r', '\n'], " ");
            if let Some((source, number)) = place {
                line.push_str(&format!(" script: {}, on {source}:{number}.", call.name.text()));
            }
            Err(CmdError::owned(line))
        }
        Err(ScriptError::Failed(text)) => Err(failed(call, &text)),
    }
}

fn failed(call: &ScriptCall<'_>, text: &str) -> CmdError {
    let text: String = text.chars().take(100).collect();
    let name = call.name.text();
    CmdError::owned(format!("ERR Error running script {name}, {}", text.replace(['\r', '\n'], " ")))
}

/// What the script may do, or why it may not run at all.
fn check(ctx: &mut Ctx<'_>, call: &ScriptCall<'_>) -> Result<Rules, CmdError> {
    let out_of_memory = dispatch::refuse_write(ctx, DENYOOM).is_some();
    let ScriptFlags { declared, no_writes, allow_oom, .. } = call.flags;
    if declared {
        if !no_writes {
            if call.read_only {
                return Err(CmdError::fixed("ERR Can not execute a script with write flag using *_ro command."));
            }
            if let Some(error) = dispatch::refuse_write(ctx, WRITE) {
                return Err(error);
            }
        }
        if out_of_memory && !allow_oom && !no_writes {
            return Err(CmdError::fixed(
                "OOM allow-oom flag is not set on the script, can not run it when used memory > 'maxmemory'",
            ));
        }
    }
    Ok(Rules { read_only: call.read_only || no_writes, out_of_memory: out_of_memory && !allow_oom })
}

/// A function with its keys and arguments, as it is called with them; `None` for a script, which finds them among its globals.
fn bind_arguments(interpreter: &Interpreter, call: &ScriptCall<'_>) -> quire_lua::mlua::Result<Option<Function>> {
    match call.name {
        ScriptName::Digest(_) => Ok(None),
        ScriptName::Function(_) => {
            let lua = interpreter.lua();
            interpreter.bind(call.function, table_of(lua, call.keys)?, table_of(lua, call.args)?).map(Some)
        }
    }
}

fn table_of(lua: &Lua, words: Args<'_>) -> quire_lua::mlua::Result<Table> {
    let table = lua.create_table_with_capacity(words.len(), 0)?;
    for (index, word) in words.iter().enumerate() {
        table.raw_set(index + 1, lua.create_string(word)?)?;
    }
    Ok(table)
}

impl ScriptHost for CommandRunner<'_, '_> {
    fn serve(&mut self, lua: &Lua, number: i64, args: MultiValue) -> Results {
        if self.is_to_end() {
            return Err(raised(lua, self.name.kind().killed_line())?);
        }
        match number {
            TICK => self.tick(lua),
            SETRESP => self.set_protocol(lua, &args),
            REGISTER => {
                let text = "redis.register_function can only be called on FUNCTION LOAD command";
                Err(scripts::refused(lua, text))
            }
            _ => self.check_command(lua, args),
        }
    }

    fn begin_command(&mut self) {
        self.buffers.begin_command();
    }

    fn add_word(&mut self, word: &[u8]) {
        // What is too much for the ranges is refused before the command runs.
        self.buffers.add_word(word);
    }

    fn add_number(&mut self, number: f64) {
        if number.trunc() == number && number.abs() < EXACT_NUMBERS && (number != 0.0 || number.is_sign_positive()) {
            self.add_word(itoa::Buffer::new().format(number as i64).as_bytes());
        } else {
            self.add_word(shortest_of(number, 17).as_bytes());
        }
    }

    fn run_command(&mut self, has_words: bool) -> CommandOutcome {
        if self.is_to_end() {
            return CommandOutcome { ends_script: true, ..self.refuse(self.name.kind().killed_line()) };
        }
        if let Err(line) = self.check_words(has_words) {
            return self.refuse(line);
        }
        let words = Args::new(&self.buffers.words, &self.buffers.ranges);
        let mut inner = Ctx {
            store: &mut *self.ctx.store,
            server: &mut *self.ctx.server,
            client: &mut *self.ctx.client,
            args: words,
            reply: &mut self.buffers.reply,
        };
        let command = match admit(&mut inner, self.rules) {
            Ok(command) => command,
            Err(error) => {
                let line = error.line();
                inner.server.stats.count_error(line.as_bytes());
                return CommandOutcome { counted: true, ..self.refuse(&line) };
            }
        };
        if command.spec.has(WRITE)
            && let Some(running) = &mut inner.server.scripts.running
        {
            running.wrote = true;
        }
        dispatch::call(command, &mut inner);
        if inner.server.clients.tracking.any() && command.spec.has(READONLY) {
            invalidation::remember_in_script(command, &mut inner);
        }
        let failed = self.buffers.reply.as_bytes().first() == Some(&b'-');
        CommandOutcome { failed, counted: failed, ends_script: false }
    }

    fn reply(&self) -> &[u8] {
        self.buffers.reply.as_bytes()
    }
}

impl CommandRunner<'_, '_> {
    /// Whether the script must not do anything any more.
    fn is_to_end(&self) -> bool {
        let server = &self.ctx.server;
        server.ending.ended || server.scripts.running.as_ref().is_some_and(|running| running.killed)
    }

    /// Serves other clients once the script is over its time.
    fn tick(&mut self, lua: &Lua) -> Results {
        let server = &mut *self.ctx.server;
        let limit_ms = server.config.scripts.busy_reply_threshold_ms;
        let limit = Duration::from_millis(limit_ms.max(0) as u64);
        let serves = server.scripts.running.as_mut().and_then(|running| running.serves_others(limit));
        if let Some(first) = serves.filter(|_| limit_ms > 0) {
            if first {
                if let Some(running) = &mut server.scripts.running {
                    running.name = self.name.text();
                    running.command = self.ctx.args.iter().map(<[u8]>::to_vec).collect();
                }
                tracing::warn!(
                    limit_ms,
                    client = %self.ctx.client.peer.address,
                    "a script is slow; other clients are refused until it ends, or SCRIPT KILL (FUNCTION KILL) ends it"
                );
            }
            if let Some(mut busy) = server.hooks.busy.take() {
                busy.serve(self.ctx.store, server);
                server.hooks.busy = Some(busy);
            }
            if self.is_to_end() {
                tracing::info!("a script is ended because a client has asked for that");
                return Err(raised(lua, self.name.kind().killed_line())?);
            }
        }
        Ok(().into_lua_multi(lua)?)
    }

    /// The reply is this error.
    fn refuse(&mut self, line: &str) -> CommandOutcome {
        self.buffers.reply.error(line);
        CommandOutcome { failed: true, counted: false, ends_script: false }
    }

    /// Why the words are no command.
    fn check_words(&self, has_words: bool) -> Result<(), &'static str> {
        if !has_words {
            return Err("ERR Lua redis lib command arguments must be strings or integers");
        }
        if self.buffers.ranges.is_empty() {
            return Err("ERR Please specify at least one argument for this redis lib call");
        }
        if self.buffers.words.len() > u32::MAX as usize { Err(TOO_LONG) } else { Ok(()) }
    }

    /// Reads the words of a command.
    fn take_words(&mut self, args: &MultiValue) -> Result<(), &'static str> {
        self.begin_command();
        let mut has_words = true;
        for value in args {
            match value {
                Value::String(text) => self.add_word(&text.as_bytes()),
                Value::Integer(number) => self.add_number(*number as f64),
                Value::Number(number) => self.add_number(*number),
                _ => has_words = false,
            }
        }
        self.check_words(has_words)
    }

    fn set_protocol(&mut self, lua: &Lua, args: &MultiValue) -> Results {
        if args.len() != 1 {
            return Err(raised(lua, "ERR redis.setresp() requires one argument.")?);
        }
        let protocol = match lua.coerce_number(args[0].clone())? {
            Some(2.0) => Protocol::Resp2,
            Some(3.0) => Protocol::Resp3,
            _ => return Err(raised(lua, "ERR RESP version must be 2 or 3.")?),
        };
        self.buffers.reply.set_protocol(protocol);
        Ok(().into_lua_multi(lua)?)
    }

    /// redis.acl_check_cmd: whether the user might run a command.
    fn check_command(&mut self, lua: &Lua, args: MultiValue) -> Results {
        if let Err(line) = self.take_words(&args) {
            return Err(raised(lua, line)?);
        }
        let words = Args::new(&self.buffers.words, &self.buffers.ranges);
        let registry = registry();
        let found = registry.find(words.at(0)).map(|command| command.id);
        let Ok(command) = dispatch::resolve(registry, found, words) else {
            return Err(raised(lua, "ERR Invalid command passed to redis.acl_check_cmd()")?);
        };
        let login = &self.ctx.client.login;
        let may_run = login.is_unrestricted() || permission::denial(login.user(), command, words).is_none();
        Ok(may_run.into_lua_multi(lua)?)
    }
}

const WRONG_ARGS: &str = "ERR Wrong number of args calling Redis command from script";

/// An error for the script.
fn raised(lua: &Lua, line: &str) -> Result<Raise, Raise> {
    Ok(Raise::Value(scripts::error_table(lua, line)?))
}

/// The command that a script calls, if it and the client's user may.
fn admit(ctx: &mut Ctx<'_>, rules: Rules) -> Result<&'static Command, CmdError> {
    let registry = registry();
    let found = registry.find(ctx.args.at(0)).map(|command| command.id);
    // A container without the name of a subcommand is known.
    let is_known = found.is_some() && ctx.args.len() == 1;
    let unknown =
        |_| CmdError::fixed(if is_known { WRONG_ARGS } else { "ERR Unknown Redis command called from script" });
    let command = dispatch::resolve(registry, found, ctx.args).map_err(unknown)?;
    let spec = command.spec;
    let refused = if !spec.takes(ctx.args.len()) {
        Some(CmdError::fixed(WRONG_ARGS))
    } else if spec.has(NOSCRIPT) && !(ctx.server.scripts.may_operate && spec.has(ADMIN) && !spec.has(NO_MULTI)) {
        Some(CmdError::fixed("ERR This Redis command is not allowed from script"))
    } else if let Some(error) = permission::protection(ctx, command) {
        Some(error)
    } else if !ctx.client.login.is_unrestricted()
        && let Some(error) = permission::refusal_in_script(ctx, command)
    {
        Some(error)
    } else if rules.read_only && spec.flags & (WRITE | COUNTS_AS_WRITE) != 0 {
        Some(CmdError::fixed(READ_ONLY))
    } else if spec.has(WRITE)
        && let Some(error) = dispatch::refuse_write(ctx, WRITE)
    {
        Some(error)
    } else if spec.has(DENYOOM)
        && rules.out_of_memory
        && ctx.server.scripts.running.as_ref().is_some_and(|running| !running.wrote)
    {
        Some(CmdError::OUT_OF_MEMORY)
    } else {
        None
    };
    match refused {
        Some(error) => {
            ctx.server.stats.command(command.id).rejected += 1;
            Err(error)
        }
        None => Ok(command),
    }
}
