//! Several processes send to one, which takes what comes first. Run it: `cargo run --example
//! many_to_one`.
//!
//! The program starts itself once for each sender, with the address and the sender's number as its
//! arguments.

use std::{collections::HashMap, env, error::Error, process::Command, time::Duration};

use pinfold::{Endpoint, PeerId, Source, TagMatch};

const SENDERS: u64 = 4;
const MESSAGES: u64 = 500;
const PATIENCE: Duration = Duration::from_secs(10);
/// The tags are the senders' numbers above this one.
const SENDER: u64 = 100;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    if let [address, number] = &arguments[..] {
        return Ok(send_all(address, number.parse()?)?);
    }
    let address = format!("local:many-to-one-{}", std::process::id());
    let endpoint = Endpoint::listen(&address)?;
    let program = env::current_exe()?;
    let mut senders = Vec::new();
    for number in 0..SENDERS {
        senders.push(Command::new(&program).args([&address, &number.to_string()]).spawn()?);
    }
    for _ in 0..SENDERS {
        endpoint.accept_timeout(PATIENCE)?;
    }

    // Messages of one sender come in order; those of several come as they like.
    let mut next: HashMap<PeerId, u64> = HashMap::new();
    for _ in 0..SENDERS * MESSAGES {
        let message = endpoint.recv_timeout(Source::Any, TagMatch::any(), PATIENCE)?;
        assert!((SENDER..SENDER + SENDERS).contains(&message.tag()));
        let expected = next.entry(message.peer()).or_default();
        assert_eq!(*message, expected.to_le_bytes());
        *expected += 1;
    }
    assert_eq!(next.len() as u64, SENDERS);
    assert!(next.values().all(|&count| count == MESSAGES));

    for sender in &mut senders {
        assert!(sender.wait()?.success());
    }
    println!("{MESSAGES} messages from each of {SENDERS} processes came, each one's in order");
    Ok(())
}

fn send_all(address: &str, number: u64) -> pinfold::Result<()> {
    // The label is what the receiver's errors and `pinfold top` call this process.
    let endpoint = Endpoint::builder().label(&format!("sender {number}")).build()?;
    let peer = endpoint.connect(address)?;
    for count in 0..MESSAGES {
        endpoint.send(peer, SENDER + number, &count.to_le_bytes())?;
    }
    // Short sends return before the receiver has them: this waits until it does.
    endpoint.drain(PATIENCE)
}
