//! UCX, by its program: for each run a server on the second process's side and a client here.

use std::{
    fs, io,
    net::{IpAddr, TcpListener},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use pinfold_sys::program;

use super::{cell::Cell, ground::Ground, tool_text};
use crate::terms::{Side, What};

const PROGRAM: &str = "ucx_perftest";
const PACKAGE: &str = "ucx-utils";

/// Time that a run may take before it is given up.
const PATIENCE: Duration = Duration::from_secs(8);
/// Time that a server may take to listen, and to end after its client.
const SOON: Duration = Duration::from_secs(5);

/// The reason why it cannot take part there, if that is known beforehand.
pub(super) fn lacks(ground: &Ground) -> Option<String> {
    let why = ground.check_sys().err()?;
    Some(format!(
        "{PROGRAM} looks for networks in /sys, and one that shows those of --hosts 2 cannot be had: {why}"
    ))
}

/// Nanoseconds of a message by a run of about `allowance`, if one takes about `expected_ns`; or why
/// there are none. The server runs on `core`. Both programs end with this thread, however it ends.
pub(super) fn run(
    cell: &Cell,
    ground: &Ground,
    core: Option<usize>,
    expected_ns: Option<f64>,
    allowance: Duration,
) -> Result<f64, String> {
    let guess = 20_000.0 + cell.bytes as f64;
    let ways = if cell.what == What::Latency { 2.0 } else { 1.0 };
    let count = allowance.as_nanos() as f64 / (ways * expected_ns.unwrap_or(guess));
    let count = count.clamp(20.0, 50_000.0) as u64;
    let failed = |why: io::Error| match why.kind() {
        // A folder of PATH that may not be searched counts as that, too.
        io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied => {
            format!("{PROGRAM} is not installed (it is in {PACKAGE})")
        }
        _ => format!("{PROGRAM}: {why}"),
    };
    let port = free_port(ground.address()).map_err(failed)?;
    let mut server = command(port, Side::Second, ground)?;
    if let Some(core) = core {
        program::pin(&mut server, core);
    }
    let mut server = Running(server.stdout(Stdio::null()).spawn().map_err(failed)?);
    let id = server.0.id();
    if !wait(SOON, || listens(id, port)) {
        return Err(format!("{PROGRAM} does not listen"));
    }
    let mut client = command(port, Side::First, ground)?;
    let test = if cell.what == What::Latency { "tag_lat" } else { "tag_bw" };
    client.args(["-t", test, "-s", &cell.bytes.to_string(), "-n", &count.to_string()]);
    client.args(["-w", "20", "-f", "-v", &ground.far_address().to_string()]);
    let mut client = Running(client.stdout(Stdio::piped()).spawn().map_err(failed)?);
    let text = client
        .ended(PATIENCE)
        .ok_or_else(|| format!("{PROGRAM} took more than {} seconds", PATIENCE.as_secs()))?;
    server.ended(SOON);
    tool_text::ucx(&text).ok_or_else(|| {
        let last = text.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("nothing");
        format!("{PROGRAM} prints no figure, but: {}", last.trim())
    })
}

/// The program on the side `side`, over TCP alone; its server needs no more than that.
fn command(port: u16, side: Side, ground: &Ground) -> Result<Command, String> {
    let mut command = Command::new(PROGRAM);
    command.env("UCX_TLS", "tcp").env("UCX_WARN_UNUSED_ENV_VARS", "n");
    // The loopback is used only if it is named.
    if ground.address().is_loopback() {
        command.env("UCX_NET_DEVICES", "lo");
    }
    command.args(["-p", &port.to_string()]).stdin(Stdio::null()).stderr(Stdio::null());
    program::end_with_this_thread(&mut command);
    ground.with_sys(side, &mut command).map_err(|why| why.to_string())?;
    Ok(command)
}

/// A program that is ended if it has not ended.
struct Running(Child);

impl Running {
    /// The program's output, once it has ended.
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
        pinfold_sys::cpu::clock::pause(Duration::from_millis(1));
    }
    true
}

fn free_port(at: IpAddr) -> io::Result<u16> {
    Ok(TcpListener::bind((at, 0))?.local_addr()?.port())
}

/// Returns whether a socket listens at `port` in the network namespace of process `id`.
fn listens(id: u32, port: u16) -> bool {
    ["tcp", "tcp6"].iter().any(|table| {
        let table = fs::read_to_string(format!("/proc/{id}/net/{table}"));
        table.is_ok_and(|table| tool_text::listens(&table, port))
    })
}
