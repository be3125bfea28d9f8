//! Peers of another version of the protocol, and listeners that are no endpoints at all.

use std::{fs, path::PathBuf};

use pinfold::{Endpoint, Error, Gone};
use pinfold_tests::{
    Args, Stage,
    role::{self, say},
};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType, accept, bind,
    connect, listen, recv, send, socket_with,
};

pinfold_tests::roles!(pretender, deceived, visitor, visited);

/// Where this role's endpoints listen.
fn own_directory() -> PathBuf {
    std::env::var_os("PINFOLD_DIR").expect("set by the director").into()
}

fn version_head(kind: u32, min: u32, max: u32) -> Vec<u8> {
    let words = [u32::from_le_bytes(*b"PNFD"), kind, min, max];
    words.iter().flat_map(|word| word.to_ne_bytes()).collect()
}

const HELLO: u32 = 1;
const REFUSE: u32 = 5;

#[test]
fn a_listener_of_another_version() {
    let stage = Stage::new(60);
    for how in ["newer", "stream", "closes"] {
        let mut pretender = stage.role("pretender").with("how", how).spawn();
        pretender.expect("ready");
        stage.role("deceived").with("how", how).spawn().end_well();
        pretender.end_well();
    }
}

/// Listens at `local:box`, and is no endpoint.
fn pretender(args: &Args) {
    let kind =
        if args.text("how") == "stream" { SocketType::STREAM } else { SocketType::SEQPACKET };
    let socket = socket_with(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None).unwrap();
    let file = own_directory().join("box");
    bind(&socket, &SocketAddrUnix::new(&file).unwrap()).unwrap();
    listen(&socket, 5).unwrap();
    say("ready");
    match args.text("how") {
        "newer" => {
            let caller = accept(&socket).unwrap();
            let mut hello = [0; 512];
            let (len, _) = recv(&caller, &mut hello[..], RecvFlags::empty()).unwrap();
            assert_eq!(hello[..16], version_head(HELLO, 2, 2)[..]);
            assert!(len > 16);
            // The refusal that every version knows: reason 2, and the versions there are.
            let mut refuse = version_head(REFUSE, 7, 9);
            refuse.extend([2u64, 7, 9, 0, 0].iter().flat_map(|word| word.to_ne_bytes()));
            send(&caller, &refuse, SendFlags::empty()).unwrap();
            // The caller hangs up first.
            let (len, _) = recv(&caller, &mut hello[..], RecvFlags::empty()).unwrap();
            assert_eq!(len, 0);
        }
        "closes" => drop(accept(&socket).unwrap()),
        _ => hear_or_end(),
    }
    fs::remove_file(file).unwrap();
}

/// Waits until the director has nothing more to say.
fn hear_or_end() {
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).expect("stdin");
}

fn deceived(args: &Args) {
    let endpoint = Endpoint::new().unwrap();
    let error = endpoint.connect("local:box").unwrap_err();
    let text = error.to_string();
    match (args.text("how"), error) {
        ("newer", Error::VersionMismatch { peer, ours_min, ours_max, theirs_min, theirs_max }) => {
            assert_eq!((ours_min, ours_max, theirs_min, theirs_max), (2, 2, 7, 9));
            assert_eq!(peer, "local:box");
            assert_eq!(
                text,
                "local:box speaks protocol versions 7 to 9, this library 2 to 2; update the older side"
            );
        }
        ("stream", Error::NotAllowed { name, why }) => {
            assert_eq!(name, "local:box");
            assert!(why.ends_with("/box is not Pinfold's; have its owner stopped"), "{why}");
        }
        // Closing with the greeting unread resets the connection, as a death does.
        ("closes", Error::PeerGone { peer, how: Gone::Closed | Gone::Died }) => {
            assert_eq!(peer, "local:box");
        }
        ("closes", Error::NameGone { name }) => assert_eq!(name, "local:box"),
        (how, other) => panic!("{how}: {other:?}"),
    }
    assert!(endpoint.peers().is_empty());
}

#[test]
fn a_caller_of_another_version() {
    let stage = Stage::new(60);
    stage.play([stage.role("visited"), stage.role("visitor")]);
}

fn visitor(_: &Args) {
    let call = |min: u32, max: u32| {
        let kind = SocketType::SEQPACKET;
        let socket = socket_with(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None).unwrap();
        let file = own_directory().join("visited");
        connect(&socket, &SocketAddrUnix::new(file).unwrap()).unwrap();
        // A later version's greeting has only the beginning in common.
        let mut hello = version_head(HELLO, min, max);
        hello.extend([9; 200]);
        send(&socket, &hello, SendFlags::NOSIGNAL).unwrap();
        let mut answer = [0; 512];
        let (len, _) = recv(&socket, &mut answer[..], RecvFlags::empty()).unwrap();
        let answer = answer[..len].to_vec();
        let (rest, _) = recv(&socket, &mut [0; 8][..], RecvFlags::empty()).unwrap();
        assert_eq!(rest, 0, "it hangs up");
        answer
    };
    for (min, max) in [(1, 1), (3, 3), (7, 9), (u32::MAX, u32::MAX)] {
        let answer = call(min, max);
        let mut refuse = version_head(REFUSE, 2, 2);
        refuse.extend([2u64, 2, 2, 0, 0].iter().flat_map(|word| word.to_ne_bytes()));
        assert_eq!(answer, refuse, "versions {min} to {max}");
    }
    // A peer that also speaks ours has to do so; this one's introduction is rubbish.
    assert_eq!(call(1, 9), b"");
    // None of these calls was the endpoint's end.
    let (endpoint, peer) = role::connect(Endpoint::builder(), "visited");
    endpoint.send(peer, 1, b"hello").unwrap();
    assert!(endpoint.recv(peer, 2).unwrap_err().is_peer_gone());
}

fn visited(_: &Args) {
    let (endpoint, peer) = role::listen(Endpoint::builder(), "visited");
    assert_eq!(&*endpoint.recv(peer, 1).unwrap(), b"hello");
    assert_eq!(endpoint.peers().len(), 1);
}
