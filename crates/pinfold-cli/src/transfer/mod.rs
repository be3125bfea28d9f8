//! `pinfold send` and `pinfold recv`: files or a stream from one process to another.
//!
//! - [`args`]: the options; [`address`]: the addresses, as they are typed; [`activation`]: the
//!   socket that a service manager passes.
//! - [`sender`], [`receiver`]: the two sides, each over a [`link`]; their protocol is in [`frame`].
//! - [`source`]: the contents read, into [`block`]s; [`extent`]: the data and holes of a file.
//!   [`intake`] over [`target`]: the contents written, put in place only when whole.
//! - [`digest`], [`name`]: contents and names that arrive as they were sent, and do no harm.
//! - [`receipt`], [`meter`]: the reports; [`failure`]: the errors.
//! - [`wait`]: signals and time.

mod activation;
mod address;
mod args;
mod block;
mod digest;
mod extent;
mod failure;
mod frame;
mod intake;
mod link;
mod meter;
mod name;
mod receipt;
mod receiver;
mod sender;
mod source;
mod target;
#[cfg(test)]
mod tests;
mod wait;

use std::{
    io::{IsTerminal, Stdout, Write},
    os::fd::OwnedFd,
    process::ExitCode,
    time::{Duration, Instant},
};

use futures_lite::future::block_on;
use pinfold::{Endpoint, PeerId};

use self::{
    args::CommonArgs,
    block::Blocks,
    failure::Failure,
    frame::{Content, Totals},
    intake::Target,
    link::Link,
    meter::Meter,
    receipt::{Side, Summary, Tally, failure_json},
    source::Plan,
    target::{Directory, Output, Rules},
    wait::{Interrupts, within},
};
pub(crate) use self::{
    args::{RecvArgs, SendArgs},
    frame::VERSION,
};
use crate::{fold::hanging, output, progress::say, words::Words};

/// Time that a sender with nothing to send tries to reach the receiver to say so. It is short,
/// since there may be no receiver; long enough for one that is started at the same time.
const TELL_PATIENCE: Duration = Duration::from_secs(1);

/// Characters of a line of the receipt.
const COLUMNS: usize = 80;
/// Those before each: `pinfold: `.
const SAID_BEFORE: usize = 9;

/// The exit status if the receipt is lost although all went well.
const LOST: u8 = 5;

/// Time that a sender looks for the receiver before it says that it waits, and for which address:
/// on this host, and on another, which may be far away.
const FIRST_LOOK_HERE: Duration = Duration::from_millis(50);
const FIRST_LOOK_FAR: Duration = Duration::from_millis(500);

/// The report of a transfer.
struct Report {
    totals: Totals,
    skipped: u64,
    unkept: u64,
    elapsed: Duration,
    tally: Tally,
}

/// The outputs of a command.
struct Console {
    side: Side,
    json: bool,
    quiet: bool,
    verbose: bool,
    /// True if standard output is free for the JSON object.
    stdout: bool,
}

impl Console {
    fn new(side: Side, common: &CommonArgs, stdout: bool) -> Console {
        let CommonArgs { json, quiet, verbose, .. } = *common;
        Console { side, json, quiet, verbose, stdout }
    }

    /// Prints a remark for a person who waits.
    fn remark(&self, text: &str) {
        if !self.quiet {
            say(text);
        }
    }

    /// Prints the receipt in lines of 80 columns: one, or all that is known.
    fn receipt(&self, summary: &Summary<'_>) {
        let details = if self.verbose { summary.details() } else { Vec::new() };
        for (text, indent) in
            [(summary.line(), "")].into_iter().chain(details.into_iter().map(|line| (line, "  ")))
        {
            for line in hanging(indent, &text, Some(COLUMNS - SAID_BEFORE)) {
                self.remark(&line);
            }
        }
    }

    /// Reports the end of the transfer, and returns the exit status for it.
    fn end(&self, result: Result<Report, Failure>) -> ExitCode {
        match result {
            Ok(report) => {
                let summary = Summary {
                    side: self.side,
                    totals: report.totals,
                    skipped: report.skipped,
                    unkept: report.unkept,
                    elapsed: report.elapsed,
                    tally: &report.tally,
                };
                if self.json {
                    return self.print(&summary.json());
                }
                self.receipt(&summary);
                ExitCode::SUCCESS
            }
            Err(failure) => {
                say(&failure);
                if self.json {
                    // The transfer's own failure outweighs the loss of this output.
                    self.print(&failure_json(self.side, &failure));
                }
                failure.exit_code()
            }
        }
    }

