//! Calls to other hosts where names, routes, addresses and listeners come later, or one family
//! leads nowhere.

use std::{
    fs,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, TcpListener, TcpStream},
    path::{Path, PathBuf},
    thread,
    time::Duration,
};

use pinfold::{Builder, Endpoint, Error, PeerId, Progress};
use pinfold_netns::{Link, NOBODY, Namespace, Reason};
use pinfold_tests::{
    Args, Network, Stage, host,
    network::where_allowed,
    role::{hear, say},
    skip,
    stage::Player,
};
use rustix::{io::Errno, net::sockopt::set_socket_linger};

pinfold_tests::roles!(called, caller, reflected, returner);

const KEY: [u8; 32] = [6; 32];
/// The time in which a message that can come must come.
const PATIENCE: Duration = Duration::from_secs(100);
/// The time for which callers call in vain, in tests where they do so.
const IN_VAIN: Duration = Duration::from_millis(700);

fn builder() -> Builder {
    Endpoint::builder().progress(Progress::Dedicated).key(&KEY).local_shortcut(false)
}

/// Waits for all callers and gets a message of each.
fn called(args: &Args) {
    own_hosts(args);
    let endpoint = builder().listen(args.text("listen")).build().expect("a free port");
    say(endpoint.listens_at().expect("it listens"));
    for _ in 0..args.number::<usize>("callers") {
        let peer = endpoint.accept_timeout(PATIENCE).expect("somebody calls");
        let message = endpoint.recv_timeout(peer, 1, PATIENCE).expect("it comes");
        endpoint.send(peer, 2, &message).expect("it goes");
    }
    hear();
}

/// Calls, and says which endpoint answered, or why none did.
fn caller(args: &Args) {
    own_hosts(args);
    // An attempt that nothing else ended would last longer than the test.
    let endpoint = builder().connect_timeout(10 * PATIENCE).build().expect("an endpoint");
    let to = args.text("to");
    if args.has("vain") {
        // An endpoint that does not wait is told at once, and one that waits for too short a time
        // when that is over.
        let error = endpoint.connect(to).expect_err("nobody is there");
        let waited = endpoint.connect_wait(to, IN_VAIN).expect_err("nobody is there");
        say(format_args!("vain {}, {}", what(&error), what(&waited)));
        hear();
    }
    say("calls");
    let patience = args.has("wait").then_some(PATIENCE);
    let peer = match patience {
        Some(patience) => endpoint.connect_wait(to, patience),
        None => endpoint.connect(to),
    };
    let peer = peer.expect("somebody listens");
    endpoint.send(peer, 1, b"to and fro").expect("it goes");
    assert_eq!(&*endpoint.recv_timeout(peer, 2, PATIENCE).expect("it comes"), b"to and fro");
    say(format_args!("met {}", place(&endpoint, peer)));
}

/// Where a peer without a label is.
fn place(endpoint: &Endpoint, peer: PeerId) -> String {
    endpoint.peer(peer).expect("it is there").name
}

fn own_hosts(args: &Args) {
    if args.has("hosts") {
        host::own_hosts(Path::new(args.text("hosts"))).expect("as root");
    }
}

/// The kind of an error.
fn what(error: &Error) -> String {
    match error {
        Error::Os { call, source, .. } => match Errno::from_io_error(source) {
            Some(errno) => format!("{call} {}", errno.raw_os_error()),
            None => format!("{call} {:?}", source.kind()),
        },
        Error::NameGone { .. } => "gone".into(),
        Error::NoAnswer { .. } => "silence".into(),
        other => format!("{other:?}"),
    }
}

/// A network of two, with the listener in place 0, at all of its addresses.
struct Scene {
    stage: Stage,
    network: Network,
    hosts: PathBuf,
}

const SIX: [Ipv6Addr; 2] = [
    Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1),
    Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 2),
];
/// An address of another network, to which there is no route.
const FAR: Ipv4Addr = Ipv4Addr::new(10, 99, 0, 1);

