//! The problems: settings that should be changed, and how bad each is.

use std::path::Path;

use super::super::{
    child::{Denial, FORK},
    report::{Facility, Limit, Problem, Reason, Remedy, Room, Severity, Status, Use},
    trial::{Trials, connect::Failure},
};
use super::{
    denial::{self, Call, Context},
    remedy::{self, Of},
};
use pinfold_bench::units;

/// All of them, worst first.
pub(super) fn all(
    trials: &Trials,
    facilities: &[Facility],
    limits: &[Limit],
    withheld: Option<&str>,
    context: &Context<'_>,
) -> Vec<Problem> {
    let mut all = Vec::new();
    if !trials.meeting.plain.works() {
        all.push(fatal(trials, facilities, limits, context));
    }
    all.extend(slower(trials, facilities, context));
    all.extend(facilities.iter().filter_map(warning));
    all.extend(limits.iter().filter_map(short));
    all.extend(names(trials));
    if let Some(Err(why)) = &trials.costs {
        let why = denial::explain(why, Call { names: &[], since: (0, 0) }, context).why;
        all.push(Problem {
            what: "what messages cost could not be measured".into(),
            severity: Severity::Warning,
            reason: None,
            why: Some(why),
            remedies: Vec::new(),
        });
    }
    all.extend(withheld.map(|why| Problem {
        what: "what messages cost is withheld".into(),
        severity: Severity::Warning,
        reason: None,
        why: Some(why.into()),
        remedies: vec![remedy::run_with("pinfold doctor", "again, when nothing else runs")],
    }));
    all.sort_by_key(|problem| problem.severity);
    all
}

/// The reason why two processes could not exchange messages.
fn fatal(
    trials: &Trials,
    facilities: &[Facility],
    limits: &[Limit],
    context: &Context<'_>,
) -> Problem {
    let problem = |reason, why: String, remedies| Problem {
        what: "two processes cannot exchange messages".into(),
        severity: Severity::Fatal,
        reason,
        why: Some(why),
        remedies,
    };
    if let Err(Denial::Errno { call, errno }) = &trials.process
        && call == FORK
    {
        let why = format!("there can be no second process: fork: {}", denial::said(*errno));
        let (reason, remedies) = no_process(limits, context);
        return problem(Some(reason), why, remedies);
    }
    let failure = trials.meeting.plain.failure();
    if let Some(place) = trials.meeting.elsewhere()
        && let Some(Ok(failure)) = failure
    {
        let why = format!("there is no place for names: {}", failure.text);
        return problem(Some(no_place(failure)), why, elsewhere(place, &failure.text));
    }
    // A resource that has run out explains every other failure.
    let is_out = |errno| matches!(errno, libc::EMFILE | libc::ENFILE | libc::ENOMEM | libc::EFBIG);
    let out = matches!(failure, Some(Ok(Failure { errno: Some(errno), .. })) if is_out(*errno));
    // Facilities that Pinfold needs and cannot have; else those that it can do without as long as
    // not too many are missing.
    let all = |is_one: fn(&Facility) -> bool| -> Vec<&Facility> {
        facilities.iter().filter(|one| !out && is_one(one)).collect()
    };
    let culprits = Some(all(is_culprit)).filter(|some| !some.is_empty());
    let culprits = culprits.unwrap_or_else(|| match failure {
        Some(Ok(_)) => all(is_suspect),
        _ => Vec::new(),
    });
    if let Some(Err(denial)) = failure
        && culprits.is_empty()
    {
        let cause = denial::explain(denial, Call { names: &[], since: (0, 0) }, context);
        return problem(cause.reason, cause.why, cause.remedies);
    }
    let mut reason = culprits.iter().find_map(|one| one.reason);
    let mut remedies: Vec<Remedy> = Vec::new();
    for remedy in culprits.iter().flat_map(|one| &one.remedies) {
        if !remedies.contains(remedy) {
            remedies.push(remedy.clone());
        }
    }
    let mut whys: Vec<String> = culprits.iter().filter_map(|one| one.why.clone()).collect();
    whys.dedup();
    if let Some(Ok(failure)) = failure {
        if let Some(errno) = failure.errno.filter(|_| whys.is_empty()) {
            let call = failure.call.clone().unwrap_or_default();
            let denial = Denial::Errno { call, errno };
            // The library's own words name the object of the call.
            let general = Call { names: &[], since: (0, 0) };
            let cause = denial::explain(&denial, general, context);
            remedies.extend(cause.remedies);
            reason = reason.or(cause.reason);
        }
        remedies.extend(command_in(&failure.text).map(remedy::run));
        whys.insert(0, failure.text.clone());
    }
    let why = if whys.is_empty() { "nobody says why".to_owned() } else { whys.join("; ") };
    problem(reason, why, remedies)
}

