//! The networks that tests of the whole system stand on: they treat plain TCP and UDP as they say,
//! and nothing of them is left.

use std::{
    io::{ErrorKind, Read, Write},
    net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket},
    panic::{self, AssertUnwindSafe},
    thread,
    time::{Duration, Instant},
};

use pinfold_netns::{Namespace, veth};
use pinfold_tests::{
    Args, Network, Stage,
    network::{Way, where_allowed},
    role::{self, say},
};
use rustix::net::sockopt::set_socket_recv_buffer_size;

pinfold_tests::roles!(visitor, owner);

/// The time in which a packet that can come must come.
const PATIENCE: Duration = Duration::from_secs(60);
/// The time in which a packet that cannot come would have come.
const WHILE: Duration = Duration::from_millis(300);

/// Bytes that are nowhere the same for long.
fn bytes(len: usize) -> Vec<u8> {
    (0..len as u64).map(|at| (at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8).collect()
}

fn listen(network: &Network, place: usize) -> (TcpListener, SocketAddr) {
    let address = network.address(place);
    let listener = network.run(place, move || TcpListener::bind((address, 0))).unwrap();
    let address = listener.local_addr().unwrap();
    (listener, address)
}

/// A connection from one place to an address at which `listener` listens.
fn connect(
    network: &Network,
    from: usize,
    listener: &TcpListener,
    to: SocketAddr,
) -> (TcpStream, TcpStream) {
    let near = network.run(from, move || TcpStream::connect_timeout(&to, PATIENCE)).unwrap();
    let far = accept(listener);
    for stream in [&near, &far] {
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
    }
    (near, far)
}

/// The next connection, which comes soon.
fn accept(listener: &TcpListener) -> TcpStream {
    listener.set_nonblocking(true).unwrap();
    let end = Instant::now() + PATIENCE;
    loop {
        match listener.accept() {
            Ok((stream, _)) => {
                stream.set_nonblocking(false).unwrap();
                return stream;
            }
            Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
        }
        assert!(Instant::now() < end, "nobody comes");
        thread::sleep(Duration::from_millis(1));
    }
}

fn pair(network: &Network, from: usize, to: usize) -> (TcpStream, TcpStream) {
    let (listener, address) = listen(network, to);
    connect(network, from, &listener, address)
}

/// Checks that all bytes that `sent` holds come, and come right.
fn arrives(sent: &[u8], to: &mut TcpStream) {
    to.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut come = vec![0; sent.len()];
    to.read_exact(&mut come).unwrap();
    assert!(come == sent, "other bytes than were sent");
}

fn nothing_arrives(to: &mut TcpStream) {
    to.set_read_timeout(Some(WHILE)).unwrap();
    let error = to.read(&mut [0]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::WouldBlock);
}

fn pass(from: &mut TcpStream, to: &mut TcpStream, len: usize) {
    let sent = bytes(len);
    thread::scope(|scope| {
        scope.spawn(|| from.write_all(&sent).unwrap());
        arrives(&sent, to);
    });
}

fn datagrams(network: &Network, place: usize) -> UdpSocket {
    let address = network.address(place);
    network.run(place, move || UdpSocket::bind((address, 0))).unwrap()
}

/// How many of `count` datagrams come.
fn come(from: &UdpSocket, to: &UdpSocket, count: u32) -> u32 {
    let address = to.local_addr().unwrap();
    let mut come = 0;
    let mut take = |wait: Option<Duration>| {
        to.set_nonblocking(wait.is_none()).unwrap();
        to.set_read_timeout(wait).unwrap();
        while to.recv(&mut [0; 8]).is_ok() {
            come += 1;
        }
    };
    for number in 0..count {
        from.send_to(&number.to_ne_bytes(), address).unwrap();
        take(None);
    }
    take(Some(WHILE));
    come
}

fn reach(network: &Network, from: usize, to: usize) -> bool {
    come(&datagrams(network, from), &datagrams(network, to), 20) == 20
}

#[test]
fn every_place_reaches_every_other() {
    where_allowed("every_place_reaches_every_other", || {
        for places in 2..=4 {
            let network = Network::new(places);
            for from in 0..places {
                assert_eq!(network.address(from), IpAddr::from([10, 77, 0, from as u8 + 1]));
                for to in (0..places).filter(|to| *to != from) {
                    let (mut near, mut far) = pair(&network, from, to);
                    assert_eq!(near.peer_addr().unwrap().ip(), network.address(to));
                    assert_eq!(far.peer_addr().unwrap().ip(), network.address(from));
                    pass(&mut near, &mut far, 300_000);
                    pass(&mut far, &mut near, 300_000);
                }
            }
        }
    });
}

#[test]
fn places_do_not_see_the_machine() {
    where_allowed("places_do_not_see_the_machine", || {
        let network = Network::new(2);
        let outside = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let to = outside.local_addr().unwrap();
        let refused = network.run(0, move || TcpStream::connect_timeout(&to, PATIENCE));
        assert_eq!(refused.unwrap_err().kind(), ErrorKind::ConnectionRefused);
        for place in 0..2 {
            assert_eq!(network.namespace(place).links().unwrap(), ["lo", "eth0"]);
        }
    });
}

#[test]
fn nothing_comes_while_cut_and_all_of_it_once_mended() {
    where_allowed("nothing_comes_while_cut_and_all_of_it_once_mended", || {
        let network = Network::new(3);
        let (mut near, mut far) = pair(&network, 0, 1);
        pass(&mut near, &mut far, 1000);
        network.cut(1);
        // As much as the kernel takes without a reader.
        let sent = bytes(20_000);
        near.write_all(&sent).unwrap();
        nothing_arrives(&mut far);
        assert!(!reach(&network, 0, 1) && !reach(&network, 1, 2));
        assert!(reach(&network, 0, 2) && reach(&network, 2, 0));
        network.mend(1);
        arrives(&sent, &mut far);
        assert!(reach(&network, 0, 1) && reach(&network, 1, 2));
    });
}

#[test]
fn a_partition_is_between_two() {
    where_allowed("a_partition_is_between_two", || {
        let mut network = Network::new(3);
        let (mut near, mut far) = pair(&network, 0, 1);
        pass(&mut near, &mut far, 1000);
        network.partition(0, 1);
        let reached = |network: &Network| {
            [(0, 1), (1, 0), (0, 2), (2, 0), (1, 2), (2, 1)]
                .map(|(from, to)| reach(network, from, to))
        };
        assert_eq!(reached(&network), [false, false, true, true, true, true]);
        let sent = bytes(10_000);
        near.write_all(&sent).unwrap();
        nothing_arrives(&mut far);
        // Neither by another address, nor after the cable was out.
        network.change_address(1, Ipv4Addr::new(10, 77, 0, 77));
        network.cut(0);
        network.mend(0);
        assert_eq!(reached(&network), [false, false, true, true, true, true]);
        network.change_address(1, Ipv4Addr::new(10, 77, 0, 2));
        network.join(1, 0);
        assert_eq!(reached(&network), [true; 6]);
        arrives(&sent, &mut far);
    });
}

#[test]
fn losses_lose_and_tcp_makes_up_for_them() {
    where_allowed("losses_lose_and_tcp_makes_up_for_them", || {
        let network = Network::new(2);
        let (one, other) = (datagrams(&network, 0), datagrams(&network, 1));
        // Made before: see `Network::lose`.
        let (mut near, mut far) = pair(&network, 0, 1);
        assert_eq!(come(&one, &other, 1000), 1000);
        for (percent, expected) in [(50, 300..=700), (100, 0..=0), (5, 880..=995)] {
            if !network.lose(1, percent) {
                return;
            }
            for (from, to) in [(&one, &other), (&other, &one)] {
                let come = come(from, to, 1000);
                assert!(expected.contains(&come), "{percent} %: {come} of 1000");
            }
        }
        pass(&mut near, &mut far, 50_000);
        pass(&mut far, &mut near, 50_000);
        assert!(network.lose(1, 0));
        assert_eq!(come(&one, &other, 1000), 1000);
    });
}

#[test]
fn another_address_breaks_connections() {
    where_allowed("another_address_breaks_connections", || {
        let mut network = Network::new(2);
        let (mut near, mut far) = pair(&network, 0, 1);
        pass(&mut near, &mut far, 1000);
        network.change_address(1, Ipv4Addr::new(10, 77, 0, 9));
        near.write_all(b"to whom").unwrap();
        // Other connections come by the new address meanwhile.
        let (mut later, mut there) = pair(&network, 0, 1);
        assert_eq!(later.peer_addr().unwrap().ip(), IpAddr::from([10, 77, 0, 9]));
        pass(&mut later, &mut there, 1000);
        nothing_arrives(&mut far);
    });
}

/// The end of a stream, and the bytes that come before it.
fn rest(stream: &mut TcpStream) -> (Vec<u8>, Option<ErrorKind>) {
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut come = Vec::new();
    let ended = stream.read_to_end(&mut come);
    (come, ended.err().map(|error| error.kind()))
}

#[test]
fn a_relay_resets_after_exactly_so_many_bytes() {
    where_allowed("a_relay_resets_after_exactly_so_many_bytes", || {
        let network = Network::new(2);
        let (listener, address) = listen(&network, 1);
        // Less than the most that is passed on below.
        set_socket_recv_buffer_size(&listener, 8 << 10).unwrap();
        let relay = network.relay(address);
        let sent = bytes(200_000);
        for way in [Way::There, Way::Back] {
            for (number, limit) in (1..).zip([0, 1, 63, 64, 4095, 65_535, 65_536, 65_537]) {
                let (resets, passed) = (relay.resets(), relay.passed(way));
                relay.reset_never();
                relay.reset_after(way, limit);
                let (mut near, mut far) = connect(&network, 0, &listener, relay.address());
                let (from, to) = match way {
                    Way::There => (&mut near, &mut far),
                    Way::Back => (&mut far, &mut near),
                };
                let written = thread::scope(|scope| {
                    let writes = scope.spawn(|| from.write_all(&sent));
                    // Not all bytes that have passed are there: the relay has to wait until they
                    // are read.
                    let end = Instant::now() + PATIENCE;
                    while relay.passed(way) != passed + limit {
                        assert!(Instant::now() < end, "{} bytes passed", relay.passed(way));
                        thread::sleep(Duration::from_millis(1));
                    }
                    thread::sleep(WHILE / 4);
                    let (come, end) = rest(to);
                    assert_eq!(come.len() as u64, limit, "{way:?}, {number}");
                    assert!(come == sent[..come.len()]);
                    assert_eq!(end, Some(ErrorKind::ConnectionReset));
                    writes.join().unwrap()
                });
                // The sender is told once: while writing, or afterwards.
                let told = written.err().map(|error| error.kind());
                let (come, end) = rest(from);
                assert_eq!(come.len(), 0);
                assert_eq!(told.or(end), Some(ErrorKind::ConnectionReset));
                assert_eq!(relay.resets(), resets + 1);
                assert_eq!(relay.passed(way), passed + limit);
            }
        }
        assert_eq!(relay.connections(), 16);
    });
}

#[test]
fn a_relay_passes_everything_on_if_not_told_otherwise() {
    where_allowed("a_relay_passes_everything_on_if_not_told_otherwise", || {
        let network = Network::new(2);
        let (listener, address) = listen(&network, 1);
        let relay = network.relay(address);
        let (mut near, mut far) = connect(&network, 0, &listener, relay.address());
        // It stands between: neither sees the other's address.
        assert_eq!(far.peer_addr().unwrap().ip(), relay.address().ip());
        pass(&mut near, &mut far, 500_000);
        pass(&mut far, &mut near, 400_000);
        // It counts the bytes that it has passed on already.
        let end = Instant::now() + PATIENCE;
        while [Way::There, Way::Back].map(|way| relay.passed(way)) != [500_000, 400_000] {
            assert!(Instant::now() < end, "{} there", relay.passed(Way::There));
            thread::sleep(Duration::from_millis(1));
        }
        drop(near);
        assert_eq!(rest(&mut far), (Vec::new(), None));
        assert_eq!((relay.connections(), relay.resets()), (1, 0));
    });
}

#[test]
fn a_relay_keeps_back_what_it_is_told_to() {
    where_allowed("a_relay_keeps_back_what_it_is_told_to", || {
        let network = Network::new(2);
        let (listener, address) = listen(&network, 1);
        let relay = network.relay(address);
        let (mut near, mut far) = connect(&network, 0, &listener, relay.address());
        let sent = bytes(1000);
        relay.stall();
        near.write_all(&sent).unwrap();
        nothing_arrives(&mut far);
        relay.resume();
        arrives(&sent, &mut far);
        relay.delay(Duration::from_secs(3600));
        near.write_all(&sent).unwrap();
        nothing_arrives(&mut far);
        relay.delay(Duration::from_millis(1));
        arrives(&sent, &mut far);
        // A relay that holds bytes ends all the same, and takes its connections along.
        relay.stall();
        near.write_all(&sent).unwrap();
        drop(relay);
        assert_eq!(rest(&mut far).0.len(), 0);
    });
}

/// Says its address, and connects.
fn visitor(args: &Args) {
    say(Namespace::current().unwrap().inode());
    let to: SocketAddr = args.number("to");
    TcpStream::connect(to).unwrap().write_all(b"from a process").unwrap();
}

#[test]
fn processes_run_in_places() {
    where_allowed("processes_run_in_places", || {
        let network = Network::new(2);
        let (listener, address) = listen(&network, 1);
        let stage = Stage::new(60);
        let visitor = stage.role("visitor").with("to", address).inside(network.namespace(0));
        let mut visitor = visitor.spawn();
        assert_eq!(visitor.hear(), network.namespace(0).inode().to_string());
        let mut far = accept(&listener);
        assert_eq!(far.peer_addr().unwrap().ip(), network.address(0));
        arrives(b"from a process", &mut far);
        visitor.end_well();
    });
}

/// Cables from every namespace of a network to here. When a namespace ends, so does its cable.
fn tie(network: &Network, here: &Namespace) {
    let name = |at: usize| format!("tied{at}");
    for place in 0..network.places() {
        veth::pair((here, &name(place)), (network.namespace(place), "tie"), 1500).unwrap();
    }
    let bridge = network.bridge().namespace();
    veth::pair((here, &name(9)), (bridge, "tie"), 1500).unwrap();
}

/// Waits until all cables of these names are gone.
fn all_gone(here: &Namespace) {
    let end = Instant::now() + PATIENCE;
    while here.links().unwrap() != ["lo"] {
        assert!(Instant::now() < end, "left over: {:?}", here.links().unwrap());
        thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn nothing_is_left_when_it_is_dropped() {
    where_allowed("nothing_is_left_when_it_is_dropped", || {
        let here = Namespace::new().unwrap();
        let outside = Namespace::current().unwrap().links().unwrap();
        for ends in ["well", "by a panic"] {
            let network = Network::new(3);
            tie(&network, &here);
            assert_eq!(here.links().unwrap().len(), 5);
            let (listener, address) = listen(&network, 1);
            let relay = network.relay(address);
            let streams = connect(&network, 0, &listener, relay.address());
            assert_eq!(Namespace::current().unwrap().links().unwrap(), outside);
            let end = panic::catch_unwind(AssertUnwindSafe(|| {
                let _all = (network, relay, listener, streams);
                if ends != "well" {
                    panic::resume_unwind(Box::new("on purpose"));
                }
            }));
            assert_eq!(end.is_ok(), ends == "well");
            all_gone(&here);
        }
    });
}

/// Makes a network, ties it to its own namespace, and waits for its end.
fn owner(_: &Args) {
    let network = Network::new(2);
    tie(&network, &Namespace::current().unwrap());
    let (listener, address) = listen(&network, 1);
    let relay = network.relay(address);
    let _streams = connect(&network, 0, &listener, relay.address());
    say("ready");
    role::hear();
}

#[test]
fn nothing_is_left_when_its_process_is_killed() {
    where_allowed("nothing_is_left_when_its_process_is_killed", || {
        let here = Namespace::new().unwrap();
        let stage = Stage::new(60);
        let mut owner = stage.role("owner").inside(&here).spawn();
        owner.expect("ready");
        assert_eq!(here.links().unwrap().len(), 4);
        owner.kill();
        all_gone(&here);
    });
}
