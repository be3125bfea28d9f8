#![allow(unsafe_code)]
//! Peers that could not stop their victim by a signal: the kernel copies nothing out of their
//! memory. One has a process-id namespace of its own, one a user namespace. Their memory, and any
//! peer's, may be the file of a file system that never reads it.
// Invariant: the pages of the file stay mapped for good.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use pinfold::{Endpoint, OwnedBuf};
use pinfold_tests::{
    Args, Stage,
    host::{Ended, end_with_parent, fork, unshare_mounts},
    role::{self, hear, say},
};
use rustix::process::{Gid, Uid};

use super::{HOSTILE, fuse};

const LEN: usize = 1 << 20;

fn walled_in(walls: &str, memory: &str) {
    let stage = Stage::new(60);
    let mut warden = stage.role("warden").spawn();
    warden.expect("ready");
    let at = stage.path().join("mounted");
    let cast = stage.role("walled").with("walls", walls).with("memory", memory);
    let mut walled = cast.with("at", at.display()).spawn();
    let heard = walled.hear();
    if heard != "attacking" {
        for mut player in [warden, walled] {
            player.kill();
            player.end();
        }
        return pinfold_tests::skip::skip(&heard);
    }
    let told = warden.expect("cma");
    match walls {
        "none" => assert_eq!(told, "None", "{walls}"),
        _ => assert_eq!(told, "Some(Confined)", "{walls}"),
    }
    if memory == "ordinary" {
        assert_eq!(warden.expect("copied"), "0", "{walls}");
    }
    // This one goes on no matter what the other does with its message.
    warden.say("on");
    warden.expect("goes on");
    walled.kill();
    walled.end();
    warden.end_well();
}

#[test]
fn whoever_has_its_own_process_ids_copies_itself() {
    walled_in("pid", "ordinary");
}

#[test]
fn whoever_has_its_own_users_copies_itself() {
    walled_in("user", "ordinary");
}

#[test]
fn a_file_that_is_never_read_holds_nobody_up() {
    walled_in("none", "file");
}

#[test]
fn a_file_of_its_own_users_holds_nobody_up() {
    walled_in("user", "file");
}

/// Receives from the walled peer.
pub fn warden(args: &Args) {
    let (endpoint, peer) = role::listen(args.builder(), "victim");
    say(format_args!("cma {:?}", endpoint.peer(peer).unwrap().cma_refused));
    let mut request = endpoint.recv_owned(peer, HOSTILE, vec![1; LEN]);
    if endpoint.recv(peer, HOSTILE + 1).unwrap().is_empty() {
        let (received, _) = request.wait();
        say(format_args!("copied {}", received.unwrap().receipt.copied_kernel));
    } else {
        // The message never comes.
        assert!(request.wait_timeout(std::time::Duration::from_millis(100)).is_none());
    }
    hear();
    say("goes on");
}

/// Runs in other namespaces, as a child of the role.
pub fn walled(args: &Args) {
    let (walls, at) = (args.text("walls"), PathBuf::from(args.text("at")));
    let flags = match walls {
        "pid" => libc::CLONE_NEWPID,
        "user" => libc::CLONE_NEWUSER,
        _ => 0,
    };
    let is_file = args.text("memory") == "file";
    let (user, group) = (rustix::process::geteuid(), rustix::process::getegid());
    let ended = fork(|| {
        // SAFETY: this process has one thread, and opens nothing that others have.
        if unsafe { libc::unshare(flags) } != 0 {
            say(format_args!("namespaces: {}", io::Error::last_os_error()));
            return 1;
        }
        if walls == "user"
            && let Err(why) = become_root(user, group)
        {
            say(format_args!("a user namespace: {why}"));
            return 1;
        }
        end_with_parent().unwrap();
        // The process that makes a process-id namespace is not in it; its children are.
        match fork(|| attack(is_file, &at)) {
            Ended::Code(code) => code,
            Ended::Signal(_) => 1,
        }
    });
    assert_ne!(ended, Ended::Signal(libc::SIGSEGV));
}

/// Enters a user namespace of its own, in which it is root; outside it is this user.
fn become_root(user: Uid, group: Gid) -> io::Result<()> {
    fs::write("/proc/self/setgroups", "deny")?;
    fs::write("/proc/self/uid_map", format!("0 {} 1", user.as_raw()))?;
    fs::write("/proc/self/gid_map", format!("0 {} 1", group.as_raw()))
}

fn attack(is_file: bool, at: &Path) -> i32 {
    end_with_parent().unwrap();
    let file = is_file.then(|| {
        unshare_mounts()?;
        fuse::mapped(at, LEN)
    });
    let file = match file.transpose() {
        Ok(file) => file,
        Err(why) => {
            say(format_args!("a file system of its own: {why}"));
            return 1;
        }
    };
    let (endpoint, victim) = role::connect(Endpoint::builder(), "victim");
    say("attacking");
    match file {
        None => {
            endpoint.send(victim, HOSTILE + 1, b"").unwrap();
            endpoint.send(victim, HOSTILE, &[7; LEN]).unwrap();
        }
        Some(pages) => {
            endpoint.send(victim, HOSTILE + 1, b"file").unwrap();
            // The send waits for its own memory, sooner or later.
            let _ = endpoint.send_owned(victim, HOSTILE, Pages(pages)).wait();
        }
    }
    hear();
    0
}

struct Pages(*mut u8);

// SAFETY: plain memory that is mapped for good.
unsafe impl Send for Pages {}

// SAFETY: as above; it is never written.
unsafe impl OwnedBuf for Pages {
    fn bytes(&self) -> (*const u8, usize) {
        (self.0, LEN)
    }
}
