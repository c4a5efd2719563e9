//! The interpreter of functions. It runs the code of libraries, which can do nothing then but register functions, and later the
//! functions themselves, which see what scripts see.
//!
//! Relies on `api` for what both are offered.

use std::time::{Duration, Instant};

use quire_lua::mlua::{self, IntoLuaMulti, Lua, MultiValue, Table, Value};
use quire_lua::{
    CommandOutcome, Environment, Interpreter, Raise, Results, ScriptError, ScriptHost, StoredFunction, TICK,
};

use super::api::{self, REGISTER, error_table};
use super::library_code::{WRONG_NAME, valid_name};
use super::library_function::LibraryFunction;
use super::shebang::ScriptFlags;

/// What libraries are called in messages.
const CHUNK: &str = "user_function";
/// What the functions of a library say about themselves takes no more: it lies beside Lua, whose memory is bounded.
const MOST_DESCRIBED_BYTES: usize = 1 << 20;
/// The code of a library that a client sends may take so long.
pub const LOAD_LIMIT: Duration = Duration::from_millis(500);

/// The interpreter.
#[derive(Debug)]
pub struct FunctionEngine {
    interpreter: Interpreter,
    environment: Environment,
    /// What libraries see while they are loaded.
    registering: Table,
}

impl FunctionEngine {
    /// One that takes at most so much memory.
    ///
    /// # Errors
    /// That isn't enough to begin with.
    pub fn new(memory_limit_bytes: usize) -> mlua::Result<Self> {
        let interpreter = Interpreter::new(memory_limit_bytes)?;
        let redis = api::redis_library(&interpreter)?;
        let registering = interpreter.lua().create_table()?;
        let register = interpreter.protect_strictly(&api::registering_library(&interpreter)?)?;
        // The second name is that in libraries that are written for Valkey.
        for name in ["redis", "server"] {
            interpreter.add_library(name, &redis)?;
            registering.raw_set(name, &register)?;
        }
        let registering = interpreter.protect_strictly(&registering)?;
        let environment = interpreter.environment()?;
        Ok(Self { interpreter, environment, registering })
    }

    /// What runs functions.
    pub fn interpreter(&self) -> &Interpreter {
        &self.interpreter
    }

    /// Runs the code of a library; returns what it registers.
    ///
    /// # Errors
    /// It is no code, fails, or takes longer than the limit.
    pub fn load(&self, code: &[u8], limit: Option<Duration>) -> Result<Vec<LibraryFunction>, String> {
        let cannot = |error: mlua::Error| format!("Error compiling function: {error}");
        let chunk = self.interpreter.compile_within(&self.environment, CHUNK, code);
        let chunk = chunk.map_err(|error| format!("Error compiling function: {error}"))?;
        let mut loader = LibraryLoader::new(limit);
        self.environment.show(&self.registering).map_err(cannot)?;
        let done = self.interpreter.run(&chunk, &mut loader);
        self.environment.show(self.interpreter.shown_globals()).map_err(cannot)?;
        match done {
            Ok(_) => Ok(loader.functions),
            Err(ScriptError::Raised { line, .. }) => {
                Err(format!("Error registering functions: {}", String::from_utf8_lossy(&line)))
            }
            Err(ScriptError::Failed(text)) => Err(format!("Error registering functions: ERR {text}")),
        }
    }
}

/// Serves the code of a library that is being loaded.
struct LibraryLoader {
    began: Instant,
    limit: Option<Duration>,
    functions: Vec<LibraryFunction>,
    /// Bytes of their descriptions.
    described_bytes: usize,
}

impl LibraryLoader {
    fn new(limit: Option<Duration>) -> Self {
        Self { began: Instant::now(), limit, functions: Vec::new(), described_bytes: 0 }
    }

    fn register(&mut self, lua: &Lua, args: &MultiValue) -> Result<(), Raise> {
        let function = read_function(lua, args, &self.functions)?;
        self.described_bytes += function.description.as_ref().map_or(0, Vec::len);
        if self.described_bytes > MOST_DESCRIBED_BYTES {
            return Err(refused(lua, "the descriptions of the functions in the library are too long"));
        }
        self.functions.push(function);
        Ok(())
    }
}

impl ScriptHost for LibraryLoader {
    fn serve(&mut self, lua: &Lua, number: i64, args: MultiValue) -> Results {
        match number {
            TICK | REGISTER if self.limit.is_some_and(|limit| self.began.elapsed() > limit) => {
                return Err(refused(lua, "FUNCTION LOAD timeout"));
            }
            REGISTER => self.register(lua, &args)?,
            _ => {}
        }
        Ok(().into_lua_multi(lua)?)
    }

    fn begin_command(&mut self) {}

    fn add_word(&mut self, _: &[u8]) {}

    fn add_number(&mut self, _: f64) {}

