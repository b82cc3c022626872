//! The comment for a pull request: 50 patches, 20 workloads, two meters.
//!
//! `cargo bench --bench comment [-- --patches 50 --workloads 20]`: seconds.

#![allow(clippy::unwrap_used, clippy::print_stdout, missing_docs)]

mod made_up;

use std::time::Instant;

use clap::Parser;
use perfquilt_forge::MAX_COMMENT_BYTES;
use perfquilt_judge::attribution::attribute;
use perfquilt_model::observation::{Meter, Observation};
use perfquilt_model::point::Point;
use perfquilt_report::{Notice, comment};

#[derive(Parser)]
struct Arguments {
    #[arg(long, default_value_t = 50)]
    patches: usize,
    #[arg(long, default_value_t = 20)]
    workloads: usize,
    #[arg(long, default_value_t = 51)]
    runs: usize,
    /// Argument that cargo adds
    #[arg(long, hide = true)]
    bench: bool,
}

fn main() {
    let wanted = Arguments::parse();
    let header = made_up::header("made-up", wanted.patches);
    let mut observations = Vec::new();
    for (meter, blocks, noise) in [
        (Meter::Time, 12u32, 0.004),
        (Meter::Instructions, 3, 0.000_1),
    ] {
        for workload in 0..wanted.workloads {
            for block in 0..blocks {
                for (order, step) in (0u32..).zip(0..=wanted.patches) {
                    let wobble = f64::from((block * 7 + order * 5) % 11) / 11.0 - 0.5;
                    let value = 90_000.0 * (noise * wobble - 0.002 * f64::from(order / 2)).exp();
                    let name = format!("workload_{workload}");
                    observations.push(Observation {
                        experiment: "made-up".into(),
                        order,
                        n: 400,
                        ..Observation::new(block, Point::Step(step), &name, meter, value)
                    });
                }
            }
        }
    }
    let attribution = attribute(&header, &observations, &|_| 0.005).unwrap();
    let notice = Notice {
        attribution: Some(&attribution),
        ..Notice::default()
    };
    let whole = comment(&notice, usize::MAX).body.len();
    let mut seconds: Vec<f64> = (0..wanted.runs)
        .map(|_| {
            let started = Instant::now();
            std::hint::black_box(comment(&notice, MAX_COMMENT_BYTES));
            started.elapsed().as_secs_f64()
        })
        .collect();
    seconds.sort_by(f64::total_cmp);
    println!(
        "{} patches, {} workloads: {:.1} ms for a comment, at most {:.1} ms ({whole} bytes if it were whole)",
        wanted.patches,
        wanted.workloads,
        1000.0 * seconds[seconds.len() / 2],
        1000.0 * seconds[seconds.len() - 1],
    );
}
