//! perfquilt's access to the operating system: processes, files, locks, digests and the user's git.
//!
//! # Example
//!
//! A child gets no environment but the one it is given, and ends with this program.
//!
//! ```
//! use perfquilt_system::process::Command;
//!
//! let shell = Command::new("sh").args(["-c", "echo $GREETING $LANG"]);
//! let output = shell.env("GREETING", "hello").run()?;
//! assert!(output.success());
//! assert_eq!(output.stdout_text().trim(), "hello");
//! # Ok::<(), perfquilt_model::Error>(())
//! ```

pub mod caches;
pub mod control_groups;
pub mod digest;
pub mod files;
pub mod git;
pub mod host;
pub mod locks;
pub mod mounts;
pub mod packages;
pub mod process;
pub mod remove;
pub mod threads;
