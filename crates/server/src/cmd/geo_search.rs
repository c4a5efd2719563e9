//! Members of sorted sets whose places lie in an area: found, sorted by their distance, shown or kept.
//!
//! What is found is collected in ordinary memory; of a search for the nearest or the farthest ones not many more than are asked for.
//! What is kept is logged by its result: another machine's sines may differ in their last digit.

use quire_store::numbers::format_f64;
use quire_store::zset::{self, ScoredMembers};
use quire_store::{Cut, Direction, ZsetView};

use crate::cmd::geo::{parse_place, parse_unit, write_distance, write_place};
use crate::ctx::{Args, CmdError, Ctx};
use crate::effects::EffectWord;
use crate::geohash::{Place, SearchCells, Shape, ShapeKind, whole};

const UNDECODED: CmdError = CmdError::fixed("ERR could not decode requested zset member");
/// Points beyond those that are asked for that are collected before the ones too many go.
const SPARE_POINTS: usize = 1024;
/// Members of one command of an effect.
const TOLD_AT_ONCE: usize = 1000;

/// Which of the commands it is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    /// GEORADIUS: a place and a radius stand in front.
    Radius,
    /// GEORADIUSBYMEMBER: a member and a radius stand in front.
    RadiusByMember,
    /// GEOSEARCH: all is said by options.
    Search,
    /// GEOSEARCHSTORE.
    SearchStore,
}

/// In which order what was found is shown.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Order {
    AsFound,
    NearestFirst,
    FarthestFirst,
}

/// What a request asks for.
struct SearchRequest {
    form: Form,
    /// STORE and STOREDIST are options.
    may_store: bool,
    middle: Option<Place>,
    kind: Option<ShapeKind>,
    unit_m: f64,
    /// The options FROMMEMBER and FROMLONLAT that were given, also of a sorted set that isn't there.
    from_member: bool,
    from_place: bool,
    shows: Shows,
    order: Order,
    /// Most members; 0 is all.
    count: usize,
    /// Any so many members will do.
    any: bool,
    /// The word that is the key to store at.
    store_at: Option<usize>,
    /// Distances are stored as scores.
    stores_distances: bool,
}

/// What is shown beside a member.
#[derive(Clone, Copy, Default)]
struct Shows {
    distance: bool,
    score: bool,
    place: bool,
}

impl Shows {
    fn count(self) -> usize {
        usize::from(self.distance) + usize::from(self.score) + usize::from(self.place)
    }
}

/// A member that was found.
#[derive(Clone, Copy)]
struct Point {
    distance_m: f64,
    score: f64,
    place: Place,
    /// Where its bytes lie.
    start: usize,
    len: usize,
}

/// What was found so far.
#[derive(Default)]
struct Found {
    points: Vec<Point>,
    bytes: Vec<u8>,
}

fn parse_size(args: Args<'_>, at: usize, error: &'static str) -> Result<f64, CmdError> {
    args.float(at).map_err(|_| CmdError::fixed(error))
}

/// Reads a radius and its unit.
fn parse_radius(args: Args<'_>, at: usize) -> Result<(ShapeKind, f64), CmdError> {
    let radius = parse_size(args, at, "ERR need numeric radius")?;
    if radius < 0.0 {
        return Err(CmdError::fixed("ERR radius cannot be negative"));
    }
    Ok((ShapeKind::Circle { radius }, parse_unit(args, at + 1)?))
}

/// Reads the sides of a rectangle and their unit.
fn parse_box(args: Args<'_>, at: usize) -> Result<(ShapeKind, f64), CmdError> {
    let width = parse_size(args, at, "ERR need numeric width")?;
    let height = parse_size(args, at + 1, "ERR need numeric height")?;
    if width < 0.0 || height < 0.0 {
        return Err(CmdError::fixed("ERR height or width cannot be negative"));
    }
    Ok((ShapeKind::Box { width, height }, parse_unit(args, at + 2)?))
}