impl Scene {
    fn new() -> Scene {
        let stage = Stage::new(120);
        let hosts = stage.path().join("hosts");
        fs::write(&hosts, "").unwrap();
        Scene { stage, network: Network::new(2), hosts }
    }

    fn place(&self, at: usize) -> &Namespace {
        self.network.namespace(at)
    }

    fn link(&self, at: usize) -> Link {
        self.place(at).link("eth0").unwrap()
    }

    /// Gives both places an IPv6 address. Returns `false` where there is none.
    fn six(&self) -> bool {
        for (at, address) in SIX.into_iter().enumerate() {
            match self.link(at).add_address(address.into(), 64) {
                Err(error) if error.reason() == Reason::Denied => {
                    skip(&format!("no IPv6 here: {error}"));
                    return false;
                }
                done => done.unwrap(),
            }
        }
        true
    }

    /// A listener, and its port.
    fn called(&self, listen: &str, callers: usize) -> (Player, u16) {
        let role = self.stage.role("called").with("listen", listen).with("callers", callers);
        let role = role.with("hosts", self.hosts.display());
        let mut called = role.inside(self.place(0)).spawn();
        let port = called.hear().rsplit_once(':').unwrap().1.parse().unwrap();
        (called, port)
    }

    fn caller(&self, to: impl std::fmt::Display, with: &[&str]) -> Player {
        let role = self.stage.role("caller").with("to", to).with("hosts", self.hosts.display());
        let role = with.iter().fold(role, |role, what| role.with(what, 1));
        role.inside(self.place(1)).spawn()
    }
}

fn over(mut called: Player, mut caller: Player) {
    caller.end_well();
    called.say("over");
    called.end_well();
}

#[test]
fn a_route_may_come_later() {
    where_allowed("a_route_may_come_later", || {
        let scene = Scene::new();
        scene.link(0).add_address(FAR.into(), 24).unwrap();
        let (called, port) = scene.called("tcp:0.0.0.0:0", 1);
        let mut caller = scene.caller(format!("tcp:{FAR}:{port}"), &["wait", "vain"]);
        let unreachable = format!("connect {}", Errno::NETUNREACH.raw_os_error());
        assert_eq!(caller.expect("vain"), format!("{unreachable}, {unreachable}"));
        caller.say("go on");
        caller.expect("calls");
        thread::sleep(IN_VAIN);
        scene.link(1).add_address(Ipv4Addr::new(10, 99, 0, 2).into(), 24).unwrap();
        assert_eq!(caller.expect("met"), format!("tcp:{FAR}:{port}"));
        over(called, caller);
    });
}

#[test]
fn a_host_may_come_later() {
    where_allowed("a_host_may_come_later", || {
        let scene = Scene::new();
        let (called, port) = scene.called("tcp:0.0.0.0:0", 1);
        let late = Ipv4Addr::new(10, 77, 0, 50);
        let mut caller = scene.caller(format!("tcp:{late}:{port}"), &["wait"]);
        caller.expect("calls");
        // Three questions for the address's owner, one second each, are not answered: no route to
        // that host.
        thread::sleep(Duration::from_secs(5));
        scene.link(0).add_address(late.into(), 24).unwrap();
        assert_eq!(caller.expect("met"), format!("tcp:{late}:{port}"));
        over(called, caller);
    });
}

#[test]
fn a_link_may_come_up_later() {
    where_allowed("a_link_may_come_up_later", || {
        let scene = Scene::new();
        let (called, port) = scene.called("tcp:0.0.0.0:0", 1);
        scene.link(1).down().unwrap();
        let to = format!("tcp:{}:{port}", scene.network.address(0));
        let mut caller = scene.caller(to, &["wait", "vain"]);
        let unreachable = format!("connect {}", Errno::NETUNREACH.raw_os_error());
        assert_eq!(caller.expect("vain"), format!("{unreachable}, {unreachable}"));
        caller.say("go on");
        caller.expect("calls");
        thread::sleep(IN_VAIN);
        scene.link(1).up().unwrap();
        caller.expect("met");
        over(called, caller);
    });
}