    fn run_command(&mut self, _: bool) -> CommandOutcome {
        // It sees no function that calls commands.
        CommandOutcome { failed: true, ..CommandOutcome::default() }
    }

    fn reply(&self) -> &[u8] {
        b"-ERR no command can be called while a library is loaded\r\n"
    }
}

/// An error of `redis.register_function`.
pub fn refused(lua: &Lua, text: &str) -> Raise {
    match error_table(lua, &format!("ERR {text}")) {
        Ok(table) => Raise::Value(table),
        Err(error) => Raise::Interpreter(error),
    }
}

/// A function as the arguments of `redis.register_function` describe it.
fn read_function(lua: &Lua, args: &MultiValue, known: &[LibraryFunction]) -> Result<LibraryFunction, Raise> {
    let (name, function) = match (args.front(), args.get(1)) {
        (Some(Value::Table(named)), None) => read_named(lua, named)?,
        (Some(_), None) => {
            return Err(refused(
                lua,
                "calling redis.register_function with a single argument is only applicable to Lua table (representing named arguments).",
            ));
        }
        (Some(name), Some(callback)) if args.len() == 2 => read_positional(lua, name, callback)?,
        _ => return Err(refused(lua, "wrong number of arguments to redis.register_function")),
    };
    let name = valid_name(&name).ok_or_else(|| refused(lua, WRONG_NAME))?;
    if known.iter().any(|other| other.name == name) {
        return Err(refused(lua, "Function already exists in the library"));
    }
    Ok(LibraryFunction { name, ..function })
}

/// A name, and a function whose name is still to be checked.
type Named = (Vec<u8>, LibraryFunction);

fn read_positional(lua: &Lua, name: &Value, callback: &Value) -> Result<Named, Raise> {
    let Some(name) = string_of(lua, name)? else {
        return Err(refused(lua, "first argument to redis.register_function must be a string"));
    };
    let Value::Function(callback) = callback else {
        return Err(refused(lua, "second argument to redis.register_function must be a function"));
    };
    let callback = StoredFunction::new(lua, callback.clone())?;
    let flags = ScriptFlags { declared: true, ..ScriptFlags::default() };
    Ok((name, LibraryFunction { name: String::new(), description: None, flags, callback }))
}

fn read_named(lua: &Lua, named: &Table) -> Result<Named, Raise> {
    let (mut name, mut description, mut callback) = (None, None, None);
    let mut flags = ScriptFlags { declared: true, ..ScriptFlags::default() };
    for pair in named.pairs::<Value, Value>() {
        let (key, value) = pair?;
        let Some(key) = string_of(lua, &key)? else {
            return Err(refused(lua, "named argument key given to redis.register_function is not a string"));
        };
        match key.to_ascii_lowercase().as_slice() {
            b"function_name" => name = Some(string_in(lua, "function_name", &value)?),
            b"description" => description = Some(string_in(lua, "description", &value)?),
            b"callback" => match value {
                Value::Function(function) => callback = Some(StoredFunction::new(lua, function)?),
                _ => {
                    let text = "callback argument given to redis.register_function must be a function";
                    return Err(refused(lua, text));
                }
            },
            b"flags" => match value {
                Value::Table(names) => read_flags(lua, &names, &mut flags)?,
                _ => {
                    let text = "flags argument to redis.register_function must be a table representing function flags";
                    return Err(refused(lua, text));
                }
            },
            _ => return Err(refused(lua, "unknown argument given to redis.register_function")),
        }
    }
    let name = name.ok_or_else(|| refused(lua, "redis.register_function must get a function name argument"))?;
    let callback = callback.ok_or_else(|| refused(lua, "redis.register_function must get a callback argument"))?;
    Ok((name, LibraryFunction { name: String::new(), description, flags, callback }))
}

fn read_flags(lua: &Lua, names: &Table, flags: &mut ScriptFlags) -> Result<(), Raise> {
    for index in 1.. {
        let value: Value = names.get(index)?;
        if value.is_nil() {
            break;
        }
        let name = string_of(lua, &value)?.map(|name| name.to_ascii_lowercase());
        let is_known = name.is_some_and(|name| flags.set(&String::from_utf8_lossy(&name)));
        if !is_known {
            return Err(refused(lua, "unknown flag given"));
        }
    }
    Ok(())
}

/// The bytes of a string, or of a number as text; `None` of anything else.
fn string_of(lua: &Lua, value: &Value) -> Result<Option<Vec<u8>>, Raise> {
    Ok(match value {
        Value::String(text) => Some(text.as_bytes().to_vec()),
        Value::Integer(_) | Value::Number(_) => lua.coerce_string(value.clone())?.map(|text| text.as_bytes().to_vec()),
        _ => None,
    })
}