/// The place of a member; `None` only if there is no sorted set at all.
fn place_of(zset: &ZsetView<'_>, member: &[u8]) -> Result<Option<Place>, CmdError> {
    match zset.score(member)? {
        Some(score) => Ok(Some(Place::of_score(score))),
        None if zset.exists() => Err(UNDECODED),
        None => Ok(None),
    }
}

impl SearchRequest {
    fn parse(args: Args<'_>, form: Form, may_store: bool, zset: &ZsetView<'_>) -> Result<Self, CmdError> {
        let mut request = Self {
            form,
            may_store,
            middle: None,
            kind: None,
            unit_m: 1.0,
            from_member: false,
            from_place: false,
            shows: Shows::default(),
            order: Order::AsFound,
            count: 0,
            any: false,
            store_at: (form == Form::SearchStore).then_some(1),
            stores_distances: false,
        };
        let mut at = request.parse_front(args, zset)?;
        while at < args.len() {
            let words = match request.parse_plain(args, at)? {
                0 if matches!(form, Form::Radius | Form::RadiusByMember) => request.parse_store(args, at),
                0 => request.parse_area(args, at, zset)?,
                words => words,
            };
            if words == 0 {
                return Err(CmdError::SYNTAX);
            }
            at += words;
        }
        request.check(args)?;
        if request.count > 0 && request.order == Order::AsFound && !request.any {
            request.order = Order::NearestFirst;
        }
        Ok(request)
    }

    /// Reads what stands before the options; returns where they begin.
    fn parse_front(&mut self, args: Args<'_>, zset: &ZsetView<'_>) -> Result<usize, CmdError> {
        match self.form {
            Form::Search => return Ok(2),
            Form::SearchStore => return Ok(3),
            Form::Radius => self.middle = Some(parse_place(args, 2)?),
            // Nothing is found, so that the radius isn't looked at.
            Form::RadiusByMember if !zset.exists() => return Ok(5),
            Form::RadiusByMember => self.middle = place_of(zset, args.at(2))?,
        }
        let first = if self.form == Form::Radius { 6 } else { 5 };
        let (kind, unit_m) = parse_radius(args, first - 2)?;
        (self.kind, self.unit_m) = (Some(kind), unit_m);
        Ok(first)
    }

    /// Reads an option that all forms have; returns how many words it has, 0 if it is none.
    fn parse_plain(&mut self, args: Args<'_>, at: usize) -> Result<usize, CmdError> {
        match args.at(at).to_ascii_lowercase().as_slice() {
            b"withdist" => self.shows.distance = true,
            b"withhash" => self.shows.score = true,
            b"withcoord" => self.shows.place = true,
            b"any" => self.any = true,
            b"asc" => self.order = Order::NearestFirst,
            b"desc" => self.order = Order::FarthestFirst,
            b"count" if at + 1 < args.len() => {
                let count = usize::try_from(args.int(at + 1)?).ok().filter(|&count| count > 0);
                self.count = count.ok_or(CmdError::fixed("ERR COUNT must be > 0"))?;
                return Ok(2);
            }
            _ => return Ok(0),
        }
        Ok(1)
    }

    fn parse_store(&mut self, args: Args<'_>, at: usize) -> usize {
        let distances = args.is(at, "STOREDIST");
        if !self.may_store || at + 1 >= args.len() || !(distances || args.is(at, "STORE")) {
            return 0;
        }
        (self.store_at, self.stores_distances) = (Some(at + 1), distances);
        2
    }

    fn parse_area(&mut self, args: Args<'_>, at: usize, zset: &ZsetView<'_>) -> Result<usize, CmdError> {
        let behind = args.len() - at - 1;
        let is_box = matches!(self.kind, Some(ShapeKind::Box { .. }));
        let is_circle = matches!(self.kind, Some(ShapeKind::Circle { .. }));
        match args.at(at).to_ascii_lowercase().as_slice() {
            b"storedist" if self.form == Form::SearchStore => {
                self.stores_distances = true;
                Ok(1)
            }
            b"frommember" if behind >= 1 && !self.from_place => {
                self.middle = place_of(zset, args.at(at + 1))?;
                self.from_member = true;
                Ok(2)
            }
            b"fromlonlat" if behind >= 2 && !self.from_member => {
                self.middle = Some(parse_place(args, at + 1)?);
                self.from_place = true;
                Ok(3)
            }
            b"byradius" if behind >= 2 && !is_box => {
                let (kind, unit_m) = parse_radius(args, at + 1)?;
                (self.kind, self.unit_m) = (Some(kind), unit_m);
                Ok(3)
            }
            b"bybox" if behind >= 3 && !is_circle => {
                let (kind, unit_m) = parse_box(args, at + 1)?;
                (self.kind, self.unit_m) = (Some(kind), unit_m);
                Ok(4)
            }
            _ => Ok(0),
        }
    }

