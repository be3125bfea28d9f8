//! The ground of the two processes: one host, or two that are networks of this machine's own.

use std::{
    net::{IpAddr, Ipv4Addr},
    process::Command,
    time::Duration,
};

use pinfold_netns::{Link, Namespace, user, veth};

use crate::{
    fail::{Fail, Result},
    terms::Side,
};

/// The longest packet, as on an Ethernet.
const MTU: u32 = 1500;
/// Addresses of RFC 5737's examples, which no other host has.
const NEAR: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
const FAR: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 2);
/// Time that a cable may take to come up.
const SOON: Duration = Duration::from_secs(2);

/// The network that messages go over.
pub(super) enum Ground {
    Loopback,
    Cable(Box<Cable>),
}

/// Two networks; they are gone when this is dropped, or with the processes.
pub(super) struct Cable {
    near: Namespace,
    far: Namespace,
    _ends: [Link; 2],
}

impl Ground {
    /// One host or two.
    ///
    /// # Errors
    /// The missing facility, and a remedy.
    pub(super) fn new(hosts: u8) -> Result<Ground> {
        if hosts < 2 {
            return Ok(Ground::Loopback);
        }
        if !user::is_root_inside() {
            user::become_root_inside().map_err(denied)?;
        }
        Ok(Ground::Cable(Box::new(Cable::new().map_err(denied)?)))
    }

    /// The address at which the first process listens.
    pub(super) fn address(&self) -> IpAddr {
        match self {
            Ground::Loopback => Ipv4Addr::LOCALHOST.into(),
            Ground::Cable(_) => NEAR.into(),
        }
    }

    /// The address of a listener that runs beside the second process.
    pub(super) fn far_address(&self) -> IpAddr {
        match self {
            Ground::Loopback => Ipv4Addr::LOCALHOST.into(),
            Ground::Cable(_) => FAR.into(),
        }
    }

    /// Runs `work` in the network of the first process.
    ///
    /// # Errors
    /// An error if that network cannot be entered.
    pub(super) fn near<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T> {
        match self {
            Ground::Loopback => Ok(work()),
            Ground::Cable(cable) => cable.near.run(work).map_err(denied),
        }
    }

    /// Makes `command` start in the network of the second process.
    ///
    /// # Errors
    /// An error at a limit on descriptors.
    pub(super) fn far(&self, command: &mut Command) -> Result<()> {
        match self {
            Ground::Loopback => Ok(()),
            Ground::Cable(cable) => cable.far.hold(command).map_err(denied),
        }
    }

    /// Makes `command`, which looks for networks in `/sys`, start in the network of the first
    /// process, or of the second.
    ///
    /// # Errors
    /// An error at a limit on descriptors.
    pub(super) fn with_sys(
        &self,
        side: Side,
        command: &mut Command,
    ) -> Result<(), pinfold_netns::Error> {
        match (self, side) {
            (Ground::Loopback, _) => Ok(()),
            (Ground::Cable(cable), Side::First) => cable.near.hold_with_sys(command),
            (Ground::Cable(cable), Side::Second) => cable.far.hold_with_sys(command),
        }
    }

    /// Checks that [`Ground::with_sys`] can be had.
    ///
    /// # Errors
    /// With what is missing.
    pub(super) fn check_sys(&self) -> Result<(), pinfold_netns::Error> {
        match self {
            Ground::Loopback => Ok(()),
            Ground::Cable(cable) => cable.near.check_sys().and_then(|()| cable.far.check_sys()),
        }
    }

    /// Its name, in a sentence.
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
    fn new() -> Result<Cable, pinfold_netns::Error> {
        let (near, far) = (Namespace::new()?, Namespace::new()?);
        let ends = veth::pair((&near, "near"), (&far, "far"), MTU)?;
        ends.0.add_address(IpAddr::V4(NEAR), 24)?;
        ends.1.add_address(IpAddr::V4(FAR), 24)?;
        ends.1.up()?;
        ends.0.up()?;
        // If the link does not come up, connecting fails and says so.
        ends.0.wait_until_running(SOON)?;
        Ok(Cable { near, far, _ends: [ends.0, ends.1] })
    }
}

fn denied(why: pinfold_netns::Error) -> Fail {
    Fail::Said(format!(
        "--hosts 2 takes two network namespaces, which cannot be had: {why}; without them \
         `pinfold perf tcp` measures over the loopback"
    ))
}
