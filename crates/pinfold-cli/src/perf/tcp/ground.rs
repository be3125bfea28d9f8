//! Where the two processes are: on one host, or on two that are networks of this machine's own.

use std::{
    net::{IpAddr, Ipv4Addr},
    process::Command,
    time::Duration,
};

use pinfold_sys::socket::netns::{self, Link, Namespace, user, veth};

use crate::perf::{
    fail::{Fail, Result},
    terms::Side,
};

/// The longest packet, as on an Ethernet.
const MTU: u32 = 1500;
/// Of RFC 5737's addresses for examples, which nobody else has.
const NEAR: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
const FAR: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 2);
/// How long a cable may take to come up.
const SOON: Duration = Duration::from_secs(2);

/// Where messages go.
pub(super) enum Ground {
    Loopback,
    Cable(Box<Cable>),
}

/// Two networks; they are gone with this, or with the processes.
pub(super) struct Cable {
    near: Namespace,
    far: Namespace,
    _ends: [Link; 2],
}

impl Ground {
    /// One host or two.
    ///
    /// # Errors
    /// With what is missing, and what to do about it.
    pub(super) fn new(hosts: u8) -> Result<Ground> {
        if hosts < 2 {
            return Ok(Ground::Loopback);
        }
        if !user::is_root_inside() {
            user::become_root_inside().map_err(denied)?;
        }
        Ok(Ground::Cable(Box::new(Cable::new().map_err(denied)?)))
    }

    /// Where the first process listens.
    pub(super) fn address(&self) -> IpAddr {
        match self {
            Ground::Loopback => Ipv4Addr::LOCALHOST.into(),
            Ground::Cable(_) => NEAR.into(),
        }
    }

    /// Where who runs beside the second process listens.
    pub(super) fn far_address(&self) -> IpAddr {
        match self {
            Ground::Loopback => Ipv4Addr::LOCALHOST.into(),
            Ground::Cable(_) => FAR.into(),
        }
    }

    /// Runs `work` where the first process is to be.
    ///
    /// # Errors
    /// If that cannot be entered.
    pub(super) fn near<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T> {
        match self {
            Ground::Loopback => Ok(work()),
            Ground::Cable(cable) => cable.near.run(work).map_err(denied),
        }
    }

    /// Has `command` start where the second process is to be.
    ///
    /// # Errors
    /// At a limit on descriptors.
    pub(super) fn far(&self, command: &mut Command) -> Result<()> {
        match self {
            Ground::Loopback => Ok(()),
            Ground::Cable(cable) => cable.far.hold(command).map_err(denied),
        }
    }

    /// Has `command`, which looks for networks in `/sys`, start where the first process is, or where the
    /// second is to be.
    ///
    /// # Errors
    /// At a limit on descriptors.
    pub(super) fn with_sys(&self, side: Side, command: &mut Command) -> Result<(), netns::Error> {
        match (self, side) {
            (Ground::Loopback, _) => Ok(()),
            (Ground::Cable(cable), Side::First) => cable.near.hold_with_sys(command),
            (Ground::Cable(cable), Side::Second) => cable.far.hold_with_sys(command),
        }
    }

    /// Whether [`Ground::with_sys`] can be had.
    ///
    /// # Errors
    /// With what is missing.
    pub(super) fn check_sys(&self) -> Result<(), netns::Error> {
        match self {
            Ground::Loopback => Ok(()),
            Ground::Cable(cable) => cable.near.check_sys().and_then(|()| cable.far.check_sys()),
        }
    }

    /// Where it is, in a sentence.
    pub(super) fn says(&self) -> &'static str {
        match self {
            Ground::Loopback => "Over the loopback of this host.",
            Ground::Cable(_) => {
                "Between two network namespaces, over a veth pair with packets of 1500 bytes."
            }
        }
    }
}

impl Cable {
    fn new() -> Result<Cable, netns::Error> {
        let (near, far) = (Namespace::new()?, Namespace::new()?);
        let ends = veth::pair((&near, "near"), (&far, "far"), MTU)?;
        ends.0.add_address(IpAddr::V4(NEAR), 24)?;
        ends.1.add_address(IpAddr::V4(FAR), 24)?;
        ends.1.up()?;
        ends.0.up()?;
        // If it does not come to that, connecting fails and says so.
        ends.0.wait_until_running(SOON)?;
        Ok(Cable { near, far, _ends: [ends.0, ends.1] })
    }
}

fn denied(why: netns::Error) -> Fail {
    Fail::Said(format!(
        "--hosts 2 takes two network namespaces, which cannot be had: {why}; without them \
         `pinfold perf tcp` measures over the loopback"
    ))
}
