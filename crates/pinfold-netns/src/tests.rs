//! Network namespaces: links, bridges, addresses, loss.

use std::{
    env, fs,
    io::{Read, Write},
    net::{IpAddr, Ipv4Addr, Ipv6Addr, TcpListener, TcpStream, UdpSocket},
    os::unix::process::CommandExt,
    panic,
    process::Command,
    thread,
    time::{Duration, Instant},
};

use rustix::io::Errno;

use super::*;

const PATIENCE: Duration = Duration::from_secs(30);
/// Marks a process as one that a test began again.
const AGAIN: &str = "PINFOLD_NETNS_TEST_AGAIN";

/// Runs a test where networks can be made: here, or in this program begun once more as root inside.
fn with_networks(name: &str, test: impl FnOnce()) {
    if user::is_root_inside() && Namespace::new().is_ok() {
        return test();
    }
    assert!(env::var_os(AGAIN).is_none(), "root inside, and no namespace: {:?}", Namespace::new());
    let mut again = again(name);
    user::make_root_inside(&mut again);
    run_again(again);
}

fn again(name: &str) -> Command {
    // The file is run by the link, so that a user who cannot reach it can still run it.
    let mut again = Command::new("/proc/self/exe");
    let name = format!("tests::{name}");
    again.args(["--exact", "--nocapture", &name]).env(AGAIN, "1");
    again
}

fn run_again(mut command: Command) {
    match command.output() {
        Ok(done) => {
            let said = String::from_utf8_lossy(&done.stdout);
            let complained = String::from_utf8_lossy(&done.stderr);
            assert!(done.status.success(), "{said}{complained}");
            assert!(said.contains("test result: ok. 1 passed"), "{said}{complained}");
        }
        Err(error) => {
            let error = user::explain(&error);
            assert!(error.is_not_possible_here(), "{error}");
            // If this user can, others can, unless it is said that they cannot.
            let mut plain = Command::new("true");
            user::make_root_inside(&mut plain);
            let said = error.to_string().contains("this system forbids it");
            assert!(said || plain.status().is_err(), "{error}");
            eprintln!("SKIPPED: no networks here: {error}");
        }
    }
}

fn v4(last: u8) -> IpAddr {
    Ipv4Addr::new(10, 77, 0, last).into()
}

fn v6(last: u16) -> IpAddr {
    Ipv6Addr::new(0xfd77, 0, 0, 0, 0, 0, 0, last).into()
}

/// Two namespaces with a cable between them, addresses 1 and 2.
fn cable(mtu: u32) -> [(Namespace, Link); 2] {
    let (one, other) = (Namespace::new().unwrap(), Namespace::new().unwrap());
    let (near, far) = veth::pair((&one, "near"), (&other, "far"), mtu).unwrap();
    for (last, link) in [(1, &near), (2, &far)] {
        link.up().unwrap();
        link.add_address(v4(last), 24).unwrap();
        link.add_address(v6(last.into()), 64).unwrap();
    }
    for link in [&near, &far] {
        assert!(link.wait_until_running(PATIENCE).unwrap());
    }
    [(one, near), (other, far)]
}

/// Sends bytes from `one` to `other` and has them come back.
fn echo(one: &Namespace, other: &Namespace, at: IpAddr) {
    let listener = other.run(|| TcpListener::bind((at, 0))).unwrap().unwrap();
    let to = listener.local_addr().unwrap();
    thread::scope(|scope| {
        scope.spawn(|| {
            let (mut stream, _) = listener.accept().unwrap();
            let mut bytes = [0; 100_000];
            stream.read_exact(&mut bytes).unwrap();
            stream.write_all(&bytes).unwrap();
        });
        let mut stream = one.run(|| TcpStream::connect(to)).unwrap().unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let sent: Vec<u8> = (0..100_000u32).map(|at| (at % 251) as u8).collect();
        let mut back = vec![0; sent.len()];
        stream.write_all(&sent).unwrap();
        stream.read_exact(&mut back).unwrap();
        assert_eq!(sent, back);
    });
}

