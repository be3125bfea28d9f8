//! Findings that were never measured, for tests of the output.

use std::time::Duration;

use super::{
    class::Class,
    findings::Findings,
    load::Conditions,
    machine::Machine,
    record::Collected,
    stats::Samples,
    terms::{Cell, Id, Kind, Memory, Route, Setting, What},
};

/// Samples of these picoseconds, of a message each.
pub(crate) fn samples(ps: &[u64]) -> Samples {
    Samples { ps: ps.to_vec(), messages: 1 }
}

/// A bit of everything.
pub(crate) fn findings() -> Findings {
    let mut collected = Collected::default();
    let latency = |size| Cell::alone(What::Latency, size, false);
    let auto = Id::pinfold(Route::Auto);
    for (size, ps) in [(8, 80_000), (4096, 500_000), (1 << 20, 80_000_000)] {
        collected.add(latency(size), auto, Class::Near, &samples(&[ps, ps, 2 * ps]));
        collected.add(latency(size), Id::plain(Kind::Pipe), Class::Near, &samples(&[10 * ps]));
        collected.add(latency(size), Id::plain(Kind::Tcp), Class::Near, &samples(&[50 * ps]));
        collected.add(latency(size), Id::plain(Kind::Ring), Class::Near, &samples(&[ps * 9 / 10]));
        collected.add(latency(size), Id::plain(Kind::Memcpy), Class::Near, &samples(&[ps / 4]));
    }
    collected.add(latency(8), Id::plain(Kind::Line), Class::Near, &samples(&[50_000]));
    collected.add(latency(8), auto, Class::Far, &samples(&[300_000]));
    collected.add(latency(8), auto, Class::Mixed, &samples(&[200_000]));
    collected.note_path(latency(8), auto, "inline");
    let stream = Cell::alone(What::Bandwidth, 1 << 20, false);
    collected.add(stream, auto, Class::Near, &samples(&[200_000_000]));
    collected.add(stream, Id::pinfold(Route::Eager), Class::Near, &samples(&[210_000_000]));
    collected.add(stream, Id::plain(Kind::Cma), Class::Near, &samples(&[100_000_000]));
    let arena = |touched| Cell::alone(What::Bandwidth, 4 << 20, touched);
    let near = |collected: &mut Collected, touched, id, ps| {
        collected.add(arena(touched), id, Class::Near, &samples(&[ps]));
    };
    near(&mut collected, false, auto, 400_000_000);
    near(&mut collected, false, Id::ARENA, 100_000_000);
    near(&mut collected, true, Id::ARENA, 200_000_000);
    near(&mut collected, false, Id::pinfold(Route::Mapped), 110_000_000);
    near(&mut collected, false, Id::plain(Kind::Mapping), 90_000_000);
    near(&mut collected, false, Id::plain(Kind::Ring), 300_000_000);
    near(&mut collected, false, Id::plain(Kind::Pipe), 500_000_000);
    near(&mut collected, true, Id::plain(Kind::Pipe), 600_000_000);
    collected.note_path(arena(false), Id::ARENA, "mapped");
    collected.note_path(arena(true), Id::ARENA, "mapped");
    collected.add(latency(1 << 20), Id::pinfold(Route::Handoff), Class::Near, &samples(&[100_000]));
    collected.add(latency(4096), Id::pinfold(Route::Get), Class::Near, &samples(&[200_000]));
    collected.add(latency(8), Id::pinfold(Route::Active), Class::Near, &samples(&[200_000]));
    // By address: written by the kernel, by it alone, by the agent, and where it is mapped.
    let mapped = Id { memory: Memory::Arena, ..Id::pinfold(Route::Write) };
    for (id, ps) in [
        (Id::pinfold(Route::Write), 2_000_000),
        (Id::plain(Kind::CmaWrite), 1_500_000),
        (Id::pinfold(Route::WriteAgent), 4_000_000),
        (mapped, 300_000),
    ] {
        collected.add(latency(4096), id, Class::Near, &samples(&[ps]));
    }
    collected.add(latency(8), Id::plain(Kind::Unix), Class::Near, &samples(&[1_200_000]));
    let rate = Cell::alone(What::Rate, 8, false);
    collected.add(rate, auto, Class::Mixed, &samples(&[40_000]));
    for (route, ps) in [(Route::FetchAdd, 40_000), (Route::Contended, 30_000)] {
        collected.add(rate, Id::pinfold(route), Class::Near, &samples(&[ps]));
    }
    // Beside a third process that takes a core.
    let beside = Cell { setting: Setting::Neighbour, ..latency(8) };
    collected.add(beside, auto, Class::Mixed, &samples(&[9_000_000]));
    collected.add(beside, Id::plain(Kind::Unix), Class::Mixed, &samples(&[6_000_000]));
    let cpu = Cell::alone(What::Cpu, 4096, false);
    collected.add(cpu, auto, Class::Near, &samples(&[1_000_000]));
    let machine = Machine {
        processor: "Test <processor> & co".into(),
        processors: 2,
        kernel: "Linux 6.1".into(),
        memory_bytes: 8 << 30,
        cores: [Some(0), Some(1)],
    };
    Findings {
        machine,
        collected,
        hops_ns: vec![50.0, 50.0, 165.0],
        conditions: Conditions::default(),
        notes: vec!["tcp cannot be measured here: no <network>".into()],
        touched: false,
        took: Duration::from_secs(25),
    }
}
