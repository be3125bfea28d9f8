//! Conclusions from the trials and the facts. Nothing here touches the system.
//!
//! - [`denial`]: causes of denied calls; [`reach`]: the same for other processes' memory.
//! - [`facility`], [`limits`]: each thing that was tried, and each limit.
//! - [`costs`]: the measurements, as far as they mean anything.
//! - [`remedy`]: the commands that allow more.
//! - [`problems`]: the settings that should be changed; the verdict rests on these.

mod costs;
mod denial;
mod facility;
mod limits;
mod problems;
mod reach;
mod remedy;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use pinfold::Path;

use self::denial::Context;
use super::{
    child::{Denial, Tried},
    facts::{
        Facts,
        user::{SYS_ADMIN, SYS_PTRACE},
    },
    report::{
        FORMAT, Facility, Machine, Names, PathReport, Problem, Processors, Report, Severity, User,
        Verdict,
    },
    trial::{Trials, connect::Side},
};

/// Everything there is to say.
pub(super) fn report(trials: &Trials, facts: &Facts) -> Report {
    let name = trials.name.as_ref().ok().cloned().flatten();
    let rlimits = trials.rlimits.as_deref().unwrap_or(&[]);
    let mode = seccomp_mode(&trials.seccomp_mode, facts);
    let context =
        Context { facts, filtered: mode.map(|mode| mode > 0), user: name.as_deref(), rlimits };
    let facilities = facility::all(trials, &context);
    let limits = limits::all(&context);
    let costs = trials.costs.as_ref().and_then(|costs| costs.as_ref().ok()).map(costs::all);
    let withheld = costs.as_ref().and_then(|costs| costs.withheld.as_deref());
    let problems = problems::all(trials, &facilities, &limits, withheld, &context);
    Report {
        format: FORMAT,
        version: env!("CARGO_PKG_VERSION"),
        verdict: verdict(&problems),
        machine: machine(facts),
        user: user(trials, facts, name.clone(), mode),
        processors: processors(trials, facts),
        paths: paths(trials, &facilities),
        names: names(trials, &problems),
        costs,
        facilities,
        limits,
        problems,
    }
}

/// The filter of calls: tried, or else as the system says.
fn seccomp_mode(tried: &Tried<i32>, facts: &Facts) -> Option<i32> {
    match tried {
        Ok(mode) => Some(*mode),
        // Only a filter kills for such a question.
        Err(Denial::Killed { .. }) => Some(2),
        Err(_) => facts.user.seccomp,
    }
}

fn verdict(problems: &[Problem]) -> Verdict {
    let of = |severity| problems.iter().filter(move |problem| problem.severity == severity);
    let list = |severity| {
        let all: Vec<&str> = of(severity).map(|problem| problem.what.as_str()).collect();
        all.join("; ")
    };
    let whys: Vec<&str> =
        of(Severity::Fatal).filter_map(|problem| problem.why.as_deref()).collect();
    if !whys.is_empty() {
        let text = format!("Pinfold cannot work here: {}", whys.join("; "));
        return Verdict { exit: 3, works: false, text };
    }
    let slower = list(Severity::Slower);
    if !slower.is_empty() {
        let text = format!("Pinfold works here, but slower than it could: {slower}");
        return Verdict { exit: 1, works: true, text };
    }
    let text = match of(Severity::Warning).count() {
        0 => "everything works here".to_owned(),
        1 => "everything works here; there is one warning".to_owned(),
        count => format!("everything works here; there are {count} warnings"),
    };
    Verdict { exit: 0, works: true, text }
}

fn machine(facts: &Facts) -> Machine {
    Machine {
        kernel: facts.kernel.clone(),
        processor: facts.processor.clone(),
        hypervisor: facts.hypervisor.as_deref().map(hypervisor),
        features: facts.features.clone(),
        container: facts.container.name(),
        memory_bytes: facts.memory_bytes,
    }
}

/// The usual name of the hypervisor that calls itself `own`.
fn hypervisor(own: &str) -> String {
    let usual = match own {
        "KVMKVMKVM" => "KVM",
        "MicrosoftHv" => "Hyper-V",
        "VMwareVMware" => "VMware",
        "XenVMMXenVMM" => "Xen",
        "TCGTCGTCGTCG" => "QEMU",
        "bhyvebhyve" => "bhyve",
        other => other,
    };
    usual.to_owned()
}

fn user(trials: &Trials, facts: &Facts, name: Option<String>, mode: Option<i32>) -> User {
    let user = &facts.user;
    let known = [("sys_admin", SYS_ADMIN), ("sys_ptrace", SYS_PTRACE)];
    let has = |all: u64| {
        known.into_iter().filter_map(|(name, bit)| (all & bit != 0).then_some(name)).collect()
    };
    User {
        uid: user.uid,
        gid: user.gid,
        name,
        root: user.is_root(),
        capabilities: user.capabilities.map(has),
        user_namespace: user.initial_namespace.map(|it| if it { "initial" } else { "other" }),
        seccomp: mode.map(|mode| match mode {
            0 => "off",
            1 => "strict",
            _ => "filter",
        }),
        no_new_privs: user.no_new_privs,
        dumpable: trials.dumpable.as_ref().ok().copied(),
    }
}

fn processors(trials: &Trials, facts: &Facts) -> Processors {
    let usable = trials.cpus.as_ref().ok().cloned();
    let several = usable.as_deref().filter(|cpus| cpus.len() > 1);
    Processors {
        online: facts.cores.online.as_ref().map(Vec::len),
        quota: facts.groups.cpus(),
        same_core: several.and_then(|cpus| facts.cores.is_one_core(cpus)),
        shared_cache: several.and_then(|cpus| facts.cores.is_one_cache(cpus)),
        usable,
    }
}

/// The paths that the two processes which met could take.
fn paths(trials: &Trials, facilities: &[Facility]) -> BTreeMap<String, PathReport> {
    let best = trials.meeting.best();
    let sides: Vec<&Side> = [&best.listener, &best.caller]
        .into_iter()
        .filter_map(|side| side.as_ref()?.as_ref().ok()?.as_ref().ok())
        .collect();
    let met = best.works();
    // All paths that there are.
    let mut names: BTreeSet<&str> = Path::ALL.into_iter().map(Path::name).collect();
    names.extend(sides.iter().flat_map(|side| side.paths.iter().map(String::as_str)));
    let report = |name: &str| {
        if !met {
            let why = Some("no two processes could meet".to_owned());
            return PathReport { works: false, why };
        }
        let works = sides.iter().all(|side| side.paths.iter().any(|path| path == name));
        let why = || {
            let refused = sides.iter().find_map(|side| side.cma_refused.clone());
            let cause = facilities
                .iter()
                .filter(|one| one.name.starts_with("process_vm_"))
                .find_map(|one| one.why.clone());
            if name == Path::Cma.name() { cause.or(refused) } else { None }
        };
        PathReport { works, why: if works { None } else { why() } }
    };
    names.into_iter().map(|name| (name.to_owned(), report(name))).collect()
}

fn names(trials: &Trials, problems: &[Problem]) -> Names {
    let found = trials.meeting.plain.names.clone();
    let fatal = problems.iter().find(|problem| problem.severity == Severity::Fatal);
    Names {
        works: found.is_some(),
        why: fatal.filter(|_| found.is_none()).and_then(|problem| problem.why.clone()),
        free_bytes: found.as_ref().and_then(|names| names.free_bytes),
        free_files: found.as_ref().and_then(|names| names.free_files),
        directory: found.and_then(|names| Some(names.directory?.display().to_string())),
    }
}
