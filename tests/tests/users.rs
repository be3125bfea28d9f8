//! Other users: admitted by name, by number or by group, and no others. The tests take root, to
//! become those users.

use std::path::PathBuf;

use pinfold::{Access, Endpoint, Error, Path, TagMatch};
use pinfold_tests::{
    Args, Stage,
    role::{self, PATIENCE, hear, say},
    skip::is_root_or_skip,
    stage::{Casting, Player},
    stamp,
};

pinfold_tests::roles!(host, guest, unknown);

const NOBODY: u32 = 65534;
const STRANGER: u32 = 65533;

/// The directory where all roles look: under the stage, for every user.
fn place(stage: &Stage) -> PathBuf {
    stage.path().join("common")
}

fn host_with<'a>(stage: &'a Stage, rule: &str) -> Casting<'a> {
    stage.role("host").with("rule", rule).env("PINFOLD_DIR", place(stage))
}

/// The answer to a guest of this user id.
fn visit(stage: &Stage, uid: u32, host: &mut Player) -> String {
    let guest = stage.role("guest").user(uid).env("PINFOLD_DIR", place(stage));
    let mut guest = guest.spawn();
    let told = guest.expect("was told");
    if told == "welcome" {
        assert_eq!(host.expect("met user"), uid.to_string());
    }
    guest.end_well();
    told
}

fn admits(rule: &str, uid: u32, others: u32, groups: u32) {
    if !is_root_or_skip("letting other users connect") {
        return;
    }
    let stage = Stage::new(60);
    let mut host = host_with(&stage, rule).spawn();
    host.expect("ready");
    let refusal = format!(
        "access to local:root/host refused: the access rule there admits user 0 (root), {others} \
         other users and {groups} groups, not user {STRANGER}; have its owner add \
         .user({STRANGER}) to the rule"
    );
    assert_eq!(visit(&stage, STRANGER, &mut host), refusal);
    assert_eq!(visit(&stage, uid, &mut host), "welcome");
    // The owner of the host needs no rule.
    assert_eq!(visit(&stage, 0, &mut host), "welcome");
    host.say("leave");
    host.end_well();
}

#[test]
fn users_are_admitted_by_name() {
    admits("name nobody", NOBODY, 1, 0);
}

#[test]
fn users_are_admitted_by_number() {
    admits("number 65531", 65531, 1, 0);
}

#[test]
fn users_are_admitted_by_group() {
    admits("group 65532", 65532, 0, 1);
}

#[test]
fn other_users_do_not_even_see_a_private_name() {
    if !is_root_or_skip("letting another user connect") {
        return;
    }
    let stage = Stage::new(60);
    let mut host = host_with(&stage, "same").spawn();
    host.expect("ready");
    let told = visit(&stage, NOBODY, &mut host);
    assert!(told.starts_with("no endpoint listens at local:root/host; "), "{told}");
    assert!(told.ends_with("check the name and the user"), "{told}");
    host.say("leave");
    host.end_well();
}

#[test]
fn rules_that_name_nobody_there_is() {
    let stage = Stage::new(60);
    stage.role("unknown").spawn().end_well();
}

fn unknown(_: &Args) {
    for (access, what) in [
        (Access::same_user().user("no-such-user-here"), "user no-such-user-here"),
        (Access::same_user().group("no-such-group-here"), "group no-such-group-here"),
    ] {
        let error = Endpoint::builder().listen("local:x").access(access).build().unwrap_err();
        let text = error.to_string();
        assert!(matches!(error, Error::NotAllowed { name, .. } if name == what), "{text}");
        assert!(text.ends_with("does not know; create it, or give its number"), "{text}");
    }
    // A user's names are its own.
    let error = Endpoint::listen("local:4000000011/x").unwrap_err();
    assert!(matches!(error, Error::NotAllowed { .. }), "{error}");
    assert!(error.to_string().contains("listen at local:x, and have others"), "{error}");
}

/// Greets one guest after the other and sends back their messages.
fn host(args: &Args) {
    let rule = args.text("rule");
    let access = match rule.split_once(' ') {
        Some(("name", name)) => Access::same_user().user(name),
        Some(("number", number)) => Access::same_user().user(number.parse::<u32>().unwrap()),
        Some(("group", number)) => Access::same_user().group(number.parse::<u32>().unwrap()),
        _ => Access::same_user(),
    };
    let builder = Endpoint::builder().label("host").access(access);
    // A thread of its own drives the host, so that it answers while it hears the director.
    let builder = builder.progress(pinfold::Progress::Dedicated);
    let endpoint = builder.listen("local:host").build().unwrap();
    say("ready");
    std::thread::spawn({
        let endpoint = endpoint.clone();
        move || {
            while let Ok(guest) = endpoint.accept() {
                say(format_args!("met user {}", endpoint.peer(guest).expect("connected").uid));
                while let Ok(message) = endpoint.recv(guest, TagMatch::any()) {
                    endpoint.send(guest, message.tag(), &message).expect("the guest listens");
                }
            }
        }
    });
    assert_eq!(hear(), "leave");
    endpoint.close();
}

fn guest(_: &Args) {
    let endpoint = Endpoint::builder().label("guest").build().unwrap();
    let host = match endpoint.connect("local:root/host") {
        Ok(host) => host,
        Err(error) => {
            let known = matches!(error, Error::NotAllowed { .. } | Error::NameGone { .. });
            assert!(known && endpoint.peers().is_empty(), "{error:?}");
            return say(format_args!("was told {error}"));
        }
    };
    let info = endpoint.peer(host).expect("connected");
    assert_eq!((info.uid, info.address.as_deref()), (0, Some("local:root/host")));
    if let Some(why) = info.cma_refused {
        assert!(why.is_denial(), "{why}");
        role::note(format_args!("cma between users: {why}"));
    }
    for (tag, len) in [0, 56, 57, 9000, 100_000, 3 << 20].into_iter().enumerate() {
        let tag = tag as u64;
        let receipt = endpoint.send(host, tag, &stamp::bytes(len, tag)).unwrap();
        assert!(receipt.path != Path::Cma || info.cma_refused.is_none(), "{receipt}");
        let back = endpoint.recv_timeout(host, tag, PATIENCE).unwrap();
        assert_eq!(back.len(), len);
        stamp::check(&back, tag);
    }
    say("was told welcome");
}
