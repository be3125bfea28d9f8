//! A server answers requests: at once, later from another thread, or by an error. Run it: `cargo
//! run --example rpc`.
//!
//! The program starts itself a second time, with the address as its argument; that process is the
//! client.

use std::{env, error::Error, process::Command, sync::mpsc, thread};

use pinfold::{Endpoint, NotHandled, Progress, Replier};

/// The numbers of the handlers, which both sides know.
const SUM: u32 = 1;
const REVERSE: u32 = 2;

fn main() -> Result<(), Box<dyn Error>> {
    if let Some(address) = env::args().nth(1) {
        return Ok(ask(&address)?);
    }
    let (work, taken) = mpsc::channel::<(Replier, Vec<u8>)>();
    let address = format!("local:rpc-{}", std::process::id());
    // Dedicated: a thread of the endpoint's own runs the handlers, whatever this one does.
    let _server = Endpoint::builder()
        .listen(&address)
        .progress(Progress::Dedicated)
        .handle(SUM, |active| {
            // Without an answer for nothing to add: the client gets an error.
            if !active.payload().is_empty() {
                let sum: u64 = active.payload().iter().map(|&byte| u64::from(byte)).sum();
                let _ = active.reply(&sum.to_le_bytes());
            }
        })
        .handle(REVERSE, move |active| {
            // A handler should be short, so a thread does the work, and answers.
            if let Some(answer) = active.reply_later() {
                let _ = work.send((answer, active.payload().to_vec()));
            }
        })
        .build()?;
    thread::spawn(move || {
        for (answer, mut bytes) in taken {
            bytes.reverse();
            let _ = answer.reply_owned(bytes);
        }
    });

    let mut client = Command::new(env::current_exe()?).arg(&address).spawn()?;
    assert!(client.wait()?.success());
    Ok(())
}

fn ask(address: &str) -> pinfold::Result<()> {
    let endpoint = Endpoint::new()?;
    let server = endpoint.connect(address)?;

    // Both requests are on their way before the first answer is waited for.
    let sum = endpoint.request(server, SUM, &[200, 100, 50]);
    let reversed = endpoint.request(server, REVERSE, b"pinfold");
    assert_eq!(*sum.wait()?, 350_u64.to_le_bytes());
    assert_eq!(&*reversed.wait()?, b"dlofnip");

    let nothing = endpoint.request(server, SUM, &[]).wait();
    assert!(matches!(nothing, Err(pinfold::Error::NotHandled { why: NotHandled::NoAnswer, .. })));
    let unknown = endpoint.request(server, 99, &[]).wait();
    assert!(matches!(unknown, Err(pinfold::Error::NotHandled { why: NotHandled::NoHandler, .. })));
    println!("two requests were answered, and two refused by errors");
    Ok(())
}
