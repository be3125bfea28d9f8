//! One test's processes, directory and deadline: the director's side.

use std::{
    ffi::OsStr,
    fmt::Display,
    fs::{self, Permissions},
    io::{BufRead, BufReader, Read, Write},
    os::unix::{fs::PermissionsExt, process::CommandExt, process::ExitStatusExt},
    path::{Path, PathBuf},
    process::{ChildStdin, Command, ExitStatus, Stdio},
    sync::{
        Arc, Mutex, PoisonError,
        mpsc::{self, Receiver, RecvTimeoutError},
    },
    thread,
    time::{Duration, Instant},
};

use pinfold_netns::Namespace;
use rustix::process::Signal;
use tempfile::TempDir;

use crate::{
    again, figures,
    role::{ARGS, MARK, ROLE},
    skip,
};

/// The factor by which a stage is open longer where figures are gathered.
const GATHERING: u64 = 6;

/// One test: a directory of its own and a deadline for everything.
pub struct Stage {
    dir: TempDir,
    deadline: Instant,
    seconds: u64,
}

impl Stage {
    /// A stage that closes after `seconds`, no matter what goes on there; where figures are
    /// gathered there is more to do, and it closes later.
    pub fn new(seconds: u64) -> Stage {
        let seconds = if figures::are_gathered() { seconds * GATHERING } else { seconds };
        let dir = tempfile::Builder::new().prefix("pinfold-test-").tempdir().expect("a directory");
        // Roles may be other users, which only pass through.
        fs::set_permissions(dir.path(), Permissions::from_mode(0o711)).expect("chmod");
        Stage { dir, deadline: Instant::now() + Duration::from_secs(seconds), seconds }
    }

    /// The stage's directory. Other users may pass through it.
    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    /// The directory where endpoints of user `uid` listen: a private directory of that user's.
    pub fn sockets(&self, uid: u32) -> PathBuf {
        let path = self.dir.path().join(format!("sockets-{uid}"));
        if !path.exists() {
            fs::create_dir(&path).expect("mkdir");
            fs::set_permissions(&path, Permissions::from_mode(0o700)).expect("chmod");
            std::os::unix::fs::chown(&path, Some(uid), Some(uid))
                .or_else(own_anyway(uid))
                .expect("chown");
        }
        path
    }

    /// Plays all of `roles` to a good end. The first says `ready` before the others begin.
    pub fn play<'a>(&'a self, roles: impl IntoIterator<Item = Casting<'a>>) {
        let mut players = Vec::new();
        for role in roles {
            players.push(role.spawn());
            if let [first] = &mut players[..] {
                first.expect("ready");
            }
        }
        all_end_well(&mut players);
    }

    /// Prepares a process that plays `role`.
    pub fn role(&self, role: &str) -> Casting<'_> {
        let mut command = again();
        command
            .args(["role", "--exact", "--nocapture", "--test-threads=1"])
            .env(ROLE, role)
            .env_remove("PINFOLD_FAILPOINT")
            .env_remove("RUST_TEST_THREADS")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        Casting { stage: self, name: role.to_owned(), command, args: String::new(), uid: None }
    }
}

/// Accepts the error of a user that may not give files away: the files are this user's already.
fn own_anyway(uid: u32) -> impl FnOnce(std::io::Error) -> std::io::Result<()> {
    move |error| if rustix::process::geteuid().as_raw() == uid { Ok(()) } else { Err(error) }
}

/// A process about to be started.
pub struct Casting<'a> {
    stage: &'a Stage,
    name: String,
    command: Command,
    args: String,
    uid: Option<u32>,
}

impl Casting<'_> {
    /// Sets the value that [`Args`](crate::Args) finds under `key`.
    pub fn with(mut self, key: &str, value: impl Display) -> Self {
        self.args.push_str(&format!("{key}={value}\n"));
        self.name.push_str(&format!(" {key}={value}"));
        self
    }

    /// Sets an environment variable.
    pub fn env(mut self, key: &str, value: impl AsRef<OsStr>) -> Self {
        self.command.env(key, value);
        self
    }

    /// Runs it with the default costs instead of measured ones: its choices do not depend on the
    /// machine.
    pub fn unmeasured(self) -> Self {
        self.env("PINFOLD_CALIBRATE", "0")
    }

    /// Runs it as another user, which takes root.
    pub fn user(mut self, uid: u32) -> Self {
        self.uid = Some(uid);
        self.command.uid(uid).gid(uid);
        self
    }

    /// Runs it in a network, for which it must not be another [user](Casting::user).
    pub fn inside(mut self, namespace: &Namespace) -> Self {
        namespace.hold(&mut self.command).expect("a descriptor");
        self
    }

    /// Starts it.
    pub fn spawn(mut self) -> Player {
        let own = rustix::process::geteuid().as_raw();
        let sockets = self.stage.sockets(self.uid.unwrap_or(own));
        let set = |command: &Command, key: &str| command.get_envs().any(|(name, _)| name == key);
        if !set(&self.command, "PINFOLD_DIR") {
            self.command.env("PINFOLD_DIR", &sockets);
        }
        self.command.env("XDG_CACHE_HOME", &sockets).env(ARGS, &self.args);
        let mut process = self.command.spawn().expect("the test binary runs itself");
        let (tell, lines) = mpsc::channel();
        let stdout = process.stdout.take().expect("piped");
        thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                // Lines that libtest prints of its own have no mark.
                let Some((_, line)) = line.split_once(MARK) else { continue };
                match line.split_once(' ') {
                    Some(("skip", reason)) => skip(reason),
                    Some(("note", note)) => println!("{note}"),
                    _ => drop(tell.send(line.to_owned())),
                }
            }
        });
        let errors = Arc::new(Mutex::new(String::new()));
        let mut stderr = process.stderr.take().expect("piped");
        let into = Arc::clone(&errors);
        thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(len @ 1..) = stderr.read(&mut bytes) {
                let text = String::from_utf8_lossy(&bytes[..len]).into_owned();
                into.lock().unwrap_or_else(PoisonError::into_inner).push_str(&text);
            }
        });
        let stdin = process.stdin.take();
        let (name, deadline, seconds) = (self.name, self.stage.deadline, self.stage.seconds);
        Player { name, process, stdin, lines, errors, deadline, seconds, ended: None }
    }
}

