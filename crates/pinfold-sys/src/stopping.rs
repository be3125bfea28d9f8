//! Tells whether another process could stop this one: by a signal, or by any means open to a
//! process that may debug it.
//!
//! A process that could may as well hold this one up in the kernel. One that is confined must not.
//! All of it is read from `/proc`; facts that cannot be read there count against the other process.

use std::fs;

/// The verdict on another process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stopping {
    /// It could stop this one.
    Could,
    /// It has filters that this one does not know, or has given up privileges: it has to show that
    /// it may debug this one (`ptrace(2)`), by reading its memory or by writing it.
    ToShow,
    /// It could not, or nothing is known.
    Cannot,
}

/// Judges whether process `pid` could stop this one. Some 60 µs.
pub fn of(pid: u32) -> Stopping {
    judge(&Account::of("self"), &Account::of(&pid.to_string()))
}

/// Judges whether this process could stop process `pid`, as that one sees it. Some 60 µs.
pub fn of_us(pid: u32) -> Stopping {
    judge(&Account::of(&pid.to_string()), &Account::of("self"))
}

/// The entries of `/proc` on a process.
#[derive(Clone, Debug)]
struct Account {
    status: Option<String>,
    /// The label by a security module; there may be none that has labels.
    label: Option<String>,
    pid_namespace: Option<String>,
    user_namespace: Option<String>,
}

impl Account {
    /// The account of the process with this number, or of the one that is called so.
    fn of(pid: &str) -> Account {
        let text = |file: &str| fs::read_to_string(format!("/proc/{pid}/{file}")).ok();
        let namespace = |kind: &str| {
            let link = fs::read_link(format!("/proc/{pid}/ns/{kind}")).ok()?;
            Some(link.to_string_lossy().into_owned())
        };
        Account {
            status: text("status"),
            label: text("attr/current"),
            pid_namespace: namespace("pid"),
            user_namespace: namespace("user"),
        }
    }

    fn field(&self, name: &str) -> Option<&str> {
        let lines = self.status.as_deref()?.lines();
        lines.into_iter().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::trim)
    }

    fn number(&self, name: &str) -> Option<u64> {
        self.field(name)?.parse().ok()
    }

    /// The real, the effective and the saved user.
    fn users(&self) -> Option<[u32; 3]> {
        let mut words = self.field("Uid")?.split_whitespace().map_while(|word| word.parse().ok());
        Some([words.next()?, words.next()?, words.next()?])
    }
}

fn judge(ours: &Account, theirs: &Account) -> Stopping {
    let same = |one: &Option<String>, other: &Option<String>| one.is_some() && one == other;
    let (Some([real, _, saved]), Some([their_real, their_effective, _])) =
        (ours.users(), theirs.users())
    else {
        return Stopping::Cannot;
    };
    // The rule of `kill(2)`, but for capabilities.
    let may_signal = [their_real, their_effective].iter().any(|user| [real, saved].contains(user));
    let is_together = same(&ours.pid_namespace, &theirs.pid_namespace)
        && same(&ours.user_namespace, &theirs.user_namespace)
        && ours.label == theirs.label;
    if !may_signal || !is_together {
        return Stopping::Cannot;
    }
    // Of a filter only its presence is known, not the calls it filters. Other sandboxes take that
    // new privileges are given up (`landlock(7)`).
    match (theirs.number("Seccomp"), theirs.number("NoNewPrivs")) {
        (Some(0), Some(0)) => Stopping::Could,
        (Some(0), Some(_)) => Stopping::ToShow,
        (Some(2), Some(_)) => {
            match (theirs.number("Seccomp_filters"), ours.number("Seccomp_filters")) {
                // Filters of a container, mostly, which both are in.
                (Some(theirs), Some(ours)) if theirs <= ours => Stopping::ToShow,
                _ => Stopping::Cannot,
            }
        }
        _ => Stopping::Cannot,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn account(users: &str, seccomp: u32, filters: u32, given_up: u32) -> Account {
        let status = format!(
            "Name:\tx\nUid:\t{users}\nNoNewPrivs:\t{given_up}\nSeccomp:\t{seccomp}\nSeccomp_filters:\t{filters}\n"
        );
        Account {
            status: Some(status),
            label: None,
            pid_namespace: Some("pid:[1]".to_owned()),
            user_namespace: Some("user:[2]".to_owned()),
        }
    }

    fn plain() -> Account {
        account("5\t5\t5\t5", 0, 0, 0)
    }

    #[test]
    fn who_may_send_a_signal_could_stop() {
        let judged =
            |ours: &str, theirs: &str| judge(&account(ours, 0, 0, 0), &account(theirs, 0, 0, 0));
        assert_eq!(judged("5 5 5 5", "5 5 5 5"), Stopping::Could);
        // A program with the rights of another user, on the one or the other side.
        assert_eq!(judged("5 0 0 0", "5 5 5 5"), Stopping::Could);
        assert_eq!(judged("0 5 0 5", "5 5 5 5"), Stopping::Cannot);
        assert_eq!(judged("5 5 5 5", "6 5 5 5"), Stopping::Could);
        assert_eq!(judged("5 5 5 5", "6 6 5 6"), Stopping::Cannot);
        assert_eq!(judged("5 5 5 5", "5 5"), Stopping::Cannot);
    }

    #[test]
    fn who_lives_elsewhere_could_not() {
        let changes: [fn(&mut Account); 7] = [
            |it| it.status = None,
            |it| it.pid_namespace = None,
            |it| it.pid_namespace = Some("pid:[3]".to_owned()),
            |it| it.user_namespace = None,
            |it| it.user_namespace = Some("user:[3]".to_owned()),
            |it| it.label = Some("confined".to_owned()),
            |it| it.status = Some("Uid: 5 5 5 5\n".to_owned()),
        ];
        for change in changes {
            let mut theirs = plain();
            change(&mut theirs);
            assert_eq!(judge(&plain(), &theirs), Stopping::Cannot, "{theirs:?}");
        }
        // Unknown facts about both prove nothing.
        let unknown = Account { pid_namespace: None, ..plain() };
        assert_eq!(judge(&unknown, &unknown), Stopping::Cannot);
    }

    #[test]
    fn who_is_filtered_has_to_show_it() {
        let judged = |ours, (seccomp, filters, given_up)| {
            let theirs = account("5 5 5 5", seccomp, filters, given_up);
            judge(&account("5 5 5 5", 2, ours, 1), &theirs)
        };
        assert_eq!(judged(1, (0, 0, 1)), Stopping::ToShow);
        assert_eq!(judged(1, (2, 1, 1)), Stopping::ToShow);
        assert_eq!(judged(1, (2, 1, 0)), Stopping::ToShow);
        assert_eq!(judged(1, (2, 2, 1)), Stopping::Cannot);
        assert_eq!(judged(1, (1, 0, 0)), Stopping::Cannot);
        assert_eq!(judged(0, (0, 0, 0)), Stopping::Could);
    }

    #[test]
    fn a_process_could_stop_itself() {
        // A process that is filtered has to show it.
        assert_ne!(of(std::process::id()), Stopping::Cannot);
        assert_eq!(of_us(std::process::id()), of(std::process::id()));
        assert_eq!(of(0), Stopping::Cannot);
    }
}