    /// Prints the receipt, or the failure, and returns the exit status for that.
    fn print(&self, json: &str) -> ExitCode {
        let line = format!("{json}\n");
        if self.stdout {
            let printed = output::put("the receipt", &line);
            return printed.map_or_else(|lost| lost.end(LOST), |()| ExitCode::SUCCESS);
        }
        // If that cannot be written, the error cannot be reported either.
        let mut err = std::io::stderr().lock();
        err.write_all(line.as_bytes()).map_or(ExitCode::from(LOST), |()| ExitCode::SUCCESS)
    }
}

/// Runs `pinfold send`.
#[inline(never)]
pub(crate) fn send(args: SendArgs) -> ExitCode {
    let console = Console::new(Side::Send, &args.common, true);
    console.end(block_on(send_all(&args, &console)))
}

async fn send_all(args: &SendArgs, console: &Console) -> Result<Report, Failure> {
    address::of_sender(&args.files, &args.address)?;
    let plan = Plan::new(&args.files);
    if let Err(failure @ Failure::Usage(_)) = plan {
        return Err(failure);
    }
    let endpoint = endpoint(&args.common, "pinfold send", None)
        .map_err(|why| Failure::no_endpoint(why, Failure::Library))?;
    let plan = match plan {
        Ok(plan) => plan,
        Err(failure) => {
            tell(&endpoint, &args.address, &failure).await;
            return Err(failure);
        }
    };
    for (path, what) in &plan.skipped {
        say(source::skipped_note(path, what));
    }
    if plan.is_empty() {
        say("there is nothing in what is to be sent; the receiver gets nothing");
    }
    let peer = connect(&endpoint, args, console)?;
    // Up to here nothing is half done, and a signal may simply end the process.
    let interrupts = Interrupts::take().map_err(|why| Failure::local("taking", "signals", why))?;
    let mut link = Link::new(&endpoint, peer, "the receiver", interrupts);
    let (content, expected) = (plan.content(), plan.expected);
    let skipped = plan.skipped.len() as u64;
    let mut meter =
        Meter::start(args.common.quiet, (content == Content::Files).then_some(expected.bytes));
    let sent = match sender::greet(&mut link, content, expected).await {
        Ok(()) => {
            if content == Content::Stream && std::io::stdin().is_terminal() {
                console.remark("reading from the terminal; end with Ctrl-D at the start of a line");
            }
            let blocks = Blocks::new(sender::BLOCKS, args.common.wants_arena());
            sender::run(&mut link, plan, blocks, &mut meter).await
        }
        Err(failure) => Err(failure),
    };
    let elapsed = meter.elapsed();
    drop(meter);
    match sent {
        Ok(totals) => {
            link.bye().await;
            Ok(Report { totals, skipped, unkept: 0, elapsed, tally: link.tally })
        }
        Err(failure) => {
            link.give_up(&failure).await;
            Err(failure)
        }
    }
}

/// Connects to the receiver, with a remark if that takes a while.
fn connect(endpoint: &Endpoint, args: &SendArgs, console: &Console) -> Result<PeerId, Failure> {
    let far = args.address.starts_with("tcp:");
    let first = args.wait.min(if far { FIRST_LOOK_FAR } else { FIRST_LOOK_HERE });
    let started = Instant::now();
    match endpoint.connect_wait(&args.address, first) {
        // The call returns early if there is no reason to wait.
        Err(why) if args.wait > first && started.elapsed() >= first => {
            console.remark(&format!(
                "waiting for a receiver at {}, up to {} s: {}",
                args.address,
                args.wait.as_secs_f64(),
                Words(&why)
            ));
            endpoint.connect_wait(&args.address, args.wait - first)
        }
        connected => connected,
    }
    .map_err(Failure::Connect)
}

/// Tells a receiver, if there is one, why nothing will come.
async fn tell(endpoint: &Endpoint, address: &str, failure: &Failure) {
    let Ok(peer) = endpoint.connect_wait(address, TELL_PATIENCE) else { return };
    let Ok(interrupts) = Interrupts::take() else { return };
    let mut link = Link::new(endpoint, peer, "the receiver", interrupts);
    let greeting = sender::greet(&mut link, Content::Files, Totals::default());
    let greeted = within(TELL_PATIENCE, greeting).await;
    if matches!(greeted, Some(Ok(()))) {
        link.give_up(failure).await;
    }
}

/// Runs `pinfold recv`.
#[inline(never)]
pub(crate) fn recv(args: RecvArgs) -> ExitCode {
    let console = Console::new(Side::Recv, &args.common, args.directory.is_some());
    let listening = match Listening::start(&args, &console) {
        Ok(listening) => listening,
        Err(failure) => return console.end(Err(failure)),
    };
    block_on(serve(&args, &console, listening))
}

