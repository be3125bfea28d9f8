//! Huge pages of arenas, under each setting there is.

use super::*;

const MIB: u64 = 1 << 20;

fn found(held: Tried<Huge>, set: impl FnOnce(&mut Facts)) -> Facility {
    let (mut trials, mut facts) = well();
    trials.calls.huge_shmem = held;
    set(&mut facts);
    let report = report(&trials, &facts);
    assert_eq!((report.verdict.exit, report.problems.len()), (0, 0), "arenas do without");
    report.facilities.into_iter().find(|one| one.name == "huge_shared_pages").unwrap()
}

fn none(errno: i32) -> Tried<Huge> {
    let refused = Some(Denial::Errno { call: "madvise".into(), errno });
    Ok(Huge { bytes: 8 * MIB, bytes_huge: 0, refused })
}

/// An arena's own call overrides `shmem_enabled`, short of `deny`.
#[test]
fn what_an_arena_has_counts_and_not_the_setting() {
    for setting in ["always", "within_size", "advise", "never", "force"] {
        let held = Huge { bytes: 64 * MIB, bytes_huge: 64 * MIB, refused: None };
        let one = found(Ok(held), |facts| facts.settings.shmem_enabled = Some(setting.into()));
        assert_eq!((one.status, one.reason), (Status::Works, None), "{setting}: {one:?}");
        let detail = one.detail.unwrap();
        assert!(detail.contains("64 of 64 MiB") && detail.contains(setting), "{detail}");
    }
    // A machine that is short of them has some.
    let some = Huge { bytes: 8 * MIB, bytes_huge: 2 * MIB, refused: None };
    let one = found(Ok(some), |_| {});
    assert_eq!(one.status, Status::Works);
    assert!(one.detail.unwrap().contains("2 of 8 MiB"));
}

#[test]
fn who_denies_them_is_named() {
    let one = found(none(libc::EINVAL), |facts| {
        facts.settings.shmem_enabled = Some("deny".into());
    });
    assert_eq!(one.reason, Some(Reason::Sysctl));
    assert!(one.remedies[0].run.as_ref().unwrap().contains("shmem_enabled"), "{one:?}");
    // A setting that is not in the way is not blamed.
    let never = |facts: &mut Facts| facts.settings.shmem_enabled = Some("never".into());
    let one = found(none(libc::EINVAL), |facts| {
        never(facts);
        facts.settings.thp_enabled = Some(false);
    });
    assert!(one.why.as_ref().unwrap().contains("PR_SET_THP_DISABLE"), "{one:?}");
    let one = found(none(libc::EINVAL), |facts| {
        never(facts);
        facts.kernel = Some("5.15.0".into());
    });
    assert_eq!(one.reason, Some(Reason::KernelTooOld));
    assert!(one.why.as_ref().unwrap().contains("6.1"), "{one:?}");
    let one = found(none(libc::EINVAL), never);
    assert_eq!(one.reason, Some(Reason::KernelConfig));
    for errno in [libc::ENOMEM, libc::EAGAIN, libc::EBUSY] {
        let one = found(none(errno), never);
        assert_eq!(one.reason, Some(Reason::Other));
        assert!(one.why.as_ref().unwrap().contains("free in one piece"), "{one:?}");
        assert!(one.remedies[0].run.as_ref().unwrap().contains("compact_memory"), "{one:?}");
    }
}

#[test]
fn filters_are_blamed_for_what_they_deny_only() {
    let one = |errno| {
        let (mut trials, facts) = well();
        trials.seccomp_mode = Ok(2);
        trials.calls.huge_shmem = none(errno);
        let report = report(&trials, &facts);
        report.facilities.into_iter().find(|one| one.name == "huge_shared_pages").unwrap().reason
    };
    assert_eq!(one(libc::EPERM), Some(Reason::Seccomp));
    assert_eq!(one(libc::ENOMEM), Some(Reason::Other));
}
