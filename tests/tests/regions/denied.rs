//! Regions that cannot be mapped, for every reason, and those that cannot be reached at all.

use pinfold::{Builder, Endpoint, Error, Path, PathSet, Refusal, RemoteRegion, Rights};
use pinfold_tests::{
    Args, Stage,
    baseline::status_bytes,
    filter::{CMA, deny},
    host, pair, role, skip,
};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::{hand_over, key_from, serve};

fn without(paths: &[Path]) -> Builder {
    let paths = paths.iter().fold(PathSet::all(), |set, path| set.without(*path));
    Endpoint::builder().paths(paths)
}

/// The outcome of opening a region of 5000 bytes; it is checked that it can be used.
fn opens(ours: Builder, theirs: Builder) -> Result<RemoteRegion, Error> {
    let (a, _, b, to_a) = pair("denied", ours, theirs);
    let region = a.region(5000, Rights::ReadWrite).unwrap();
    let opened = std::thread::scope(|s| {
        let opens = s.spawn(|| b.open_region(to_a, &region.key().unwrap()));
        while !opens.is_finished() {
            a.progress().unwrap();
        }
        opens.join().unwrap()
    });
    if let Ok(remote) = &opened {
        remote.write(4990, b"written").unwrap();
        assert_eq!(&region.to_vec().unwrap()[4990..4997], b"written");
    }
    let closed = a.region(10, Rights::Read);
    assert!(closed.is_ok());
    a.close();
    assert!(matches!(a.region(10, Rights::Read), Err(Error::Closed)));
    opened
}

/// Returns whether this machine lets a process into its own memory, which it does unless it denies
/// the calls.
fn is_allowed() -> bool {
    let (_a, _, b, to_a) = pair("allowed", Endpoint::builder(), Endpoint::builder());
    let why = b.peer(to_a).and_then(|peer| peer.cma_refused);
    why.inspect(|why| skip(&format!("regions by the kernel: {why}"))).is_none()
}

