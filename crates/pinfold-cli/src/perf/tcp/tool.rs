//! Programs of other libraries: one run each, a server where the second process is and a client here.

use std::{
    fs, io,
    net::{IpAddr, TcpListener},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use pinfold_sys::affinity;

use super::{
    cell::{Cell, Contestant},
    ground::Ground,
    tool_text,
};
use crate::perf::terms::What;

/// How long a run may take before it is given up.
const PATIENCE: Duration = Duration::from_secs(8);
/// How long a server may take to listen, and to end after its client.
const SOON: Duration = Duration::from_secs(5);

/// Why one cannot take part there, if that is known beforehand.
pub(super) fn lacks(who: Contestant, ground: &Ground) -> Option<String> {
    (who == Contestant::Ucx && !ground.address().is_loopback()).then(|| {
        "ucx_perftest looks for networks in /sys, which shows those of the host alone; without \
         --hosts 2 it takes part"
            .into()
    })
}

/// Nanoseconds of a message by a run of about `allowance`, if one takes about `expected_ns`; or why there are
/// none.
pub(super) fn run(
    who: Contestant,
    cell: &Cell,
    ground: &Ground,
    core: Option<usize>,
    expected_ns: Option<f64>,
    allowance: Duration,
) -> Result<f64, String> {
    let tool = Tool::of(who, cell)?;
    let guess = 20_000.0 + cell.bytes as f64;
    let ways = if cell.what == What::Latency { 2.0 } else { 1.0 };
    let count = allowance.as_nanos() as f64 / (ways * expected_ns.unwrap_or(guess));
    let count = count.clamp(20.0, 50_000.0) as u64;
    let failed = |why: io::Error| match why.kind() {
        // A folder of PATH that may not be searched counts as that, too.
        io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied => {
            format!("{} is not installed (it is in {})", tool.program, tool.package)
        }
        _ => format!("{}: {why}", tool.program),
    };
    let port = free_port(ground.address()).map_err(failed)?;
    let mut server = tool.command(cell, count, port, None, ground);
    server.stdout(Stdio::null());
    ground.far(&mut server).map_err(|why| why.to_string())?;
    let mut server = Running(on_core(core, server).map_err(failed)?);
    let id = server.0.id();
    if !wait(SOON, || listens(id, port)) {
        return Err(format!("{} does not listen", tool.program));
    }
    let mut client = tool.command(cell, count, port, Some(ground.far_address()), ground);
    client.stdout(Stdio::piped());
    let mut client = Running(client.spawn().map_err(failed)?);
    let text = client
        .ended(PATIENCE)
        .ok_or_else(|| format!("{} took more than {} seconds", tool.program, PATIENCE.as_secs()))?;
    server.ended(SOON);
    (tool.read)(&text).ok_or_else(|| {
        let last = text.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("nothing");
        format!("{} prints no figure, but: {}", tool.program, last.trim())
    })
}

/// A program that measures.
struct Tool {
    program: &'static str,
    package: &'static str,
    read: fn(&str) -> Option<f64>,
}

impl Tool {
    fn of(who: Contestant, cell: &Cell) -> Result<Tool, String> {
        let (program, package, read): (_, _, fn(&str) -> Option<f64>) = match (who, cell.what) {
            (Contestant::Ucx, _) => ("ucx_perftest", "ucx-utils", tool_text::ucx),
            (Contestant::Libfabric, What::Latency) => {
                ("fi_pingpong", "libfabric-bin", tool_text::libfabric)
            }
            (Contestant::Libfabric, _) => ("fi_rdm_tagged_bw", "fabtests", tool_text::libfabric),
            _ => return Err(format!("{} is no program", who.name())),
        };
        Ok(Tool { program, package, read })
    }

    /// A server, or a client of the one at `to`.
    fn command(
        &self,
        cell: &Cell,
        count: u64,
        port: u16,
        to: Option<IpAddr>,
        ground: &Ground,
    ) -> Command {
        let mut command = Command::new(self.program);
        let (size, count, port) = (cell.bytes.to_string(), count.to_string(), port.to_string());
        match self.program {
            "ucx_perftest" => {
                let test = if cell.what == What::Latency { "tag_lat" } else { "tag_bw" };
                // The loopback is used only if it is named.
                command.env("UCX_TLS", "tcp").env("UCX_WARN_UNUSED_ENV_VARS", "n");
                if ground.address().is_loopback() {
                    command.env("UCX_NET_DEVICES", "lo");
                }
                command.args(["-p", &port]);
                if to.is_some() {
                    command.args(["-t", test, "-s", &size, "-n", &count, "-w", "20", "-f", "-v"]);
                }
            }
            program => {
                let kind = if program == "fi_pingpong" {
                    ["-p", "tcp", "-e", "msg"]
                } else {
                    ["-p", "tcp;ofi_rxm", "-w", "10"]
                };
                command.args(kind).args(["-S", &size, "-I", &count]);
                command.args([if to.is_some() { "-P" } else { "-B" }, &port]);
            }
        }
        command.args(to.map(|to| to.to_string()));
        command.stdin(Stdio::null()).stderr(Stdio::null());
        command
    }
}

/// A program that is ended if it has not ended.
struct Running(Child);

impl Running {
    /// What it has printed, once it has ended.
    fn ended(&mut self, patience: Duration) -> Option<String> {
        if !wait(patience, || matches!(self.0.try_wait(), Ok(Some(_)) | Err(_))) {
            return None;
        }
        let mut text = String::new();
        if let Some(mut out) = self.0.stdout.take() {
            let _ = io::Read::read_to_string(&mut out, &mut text);
        }
        Some(text)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Both do nothing to a program that has ended and was waited for.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Looks again and again until `done` says so.
fn wait(patience: Duration, mut done: impl FnMut() -> bool) -> bool {
    let start = Instant::now();
    while !done() {
        if start.elapsed() > patience {
            return false;
        }
        thread::sleep(Duration::from_millis(1));
    }
    true
}

/// Starts a program on a core: a child has that of the thread that starts it.
fn on_core(core: Option<usize>, mut command: Command) -> io::Result<Child> {
    thread::scope(|scope| {
        let start = move || {
            // Where it cannot be bound, it is as it is.
            let _ = core.map(affinity::pin_to);
            command.spawn()
        };
        match scope.spawn(start).join() {
            Ok(child) => child,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    })
}

fn free_port(at: IpAddr) -> io::Result<u16> {
    Ok(TcpListener::bind((at, 0))?.local_addr()?.port())
}

/// Whether somebody listens at `port` where process `id` is.
fn listens(id: u32, port: u16) -> bool {
    ["tcp", "tcp6"].iter().any(|table| {
        let table = fs::read_to_string(format!("/proc/{id}/net/{table}"));
        table.is_ok_and(|table| tool_text::listens(&table, port))
    })
}
