//! Observations of one series from several machines as one experiment.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
use std::path::Path;

use perfquilt_model::comparable::{Comparable, Part};
use perfquilt_model::error::{Error, Result};
use perfquilt_model::observation::{
    ExperimentHeader, MachineName, ObservationFile, PlannedBlocks, Supplement, UnexecutedPatch,
};

/// The separator between the facts of unlike machines.
const SEPARATOR: &str = " / ";

/// Merges experiments on the same series, release and recipe, each from a machine of its own, as if a cluster had
/// measured their blocks: blocks are numbered one after another, and each observation has a machine.
pub fn merge(files: Vec<(&Path, ObservationFile)>) -> Result<ObservationFile> {
    let mut names = Names::default();
    let mut files = files.into_iter();
    let Some((path, first)) = files.next() else {
        return Err(Error::arguments("there is no file to merge"));
    };
    check_alone(&first).map_err(|error| error.at(path, None))?;
    let mut next = 0;
    let mut seen: HashSet<u64> = timed_values(&first).chain(counts(&first)).collect();
    let mut merged = numbered(first, &mut names, &mut next)?;
    for (path, file) in files {
        let located = |error: Error| error.at(path, None);
        check_alone(&file)
            .and_then(|()| check_same(&merged.header, &file.header))
            .and_then(|()| check_new(&seen, &file))
            .map_err(located)?;
        seen.extend(timed_values(&file).chain(counts(&file)));
        let file = numbered(file, &mut names, &mut next).map_err(located)?;
        merged = joined(merged, file);
    }
    Ok(merged)
}

/// Refuses experiments whose blocks are not all their own, or do not all have the same points.
fn check_alone(file: &ObservationFile) -> Result<()> {
    if !file.header.reused.is_empty() {
        return Err(Error::merge(
            "it reuses observations of earlier experiments, which are of one machine alone",
        )
        .hint("`perfquilt run --fresh` measures everything"));
    }
    let mut plans = file.supplement.planned.iter();
    if plans.any(|plan| plan.windows.is_some()) {
        return Err(
            Error::merge("a series that was measured in windows cannot be merged")
                .hint("`--point` measures fewer points at once"),
        );
    }
    Ok(())
}

fn check_same(first: &ExperimentHeader, other: &ExperimentHeader) -> Result<()> {
    let alike = |header| Comparable::of(header).only(|part| !matches!(part, Part::Machine(_)));
    if let Some(difference) = alike(first).difference(&alike(other)) {
        return Err(Error::merge(format!(
            "it cannot be merged with the first file: {difference}"
        )));
    }
    if first.series != other.series {
        return Err(Error::merge(
            "its series differs from that of the first file",
        ));
    }
    Ok(())
}

/// Returns the bits of all timed values.
fn timed_values(file: &ObservationFile) -> impl Iterator<Item = u64> {
    let timed = file.observations.iter().filter(|o| o.meter.is_timed());
    timed.map(|o| o.value.to_bits())
}

/// Returns digests of all counts with the experiment, machine, block and point that they are of: unlike times, counts of
/// different machines may agree in all digits.
fn counts(file: &ObservationFile) -> impl Iterator<Item = u64> {
    let header = &file.header;
    let counted = file.observations.iter().filter(|o| !o.meter.is_timed());
    counted.map(move |o| {
        let experiment = (&header.experiment, &header.started, &header.machine);
        let place = (&o.machine, o.block, o.point, &o.workload, o.meter);
        let hasher = BuildHasherDefault::<DefaultHasher>::default();
        hasher.hash_one((experiment, place, o.value.to_bits()))
    })
}

/// Refuses observations that are `seen` already: intervals over the same blocks twice would be too narrow. Two
/// measurements hardly ever agree in all digits of a time.
fn check_new(seen: &HashSet<u64>, file: &ObservationFile) -> Result<()> {
    let times: Vec<u64> = timed_values(file).collect();
    let (values, what) = if times.is_empty() {
        (counts(file).collect(), "counts")
    } else {
        (times, "times")
    };
    let (all, known) = (values.len(), values.iter());
    let known = known.filter(|value| seen.contains(value)).count();
    if 2 * known > all {
        let fault = format!("{known} of its {all} {what} are also in an earlier file");
        return Err(Error::merge(fault).hint("name each experiment once"));
    }
    Ok(())
}

/// Names of machines, which are unique among all files.
#[derive(Default)]
struct Names(BTreeSet<String>);

impl Names {
    /// Returns `name`, with a number if another file has it.
    fn free(&mut self, name: &str) -> String {
        let numbered = |number: u32| MachineName { name, number }.to_string();
        let free = (1..).map(numbered).find(|name| !self.0.contains(name));
        let free = free.unwrap_or_default();
        self.0.insert(free.clone());
        free
    }
}