/// A socket for datagrams at an address that is in `namespace`.
fn datagrams(namespace: &Namespace, address: IpAddr) -> UdpSocket {
    namespace.run(|| UdpSocket::bind((address, 5000))).unwrap().unwrap()
}

/// Datagrams, of `count`, that come through.
fn come_through(from: &UdpSocket, to: &UdpSocket, count: u32) -> u32 {
    let at = to.local_addr().unwrap();
    let mut come = 0;
    let mut take = |wait: Option<Duration>| {
        to.set_nonblocking(wait.is_none()).unwrap();
        to.set_read_timeout(wait).unwrap();
        while to.recv(&mut [0; 8]).is_ok() {
            come += 1;
        }
    };
    for number in 0..count {
        from.send_to(&number.to_ne_bytes(), at).unwrap();
        take(None);
    }
    take(Some(Duration::from_millis(200)));
    come
}

#[test]
fn a_new_one_has_a_loopback_that_works() {
    with_networks("a_new_one_has_a_loopback_that_works", || {
        let namespace = Namespace::new().unwrap();
        assert_eq!(namespace.links().unwrap(), ["lo"]);
        assert_ne!(namespace, Namespace::current().unwrap());
        echo(&namespace, &namespace, Ipv4Addr::LOCALHOST.into());
    });
}

#[test]
fn work_runs_inside_and_the_caller_stays_outside() {
    with_networks("work_runs_inside_and_the_caller_stays_outside", || {
        let outside = Namespace::current().unwrap().inode();
        let namespace = Namespace::new().unwrap();
        let here = || Namespace::current().unwrap().inode();
        assert_eq!(namespace.run(here).unwrap(), namespace.inode());
        assert_eq!(here(), outside);
        let panic = panic::catch_unwind(|| namespace.run(|| panic!("on purpose"))).unwrap_err();
        assert_eq!(panic.downcast_ref::<&str>(), Some(&"on purpose"));
        assert_eq!(namespace.run(here).unwrap(), namespace.inode());
    });
}

#[test]
fn children_start_inside() {
    with_networks("children_start_inside", || {
        let namespace = Namespace::new().unwrap();
        let mut command = Command::new("readlink");
        command.arg("/proc/self/ns/net").stdout(std::process::Stdio::piped());
        let child = namespace.spawn(command).unwrap();
        let said = String::from_utf8(child.wait_with_output().unwrap().stdout).unwrap();
        assert_eq!(said.trim(), format!("net:[{}]", namespace.inode()));
    });
}

#[test]
fn bytes_pass_a_pair_with_either_protocol() {
    with_networks("bytes_pass_a_pair_with_either_protocol", || {
        let [(one, near), (other, far)] = cable(9000);
        for link in [&near, &far] {
            assert_eq!(link.mtu().unwrap(), 9000);
        }
        echo(&one, &other, v4(2));
        echo(&one, &other, v6(2));
        let (near_counts, far_counts) = (near.counters().unwrap(), far.counters().unwrap());
        assert!(near_counts.sent_bytes > 200_000 && far_counts.sent_bytes > 200_000);
        near.set_mtu(1500).unwrap();
        assert_eq!((near.mtu().unwrap(), far.mtu().unwrap()), (1500, 9000));
        assert_ne!(near.hardware().unwrap(), far.hardware().unwrap());
    });
}

#[test]
fn what_goes_to_nobody_arrives_and_is_discarded() {
    with_networks("what_goes_to_nobody_arrives_and_is_discarded", || {
        let [(one, near), (other, far)] = cable(1500);
        let from = datagrams(&one, v4(1));
        let to = datagrams(&other, v4(2));
        near.set_neighbour(v4(2), NOBODY).unwrap();
        let before = far.counters().unwrap().received;
        assert_eq!(come_through(&from, &to, 100), 0);
        assert!(far.counters().unwrap().received >= before + 100);
        // An address that no end has at all.
        near.set_neighbour(v4(9), NOBODY).unwrap();
        from.send_to(b"x", (v4(9), 1)).unwrap();
        near.forget_neighbour(v4(2)).unwrap();
        assert_eq!(come_through(&from, &to, 100), 100);
        near.set_neighbour(v4(2), far.hardware().unwrap()).unwrap();
        assert_eq!(come_through(&from, &to, 100), 100);
    });
}

