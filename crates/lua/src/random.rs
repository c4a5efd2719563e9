//! `math.random` and `math.randomseed`, whose numbers are those of Redis: the 48-bit linear congruential generator of
//! `lrand48`, which begins where that does, and goes on from script to script.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use mlua::{IntoLuaMulti, Lua, Table};

use crate::arguments::Arguments;
use crate::raise::{self, Raise};

const MULTIPLIER: u64 = 0x5_DEEC_E66D;
const INCREMENT: u64 = 0xB;
/// The state before the first number.
const BEGINNING: u64 = 0x1234_ABCD_330E;
const BITS: u64 = (1 << 48) - 1;
/// One less than the numbers that it gives.
const MOST: i64 = i32::MAX as i64;

/// The generator's state, shared by the functions of one interpreter.
#[derive(Clone, Debug)]
struct Generator(Arc<AtomicU64>);

impl Generator {
    fn seed(&self, seed: i32) {
        self.0.store(u64::from(seed as u32) << 16 | 0x330E, Ordering::Relaxed);
    }

    fn next(&self) -> i64 {
        let state = self.0.load(Ordering::Relaxed).wrapping_mul(MULTIPLIER).wrapping_add(INCREMENT) & BITS;
        self.0.store(state, Ordering::Relaxed);
        (state >> 17) as i64
    }
}

/// Puts both functions in their place.
pub(crate) fn install(lua: &Lua, math: &Table) -> mlua::Result<()> {
    let generator = Generator(Arc::new(AtomicU64::new(BEGINNING)));
    let drawn = generator.clone();
    let random = raise::function(lua, move |lua, values| {
        let args = Arguments::new(lua, "random", values);
        let fraction = (drawn.next() % MOST) as f64 / MOST as f64;
        let (least, most) = match args.count() {
            0 => return Ok(fraction.into_lua_multi(lua)?),
            1 => (1, args.integer(1)?),
            2 => (args.integer(1)?, args.integer(2)?),
            _ => return Err(Raise::message("wrong number of arguments")),
        };
        // As in C, where these are of 32 bits.
        let (least, most) = (least as i32, most as i32);
        if least > most {
            return Err(args.error(args.count(), "interval is empty"));
        }
        let span =
            if args.count() == 1 { f64::from(most) } else { f64::from(most.wrapping_sub(least).wrapping_add(1)) };
        Ok(((fraction * span).floor() + f64::from(least)).into_lua_multi(lua)?)
    })?;
    let seed = raise::function(lua, move |lua, values| {
        generator.seed(Arguments::new(lua, "randomseed", values).integer(1)? as i32);
        Ok(().into_lua_multi(lua)?)
    })?;
    math.raw_set("random", random)?;
    math.raw_set("randomseed", seed)
}
