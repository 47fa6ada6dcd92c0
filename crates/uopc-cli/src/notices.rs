//! What the library has to say, on standard error: warnings, and the dumps and timings that the
//! environment asks for.

use log::{Level, LevelFilter, Log, Metadata, Record};

/// Prints notices.
pub struct Printer;

impl Log for Printer {
    fn enabled(&self, metadata: &Metadata) -> bool {
        // Other crates' information is of no interest to users of this program.
        metadata.level() <= Level::Warn || metadata.target().starts_with("uopc")
    }

    fn log(&self, record: &Record) {
        if !self.enabled(record.metadata()) {
            return;
        }
        let text = record.args();
        match record.level() {
            Level::Error => eprintln!("error: {text}"),
            Level::Warn => eprintln!("warning: {text}"),
            Level::Info | Level::Debug | Level::Trace => eprintln!("{text}"),
        }
    }

    fn flush(&self) {}
}

/// From now on the library's notices are printed.
pub fn print() {
    // Someone else's logger, in a program that uses this library, stays.
    if log::set_logger(&Printer).is_ok() {
        log::set_max_level(LevelFilter::Info);
    }
}
