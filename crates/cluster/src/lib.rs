//! Jobs on the machines of a cluster: schedulers that queue them, and the folder through which they exchange files.
//!
//! # Example
//!
//! Whichever of two workers publishes a result first is believed:
//!
//! ```
//! use perfquilt_cluster::exchange::publish;
//!
//! let folder = tempfile::tempdir().unwrap();
//! let result = folder.path().join("task-7.json");
//! assert!(publish(&result, b"first")?);
//! assert!(!publish(&result, b"second")?);
//! assert_eq!(std::fs::read(&result).unwrap(), b"first");
//! # Ok::<(), perfquilt_model::Error>(())
//! ```

pub mod dispatch;
pub mod doctor;
pub mod exchange;
pub mod scheduler;
pub mod tasks;
