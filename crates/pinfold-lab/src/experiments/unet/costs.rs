//! `unet-costs`: the costs of messages with and without translation (Table 1).

use pinfold::translate::{
    Rights, SpaceId,
    tlb::{Geometry, Lookup, Tlb},
};

use super::{failed, fresh, full};
use crate::{
    LabError,
    experiment::Run,
    here::{
        copying::{cached, copy},
        memory::{Block, check},
        pinning::cache_cost,
        timing::median_ns,
    },
    models::unet::{
        Interface, PAGE_BYTES, PageState,
        systems::{ATM, ATM_MM, ETHERNET_NT_MM, LONG_BYTES, SHORT_BYTES, SYSTEMS, System},
    },
    outcome::{Axis, Claim, Column, Finding, Outcome, Plot, Value, Verdict},
};

const ID: &str = "unet-costs";
const SPACE: SpaceId = SpaceId(1);
const SPOT: &str = "sum of rows of Table 1";

/// The costs of translation in one system, µs.
struct Costs {
    send_hit: f64,
    receive_hit: f64,
    send_miss: f64,
    receive_miss: f64,
    zeros: f64,
    shared: f64,
    disk: f64,
}

/// Runs the experiment.
///
/// # Errors
/// The library's TLB refused its shape.
pub(super) fn run(run: &mut Run<'_>) -> Result<Outcome, LabError> {
    let here = if run.here() { measure(run) } else { Err("it was not asked for".into()) };
    let (atm, nt) = (costs(ATM_MM)?, costs(ETHERNET_NT_MM)?);
    let mut outcome = Outcome::new();
    for system in SYSTEMS {
        outcome.values.extend(plain(system, here.as_ref().ok())?);
    }
    let pinned = here.as_ref().ok().map(|here| here.pinning_us);
    let hit = here.as_ref().ok().map(|here| here.hit_us);
    for (name, at, paper, model, here) in [
        (ATM_MM.name, "send, hit", 1.0, atm.send_hit, hit),
        (ATM_MM.name, "reception, hit", 2.0, atm.receive_hit, hit),
        (ETHERNET_NT_MM.name, "send, hit", 1.0, nt.send_hit, hit),
        (ETHERNET_NT_MM.name, "reception, hit", 1.0, nt.receive_hit, hit),
    ] {
        let value = Value::new("translation", name, at, "µs").paper(paper, "Table 1");
        outcome.values.push(value.model(model).here(here).fitted());
    }
    let doubles = "the text says that copying or zeroing a page about doubles a miss of 50 µs; \
                   the rows of Table 1 add up to less";
    for (name, at, paper, model, text) in [
        (ATM_MM.name, "send, miss", 50.0, atm.send_miss, "section 6.1"),
        (ATM_MM.name, "buffer, miss", 50.0, atm.receive_miss, "section 6.1"),
        (ATM_MM.name, "buffer, zeros", 74.0, atm.zeros, SPOT),
        (ATM_MM.name, "buffer, shared", 82.0, atm.shared, SPOT),
        (ATM_MM.name, "send, on disk", 22_000.0, atm.disk, "Table 1"),
        (ETHERNET_NT_MM.name, "send, miss", 20.0, nt.send_miss, SPOT),
        (ETHERNET_NT_MM.name, "buffer, miss", 41.0, nt.receive_miss, SPOT),
        (ETHERNET_NT_MM.name, "send, on disk", 22_000.0, nt.disk, "Table 1"),
    ] {
        let value = Value::new("translation", name, at, "µs").paper(paper, text).model(model);
        let value = if at.ends_with("miss") { value.here(pinned) } else { value };
        // Only the text's own figure is independent of the rows.
        outcome.values.push(value.fitted_if(text != "section 6.1"));
    }
    for (at, model) in [("buffer, zeros", atm.zeros), ("buffer, shared", atm.shared)] {
        let value = Value::new("translation in the text", ATM_MM.name, at, "µs");
        outcome.values.push(value.paper(100.0, "section 6.1").model(model).contradicted(doubles));
    }
    outcome.claims = claims(&atm, &nt, here.as_ref());
    let count = run.pick(20_000, 1_000_000);
    outcome.plots.push(plot(run, count)?);
    outcome.note(
        "The rows of Table 1 are the model's parameters, so that each row by itself is fitted. \
         Predicted are the sums that the text states. They are not added up by hand: the \
         library's own TLB of 1,024 entries, direct-mapped, with a victim list of 16, is filled, \
         and a message then hits or misses, and unpins a page if the TLB hands one back. Its index \
         function is the library's, as the paper does not state one; with a full TLB each miss \
         unpins one page whatever the function is.",
    );
    outcome.note(
        "Here, a hit is a look-up of the library's TLB, a miss pins one page with an io_uring and \
         unpins another, through the library's pin-down cache: there is neither a handshake with \
         an interface nor an interrupt in that.",
    );
    if let Err(why) = &here {
        outcome.note(format!("Not measured here: {why}."));
    }
    Ok(outcome)
}