/// A process that plays a role. Killed when dropped.
pub struct Player {
    name: String,
    process: std::process::Child,
    stdin: Option<ChildStdin>,
    lines: Receiver<String>,
    errors: Arc<Mutex<String>>,
    deadline: Instant,
    seconds: u64,
    ended: Option<ExitStatus>,
}

impl Player {
    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.process.id()
    }

    /// Sends it a line, which [`role::hear`](crate::role::hear) returns there.
    pub fn say(&mut self, line: impl Display) {
        let sent = self.stdin.as_mut().map(|stdin| writeln!(stdin, "{line}"));
        if !matches!(sent, Some(Ok(()))) {
            self.fail("does not listen any more");
        }
    }

    /// The next line it says.
    ///
    /// # Panics
    /// If it ends first, or the stage's time is up.
    pub fn hear(&mut self) -> String {
        match self.lines.recv_timeout(self.deadline.saturating_duration_since(Instant::now())) {
            Ok(line) => line,
            Err(RecvTimeoutError::Timeout) => self.too_late("to say something"),
            Err(RecvTimeoutError::Disconnected) => self.fail("ended instead of saying something"),
        }
    }

    /// The rest of the next line, which begins with `word`.
    ///
    /// # Panics
    /// If it says anything else, and as [`Player::hear`].
    pub fn expect(&mut self, word: &str) -> String {
        let line = self.hear();
        match line.strip_prefix(word) {
            Some(rest) => rest.trim().to_owned(),
            None => self.fail(&format!("was to say {word:?} and said {line:?}")),
        }
    }

    /// The process's exit status, once it has ended.
    ///
    /// # Panics
    /// If the stage's time is up first.
    pub fn end(&mut self) -> ExitStatus {
        self.stdin = None;
        loop {
            if let Some(status) = self.ended {
                return status;
            }
            self.ended = self.process.try_wait().expect("waitpid");
            if self.ended.is_none() {
                if Instant::now() >= self.deadline {
                    self.too_late("to end");
                }
                thread::sleep(Duration::from_millis(1));
            }
        }
    }

    /// Waits for it to end.
    ///
    /// # Panics
    /// If it fails, and as [`Player::end`].
    pub fn end_well(&mut self) {
        if !self.end().success() {
            self.fail("failed");
        }
    }

    /// Returns whether it ended by `SIGKILL`.
    ///
    /// # Panics
    /// If it failed in any other way, and as [`Player::end`].
    pub fn was_killed(&mut self) -> bool {
        let status = self.end();
        if status.signal() == Some(Signal::KILL.as_raw()) {
            return true;
        }
        if !status.success() {
            self.fail("failed");
        }
        false
    }

    /// Kills it at once.
    pub fn kill(&mut self) {
        self.signal(Signal::KILL);
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: Signal) {
        let pid = rustix::process::Pid::from_child(&self.process);
        rustix::process::kill_process(pid, signal).expect("kill");
    }

    fn too_late(&mut self, what: &str) -> ! {
        self.fail(&format!("WATCHDOG: took more than the stage's {} s {what}", self.seconds))
    }

    /// Fails the test, with the output of this process.
    pub fn fail(&mut self, why: &str) -> ! {
        // Its last output may still be in the pipe.
        thread::sleep(Duration::from_millis(50));
        let status = self.ended.or_else(|| self.process.try_wait().ok().flatten());
        let status = status.map_or("still running".to_owned(), |status| status.to_string());
        let errors = self.errors.lock().unwrap_or_else(PoisonError::into_inner);
        let pid = self.process.id();
        panic!("role `{}` (pid {pid}, {status}) {why}; it wrote:\n{errors}", self.name);
    }
}

impl Drop for Player {
    fn drop(&mut self) {
        if self.ended.is_some() {
            return;
        }
        if thread::panicking() {
            let errors = self.errors.lock().unwrap_or_else(PoisonError::into_inner);
            if !errors.is_empty() {
                eprintln!("role `{}` wrote:\n{errors}", self.name);
            }
        }
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Waits for all of them to end well; reports the one that fails first.
pub fn all_end_well(players: &mut [Player]) {
    let mut left: Vec<&mut Player> = players.iter_mut().collect();
    while !left.is_empty() {
        left.retain_mut(|player| {
            player.stdin = None;
            player.ended = player.process.try_wait().expect("waitpid");
            match player.ended {
                Some(status) if !status.success() => player.fail("failed"),
                ended => ended.is_none(),
            }
        });
        if let Some(first) = left.first_mut() {
            if Instant::now() >= first.deadline {
                first.too_late("to end");
            }
            thread::sleep(Duration::from_millis(1));
        }
    }
}
