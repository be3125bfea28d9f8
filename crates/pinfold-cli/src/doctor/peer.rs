//! A check that the endpoint at an address of the form `tcp:HOST:PORT` can be reached, step by
//! step: it tells the steps that fail from those that do not.

use std::{
    fmt::Display,
    net::{SocketAddr, TcpStream, ToSocketAddrs},
    path::Path,
    process::ExitCode,
    time::{Duration, Instant},
};

use pinfold::Endpoint;
use pinfold_bench::units;

use crate::{
    exit::{self, End},
    output::put,
    words::Words,
};

/// Time that each step may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// Tries it, and says how far it got.
pub(super) fn reach(address: &str, key: Option<&Path>, tls: bool) -> ExitCode {
    let Some(place) = address.strip_prefix("tcp:") else {
        return exit::usage(format_args!(
            "{address}: write tcp:HOST:PORT; what is on this host `pinfold top` shows"
        ));
    };
    exit::end(steps(address, place, key, tls))
}

fn steps(address: &str, place: &str, key: Option<&Path>, tls: bool) -> Result<(), End> {
    let builder = Endpoint::builder().label("pinfold doctor").connect_timeout(PATIENCE);
    let builder = builder.encrypt(tls);
    let builder = key.iter().fold(builder, |builder, key| builder.key_file(key));
    let endpoint = builder.build().map_err(|why| Words(&why).to_string())?;
    match key {
        Some(key) => step("key", format_args!("{} can be used", key.display()))?,
        None => step("key", "none: only endpoints on the loopback can be reached")?,
    }
    let places = place.to_socket_addrs().map_err(|why| format!("{place} leads nowhere: {why}"))?;
    let places: Vec<SocketAddr> = places.collect();
    let all: Vec<String> = places.iter().map(ToString::to_string).collect();
    step("address", all.join(", "))?;
    let start = Instant::now();
    let mut refused = String::from("there is no such address");
    let connected = places.iter().find(|place| {
        let connected = TcpStream::connect_timeout(place, PATIENCE);
        connected.map_err(|why| refused = format!("{place} does not answer: {why}")).is_ok()
    });
    let connected = connected.ok_or(refused)?;
    let took = start.elapsed().as_nanos() as f64;
    step("connection", format_args!("{connected} took one in {}", units::time(took)))?;
    let start = Instant::now();
    let peer = endpoint.connect(address).map_err(|why| format!("no greeting: {}", Words(&why)))?;
    let took = start.elapsed().as_nanos() as f64;
    let info = endpoint.peer(peer).ok_or("the peer has left at once")?;
    step(
        "greeting",
        format_args!("{} greets as an endpoint, in {}", info.name, units::time(took)),
    )?;
    let encryption = match (info.encryption, info.pid) {
        (Some(suite), _) => format!("{suite}, bound to the key"),
        (None, 0) => "none: who is on the way can read and change what is said; see --tls".into(),
        (None, _) => "none: it is on this host, and there is no connection".into(),
    };
    step("encryption", encryption)?;
    let paths: Vec<&str> = info.paths.iter().map(pinfold::Path::name).collect();
    let reason = match (info.pid, info.cma_refused) {
        (0, Some(why)) => format!(" over the connection: {why}"),
        _ => " within this host".into(),
    };
    step("paths", format_args!("{}{reason}", paths.join(", ")))?;
    endpoint.disconnect(peer);
    Ok(())
}

fn step(name: &str, text: impl Display) -> Result<(), End> {
    put("the report", &format!("{name:11} {text}\n")).map_err(End::Lost)
}