#[test]
fn a_void_may_be_filled_later() {
    where_allowed("a_void_may_be_filled_later", || {
        let mut scene = Scene::new();
        let (called, port) = scene.called("tcp:0.0.0.0:0", 1);
        scene.network.partition(0, 1);
        let to = format!("tcp:{}:{port}", scene.network.address(0));
        let mut caller = scene.caller(to, &["wait"]);
        caller.expect("calls");
        thread::sleep(Duration::from_secs(2));
        scene.network.join(0, 1);
        caller.expect("met");
        over(called, caller);
    });
}

#[test]
fn a_name_and_its_listener_may_come_later() {
    where_allowed("a_name_and_its_listener_may_come_later", || {
        let scene = Scene::new();
        // A port without a listener.
        let address = scene.network.address(0);
        let port = scene
            .network
            .run(0, move || TcpListener::bind((address, 0)).unwrap().local_addr().unwrap().port());
        let mut caller = scene.caller(format!("tcp:late.test:{port}"), &["wait", "vain"]);
        let vain = caller.expect("vain");
        let unknown = ["getaddrinfo TimedOut", "getaddrinfo NotFound"];
        assert!(vain.split(", ").all(|what| unknown.contains(&what)), "{vain}");
        caller.say("go on");
        caller.expect("calls");
        thread::sleep(IN_VAIN);
        fs::write(&scene.hosts, format!("{address} late.test\n")).unwrap();
        thread::sleep(IN_VAIN);
        let (called, _) = scene.called(&format!("tcp:{address}:{port}"), 1);
        assert_eq!(caller.expect("met"), format!("tcp:{address}:{port}"));
        over(called, caller);
    });
}

/// The preferred family, either of the two, leads into a void, and the other is taken. Callers do
/// not wait.
#[test]
fn a_family_may_lead_into_a_void() {
    where_allowed("a_family_may_lead_into_a_void", || {
        let scene = Scene::new();
        if !scene.six() {
            return;
        }
        let (called, port) = scene.called("tcp:[::]:0", 2);
        let four = scene.network.address(0);
        fs::write(&scene.hosts, format!("{} both.test\n{four} both.test\n", SIX[0])).unwrap();
        let mut callers = Vec::new();
        for (void, met) in [(SIX[0].into(), four), (four, IpAddr::from(SIX[0]))] {
            scene.link(1).set_neighbour(void, NOBODY).unwrap();
            let mut caller = scene.caller(format!("tcp:both.test:{port}"), &[]);
            caller.expect("calls");
            let said = caller.expect("met");
            assert_eq!(said, format!("tcp:{}", std::net::SocketAddr::from((met, port))));
            callers.push(caller);
            scene.link(1).forget_neighbour(void).unwrap();
        }
        callers.iter_mut().for_each(Player::end_well);
        let mut called = called;
        called.say("over");
        called.end_well();
    });
}

/// No endpoint listens at either of two addresses: the caller is told at once.
#[test]
fn all_addresses_may_refuse() {
    where_allowed("all_addresses_may_refuse", || {
        let scene = Scene::new();
        fs::write(&scene.hosts, "127.0.0.1 two.test\n127.0.0.2 two.test\n").unwrap();
        let mut caller = scene.caller("tcp:two.test:9", &["vain"]);
        assert_eq!(caller.expect("vain"), "gone, gone");
    });
}

#[test]
fn a_name_is_listened_to_at_all_its_addresses() {
    where_allowed("a_name_is_listened_to_at_all_its_addresses", || {
        let scene = Scene::new();
        if !scene.six() {
            return;
        }
        let four = scene.network.address(0);
        fs::write(&scene.hosts, format!("{} both.test\n{four} both.test\n", SIX[0])).unwrap();
        let (called, port) = scene.called("tcp:both.test:0", 2);
        let [mut first, second] = [four, SIX[0].into()].map(|to| {
            let to = std::net::SocketAddr::from((to, port));
            let mut caller = scene.caller(format!("tcp:{to}"), &[]);
            caller.expect("calls");
            assert_eq!(caller.expect("met"), format!("tcp:{to}"));
            caller
        });
        first.end_well();
        over(called, second);
    });
}

