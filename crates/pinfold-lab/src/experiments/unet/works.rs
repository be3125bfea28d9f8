//! `unet-impl`: the work on the interface's processor, or on the host's (section 7.1).

use pinfold::translate::SpaceId;

use super::{failed, fresh, full};
use crate::{
    LabError,
    experiment::Run,
    models::unet::{
        Cost, Interface, PageState,
        systems::{ATM_MM, ETHERNET_NT_MM, LONG_BYTES, SHORT_BYTES, System},
    },
    outcome::{Axis, Claim, Column, Finding, Outcome, Plot, Value},
};

const ID: &str = "unet-impl";
const SPACE: SpaceId = SpaceId(1);
const SIZES: [u64; 7] = [SHORT_BYTES, 128, 256, 384, 512, 1024, LONG_BYTES];

/// One message, sent from and received into pages that the TLB has, or has not.
fn message(interface: &mut Interface, page: u64, bytes: u64) -> Cost {
    let sent = interface.send(SPACE, fresh(page), PageState::Present);
    sent + interface.receive(bytes)
}

/// Runs the experiment.
///
/// # Errors
/// The library's TLB refused its shape.
pub(super) fn run(_run: &mut Run<'_>) -> Result<Outcome, LabError> {
    let not_here = "the costs are those of two interfaces that are not here";
    let mut outcome = Outcome::new();
    let (mut latency, mut host) = (
        Plot::new("Section 7.1: latency", Axis::linear("bytes"), Axis::linear("µs")),
        Plot::new("Section 7.1: host's processor", Axis::linear("bytes"), Axis::linear("µs")),
    );
    let mut all = Vec::new();
    for system in [ATM_MM, ETHERNET_NT_MM] {
        let mut interface = Interface::new(system).map_err(|why| failed(ID, why))?;
        interface.send(SPACE, fresh(0), PageState::Present);
        let costs: Vec<Cost> =
            SIZES.iter().map(|&bytes| message(&mut interface, 0, bytes)).collect();
        let miss = miss(system)?;
        for (bytes, cost) in SIZES.iter().zip(&costs) {
            let at = format!("{bytes} B");
            for (quantity, us) in [("latency, hits", cost.latency_us), ("host, hits", cost.host_us)]
            {
                outcome.values.push(Value::new(quantity, system.name, &at, "µs").model(us));
            }
        }
        for (quantity, us) in [("latency of a miss", miss.latency_us), ("host, miss", miss.host_us)]
        {
            outcome.values.push(Value::new(quantity, system.name, "send", "µs").model(us));
        }
        let points = |of: fn(&Cost) -> f64| {
            SIZES.iter().zip(&costs).map(|(bytes, cost)| (*bytes as f64, of(cost))).collect()
        };
        latency.add(system.name, Column::Model, points(|cost| cost.latency_us));
        host.add(system.name, Column::Model, points(|cost| cost.host_us));
        all.push((costs, miss));
    }
    let (atm, nt) = (&all[0], &all[1]);
    let is_less = |of: fn(&Cost) -> f64| atm.0.iter().zip(&nt.0).all(|(a, b)| of(a) < of(b));
    outcome.claims.push(Claim::modelled(
        "a processor on the interface takes work off the host",
        Finding::of(
            is_less(|cost| cost.host_us),
            format!(
                "{} µs of the host a message against {:.1} to {:.1} µs, if the TLB hits",
                atm.0[0].host_us,
                nt.0[0].host_us,
                nt.0[nt.0.len() - 1].host_us
            ),
        ),
        not_here,
    ));
    let slower = SIZES.iter().zip(atm.0.iter().zip(&nt.0));
    let faster_nt: Vec<u64> =
        slower.filter(|(_, (a, b))| b.latency_us < a.latency_us).map(|(bytes, _)| *bytes).collect();
    outcome.claims.push(Claim::modelled(
        "the host's faster processor makes the overhead of a message smaller, of any size",
        Finding::of(
            faster_nt.len() == SIZES.len(),
            format!(
                "it does for {faster_nt:?} bytes: {:.1} against {:.1} µs at {SHORT_BYTES} bytes, \
                 but {:.1} against {:.1} µs at {LONG_BYTES}",
                nt.0[0].latency_us,
                atm.0[0].latency_us,
                nt.0[nt.0.len() - 1].latency_us,
                atm.0[atm.0.len() - 1].latency_us
            ),
        ),
        not_here,
    ));
    outcome.claims.push(Claim::modelled(
        "a miss takes longer with a processor on the interface, which has to ask the kernel",
        Finding::of(
            atm.1.latency_us > nt.1.latency_us,
            format!("{:.1} against {:.1} µs", atm.1.latency_us, nt.1.latency_us),
        ),
        not_here,
    ));
    outcome.plots = vec![latency, host];
    outcome.note(
        "The claim about any size fails since the DC21140 cannot deliver in place: it copies each \
         message into the process's buffer, by Table 1 42 µs for 1,498 bytes under NT, which is \
         more than all that the slower processor of the PCA-200 costs. The paper names the copy \
         as a reason to demultiplex on the interface, but compares overheads without it. From \
         Table 1's rows no message of more than some 400 bytes is cheaper by way of the host.",
    );
    Ok(outcome)
}

/// The translation of a send from a page that a full TLB does not have.
fn miss(system: System) -> Result<Cost, LabError> {
    let mut interface = full(ID, system)?;
    let miss = interface.send(SPACE, fresh(1), PageState::Present);
    let hit = interface.send(SPACE, fresh(1), PageState::Present);
    let hit_us = system.translation.map_or(0.0, |rows| rows.send_hit_us);
    let own_us = |of: f64| if of > 0.0 { of - hit_us } else { 0.0 };
    Ok(Cost {
        latency_us: miss.latency_us - own_us(hit.latency_us),
        host_us: miss.host_us - own_us(hit.host_us),
    })
}
