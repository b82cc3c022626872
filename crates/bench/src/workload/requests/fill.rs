//! Runs the requests of `prepare` and `after_start`.

use super::connection::{Connection, run};
use super::plan::{Generator, Plan, Script};
use super::protocols::ProtocolKind;
use super::settings::{RequestSettings, StepSettings};
use crate::server::Running;
use perfquilt_model::error::{Error, Result};

/// Seed of prepared data, which is the same for all points.
const SEED: u64 = 1;
/// Transactions generated at once.
const BATCH: usize = 4096;
/// Bytes of requests above which no further transaction is generated at once.
const BATCH_BYTES: usize = 4 << 20;

/// Runs every step as often as it says, in their order.
pub(super) fn run_steps(
    plan: &Plan,
    steps: &[StepSettings],
    running: &Running,
    database: Option<&str>,
) -> Result<()> {
    if steps.is_empty() {
        return Ok(());
    }
    let mut connections = [Connection::open(plan, running, database)?];
    let pipeline = plan.protocol.fill_pipeline();
    let mut generator = Generator::new(plan, SEED);
    let mut scripts = [Script::default()];
    for (index, step) in steps.iter().enumerate() {
        let mut left = step.times;
        while left > 0 {
            let [script] = &mut scripts;
            script.clear();
            while left > 0 && script.transactions() < BATCH && script.size() < BATCH_BYTES {
                generator.generate_one(index, script);
                left -= 1;
            }
            let transactions = 0..script.transactions();
            run(&mut connections, &scripts, transactions, pipeline)?;
        }
    }
    Ok(())
}

/// Creates the database of a data set.
pub(super) fn create_database(
    kind: &ProtocolKind,
    statements: &[String],
    running: &Running,
) -> Result<()> {
    let requests: Vec<RequestSettings> = statements.iter().map(RequestSettings::text).collect();
    let transaction = (1, requests.as_slice());
    let plan = Plan::new(
        (kind.protocol)(false),
        &Default::default(),
        "prepare",
        &[transaction],
    )
    .map_err(|invalid| Error::internal(invalid.fault))?;
    let step = StepSettings {
        times: 1,
        requests: requests.clone(),
    };
    run_steps(&plan, &[step], running, None)
}