#[test]
fn addresses_change() {
    with_networks("addresses_change", || {
        let [(one, _), (other, far)] = cable(1500);
        let taken = far.add_address(v4(2), 24).unwrap_err();
        assert_eq!((taken.reason(), taken.errno()), (Reason::Taken, Errno::EXIST));
        far.remove_address(v4(2), 24).unwrap();
        assert_eq!(far.remove_address(v4(2), 24).unwrap_err().reason(), Reason::Gone);
        far.add_address(v4(3), 24).unwrap();
        let gone = other.run(|| TcpListener::bind((v4(2), 0))).unwrap().unwrap_err();
        assert_eq!(gone.raw_os_error(), Some(Errno::ADDRNOTAVAIL.raw_os_error()));
        echo(&one, &other, v4(3));
    });
}

#[test]
fn nothing_passes_while_a_link_is_down() {
    with_networks("nothing_passes_while_a_link_is_down", || {
        let [(one, near), (other, far)] = cable(1500);
        let from = datagrams(&one, v4(1));
        let to = datagrams(&other, v4(2));
        assert_eq!(come_through(&from, &to, 50), 50);
        near.set_neighbour(v4(2), far.hardware().unwrap()).unwrap();
        far.down().unwrap();
        assert!(!near.wait_until_running(Duration::ZERO).unwrap());
        assert_eq!(come_through(&from, &to, 50), 0);
        far.up().unwrap();
        assert!(near.wait_until_running(PATIENCE).unwrap());
        assert_eq!(come_through(&from, &to, 50), 50);
    });
}

#[test]
fn a_bridge_joins_its_ports() {
    with_networks("a_bridge_joins_its_ports", || {
        let switch = Namespace::new().unwrap();
        let bridge = bridge::create(&switch, "br0").unwrap();
        bridge.up().unwrap();
        bridge.add_address(v4(254), 24).unwrap();
        let places: Vec<Namespace> = (0..3).map(|_| Namespace::new().unwrap()).collect();
        for (last, place) in (1u8..).zip(&places) {
            let name = format!("port{last}");
            let (port, link) = veth::pair((&switch, &name), (place, "eth0"), 1500).unwrap();
            bridge::add_port(&bridge, &port).unwrap();
            link.add_address(v4(last), 24).unwrap();
            port.up().unwrap();
            link.up().unwrap();
            assert!(link.wait_until_running(PATIENCE).unwrap());
        }
        for (from, to, at) in [(0, 1, 2), (1, 2, 3), (2, 0, 1)] {
            echo(&places[from], &places[to], v4(at));
        }
        echo(&places[0], &switch, v4(254));
    });
}

#[test]
fn packets_are_lost_by_chance() {
    with_networks("packets_are_lost_by_chance", || {
        let [(one, near), (other, _far)] = cable(1500);
        let (from, to) = (datagrams(&one, v4(1)), datagrams(&other, v4(2)));
        for (percent, at_least, at_most) in
            [(50, 300, 700), (100, 0, 0), (10, 800, 980), (0, 1000, 1000)]
        {
            match near.lose(percent) {
                Err(error) if error.reason() == Reason::Absent => {
                    eprintln!("SKIPPED: losses: {error}");
                    return;
                }
                done => done.unwrap(),
            }
            // Packets are lost going, and coming.
            for (from, to) in [(&from, &to), (&to, &from)] {
                let come = come_through(from, to, 1000);
                assert!((at_least..=at_most).contains(&come), "{percent} %: {come}");
            }
        }
        assert_eq!(near.lose(101).unwrap_err().reason(), Reason::Malformed);
    });
}

