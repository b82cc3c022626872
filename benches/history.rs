//! The history of a year of nightly experiments.
//!
//! `cargo bench --bench history [-- --experiments 365 --patches 10 --workloads 4]`: seconds of `perfquilt history`.

#![allow(clippy::unwrap_used, clippy::print_stdout, missing_docs)]

mod made_up;

use std::time::Instant;

use clap::Parser;
use perfquilt_model::observation::{Meter, Observation, PlannedBlocks};
use perfquilt_model::point::Point;
use perfquilt_store::Store;
use perfquilt_system::process::Command;

#[derive(Parser)]
struct Arguments {
    #[arg(long, default_value_t = 365)]
    experiments: usize,
    #[arg(long, default_value_t = 10)]
    patches: usize,
    #[arg(long, default_value_t = 4)]
    workloads: usize,
    #[arg(long, default_value_t = 12)]
    blocks: u32,
    /// Argument that cargo adds
    #[arg(long, hide = true)]
    bench: bool,
}

fn main() {
    let wanted = Arguments::parse();
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    std::fs::create_dir_all(root.join("bench-config")).unwrap();
    std::fs::create_dir_all(root.join(".perfquilt")).unwrap();
    let config = "[upstream]\nname = \"made-up\"\ncurrent = \"1.0\"\n\n[[upstream.release]]\nversion = \"1.0\"\n\
                  directory = \"upstream\"\n";
    std::fs::write(root.join("bench-config/perfquilt.toml"), config).unwrap();
    let store = Store::open(&root.join(".perfquilt/results.db")).unwrap();
    let workloads: Vec<String> = (0..wanted.workloads)
        .map(|k| format!("workload_{k}"))
        .collect();
    let mut state = 1u32;
    let mut noise = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        f64::from(state) / f64::from(u32::MAX) - 0.5
    };
    for day in 0..wanted.experiments {
        let name = format!("nightly-{day}");
        let mut header = made_up::header(&name, wanted.patches);
        let began = jiff::Timestamp::from_second(1_760_000_000 + 86_400 * day as i64).unwrap();
        header.started = began.to_string();
        let id = store.begin(&header, &name).unwrap();
        let planned = workloads
            .iter()
            .map(|workload| PlannedBlocks::fixed(workload, Meter::Time, wanted.blocks));
        store.plan(id, &planned.collect::<Vec<_>>()).unwrap();
        let mut observations = Vec::new();
        for workload in &workloads {
            for block in 0..wanted.blocks {
                for (order, step) in (0u32..).zip(0..=wanted.patches) {
                    let gain = 0.002 * f64::from(order / 2);
                    let value = 90_000.0 * (0.01 * noise() - gain).exp();
                    observations.push(Observation {
                        experiment: name.clone(),
                        order,
                        n: 400,
                        ..Observation::new(block, Point::Step(step), workload, Meter::Time, value)
                    });
                }
            }
        }
        store.append(id, &observations, &[]).unwrap();
    }
    drop(store);
    for form in [
        &["history"][..],
        &["history", "0001"],
        &["history", "--format", "html"],
    ] {
        let began = Instant::now();
        let perfquilt = Command::new(env!("CARGO_BIN_EXE_perfquilt"));
        let ended = perfquilt.args(form).directory(root).run().unwrap();
        assert!(ended.success());
        let seconds = began.elapsed().as_secs_f64();
        println!(
            "{} experiments, {} patches, {} workloads, `perfquilt {}`: {seconds:.2} s, {:.2} of 2 s",
            wanted.experiments,
            wanted.patches,
            wanted.workloads,
            form.join(" "),
            seconds / 2.0
        );
    }
}
