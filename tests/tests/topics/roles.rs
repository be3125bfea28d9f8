//! The processes: publishers, and subscribers that check what comes.

use std::{
    sync::mpsc::{self, Receiver},
    thread,
    time::{Duration, Instant},
};

use pinfold::{
    Access, Error, Path,
    topic::{Publisher, Sample, Subscriber},
};
use pinfold_tests::{
    Args, Baseline,
    role::{PATIENCE, hear, say},
    stamp,
};

const TOPIC: &str = "frames";
const MIB: usize = 1 << 20;

/// The director's side of a process that goes on until it is told to end.
struct Told {
    lines: Receiver<String>,
    /// The end of a process that ends by itself.
    end: Option<Instant>,
    held: Option<Baseline>,
    /// True until the first sample has been told of.
    tells: bool,
}

impl Told {
    fn new(args: &Args) -> Told {
        let (tell, lines) = mpsc::channel();
        thread::spawn(move || while tell.send(hear()).is_ok() {});
        let lives = args.has("lives").then(|| Duration::from_millis(args.number("lives")));
        let end = lives.map(|lives| Instant::now() + lives);
        Told { lines, end, held: None, tells: args.has("until") && args.text("until") == "end" }
    }

    /// Does what it was told. Returns whether to go on.
    fn goes_on(&mut self) -> bool {
        match self.lines.try_recv().as_deref() {
            Ok("end") => return false,
            Ok("again") => self.tells = true,
            Ok("hold") => {
                self.held = Some(Baseline::now());
                say("held");
            }
            Ok("returns") => {
                self.held.take().expect("it was told to hold").returns(PATIENCE);
                say("returned");
            }
            Ok(line) => panic!("{line}?"),
            Err(_) => {}
        }
        self.end.is_none_or(|end| Instant::now() < end)
    }
}

fn topic(args: &Args) -> String {
    if args.has("topic") { args.text("topic").to_owned() } else { TOPIC.to_owned() }
}

fn publish(publisher: &Publisher<[u8]>, len: usize, number: u64) -> pinfold::topic::Published {
    let mut sample = publisher.loan_slice(len).unwrap();
    stamp::fill(&mut sample, number);
    publisher.publish(sample).unwrap()
}

fn check(sample: &Sample<'_, [u8]>) {
    assert_eq!(sample.view().receipt().path, Path::Handoff);
    stamp::check(&sample.to_vec().unwrap(), sample.number());
}

/// Waits for so many subscribers, and publishes so many samples of 1 MiB.
pub fn publisher(args: &Args) {
    let publisher = Publisher::<[u8]>::builder().patience(PATIENCE).open(TOPIC).unwrap();
    say("ready");
    assert_eq!(hear(), "go");
    let wanted: usize = args.number("wait-for");
    let end = Instant::now() + PATIENCE;
    while publisher.subscribers() < wanted {
        assert!(Instant::now() < end, "{} of {wanted} came", publisher.subscribers());
        thread::sleep(Duration::from_millis(5));
    }
    let mut most = 0;
    for number in 0..args.number("samples") {
        let published = publish(&publisher, MIB, number);
        assert_eq!((published.number, published.subscribers), (number, wanted));
        most = most.max(publisher.memory().bytes_committed);
    }
    say(format_args!("committed {most}"));
    // Those that still read may go before it does.
    while publisher.subscribers() > 0 && Instant::now() < end {
        thread::sleep(Duration::from_millis(5));
    }
}

/// Eight subscribers, which read every sample.
pub fn subscribers(args: &Args) {
    let samples: u64 = args.number("samples");
    let open = || Subscriber::<[u8]>::builder().every_sample().open(TOPIC).unwrap();
    let subscribers: Vec<_> = (0..8).map(|_| open()).collect();
    say("ready");
    for number in 0..samples {
        for subscriber in &subscribers {
            let sample = subscriber.recv_timeout(PATIENCE).unwrap();
            assert_eq!((sample.number(), sample.missed()), (number, 0));
            check(&sample);
        }
    }
}

/// Publishes a sample each millisecond until it is told to end.
pub fn steady(args: &Args) {
    let access = match args.has("admit") {
        true => Access::same_user().user(args.number::<u32>("admit")),
        false => Access::same_user(),
    };
    let lens = [8, 4096, 65_536, MIB];
    let publisher = Publisher::<[u8]>::builder().access(access).history(2);
    let publisher = publisher.open(&topic(args)).unwrap();
    say("ready");
    let mut told = Told::new(args);
    let mut number = 0;
    while told.goes_on() {
        publish(&publisher, lens[number as usize % lens.len()], number);
        thread::sleep(Duration::from_millis(1));
        number += 1;
    }
}

/// Reads samples of whoever publishes, until it is told to end; tells of the first, and of the
/// first after it was told `again`.
pub fn subscriber(args: &Args) {
    let topic = match args.has("owner") {
        true => format!("{}/{}", args.text("owner"), topic(args)),
        false => topic(args),
    };
    let builder = Subscriber::<[u8]>::builder();
    let builder = if args.has("every") { builder.every_sample() } else { builder };
    let subscriber = match builder.open(&topic) {
        Err(error @ Error::NotAllowed { .. }) if args.text("until") == "refused" => {
            return say(format_args!("refused {error}"));
        }
        opened => opened.unwrap(),
    };
    assert_ne!(args.text("until"), "refused", "this user was let in");
    say("ready");
    let mut told = Told::new(args);
    while told.goes_on() {
        match subscriber.recv_timeout(Duration::from_millis(5)) {
            Ok(sample) => {
                check(&sample);
                if std::mem::take(&mut told.tells) {
                    say("first");
                }
            }
            Err(Error::Timeout(_)) => {}
            Err(error) => panic!("{error}"),
        }
    }
}