/// The kernel connects a caller with itself where it gives the caller's end the very port that is
/// called.
#[test]
fn nobody_is_met_by_reflection() {
    where_allowed("nobody_is_met_by_reflection", || {
        let scene = Scene::new();
        scene.stage.role("reflected").inside(scene.place(0)).spawn().end_well();
    });
}

fn reflected(_: &Args) {
    const PORT: u16 = 40_000;
    let range = "/proc/sys/net/ipv4/ip_local_port_range";
    if let Err(error) = fs::write(range, format!("{PORT} {PORT}")) {
        return skip(&format!("{range}: {error}"));
    }
    let reflects = TcpStream::connect((Ipv4Addr::LOCALHOST, PORT)).is_ok_and(|it| {
        // Nothing of the connection is to be left.
        set_socket_linger(&it, Some(Duration::ZERO)).unwrap();
        it.local_addr().unwrap() == it.peer_addr().unwrap()
    });
    assert!(reflects, "the kernel does otherwise now");
    let to = format!("tcp:127.0.0.1:{PORT}");
    let endpoint = builder().build().unwrap();
    let error = endpoint.connect(&to).unwrap_err();
    assert!(matches!(&error, Error::NameGone { .. }), "{error:?}");
}

/// The connection breaks, and its address is a void: it goes on by the other address of the name.
#[test]
fn who_returns_tries_all_addresses() {
    where_allowed("who_returns_tries_all_addresses", || {
        let scene = Scene::new();
        if !scene.six() {
            return;
        }
        let four = scene.network.address(0);
        fs::write(&scene.hosts, format!("{} both.test\n{four} both.test\n", SIX[0])).unwrap();
        let role = |place: usize| {
            let role = scene.stage.role("returner").with("hosts", scene.hosts.display());
            role.inside(scene.place(place))
        };
        let mut called = role(0).with("listen", "tcp:[::]:0").spawn();
        let port = called.hear().rsplit_once(':').unwrap().1.to_owned();
        let mut caller = role(1).with("to", format!("tcp:both.test:{port}")).spawn();
        assert_eq!(caller.expect("met"), format!("tcp:[{}]:{port}", SIX[0]));
        scene.link(0).remove_address(SIX[0].into(), 64).unwrap();
        scene.link(1).set_neighbour(SIX[0].into(), NOBODY).unwrap();
        for player in [&mut called, &mut caller] {
            player.expect("over, once more");
            player.say("over");
            player.end_well();
        }
    });
}

/// Messages go both ways until the connection was another once.
fn returner(args: &Args) {
    own_hosts(args);
    let builder = builder().reconnect_timeout(Duration::from_secs(20));
    let (endpoint, peer) = if args.has("listen") {
        let endpoint = builder.listen(args.text("listen")).build().expect("a free port");
        say(endpoint.listens_at().expect("it listens"));
        let peer = endpoint.accept_timeout(PATIENCE).expect("somebody calls");
        (endpoint, peer)
    } else {
        let endpoint = builder.build().expect("an endpoint");
        let peer = endpoint.connect(args.text("to")).expect("somebody listens");
        say(format_args!("met {}", place(&endpoint, peer)));
        (endpoint, peer)
    };
    let reconnections = || endpoint.peer(peer).expect("it is there").reconnections;
    let mut number = 0_u64;
    loop {
        let is_last = reconnections() > 0;
        endpoint.send(peer, number, &[u8::from(is_last)]).expect("it goes");
        let other = endpoint.recv_timeout(peer, number, PATIENCE).expect("it comes");
        if is_last && other[0] == 1 {
            break;
        }
        number += 1;
        thread::sleep(Duration::from_millis(1));
    }
    say("over, once more");
    hear();
}