/// Takes one transfer, or one after another until there is a signal, or nobody comes for too long.
async fn serve(args: &RecvArgs, console: &Console, mut listening: Listening) -> ExitCode {
    loop {
        let received = recv_one(args, &mut listening).await;
        // It has come to no transfer, or is told to stop.
        let is_over = listening.interrupts.is_none();
        let is_last = !args.serve || is_over || matches!(received, Err(Failure::Interrupted(_)));
        let ended = console.end(received);
        if is_last {
            return ended;
        }
        match target(args) {
            Ok(target) => listening.target = Some(target),
            Err(failure) => return console.end(Err(failure)),
        }
    }
}

/// A receiver that can be called.
struct Listening {
    endpoint: Endpoint,
    /// `None` while a transfer has them, and if none was begun.
    interrupts: Option<Interrupts>,
    target: Option<Target<Stdout>>,
}

impl Listening {
    fn start(args: &RecvArgs, console: &Console) -> Result<Listening, Failure> {
        address::of_receiver(&args.address, args.directory.as_deref())?;
        let socket = activation::take(&args.address)?;
        let target = target(args)?;
        // This comes before there is a name to leave behind.
        let interrupts =
            Interrupts::take().map_err(|why| Failure::local("taking", "signals", why))?;
        let endpoint = endpoint(&args.common, "pinfold recv", Some((&args.address, socket)))
            .map_err(|why| Failure::no_endpoint(why, Failure::Listen))?;
        let at = endpoint.listens_at().unwrap_or_else(|| args.address.clone());
        console.remark(&format!("waiting for a sender at {at}"));
        Ok(Listening { endpoint, interrupts: Some(interrupts), target: Some(target) })
    }
}

/// The place of what comes.
fn target(args: &RecvArgs) -> Result<Target<Stdout>, Failure> {
    let Some(path) = &args.directory else {
        return Ok(Target::Output(Output::new(std::io::stdout())));
    };
    let rules = Rules {
        force: args.force,
        sync: args.sync,
        times: args.times,
        umask: pinfold_sys::user::umask(),
        nameless: true,
    };
    Ok(Target::Directory(Directory::open(path, rules)?))
}

/// Takes one transfer.
async fn recv_one(args: &RecvArgs, listening: &mut Listening) -> Result<Report, Failure> {
    let endpoint = &listening.endpoint;
    let (Some(mut interrupts), Some(target)) =
        (listening.interrupts.take(), listening.target.take())
    else {
        return Err(Failure::Unfinished);
    };
    let unkept = target.unkept();
    let hello = receiver::await_hello(endpoint, &mut interrupts);
    let (peer, hello) = match args.wait {
        None => hello.await?,
        Some(patience) => match within(patience, hello).await {
            Some(hello) => hello?,
            None => return Err(Failure::NobodyCame { address: args.address.clone(), patience }),
        },
    };
    let mut link = Link::new(endpoint, peer, "the sender", interrupts);
    let received = match receiver::accept(&mut link, &hello, target.content()).await {
        Ok(expected) => {
            let total = (target.content() == Content::Files).then_some(expected.bytes);
            let mut meter = Meter::start(args.common.quiet, total);
            let received = receiver::run(&mut link, endpoint, target, &mut meter).await;
            received.map(|totals| (totals, meter.elapsed()))
        }
        Err(failure) => Err(failure),
    };
    let ended = match received {
        Ok((totals, elapsed)) => {
            link.wait_for_bye().await;
            let unkept = unkept.map_or(0, |unkept| unkept.count());
            Ok(Report { totals, skipped: 0, unkept, elapsed, tally: link.tally.clone() })
        }
        Err(failure) => {
            link.give_up(&failure).await;
            Err(failure)
        }
    };
    listening.interrupts = Some(link.into_interrupts());
    if args.serve {
        listening.endpoint.disconnect(peer);
    }
    ended
}

/// The endpoint of one side.
fn endpoint(
    common: &CommonArgs,
    label: &str,
    listen: Option<(&str, Option<OwnedFd>)>,
) -> pinfold::Result<Endpoint> {
    let mut builder =
        Endpoint::builder().label(label).paths(common.path_set()).strict(common.strict);
    if let Some((address, socket)) = listen {
        builder = match socket {
            Some(socket) => builder.listen_on(address, socket),
            None => builder.listen(address),
        };
    }
    if let Some(key) = &common.key {
        builder = builder.key_file(key);
    }
    builder.encrypt(common.tls).build()
}
