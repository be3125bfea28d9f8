//! An endpoint in tokio's event loop: its descriptor is waited for beside all others, and no thread
//! is started. Run it: `cargo run --example tokio_ping_pong`.
//!
//! Both sides are tasks of one thread here, which shows that neither ever blocks it.
#![allow(unsafe_code)]

use std::{
    error::Error,
    io,
    os::fd::{AsFd, OwnedFd},
};

use pinfold::{Endpoint, PeerId};
use tokio::{
    io::{Interest, unix::AsyncFd},
    task::LocalSet,
};

const BALL: u64 = 1;
const ROUNDS: u32 = 1000;
/// Long enough to go another way than the short ones.
const LONG: usize = 1 << 20;

/// An endpoint, and its descriptor as tokio knows it.
struct Driven {
    endpoint: Endpoint,
    fd: AsyncFd<OwnedFd>,
}

impl Driven {
    fn new(endpoint: Endpoint) -> io::Result<Driven> {
        let fd = endpoint.as_fd().try_clone_to_owned()?;
        // SAFETY: an `OwnedFd` stays open, and is the same descriptor, as long as it is there.
        let fd = unsafe { AsyncFd::register_with_interest(fd, Interest::READABLE) }?;
        Ok(Driven { endpoint, fd })
    }

    /// Drives the endpoint until `look` finds what it looks for.
    async fn until<T>(&self, mut look: impl FnMut() -> Option<T>) -> Result<T, Box<dyn Error>> {
        loop {
            if let Some(found) = look() {
                return Ok(found);
            }
            // `arm` says that nothing is there: whatever comes after it makes the descriptor
            // readable. So this looks, arms, waits, and looks again.
            if !self.endpoint.progress()? && self.endpoint.arm()? {
                self.fd.readable().await?.clear_ready();
            }
        }
    }

    async fn send(&self, peer: PeerId, ball: Vec<u8>) -> Result<Vec<u8>, Box<dyn Error>> {
        let mut request = self.endpoint.send_owned(peer, BALL, ball);
        let (sent, ball) = self.until(|| request.try_wait()).await?;
        sent?;
        Ok(ball)
    }

    async fn recv(&self, peer: PeerId, ball: Vec<u8>) -> Result<Vec<u8>, Box<dyn Error>> {
        let mut request = self.endpoint.recv_owned(peer, BALL, ball);
        let (received, ball) = self.until(|| request.try_wait()).await?;
        assert_eq!(received?.len, ball.len() as u64);
        Ok(ball)
    }
}

/// The lengths of the balls.
fn balls() -> impl Iterator<Item = usize> {
    (0..ROUNDS).map(|_| 8).chain([LONG])
}

async fn pong(address: String) -> Result<(), Box<dyn Error>> {
    let this = Driven::new(Endpoint::new()?)?;
    let mut calling = this.endpoint.connect_request(&address);
    let peer = this.until(|| calling.try_wait()).await??;
    for len in balls() {
        let mut ball = this.recv(peer, vec![0; len]).await?;
        ball.iter_mut().for_each(|byte| *byte += 1);
        this.send(peer, ball).await?;
    }
    Ok(())
}

async fn ping(this: Driven) -> Result<(), Box<dyn Error>> {
    let mut called = this.endpoint.accept_request();
    let peer = this.until(|| called.try_wait()).await??;
    for len in balls() {
        let ball = this.send(peer, vec![1; len]).await?;
        let ball = this.recv(peer, ball).await?;
        assert!(ball.iter().all(|byte| *byte == 2), "the other side added one to each byte");
    }
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    let address = format!("local:tokio-{}", std::process::id());
    let endpoint = Endpoint::listen(&address)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
    let tasks = LocalSet::new();
    tasks.block_on(&runtime, async {
        let other = tokio::task::spawn_local(pong(address));
        ping(Driven::new(endpoint)?).await?;
        other.await?
    })?;
    println!("{ROUNDS} short balls and a long one went there and back in one thread of tokio's");
    Ok(())
}