#[test]
fn programs_see_their_networks_in_sys() {
    with_networks("programs_see_their_networks_in_sys", || {
        let [(one, _), (other, _)] = cable(1500);
        let here = fs::read_to_string("/proc/self/mountinfo").unwrap();
        if let Err(error) = one.check_sys() {
            assert!(error.is_not_possible_here(), "{error}");
            eprintln!("SKIPPED: no /sys of a namespace: {error}");
            return;
        }
        for (namespace, name) in [(&one, "near"), (&other, "far")] {
            let mut command = Command::new("ls");
            namespace.hold_with_sys(command.arg("/sys/class/net")).unwrap();
            let done = command.output().unwrap();
            let mut seen: Vec<&str> = std::str::from_utf8(&done.stdout).unwrap().lines().collect();
            seen.sort_unstable();
            let mut links = ["lo", name];
            links.sort_unstable();
            assert_eq!(seen, links);
        }
        assert_eq!(fs::read_to_string("/proc/self/mountinfo").unwrap(), here);
    });
}

#[test]
fn it_is_gone_when_nobody_holds_it() {
    with_networks("it_is_gone_when_nobody_holds_it", || {
        let [(one, near), (other, _)] = cable(1500);
        assert_eq!(one.links().unwrap(), ["lo", "near"]);
        // The namespace is kept by a link, and by a socket.
        let socket = datagrams(&other, v4(2));
        drop(other);
        thread::sleep(Duration::from_millis(100));
        assert_eq!(one.links().unwrap(), ["lo", "near"]);
        drop(socket);
        let end = Instant::now() + PATIENCE;
        while one.links().unwrap() != ["lo"] {
            assert!(Instant::now() < end, "the other end of the pair is still there");
            thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(near.up().unwrap_err().reason(), Reason::Gone);
    });
}

#[test]
fn a_deleted_link_takes_its_other_end_along() {
    with_networks("a_deleted_link_takes_its_other_end_along", || {
        let [(one, near), (other, far)] = cable(1500);
        near.delete().unwrap();
        assert_eq!(one.links().unwrap(), ["lo"]);
        assert_eq!(other.links().unwrap(), ["lo"]);
        assert_eq!(far.delete().unwrap_err().reason(), Reason::Gone);
        assert_eq!(one.link("near").unwrap_err().reason(), Reason::Gone);
    });
}

#[test]
fn errors_say_what_and_what_to_do() {
    with_networks("errors_say_what_and_what_to_do", || {
        let namespace = Namespace::new().unwrap();
        bridge::create(&namespace, "br0").unwrap();
        let taken = bridge::create(&namespace, "br0").unwrap_err();
        assert_eq!(
            taken.to_string(),
            format!(
                "network namespace: RTM_NEWLINK (bridge) of br0 in net:[{}]: File exists (os error \
                 17); there is one already: take another name or address",
                namespace.inode()
            )
        );
        let long = veth::pair((&namespace, "a"), (&namespace, "0123456789abcdef"), 1500);
        assert_eq!(long.unwrap_err().reason(), Reason::Malformed);
        assert_eq!(namespace.links().unwrap(), ["lo", "br0"]);
    });
}

/// A process without privileges that is told no, and one that helps itself.
#[test]
fn others_than_root_become_root_inside() {
    if env::var_os(AGAIN).is_some() {
        if user::is_root_inside() {
            // More than one thread: the test's own.
            let error = user::become_root_inside().unwrap_err();
            assert_eq!((error.reason(), error.errno()), (Reason::Threads, Errno::INVAL));
            Namespace::new().unwrap();
        } else {
            let error = Namespace::new().unwrap_err();
            assert_eq!((error.reason(), error.errno()), (Reason::Denied, Errno::PERM));
            assert!(error.is_not_possible_here());
            assert!(error.to_string().contains("become_root_inside"), "{error}");
        }
        return;
    }
    for inside in [false, true] {
        let mut again = again("others_than_root_become_root_inside");
        if rustix::process::geteuid().is_root() {
            again.uid(65534).gid(65534);
        }
        if inside {
            user::make_root_inside(&mut again);
        }
        run_again(again);
    }
}
