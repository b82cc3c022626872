//! Chooses the key under which an experiment is stored, and what it reuses of earlier ones.

use std::collections::BTreeSet;
use std::time::Duration;

use super::identity;
use super::key::ExperimentKey;
use super::spec::Spec;
use super::unexecuted;
use perfquilt_bench::server::may_start_with;
use perfquilt_config::workspace::Workspace;
use perfquilt_model::comparable::{CLUSTER, Comparable, Part};
use perfquilt_model::error::Result;
use perfquilt_model::observation::{ExperimentHeader, ReusedFrom};
use perfquilt_model::point::Point;
use perfquilt_store::{EarlierExperiment, Store};

/// How an experiment treats earlier measurements of the same servers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReusePolicy {
    /// Reuses them where they still hold.
    Reuse,
    /// Ignores them; continues the last experiment of the same key, for a fresh question unless it is finished.
    Separate,
    /// Measures again; continues an experiment of the same key unless it is finished.
    Repeat,
}

/// One attempt to measure the servers.
#[derive(Debug)]
pub(super) struct Attempt {
    /// The key under which it is stored.
    pub(super) key: String,
    /// Determines its plan.
    pub(super) seed: u64,
    /// The observations that it reuses.
    pub(super) reused: Vec<ReusedFrom>,
    /// The points to measure; `None` for all.
    pub(super) left: Option<BTreeSet<Point>>,
}

impl Attempt {
    /// Returns the attempt that is stored under `key`, which reuses nothing.
    pub(super) fn of_key(key: &str) -> Self {
        Attempt {
            key: key.to_owned(),
            seed: identity::seed(key),
            reused: Vec::new(),
            left: None,
        }
    }

    /// Chooses the attempt for measuring what is `observed` as `policy` says: a stored one that goes on, or the next one.
    /// `time_unexecuted` tells whether to time workloads that do not execute the code that a patch changes, too.
    pub(super) fn choose(
        spec: &Spec<'_>,
        observed: &Comparable,
        policy: ReusePolicy,
        time_unexecuted: bool,
        store: &Store,
    ) -> Result<Self> {
        let identity_of = |observed: &Comparable| {
            let key = spec.key(observed);
            if time_unexecuted && policy != ReusePolicy::Separate {
                unexecuted::timed_anyway(key)
            } else {
                key
            }
        };
        let mut key = ExperimentKey {
            identity: identity_of(observed),
            fresh: policy != ReusePolicy::Reuse,
            attempt: 1,
        };
        let (mut reused, mut left) = (Vec::new(), None);
        match policy {
            ReusePolicy::Separate => {
                let is_fresh = spec.ws.answers().is_fresh();
                key = key.first(|key| {
                    let begun = |key: &ExperimentKey| store.header_of_key(&key.to_string());
                    let is_last = begun(&key.next())?.is_none();
                    Ok(
                        is_last && !(is_fresh && store.is_finished(&key.to_string())?)
                            || begun(key)?.is_none(),
                    )
                })?;
            }
            ReusePolicy::Repeat => {
                key = key.first(|key| Ok(!store.is_finished(&key.to_string())?))?;
            }
            ReusePolicy::Reuse => {
                let requested = spec.requested();
                let query = spec.query(observed, &requested);
                let earlier = reusable(store, &spec.header.release, time_unexecuted)?;
                // An experiment keeps the reused observations it began with, as long as they answer the request.
                key = key.first(|key| {
                    let key = key.to_string();
                    let Some(begun) = store.header_of_key(&key)? else {
                        return Ok(true);
                    };
                    let over = store.is_finished(&key)? && failed_for_time(spec.ws, &begun);
                    Ok(!over && query.is_answered_by(&begun.reused, &earlier))
                })?;
                reused = match store.header_of_key(&key.to_string())? {
                    Some(begun) => begun.reused,
                    None => query.origins(&earlier),
                };
                left = Some(query.left(&reused));
            }
        }
        // The plan is that of one machine of the class.
        let one = observed.only(|part| *part != Part::Machine(CLUSTER.to_owned()));
        let planned = ExperimentKey {
            identity: identity_of(&one),
            ..key.clone()
        };
        Ok(Attempt {
            key: key.to_string(),
            seed: identity::seed(&planned.to_string()),
            reused,
            left,
        })
    }
}

/// Returns the finished experiments on `release` whose effects may be reused. Unless such workloads are to be timed, what a
/// workload does not execute counts as measured.
pub(super) fn reusable(
    store: &Store,
    release: &str,
    time_unexecuted: bool,
) -> Result<Vec<EarlierExperiment>> {
    let mut earlier = store.earlier(release)?;
    if !time_unexecuted {
        earlier.iter_mut().for_each(unexecuted::count_as_measured);
    }
    Ok(earlier)
}

/// Returns whether servers of `begun` missed the start timeout, and the timeout has changed since. It is the
/// only setting of a server's start that is not part of the experiment's key.
fn failed_for_time(ws: &Workspace, begun: &ExperimentHeader) -> bool {
    let start_seconds = ws.config.server.start_seconds;
    begun.start_timeouts.values().any(|&timeout| {
        // Observation files may hold any number.
        let timeout = Duration::try_from_secs_f64(timeout).unwrap_or_default();
        may_start_with(start_seconds, timeout)
    })
}
