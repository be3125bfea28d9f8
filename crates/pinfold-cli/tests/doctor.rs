//! `pinfold doctor` without one thing after another: its report says which is missing, the cause,
//! and the remedy; and it never fails itself. No times.

#[path = "doctor/busy.rs"]
mod busy;
#[path = "doctor/calls.rs"]
mod calls;
#[path = "doctor/harness.rs"]
mod harness;
#[path = "doctor/users.rs"]
mod users;

use std::{
    env, fs,
    os::unix::{fs::PermissionsExt, process::CommandExt},
    path::Path,
    process::Command,
};

use pinfold_tests::skip::{is_root_or_skip, skip};
use serde_json::Value;

use harness::{Found, MEASURES, PLAN, PROGRAM, is_open, take_away, under, under_with};

/// The entry of confined runs: takes away what the plan says, and becomes the doctor. Does nothing
/// in the test run itself.
#[test]
fn confined() {
    let Ok(plan) = env::var(PLAN) else { return };
    for step in plan.split(';') {
        take_away(&step.split(' ').collect::<Vec<_>>());
    }
    let mut doctor = Command::new(PROGRAM);
    doctor.args(["doctor", "--json"]).env_remove(PLAN);
    if env::var_os(MEASURES).is_none() {
        doctor.arg("--no-measure");
    }
    panic!("{}", doctor.env_remove(MEASURES).exec());
}

const EPERM: (i32, &str) = (libc::EPERM, "EPERM");
const ENOSYS: (i32, &str) = (libc::ENOSYS, "ENOSYS");

#[test]
fn what_is_reported() {
    let output = Command::new(PROGRAM).args(["doctor", "--json"]).output().unwrap();
    let found = Found::of(&output);
    assert!(found.stderr.is_empty(), "no progress unless on a terminal: {}", found.stderr);
    let names = |value: &Value| {
        let mut names: Vec<String> = value.as_object().unwrap().keys().cloned().collect();
        names.sort();
        names
    };
    let report = &found.report;
    assert_eq!(
        names(report),
        [
            "costs",
            "facilities",
            "format",
            "limits",
            "machine",
            "names",
            "paths",
            "problems",
            "processors",
            "user",
            "verdict",
            "version"
        ]
    );
    assert_eq!(report["format"], 1);
    for (part, fields) in [
        ("machine", "container features hypervisor kernel memory_bytes processor"),
        ("processors", "online quota same_core shared_cache usable"),
        ("user", "capabilities dumpable gid name no_new_privs root seccomp uid user_namespace"),
        ("names", "directory free_bytes free_files why works"),
        ("verdict", "exit text works"),
    ] {
        assert_eq!(names(&report[part]).join(" "), fields);
    }
    let facilities = report["facilities"].as_object().unwrap();
    assert_eq!(facilities.len(), 24);
    for one in facilities.values() {
        let fields = "detail errno reason remedies status use why";
        assert_eq!(names(one).join(" "), fields);
    }
    for limit in report["limits"].as_array().unwrap() {
        let fields = "hard limit name remedies scope status unit used";
        assert_eq!(names(limit).join(" "), fields);
    }
    for problem in report["problems"].as_array().unwrap() {
        assert_eq!(names(problem).join(" "), "reason remedies severity what why");
    }
    if found.exit == 3 {
        return skip(&format!("{}", report["verdict"]["text"]));
    }
    for path in ["inline", "eager"] {
        assert_eq!(report["paths"][path]["works"], true);
    }
    let cma =
        ["process_vm_readv", "process_vm_writev"].map(|name| facilities[name]["status"] == "works");
    assert_eq!(report["paths"]["cma"]["works"], cma[0] || cma[1]);
    assert!(Path::new(report["names"]["directory"].as_str().unwrap()).is_dir());
    busy::costs(report);
}

