//! Users other than the one of the tests.

use std::{
    fs,
    os::unix::{fs::PermissionsExt, process::CommandExt},
    path::PathBuf,
    process::Command,
};

use pinfold_tests::{
    host::copy_program,
    skip::{is_root_or_skip, skip},
};

use super::harness::{Found, PROGRAM};

const NOBODY: u32 = 65534;

/// The program at a place where every user can run it.
struct Public {
    place: tempfile::TempDir,
}

impl Public {
    fn new(mode: u32) -> Public {
        let place = tempfile::tempdir().unwrap();
        fs::set_permissions(place.path(), PermissionsExt::from_mode(0o755)).unwrap();
        let copy = place.path().join("pinfold");
        copy_program(PROGRAM, &copy);
        fs::set_permissions(&copy, PermissionsExt::from_mode(mode)).unwrap();
        let names = place.path().join("names");
        fs::create_dir(&names).unwrap();
        fs::set_permissions(&names, PermissionsExt::from_mode(0o700)).unwrap();
        std::os::unix::fs::chown(&names, Some(NOBODY), Some(NOBODY)).unwrap();
        Public { place }
    }

    fn path(&self) -> PathBuf {
        self.place.path().join("pinfold")
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command
            .env_clear()
            .env("PATH", "/usr/local/bin:/usr/bin:/bin")
            .env("PINFOLD_DIR", self.place.path().join("names"))
            .current_dir("/")
            .uid(NOBODY)
            .gid(NOBODY);
        command
    }

    fn run(&self) -> Found {
        let mut command = self.command(self.path().to_str().unwrap());
        Found::of(&command.args(["doctor", "--json", "--no-measure"]).output().unwrap())
    }
}

#[test]
fn as_nobody() {
    if !is_root_or_skip("becoming nobody") {
        return;
    }
    let found = Public::new(0o755).run();
    let user = &found.report["user"];
    assert_eq!((&user["uid"], &user["root"]), (&NOBODY.into(), &false.into()));
    assert_eq!(found.report["paths"]["eager"]["works"], true);
    for one in found.report["problems"].as_array().unwrap() {
        // The user `nobody` can change nothing without help.
        for remedy in one["remedies"].as_array().unwrap() {
            let run = remedy["run"].as_str().unwrap_or("sudo");
            assert!(!run.starts_with("sysctl") && !run.starts_with("systemctl"), "{remedy}");
        }
    }
    // A program in a file that its user may not read is closed to other processes, too.
    let found = Public::new(0o711).run();
    assert_eq!(found.report["user"]["dumpable"], false);
    if found.facility("process_vm_readv")["reason"] == "seccomp" {
        return skip("a filter denies process_vm_readv");
    }
    assert_eq!(found.exit, 1);
    for call in ["process_vm_readv", "process_vm_writev"] {
        found.is_denied(call, "denied", "not_dumpable", Some("EPERM"));
    }
    let remedy = &found.facility("process_vm_readv")["remedies"][0];
    assert!(remedy["run"].is_null(), "{remedy}");
    assert!(remedy["note"].as_str().unwrap().contains("from a copy of /"), "{remedy}");
}

#[test]
fn no_processes_for_nobody() {
    if !is_root_or_skip("becoming nobody") {
        return;
    }
    let public = Public::new(0o755);
    let program = public.path();
    let script = format!("ulimit -u 1; exec {} doctor --json --no-measure", program.display());
    // Not every shell can do that.
    let done = public.command("bash").args(["-c", &script]).output();
    let Ok(done) = done else { return skip("there is no bash") };
    let found = Found::of(&done);
    if found.exit != 3 {
        return skip("the limit on processes does not hold here");
    }
    let fatal = found.problem("cannot exchange messages");
    assert_eq!(fatal["reason"], "rlimit", "{fatal:#}");
    assert!(fatal["remedies"].to_string().contains("nproc"), "{fatal:#}");
}

#[test]
fn in_a_user_namespace() {
    let place = tempfile::tempdir().unwrap();
    let mut command = Command::new("unshare");
    command.args(["-Ur", PROGRAM, "doctor", "--json", "--no-measure"]);
    command.env("PINFOLD_DIR", place.path().join("names"));
    let Ok(done) = command.output() else { return skip("there is no unshare") };
    if done.stdout.is_empty() {
        return skip(&format!("no user namespaces: {}", String::from_utf8_lossy(&done.stderr)));
    }
    let found = Found::of(&done);
    let user = &found.report["user"];
    assert_eq!(user["user_namespace"], "other");
    assert_eq!((&user["uid"], &user["root"]), (&0.into(), &false.into()));
    assert_eq!(found.report["paths"]["eager"]["works"], true, "{:#}", found.report["problems"]);
}