fn string_in(lua: &Lua, argument: &str, value: &Value) -> Result<Vec<u8>, Raise> {
    let must = || refused(lua, &format!("{argument} argument given to redis.register_function must be a string"));
    string_of(lua, value)?.ok_or_else(must)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(code: &str) -> Result<Vec<LibraryFunction>, String> {
        FunctionEngine::new(64 << 20).unwrap().load(code.as_bytes(), Some(Duration::from_millis(50)))
    }

    #[test]
    fn libraries_register_functions_in_both_forms() {
        let functions = load(
            "local function f() return 1 end\nredis.register_function('a', f)\n\
             redis.register_function{function_name='b', callback=f, description='d', flags={'no-writes', 'ALLOW-OOM'}}",
        )
        .unwrap();
        let shown: Vec<_> =
            functions.iter().map(|f| (f.name.as_str(), f.description.as_deref(), f.flags.names())).collect();
        assert_eq!(shown, [("a", None, vec![]), ("b", Some(&b"d"[..]), vec!["no-writes", "allow-oom"])]);
        assert!(functions.iter().all(|function| function.flags.declared));
    }

    #[test]
    fn what_is_wrong_with_a_library_is_told() {
        let of_args = |text: &str| load(&format!("local f = function() end\nredis.register_function({text})"));
        for (args, error) in [
            ("", "wrong number of arguments to redis.register_function"),
            ("'a', f, f", "wrong number of arguments to redis.register_function"),
            ("{}, f", "first argument to redis.register_function must be a string"),
            ("'a', 'f'", "second argument to redis.register_function must be a function"),
            ("'a.b', f", WRONG_NAME),
            ("{callback=f}", "redis.register_function must get a function name argument"),
            ("{function_name='a'}", "redis.register_function must get a callback argument"),
            ("{function_name='a', callback=f, flags={'x'}}", "unknown flag given"),
            ("{function_name='a', callback=f, x=1}", "unknown argument given to redis.register_function"),
        ] {
            assert_eq!(of_args(args).unwrap_err(), format!("Error registering functions: ERR {error}"), "{args}");
        }
        assert!(load("bad script").unwrap_err().starts_with("Error compiling function: user_function:1: "));
    }

    #[test]
    fn a_library_that_is_loaded_can_do_nothing_else() {
        for source in ["redis.call('ping')", "math.random()", "string.rep('x', 1)", "redis.setresp(3)", "x = y"] {
            let error = load(source).unwrap_err();
            assert!(error.contains("Script attempted to access nonexistent global variable"), "{source}: {error}");
        }
        for source in ["x = 1", "redis.call = 1"] {
            assert!(load(source).unwrap_err().ends_with("Attempt to modify a readonly table"), "{source}");
        }
        assert!(load("while true do end").unwrap_err().ends_with("FUNCTION LOAD timeout"));
        let found = load("while true do local ok = redis.log end");
        assert!(found.unwrap_err().ends_with("FUNCTION LOAD timeout"));
    }

    #[test]
    fn a_library_may_have_many_functions_and_they_may_not_say_much() {
        let many = "local f = function() end\nlocal i = 0\nwhile i < 9000 do i = i + 1 redis.register_function('f' .. i, f) end";
        let engine = FunctionEngine::new(64 << 20).unwrap();
        assert_eq!(engine.load(many.as_bytes(), None).unwrap().len(), 9000);
        let long = "local d, i = 'xxxxxxxx', 0\nwhile #d < 300000 do d = d .. d end\n\
            while i < 100 do i = i + 1 redis.register_function{function_name='f' .. i, callback=function() end, description=d} end";
        let refused = engine.load(long.as_bytes(), None).unwrap_err();
        assert!(refused.ends_with("the descriptions of the functions in the library are too long"), "{refused}");
        assert_eq!(engine.load(many.as_bytes(), None).unwrap().len(), 9000);
    }

    #[test]
    fn a_function_sees_what_scripts_see_and_can_register_nothing() {
        let engine = FunctionEngine::new(64 << 20).unwrap();
        let code = "local lib = redis\nredis.register_function('a', function(keys, args)\n\
            return keys[1] .. #args .. type(redis.call) .. tostring(lib.call == nil) end)";
        let Err(error) = engine.load(b"local x = redis.nothing", None) else { panic!("it is loaded") };
        assert!(error.contains("nonexistent global variable 'nothing'"), "{error}");
        let functions = engine.load(code.as_bytes(), None).unwrap();
        let lua = engine.interpreter().lua();
        let (keys, args) = (lua.create_sequence_from(["k"]).unwrap(), lua.create_table().unwrap());
        let callback = functions[0].callback.get(lua).unwrap();
        let bound = engine.interpreter().bind(&callback, keys, args).unwrap();
        let mut host = LibraryLoader::new(None);
        let error = engine.interpreter().run(&bound, &mut host).unwrap_err();
        let ScriptError::Raised { line, .. } = error else { panic!("{error:?}") };
        let line = String::from_utf8_lossy(&line);
        assert_eq!(line, "ERR user_function:3: Script attempted to access nonexistent global variable 'call'");
    }
}
