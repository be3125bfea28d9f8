//! Publishers and subscribers that are killed, at random moments and at numbered points: the others
//! go on, get no sample that is not whole, and hold in the end what they held before.

use std::{thread, time::Duration};

use pinfold::failpoint::Point;
use pinfold_tests::{Stage, figures, skip::again, stage::Player, stamp::Random};

use crate::ready;

const KILLS: u64 = 100;
/// The passages of a point at which it kills.
const COUNTS: [u32; 2] = [1, 4];

/// A side that survives, a friend of the other side that does, and the kind of those that are
/// killed.
struct Ward<'a> {
    stage: &'a Stage,
    survivor: Player,
    friend: Player,
    victim: &'static str,
    killed: u64,
}

impl<'a> Ward<'a> {
    fn of_publisher(stage: &'a Stage) -> Ward<'a> {
        let survivor = ready(stage.role("steady"));
        let mut friend = ready(stage.role("subscriber").with("until", "end"));
        friend.expect("first");
        Ward { stage, survivor, friend, victim: "subscriber", killed: 0 }
    }

    fn of_subscriber(stage: &'a Stage) -> Ward<'a> {
        let friend = ready(stage.role("steady"));
        let mut survivor = ready(stage.role("subscriber").with("until", "end"));
        survivor.expect("first");
        Ward { stage, survivor, friend, victim: "steady", killed: 0 }
    }

    /// One is killed, and another takes its place.
    fn at_random(&mut self, kills: u64) {
        let mut random = Random::new(figures::seed(kills));
        for number in 0..kills {
            let casting = self.stage.role(self.victim).with("until", "killed");
            let casting = if number % 3 == 0 { casting.with("every", 1) } else { casting };
            let mut victim = ready(casting);
            thread::sleep(Duration::from_micros(random.below(20_000)));
            victim.kill();
            assert!(victim.was_killed());
            self.killed += 1;
            if number == 0 {
                // Memory and descriptors that are kept for the next peer are there now.
                self.hold();
            }
        }
    }

    fn at_points(&mut self, points: &[Point]) {
        self.hold();
        for point in points {
            for count in &COUNTS[..again(COUNTS.len() as u64) as usize] {
                let failpoint = format!("{}:{count}", point.name());
                let casting = self.stage.role(self.victim).with("until", "killed");
                let casting = casting.with("lives", 120).env("PINFOLD_FAILPOINT", failpoint);
                if !casting.spawn().was_killed() {
                    break;
                }
                self.killed += 1;
            }
        }
    }

    /// The survivor takes note of what it holds.
    fn hold(&mut self) {
        thread::sleep(Duration::from_millis(300));
        self.survivor.say("hold");
        self.survivor.expect("held");
    }

    fn end(mut self) -> u64 {
        self.survivor.say("returns");
        self.survivor.expect("returned");
        for player in [&mut self.survivor, &mut self.friend] {
            player.say("end");
            player.end_well();
        }
        self.killed
    }
}

#[test]
fn subscribers_are_killed_at_random() {
    let stage = Stage::new(300);
    let mut ward = Ward::of_publisher(&stage);
    ward.at_random(again(KILLS));
    ward.end();
}

#[test]
fn publishers_are_killed_at_random() {
    let stage = Stage::new(300);
    let mut ward = Ward::of_subscriber(&stage);
    ward.at_random(again(KILLS));
    ward.end();
}

#[test]
fn subscribers_are_killed_at_every_point() {
    let stage = Stage::new(300);
    let mut ward = Ward::of_publisher(&stage);
    ward.at_points(Point::ALL);
    let killed = ward.end();
    assert!(killed >= 10, "{killed} kills");
}

#[test]
fn publishers_are_killed_at_every_point() {
    let stage = Stage::new(300);
    let mut ward = Ward::of_subscriber(&stage);
    ward.at_points(Point::ALL);
    let killed = ward.end();
    assert!(killed >= 10, "{killed} kills");
}
