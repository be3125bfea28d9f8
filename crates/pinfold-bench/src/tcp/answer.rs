//! The second process: follows orders until there are no more.

use std::{net::IpAddr, os::fd::AsFd};

use serde::{Deserialize, Serialize};

use super::{cell::Contestant, contestant};
use crate::{
    control::Control,
    fail::{Fail, Result},
    load::Load,
    pair::Pair,
    stage::Stage,
    subject::Bench,
    terms::Spec,
};

/// An order to the second process.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Order {
    /// Set this contestant up, with the first process listening there.
    SetUp(Contestant, IpAddr),
    /// Do this run.
    Run(Spec),
    /// Bounce a cache line.
    Hop,
    Quit,
}

/// Serves the first process, at standard input, to the end.
///
/// # Errors
/// The error that made it give up; the first process has been told.
pub(super) fn serve() -> Result<()> {
    let stdin = std::io::stdin().as_fd().try_clone_to_owned().map_err(Fail::os("dup"))?;
    let (mut pair, mut stage) = Pair::answer(Control::new(stdin))?;
    let done = obey(&mut pair, &mut stage);
    if let Err(why) = &done {
        pair.give_up(why);
    }
    done
}

fn obey(pair: &mut Pair, stage: &mut Stage) -> Result<()> {
    let mut all: Vec<(Contestant, Box<dyn Bench>)> = Vec::new();
    loop {
        match pair.hear()? {
            Order::SetUp(who, at) => {
                let made = pair.set_up_here(|pair| contestant::set_up(who, at, pair))?;
                all.extend(made.ok().map(|bench| (who, bench)));
            }
            Order::Run(spec) => {
                let Some((who, bench)) = all.get_mut(spec.subject) else {
                    return Err(Fail::Protocol(format!("subject {}", spec.subject)));
                };
                stage.label = who.name().into();
                bench.run(stage, &spec)?;
                pair.done(0, Load::NONE)?;
            }
            Order::Hop => {
                stage.sync.hop_ns()?;
            }
            Order::Quit => return Ok(()),
        }
    }
}