#[test]
fn a_region_that_is_not_mapped_is_reached_by_the_kernel() {
    if !is_allowed() {
        return;
    }
    let all = Endpoint::builder;
    // Neither a strict endpoint nor any other may want a path that it has switched off itself.
    for strict in [false, true] {
        let reached = |ours: Builder, theirs: Builder| opens(ours, theirs.strict(strict)).unwrap();
        let mapped = reached(all(), all());
        assert_eq!((mapped.path(), mapped.why_not_mapped()), (Path::Mapped, None));
        let at_owner = reached(without(&[Path::Mapped]), all());
        assert_eq!(at_owner.path(), Path::Cma);
        assert_eq!(at_owner.why_not_mapped(), Some(Refusal::SwitchedOffByPeer));
        let at_user = reached(all(), without(&[Path::Mapped]));
        assert_eq!(at_user.path(), Path::Cma);
        assert_eq!(at_user.why_not_mapped(), Some(Refusal::SwitchedOff));
    }
    let full = opens(all(), all().mapped_bytes_max(4096)).unwrap();
    assert_eq!((full.path(), full.why_not_mapped()), (Path::Cma, Some(Refusal::NotMapped)));
    match opens(all(), all().mapped_bytes_max(4096).strict(true)) {
        Err(Error::PathRefused { path: Path::Mapped, why: Refusal::NotMapped }) => {}
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_region_that_cannot_be_reached_says_why_both_ways() {
    let neither = || without(&[Path::Mapped, Path::Cma]);
    let cases = [
        (neither(), Endpoint::builder(), Refusal::SwitchedOffByPeer),
        (Endpoint::builder(), neither(), Refusal::SwitchedOff),
    ];
    for (ours, theirs, why) in cases {
        match opens(ours, theirs) {
            Err(Error::OutOfReach { mapped, cma }) => assert_eq!((mapped, cma), (why, why)),
            other => panic!("{other:?}"),
        }
    }
    match opens(without(&[Path::Cma]), Endpoint::builder().mapped_bytes_max(4096)) {
        Err(Error::OutOfReach { mapped: Refusal::NotMapped, cma }) => {
            assert_eq!(cma, Refusal::SwitchedOffByPeer);
        }
        other => panic!("{other:?}"),
    }
}

// Calls that the machine denies.

pub fn lender(args: &Args) {
    match args.text("who") {
        "owner" => host::give_up_capabilities().unwrap(),
        "filtered owner" => deny(&CMA, libc::EPERM),
        _ => {}
    }
    let (endpoint, peer) = role::listen(Endpoint::builder(), "denied");
    let region = endpoint.region(3 << 20, Rights::ReadWrite).unwrap();
    hand_over(&endpoint, peer, &region);
    serve(&endpoint, peer);
    if args.text("who") == "limits" {
        assert_eq!(region.to_vec().unwrap()[(3 << 20) - 1], b'x');
    }
}

#[test]
fn the_calls_are_denied() {
    for who in ["owner", "filtered owner", "user", "user later"] {
        let stage = Stage::new(60);
        let user = stage.role("filtered").with("who", who).with("paths", "inline,eager,cma");
        stage.play([stage.role("lender").with("who", who), user]);
    }
}

/// A user that cannot make the calls, or whose owner cannot: an owner that is denied the calls does
/// not need them to be reached, unless they are denied by a filter that its user does not have.
pub fn filtered(args: &Args) {
    match args.text("who") {
        "owner" => host::hide_memory().unwrap(),
        "user" => deny(&CMA, libc::EPERM),
        _ => {}
    }
    let (endpoint, peer) = role::connect(args.builder(), "denied");
    let why = endpoint.peer(peer).and_then(|peer| peer.cma_refused);
    let opened = endpoint.open_region(peer, &key_from(&endpoint, peer));
    match (args.text("who"), opened) {
        ("user", Err(Error::OutOfReach { mapped: Refusal::SwitchedOff, cma })) => {
            assert_eq!(cma, Refusal::Denied(libc::EPERM));
        }
        ("filtered owner", Err(Error::OutOfReach { mapped: Refusal::SwitchedOff, cma })) => {
            assert!(cma == Refusal::Confined || why.is_some(), "{cma}");
        }
        ("owner" | "user later", Ok(region)) => {
            assert_eq!(region.path(), Path::Cma);
            region.write(7, b"x").unwrap();
            if args.text("who") == "user later" {
                deny(&CMA, libc::EPERM);
                for failed in [region.write(7, b"x"), region.read(7, &mut [0])] {
                    match failed {
                        Err(Error::Os { source, .. }) => {
                            assert_eq!(source.raw_os_error(), Some(libc::EPERM));
                        }
                        other => panic!("{other:?}"),
                    }
                }
            }
        }
        (_, Err(_)) if why.is_some() => role::skip("regions by the kernel"),
        (_, other) => panic!("{other:?}"),
    }
    endpoint.send(peer, 99, b"").unwrap();
}

#[test]
fn limits_of_the_user_are_in_the_way() {
    for limit in ["address space", "descriptors"] {
        let stage = Stage::new(60);
        let user = stage.role("limited").with("limit", limit);
        stage.play([stage.role("lender").with("who", "limits"), user]);
    }
}

/// Can neither map more nor be handed any descriptor.
pub fn limited(args: &Args) {
    let (endpoint, peer) = role::connect(Endpoint::builder(), "denied");
    let refused = endpoint.peer(peer).and_then(|peer| peer.cma_refused);
    let key = key_from(&endpoint, peer);
    let (resource, now) = match args.text("limit") {
        // Room for all other needs.
        "address space" => (Resource::As, status_bytes("VmSize") + (1 << 20)),
        _ => (Resource::Nofile, 0),
    };
    let Rlimit { maximum, .. } = getrlimit(resource);
    setrlimit(resource, Rlimit { current: Some(now), maximum }).unwrap();
    match endpoint.open_region(peer, &key) {
        Ok(region) => {
            assert_eq!(region.path(), Path::Cma);
            assert_eq!(region.why_not_mapped(), Some(Refusal::NotMapped));
            region.write(region.len() - 1, b"x").unwrap();
        }
        Err(Error::OutOfReach { mapped: Refusal::NotMapped, cma }) if refused == Some(cma) => {
            role::skip("regions by the kernel");
        }
        other => panic!("{other:?}"),
    }
    endpoint.send(peer, 99, b"").unwrap();
}
