//! Receivers that are started by the first caller, with a socket that listens already: the test is
//! what systemd is to a service.

use std::{
    fs,
    net::TcpListener,
    os::fd::{AsFd, OwnedFd},
    process::{Command, Stdio},
};

use rustix::event::{PollFd, PollFlags, poll};

use crate::harness::{PROGRAM, Place, Running, pattern};

/// Starts `pinfold recv` with the socket as descriptor 3, for this process (`None`: for itself).
fn activated(place: &Place, socket: &TcpListener, pid: Option<u32>, words: &[&str]) -> Running {
    let pid = pid.map_or("$$".to_owned(), |pid| pid.to_string());
    // The socket comes as standard input, as Rust passes no others.
    let script = format!("exec 3<&0 < /dev/null; LISTEN_FDS=1 LISTEN_PID={pid} exec \"$0\" \"$@\"");
    let socket: OwnedFd = socket.as_fd().try_clone_to_owned().unwrap();
    let mut command = Command::new("/bin/sh");
    command.args(["-c", &script, PROGRAM, "recv"]).args(words).current_dir(place.path("."));
    command.env("PINFOLD_DIR", place.path("names")).stdin(socket);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    Running::new(child.expect("a shell"), words)
}

#[test]
fn each_caller_starts_a_receiver_and_the_socket_stays() {
    let place = Place::new();
    place.dir("out");
    let socket = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("tcp:{}", socket.local_addr().unwrap());
    for (name, len) in [("one", 3 << 20), ("two", 10), ("three", 0)] {
        fs::write(place.path(name), pattern(len, 1)).unwrap();
        // Nobody accepts yet, and the kernel has the caller wait.
        let send = place.send(&[name, &address]);
        poll(&mut [PollFd::new(&socket, PollFlags::IN)], None).unwrap();
        let recv = activated(&place, &socket, None, &[&address, "out"]);
        send.end().assert_code(0);
        recv.end().assert_code(0);
        assert!(fs::read(place.path("out").join(name)).unwrap() == pattern(len, 1), "{name}");
    }
}

#[test]
fn any_port_is_the_sockets() {
    let place = Place::new();
    place.dir("out");
    fs::write(place.path("file"), "x").unwrap();
    let socket = TcpListener::bind("127.0.0.1:0").unwrap();
    let recv = activated(&place, &socket, None, &["tcp:127.0.0.1:0", "out"]);
    place.send(&["file", &format!("tcp:{}", socket.local_addr().unwrap())]).end().assert_code(0);
    recv.end().assert_code(0);
    assert_eq!(fs::read(place.path("out/file")).unwrap(), b"x");
}

#[test]
fn what_does_not_go_together_is_said() {
    let place = Place::new();
    place.dir("out");
    let socket = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = socket.local_addr().unwrap();
    let other = format!("tcp:127.0.0.1:{}", if at.port() == 7 { 8 } else { 7 });
    let meant = format!("tcp:{at}");
    for (pid, address, code, why) in [
        (None, "local:box", 2, "name a tcp: address"),
        (None, &other[..], 3, &meant[..]),
        // It is for another process, so this one has to listen by itself, and cannot there.
        (Some(1), &meant[..], 3, "in use"),
    ] {
        let ended = activated(&place, &socket, pid, &[address, "out"]).end();
        ended.assert_code(code);
        assert!(ended.stderr.contains(why), "{}", ended.stderr);
    }
    // Elsewhere it is known from where a key is needed.
    let everywhere = TcpListener::bind("0.0.0.0:0").unwrap();
    let address = format!("tcp:{}", everywhere.local_addr().unwrap());
    let ended = activated(&place, &everywhere, None, &[&address, "out"]).end();
    ended.assert_code(3);
    assert!(ended.stderr.contains("key"), "{}", ended.stderr);
}
