//! Runs of `pinfold doctor` with something taken away, and its reports.

use std::{
    os::unix::process::ExitStatusExt,
    process::{Command, Output},
};

use pinfold_tests::{filter, host, skip::skip};
use rustix::{
    mount::{MountFlags, mount, mount_bind, mount_remount},
    process::{Resource, Rlimit, setrlimit},
};
use serde_json::Value;

pub const PROGRAM: &str = env!("CARGO_BIN_EXE_pinfold");
/// The variable that names the calls to take away, for [`confined`].
pub const PLAN: &str = "PINFOLD_DOCTOR_PLAN";
/// Set if a confined run measures as well.
pub const MEASURES: &str = "PINFOLD_DOCTOR_MEASURES";

pub fn take_away(step: &[&str]) {
    let calls = |names: &[&str]| names.iter().map(|name| number(name)).collect::<Vec<_>>();
    let value = |text: &str| text.parse::<u64>().unwrap();
    match step {
        ["deny", errno, names @ ..] => filter::deny(&calls(names), value(errno) as i32),
        ["kill", names @ ..] => filter::kill(&calls(names)),
        ["deny-if", errno, name, arg, mask, is] => {
            let (arg, errno) = (value(arg) as u8, value(errno) as i32);
            filter::deny_if(number(name), arg, value(mask), value(is), errno);
        }
        ["limit", name, soft, hard] => {
            let which = match *name {
                "nofile" => Resource::Nofile,
                "fsize" => Resource::Fsize,
                "as" => Resource::As,
                other => panic!("{other}?"),
            };
            let limit = Rlimit { current: Some(value(soft)), maximum: hard.parse().ok() };
            setrlimit(which, limit).unwrap();
        }
        ["cpu"] => {
            let own = one_of_the_processors();
            rustix::thread::sched_setaffinity(None, &own).unwrap();
        }
        ["hide", place] => {
            host::unshare_mounts().unwrap();
            mount("none", *place, "tmpfs", MountFlags::empty(), None).unwrap();
        }
        ["read-only", place] => {
            host::unshare_mounts().unwrap();
            mount_bind(*place, *place).unwrap();
            mount_remount(*place, MountFlags::BIND | MountFlags::RDONLY, "").unwrap();
        }
        other => panic!("{other:?}?"),
    }
}

/// One of the processors that this process may use.
pub fn one_of_the_processors() -> rustix::thread::CpuSet {
    let all = rustix::thread::sched_getaffinity(None).unwrap();
    let mut one = rustix::thread::CpuSet::new();
    one.set((0..1024).find(|cpu| all.is_set(*cpu)).unwrap());
    one
}

pub fn number(name: &str) -> libc::c_long {
    match name {
        "process_vm_readv" => libc::SYS_process_vm_readv,
        "process_vm_writev" => libc::SYS_process_vm_writev,
        "memfd_create" => libc::SYS_memfd_create,
        "membarrier" => libc::SYS_membarrier,
        "pidfd_open" => libc::SYS_pidfd_open,
        "getsockopt" => libc::SYS_getsockopt,
        "socket" => libc::SYS_socket,
        "socketpair" => libc::SYS_socketpair,
        "sendmsg" => libc::SYS_sendmsg,
        "recvmsg" => libc::SYS_recvmsg,
        "fcntl" => libc::SYS_fcntl,
        "madvise" => libc::SYS_madvise,
        "epoll_create1" => libc::SYS_epoll_create1,
        "eventfd2" => libc::SYS_eventfd2,
        "userfaultfd" => libc::SYS_userfaultfd,
        "io_uring_setup" => libc::SYS_io_uring_setup,
        "prctl" => libc::SYS_prctl,
        "prlimit64" => libc::SYS_prlimit64,
        "clone" => libc::SYS_clone,
        "clone3" => libc::SYS_clone3,
        "bind" => libc::SYS_bind,
        "accept4" => libc::SYS_accept4,
        "chmod" => libc::SYS_chmod,
        "connect" => libc::SYS_connect,
        "epoll_ctl" => libc::SYS_epoll_ctl,
        "epoll_wait" => libc::SYS_epoll_wait,
        "fallocate" => libc::SYS_fallocate,
        "fstatfs" => libc::SYS_fstatfs,
        "ftruncate" => libc::SYS_ftruncate,
        "getsockname" => libc::SYS_getsockname,
        "io_uring_enter" => libc::SYS_io_uring_enter,
        "io_uring_register" => libc::SYS_io_uring_register,
        "listen" => libc::SYS_listen,
        "mkdir" => libc::SYS_mkdir,
        "sched_setaffinity" => libc::SYS_sched_setaffinity,
        "setsockopt" => libc::SYS_setsockopt,
        "statfs" => libc::SYS_statfs,
        "unlink" => libc::SYS_unlink,
        "unlinkat" => libc::SYS_unlinkat,
        other => panic!("{other}?"),
    }
}