/// Returns whether two processes fail to meet for want of it.
fn is_culprit(one: &Facility) -> bool {
    match (one.used, one.status) {
        (Use::Arenas | Use::Hosts | Use::Memory, _) => false,
        // Pinfold does without a denied facility, but not without the process that asks for it.
        (_, Status::Killed) => true,
        (used, Status::Denied) => used == Use::Required,
        _ => false,
    }
}

/// The reason why there is no place for names.
fn no_place(failure: &Failure) -> Reason {
    match failure.errno {
        Some(libc::EROFS) => Reason::ReadOnly,
        Some(libc::ENOSPC | libc::EDQUOT) => Reason::Full,
        // The library's own refusal of a directory that is not safe has no number.
        Some(libc::EACCES | libc::EPERM) | None => Reason::Permissions,
        Some(_) => Reason::Other,
    }
}

/// Returns whether it is denied, though no single one of these is needed.
fn is_suspect(one: &Facility) -> bool {
    one.used == Use::Safer && one.status == Status::Denied
}

/// The command that the library's own words end with.
fn command_in(text: &str) -> Option<String> {
    let (_, command) = text.rsplit_once("run: ")?;
    Some(command.trim().to_owned())
}

fn elsewhere(place: &Path, why: &str) -> Vec<Remedy> {
    let mut all: Vec<Remedy> = command_in(why).map(remedy::run).into_iter().collect();
    all.push(remedy::run_with(
        format!("export PINFOLD_DIR={}", place.display()),
        "in the shells that start the programs, the same in all of them",
    ));
    all
}

fn no_process(limits: &[Limit], context: &Context<'_>) -> (Reason, Vec<Remedy>) {
    // A control group that is full says so.
    let full = limits.iter().find(|limit| limit.name == "tasks" && limit.status == Room::Near);
    match full {
        Some(limit) => (Reason::Cgroup, limit.remedies.clone()),
        None if context.filtered == Some(true)
            && context.rlimit("nproc").0.is_none_or(|most| most > 8) =>
        {
            (Reason::Seccomp, remedy::seccomp(context.facts, &["clone", "clone3", "vfork"]))
        }
        None => (Reason::Rlimit, context.raise(remedy::PROCESSES)),
    }
}

