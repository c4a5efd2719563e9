//! Access control: users, what each may do, who a client is, and what was denied.
//!
//! Knows no commands: rules name them to a [`CommandCatalog`], which the registry of commands is, and a request comes as
//! [`RequestFacts`]. Which requests are checked is in `permission`, what follows for clients when users change in `users`.

mod command_catalog;
mod command_rules;
mod denial_log;
mod login;
mod rule_error;
mod selector;
mod user;
mod users_file;

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

pub use command_catalog::{CommandCatalog, NamedCommand, RuleContext};
pub use denial_log::{DenialContext, DenialEntry, DenialLog, DenialReason};
pub use login::{Access, Login};
pub use rule_error::RuleError;
pub use selector::{Denial, RequestFacts, Selector};
pub use user::{MOST_PASSWORD_BYTES, User};
pub use users_file::{is_user_name, merge_selectors, parse_users};

use user::PasswordHash;

/// The user that clients are at first, and that can't be removed.
pub const DEFAULT_USER: &[u8] = b"default";

/// The default user as it is before any setting: it may do everything, without a password.
static UNRESTRICTED: LazyLock<Arc<User>> = LazyLock::new(|| Arc::new(User::unrestricted(DEFAULT_USER)));

/// All users.
#[derive(Debug)]
pub struct Acl {
    users: BTreeMap<Box<[u8]>, Arc<User>>,
    /// The one of them that clients are at first.
    default: Arc<User>,
}

impl Default for Acl {
    fn default() -> Self {
        let default = Arc::clone(&UNRESTRICTED);
        Self { users: BTreeMap::from([(default.name.clone(), Arc::clone(&default))]), default }
    }
}

impl Acl {
    /// The user of this name.
    pub fn find(&self, name: &[u8]) -> Option<&Arc<User>> {
        self.users.get(name)
    }

