//! The two sides over real endpoints in one process, and each against a peer that misbehaves.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::atomic::{AtomicU32, Ordering},
    thread,
    time::Duration,
};

use pinfold::TagMatch;

use super::{
    digest::Digester,
    frame::{Attributes, BLOCK_BYTES, Cause, FileOffer, Hello, Record, VERSION, tag},
    name::RelativeName,
    *,
};

/// A time far beyond any that a test takes.
const PATIENCE: Duration = Duration::from_secs(60);

fn address() -> String {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    format!("local:transfer-test-{}-{number}", std::process::id())
}

fn meter() -> Meter {
    Meter::start(true, None)
}

fn directory(dir: &Path) -> Target<fs::File> {
    let rules = Rules { force: false, sync: false, times: false, umask: 0o022, nameless: true };
    Target::Directory(Directory::open(dir, rules).unwrap())
}

/// The receiving side, run like `recv_all`.
fn receive(endpoint: &Endpoint, target: Target<fs::File>) -> Result<Totals, Failure> {
    block_on(async {
        let mut interrupts = Interrupts::none();
        let (peer, hello) = receiver::await_hello(endpoint, &mut interrupts).await?;
        let mut link = Link::new(endpoint, peer, "the sender", interrupts);
        let received = match receiver::accept(&mut link, &hello, target.content()).await {
            Ok(_) => receiver::run(&mut link, endpoint, target, &mut meter()).await,
            Err(failure) => Err(failure),
        };
        match &received {
            Ok(_) => link.wait_for_bye().await,
            Err(failure) => link.give_up(failure).await,
        }
        received
    })
}

/// The sending side, run like `send_all`.
fn transmit(endpoint: &Endpoint, address: &str, files: &[PathBuf]) -> Result<Totals, Failure> {
    block_on(async {
        let plan = Plan::new(files)?;
        let peer = endpoint.connect_wait(address, PATIENCE).map_err(Failure::Connect)?;
        let mut link = Link::new(endpoint, peer, "the receiver", Interrupts::none());
        let sent = match sender::greet(&mut link, plan.content(), plan.expected).await {
            Ok(()) => {
                let blocks = Blocks::new(sender::BLOCKS, true);
                sender::run(&mut link, plan, blocks, &mut meter()).await
            }
            Err(failure) => Err(failure),
        };
        match &sent {
            Ok(_) => link.bye().await,
            Err(failure) => link.give_up(failure).await,
        }
        sent
    })
}

/// A sender that says only what it is told to.
struct Puppet {
    endpoint: Endpoint,
    peer: PeerId,
}

impl Puppet {
    fn connect(address: &str) -> Puppet {
        let endpoint = Endpoint::builder().label("puppet").build().unwrap();
        let peer = endpoint.connect_wait(address, PATIENCE).unwrap();
        Puppet { endpoint, peer }
    }

    fn listen(address: &str) -> Endpoint {
        Endpoint::builder().listen(address).label("puppet").build().unwrap()
    }

    /// The receiving puppet, after the sender has said hello.
    fn greeted(endpoint: Endpoint) -> Puppet {
        let hello = endpoint.recv_timeout(pinfold::Source::Any, tag::HELLO, PATIENCE).unwrap();
        let peer = hello.peer();
        let puppet = Puppet { endpoint, peer };
        puppet.say(tag::REPLY, &Record::Ready { version: VERSION });
        puppet
    }

    fn say(&self, tag: u64, record: &Record) {
        self.raw(tag, &record.encode());
    }

    fn raw(&self, tag: u64, bytes: &[u8]) {
        // The other side may have ended already.
        let _ = self.endpoint.send(self.peer, tag, bytes);
    }

    fn hello(&self, content: Content) {
        let hello = Hello {
            version_min: VERSION,
            version_max: VERSION,
            content,
            expected: Totals::default(),
        };
        self.say(tag::HELLO, &Record::Hello(hello));
    }

    /// Says hello and waits until the receiver is ready.
    fn greet(&self, content: Content) {
        self.hello(content);
        assert!(matches!(self.hear(tag::REPLY), Record::Ready { .. }));
    }

    fn hear(&self, tag: impl Into<TagMatch>) -> Record {
        let message = self.endpoint.recv_timeout(self.peer, tag, PATIENCE).unwrap();
        Record::decode(&message).unwrap()
    }

    fn offer(&self, name: &str, size: u64) {
        let name = RelativeName::new(name.as_bytes()).unwrap();
        let attributes = Attributes { mode: 0o644, modified: (0, 0) };
        let offer = FileOffer { name, size: Some(size), attributes };
        self.say(tag::RECORD, &Record::File(offer));
    }
}

fn end(contents: &[u8]) -> Record {
    let mut digester = Digester::default();
    digester.update(contents);
    Record::End { bytes: digester.bytes(), digest: digester.finish() }
}

