//! The causes that keep processes from each other's memory.

use super::{
    super::{
        child::Tried,
        facts::user::SYS_PTRACE,
        report::{Reason, Remedy, Status},
        trial::reach::{Both, Reach},
    },
    denial::{self, Call, Cause, Context},
    remedy,
};

pub(super) const READ: Call = Call { names: &["process_vm_readv"], since: (3, 2) };
pub(super) const WRITE: Call = Call { names: &["process_vm_writev"], since: (3, 2) };

/// One of the two calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Which {
    Read,
    Write,
}

impl Which {
    fn of(self, both: &Both) -> &Tried<()> {
        match self {
            Which::Read => &both.read,
            Which::Write => &both.write,
        }
    }
}

/// The cause that `which` is denied; `None` if it is not.
pub(super) fn cause(
    reach: &Reach,
    which: Which,
    is_dumpable: Option<bool>,
    context: &Context<'_>,
) -> Option<Cause> {
    let denial = which.of(&reach.sibling).as_ref().err()?;
    let call = if which == Which::Read { READ } else { WRITE };
    let general = || denial::explain(denial, call, context);
    let (Some(others), Some(libc::EPERM | libc::EACCES)) = (&reach.others, denial.errno()) else {
        return Some(general());
    };
    let works = |both: &Both| which.of(both).is_ok();
    let denied = |reason, why: String, remedies| {
        let errno = denial.errno().map(denial::errno_name);
        Some(Cause { status: Status::Denied, errno, reason: Some(reason), why, remedies })
    };
    if !works(&others.own) {
        // The kernel lets every process look at itself.
        let filtered = Context { filtered: Some(true), ..*context };
        return Some(denial::explain(denial, call, &filtered));
    }
    if is_dumpable == Some(false) || (works(&others.dumpable) && !works(&others.willing)) {
        let program = std::env::current_exe().map(|path| path.display().to_string());
        let program = program.unwrap_or_else(|_| "PROGRAM".into());
        let readable = remedy::note(format!(
            "start it from a copy of {program} that this user may read, without set-user-id and file \
             capabilities, and do not switch users"
        ));
        let why = "this program is not dumpable (PR_SET_DUMPABLE), so no other may look into it";
        return denied(Reason::NotDumpable, why.into(), vec![readable]);
    }
    let settings = &context.facts.settings;
    let scope = settings.ptrace_scope.filter(|&scope| scope > 0);
    if scope.is_some() || works(&others.willing) || works(&others.child) {
        let scope = scope.unwrap_or(1);
        return denied(Reason::Yama, yama_says(scope), yama(scope, context));
    }
    if settings.deny_ptrace == Some(true) {
        let why = "SELinux denies it (the boolean deny_ptrace)".to_owned();
        let off = if context.facts.user.is_root() { "" } else { "sudo " };
        return denied(
            Reason::Lsm,
            why,
            vec![remedy::run(format!("{off}setsebool deny_ptrace 0"))],
        );
    }
    let label = context.facts.user.label.as_deref();
    let why = match label {
        Some(label) => format!("a security module denies it to processes called {label}"),
        None => "a security module or a sandbox denies it".to_owned(),
    };
    let apparmor = label.map(|label| label.split(' ').next().unwrap_or(label));
    let remedies = match (context.facts.container.name(), apparmor) {
        (tool @ ("docker" | "podman"), Some(_)) => {
            vec![remedy::run(format!("{tool} run --security-opt apparmor=unconfined IMAGE"))]
        }
        (_, Some(profile)) => {
            vec![remedy::note(format!("allow `ptrace peer={profile},` in the profile {profile}"))]
        }
        _ => Vec::new(),
    };
    denied(Reason::Lsm, why, remedies)
}

fn yama_says(scope: u64) -> String {
    let whom = match scope {
        1 => "lets a process look into its descendants only",
        2 => "lets only processes with CAP_SYS_PTRACE look into others",
        _ => "lets no process look into another one",
    };
    format!("Yama {whom} (kernel.yama.ptrace_scope={scope})")
}

fn yama(scope: u64, context: &Context<'_>) -> Vec<Remedy> {
    let facts = context.facts;
    let mut all = Vec::new();
    if scope >= 3 {
        all.push(remedy::note(
            "take kernel.yama.ptrace_scope=3 out of /etc/sysctl.d and start the machine anew: it \
             cannot be changed back before",
        ));
        return all;
    }
    all.extend(remedy::sysctl(facts, "kernel.yama.ptrace_scope", 0));
    if !facts.user.may(SYS_PTRACE) {
        all.extend(remedy::capability(facts, "SYS_PTRACE"));
    }
    all
}