#[test]
fn people_get_text() {
    let run = |args: &[&str]| {
        Command::new(PROGRAM).arg("doctor").args(args).env_remove("NO_COLOR").output().unwrap()
    };
    let done = run(&["--no-measure"]);
    let text = String::from_utf8_lossy(&done.stdout).into_owned();
    assert!(text.starts_with("pinfold "), "{text}");
    for part in ["HERE", "PATHS", "inline", "process_vm_readv", "LIMITS", "open files", "/dev/shm"]
    {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(!text.contains('\x1b') && !text.contains("COSTS"), "{text}");
    assert!(matches!(done.status.code(), Some(0 | 1 | 3)));
    for nonsense in [&["--measure"][..], &["--json=1"], &["now"]] {
        let done = run(nonsense);
        assert_eq!(done.status.code(), Some(2), "{nonsense:?}");
        assert!(done.stdout.is_empty() && !done.stderr.is_empty());
    }
    let help = String::from_utf8(run(&["--help"]).stdout).unwrap();
    for word in ["format", "verdict", "facilities", "problems", "Exit status", "seccomp_kills"] {
        assert!(help.contains(word), "{word}: {help}");
    }
}

#[test]
fn processes_out_of_each_others_reach() {
    if !is_open() {
        return;
    }
    for (errno, name) in [EPERM, ENOSYS] {
        let found = under(&format!("deny {errno} process_vm_readv process_vm_writev"));
        assert_eq!(found.exit, 1);
        for call in ["process_vm_readv", "process_vm_writev"] {
            found.is_denied(call, "denied", "seccomp", Some(name));
        }
        assert_eq!(found.denied(), ["process_vm_readv", "process_vm_writev"]);
        let path = &found.report["paths"]["cma"];
        assert!(path["works"] == false && path["why"].as_str().unwrap().contains("seccomp"));
        assert_eq!(found.report["user"]["seccomp"], "filter");
        let problem = found.problem("copied twice");
        assert_eq!(
            (&problem["severity"], &problem["reason"]),
            (&"slower".into(), &"seccomp".into())
        );
    }
    // Either call is a path.
    for call in ["process_vm_readv", "process_vm_writev"] {
        let found = under(&format!("deny 1 {call}"));
        assert_eq!((found.exit, found.denied()), (1, vec![call]));
        assert_eq!(found.report["paths"]["cma"]["works"], true);
        found.problem("by one side only");
    }
}

/// Facilities that Pinfold cannot do without: the call to take away, and the facility that names
/// it.
#[test]
fn what_is_required() {
    if !is_open() {
        return;
    }
    for (calls, facility) in [
        ("memfd_create", "memfd"),
        ("socket", "unix_sockets"),
        ("getsockopt", "peer_credentials"),
        ("epoll_create1", "events"),
        ("eventfd2", "events"),
        ("sendmsg", "descriptor_passing"),
        ("recvmsg", "descriptor_passing"),
    ] {
        for (errno, name) in [EPERM, ENOSYS] {
            let found = under(&format!("deny {errno} {calls}"));
            assert_eq!(found.exit, 3, "{calls}: {:#}", found.report["problems"]);
            found.is_denied(facility, "denied", "seccomp", Some(name));
            let fatal = found.problem("cannot exchange messages");
            assert_eq!(fatal["reason"], "seccomp", "{fatal:#}");
            assert!(!fatal["remedies"].as_array().unwrap().is_empty(), "{fatal:#}");
            assert_eq!(found.report["paths"]["eager"]["works"], false);
            // Nothing else is blamed.
            let others = found.report["facilities"].as_object().unwrap().values();
            for other in others.filter(|other| other["status"] == "denied") {
                let why = other["why"].as_str().unwrap();
                assert!(why.contains(calls) || !why.contains("seccomp"), "{calls}: {other:#}");
            }
        }
    }
    // Shared memory does without advice on it.
    let found = under("deny 1 madvise");
    assert_ne!(found.exit, 3);
    assert_eq!(found.facility("shared_mapping")["status"], "works");
    // Seals: all of F_ADD_SEALS.
    let found = under("deny-if 1 fcntl 1 4294967295 1033");
    assert_eq!(found.exit, 3);
    found.is_denied("memfd_seals", "denied", "seccomp", Some("EPERM"));
    assert_eq!(found.facility("memfd")["status"], "works");
}

#[test]
fn what_only_helps() {
    if !is_open() {
        return;
    }
    for (errno, name) in [EPERM, ENOSYS] {
        let found = under(&format!("deny {errno} membarrier"));
        assert_eq!(found.exit, 1);
        for kind in ["membarrier_global", "membarrier_private"] {
            found.is_denied(kind, "denied", "seccomp", Some(name));
        }
        assert_eq!(found.problem("memory fence")["severity"], "slower");
        for (call, facility) in [("pidfd_open", "pidfd_open"), ("io_uring_setup", "io_uring")] {
            let found = under(&format!("deny {errno} {call}"));
            assert_eq!(found.exit, 0, "{call}: {:#}", found.report["problems"]);
            let reason = match (call, found.facility(facility)["reason"].as_str()) {
                // The machine may deny it all the same.
                ("io_uring_setup", Some("sysctl")) => "sysctl",
                _ => "seccomp",
            };
            found.is_denied(facility, "denied", reason, Some(name));
        }
    }
    // One kind of barrier: MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED.
    let found = under("deny-if 22 membarrier 0 4294967295 16");
    assert_eq!((found.exit, found.denied()), (1, vec!["membarrier_private"]));
    found.problem("take a lock");
    // MADV_POPULATE_WRITE and MADV_REMOVE; F_SEAL_FUTURE_WRITE with F_SEAL_SEAL, as arenas put it
    // on; MFD_NOEXEC_SEAL.
    for (plan, facility, problem) in [
        ("deny-if 22 madvise 2 4294967295 23", "populate_write", Some("want of memory")),
        ("deny-if 1 madvise 2 4294967295 9", "madvise_remove", Some("not given back")),
        ("deny-if 22 fcntl 2 4294967295 17", "future_write_seal", None),
        ("deny-if 22 memfd_create 1 8 8", "memfd_noexec_seal", None),
    ] {
        let found = under(plan);
        assert_eq!((found.exit, found.denied()), (0, vec![facility]), "{plan}");
        assert_eq!(found.facility(facility)["reason"], "seccomp");
        if let Some(part) = problem {
            assert_eq!(found.problem(part)["severity"], "warning");
        }
    }
    // SO_PEERPIDFD.
    let found = under("deny-if 92 getsockopt 2 4294967295 77");
    assert_eq!((found.exit, found.denied()), (0, vec!["peer_pidfd"]));
    let both = under("deny-if 92 getsockopt 2 4294967295 77;deny 1 pidfd_open");
    assert_eq!((both.exit, both.denied()), (3, vec!["peer_pidfd", "pidfd_open"]));
    let fatal = both.problem("cannot exchange messages");
    assert!(fatal["why"].as_str().unwrap().contains("pidfd_open"), "{fatal:#}");
    assert_eq!(fatal["reason"], "seccomp");
}

#[test]
fn filters_that_kill() {
    if !is_open() {
        return;
    }
    // A process that uses the library is killed.
    for (call, facility) in [
        ("process_vm_readv", "process_vm_readv"),
        ("process_vm_writev", "process_vm_writev"),
        ("memfd_create", "memfd"),
        ("membarrier", "membarrier_global"),
        ("pidfd_open", "pidfd_open"),
        ("getsockopt", "unix_sockets"),
        ("socket", "unix_sockets"),
        ("sendmsg", "unix_sockets"),
        ("madvise", "shared_mapping"),
        ("epoll_create1", "events"),
    ] {
        let found = under(&format!("kill {call}"));
        assert_eq!(found.exit, 3, "{call}: {:#}", found.report["problems"]);
        found.is_denied(facility, "killed", "seccomp_kills", None);
        let fatal = found.problem("cannot exchange messages");
        assert_eq!(fatal["reason"], "seccomp_kills", "{call}: {fatal:#}");
        let why = fatal["why"].as_str().unwrap();
        assert!(why.contains("kills whoever calls ") && why.ends_with(call), "{fatal:#}");
        assert_eq!(why.matches("kills").count(), 1, "nothing else is blamed: {why}");
    }
    // No program needs these.
    for (call, facility) in [("userfaultfd", "userfaultfd"), ("io_uring_setup", "io_uring")] {
        let found = under(&format!("kill {call}"));
        assert_eq!(found.exit, 0);
        found.is_denied(facility, "killed", "seccomp_kills", None);
    }
    // Only the doctor asks: then it does not know the answer, and says so.
    let found = under("kill prctl");
    assert_eq!(found.report["user"]["seccomp"], "filter");
    assert_eq!(found.report["user"]["dumpable"], Value::Null);
    // A call that is not tried by name kills the trial of the whole.
    let found = under("kill bind");
    assert_eq!(found.exit, 3, "{:#}", found.report["problems"]);
    assert_eq!(found.problem("cannot exchange messages")["reason"], "seccomp_kills");
}

#[test]
fn no_second_process() {
    if !is_open() {
        return;
    }
    for (errno, _) in [EPERM, ENOSYS, (libc::EAGAIN, "EAGAIN")] {
        let found = under(&format!("deny {errno} clone clone3"));
        assert_eq!(found.exit, 3);
        let fatal = found.problem("cannot exchange messages");
        assert!(fatal["why"].as_str().unwrap().contains("no second process"), "{fatal:#}");
        assert!(!fatal["remedies"].as_array().unwrap().is_empty());
        assert_eq!(found.facility("memfd")["status"], "unknown");
    }
}

#[test]
fn limits_that_are_short() {
    if !is_open() {
        return;
    }
    let limit = |found: &Found, name: &str| {
        let all = found.report["limits"].as_array().unwrap().clone();
        all.into_iter().find(|limit| limit["name"] == name).unwrap()
    };
    let found = under("limit nofile 100 4096");
    let files = limit(&found, "open_files");
    assert_eq!(
        (&files["status"], &files["limit"], &files["hard"]),
        (&"low".into(), &100.into(), &4096.into())
    );
    assert_eq!(files["remedies"][0]["run"], "ulimit -Sn 4096");
    assert_eq!(found.problem("open files is low")["reason"], "rlimit");
    assert_eq!(found.exit, 0);

    let found = under("limit nofile 16 16");
    assert!(["near", "low"].contains(&limit(&found, "open_files")["status"].as_str().unwrap()));
    assert!(found.problem("open files")["remedies"].to_string().contains("nofile"));
    // Not enough for two processes, or even for a trial.
    for few in [7, 5] {
        let found = under(&format!("limit nofile {few} 4096"));
        assert_eq!(found.exit, 3, "{:#}", found.report);
        let fatal = found.problem("cannot exchange messages");
        assert_eq!(fatal["reason"], "rlimit", "{fatal:#}");
        assert!(fatal["remedies"].to_string().contains("ulimit -Sn 4096"), "{fatal:#}");
    }

    let found = under("limit fsize 4096 max");
    assert_eq!(found.exit, 3);
    let fatal = found.problem("cannot exchange messages");
    assert_eq!(fatal["reason"], "rlimit", "{fatal:#}");
    assert_eq!(fatal["remedies"][0]["run"], "ulimit -Sf unlimited");
    assert_eq!(limit(&found, "file_size")["status"], "low");

    let found = under("limit as 500000000 max");
    assert_eq!(limit(&found, "address_space")["status"], "low");
    assert!(found.problem("address space")["remedies"].to_string().contains("ulimit -Sv"));

    let found = under("deny 1 prlimit64");
    assert_eq!(found.exit, 0, "{:#}", found.report["problems"]);
    assert!(
        found.report["limits"].as_array().unwrap().iter().all(|one| one["name"] != "open_files")
    );
}

#[test]
fn places_for_names() {
    let place = tempfile::tempdir().unwrap();
    let names = place.path().join("names");
    let found_in = |path: &Path| under_with("deny 1", |command| command.env("PINFOLD_DIR", path));
    let found = found_in(&names);
    if found.exit == 3 {
        return skip("two processes cannot meet here");
    }
    assert_eq!(found.report["names"]["directory"], names.to_str().unwrap());
    assert!(found.report["names"]["free_bytes"].as_u64().unwrap() > 0);
    // Other users could put names there.
    fs::set_permissions(&names, PermissionsExt::from_mode(0o777)).unwrap();
    let found = found_in(&names);
    assert_eq!((found.exit, &found.report["names"]["works"]), (3, &false.into()));
    let fatal = found.problem("cannot exchange messages");
    assert_eq!(fatal["reason"], "permissions");
    // The directory may be of use to others, so the remedy is another one.
    assert!(!fatal["remedies"].to_string().contains("chmod"), "{fatal:#}");
    assert!(fatal["remedies"][0]["run"].as_str().unwrap().starts_with("export PINFOLD_DIR=/"));
    // With another directory everything would work, and the report says so.
    assert_eq!(found.report["paths"]["eager"]["works"], true);
    fs::set_permissions(&names, PermissionsExt::from_mode(0o700)).unwrap();
    assert_ne!(found_in(&names).exit, 3);
    // No directory at all.
    let found = found_in(&place.path().join("a/b"));
    assert_eq!(found.exit, 3);
    assert!(found.problem("cannot exchange")["why"].as_str().unwrap().contains("a/b"));
}

#[test]
fn a_read_only_system() {
    if !is_root_or_skip("mounting") {
        return;
    }
    let plan = |plan: &str| {
        under_with(plan, |command| command.env_remove("PINFOLD_DIR").env_remove("XDG_RUNTIME_DIR"))
    };
    let found = plan("read-only /tmp");
    assert_eq!(found.exit, 3, "{:#}", found.report["problems"]);
    let fatal = found.problem("cannot exchange messages");
    assert_eq!(fatal["reason"], "read_only", "{fatal:#}");
    let other = fatal["remedies"][0]["run"].as_str().unwrap();
    let other = other.strip_prefix("export PINFOLD_DIR=").unwrap();
    assert!(!other.starts_with("/tmp"), "{other}");
    // The advice is good.
    let again = under_with("read-only /tmp", |command| command.env("PINFOLD_DIR", other));
    assert_ne!(again.exit, 3, "{:#}", again.report["problems"]);
    let _ = fs::remove_dir_all(other);
}

#[test]
fn systems_that_hide_themselves() {
    if !is_root_or_skip("mounting") {
        return;
    }
    let open = under("deny 1").exit;
    let found = under("hide /proc");
    assert_eq!(found.exit, open, "{:#}", found.report["problems"]);
    assert_eq!(found.report["machine"]["kernel"], Value::Null);
    assert_eq!(found.facility("memfd")["status"], "works");
    assert!(
        found.report["limits"].as_array().unwrap().iter().any(|one| one["name"] == "open_files")
    );
    let found = under("hide /proc/sys;hide /sys");
    assert_eq!(found.exit, open, "{:#}", found.report["problems"]);
    assert_eq!(found.report["processors"]["online"], Value::Null);
}

#[test]
fn a_peer_is_reached_step_by_step() {
    let folder = tempfile::tempdir().unwrap();
    let doctor = |words: &[&str]| {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_pinfold"));
        let done = command.arg("doctor").args(words).output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (done.status.code(), text(&done.stdout), text(&done.stderr))
    };
    let listening = pinfold::Endpoint::builder()
        .progress(pinfold::Progress::Dedicated)
        .local_shortcut(false)
        .label("there")
        .key(&[7; 32])
        .listen("tcp:127.0.0.1:0")
        .build()
        .unwrap();
    let address = listening.listens_at().unwrap();
    let key = |name: &str, byte| {
        use std::os::unix::fs::PermissionsExt;
        let path = folder.path().join(name);
        std::fs::write(&path, [byte; 32]).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let (right, wrong) = (key("right", 7), key("wrong", 8));
    let (code, out, said) = doctor(&[&address, "--key", &right]);
    assert_eq!(code, Some(0), "{out}{said}");
    for part in ["key ", "connection ", "there (tcp:127.0.0.1:", "the peer is on another host"] {
        assert!(out.contains(part), "{part}: {out}");
    }
    assert!(out.contains("encryption  none"), "{out}");
    let encrypting = pinfold::Endpoint::builder()
        .progress(pinfold::Progress::Dedicated)
        .local_shortcut(false)
        .key(&[7; 32])
        .encrypt(true)
        .listen("tcp:127.0.0.1:0")
        .build()
        .unwrap();
    let place = encrypting.listens_at().unwrap();
    let (code, out, said) = doctor(&[&place, "--key", &right, "--tls"]);
    assert_eq!(code, Some(0), "{out}{said}");
    assert!(out.contains("encryption  TLS13_") && out.contains("bound to the key"), "{out}");
    let (code, out, said) = doctor(&[&place, "--key", &right]);
    assert_eq!(code, Some(1), "{out}{said}");
    assert!(said.contains("give the command --tls"), "{said}");
    let (code, out, said) = doctor(&[&address, "--key", &wrong]);
    assert_eq!(code, Some(1));
    assert!(out.contains("connection ") && !out.contains("greeting "), "{out}");
    assert!(said.contains("no greeting") && said.contains("key"), "{said}");
    drop(listening);
    let (code, out, said) = doctor(&[&address]);
    assert!(
        code == Some(1) && !out.contains("connection ") && said.contains("does not answer"),
        "{said}"
    );
    assert_eq!(doctor(&["local:x"]).0, Some(2));
    assert_eq!(doctor(&["--key", &right]).0, Some(2));
}