/// Runs a receiver against `puppet`; returns its failure. The directory must stay empty.
fn hostile_sender(puppet: impl FnOnce(Puppet) + Send) -> Failure {
    let dir = tempfile::tempdir().unwrap();
    let address = address();
    let endpoint = Endpoint::listen(&address).unwrap();
    thread::scope(|scope| {
        scope.spawn(|| puppet(Puppet::connect(&address)));
        let failure = receive(&endpoint, directory(dir.path())).unwrap_err();
        assert!(fs::read_dir(dir.path()).unwrap().next().is_none(), "{failure}");
        failure
    })
}

/// Runs a sender of one large file against `puppet`; returns its failure.
fn hostile_receiver(puppet: impl FnOnce(Puppet) + Send) -> Failure {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    fs::File::create(&file).unwrap().set_len(64 << 20).unwrap();
    let address = address();
    let listening = Puppet::listen(&address);
    thread::scope(|scope| {
        scope.spawn(|| puppet(Puppet::greeted(listening)));
        transmit(&Endpoint::new().unwrap(), &address, &[file]).unwrap_err()
    })
}

#[test]
fn files_go_over() {
    let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let tree = from.path().join("tree");
    fs::create_dir_all(tree.join("sub")).unwrap();
    let mut bytes = 0;
    for (number, size) in
        [0, 1, 56, 57, 4096, 70_000, BLOCK_BYTES, 9 * BLOCK_BYTES + 5].into_iter().enumerate()
    {
        let contents: Vec<u8> = (0..size).map(|i| (i * 31 / 7) as u8).collect();
        fs::write(tree.join(format!("sub/{number}")), contents).unwrap();
        bytes += size as u64;
    }
    let address = address();
    let endpoint = Endpoint::listen(&address).unwrap();
    let totals = Totals { files: 8, directories: 2, bytes };
    thread::scope(|scope| {
        let sender = scope.spawn(|| {
            transmit(&Endpoint::new().unwrap(), &address, std::slice::from_ref(&tree)).unwrap()
        });
        assert_eq!(receive(&endpoint, directory(to.path())).unwrap(), totals);
        assert_eq!(sender.join().unwrap(), totals);
    });
    for number in 0..8 {
        let name = format!("sub/{number}");
        let arrived = fs::read(to.path().join("tree").join(&name)).unwrap();
        assert!(arrived == fs::read(tree.join(&name)).unwrap(), "{name}");
    }
}

#[test]
fn a_flipped_byte_on_the_way_is_told_to_both() {
    let failure = hostile_sender(|puppet| {
        puppet.greet(Content::Files);
        puppet.offer("file", 3);
        puppet.raw(tag::BLOCK, b"abb");
        puppet.say(tag::RECORD, &end(b"abc"));
        let Record::Abort { cause: Cause::Integrity, text } = puppet.hear(tag::LAST) else {
            panic!()
        };
        assert!(text.contains("file did not arrive as it was sent"), "{text}");
    });
    assert_eq!(failure.status(), 6);
}

#[test]
fn hostile_names_never_reach_the_disk() {
    for name in [&b"../up"[..], b"/etc/x", b"a\0b", b"a/../../b", b"", b".", &[b'n'; 300]] {
        let failure = hostile_sender(|puppet| {
            puppet.greet(Content::Files);
            let offer = FileOffer {
                name: RelativeName::new(b"x").unwrap(),
                size: Some(0),
                attributes: Attributes::default(),
            };
            let mut record = Record::File(offer).encode();
            record.pop();
            record.extend_from_slice(name);
            puppet.raw(tag::RECORD, &record);
            assert!(matches!(puppet.hear(tag::LAST), Record::Abort { .. }));
        });
        assert!(matches!(failure, Failure::Protocol { .. }), "{failure}");
        assert!(failure.to_string().contains("not acceptable"), "{failure}");
    }
}

#[test]
fn messages_that_are_too_long_are_refused() {
    for tag in [tag::BLOCK, tag::RECORD, tag::LAST] {
        let failure = hostile_sender(|puppet| {
            puppet.greet(Content::Files);
            puppet.offer("file", 9 << 20);
            puppet.raw(tag, &vec![0; 2 * BLOCK_BYTES]);
        });
        assert!(matches!(failure, Failure::Protocol { .. }), "{tag:x}: {failure}");
    }
}

#[test]
fn garbage_is_refused() {
    for tag in [tag::HELLO, tag::RECORD, tag::LAST] {
        let failure = hostile_sender(|puppet| {
            if tag != tag::HELLO {
                puppet.greet(Content::Files);
            }
            puppet.raw(tag, b"\xffgarbage");
            assert!(matches!(puppet.hear(tag::LAST), Record::Abort { .. }));
        });
        assert!(matches!(failure, Failure::Protocol { .. }), "{failure}");
    }
}

#[test]
fn another_version_is_named() {
    let failure = hostile_sender(|puppet| {
        let hello = Hello {
            version_min: VERSION + 1,
            version_max: VERSION + 3,
            content: Content::Files,
            expected: Totals::default(),
        };
        puppet.say(tag::HELLO, &Record::Hello(hello));
        assert!(matches!(puppet.hear(tag::LAST), Record::Abort { .. }));
    });
    let text = failure.to_string();
    let wanted = format!("speaks versions {} to {} of", VERSION + 1, VERSION + 3);
    assert!(text.contains(&wanted), "{text}");
    assert!(text.contains(&format!("the receiver version {VERSION};")), "{text}");
}

