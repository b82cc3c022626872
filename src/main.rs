//! Arguments in, exit code out; everything else is in the library.

use std::process::ExitCode;

fn main() -> ExitCode {
    perfquilt::cli::main(std::env::args_os())
}