#[cfg(test)]
mod tests {
    use super::{
        super::super::{child::Denial, facts::Facts, trial::reach::Others},
        *,
    };

    fn denied(errno: i32) -> Tried<()> {
        Err(Denial::Errno { call: "process_vm_readv".into(), errno })
    }

    fn both(one: &Tried<()>) -> Both {
        Both { read: one.clone(), write: one.clone() }
    }

    const OK: Tried<()> = Ok(());

    /// Own, child, willing, dumpable.
    fn found(sibling: &Tried<()>, others: [&Tried<()>; 4], facts: &Facts) -> Cause {
        let [own, child, willing, dumpable] = others.map(both);
        let reach = Reach {
            sibling: both(sibling),
            others: Some(Others { own, child, willing, dumpable }),
        };
        let context = Context { facts, filtered: Some(false), user: None, rlimits: &[] };
        cause(&reach, Which::Read, None, &context).unwrap()
    }

    #[test]
    fn yama_is_told_by_who_may() {
        let no = denied(libc::EPERM);
        let mut facts = Facts::default();
        facts.user.uid = 1000;
        // Scope 1: the process's own children, and processes that are willing.
        let relational = found(&no, [&OK, &OK, &OK, &no], &facts);
        assert_eq!(relational.reason, Some(Reason::Yama));
        assert_eq!(relational.errno.as_deref(), Some("EPERM"));
        assert_eq!(
            relational.remedies[0].run.as_deref(),
            Some("sudo sysctl kernel.yama.ptrace_scope=0")
        );
        // Scope 2: only the setting tells.
        facts.settings.ptrace_scope = Some(2);
        let admin = found(&no, [&OK, &no, &no, &no], &facts);
        assert!(admin.why.contains("ptrace_scope=2"), "{admin:?}");
        assert_eq!(admin.remedies.len(), 1);
        facts.settings.ptrace_scope = Some(3);
        let nobody = found(&no, [&OK, &no, &no, &no], &facts);
        assert_eq!(nobody.reason, Some(Reason::Yama));
        assert!(nobody.remedies[0].run.is_none());
        // Yama is off: another mechanism denies it.
        facts.settings.ptrace_scope = Some(0);
        let module = found(&no, [&OK, &no, &no, &no], &facts);
        assert_eq!(module.reason, Some(Reason::Lsm));
    }

    #[test]
    fn filters_deny_a_process_itself() {
        let facts = Facts::default();
        for errno in [libc::EPERM, libc::EACCES] {
            let no = denied(errno);
            assert_eq!(found(&no, [&no; 4], &facts).reason, Some(Reason::Seccomp));
        }
        let unknown = denied(libc::ENOSYS);
        assert_eq!(found(&unknown, [&unknown; 4], &facts).reason, Some(Reason::KernelConfig));
        let dead = Err(Denial::Killed { call: "process_vm_readv".into(), signal: libc::SIGSYS });
        assert_eq!(found(&dead, [&dead; 4], &facts).reason, Some(Reason::SeccompKills));
    }

    #[test]
    fn programs_that_are_not_dumpable_are_told_apart() {
        let no = denied(libc::EPERM);
        let cause = found(&no, [&OK, &no, &no, &OK], &Facts::default());
        assert_eq!(cause.reason, Some(Reason::NotDumpable));
        // The program's file is not Pinfold's to change.
        assert_eq!(cause.remedies[0].run, None);
        assert!(cause.remedies[0].note.as_ref().unwrap().contains("a copy of /"));
    }

    #[test]
    fn modules_are_named() {
        let no = denied(libc::EACCES);
        let mut facts = Facts::default();
        facts.settings.deny_ptrace = Some(true);
        let cause = found(&no, [&OK, &no, &no, &no], &facts);
        assert!(cause.remedies[0].run.as_ref().unwrap().ends_with("setsebool deny_ptrace 0"));
        facts.settings.deny_ptrace = None;
        facts.user.label = Some("snap.box (enforce)".into());
        let cause = found(&no, [&OK, &no, &no, &no], &facts);
        assert!(cause.why.contains("snap.box") && cause.remedies[0].run.is_none());
    }

    #[test]
    fn what_works_has_no_cause() {
        let facts = Facts::default();
        let context = Context { facts: &facts, filtered: None, user: None, rlimits: &[] };
        let reach = Reach { sibling: both(&OK), others: None };
        assert_eq!(cause(&reach, Which::Write, None, &context), None);
    }
}