#[test]
fn a_stream_does_not_go_to_a_directory() {
    let failure = hostile_sender(|puppet| {
        puppet.hello(Content::Stream);
        let Record::Abort { text, .. } = puppet.hear(tag::LAST) else { panic!() };
        assert!(text.contains("pinfold recv ADDRESS > FILE"), "{text}");
    });
    assert_eq!(failure.status(), 2);
}

#[test]
fn a_sender_that_goes_leaves_no_file() {
    let failure = hostile_sender(|puppet| {
        puppet.greet(Content::Files);
        puppet.offer("file", 3 << 20);
        puppet.raw(tag::BLOCK, &vec![7; BLOCK_BYTES]);
    });
    assert_eq!(failure.status(), 4, "{failure}");
}

#[test]
fn a_sender_that_goes_after_its_last_record_is_not_missed() {
    let dir = tempfile::tempdir().unwrap();
    let address = address();
    let endpoint = Endpoint::listen(&address).unwrap();
    let totals = thread::scope(|scope| {
        scope.spawn(|| {
            let puppet = Puppet::connect(&address);
            puppet.greet(Content::Files);
            puppet.offer("file", 3);
            puppet.raw(tag::BLOCK, b"abc");
            puppet.say(tag::RECORD, &end(b"abc"));
            puppet.say(tag::RECORD, &Record::Finish(Totals { files: 1, directories: 0, bytes: 3 }));
        });
        receive(&endpoint, directory(dir.path())).unwrap()
    });
    assert_eq!(totals, Totals { files: 1, directories: 0, bytes: 3 });
    assert_eq!(fs::read(dir.path().join("file")).unwrap(), b"abc");
}

#[test]
fn a_caller_that_goes_without_a_word_is_not_the_sender() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    fs::write(&file, "abc").unwrap();
    let out = tempfile::tempdir().unwrap();
    let address = address();
    let endpoint = Endpoint::listen(&address).unwrap();
    thread::scope(|scope| {
        let receiver = scope.spawn(|| receive(&endpoint, directory(out.path())));
        for _ in 0..3 {
            drop(Puppet::connect(&address));
        }
        transmit(&Endpoint::new().unwrap(), &address, std::slice::from_ref(&file)).unwrap();
        assert_eq!(
            receiver.join().unwrap().unwrap(),
            Totals { files: 1, directories: 0, bytes: 3 }
        );
    });
    assert_eq!(fs::read(out.path().join("file")).unwrap(), b"abc");
}

#[test]
fn a_second_sender_is_turned_away() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    fs::write(&file, "x").unwrap();
    let address = address();
    let endpoint = Endpoint::listen(&address).unwrap();
    thread::scope(|scope| {
        let receiver = scope.spawn(|| receive(&endpoint, directory(dir.path())));
        let first = Puppet::connect(&address);
        first.greet(Content::Files);
        for _ in 0..3 {
            let second = transmit(&Endpoint::new().unwrap(), &address, std::slice::from_ref(&file));
            let failure = second.unwrap_err();
            assert_eq!(failure.status(), 3, "{failure}");
            assert!(failure.to_string().contains("busy with another sender"), "{failure}");
        }
        first.say(tag::RECORD, &Record::Finish(Totals::default()));
        assert_eq!(first.hear(tag::REPLY), Record::Done(Totals::default()));
        first.say(tag::LAST, &Record::Bye);
        assert_eq!(receiver.join().unwrap().unwrap(), Totals::default());
    });
}

#[test]
fn a_receiver_that_says_why_is_quoted() {
    let failure = hostile_receiver(|puppet| {
        let text = "no room\x1b[2J".into();
        puppet.say(tag::LAST, &Record::Abort { cause: Cause::Other, text });
        assert_eq!(puppet.hear(tag::LAST), Record::Bye);
    });
    assert_eq!(failure.status(), 1);
    assert_eq!(failure.to_string(), "the receiver gave up: no room\\u{1b}[2J");
}

#[test]
fn a_receiver_cannot_claim_what_it_was_not_sent() {
    for totals in [Totals::default(), Totals { files: 1, directories: 0, bytes: 64 << 20 }] {
        let failure = hostile_receiver(|puppet| {
            puppet.say(tag::REPLY, &Record::Done(totals));
            assert!(matches!(puppet.hear(tag::LAST), Record::Abort { .. }));
        });
        assert!(matches!(failure, Failure::Protocol { .. }), "{failure}");
    }
}

#[test]
fn a_receiver_that_goes_is_missed() {
    let failure = hostile_receiver(|puppet| {
        let flow = TagMatch::masked(tag::RECORD, 1);
        let first = puppet.endpoint.recv_timeout(puppet.peer, flow, PATIENCE).unwrap();
        assert!(matches!(Record::decode(&first), Ok(Record::File(_))));
    });
    assert_eq!(failure.status(), 4, "{failure}");
}
