//! `pinfold trace record`.

use std::{
    fs::File,
    io::BufWriter,
    process::ExitCode,
    sync::atomic::{AtomicU32, Ordering},
    thread,
};

use pinfold_lab::trace::{
    TraceError,
    record::{Ended, Recorded, Wishes, record},
    translations,
};
use rustix::process::{Pid, Signal, kill_process};

use super::args::RecordArgs;
use crate::{progress::say, signals};

/// The exit status where nothing was recorded, as of `env`: programs seldom end so.
const NOT_RECORDED: u8 = 125;

/// Runs a program, and passes on the signals that ask for its end.
pub(super) fn run(args: &RecordArgs) -> ExitCode {
    let ended = if args.translations {
        with_signals(args, |out, started| translations::record(&args.words, out, started))
            .inspect(|recorded| tell_translations(args, recorded))
            .map(|recorded| recorded.ended)
    } else {
        let wishes = wishes(args);
        with_signals(args, |out, started| record(&args.words, &wishes, out, started))
            .inspect(|recorded| tell(args, recorded))
            .map(|recorded| recorded.ended)
    };
    match ended {
        Ok(Ended::Exited(status)) => ExitCode::from(status as u8),
        Ok(Ended::Signalled(signal)) => ExitCode::from(128 + signal as u8),
        Err(why) => {
            say(why);
            ExitCode::from(NOT_RECORDED)
        }
    }
}

fn wishes(args: &RecordArgs) -> Wishes {
    let mut wishes = Wishes { names: !args.no_names, ..Wishes::default() };
    if !args.kinds.is_empty() {
        wishes.kinds.clone_from(&args.kinds);
    }
    wishes
}

/// Has `record` write the trace, and passes signals on to the program that it tells of.
fn with_signals<T>(
    args: &RecordArgs,
    record: impl FnOnce(BufWriter<File>, &(dyn Fn(u32) + Sync)) -> Result<T, TraceError>,
) -> Result<T, String> {
    let out = args.out.display();
    let file = File::create(&args.out).map_err(|why| format!("cannot write {out}: {why}"))?;
    let mut signals = signals::take().map_err(|why| format!("cannot take signals: {why}"))?;
    let (handle, child) = (signals.handle(), AtomicU32::new(0));
    thread::scope(|scope| {
        scope.spawn(|| {
            for signal in &mut signals {
                // A terminal sends SIGINT to the program by itself.
                let pid = Pid::from_raw(child.load(Ordering::Relaxed).cast_signed());
                let signal = Signal::from_named_raw(signal).filter(|it| *it != Signal::INT);
                if let (Some(pid), Some(signal)) = (pid, signal) {
                    let _ = kill_process(pid, signal);
                }
            }
        });
        let started = |pid| child.store(pid, Ordering::Relaxed);
        let done = record(BufWriter::new(file), &started);
        handle.close();
        done.map_err(|why| format!("{out}: {why}"))
    })
}

/// Says what is in the trace, and what is not.
fn tell(args: &RecordArgs, recorded: &Recorded) {
    say(format_args!("{} calls are in {}", recorded.events, args.out.display()));
    for (count, what) in [
        (recorded.io_urings, "times an io_uring was made; what it moves is not in the trace"),
        (recorded.foreign, "calls of 32-bit programs are not in the trace"),
        (recorded.unread, "calls are in the trace without their memory, which was not to be read"),
    ] {
        if count > 0 {
            say(format_args!("{count} {what}"));
        }
    }
}

fn tell_translations(args: &RecordArgs, recorded: &translations::Recorded) {
    say(format_args!("{} translations are in {}", recorded.events, args.out.display()));
    if recorded.events == 0 {
        say("only sends over tcp from memory that is kept pinned have any: see pinfold doctor");
    }
    if recorded.foreign > 0 {
        say(format_args!("{} more came from another version of Pinfold", recorded.foreign));
    }
}
