//! Checks of headers and observations before they are stored or analysed.

use super::{ExperimentHeader, Meter, Observation, ReusedFrom, RowName, SCHEMA, Supplement};
use crate::point::Point;

/// Maximum number of experiments to reuse observations from: far more than there are points. The limit exists
/// because each is compared with the others.
const MAX_REUSED: usize = 1000;

/// Maximum number of patches in a series: far more than anybody measures. The limit exists because each may be
/// compared with all earlier ones.
pub const MOST_PATCHES: usize = 2000;

impl ExperimentHeader {
    /// Checks this header; the error is the fault as a lower-case fragment.
    pub fn check(&self) -> Result<(), String> {
        if self.schema != SCHEMA {
            return Err(version(self.schema));
        }
        let (patches, titles) = (self.series.len(), self.titles.len());
        if titles > 0 && titles != patches {
            return Err(format!("{titles} titles for {patches} patches"));
        }
        if patches > MOST_PATCHES {
            return Err(format!(
                "a series of {patches} patches; at most {MOST_PATCHES} are supported"
            ));
        }
        let identical = self.identical.iter();
        let points = identical.flat_map(|(point, same)| [point, same]);
        points
            .chain(&self.line_numbers)
            .chain(self.unread.keys())
            .try_for_each(|&point| self.check_point(point))?;
        let reused = self.reused.len();
        if reused > MAX_REUSED {
            return Err(format!(
                "it reuses observations from {reused} experiments; at most {MAX_REUSED} are supported"
            ));
        }
        for (place, origin) in self.reused.iter().enumerate() {
            let same = |other: &ReusedFrom| other.experiment == origin.experiment;
            let name = &origin.experiment;
            if *name == self.experiment || self.reused[..place].iter().any(same) {
                return Err(format!("experiment `{name}` is listed twice"));
            }
            origin
                .points
                .keys()
                .try_for_each(|&point| self.check_point(point))?;
        }
        self.failed
            .keys()
            .try_for_each(|&point| self.check_point(point))
    }

    /// Checks `observation` as part of this experiment; the error is a lower-case fragment that names the field.
    pub fn check_observation(&self, observation: &Observation) -> Result<(), String> {
        let Observation {
            workload,
            experiment,
            unit,
            ..
        } = observation;
        if observation.schema != SCHEMA {
            return Err(version(observation.schema));
        }
        if self.source_of(experiment).is_none() {
            return Err(format!(
                "`experiment` is `{experiment}`, the header says `{}`",
                self.experiment
            ));
        }
        self.check_point(observation.point)?;
        if workload.is_empty() || workload == "*" {
            return Err(format!(
                "`workload` is `{workload}`: a name other than `*` is needed"
            ));
        }
        let row = RowName::from(workload.as_str());
        if row.workload.is_empty() || row.operation == Some("") {
            return Err(format!(
                "`workload` is `{workload}`: names are needed before and behind the slash"
            ));
        }
        let (meter, value) = (observation.meter, Some(observation.value));
        let wanted = meter.unit();
        if unit != wanted {
            return Err(format!(
                "`unit` is `{unit}`, meter {meter} is read in `{wanted}`"
            ));
        }
        let costs = [value, observation.mean, observation.p99];
        for (name, cost) in ["value", "mean", "p99"].into_iter().zip(costs) {
            if let Some(cost) = cost.filter(|cost| !(cost.is_finite() && *cost > 0.0)) {
                return Err(format!(
                    "`{name}` is {cost}: a cost must be a finite number above 0"
                ));
            }
        }
        let value = value.filter(|_| meter == Meter::FrontendBound);
        let shares = [value, observation.slow, observation.stalled];
        for (name, share) in ["value", "slow", "stalled"].into_iter().zip(shares) {
            if let Some(share) = share.filter(|share| !(0.0..=1.0).contains(share)) {
                return Err(format!("`{name}` is {share}: a share lies between 0 and 1"));
            }
        }
        match (observation.began, observation.ended) {
            (None, None) => {}
            (Some(began), Some(ended))
                if began.is_finite() && ended.is_finite() && began <= ended => {}
            (began, ended) => {
                let text =
                    |time: Option<f64>| time.map_or("missing".to_owned(), |time| time.to_string());
                return Err(format!(
                    "`began` is {} and `ended` is {}: both are needed, and a block ends after it began",
                    text(began),
                    text(ended)
                ));
            }
        }
        if observation.n == 0 {
            return Err("`n` is 0: a value stands for at least one transaction".to_owned());
        }
        if observation.direct && matches!(observation.point, Point::Alone(_) | Point::Without(_)) {
            return Err(format!(
                "`point` is `{}`: an end-to-end block compares the release with the series",
                observation.point
            ));
        }
        Ok(())
    }

    /// Returns the index of `experiment` among the sources of observations: 0 for this experiment, `k` for the
    /// k-th reused one; `None` if it is none of them.
    pub fn source_of(&self, experiment: &str) -> Option<usize> {
        if experiment == self.experiment {
            return Some(0);
        }
        let place = self.reused.iter().position(|o| o.experiment == experiment);
        place.map(|place| place + 1)
    }

    fn check_point(&self, point: Point) -> Result<(), String> {
        let patches = self.series.len();
        match point {
            Point::Step(k) if k > patches => {}
            Point::Alone(k) | Point::Without(k) if k == 0 || k > patches => {}
            _ => return Ok(()),
        }
        Err(format!(
            "point `{point}` is not in the series of {patches} patches"
        ))
    }
}

impl Supplement {
    /// Checks the optional facts; the error is a lower-case fragment that names the field.
    pub fn check(&self) -> Result<(), String> {
        for (meter, step) in &self.clock {
            if !(step.is_finite() && *step > 0.0) {
                return Err(format!(
                    "`clock` of {meter} is {step}: its steps must be a finite number above 0"
                ));
            }
        }
        if let Some(correlation) = self.earlier_correlation
            && !(0.0..1.0).contains(&correlation)
        {
            return Err(format!(
                "`earlier_correlation` is {correlation}: it must be at least 0 and below 1"
            ));
        }
        for of in &self.unexecuted {
            let in_order = match (of.against, of.point) {
                (Point::Step(before), Point::Step(after)) => before < after,
                _ => false,
            };
            if !in_order {
                return Err(format!(
                    "`unexecuted` compares point `{}` with `{}`, which is not an earlier point of the series",
                    of.point, of.against
                ));
            }
        }
        Ok(())
    }
}

fn version(found: u32) -> String {
    format!("`schema` is {found}; this perfquilt reads version {SCHEMA}")
}
