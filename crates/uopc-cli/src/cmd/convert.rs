//! `uopc convert`: weights from one format to another.

use std::io::Write;
use std::path::{Path, PathBuf};

use serde_json::json;
use uopc::Tensor;
use uopc::debug::bytes_of;
use uopc::io::{self, Format, TensorFile, npz, sharded};

use crate::failure::{Failure, Result};
use crate::train::progress::thousands;

const HELP: &str = "\
Formats are safetensors, sharded (a folder of safetensors files with an index), npz and npy (one
tensor). IN is told by its content, OUT by its name: .safetensors, .npz, .npy, and a name without any
of these, or with a slash at its end, is a folder. Elements keep every bit, and dtypes what they are;
NumPy has no bf16, which is V2 there. NumPy's formats have no place for metadata, which is lost.

Nothing is overwritten without --force, and a folder must be new or empty in any case.

Examples:
  uopc convert runs/digits-1/model.safetensors weights.npz
  uopc convert weights.npz --only output.weight output.npy
  uopc convert large.safetensors shards/ --shard 2G";

/// Arguments of `uopc convert`.
#[derive(clap::Args, Debug)]
#[command(after_help = HELP)]
pub struct Args {
    /// The file or folder to read, or the index of a folder
    #[arg(value_name = "IN")]
    input: PathBuf,
    /// The file or folder to write
    #[arg(value_name = "OUT")]
    output: PathBuf,
    /// The format of OUT [default: what its name says]
    #[arg(long, value_name = "FORMAT", value_parser = format)]
    to: Option<Format>,
    /// Take this tensor only; may be given several times
    #[arg(long, value_name = "NAME")]
    only: Vec<String>,
    /// The most bytes of a file of a folder, such as 500M or 5G [default: 5000000000]
    #[arg(long, value_name = "BYTES", value_parser = size)]
    shard: Option<u64>,
    /// Compress the arrays of an npz file
    #[arg(long)]
    compress: bool,
    /// Replace OUT if it is there
    #[arg(long)]
    force: bool,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

fn format(text: &str) -> std::result::Result<Format, String> {
    Format::named(text).map_err(|e| e.to_string())
}

fn size(text: &str) -> std::result::Result<u64, String> {
    match bytes_of(text) {
        Some(bytes) if bytes > 0 => Ok(bytes),
        _ => Err("use a number of bytes, or one followed by K, M or G".to_string()),
    }
}

/// Converts.
///
/// # Errors
/// When IN can't be read, OUT is there or can't hold what IN has, and when it can't be written.
pub fn convert(args: &Args, out: &mut dyn Write) -> Result<()> {
    let format = args.to.or_else(|| Format::of_name(&args.output));
    let format = match (format, args.output.extension()) {
        (Some(format), _) => format,
        (None, None) => Format::Sharded,
        (None, Some(_)) => {
            let all = Format::ALL.map(Format::name).join(", ");
            return Err(Failure::usage(format!(
                "{}: the name says no format; use --to with one of {all}",
                args.output.display()
            )));
        }
    };
    if args.compress && format != Format::Npz {
        return Err(Failure::usage("--compress is for npz alone"));
    }
    if args.shard.is_some() && format != Format::Sharded {
        return Err(Failure::usage("--shard is for a folder of files alone"));
    }
    let file = io::open(&args.input)?;
    refuse_existing(args, format)?;
    let tensors = chosen(args, &file)?;
    // The version is written anew by who writes the file; texts of an index are about its files.
    let notes = file.metadata().into_iter();
    let notes = notes.filter(|(key, _)| key != "uopc" && key != "total_size");
    let notes: Vec<(String, String)> = notes.collect();
    let most = args.shard.unwrap_or(sharded::SHARD);
    match format {
        Format::Sharded => sharded::save(&args.output, &tensors, most, &notes)?,
        Format::Safetensors => io::save_as(&args.output, &tensors, format, &notes)?,
        Format::Npz if args.compress => npz::save_compressed(&args.output, &tensors)?,
        Format::Npz | Format::Npy => io::save_as(&args.output, &tensors, format, &[])?,
    }
    let bytes: u64 = tensors.iter().map(|(_, t)| bytes(t)).sum();
    let (n, from, to) = (tensors.len(), file.format().name(), format.name());
    if args.json {
        let result = json!({
            "from": from,
            "to": to,
            "tensors": n,
            "bytes": bytes,
            "output": args.output.display().to_string(),
        });
        writeln!(out, "{result}")?;
        return Ok(());
    }
    let tensors = if n == 1 { "tensor" } else { "tensors" };
    writeln!(
        out,
        "{n} {tensors}, {} bytes, {from} to {to}: {}",
        thousands(bytes),
        args.output.display()
    )?;
    if !notes.is_empty() && matches!(format, Format::Npz | Format::Npy) {
        let keys: Vec<&str> = notes.iter().map(|(key, _)| key.as_str()).collect();
        eprintln!(
            "warning: {to} has no place for metadata; left out: {}",
            keys.join(", ")
        );
    }
    Ok(())
}

fn bytes(t: &Tensor) -> u64 {
    (t.numel() * t.dtype().size()) as u64
}

/// An error if OUT is there and may not be replaced.
fn refuse_existing(args: &Args, format: Format) -> Result<()> {
    let shown = args.output.display();
    let is = |path: &Path| path.exists();
    match format {
        // Folders are checked by who writes them.
        Format::Sharded => Ok(()),
        _ if args.output.is_dir() => Err(Failure::failed(format!(
            "{shown}: this is a folder; {} is a file",
            format.name()
        ))),
        _ if is(&args.output) && !args.force => Err(Failure::failed(format!(
            "{shown}: the file exists; choose another name, or replace it with --force"
        ))),
        _ => Ok(()),
    }
}

/// The tensors that are asked for.
fn chosen(args: &Args, file: &TensorFile) -> Result<Vec<(String, Tensor)>> {
    if args.only.is_empty() {
        return Ok(file.tensors()?);
    }
    let named = |name: &String| Ok((name.clone(), file.tensor(name)?));
    args.only.iter().map(named).collect()
}