/// Numbers the blocks of `file` from `next` on, and names the machine of each observation.
fn numbered(
    mut file: ObservationFile,
    names: &mut Names,
    next: &mut u32,
) -> Result<ObservationFile> {
    let processor = file.header.machine.get("processor").cloned();
    let default = processor.unwrap_or_else(|| file.header.experiment.clone());
    let mut own: BTreeMap<Option<String>, String> = BTreeMap::new();
    let first = *next;
    for observation in &mut file.observations {
        let block = observation.block.checked_add(first);
        observation.block = block.ok_or_else(|| Error::merge("its block numbers are too high"))?;
        *next = (*next).max(observation.block.saturating_add(1));
        let machine = observation.machine.take();
        let name = own
            .entry(machine)
            .or_insert_with_key(|machine| names.free(machine.as_deref().unwrap_or(&default)));
        observation.machine = Some(name.clone());
    }
    Ok(file)
}

fn joined(mut first: ObservationFile, other: ObservationFile) -> ObservationFile {
    let experiment = first.header.experiment.clone();
    first
        .observations
        .extend(other.observations.into_iter().map(|mut observation| {
            observation.experiment.clone_from(&experiment);
            observation
        }));
    let (header, theirs) = (&mut first.header, other.header);
    for (name, fact) in theirs.machine {
        let ours = header.machine.entry(name).or_insert_with(|| fact.clone());
        if !ours.split(SEPARATOR).any(|part| part == fact) {
            *ours += SEPARATOR;
            *ours += &fact;
        }
    }
    // Points with the same binary on one machine only are compared by the values of the others.
    header
        .identical
        .retain(|point, same| theirs.identical.get(point) == Some(same));
    header
        .line_numbers
        .retain(|point| theirs.line_numbers.contains(point));
    header
        .unread
        .retain(|point, _| theirs.unread.contains_key(point));
    header
        .failed
        .retain(|point, _| theirs.failed.contains_key(point));
    // A workload that failed in one of them has fewer blocks there.
    for failed in theirs.failed_workloads {
        if !header.failed_workloads.contains(&failed) {
            header.failed_workloads.push(failed);
        }
    }
    header
        .start_timeouts
        .retain(|point, _| theirs.start_timeouts.contains_key(point));
    let (ours, theirs) = (&mut first.supplement, other.supplement);
    join(ours, theirs);
    first
}

fn join(ours: &mut Supplement, theirs: Supplement) {
    for plan in theirs.planned {
        let same =
            |own: &&mut PlannedBlocks| (&own.workload, own.meter) == (&plan.workload, plan.meter);
        match ours.planned.iter_mut().find(same) {
            Some(own) => {
                own.blocks = own.blocks.saturating_add(plan.blocks);
                own.min_blocks = own
                    .min_blocks
                    .zip(plan.min_blocks)
                    .map(|(a, b)| a.saturating_add(b));
                own.extended |= plan.extended;
                own.wave = None;
            }
            None => ours.planned.push(plan),
        }
    }
    ours.left_out.extend(theirs.left_out);
    ours.conditions.extend(theirs.conditions);
    for (meter, step) in theirs.clock {
        let own = ours.clock.entry(meter).or_insert(step);
        *own = own.max(step);
    }
    let known = theirs.unexecuted;
    ours.unexecuted.retain(|patch: &UnexecutedPatch| {
        let same = |other: &UnexecutedPatch| {
            (other.point, other.against, &other.workload)
                == (patch.point, patch.against, &patch.workload)
        };
        known.iter().any(same)
    });
    // These are of one machine, and would pass for those of all.
    ours.functions.clear();
    ours.within.clear();
}

#[cfg(test)]
mod tests {
    use super::*;
    use perfquilt_judge::attribution::attribute_with;
    use perfquilt_model::observation::{Meter, Observation};
    use perfquilt_model::point::Point;
    use perfquilt_store::jsonl;

    fn file(processor: &str, worth: f64) -> ObservationFile {
        scaled(processor, worth, 1.0)
    }

    /// An experiment on a machine on which everything costs `scale` times as much.
    fn scaled(processor: &str, worth: f64, scale: f64) -> ObservationFile {
        let header = format!(
            r#"{{"schema":1,"experiment":"{processor}","series":["a.patch"],"release":"r","machine":{{"processor":"{processor}"}},"harness":"h"}}"#
        );
        let mut text = header;
        for block in 0..8 {
            for (order, (point, cost)) in [("0", 1.0), ("1", 1.0 - worth), ("control", 1.0)]
                .iter()
                .enumerate()
            {
                let noise = 0.001 * f64::from((block * 7 + order as i32 * 5) % 11);
                let value = scale * 1000.0 * cost * (1.0 + noise);
                text += &format!(
                    "\n{{\"schema\":1,\"experiment\":\"{processor}\",\"block\":{block},\"order\":{order},\"point\":\"{point}\",\
                     \"layout\":0,\"workload\":\"w\",\"meter\":\"time\",\"unit\":\"ns/txn\",\"value\":{value},\"n\":10}}"
                );
            }
        }
        jsonl::read(text.as_bytes(), Path::new("x")).unwrap()
    }

