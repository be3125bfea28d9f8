//! Two processes send a message to and fro. Run it: `cargo run --example ping_pong`.
//!
//! The program starts itself a second time, with the address as its argument; that process sends
//! each message back as it came.

use std::{env, error::Error, process::Command, time::Duration};

use pinfold::Endpoint;

const ROUNDS: u64 = 1_000;
const PATIENCE: Duration = Duration::from_secs(10);
/// The tag of the messages: a number of the program's own by which receives choose.
const BALL: u64 = 1;

fn main() -> Result<(), Box<dyn Error>> {
    if let Some(address) = env::args().nth(1) {
        return Ok(send_back(&address)?);
    }
    let address = format!("local:ping-pong-{}", std::process::id());
    let endpoint = Endpoint::listen(&address)?;
    let mut other = Command::new(env::current_exe()?).arg(&address).spawn()?;
    let peer = endpoint.accept_timeout(PATIENCE)?;

    for round in 0..ROUNDS {
        endpoint.send(peer, BALL, &round.to_le_bytes())?;
        let back = endpoint.recv(peer, BALL)?;
        assert_eq!(*back, round.to_le_bytes());
    }
    // A longer message takes another path; the receipt says which, and why no other.
    let long = vec![7; 1 << 20];
    let receipt = endpoint.send(peer, BALL, &long)?;
    assert_eq!(*endpoint.recv(peer, BALL)?, long[..]);

    assert!(other.wait()?.success());
    println!("{ROUNDS} short messages went there and back; the long one: {receipt}");
    Ok(())
}

fn send_back(address: &str) -> pinfold::Result<()> {
    let endpoint = Endpoint::new()?;
    let peer = endpoint.connect(address)?;
    for _ in 0..=ROUNDS {
        let ball = endpoint.recv(peer, BALL)?;
        endpoint.send(peer, BALL, &ball)?;
    }
    Ok(())
}
