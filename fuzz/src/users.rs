//! Target `acl_file`: any text as a file of users is refused, or makes users that are told so that they are read back alike.
//!
//! Relies on the server's own commands, which rules name.

use quire_server::acl::{Acl, RuleContext, parse_users};
use quire_server::{registry, specs};

/// The promise: a refusal says why; what is written for the users that were read makes the same users again.
pub fn run(data: &[u8]) {
    let commands = registry::install(specs::ALL);
    for all_channels in [false, true] {
        let context = RuleContext { commands, all_channels };
        let users = match parse_users(data, "fuzzed", context) {
            Ok(users) => users,
            Err(reason) => {
                assert!(!reason.is_empty());
                continue;
            }
        };
        let mut acl = Acl::default();
        acl.replace_all(users);
        let lines = acl.lines();
        let again = match parse_users(&lines.join(&b'\n'), "written", context) {
            Ok(users) => users,
            Err(reason) => panic!("what was written is refused: {reason}"),
        };
        let mut read = Acl::default();
        read.replace_all(again);
        assert_eq!(read.lines(), lines, "the users have changed");
    }
}

/// Files with rules of every kind.
pub fn seeds() -> Vec<Vec<u8>> {
    let texts = [
        "user default on nopass ~* &* +@all\nuser alice on >secret ~cached:* %R~r* %W~w* &news.* -@all +get +@read -@dangerous\n",
        "user bob off resetpass #148de9c5a7a44d19e56cd9ae1a554bf67847afb0c58f6e12fa29ac7ddfca9940 allkeys allchannels allcommands\n",
        "user carol on nopass (+get ~a) (%RW~b &c +set) clearselectors (+@hash ~h) +config|get -client|kill +select|0\n",
        "\n  user  dave  on\r\nuser eve reset skip-sanitize-payload +psync +cluster|info nocommands resetkeys resetchannels\n",
    ];
    texts.iter().map(|text| text.as_bytes().to_vec()).collect()
}