    /// Whether the options go together.
    fn check(&self, args: Args<'_>) -> Result<(), CmdError> {
        if self.store_at.is_some() && self.shows.count() > 0 {
            let what = if self.form == Form::SearchStore { "GEOSEARCHSTORE" } else { "STORE option in GEORADIUS" };
            return Err(CmdError::owned(format!(
                "ERR {what} is not compatible with WITHDIST, WITHHASH and WITHCOORD options"
            )));
        }
        let needs = |what: &str| {
            Err(CmdError::owned(format!("ERR exactly one of {what} can be specified for {}", args.text(0))))
        };
        if matches!(self.form, Form::Search | Form::SearchStore) {
            if !self.from_member && !self.from_place {
                return needs("FROMMEMBER or FROMLONLAT");
            }
            if self.kind.is_none() {
                return needs("BYRADIUS and BYBOX");
            }
        }
        if self.any && self.count == 0 {
            return Err(CmdError::fixed("ERR the ANY argument requires COUNT argument"));
        }
        Ok(())
    }

    /// The area; `None` where there is no sorted set.
    fn shape(&self) -> Option<Shape> {
        Some(Shape { middle: self.middle?, kind: self.kind?, unit_m: self.unit_m })
    }

    fn find(&self, zset: &ZsetView<'_>) -> Result<Found, CmdError> {
        let mut found = Found::default();
        let Some(shape) = self.shape().filter(|_| zset.exists()) else { return Ok(found) };
        let enough = if self.any { self.count } else { usize::MAX };
        for scores in SearchCells::of(&shape).scores() {
            if found.points.len() >= enough {
                break;
            }
            let ranks =
                zset.ranks_between(&Cut::BelowScore(scores.start as f64), &Cut::BelowScore(scores.end as f64))?;
            zset.range(ranks, Direction::Up, |score, member| {
                let place = Place::of_score(score);
                if let Some(distance_m) = shape.distance_within(&place) {
                    found.push(distance_m, score, place, member);
                    found.drop_spare(self.order, self.count);
                }
                found.points.len() < enough
            })?;
        }
        found.sort(self.order);
        if self.count > 0 {
            found.points.truncate(self.count);
        }
        Ok(found)
    }
}

impl Found {
    fn push(&mut self, distance_m: f64, score: f64, place: Place, member: &[u8]) {
        self.points.push(Point { distance_m, score, place, start: self.bytes.len(), len: member.len() });
        self.bytes.extend_from_slice(member);
    }

    /// Puts the points in an order; those that are as far away stay as they were found.
    fn sort(&mut self, order: Order) {
        match order {
            Order::AsFound => {}
            Order::NearestFirst => self.points.sort_by(|one, other| one.distance_m.total_cmp(&other.distance_m)),
            Order::FarthestFirst => self.points.sort_by(|one, other| other.distance_m.total_cmp(&one.distance_m)),
        }
    }

    /// Drops the points too many of a search for `count` of them, once there are many.
    fn drop_spare(&mut self, order: Order, count: usize) {
        if count == 0
            || order == Order::AsFound
            || self.points.len() < count.saturating_mul(2).saturating_add(SPARE_POINTS)
        {
            return;
        }
        self.sort(order);
        self.points.truncate(count);
        let mut kept = Vec::new();
        for point in &mut self.points {
            let start = kept.len();
            kept.extend_from_slice(&self.bytes[point.start..point.start + point.len]);
            point.start = start;
        }
        self.bytes = kept;
    }

