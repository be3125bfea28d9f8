//! Whole reports, of machines that are made up.

mod costs;
mod huge;
mod rings;

use super::*;
use crate::doctor::{
    facts::{cgroup::Group, container::Container},
    report::{Reason, Room, Status},
    text,
    trial::{
        calls::{Calls, Faults, Huge},
        connect::{Attempt, ConnectTrial, Failure, Names as FoundNames},
        reach::{Both, Reach},
    },
};

const YES: Tried<()> = Ok(());

fn met() -> Attempt {
    let side = Side {
        paths: Path::ALL.iter().map(|path| path.name().into()).collect(),
        cma_refused: None,
        taken: vec![(8, "inline".into())],
    };
    let names = FoundNames {
        directory: Some("/tmp/pinfold-7".into()),
        free_bytes: Some(1 << 30),
        free_files: None,
    };
    Attempt { listener: Some(Ok(Ok(side.clone()))), caller: Some(Ok(Ok(side))), names: Some(names) }
}

/// A machine where all is well.
fn well() -> (Trials, Facts) {
    let trials = Trials {
        process: YES,
        seccomp_mode: Ok(0),
        dumpable: Ok(true),
        cpus: Ok(vec![0, 1]),
        name: Ok(Some("someone".into())),
        rlimits: Ok(vec![("nofile", Some(4096), Some(4096))]),
        calls: Calls {
            memfd: YES,
            memfd_seals: YES,
            mapping: YES,
            noexec_seal: YES,
            future_write_seal: YES,
            populate_write: YES,
            remove: YES,
            huge_shmem: Ok(Huge { bytes: 8 << 20, bytes_huge: 8 << 20, refused: None }),
            barrier_global: YES,
            barrier_private: YES,
            pidfd_open: YES,
            peer_pidfd: YES,
            peer_credentials: YES,
            unix_sockets: YES,
            descriptors: YES,
            events: YES,
            userfaultfd: Ok(Faults { shared: true, any: true, moves: true }),
            io_uring: Ok(0x3fff),
            tcp: YES,
            page_numbers: YES,
            msg_zerocopy: YES,
            send_zc: YES,
        },
        reach: Reach { sibling: Both { read: YES, write: YES }, others: None },
        meeting: ConnectTrial { plain: met(), elsewhere: None },
        costs: None,
    };
    let mut facts = Facts { kernel: Some("6.18.1".into()), ..Facts::default() };
    facts.user.uid = 7;
    (trials, facts)
}

fn errno<T>(call: &str, errno: i32) -> Tried<T> {
    Err(Denial::Errno { call: call.into(), errno })
}

/// The text for people names everything that is to be changed, in lines that fit.
fn shown(report: &Report) -> String {
    let text = text::render(report, false, None);
    assert!(!text.contains('\x1b'));
    for problem in &report.problems {
        assert!(text.contains(&problem.what), "{text}");
        for run in problem.remedies.iter().filter_map(|remedy| remedy.run.as_deref()) {
            assert!(text.contains(run), "{run}: {text}");
        }
    }
    assert!(text::render(report, true, None).contains("\x1b[1mHERE\x1b[0m"));
    for width in [60, 80, 200] {
        fits(report, &text, width);
    }
    text
}

/// On a terminal the whole report is there, in lines that fit, but for commands.
fn fits(report: &Report, text: &str, width: usize) {
    let folded = text::render(report, false, Some(width));
    let is_command = |line: &str| {
        let remedies = report.problems.iter().flat_map(|problem| &problem.remedies);
        let others = report.facilities.iter().flat_map(|facility| &facility.remedies);
        remedies
            .chain(others)
            .filter_map(|one| one.run.as_ref().or(one.note.as_ref()))
            .any(|run| line.contains(run))
    };
    for line in folded.lines().filter(|line| !is_command(line)) {
        assert!(line.chars().count() <= width, "{width}: {line}");
    }
    // The same words: the columns of a narrow table are named in its lines.
    let words = |text: &str| -> Vec<String> {
        let words = text
            .split_whitespace()
            .filter(|word| !["chosen", "by", "itself", "itself:"].contains(word));
        words.map(str::to_owned).collect()
    };
    assert_eq!(words(&folded).concat(), words(text).concat(), "{width}: {folded}");
    // Colours take no room.
    let painted = text::render(report, true, Some(width));
    let plain = painted.split('\x1b').map(|part| {
        part.strip_prefix('[')
            .map_or(part, |part| part.split_once('m').map_or("", |(_, rest)| rest))
    });
    assert_eq!(plain.collect::<String>(), folded);
}