    fn merged(files: Vec<ObservationFile>) -> Result<ObservationFile> {
        merge(
            files
                .into_iter()
                .map(|file| (Path::new("f"), file))
                .collect(),
        )
    }

    #[test]
    fn machines_are_merged_as_a_cluster() {
        let files = [
            scaled("x86", 0.02, 1.0),
            scaled("arm", 0.04, 1.7),
            scaled("x86", 0.02, 1.3),
        ];
        let both = merged(files.into()).unwrap();
        let blocks: BTreeSet<u32> = both
            .observations
            .iter()
            .map(|of: &Observation| of.block)
            .collect();
        assert_eq!(blocks, (0..24).collect());
        let machines: BTreeSet<&str> = both
            .observations
            .iter()
            .filter_map(|of| of.machine.as_deref())
            .collect();
        assert_eq!(machines, BTreeSet::from(["x86", "arm", "x86 #2"]));
        assert_eq!(both.header.machine["processor"], "x86 / arm");
        let found = attribute_with(&both.header, &both.observations, &both.supplement, &|_| {
            0.01
        })
        .unwrap();
        let [noise] = &found.noise.machines[..] else {
            panic!("{:?}", found.noise.machines);
        };
        assert!(
            noise.machines.len() == 3 && noise.p_value < 0.001,
            "{noise:?}"
        );
        let effect = found.patches[0]
            .effects
            .iter()
            .find(|of| of.meter == Meter::Time && of.point == Point::Step(1));
        assert!(
            (0.02..0.04).contains(&effect.unwrap().estimate),
            "{effect:?}"
        );
    }

    #[test]
    fn an_experiment_counts_once() {
        let error = merged(vec![file("x86", 0.02), file("x86", 0.02)]).unwrap_err();
        assert!(error.message().contains("24 of its 24 times"), "{error}");
    }

    #[test]
    fn counts_alone_count_once_too() {
        let counted = |started: &str, processor: &str| {
            let mut file = file(processor, 0.02);
            file.header.experiment = "quick-1".to_owned();
            file.header.started = started.to_owned();
            for of in &mut file.observations {
                of.meter = Meter::Instructions;
                of.unit = Meter::Instructions.unit().to_owned();
            }
            file
        };
        let first = || counted("2026-01-02T03:04:05Z", "x86");
        let error = merged(vec![first(), first()]).unwrap_err();
        assert!(error.message().contains("24 of its 24 counts"), "{error}");
        // Counts of other experiments may be the same.
        for (started, processor) in [
            ("2026-01-02T03:04:06Z", "x86"),
            ("2026-01-02T03:04:05Z", "arm"),
        ] {
            let both = merged(vec![first(), counted(started, processor)]).unwrap();
            assert_eq!(both.observations.len(), 48);
        }
    }

    #[test]
    fn namesakes_among_many_machines_are_told() {
        let warning = |processors: [&str; 6]| {
            let scales = processors.iter().zip([1.0, 1.1, 1.2, 1.3, 1.4, 1.5]);
            let files = scales.map(|(processor, scale)| scaled(processor, 0.02, scale));
            let all = merged(files.collect()).unwrap();
            let found = attribute_with(&all.header, &all.observations, &all.supplement, &|_| 0.01);
            let warnings = found.unwrap().warnings.into_iter();
            let told = warnings.filter(|of| of.code().number == 764);
            told.map(|of| of.message().to_owned()).collect::<Vec<_>>()
        };
        let told = warning(["x86", "x86", "arm", "x86", "power", "riscv"]);
        assert_eq!(told.len(), 1);
        assert!(
            told[0].starts_with("3 machines have the name x86"),
            "{told:?}"
        );
        let told = warning(["x86", "x87", "arm", "s390", "power", "riscv"]);
        assert_eq!(told, [""; 0]);
    }

    #[test]
    fn what_cannot_be_compared_is_refused() {
        let mut other = scaled("arm", 0.0, 1.7);
        other.header.series = vec!["b.patch".into()];
        let error = merged(vec![file("x86", 0.0), other]).unwrap_err();
        assert!(
            error
                .message()
                .contains("differs from that of the first file"),
            "{error}"
        );
        let mut other = scaled("arm", 0.0, 1.7);
        other.header.harness = "h2".into();
        let error = merged(vec![file("x86", 0.0), other]).unwrap_err();
        assert!(
            error.message().contains("harness `h2` instead of `h`"),
            "{error}"
        );
    }
}
