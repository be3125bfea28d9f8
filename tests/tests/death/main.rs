//! Kills a peer at random moments, and at every numbered point of the protocol. The survivor hears
//! of it in every operation with the dead peer, goes on talking to others, and holds in the end the
//! same as before.

mod spaces;
mod survivor;
mod traffic;

use std::{
    fs,
    path::PathBuf,
    time::{Duration, Instant},
};

use pinfold_tests::{
    Stage, figures,
    skip::{again, is_long},
    stage::{Casting, Player},
    stamp::Random,
};

use self::{
    survivor::{friend, survivor},
    traffic::victim,
};

pinfold_tests::roles!(survivor, friend, victim);

/// The two ways for the victim to meet the survivor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Meeting {
    /// The victim connects.
    Calls,
    /// The survivor connects to it.
    IsCalled,
}

/// The ways in which the two may reach each other's memory that cannot be mapped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum By {
    Kernel,
    /// The kernel is not asked.
    Agent,
}

/// Kills in the normal run, and in a long one.
const RANDOM_KILLS: u64 = 800;
const RANDOM_KILLS_LONG: u64 = 5000;
// The thread that drives gets a quarter as many.
const _: () = assert!(RANDOM_KILLS + RANDOM_KILLS / 4 >= 1000);
/// The longest life of a random victim, µs.
const LIFE_US: u64 = 25_000;

/// Names are in their default place, so that names of the dead are removed.
fn cast<'a>(stage: &'a Stage, role: &str) -> Casting<'a> {
    stage.role(role).env("PINFOLD_DIR", "").env("XDG_RUNTIME_DIR", home(stage))
}

fn home(stage: &Stage) -> PathBuf {
    stage.sockets(rustix::process::geteuid().as_raw())
}

/// A survivor, its friend, and the record of both.
struct Ward {
    stage: Stage,
    survivor: Player,
    friend: Player,
    victims: u32,
    killed: u32,
    /// From the death to the first error at the survivor, µs.
    delays_us: Vec<u64>,
}

impl Ward {
    fn open(seconds: u64, how: &str) -> Ward {
        let stage = Stage::new(seconds);
        let mut survivor = cast(&stage, "survivor").with("progress", how).spawn();
        survivor.expect("ready");
        let friend = cast(&stage, "friend").spawn();
        survivor.expect("has a friend");
        Ward { stage, survivor, friend, victims: 0, killed: 0, delays_us: Vec::new() }
    }

    /// Brings a victim to the survivor; `failpoint` is when it kills itself.
    fn admit(&mut self, meeting: Meeting, by: By, failpoint: Option<String>) -> Player {
        self.victims += 1;
        let name = format!("victim-{}", self.victims);
        let mut casting =
            cast(&self.stage, "victim").with("name", &name).with("seed", self.victims);
        casting = match failpoint {
            Some(failpoint) => casting.env("PINFOLD_FAILPOINT", failpoint),
            None => casting.with("endless", 1),
        };
        if by == By::Agent {
            casting = casting.with("paths", "inline,eager,mapped");
        }
        if meeting == Meeting::IsCalled {
            casting = casting.with("listens", 1);
        }
        let mut victim = casting.spawn();
        victim.expect("ready");
        let calls = if meeting == Meeting::IsCalled { "call" } else { "await" };
        self.survivor.say(format_args!("{calls} {} {name}", victim.pid()));
        self.survivor.expect("watching");
        victim.say("go");
        victim
    }

    /// Hears how the survivor took the end of the last victim.
    fn hear_the_end(&mut self) {
        let delay = self.survivor.expect("over");
        if let Ok(delay_us) = delay.parse() {
            self.delays_us.push(delay_us);
        }
    }

    fn close(mut self, what: &str) {
        self.survivor.say("end");
        let grown = self.survivor.expect("grown");
        self.survivor.end_well();
        self.friend.end_well();
        let victims = |file: &fs::DirEntry| file.file_name().to_string_lossy().contains("victim");
        let names = fs::read_dir(home(&self.stage).join("pinfold")).expect("there are names");
        let names = names.flatten().filter(victims).count();
        let delays = &mut self.delays_us;
        delays.sort_unstable();
        let at = |part: f64| {
            delays
                .get(((delays.len() as f64 * part) as usize).min(delays.len().saturating_sub(1)))
                .copied()
                .unwrap_or(0)
        };
        let late = delays.iter().filter(|delay| **delay > 100_000).count();
        eprintln!(
            "{what}: {} victims, {} heard of; from death to error: median {} us, p99 {} us, \
             most {} us, {late} after more than 100 ms",
            self.victims,
            delays.len(),
            at(0.5),
            at(0.99),
            delays.last().copied().unwrap_or(0),
        );
        let values: [(&str, &dyn std::fmt::Display); 7] = [
            ("way", &what),
            ("count", &self.killed),
            ("heard", &delays.len()),
            ("median_us", &at(0.5)),
            ("most_us", &at(1.0)),
            ("names", &names),
            ("grown", &grown),
        ];
        figures::add("kills", &values);
        // No error is late by much, however busy the machine.
        assert!(delays.last().is_none_or(|most| *most < 2_000_000), "{delays:?}");
    }
}

