//! Pages of posted receives are faulted in while nothing else is to be done: as many as will be of
//! use, and none of a file, a userfaultfd or another process. Receipts say how much.

mod roles;
mod stage;

use pinfold_tests::Stage;

use roles::{again, begun, faults, filtered, forked, gone, guarded, others, room};

pinfold_tests::roles!(faults, room, again, others, guarded, gone, forked, begun, filtered);

const NOBODY: u32 = 65_534;

/// Plays as this user and, if that is root, as `NOBODY` as well: each case is to work for both.
fn play(role: &str, with: &[(&str, &str)]) {
    let root = rustix::process::geteuid().is_root();
    for user in [None, Some(NOBODY)].into_iter().take(1 + usize::from(root)) {
        let stage = Stage::new(60);
        let mut role = stage.role(role);
        for (key, value) in with {
            role = role.with(key, value);
        }
        if let Some(user) = user {
            role = role.user(user);
        }
        stage.play([role]);
    }
}

#[test]
fn pages_are_there_before_the_message_comes_by_any_path() {
    for way in ["inline,eager", "cma", "tcp"] {
        for progress in ["inline", "dedicated"] {
            play("faults", &[("way", way), ("progress", progress)]);
        }
    }
}

#[test]
fn who_does_not_want_it_has_all_as_it_was() {
    play("faults", &[("way", "cma"), ("progress", "inline"), ("prepares", "false")]);
}

#[test]
fn room_for_much_does_not_become_memory() {
    play("room", &[]);
}

#[test]
fn memory_that_is_used_again_takes_nothing() {
    play("again", &[]);
}

#[test]
fn files_and_what_cannot_be_written_are_left_alone() {
    play("others", &[]);
}

#[test]
fn memory_that_a_userfaultfd_has_keeps_nobody_waiting() {
    for progress in ["inline", "dedicated"] {
        play("guarded", &[("progress", progress)]);
    }
}

#[test]
fn memory_that_is_gone_or_another_by_now_keeps_what_it_has() {
    play("gone", &[]);
}

#[test]
fn memory_that_a_child_shares_is_its_own_again() {
    play("forked", &[]);
}

#[test]
fn nothing_is_done_while_a_message_comes() {
    play("begun", &[]);
}

/// An endpoint does without a denied call, and does not make a call that it may be killed for.
#[test]
fn filters_are_no_obstacle_and_no_end() {
    let (cma, populate, advice) =
        (("denied", "cma"), ("denied", "populate"), ("denied", "madvise"));
    let (may, kills) = (("prepares", "true"), ("denied", "userfaultfd"));
    for (with, made) in [
        (&[cma][..], "0"),
        (&[cma, may], "1048576"),
        (&[kills], "0"),
        (&[kills, may], "1048576"),
        (&[populate, may], "0"),
        (&[advice, may], "0"),
    ] {
        play("filtered", &[&[("made", made)], with].concat());
    }
}
