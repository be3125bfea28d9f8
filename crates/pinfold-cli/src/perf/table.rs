//! tables
use super::{args::Output, fail::Result, run::Findings};
pub(crate) fn print(findings: &Findings, output: &Output) -> Result<()> {
    let _ = &output.color;
    if output.json {
        return Ok(());
    }
    for r in findings.collected.records() {
        println!(
            "{:?} {:>10} {:>9} {:>5} {:>12.2} {:>12.2} {}",
            r.what,
            r.id(),
            r.size,
            r.class,
            r.median,
            r.p99,
            r.n
        );
    }
    for n in &findings.notes {
        println!("{n}");
    }
    println!(
        "{} hops {} took {:?}",
        findings.machine.line(),
        findings.hops_ns.len(),
        findings.took
    );
    Ok(())
}