/// A report, and the status the program ended with.
pub struct Found {
    pub report: Value,
    pub exit: i32,
    pub stderr: String,
}

impl Found {
    pub fn of(output: &Output) -> Found {
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        let exit = output.status.code();
        let signal = output.status.signal();
        let exit = exit.unwrap_or_else(|| panic!("killed by signal {signal:?}: {text}{stderr}"));
        // The test runner prints text, too, before it becomes the doctor.
        let json = text.find('{').map(|at| &text[at..]);
        let report = json.and_then(|json| serde_json::from_str(json).ok());
        let report: Value = report.unwrap_or_else(|| panic!("no report: {text}{stderr}"));
        assert_eq!(report["verdict"]["exit"], exit, "{report:#}");
        let worst = |severity: &str| {
            report["problems"].as_array().unwrap().iter().any(|one| one["severity"] == severity)
        };
        let expected = if worst("fatal") { 3 } else { i32::from(worst("slower")) };
        assert_eq!(exit, expected, "{report:#}");
        assert_eq!(report["verdict"]["works"], exit != 3);
        Found { report, exit, stderr }
    }

    pub fn facility(&self, name: &str) -> &Value {
        let one = &self.report["facilities"][name];
        assert!(one.is_object(), "{name}: {:#}", self.report["facilities"]);
        one
    }

    #[track_caller]
    pub fn is_denied(&self, name: &str, status: &str, reason: &str, errno: Option<&str>) {
        let one = self.facility(name);
        assert_eq!(one["status"], status, "{name}: {one:#}");
        assert_eq!(one["reason"], reason, "{name}: {one:#}");
        assert_eq!(one["errno"].as_str(), errno, "{name}: {one:#}");
        assert!(!one["why"].as_str().unwrap().is_empty());
        if reason.starts_with("seccomp") {
            // The remedy depends on the machine, but there is always one.
            let remedies = one["remedies"].to_string();
            let known = ["seccomp", "SystemCallFilter", "system-call-filter", "filters"];
            assert!(known.iter().any(|word| remedies.contains(word)), "{name}: {remedies}");
        }
    }

    /// All that was denied.
    pub fn denied(&self) -> Vec<&str> {
        let all = self.report["facilities"].as_object().unwrap();
        // Depends on the machine, not on the plan.
        let own = ["huge_shared_pages", "userfaultfd", "io_uring", "send_zc", "page_numbers"];
        let denied = all
            .iter()
            .filter(|(name, one)| one["status"] != "works" && !own.contains(&name.as_str()));
        denied.map(|(name, _)| name.as_str()).collect()
    }

    pub fn problem(&self, part: &str) -> &Value {
        let all = self.report["problems"].as_array().unwrap();
        let found = all.iter().find(|one| one["what"].as_str().unwrap().contains(part));
        found.unwrap_or_else(|| panic!("{part}: {all:#?}"))
    }
}

/// A run under `plan`, with a directory for names of its own.
pub fn under(plan: &str) -> Found {
    let place = tempfile::tempdir().unwrap();
    under_with(plan, |command| command.env("PINFOLD_DIR", place.path().join("names")))
}

pub fn under_with(plan: &str, set: impl FnOnce(&mut Command) -> &mut Command) -> Found {
    let mut command = Command::new("/proc/self/exe");
    command.args(["confined", "--exact", "--nocapture", "--test-threads=1"]).env(PLAN, plan);
    set(&mut command);
    Found::of(&command.output().unwrap())
}

/// Returns whether this machine lets the tests see the effects of a filter: it has none of its own.
pub fn is_open() -> bool {
    let found = under("deny 1");
    let (denied, filter) = (found.denied(), &found.report["user"]["seccomp"]);
    let open = denied.is_empty() && found.exit == 0;
    if !open {
        skip(&format!("this machine denies {denied:?} by itself (seccomp: {filter})"));
    }
    open
}
