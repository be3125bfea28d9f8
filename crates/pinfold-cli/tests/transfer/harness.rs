//! Runs of the command in a directory of its own.

use std::{
    fs,
    io::Read,
    os::unix::{fs::PermissionsExt, process::ExitStatusExt},
    path::{Path, PathBuf},
    process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio},
    sync::{Arc, Mutex, mpsc},
    thread,
    time::{Duration, Instant},
};

use pinfold_tests::host::copy_program;
use rustix::process::{Pid, Signal, kill_process};

/// The command.
pub const PROGRAM: &str = env!("CARGO_BIN_EXE_pinfold");

/// A time far beyond any that a test takes; a test that needs it has failed.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// A private directory for the names, and a place for files.
pub struct Place {
    dir: tempfile::TempDir,
    /// The command, at a place where the user `nobody` can run it.
    program_of_nobody: Option<PathBuf>,
}

impl Place {
    pub fn new() -> Place {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let place = Place { dir, program_of_nobody: None };
        fs::create_dir(place.path("names")).unwrap();
        fs::set_permissions(place.path("names"), fs::Permissions::from_mode(0o700)).unwrap();
        place
    }

    /// A place that belongs to `nobody`, the user that runs the commands. Only root can make one.
    pub fn of_nobody() -> Place {
        let mut place = Place::new();
        // Other users may not be able to enter the build directory.
        let program = place.path("pinfold");
        copy_program(PROGRAM, &program);
        place.program_of_nobody = Some(program);
        for path in [place.path("."), place.path("names")] {
            std::os::unix::fs::chown(path, Some(65534), Some(65534)).unwrap();
        }
        place
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Makes a directory.
    pub fn dir(&self, name: &str) -> PathBuf {
        let path = self.path(name);
        fs::create_dir_all(&path).unwrap();
        path
    }

    fn command(&self, words: &[&str]) -> Command {
        // Signals that the runner of the tests ignores, as a shell in the background does,
        // `pinfold` would ignore, too.
        let mut command = Command::new("env");
        command.arg("--default-signal=HUP,INT,TERM");
        match &self.program_of_nobody {
            Some(program) => {
                command.args(["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]);
                command.arg(program)
            }
            None => command.arg(PROGRAM),
        };
        command.args(words).current_dir(self.dir.path()).env("PINFOLD_DIR", self.path("names"));
        command
    }

    /// Starts `pinfold` with standard input from a pipe or from nothing.
    pub fn start(&self, words: &[&str], stdin: Stdio, stdout: Stdio) -> Running {
        let mut command = self.command(words);
        let child = command.stdin(stdin).stdout(stdout).stderr(Stdio::piped()).spawn();
        Running::new(child.expect("pinfold starts"), words)
    }

    /// Starts `pinfold` with standard error as given.
    pub fn start_with_errors(&self, words: &[&str], stdout: Stdio, stderr: Stdio) -> Child {
        let mut command = self.command(words);
        command.stdin(Stdio::null()).stdout(stdout).stderr(stderr).spawn().expect("pinfold starts")
    }

    /// Starts `pinfold` with a signal ignored, as `nohup` does.
    pub fn start_ignoring(&self, signal: &str, words: &[&str], stdin: Stdio) -> Running {
        let mut command = Command::new("env");
        command.arg(format!("--ignore-signal={signal}")).arg(PROGRAM).args(words);
        command.current_dir(self.dir.path()).env("PINFOLD_DIR", self.path("names"));
        let child = command.stdin(stdin).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        Running::new(child.expect("pinfold starts"), words)
    }

    /// `pinfold send` that looks for local names in a directory without any.
    pub fn send_from_elsewhere(&self, words: &[&str]) -> Running {
        let mut command = self.command(&[&["send"], words].concat());
        command.env("PINFOLD_DIR", self.path("elsewhere")).stdin(Stdio::null());
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        Running::new(child.expect("pinfold starts"), words)
    }

    /// Starts a program other than `pinfold` here, with `pinfold`'s environment.
    pub fn run_in(&self, command: &mut Command) -> Running {
        command.current_dir(self.dir.path()).env("PINFOLD_DIR", self.path("names"));
        let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        Running::new(child.spawn().expect("it starts"), &["..."])
    }

    pub fn send(&self, words: &[&str]) -> Running {
        self.start(&[&["send"], words].concat(), Stdio::null(), Stdio::piped())
    }

    /// `pinfold send` out of another directory here.
    pub fn send_in(&self, name: &str, words: &[&str]) -> Running {
        let mut command = self.command(&[&["send"], words].concat());
        command.current_dir(self.path(name)).stdin(Stdio::null());
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        Running::new(child.expect("pinfold starts"), words)
    }

    /// `pinfold send` whose standard input the test writes.
    pub fn send_stream(&self, words: &[&str]) -> (Running, ChildStdin) {
        let mut running = self.start(&[&["send"], words].concat(), Stdio::piped(), Stdio::piped());
        let stdin = running.child.stdin.take().unwrap();
        (running, stdin)
    }

    pub fn recv(&self, words: &[&str]) -> Running {
        self.start(&[&["recv"], words].concat(), Stdio::null(), Stdio::piped())
    }

    /// `pinfold recv` whose standard output the test reads.
    pub fn recv_stream(&self, words: &[&str]) -> (Running, ChildStdout) {
        let mut running = self.recv(words);
        let stdout = running.child.stdout.take().unwrap();
        (running, stdout)
    }

    /// Every file below `name` with its contents, sorted.
    pub fn files(&self, name: &str) -> Vec<(PathBuf, Vec<u8>)> {
        let root = self.path(name);
        let mut files = Vec::new();
        collect(&root, &root, &mut files);
        files.sort();
        files
    }
}

fn collect(root: &Path, dir: &Path, files: &mut Vec<(PathBuf, Vec<u8>)>) {
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        let kind = path.symlink_metadata().unwrap().file_type();
        if kind.is_dir() {
            collect(root, &path, files);
        } else if kind.is_file() {
            let contents = fs::read(&path).unwrap();
            files.push((path.strip_prefix(root).unwrap().to_owned(), contents));
        }
    }
}

/// A command that runs. Killed when dropped.
pub struct Running {
    pub child: Child,
    words: String,
    stderr: mpsc::Receiver<String>,
    said: Arc<Mutex<Vec<u8>>>,
}

/// The end of a command.
#[derive(Debug)]
pub struct Ended {
    pub status: ExitStatus,
    pub stdout: String,
    pub stderr: String,
}

impl Running {
    pub fn new(mut child: Child, words: &[&str]) -> Running {
        let mut stderr = child.stderr.take().unwrap();
        let (text, stderr_text) = mpsc::channel();
        let said = Arc::new(Mutex::new(Vec::new()));
        let heard = Arc::clone(&said);
        thread::spawn(move || {
            let mut part = [0; 4096];
            loop {
                match stderr.read(&mut part) {
                    Ok(0) => break,
                    Ok(len) => heard.lock().unwrap().extend_from_slice(&part[..len]),
                    Err(why) if why.kind() == std::io::ErrorKind::Interrupted => {}
                    Err(_) => break,
                }
            }
            let _ = text.send(String::from_utf8_lossy(&heard.lock().unwrap()).into_owned());
        });
        Running { child, words: words.join(" "), stderr: stderr_text, said }
    }

    /// Returns whether standard error has `text` in it already.
    pub fn has_said(&self, text: &str) -> bool {
        String::from_utf8_lossy(&self.said.lock().unwrap()).contains(text)
    }

    /// Waits until standard error has `text` in it.
    #[track_caller]
    pub fn wait_for(&self, text: &str) {
        let what = format!("'pinfold {}' says {text:?}", self.words);
        wait_until(&what, || self.has_said(text));
    }

    pub fn signal(&self, signal: Signal) {
        let pid = Pid::from_child(&self.child);
        kill_process(pid, signal).unwrap();
    }

    /// Waits for the end.
    pub fn end(mut self) -> Ended {
        let started = Instant::now();
        let stdout = self.child.stdout.take().map(|mut stdout| {
            thread::spawn(move || {
                let mut all = Vec::new();
                let _ = stdout.read_to_end(&mut all);
                String::from_utf8_lossy(&all).into_owned()
            })
        });
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            assert!(started.elapsed() < PATIENCE, "'pinfold {}' does not end", self.words);
            thread::sleep(Duration::from_millis(5));
        };
        let stdout = stdout.map(|thread| thread.join().unwrap()).unwrap_or_default();
        let stderr = self.stderr.recv_timeout(PATIENCE).unwrap();
        Ended { status, stdout, stderr }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Ended {
    /// The exit status, checked to be one and not a signal.
    #[track_caller]
    pub fn assert_code(&self, code: i32) -> &Ended {
        assert_eq!(self.status.code(), Some(code), "{self:#?} {:?}", self.status.signal());
        self
    }

    /// Checks that standard error has `text` in it.
    #[track_caller]
    pub fn assert_says(&self, text: &str) -> &Ended {
        assert!(self.stderr.contains(text), "{text:?} is not in {self:#?}");
        self
    }

    /// The JSON object on standard output.
    #[track_caller]
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|why| panic!("{why}: {self:#?}"))
    }
}

/// Waits until `ready`.
#[track_caller]
pub fn wait_until(what: &str, mut ready: impl FnMut() -> bool) {
    let started = Instant::now();
    while !ready() {
        assert!(started.elapsed() < PATIENCE, "{what}");
        thread::sleep(Duration::from_millis(1));
    }
}

/// Bytes that do not repeat with any block size.
pub fn pattern(len: usize, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(2).wrapping_add(1);
    let mut bytes = Vec::with_capacity(len + 8);
    while bytes.len() < len {
        // SplitMix64.
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = state;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bytes.extend_from_slice(&(word ^ (word >> 31)).to_le_bytes());
    }
    bytes.truncate(len);
    bytes
}

/// Returns whether the tests run as root, which can become any user and mount things.
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}