    /// All users by name.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &Arc<User>> {
        self.users.values()
    }

    /// The user that clients are at first.
    pub fn default_user(&self) -> &Arc<User> {
        &self.default
    }

    /// Gives the default user this password only, or none if it is empty (`requirepass`).
    pub fn set_default_password(&mut self, password: &[u8]) {
        let mut user = User::clone(&self.default);
        user.set_only_password(password);
        self.put(user);
    }

    /// Adds a user, or replaces the one of its name.
    pub fn put(&mut self, user: User) {
        let user = Arc::new(user);
        if *user.name == *DEFAULT_USER {
            self.default = Arc::clone(&user);
        }
        self.users.insert(user.name.clone(), user);
    }

    /// Removes a user, but not the default one; whether it was there.
    pub fn remove(&mut self, name: &[u8]) -> bool {
        name != DEFAULT_USER && self.users.remove(name).is_some()
    }

    /// Has these users and no others, but for the default one, which may do everything if it is not among them.
    pub fn replace_all(&mut self, users: Vec<User>) {
        *self = Self::default();
        users.into_iter().for_each(|user| self.put(user));
    }

    /// The user as it is after these rules, or a new one.
    ///
    /// # Errors
    /// The rule that is refused, and why.
    pub fn changed(
        &self,
        context: RuleContext<'_>,
        name: &[u8],
        rules: Vec<Vec<u8>>,
    ) -> Result<User, (Vec<u8>, RuleError)> {
        let mut user = self.find(name).map_or_else(|| User::new(name, context), |user| User::clone(user));
        for rule in rules {
            if let Err(error) = user.apply(context, &rule) {
                return Err((rule, error));
            }
        }
        Ok(user)
    }

    /// Which user a client with this name and password is, if the two are right. An unknown name takes as long as a known one.
    pub fn log_in(&self, name: &[u8], password: &[u8]) -> Option<&Arc<User>> {
        let given = PasswordHash::of(password);
        self.find(name).filter(|user| user.admits(given))
    }

    /// Who a client is that has just come, or that is to be as new.
    pub fn first_login(&self) -> Login {
        self.judged(Arc::clone(&self.default), self.default.needs_no_password())
    }

    /// Who a client is that has given the right name and password.
    pub fn login_as(&self, user: &Arc<User>) -> Login {
        self.judged(Arc::clone(user), true)
    }

    /// Who a client is whose user has other rules now, or is gone: it has to log in again then.
    pub fn renewed(&self, login: &Login) -> Login {
        match self.find(&login.user().name) {
            Some(user) => self.judged(Arc::clone(user), login.is_authenticated()),
            None => self.judged(Arc::clone(&self.default), false),
        }
    }

    fn judged(&self, user: Arc<User>, is_authenticated: bool) -> Login {
        let access = if !is_authenticated && !self.default.needs_no_password() {
            Access::Stranger
        } else if user.is_unrestricted() {
            Access::Unrestricted
        } else {
            Access::Restricted
        };
        Login::new(user, is_authenticated, access)
    }

    /// The lines that make all users again.
    pub fn lines(&self) -> Vec<Vec<u8>> {
        self.iter().map(|user| [b"user ".as_slice(), &user.name, b" ", &user.describe()].concat()).collect()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::args::{ArgRange, Args};
    use crate::registry::Registry;
    use crate::specs;
    use crate::table::NO_AUTH;

    fn commands() -> Registry {
        Registry::build(specs::ALL)
    }

    fn context(registry: &Registry) -> RuleContext<'_> {
        RuleContext { commands: registry, all_channels: false }
    }

    fn apply_all(registry: &Registry, user: &mut User, rules: &str) -> Result<(), RuleError> {
        let rules = merge_selectors(rules.split(' ').map(str::as_bytes)).map_err(|_| RuleError::Syntax)?;
        rules.iter().try_for_each(|rule| user.apply(context(registry), rule))
    }

    fn user(registry: &Registry, rules: &str) -> User {
        let mut user = User::new(b"a", context(registry));
        apply_all(registry, &mut user, rules).unwrap_or_else(|error| panic!("{rules}: {error}"));
        user
    }

    fn denied(registry: &Registry, user: &User, line: &str) -> Option<Denial> {
        let mut ranges = Vec::new();
        for word in line.split(' ') {
            let start = word.as_ptr() as usize - line.as_ptr() as usize;
            ranges.push(ArgRange { start: start as u32, len: word.len() as u32 });
        }
        let args = Args::new(line.as_bytes(), &ranges);
        let command = registry.find(args.at(0)).unwrap();
        let sub = args.get(1).and_then(|word| registry.find_sub(command, word));
        let command = sub.unwrap_or(command);
        user.denial(&RequestFacts {
            command: command.id.0,
            is_free: command.spec.has(NO_AUTH),
            args,
            keys: &command.spec.key_uses(args),
            channels: command.spec.channels,
        })
    }

    #[test]
    fn rules_allow_commands_keys_and_channels() {
        let registry = commands();
        let cases: &[(&str, &str, Option<Denial>)] = &[
            ("+get ~x*", "GET x1", None),
            ("+get ~x*", "GET y", Some(Denial::Key(1))),
            ("+get ~x*", "SET x1 1", Some(Denial::Command)),
            ("+@all ~x*", "MSET x1 1 y 2", Some(Denial::Key(3))),
            ("+@read ~*", "GET a", None),
            ("+@read ~*", "SET a 1", Some(Denial::Command)),
            ("+@all -@dangerous ~*", "FLUSHALL", Some(Denial::Command)),
            ("+@all -@dangerous ~* +flushall", "FLUSHALL", None),
            ("+config|get", "CONFIG GET a", None),
            ("+config|get", "CONFIG SET a b", Some(Denial::Command)),
            ("+client -client|kill", "CLIENT LIST", None),
            ("+client -client|kill", "CLIENT KILL x", Some(Denial::Command)),
            ("+select|0", "SELECT 0", None),
            ("+select|0", "SELECT 1", Some(Denial::Command)),
            ("+select|0 -select", "SELECT 0", Some(Denial::Command)),
            ("+@all %R~r* %W~w*", "GET r", None),
            ("+@all %R~r* %W~w*", "SET r 1", Some(Denial::Key(1))),
            ("+@all %R~r* %W~w*", "SET w 1", None),
            ("+@all %R~r* %W~w*", "SET w 1 GET", Some(Denial::Key(1))),
            ("+@all %R~r* %W~w*", "GET w", Some(Denial::Key(1))),
            ("+@all %R~r* %W~w*", "COPY r w", None),
            ("+@all %R~r* %W~w*", "COPY w r", Some(Denial::Key(1))),
            ("+@all %R~r*", "BITFIELD r GET u8 0 OVERFLOW SAT", None),
            ("+@all %R~r*", "BITFIELD r GET u8 0 SET u8 0 1", Some(Denial::Key(1))),
            ("+@all %R~r* %W~w*", "SORT r STORE w", None),
            ("+@all %R~r* %W~w*", "SORT r STORE w STORE x", Some(Denial::Key(5))),
            ("+@all ~g ~h", "GEORADIUS g 0 0 1 m STORE h", None),
            ("+@all ~g ~h", "GEORADIUS g 0 0 1 m STORE h STORE i", Some(Denial::Key(9))),
            ("+@all %RW~*", "SET any 1", None),
            ("+@all &c*", "PUBLISH c1 x", None),
            ("+@all &c*", "PUBLISH d x", Some(Denial::Channel(1))),
            ("+@all &c*", "SUBSCRIBE c1 d", Some(Denial::Channel(2))),
            ("+@all &c*", "PSUBSCRIBE c*", None),
            ("+@all &c*", "PSUBSCRIBE c1*", Some(Denial::Channel(1))),
            ("+@all &*", "PSUBSCRIBE c1*", None),
            ("+@all &c*", "UNSUBSCRIBE d", None),
            ("+@all &c*", "SSUBSCRIBE c d", Some(Denial::Channel(2))),
            ("+@all &c*", "SPUBLISH d x", Some(Denial::Channel(1))),
            ("-@all", "AUTH x", None),
            ("+get ~a (+set ~b) (+get ~c)", "GET c", None),
            ("+get ~a (+set ~b) (+get ~c)", "SET b 1", None),
            ("+get ~a (+set ~b) (+get ~c)", "SET a 1", Some(Denial::Key(1))),
            ("+get ~a (+set ~b) (+get ~c)", "DEL a", Some(Denial::Command)),
            ("+get ~a (+set ~b) clearselectors", "SET b 1", Some(Denial::Command)),
            ("allcommands allkeys allchannels", "SET a 1", None),
            ("+@all ~* -get", "GET a", Some(Denial::Command)),
            ("+@all ~* nocommands", "GET a", Some(Denial::Command)),
            ("+@all ~* resetkeys", "GET a", Some(Denial::Key(1))),
            ("+@all ~* reset", "GET a", Some(Denial::Command)),
        ];
        for (rules, line, expected) in cases {
            assert_eq!(denied(&registry, &user(&registry, rules), line), *expected, "{line} by {rules}");
        }
    }

    #[test]
    fn rules_that_make_no_sense_are_refused_in_redis_words() {
        let registry = commands();
        let almost = format!("#{}G", "0".repeat(63));
        for (rules, error) in [
            ("+nosuch", RuleError::UnknownCommand),
            ("+@nosuch", RuleError::UnknownCommand),
            ("+config|nosuch", RuleError::UnknownCommand),
            ("-select|0", RuleError::UnknownCommand),
            ("+", RuleError::UnknownCommand),
            ("+config|get|x", RuleError::FirstArgOfSubcommand),
            ("+select|", RuleError::Syntax),
            ("foo", RuleError::Syntax),
            ("%X~foo", RuleError::Syntax),
            ("%RR~foo", RuleError::Syntax),
            ("%~foo", RuleError::Syntax),
            ("%Rfoo", RuleError::Syntax),
            ("<zz", RuleError::NoSuchPassword),
            ("#zz", RuleError::BadHash),
            (&almost, RuleError::BadHash),
            ("allkeys ~foo", RuleError::AfterAllKeys),
            ("allkeys %R~foo", RuleError::AfterAllKeys),
            ("&* &foo", RuleError::AfterAllChannels),
            ("(foo)", RuleError::Syntax),
            ("(+get (~a) )", RuleError::Syntax),
        ] {
            let mut user = User::new(b"a", context(&registry));
            assert_eq!(apply_all(&registry, &mut user, rules), Err(error), "{rules}");
        }
        let words: [&[u8]; 3] = [b"on", b"(+get", b"~x"];
        assert_eq!(merge_selectors(words.into_iter()), Err(1));
    }

    #[test]
    fn what_holds_against_each_request_has_an_end() {
        let registry = commands();
        for (start, number) in [("~k", 5000), ("&c", 5000), (">p", 5000), ("+select|", 5000)] {
            let mut user = User::new(b"a", context(&registry));
            let mut results = (0..number).map(|n| user.apply(context(&registry), format!("{start}{n}").as_bytes()));
            assert!(results.any(|result| result == Err(RuleError::TooMany)), "{start}");
        }
        let long = [b">".to_vec(), vec![b'x'; 1 << 20]].concat();
        let mut user = User::new(b"a", context(&registry));
        assert_eq!(user.apply(context(&registry), &long), Err(RuleError::LongPassword));
        assert_eq!(
            user.apply(context(&registry), &[b"~".to_vec(), vec![b'*'; 1 << 20]].concat()),
            Err(RuleError::Syntax)
        );
    }

    #[test]
    fn a_user_is_described_by_rules_that_make_it_again() {
        let registry = commands();
        for rules in [
            "on >secret ~x:* %R~y* &ch +get -set +@hash +config|get +client -client|kill (+set ~z)",
            "off nopass allkeys allchannels +@all -@dangerous",
            "on >one >two resetchannels +select|0 (%W~q &w +@all) (~* -@all +get)",
            "on skip-sanitize-payload",
            "+failover +psync +module|load -@admin +@all -slaveof",
        ] {
            let mut acl = Acl::default();
            acl.put(user(&registry, rules));
            let lines = acl.lines().join(&b'\n');
            let again = parse_users(&lines, "users", context(&registry)).unwrap();
            let mut read = Acl::default();
            read.replace_all(again);
            assert_eq!(String::from_utf8_lossy(&read.lines().join(&b'\n')), String::from_utf8_lossy(&lines), "{rules}");
        }
        let user = user(&registry, "on >p ~x:* %R~y* &ch +GET (+set ~z)");
        assert_eq!(
            String::from_utf8_lossy(&user.describe()),
            "on sanitize-payload #148de9c5a7a44d19e56cd9ae1a554bf67847afb0c58f6e12fa29ac7ddfca9940 ~x:* %R~y* resetchannels &ch \
             -@all +get (~z resetchannels -@all +set)"
        );
    }

    #[test]
    fn passwords_are_compared_by_their_hashes() {
        let registry = commands();
        let admits = |user: &User, password: &[u8]| user.admits(PasswordHash::of(password));
        let mut one = user(&registry, "on >p >q");
        assert!(admits(&one, b"p") && admits(&one, b"q") && !admits(&one, b"") && !admits(&one, b"pq"));
        one.apply(context(&registry), b"<p").unwrap();
        assert!(!admits(&one, b"p") && admits(&one, b"q"));
        one.apply(context(&registry), b"off").unwrap();
        assert!(!admits(&one, b"q"));
        assert!(!admits(&user(&registry, "on"), b""), "without a password and without nopass none will do");
        assert!(admits(&user(&registry, "on nopass"), b"any"));
        assert!(!admits(&user(&registry, "on nopass resetpass"), b"any"));
        assert!(!one.admits(None), "a password that is too long is wrong");
    }

    #[test]
    fn who_a_client_is_decides_what_is_looked_at() {
        let registry = commands();
        let mut acl = Acl::default();
        assert!(acl.first_login().is_unrestricted());
        acl.set_default_password(b"secret");
        assert!(acl.first_login().is_stranger());
        assert!(acl.log_in(b"default", b"wrong").is_none() && acl.log_in(b"nosuch", b"secret").is_none());
        let login = acl.login_as(acl.log_in(b"default", b"secret").unwrap());
        assert!(login.is_unrestricted() && login.is_authenticated());
        acl.put(user(&registry, "on >p +get ~*"));
        let login = acl.login_as(acl.log_in(b"a", b"p").unwrap());
        assert_eq!((login.is_stranger(), login.is_unrestricted(), &*login.user().name), (false, false, &b"a"[..]));
        acl.put(user(&registry, "on >p +@all ~* &*"));
        assert!(acl.renewed(&login).is_unrestricted());
        assert!(acl.remove(b"a") && !acl.remove(b"a") && !acl.remove(DEFAULT_USER));
        let gone = acl.renewed(&login);
        assert_eq!((gone.is_stranger(), &*gone.user().name), (true, DEFAULT_USER));
    }

    #[test]
    fn a_file_that_is_wrong_is_refused_with_all_its_faults() {
        let registry = commands();
        let users = |text: &str| parse_users(text.as_bytes(), "f", context(&registry));
        assert_eq!(users("user a on nopass ~* +@all\r\n\n \t\nuser  b   off\n").unwrap().len(), 2);
        for (text, fault) in [
            ("user a on\nuser a off", "WARNING: Duplicate user 'a' found on line 2. "),
            ("nouser a", "f:1 should start with user keyword followed by the username. "),
            ("\nuser", "f:2 should start with user keyword followed by the username. "),
            ("user a +nosuch", "f:1: Error in applying operation '+nosuch': Unknown command or category name in ACL. "),
            ("user a (+get", "f:1: Unmatched parenthesis in selector definition.WARNING"),
            ("user a\x0bb on", "'f:1: username 'a\x0bb' contains invalid characters. "),
            ("user a >secret #zz", "f:1: The password hash must be exactly 64 characters and contain only lowercase"),
        ] {
            let error = users(text).unwrap_err();
            assert!(error.starts_with(fault) && error.ends_with("was performed"), "{error}");
            assert!(!error.contains("secret"), "{error}");
        }
        assert_eq!(users(&"nouser\n".repeat(1000)).unwrap_err().matches("should start").count(), 32);
    }

    #[test]
    fn a_saved_file_is_whole_and_read_by_its_owner_only() {
        use std::os::unix::fs::PermissionsExt;
        let registry = commands();
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("users.acl");
        let mut acl = Acl::default();
        acl.put(user(&registry, "on >p ~x +get"));
        acl.save(&path).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let mut again = Acl::default();
        again.load(&path, context(&registry)).unwrap();
        assert_eq!(again.lines(), acl.lines());
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1, "nothing lies beside it");
        let missing = again.load(&dir.path().join("none"), context(&registry)).unwrap_err();
        assert!(missing.ends_with("': No such file or directory"), "{missing}");
        assert_eq!(again.iter().len(), 2);
    }

    #[test]
    fn channels_that_are_taken_away_are_noticed() {
        let registry = commands();
        for (before, after, lacks) in [
            ("&*", "&a", true),
            ("&a &b", "&a", true),
            ("&a", "&a &b", false),
            ("&a", "&*", false),
            ("&a (&b)", "&b (&a)", false),
            ("&a", "", true),
            ("", "", false),
        ] {
            let (before, after) = (user(&registry, before), user(&registry, after));
            assert_eq!(after.lacks_channels_of(&before), lacks);
        }
    }

    fn rule() -> impl Strategy<Value = Vec<u8>> {
        let known = prop::sample::select(vec![
            "on",
            "off",
            "nopass",
            "resetpass",
            "reset",
            ">p",
            "<p",
            "~a*",
            "%R~b",
            "%W~b",
            "~*",
            "resetkeys",
            "&c",
            "&*",
            "resetchannels",
            "+get",
            "-get",
            "+@all",
            "-@all",
            "+@read",
            "-@write",
            "+config|get",
            "-client|kill",
            "+select|0",
            "(+get ~x)",
            "(%R~y &d -@all)",
            "clearselectors",
            "+failover",
            "skip-sanitize-payload",
        ]);
        prop_oneof![
            8 => known.prop_map(|rule| rule.as_bytes().to_vec()),
            1 => prop::collection::vec(any::<u8>(), 0..12),
            1 => "[~&+()|%@a-z>#!<]{0,10}".prop_map(String::into_bytes),
        ]
    }

    proptest! {
        /// Whatever rules come, they are refused or taken, and what they have made is told so that it is made again.
        #[test]
        fn rules_of_any_bytes_make_users_that_read_back(rules in prop::collection::vec(rule(), 0..12)) {
            let registry = commands();
            let mut user = User::new(b"a", context(&registry));
            for rule in &rules {
                let mut changed = user.clone();
                if changed.apply(context(&registry), rule).is_ok() {
                    user = changed;
                }
            }
            let mut acl = Acl::default();
            acl.put(user);
            let text = acl.lines().join(&b'\n');
            let mut again = Acl::default();
            again.replace_all(parse_users(&text, "f", context(&registry)).unwrap());
            prop_assert_eq!(again.lines(), acl.lines());
            for line in ["GET x", "SET b 1", "CONFIG GET a", "SELECT 0", "PUBLISH c x"] {
                let (one, other) = (acl.find(b"a").unwrap(), again.find(b"a").unwrap());
                prop_assert_eq!(denied(&registry, one, line), denied(&registry, other, line));
            }
        }
    }
}