fn slower(trials: &Trials, facilities: &[Facility], context: &Context<'_>) -> Vec<Problem> {
    let mut all = Vec::new();
    let mut add = |what: &str, reason, why: Option<String>, remedies: Vec<Remedy>| {
        let (what, severity) = (what.to_owned(), Severity::Slower);
        all.push(Problem { what, severity, reason, why, remedies });
    };
    let denied =
        |name: &str| facilities.iter().find(|one| one.name == name && one.status == Status::Denied);
    let reach = (denied("process_vm_readv"), denied("process_vm_writev"));
    let cma = match reach {
        (Some(read), Some(_)) => {
            Some(("long messages are copied twice rather than once (no path cma)", read))
        }
        (Some(one), None) | (None, Some(one)) => {
            Some(("long messages are copied by one side only rather than by both", one))
        }
        (None, None) => None,
    };
    if let Some((what, one)) = cma {
        add(what, one.reason, one.why.clone(), one.remedies.clone());
    }
    if let Some(one) = denied("membarrier_global") {
        let what = "every message waits for a memory fence (no membarrier)";
        add(what, one.reason, one.why.clone(), one.remedies.clone());
    } else if let Some(one) = denied("membarrier_private") {
        let what = "endpoints take a lock for every message (no private membarrier)";
        add(what, one.reason, one.why.clone(), one.remedies.clone());
    }
    let usable = trials.cpus.as_ref().map_or(2, Vec::len);
    let facts = context.facts;
    if usable < 2 {
        let online = facts.cores.online.as_ref().map_or(0, Vec::len);
        let (why, remedies) = match online {
            0 => ("only one processor is allowed".to_owned(), Vec::new()),
            1 => ("the machine has one".to_owned(), Vec::new()),
            _ => {
                let why = format!("this process may use one of {online} (its affinity)");
                (why, vec![remedy::run(affinity(facts.container.name(), online))])
            }
        };
        let what = "both processes share one processor: each message waits for a switch";
        add(what, Some(Reason::Other), Some(why), remedies);
    }
    let tightest = facts
        .groups
        .all
        .iter()
        .filter(|group| group.cpus.is_some_and(|cpus| cpus < 2.0))
        .min_by(|a, b| a.cpus.unwrap_or(0.0).total_cmp(&b.cpus.unwrap_or(0.0)));
    if let Some(group) = tightest {
        let cpus = group.cpus.unwrap_or_default();
        let cpus = units::number(cpus);
        let why = format!("{} allows {cpus} processors' worth", group.directory.display());
        let what = "processes are held up when their share of processor time is spent";
        add(what, Some(Reason::Cgroup), Some(why), remedy::group(facts, group, Of::Cpus));
    }
    all
}

fn affinity(container: &str, online: usize) -> String {
    let last = online - 1;
    match container {
        "docker" | "podman" => format!("{container} run --cpuset-cpus 0-{last} IMAGE"),
        _ => format!("taskset -c 0-{last} COMMAND"),
    }
}

fn warning(one: &Facility) -> Option<Problem> {
    // Either of these does, and a mark on memory that is not executable anyway is only a mark.
    let what = match (one.name, one.status) {
        (_, Status::Works | Status::Unknown) => return None,
        ("populate_write", _) => {
            "want of memory kills processes (SIGBUS) rather than being an error"
        }
        ("madvise_remove", _) => "memory of lanes is not given back before their peer is gone",
        _ => return None,
    };
    Some(Problem {
        what: what.into(),
        severity: Severity::Warning,
        reason: one.reason,
        why: one.why.clone(),
        remedies: one.remedies.clone(),
    })
}

fn short(limit: &Limit) -> Option<Problem> {
    let Limit { name, scope, used, limit: most, unit, status, remedies, .. } = limit;
    let (name, most) = (name.replace('_', " "), (*most)?);
    let what = match status {
        Room::Near => format!("the limit on {name} is near"),
        Room::Low => format!("the limit on {name} is low"),
        Room::Ok | Room::Unknown => return None,
    };
    let why = match used {
        Some(used) if *status == Room::Near => format!("{used} of {most} {unit} used ({scope})"),
        _ => format!("{most} {unit} ({scope})"),
    };
    let reason = match scope.as_str() {
        "process" if limit.name != "mappings" => Reason::Rlimit,
        "process" | "system" | "network namespace" => Reason::Sysctl,
        _ => Reason::Cgroup,
    };
    Some(Problem {
        what,
        severity: Severity::Warning,
        reason: Some(reason),
        why: Some(why),
        remedies: remedies.clone(),
    })
}

/// The problem that little room is left in the directory of names.
fn names(trials: &Trials) -> Option<Problem> {
    let names = trials.meeting.plain.names.as_ref()?;
    let place = names.directory.as_ref()?.display().to_string();
    let (bytes, files) = (names.free_bytes, names.free_files);
    let why = match (bytes, files) {
        (Some(bytes @ ..1_000_000), _) => format!("{bytes} bytes are free"),
        (_, Some(files @ ..64)) => format!("{files} more files can be made"),
        _ => return None,
    };
    let device = remedy::run_with(format!("df -h {place}; df -i {place}"), "and make room there");
    Some(Problem {
        what: format!("there is little room for names in {place}"),
        severity: Severity::Warning,
        reason: Some(Reason::Full),
        why: Some(why),
        remedies: vec![device],
    })
}
