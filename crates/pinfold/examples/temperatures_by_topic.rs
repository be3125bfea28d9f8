//! A sensor publishes temperatures; three programs read them, one of which comes late. Run it:
//! `cargo run --example temperatures_by_topic`.
//!
//! The program starts itself again, with the topic as its argument: those processes are the
//! subscribers.

use std::{env, error::Error, process::Command, thread, time::Duration};

use pinfold::topic::{Publisher, Subscriber};

const READERS: usize = 3;
const PATIENCE: Duration = Duration::from_secs(10);
/// The sample that ends it.
const END: f64 = f64::MAX;

fn main() -> Result<(), Box<dyn Error>> {
    if let Some(topic) = env::args().nth(1) {
        return Ok(read(&topic)?);
    }
    let topic = format!("temperatures-{}", std::process::id());
    let sensor = Publisher::<f64>::builder().history(1).open(&topic)?;
    let reader = || Command::new(env::current_exe()?).arg(&topic).spawn();
    let mut readers = vec![reader()?, reader()?];
    let mut number = 0;
    while sensor.subscribers() < READERS {
        // Nobody holds the sensor up: who is slow gets the newest.
        sensor.send(&(20.0 + f64::from(number % 10) / 10.0))?;
        number += 1;
        if number == 20 {
            readers.push(reader()?);
        }
        thread::sleep(Duration::from_millis(5));
    }
    let published = sensor.send(&END)?;
    println!("{} samples, the last one for {} readers", published.number, published.subscribers);
    for reader in &mut readers {
        assert!(reader.wait()?.success());
    }
    Ok(())
}

fn read(topic: &str) -> pinfold::Result<()> {
    let subscriber = Subscriber::<f64>::builder().history(1).open(topic)?;
    let mut before = None;
    loop {
        let sample = subscriber.recv_timeout(PATIENCE)?;
        // In order, and what did not come is counted.
        assert!(before.is_none_or(|before| sample.number() == before + 1 + sample.missed()));
        before = Some(sample.number());
        if sample.read()? == END {
            return Ok(());
        }
    }
}
