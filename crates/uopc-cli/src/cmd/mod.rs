//! The commands, one file each; [`Command`] is what the command line says.

pub mod bench;
pub mod convert;
pub mod eval;
pub mod grad;
pub mod gradcheck;
pub mod lists;
pub mod opt;
pub mod run;
pub mod show;
pub mod train;

use std::io::Write;
use std::str::FromStr;

use clap::Subcommand;

use crate::failure::Result;

/// Reads a whole number from an argument; one below 0 gets an answer about the number, instead of
/// advice on how to pass an argument that looks like an option.
fn whole<T: FromStr>(text: &str) -> std::result::Result<T, String> {
    let wrong = |_| "use a whole number that is not below 0".to_string();
    text.parse().map_err(wrong)
}

/// What the user wants.
#[derive(Subcommand, Debug)]
pub enum Command {
    /// Train a model, with a progress bar, a log, a plot and its weights in a folder of its own
    Train(train::Args),
    /// Test a trained model: loss, accuracy, and which digit was taken for which
    Eval(eval::Args),
    /// Convert weights between safetensors, folders of them, npz and npy
    Convert(convert::Args),
    /// Print every stage of a graph, from tensors to C
    Show(show::Args),
    /// Run a graph in all engines and compare their results to the last bit
    Run(run::Args),
    /// Print the graph of a gradient
    Grad(grad::Args),
    /// Check the gradients of a graph: reverse mode, forward mode and difference quotients
    Gradcheck(gradcheck::Args),
    /// Apply passes to a graph: text in, text out
    Opt(opt::Args),
    /// Time workloads, in the names and the form of other frameworks' scripts
    Bench(bench::Args),
    /// List the operations of the language
    Ops(lists::Format),
    /// List the passes, in the order of the pipeline
    Passes(lists::Format),
    /// List the rules of simplification
    Rules(lists::Format),
    /// List the environment variables that are read
    Env(lists::Format),
}

impl Command {
    /// Does it, with results on `out`.
    ///
    /// # Errors
    /// Whatever keeps the command from succeeding, with a text for the user.
    pub fn run(&self, out: &mut dyn Write) -> Result<()> {
        match self {
            Command::Train(args) => train::train(args, out),
            Command::Eval(args) => eval::eval(args, out),
            Command::Convert(args) => convert::convert(args, out),
            Command::Show(args) => show::show(args, out),
            Command::Run(args) => run::run(args, out),
            Command::Grad(args) => grad::grad(args, out),
            Command::Gradcheck(args) => gradcheck::gradcheck(args, out),
            Command::Opt(args) => opt::opt(args, out),
            Command::Bench(args) => bench::bench(args, out),
            Command::Ops(format) => lists::ops(*format, out),
            Command::Passes(format) => lists::passes(*format, out),
            Command::Rules(format) => lists::rules(*format, out),
            Command::Env(format) => lists::env(*format, out),
        }
    }
}
