//! Places as members of sorted sets, whose scores are the numbers of their cells: given and asked for one by one. Areas are searched in
//! `geo_search`.
//!
//! Relies on `geohash` for the calculations, on `zsets` for giving scores.

use quire_store::{LongDouble, zset};

use crate::cmd::zsets::{AddOptions, add_scored};
use crate::ctx::{Args, CmdError, Ctx};
use crate::effects::EffectWord;
use crate::geohash::Place;
use crate::resp::Reply;

/// Reads a place, the longitude first.
pub(super) fn parse_place(args: Args<'_>, at: usize) -> Result<Place, CmdError> {
    let place = Place { longitude: args.float(at)?, latitude: args.float(at + 1)? };
    if place.is_valid() {
        return Ok(place);
    }
    let Place { longitude, latitude } = place;
    Err(CmdError::owned(format!("ERR invalid longitude,latitude pair {longitude:.6},{latitude:.6}")))
}

/// Meters of a unit.
pub(super) fn parse_unit(args: Args<'_>, at: usize) -> Result<f64, CmdError> {
    match args.at(at).to_ascii_lowercase().as_slice() {
        b"m" => Ok(1.0),
        b"km" => Ok(1000.0),
        b"ft" => Ok(0.3048),
        b"mi" => Ok(1609.34),
        _ => Err(CmdError::fixed("ERR unsupported unit provided. please use M, KM, FT, MI")),
    }
}

/// Writes a place, the longitude first.
pub(super) fn write_place(reply: &mut Reply, place: &Place) {
    reply.array(2);
    reply.double_text(&LongDouble::from(place.longitude).format());
    reply.double_text(&LongDouble::from(place.latitude).format());
}

/// Writes a distance: four digits behind the point are enough.
pub(super) fn write_distance(reply: &mut Reply, distance: f64) {
    let parts = (distance * 10_000.0).round_ties_even() as i64;
    let (sign, parts) = (if parts < 0 { "-" } else { "" }, parts.unsigned_abs());
    reply.bulk_str(&format!("{sign}{}.{:04}", parts / 10_000, parts % 10_000));
}

/// GEOADD key [NX | XX] [CH] longitude latitude member …
pub fn geoadd(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    let args = ctx.args;
    let mut options = AddOptions::before(2);
    while let Some(word) = args.get(options.first) {
        match word.to_ascii_uppercase().as_slice() {
            b"NX" => options.only_new = true,
            b"XX" => options.only_existing = true,
            b"CH" => options.counts_changed = true,
            _ => break,
        }
        options.first += 1;
    }
    let words = args.len() - options.first;
    if words == 0 || !words.is_multiple_of(3) || options.only_new && options.only_existing {
        return Err(CmdError::SYNTAX);
    }
    let places = (options.first..args.len()).step_by(3).map(|at| parse_place(args, at));
    let scores = places.map(|place| Ok(place?.score() as f64)).collect::<Result<Vec<_>, CmdError>>()?;
    add_scored(ctx, &options, &scores, 3)?;
    say_added(ctx, options.first, &scores);
    Ok(())
}

/// Says the scores instead of the places, as Redis does.
fn say_added(ctx: &mut Ctx<'_>, first: usize, scores: &[f64]) {
    let mut words = vec![EffectWord::Bytes(b"ZADD"), EffectWord::Arg(1)];
    words.extend((2..first).map(EffectWord::Arg));
    for (number, score) in scores.iter().enumerate() {
        words.extend([EffectWord::Int(*score as i64), EffectWord::Arg(first + 3 * number + 2)]);
    }
    ctx.say_effect(&words);
}

/// Writes something for each of the members behind the key, by their places.
fn for_each_place(ctx: &mut Ctx<'_>, write: impl Fn(&mut Reply, Option<Place>)) -> Result<(), CmdError> {
    let (args, reply) = (ctx.args, &mut *ctx.reply);
    let zset = zset::view(ctx.store, ctx.client.db, args.at(1))?;
    let start = reply.len();
    reply.array(args.len() - 2);
    for member in args.from(2).iter() {
        match zset.score(member) {
            Ok(score) => write(reply, score.map(Place::of_score)),
            Err(error) => {
                reply.truncate(start);
                return Err(error.into());
            }
        }
    }
    Ok(())
}

/// GEOHASH key [member …]
pub fn geohash(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    for_each_place(ctx, |reply, place| match place {
        Some(place) => reply.bulk(&place.text()),
        None => reply.null(),
    })
}

/// GEOPOS key [member …]
pub fn geopos(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    for_each_place(ctx, |reply, place| match place {
        Some(place) => write_place(reply, &place),
        None => reply.null_array(),
    })
}

/// GEODIST key member1 member2 [M | KM | FT | MI]
pub fn geodist(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    let args = ctx.args;
    let unit_m = match args.len() {
        4 => 1.0,
        5 => parse_unit(args, 4)?,
        _ => return Err(CmdError::SYNTAX),
    };
    let zset = zset::view(ctx.store, ctx.client.db, args.at(1))?;
    let scores = zset.score(args.at(2))?.zip(zset.score(args.at(3))?);
    match scores {
        Some((from, to)) => write_distance(ctx.reply, Place::of_score(from).distance_m(&Place::of_score(to)) / unit_m),
        None => ctx.reply.null(),
    }
    Ok(())
}
