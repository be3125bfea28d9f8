//! A process of a test: the role's side.

use std::{
    collections::HashMap,
    env,
    io::{self, BufRead, Write},
    str::FromStr,
    sync::atomic::{AtomicU64, Ordering},
    thread::{self, ScopedJoinHandle},
    time::Duration,
};

use pinfold::{Builder, Endpoint, Path, PathSet, PeerId, Progress};
use rustix::process::Signal;

/// The environment variable that names the role to play.
pub(crate) const ROLE: &str = "PINFOLD_ROLE";
/// The environment variable that holds its arguments.
pub(crate) const ARGS: &str = "PINFOLD_ROLE_ARGS";
/// Begins every line meant for the director.
pub(crate) const MARK: &str = "\u{1}";

/// How long a role waits for an endpoint to appear.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Lists the roles of a test file: functions of [`Args`].
#[macro_export]
macro_rules! roles {
    ($($role:ident),* $(,)?) => {
        /// The entry of the processes of this file's tests; does nothing in the test run itself.
        #[test]
        fn role() {
            $crate::role::play(&[$((stringify!($role), $role as $crate::role::Role)),*]);
        }
    };
}

/// The function that a process of a test runs.
pub type Role = fn(&Args);

/// Plays the role that the environment asks for, if any, and ends the process.
pub fn play(roles: &[(&str, Role)]) {
    let Ok(wanted) = env::var(ROLE) else { return };
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL)).expect("prctl");
    let (_, role) = roles.iter().find(|(name, _)| *name == wanted).expect("a role of this file");
    role(&Args::from_env());
    std::process::exit(0);
}

/// The arguments that the director gave a role.
pub struct Args(HashMap<String, String>);

impl Args {
    fn from_env() -> Args {
        let all = env::var(ARGS).unwrap_or_default();
        let pairs = all.lines().filter_map(|line| line.split_once('='));
        Args(pairs.map(|(key, value)| (key.to_owned(), value.to_owned())).collect())
    }

    /// The text under `key`.
    ///
    /// # Panics
    /// If there is none.
    pub fn text(&self, key: &str) -> &str {
        self.0.get(key).unwrap_or_else(|| panic!("the role has no argument {key}"))
    }

    /// Returns whether there is something under `key`.
    pub fn has(&self, key: &str) -> bool {
        self.0.contains_key(key)
    }

    /// The number under `key`.
    ///
    /// # Panics
    /// If there is none.
    pub fn number<T: FromStr>(&self, key: &str) -> T {
        self.text(key).parse().unwrap_or_else(|_| panic!("argument {key} is no number"))
    }

    /// The builder of an endpoint with the paths under `paths`, driven by a thread of its own if
    /// there is something under `dedicated`.
    pub fn builder(&self) -> Builder {
        let own = self.has("dedicated");
        let progress = if own { Progress::Dedicated } else { Progress::Inline };
        Endpoint::builder().paths(self.paths("paths")).progress(progress)
    }

    /// The paths under `key`, separated by commas; all of them if there is nothing.
    pub fn paths(&self, key: &str) -> PathSet {
        let Some(names) = self.0.get(key) else { return PathSet::all() };
        let paths: Vec<Path> =
            names.split(',').map(|name| Path::from_name(name).expect("a path")).collect();
        PathSet::only(&paths)
    }
}

/// Tells the director a line.
pub fn say(line: impl std::fmt::Display) {
    let mut out = io::stdout().lock();
    writeln!(out, "{MARK}{line}").and_then(|()| out.flush()).expect("the director listens");
}

/// The next line of the director.
///
/// # Panics
/// If the director is gone.
pub fn hear() -> String {
    let mut line = String::new();
    io::stdin().lock().read_line(&mut line).expect("stdin");
    assert!(!line.is_empty(), "the director has left");
    line.trim_end().to_owned()
}

/// Tells the director that a part cannot be tested here.
pub fn skip(reason: impl std::fmt::Display) {
    say(format_args!("skip {reason}"));
}

/// Has the director put a line in the test's output.
pub fn note(line: impl std::fmt::Display) {
    say(format_args!("note {line}"));
}

/// Listens at `local:NAME` with `builder`, says `ready`, and waits for one peer.
pub fn listen(builder: Builder, name: &str) -> (Endpoint, PeerId) {
    let endpoint = builder.listen(&format!("local:{name}")).build().expect("to listen");
    say("ready");
    let peer = endpoint.accept_timeout(PATIENCE).expect("a peer");
    (endpoint, peer)
}

/// Connects to `local:NAME` with `builder`, once an endpoint listens there.
pub fn connect(builder: Builder, name: &str) -> (Endpoint, PeerId) {
    let endpoint = builder.build().expect("an endpoint");
    let peer = endpoint.connect_wait(&format!("local:{name}"), PATIENCE).expect("to connect");
    (endpoint, peer)
}

/// The tag of a word that one role may go on.
pub const GO: u64 = u64::MAX;

/// Waits for word from the other side.
///
/// # Panics
/// If none can come.
pub fn await_go(endpoint: &Endpoint, peer: PeerId) {
    assert_eq!(&*endpoint.recv(peer, GO).unwrap(), b"go");
}

/// Gives the other side word.
///
/// # Panics
/// If the other side is gone.
pub fn go(endpoint: &Endpoint, peer: PeerId) {
    endpoint.send(peer, GO, b"go").unwrap();
}

/// Says how much of a flood was `sent` once nothing has moved for a while, or the thread that sends
/// it has ended.
pub fn say_when_still(sent: &AtomicU64, flood: &ScopedJoinHandle<'_, ()>) {
    let mut last = u64::MAX;
    loop {
        thread::sleep(Duration::from_millis(400));
        let now = sent.load(Ordering::Relaxed);
        if now == last || flood.is_finished() {
            break;
        }
        last = now;
    }
    say(format_args!("has come to a stop after {}", sent.load(Ordering::Relaxed)));
}