#[test]
fn all_is_well() {
    let (trials, facts) = well();
    let report = report(&trials, &facts);
    assert_eq!(report.verdict.exit, 0);
    assert_eq!(report.problems, []);
    assert!(report.paths.values().all(|path| path.works));
    assert!(!shown(&report).contains("WHAT TO CHANGE"));
}

#[test]
fn slower_is_1() {
    let (mut trials, facts) = well();
    trials.calls.barrier_global = errno("membarrier", libc::ENOSYS);
    let report = report(&trials, &facts);
    assert_eq!((report.verdict.exit, report.verdict.works), (1, true));
    assert_eq!(report.problems[0].severity, Severity::Slower);
    assert_eq!(report.problems[0].reason, Some(Reason::KernelConfig));
    assert!(shown(&report).contains("to allow more") || report.problems[0].remedies.is_empty());
}

#[test]
fn warnings_are_0() {
    let (mut trials, mut facts) = well();
    facts.used.descriptors = Some(4000);
    trials.calls.remove = Err(Denial::Wrong("memory that was given back is still there".into()));
    let report = report(&trials, &facts);
    assert_eq!(report.verdict.exit, 0);
    assert_eq!(report.problems.len(), 2);
    assert!(report.verdict.text.contains("2 warnings"));
    assert!(shown(&report).contains("4000 of 4096"));
}

#[test]
fn too_few_processors() {
    let (mut trials, mut facts) = well();
    facts.container = Container::Podman;
    trials.cpus = Ok(vec![1]);
    facts.groups.all.push(Group { version: 2, cpus: Some(0.5), ..Group::default() });
    let report = report(&trials, &facts);
    let runs: Vec<_> =
        report.problems.iter().flat_map(|problem| &problem.remedies).map(|one| &one.run).collect();
    assert_eq!(report.verdict.exit, 1);
    assert!(runs.contains(&&Some("podman run --cpus 2 IMAGE".to_owned())), "{runs:?}");
    assert_eq!(report.processors.quota, Some(0.5));
}

#[test]
fn a_kernel_that_is_too_old() {
    let (mut trials, mut facts) = well();
    facts.kernel = Some("5.10.0".into());
    trials.calls.peer_pidfd = errno("getsockopt", libc::ENOPROTOOPT);
    trials.calls.populate_write = errno("madvise", libc::EINVAL);
    let report = report(&trials, &facts);
    let one = |name| report.facilities.iter().find(|one| one.name == name).unwrap();
    for name in ["peer_pidfd", "populate_write"] {
        assert_eq!(one(name).reason, Some(Reason::KernelTooOld), "{:?}", one(name));
        assert_eq!(one(name).status, Status::Denied);
    }
    assert!(report.problems[0].what.contains("SIGBUS"));
}

#[test]
fn settings_explain_what_is_not_needed_yet() {
    let (mut trials, mut facts) = well();
    trials.calls.io_uring = errno("io_uring_setup", libc::EPERM);
    facts.settings.io_uring_disabled = Some(2);
    let refused = Some(Denial::Errno { call: "madvise".into(), errno: libc::EINVAL });
    trials.calls.huge_shmem = Ok(Huge { bytes: 8 << 20, bytes_huge: 0, refused });
    facts.settings.shmem_enabled = Some("deny".into());
    let report = report(&trials, &facts);
    let one = |name| report.facilities.iter().find(|one| one.name == name).unwrap();
    assert_eq!(one("io_uring").reason, Some(Reason::Sysctl));
    let run = one("io_uring").remedies[0].run.as_deref();
    assert_eq!(run, Some("sudo sysctl kernel.io_uring_disabled=0"));
    assert_eq!(one("huge_shared_pages").reason, Some(Reason::Sysctl));
    assert!(one("huge_shared_pages").remedies[0].run.as_ref().unwrap().starts_with("echo advise"));
    assert_eq!(report.verdict.exit, 0);
}

