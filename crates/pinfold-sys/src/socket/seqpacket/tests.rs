//! Local sockets: credentials, full queues, descriptors, bells.

use rustix::io::{FdFlags, fcntl_getfd};

use super::*;
use crate::process;

fn scratch(name: &str) -> std::path::PathBuf {
    let dir = std::env::temp_dir().join(format!("pinfold-sys-{}-{name}", std::process::id()));
    let _ = std::fs::remove_dir_all(&dir);
    std::fs::create_dir(&dir).unwrap();
    dir
}

fn code(error: impl Into<io::Error>) -> Option<i32> {
    error.into().raw_os_error()
}

/// Repeats until it holds: another test that starts a process holds copies of all descriptors for a
/// moment, so a descriptor closed here is not always closed at once.
fn until(mut holds: impl FnMut() -> bool) {
    while !holds() {
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
}

#[test]
fn connecting_and_knowing_each_other() {
    let dir = scratch("connect");
    let path = dir.join("socket");
    assert_eq!(code(connect(&path).unwrap_err()), Some(libc::ENOENT));
    let listener = bind_listen(&path, 8).unwrap();
    assert_eq!(code(bind_listen(&path, 8).unwrap_err()), Some(libc::EADDRINUSE));
    assert!(accept(&listener).unwrap().is_none());
    let client = connect(&path).unwrap();
    let server = accept(&listener).unwrap().unwrap();
    for end in [&client, &server] {
        let who = peer_credentials(end).unwrap();
        assert_eq!(who.pid, std::process::id());
        assert_eq!((who.uid, who.gid), (crate::user::uid(), crate::user::gid()));
        let mine: Vec<u32> =
            rustix::process::getgroups().unwrap().iter().map(|gid| gid.as_raw()).collect();
        assert_eq!(peer_groups(end), mine);
        // Kernels before 6.5 do not know the option.
        if let Ok(pidfd) = peer_pidfd(end) {
            assert!(process::pidfd_alive(&pidfd));
            assert!(fcntl_getfd(&pidfd).unwrap().contains(FdFlags::CLOEXEC));
        }
        assert!(fcntl_getfd(end).unwrap().contains(FdFlags::CLOEXEC));
    }
    assert!(is_bound(&path).unwrap());
    assert!(accept(&listener).unwrap().is_none());
    drop(listener);
    until(|| !is_bound(&path).unwrap());
    assert_eq!(code(connect(&path).unwrap_err()), Some(libc::ECONNREFUSED));
    assert_eq!(code(is_bound(&dir.join("other")).unwrap_err()), Some(libc::ENOENT));
    std::fs::remove_dir_all(dir).unwrap();
}

#[test]
fn a_full_queue_says_so() {
    let dir = scratch("full");
    let path = dir.join("socket");
    let listener = bind_listen(&path, 0).unwrap();
    let _first = connect(&path).unwrap();
    let second = unconnected().unwrap();
    assert_eq!(code(dial(&second, &path).unwrap_err()), Some(libc::EAGAIN));
    assert!(accept(&listener).unwrap().is_some());
    dial(&second, &path).unwrap();
    assert!(accept(&listener).unwrap().is_some());
    std::fs::remove_dir_all(dir).unwrap();
}

#[test]
fn messages_keep_their_bounds_and_descriptors() {
    let (a, b) = pair().unwrap();
    let mut buf = [0; 16];
    assert_eq!(code(recv(&b, &mut buf, 2).unwrap_err()), Some(libc::EAGAIN));
    let process = process::self_pidfd().unwrap();
    send(&a, b"one", &[process.as_fd(), process.as_fd()]).unwrap();
    send(&a, b"two", &[]).unwrap();
    let got = recv(&b, &mut buf, 2).unwrap();
    assert_eq!((got.len, got.fds.len(), got.truncated), (3, 2, false));
    for fd in &got.fds {
        assert!(fcntl_getfd(fd).unwrap().contains(FdFlags::CLOEXEC));
    }
    let got = recv(&b, &mut buf, 2).unwrap();
    assert_eq!((&buf[..got.len], got.fds.len()), (&b"two"[..], 0));
    drop(a);
    until(|| recv(&b, &mut buf, 2).is_ok_and(|got| got.len == 0));
    assert_eq!(code(send(&b, b"x", &[]).unwrap_err()), Some(libc::EPIPE));
}

#[test]
fn what_has_no_room_is_dropped_and_said() {
    let (a, b) = pair().unwrap();
    let (reader, writer) = std::os::unix::net::UnixStream::pair().unwrap();
    let mut buf = [0; 4];

    send(&a, b"12345", &[]).unwrap();
    let got = recv(&b, &mut buf, 0).unwrap();
    assert_eq!((got.len, got.truncated), (4, true));

    let memory = crate::mem::memfd::create_sealed("pinfold-room", 1).unwrap();
    for room in [0, 1, 2] {
        send(&a, b"1", &[memory.as_fd(), memory.as_fd(), memory.as_fd()]).unwrap();
        let got = recv(&b, &mut buf, room).unwrap();
        let all = (got.len, got.fds.len(), got.truncated, got.foreign);
        assert_eq!(all, (1, room, true, false));
    }
    // Descriptors of other kinds are not had.
    for room in [0, 1, 3] {
        send(&a, b"1", &[writer.as_fd(), memory.as_fd(), writer.as_fd()]).unwrap();
        let got = recv(&b, &mut buf, room).unwrap();
        assert_eq!((got.fds.len(), got.truncated, got.foreign), (room.min(1), room == 0, true));
    }
    send(&a, b"1", &[writer.as_fd()]).unwrap();
    assert_eq!(drain(&b).unwrap(), Drained::Rang);
    send(&a, b"1", &[writer.as_fd(), memory.as_fd()]).unwrap();
    drop((a, b));

    // Had any copy of the other end been left open, this read would not end.
    drop(writer);
    assert_eq!(rustix::io::read(&reader, &mut buf).unwrap(), 0);
    let links = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
    let links = links.filter_map(|entry| std::fs::read_link(entry.path()).ok());
    let left = links.filter(|link| link.to_string_lossy().contains("pinfold-room"));
    assert_eq!(left.count(), 1);
}

#[test]
fn too_many_descriptors_are_refused() {
    let (a, _b) = pair().unwrap();
    let many = [a.as_fd(); FDS_MAX + 1];
    assert_eq!(code(send(&a, b"1", &many).unwrap_err()), Some(libc::EINVAL));
    send(&a, b"1", &many[1..]).unwrap();
}

#[test]
fn bells_ring_and_never_block() {
    let (a, b) = pair().unwrap();
    assert_eq!(drain(&b).unwrap(), Drained::Quiet);
    for _ in 0..10_000 {
        ring(&a).unwrap();
    }
    let mut rounds = 0;
    while drain(&b).unwrap() == Drained::Rang {
        rounds += 1;
    }
    assert!(rounds >= 1);
    ring(&a).unwrap();
    drop(a);
    until(|| drain(&b).unwrap() == Drained::Closed);
    assert_eq!(code(ring(&b).unwrap_err()), Some(libc::EPIPE));
}