/// A message without misses, of each size.
fn plain(system: System, here: Option<&Here>) -> Result<Vec<Value>, LabError> {
    let mut interface = Interface::new(system).map_err(|why| failed(ID, why))?;
    interface.send(SPACE, 0, PageState::Present);
    let hit_us = |of: fn(&crate::models::unet::systems::Translation) -> f64| {
        system.translation.as_ref().map_or(0.0, of)
    };
    let sent = system.trap_us.unwrap_or(0.0) + system.send_queue_us;
    let mut values = vec![
        Value::new("message", system.name, "send", "µs")
            .paper(sent + hit_us(|rows| rows.send_hit_us), SPOT)
            .model(interface.send(SPACE, 0, PageState::Present).latency_us)
            .fitted(),
    ];
    let copies = system.copy_us.map_or([0.0; 2], |(short, long)| [short, long]);
    for ((at, bytes), copy_us) in [SHORT_BYTES, LONG_BYTES].into_iter().enumerate().zip(copies) {
        let received = system.interrupt_us.unwrap_or(0.0) + system.receive_queue_us;
        let stated = received + hit_us(|rows| rows.receive_hit_us) + copy_us;
        let place = format!("reception, {bytes} B");
        let model = interface.receive(bytes).latency_us;
        let value = Value::new("message", system.name, place, "µs").paper(stated, SPOT);
        values.push(value.model(model).fitted());
        if system.copy_us.is_some() {
            let value = Value::new("copy", system.name, format!("{bytes} B"), "µs");
            let here = here.map(|here| here.copy_us[at]);
            values.push(value.paper(copy_us, "Table 1").model(copy_us).here(here).fitted());
        }
    }
    Ok(values)
}

/// Costs of translation with a full TLB.
fn costs(system: System) -> Result<Costs, LabError> {
    let mut interface = full(ID, system)?;
    let own = system.trap_us.unwrap_or(0.0) + system.send_queue_us;
    let send_miss = interface.send(SPACE, fresh(0), PageState::Present).latency_us - own;
    let send_hit = interface.send(SPACE, fresh(0), PageState::Present).latency_us - own;
    let plain = System { translation: None, ..system };
    let mut without = Interface::new(plain).map_err(|why| failed(ID, why))?;
    let receive_hit = interface.receive(40).latency_us - without.receive(40).latency_us;
    let mut offer = |at: u64, state: PageState| interface.offer(SPACE, fresh(at), state).latency_us;
    Ok(Costs {
        send_hit,
        receive_hit,
        send_miss,
        receive_miss: offer(1, PageState::Present),
        zeros: offer(2, PageState::Absent),
        shared: offer(3, PageState::Shared),
        disk: interface.send(SPACE, fresh(4), PageState::OnDisk).latency_us - own,
    })
}