    fn iter(&self) -> impl Iterator<Item = (&Point, &[u8])> {
        self.points.iter().map(|point| (point, &self.bytes[point.start..point.start + point.len]))
    }
}

/// Runs a command whose sorted set has its key at the word `key_at`.
fn run(ctx: &mut Ctx<'_>, key_at: usize, form: Form, may_store: bool) -> Result<(), CmdError> {
    let (args, db) = (ctx.args, ctx.client.db);
    let zset = zset::view(ctx.store, db, args.at(key_at))?;
    let request = SearchRequest::parse(args, form, may_store, &zset)?;
    let found = request.find(&zset)?;
    match request.store_at {
        Some(at) => store(ctx, at, &request, &found),
        None => {
            show(ctx, &request, &found);
            Ok(())
        }
    }
}

fn show(ctx: &mut Ctx<'_>, request: &SearchRequest, found: &Found) {
    let (reply, shows) = (&mut *ctx.reply, request.shows);
    reply.array(found.points.len());
    for (point, member) in found.iter() {
        if shows.count() > 0 {
            reply.array(1 + shows.count());
        }
        reply.bulk(member);
        if shows.distance {
            write_distance(reply, point.distance_m / request.unit_m);
        }
        if shows.score {
            reply.int(whole(point.score));
        }
        if shows.place {
            write_place(reply, &point.place);
        }
    }
}

fn store(ctx: &mut Ctx<'_>, at: usize, request: &SearchRequest, found: &Found) -> Result<(), CmdError> {
    let mut members = ScoredMembers::default();
    for (point, member) in found.iter() {
        members.push(if request.stores_distances { point.distance_m / request.unit_m } else { point.score }, member);
    }
    zset::store_members(ctx.store, ctx.client.db, ctx.args.at(at), &members)?;
    if ctx.server.log_writer.is_some() {
        say_stored(ctx, at, &members);
    }
    ctx.reply.int(found.points.len() as i64);
    Ok(())
}

/// Says which members the key of the word at `at` has now.
fn say_stored(ctx: &mut Ctx<'_>, at: usize, members: &ScoredMembers) {
    ctx.say_effect(&[EffectWord::Bytes(b"DEL"), EffectWord::Arg(at)]);
    let mut left = members.iter().peekable();
    while left.peek().is_some() {
        let some: Vec<(String, &[u8])> =
            left.by_ref().take(TOLD_AT_ONCE).map(|(score, member)| (format_f64(score), member)).collect();
        let mut words = vec![EffectWord::Bytes(b"ZADD"), EffectWord::Arg(at)];
        for (score, member) in &some {
            words.extend([EffectWord::Bytes(score.as_bytes()), EffectWord::Bytes(member)]);
        }
        ctx.say_also(&words);
    }
}

/// GEOSEARCH key FROMMEMBER member | FROMLONLAT longitude latitude BYRADIUS radius unit | BYBOX width height unit [ASC | DESC]
/// [COUNT count [ANY]] [WITHCOORD] [WITHDIST] [WITHHASH]
pub fn geosearch(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    run(ctx, 1, Form::Search, false)
}

/// GEOSEARCHSTORE destination source … [STOREDIST]
pub fn geosearchstore(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    run(ctx, 2, Form::SearchStore, false)
}

/// GEORADIUS key longitude latitude radius unit … [STORE key] [STOREDIST key]
pub fn georadius(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    run(ctx, 1, Form::Radius, true)
}

/// GEORADIUS_RO key longitude latitude radius unit …
pub fn georadius_ro(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    run(ctx, 1, Form::Radius, false)
}

/// GEORADIUSBYMEMBER key member radius unit … [STORE key] [STOREDIST key]
pub fn georadiusbymember(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    run(ctx, 1, Form::RadiusByMember, true)
}

/// GEORADIUSBYMEMBER_RO key member radius unit …
pub fn georadiusbymember_ro(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    run(ctx, 1, Form::RadiusByMember, false)
}