fn random_kills(how: &str, kills: u64) {
    let mut ward = Ward::open(60 + kills / 4, how);
    let mut random = Random::new(figures::seed(kills));
    for _ in 0..kills {
        let meeting = random.pick(&[Meeting::Calls, Meeting::IsCalled]);
        let by = random.pick(&[By::Kernel, By::Agent]);
        let mut victim = ward.admit(meeting, by, None);
        let life = Duration::from_micros(random.below(LIFE_US));
        let end = Instant::now() + life;
        std::thread::sleep(life.saturating_sub(Duration::from_micros(200)));
        while Instant::now() < end {
            std::hint::spin_loop();
        }
        victim.kill();
        assert!(victim.was_killed(), "the victim ended before its time");
        ward.killed += 1;
        ward.hear_the_end();
    }
    assert_eq!(u64::from(ward.victims), kills);
    // The others were killed before the survivor knew of them.
    let heard = ward.delays_us.len() as u64;
    assert!(heard > kills / 4, "only {heard} of {kills} victims had met the survivor");
    ward.close(&format!("random kills, {how}"));
}

#[test]
fn at_random() {
    random_kills("inline", if is_long() { RANDOM_KILLS_LONG } else { again(RANDOM_KILLS) });
}

#[test]
fn at_random_with_a_thread_that_drives() {
    random_kills("dedicated", if is_long() { RANDOM_KILLS_LONG } else { again(RANDOM_KILLS) } / 4);
}

/// Each point, met in both ways, at its first count and at later ones.
mod points {
    use std::collections::BTreeSet;

    use pinfold::failpoint::Point;

    use pinfold_tests::skip::again;

    use crate::{By, Meeting, Ward};

    /// The passages at which it is killed, the first of them only if the suite has just run.
    const COUNTS: [u32; 3] = [1, 3, 20];

    /// The points of the agent that copies. Where the kernel does, it changes words, in pages that
    /// are there.
    const AGENTS: [Point; 2] = [Point::BeforePages, Point::AfterPages];

    /// The points of the kernel's copies.
    const KERNELS: [Point; 2] = [Point::BeforeCarried, Point::AfterCarried];

    /// The points that no victim came to.
    fn missed(points: &[Point], reached: &BTreeSet<&'static str>) -> Vec<Point> {
        points.iter().copied().filter(|point| !reached.contains(point.name())).collect()
    }

    /// The points of memory that is used by its addresses.
    fn of_spaces() -> &'static [Point] {
        let at = |point| Point::ALL.iter().position(|it| *it == point).expect("one of all");
        &Point::ALL[at(Point::BeforeTranslate)..=at(Point::AfterEnd)]
    }

    fn at_points(points: &[Point], how: &str, meeting: Meeting, by: By) -> BTreeSet<&'static str> {
        let mut ward = Ward::open(300, how);
        let mut reached = BTreeSet::new();
        let counts = &COUNTS[..again(COUNTS.len() as u64) as usize];
        for point in points {
            for count in counts {
                let failpoint = format!("{}:{count}", point.name());
                let mut victim = ward.admit(meeting, by, Some(failpoint));
                let killed = victim.was_killed();
                ward.hear_the_end();
                if !killed {
                    // A later count is not reached either.
                    break;
                }
                ward.killed += 1;
                reached.insert(point.name());
            }
        }
        let kills = ward.killed;
        // Few points may be those that are hard to come to.
        let least = points.len() * counts.len().div_ceil(2) / 2;
        let few = points.len() < Point::ALL.len() / 4;
        assert!(few || kills as usize > least, "{kills} kills at {} points", points.len());
        ward.close(&format!("numbered points, {meeting:?}, by {by:?}, {how}"));
        reached
    }

    /// Some points lie on ways that are taken only if the two sides meet there in time; on a busy
    /// machine they may need more than one try.
    const TRIES: u32 = 4;

    #[test]
    fn at_every_point() {
        let mut reached = BTreeSet::new();
        let mut points = Point::ALL.to_vec();
        for _ in 0..TRIES {
            reached.append(&mut at_points(&points, "inline", Meeting::Calls, By::Kernel));
            reached.append(&mut at_points(&points, "inline", Meeting::IsCalled, By::Kernel));
            points = missed(Point::ALL, &reached);
            // Where the kernel copies there is nothing for the agent to do, and the other way
            // round.
            if points == AGENTS || points == KERNELS {
                return;
            }
        }
        panic!("no victim came to {points:?}");
    }

    #[test]
    fn at_every_point_of_spaces_where_the_agent_copies() {
        let reached = at_points(of_spaces(), "inline", Meeting::Calls, By::Agent);
        assert_eq!(missed(of_spaces(), &reached), KERNELS);
        at_points(of_spaces(), "dedicated", Meeting::IsCalled, By::Agent);
    }

    #[test]
    fn at_every_point_with_a_thread_that_drives() {
        at_points(Point::ALL, "dedicated", Meeting::Calls, By::Kernel);
    }
}