fn no_names(failure: Failure) -> Attempt {
    Attempt { listener: Some(Ok(Err(failure))), ..Attempt::default() }
}

#[test]
fn no_place_for_names() {
    let (mut trials, facts) = well();
    let failure = |errno, text: &str| Failure {
        text: text.into(),
        errno,
        call: errno.map(|_| "mkdir".into()),
    };
    for (errno, reason) in [
        (Some(libc::EROFS), Reason::ReadOnly),
        (Some(libc::ENOSPC), Reason::Full),
        (Some(libc::EACCES), Reason::Permissions),
        (None, Reason::Permissions),
    ] {
        trials.meeting = ConnectTrial {
            plain: no_names(failure(errno, "its mode 0777 lets others in; run: chmod 700 /x")),
            elsewhere: Some(("/dev/shm/pinfold-7".into(), met())),
        };
        let report = report(&trials, &facts);
        assert_eq!(report.verdict.exit, 3);
        let fatal = &report.problems[0];
        assert_eq!((fatal.severity, fatal.reason), (Severity::Fatal, Some(reason)));
        assert_eq!(fatal.remedies[0].run.as_deref(), Some("chmod 700 /x"));
        let export = fatal.remedies[1].run.as_deref();
        assert_eq!(export, Some("export PINFOLD_DIR=/dev/shm/pinfold-7"));
        assert!(report.paths["eager"].works && !report.names.works);
        shown(&report);
    }
    // Nor anywhere else.
    trials.meeting =
        ConnectTrial { plain: no_names(failure(Some(libc::EROFS), "read-only")), elsewhere: None };
    let report = report(&trials, &facts);
    assert_eq!((report.verdict.exit, report.paths["eager"].works), (3, false));
    assert!(report.verdict.text.contains("read-only"));
}

#[test]
fn no_process_at_all() {
    let (mut trials, mut facts) = well();
    let no = || errno(crate::doctor::child::FORK, libc::EAGAIN);
    trials.process = no();
    trials.calls.memfd = no();
    trials.meeting.plain =
        Attempt { listener: Some(errno("fork", libc::EAGAIN)), ..Attempt::default() };
    let fatal = |trials: &Trials, facts: &Facts| {
        let report = report(trials, facts);
        assert_eq!(report.verdict.exit, 3);
        assert_eq!(report.facilities[0].status, Status::Unknown);
        shown(&report);
        report.problems[0].clone()
    };
    assert_eq!(fatal(&trials, &facts).reason, Some(Reason::Rlimit));
    facts.groups.all.push(Group {
        directory: "/g".into(),
        version: 2,
        pids_max: Some(10),
        pids_used: Some(10),
        ..Group::default()
    });
    let full = fatal(&trials, &facts);
    assert_eq!(full.reason, Some(Reason::Cgroup));
    assert_eq!(full.remedies[0].run.as_deref(), Some("echo max | sudo tee /g/pids.max"));
}

#[test]
fn a_killed_side_tells_more_than_the_other() {
    let (mut trials, facts) = well();
    let gone = Failure { text: "the other side is gone".into(), errno: None, call: None };
    trials.meeting.plain.listener = Some(Ok(Err(gone)));
    trials.meeting.plain.caller =
        Some(Err(Denial::Killed { call: String::new(), signal: libc::SIGSYS }));
    trials.calls.barrier_global =
        Err(Denial::Killed { call: "membarrier".into(), signal: libc::SIGSYS });
    let report = report(&trials, &facts);
    let fatal = &report.problems[0];
    assert_eq!(fatal.reason, Some(Reason::SeccompKills));
    assert_eq!(fatal.why.as_deref(), Some("a seccomp filter kills whoever calls membarrier"));
}