fn claims(atm: &Costs, nt: &Costs, here: Result<&Here, &String>) -> Vec<Claim> {
    let not_here = "there is no interface with a TLB here";
    let misses = [atm.send_miss, atm.receive_miss, atm.zeros, atm.shared];
    let is_near = misses.iter().all(|us| (42.5..=115.0).contains(us));
    let cheap = match here {
        Err(why) => Finding::not_measured(why.clone()),
        Ok(here) => Finding::of(
            here.hit_us * 10.0 < here.pinning_us,
            format!("{:.4} µs for a hit, {:.2} µs for a miss", here.hit_us, here.pinning_us),
        ),
    };
    vec![
        Claim {
            sentence: "a hit costs next to nothing beside a miss: 1 to 2 µs against 50 to 100 µs \
                       on the co-processor"
                .into(),
            model: Finding::of(
                is_near && atm.send_hit <= 2.0 && atm.receive_hit <= 2.0,
                format!("hits {} and {} µs, misses {misses:?} µs", atm.send_hit, atm.receive_hit),
            ),
            here: cheap,
        },
        Claim::modelled(
            "copying or zeroing the page about doubles a miss",
            Finding::new(
                Verdict::PaperContradictsItself,
                format!(
                    "the rows of Table 1 make it {:.2} and {:.2} times a miss, not twice",
                    atm.shared / atm.receive_miss,
                    atm.zeros / atm.receive_miss
                ),
            ),
            not_here,
        ),
        Claim::modelled(
            "without a processor on the interface every miss is cheaper",
            Finding::of(
                nt.send_miss < atm.send_miss && nt.receive_miss < atm.receive_miss,
                format!(
                    "send {} against {} µs, buffer {} against {} µs",
                    nt.send_miss, atm.send_miss, nt.receive_miss, atm.receive_miss
                ),
            ),
            not_here,
        ),
    ]
}

/// Mean costs of sends, of which a part go from pages that were never seen.
fn plot(run: &Run<'_>, count: u64) -> Result<Plot, LabError> {
    let mut plot = Plot::new(
        "Table 1: mean send by its misses",
        Axis::linear("misses, part of all"),
        Axis::linear("µs"),
    );
    for (stream, (system, stated)) in
        [(ATM_MM, [11.0, 59.0]), (ETHERNET_NT_MM, [6.8, 25.8]), (ATM, [10.0, 10.0])]
            .into_iter()
            .enumerate()
    {
        let mut points = Vec::new();
        for tenth in 0..=10 {
            let mut random = run.random(stream as u64 * 16 + tenth);
            let mut interface = full(ID, system)?;
            interface.send(SPACE, fresh(0), PageState::Present);
            let (mut page, mut sum_us) = (0, 0.0);
            for _ in 0..count {
                page += u64::from(random.below(10) < tenth);
                sum_us += interface.send(SPACE, fresh(page), PageState::Present).latency_us;
            }
            points.push((tenth as f64 / 10.0, sum_us / count as f64));
        }
        plot.add(system.name, Column::Model, points);
        plot.add(system.name, Column::Paper, vec![(0.0, stated[0]), (1.0, stated[1])]);
    }
    Ok(plot)
}

/// Costs on this machine, µs.
struct Here {
    hit_us: f64,
    /// A page pinned and another unpinned.
    pinning_us: f64,
    /// Copies of the two sizes within the cache.
    copy_us: [f64; 2],
}

fn measure(run: &Run<'_>) -> Result<Here, String> {
    let (turns, calls) = run.pick((9, 1000), (49, 10_000));
    let mut tlb: Tlb<u64> = Tlb::new(Geometry::default()).map_err(|why| why.to_string())?;
    const PAGES: u64 = 256;
    for page in 0..PAGES {
        let _ = tlb.insert(SPACE, page * PAGE_BYTES, Rights::Read, page);
    }
    let hit_ns = median_ns(turns, calls, |call| {
        let page = call as u64 % PAGES;
        match tlb.look_up(SPACE, page * PAGE_BYTES, Rights::Read) {
            Lookup::Hit(value) if value == page => Ok(()),
            other => Err(format!("page {page} was looked up as {other:?}")),
        }
    })?;
    let pinning = cache_cost(1, turns, 40)?;
    let mut copy_us = [0.0; 2];
    for (us, bytes) in copy_us.iter_mut().zip([SHORT_BYTES, LONG_BYTES]) {
        let from = Block::new(bytes as usize, 1);
        let mut to = Block::new(bytes as usize, 2);
        *us = median_ns(turns, calls, |_| {
            copy(cached(), from.get(), to.get_mut());
            Ok::<(), String>(())
        })? / 1e3;
        check(to.get(), 0, 1)?;
    }
    Ok(Here { hit_us: hit_ns / 1e3, pinning_us: pinning.miss_ns / 1e3, copy_us })
}
