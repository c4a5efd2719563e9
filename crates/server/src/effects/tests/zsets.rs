//! What commands on sorted sets, and those that pop, are logged as.
//!
//! Relies on the log of a server without sockets.

use super::assert_logged;

#[test]
fn what_is_added_to_scores_or_popped_is_logged_by_its_result() {
    for (line, effect) in [
        ("ZADD z GT CH 3 x 1 y", "ZADD z GT CH 3 x 1 y"),
        ("ZADD z NX 3 x", ""),
        ("ZINCRBY z 0.2 x", "ZADD z 0.30000000000000004 x"),
        ("ZADD z XX INCR -inf y", "ZADD z -inf y"),
        ("ZADD z GT INCR -1 y", ""),
        ("ZINCRBY z nan x", ""),
        ("ZREM z none", ""),
        ("ZPOPMIN z", "ZREMRANGEBYRANK z 0 0"),
        ("ZPOPMAX z 0", ""),
        ("ZPOPMAX z 2", "DEL z"),
        ("ZPOPMAX z 1", "ZREMRANGEBYRANK z 1 1"),
        ("ZMPOP 2 none z MAX", "ZREMRANGEBYRANK z 1 1"),
        ("BZPOPMIN none z 0", "ZREMRANGEBYRANK z 0 0"),
        ("bzpopmax z 5", "ZREMRANGEBYRANK z 1 1"),
        ("BZPOPMIN none 0", ""),
        ("BZMPOP 0 2 none z MIN COUNT 5", "DEL z"),
        ("BZMPOP 0 1 z MAX", "ZREMRANGEBYRANK z 1 1"),
        ("ZREMRANGEBYLEX z - [x", "ZREMRANGEBYRANK z 0 0"),
        ("ZREMRANGEBYLEX z [zz +", ""),
        ("ZRANGESTORE w z [y + BYLEX", "ZRANGESTORE w z 1 1"),
        ("ZRANGESTORE w z + - BYLEX REV LIMIT 0 1", "ZRANGESTORE w z 1 1"),
        ("ZRANGESTORE z z [zz + BYLEX", "DEL z"),
        ("ZRANGESTORE w z 0 0", "ZRANGESTORE w z 0 0"),
        ("ZREMRANGEBYSCORE z 1 inf", "ZREMRANGEBYSCORE z 1 inf"),
        ("ZUNIONSTORE w 2 z t", "ZUNIONSTORE w 2 z t"),
        ("ZRANDMEMBER z 5", ""),
        ("GEOADD g CH 0 0 x -180 0 y", "ZADD g CH 3377699720527872 x 1125899906842624 y"),
        ("GEOADD z NX 0 0 x", ""),
        ("GEOSEARCHSTORE w z FROMLONLAT 0 0 BYRADIUS 30000 km", "DEL w; ZADD w 0.1 x 2 y"),
        ("GEORADIUS z 0 0 30000 km COUNT 1 ANY STORE t", "DEL t; ZADD t 0.1 x"),
        ("GEORADIUS z 0 0 1 m STORE w", ""),
        ("GEORADIUS z 0 0 1 m STOREDIST t", "DEL t"),
    ] {
        assert_logged(line, effect);
    }
}
