//! Reading results back.

use std::collections::BTreeMap;

use rusqlite::{OptionalExtension, params};

use super::{ExperimentId, Listed, Store, blob, functions};
use perfquilt_model::error::{Error, Result};
use perfquilt_model::observation::Slices;
use perfquilt_model::observation::{
    Conditions, ExperimentHeader, LeftOut, Meter, Moment, Observation, Planned, PointBuild,
    PointFunctions, SCHEMA, Supplement,
};
use perfquilt_model::point::Point;

impl Store {
    /// The blocks that are stored for a workload and meter, ascending: those over all points, or the
    /// `direct` ones of the closure check.
    ///
    /// # Errors
    /// [`Kind::Internal`](perfquilt_model::error::Kind::Internal) when the file cannot be read.
    pub fn blocks_done(
        &self,
        id: ExperimentId,
        workload: &str,
        meter: Meter,
        direct: bool,
    ) -> Result<Vec<u32>> {
        self.rows(
            "SELECT DISTINCT block FROM observations
             WHERE experiment = ?1 AND workload = ?2 AND meter = ?3 AND direct = ?4 ORDER BY block",
            params![id.0, workload, meter.name(), direct],
            |row| row.get(0),
        )
    }

    /// The experiment's header.
    ///
    /// # Errors
    /// [`Kind::Internal`](perfquilt_model::error::Kind::Internal) when there is no such experiment or the file
    /// cannot be read.
    pub fn header(&self, id: ExperimentId) -> Result<ExperimentHeader> {
        let text: String = self
            .connection
            .query_row(
                "SELECT header FROM experiments WHERE id = ?1",
                [id.0],
                |row| row.get(0),
            )
            .map_err(self.failed("read"))?;
        self.parse_header(&text)
    }

    /// The experiment's header and observations, ordered by workload, meter, block and position; behind
    /// its own those of the experiments it carries from, told by its points.
    ///
    /// # Errors
    /// [`Kind::Internal`](perfquilt_model::error::Kind::Internal) when the file cannot be read.
    pub fn load(&self, id: ExperimentId) -> Result<(ExperimentHeader, Vec<Observation>)> {
        let header = self.header(id)?;
        let mut observations = self.observations(id, &header.experiment)?;
        if header.carried.is_empty() {
            return Ok((header, observations));
        }
        let planned = self.planned(id)?;
        for origin in &header.carried {
            let here: BTreeMap<Point, Point> = origin
                .points
                .iter()
                .map(|(&here, &there)| (there, here))
                .collect();
            let other = self.find(&origin.experiment)?;
            for mut observation in self.observations(other, &origin.experiment)? {
                let of = &observation.workload;
                // An operation belongs to its workload.
                let whole = of.split_once('/').map_or(of.as_str(), |(whole, _)| whole);
                let wanted = planned.iter().any(|p| {
                    p.meter == observation.meter && (p.workload == *of || p.workload == whole)
                });
                if let Some(&point) = here.get(&observation.point).filter(|_| wanted) {
                    observation.point = point;
                    observations.push(observation);
                }
            }
        }
        Ok((header, observations))
    }

    fn observations(&self, id: ExperimentId, name: &str) -> Result<Vec<Observation>> {
        // There may be a million: room for them is made once.
        let count: i64 = self
            .connection
            .query_row(
                "SELECT count(*) FROM observations WHERE experiment = ?1",
                [id.0],
                |row| row.get(0),
            )
            .map_err(self.failed("read"))?;
        let mut observations = Vec::with_capacity(usize::try_from(count).unwrap_or(0));
        let mut damaged = Ok(());
        self.rows(
            "SELECT workload, meter, block, point, position, layout, value, n, direct,
                    mean, slow, p99
             FROM observations
             WHERE experiment = ?1 ORDER BY workload, meter, direct, block, point",
            params![id.0],
            |row| {
                match observation(row, name)? {
                    Ok(observation) => observations.push(observation),
                    Err(error) => damaged = Err(error),
                }
                Ok(())
            },
        )?;
        self.known(damaged)?;
        // The table has them in this order but for the positions, which are sorted faster here.
        let of_one_block = |a: &Observation, b: &Observation| {
            (a.block, a.direct, a.meter) == (b.block, b.direct, b.meter) && a.workload == b.workload
        };
        for block in observations.chunk_by_mut(of_one_block) {
            block.sort_by_key(|observation| observation.order);
        }
        Ok(observations)
    }

    /// What is stored beside the observations: planned blocks, build times, conditions and discarded rounds.
    ///
    /// # Errors
    /// [`Kind::Internal`](perfquilt_model::error::Kind::Internal) when the file cannot be read.
    pub fn supplement(&self, id: ExperimentId) -> Result<Supplement> {
        let planned = self.planned(id)?;
        Ok(Supplement {
            builds: self.builds(id)?,
            left_out: self.spoiled(id, &planned)?,
            conditions: self.conditions(id)?,
            planned,
            ..Supplement::default()
        })
    }

    /// The rounds that no figure is made from, by workload: what they were to tell is the first meter read from
    /// slices.
    fn spoiled(&self, id: ExperimentId, planned: &[Planned]) -> Result<Vec<LeftOut>> {
        let rounds: Vec<(String, i64)> = self.rows(
            "SELECT workload, sum(rounds) FROM spoiled WHERE experiment = ?1 GROUP BY 1 ORDER BY 1",
            params![id.0],
            |row| Ok((row.get(0)?, row.get(1)?)),
        )?;
        let meter = |workload: &str| {
            let of = planned.iter().filter(|plan| plan.workload == workload);
            of.map(|plan| plan.meter).min().unwrap_or(Meter::Time)
        };
        Ok(rounds
            .into_iter()
            .map(|(workload, count)| LeftOut {
                meter: meter(&workload),
                workload,
                count: unsigned(count),
                reason: "rounds in which a transaction of some server had to be started again"
                    .to_owned(),
            })
            .collect())
    }

    /// What else happened on the machine, by workload.
    fn conditions(&self, id: ExperimentId) -> Result<Vec<Conditions>> {
        let moments: Vec<(String, Moment)> = self.rows(
            "SELECT workload, seconds, steal, idle, preempted, major_faults, minor_faults,
                    mhz_low, mhz_high
             FROM moments WHERE experiment = ?1 ORDER BY workload, direct, block",
            params![id.0],
            |row| {
                let moment = Moment {
                    seconds: row.get(1)?,
                    steal: row.get(2)?,
                    idle: row.get(3)?,
                    preempted: unsigned(row.get(4)?),
                    major_faults: unsigned(row.get(5)?),
                    minor_faults: unsigned(row.get(6)?),
                    mhz: row.get::<_, Option<f64>>(7)?.zip(row.get(8)?),
                };
                Ok((row.get(0)?, moment))
            },
        )?;
        let mut by_workload: BTreeMap<String, Vec<Moment>> = BTreeMap::new();
        for (workload, moment) in moments {
            by_workload.entry(workload).or_default().push(moment);
        }
        Ok(by_workload
            .iter()
            .filter_map(|(workload, moments)| Conditions::over(workload, moments))
            .collect())
    }

    /// The blocks the experiment was said to have; empty when nothing was said.
    ///
    /// # Errors
    /// [`Kind::Internal`](perfquilt_model::error::Kind::Internal) when the file cannot be read.
    pub fn planned(&self, id: ExperimentId) -> Result<Vec<Planned>> {
        self.rows(
            "SELECT workload, meter, blocks, min_blocks, resolution, extended FROM plans
             WHERE experiment = ?1",
            params![id.0],
            |row| {
                let plan = Planned {
                    workload: row.get(0)?,
                    meter: Meter::Time,
                    blocks: row.get(2)?,
                    min_blocks: row.get(3)?,
                    resolution: row.get(4)?,
                    extended: row.get(5)?,
                };
                Ok((row.get::<_, String>(1)?, plan))
            },
        )?
        .into_iter()
        .map(|(meter, mut plan)| {
            plan.meter = self.known(meter.parse())?;
            Ok(plan)
        })
        .collect()
    }

    /// How long points took to build, and under which keys.
    ///
    /// # Errors
    /// [`Kind::Internal`](perfquilt_model::error::Kind::Internal) when the file cannot be read.
    pub fn builds(&self, id: ExperimentId) -> Result<Vec<PointBuild>> {
        let mut builds = self
            .rows(
                "SELECT point, key, configure, compile, link, overhead, units, cached, profile
                 FROM experiment_builds JOIN builds USING (key) WHERE experiment = ?1",
                params![id.0],
                |row| {
                    let build = PointBuild {
                        point: Point::BASE,
                        key: row.get(1)?,
                        configure: row.get(2)?,
                        compile: row.get(3)?,
                        link: row.get(4)?,
                        overhead: row.get(5)?,
                        units: unsigned(row.get(6)?),
                        cached: row.get(7)?,
                        // What cannot be read is told as none: it decides nothing.
                        profile: row
                            .get::<_, Option<String>>(8)?
                            .and_then(|text| serde_json::from_str(&text).ok()),
                    };
                    Ok((row.get::<_, String>(0)?, build))
                },
            )?
            .into_iter()
            .map(|(point, mut build)| {
                build.point = self.known(point.parse())?;
                Ok(build)
            })
            .collect::<Result<Vec<_>>>()?;
        builds.sort_by_key(|build| build.point);
        Ok(builds)
    }

    /// What functions executed in the counted blocks.
    ///
    /// # Errors
    /// [`Kind::Internal`](perfquilt_model::error::Kind::Internal) when the file cannot be read.
    pub fn functions(&self, id: ExperimentId) -> Result<Vec<PointFunctions>> {
        self.rows(
            "SELECT workload, block, point, costs FROM functions WHERE experiment = ?1
             ORDER BY workload, block, point",
            params![id.0],
            |row| {
                Ok((
                    row.get::<_, String>(0)?,
                    row.get(1)?,
                    row.get::<_, String>(2)?,
                    functions::decode(row.get_ref(3)?.as_blob()?),
                ))
            },
        )?
        .into_iter()
        .map(|(workload, block, point, functions)| {
            Ok(PointFunctions {
                workload,
                block,
                point: self.known(point.parse())?,
                functions: functions
                    .ok_or_else(|| Error::internal("a function's cost cannot be read"))?,
            })
        })
        .collect()
    }

    /// The blocks (over all points) whose slices are stored, by workload.
    ///
    /// # Errors
    /// [`Kind::Internal`](perfquilt_model::error::Kind::Internal) when the file cannot be read.
    pub fn slice_blocks(&self, id: ExperimentId) -> Result<Vec<(String, u32)>> {
        self.rows(
            "SELECT DISTINCT workload, block FROM slices
             WHERE experiment = ?1 AND direct = 0 ORDER BY 1, 2",
            params![id.0],
            |row| Ok((row.get(0)?, row.get(1)?)),
        )
    }

    /// The raw slices of a block (over all points) of a workload.
    ///
    /// # Errors
    /// [`Kind::Internal`](perfquilt_model::error::Kind::Internal) when the file cannot be read.
    pub fn slices(&self, id: ExperimentId, workload: &str, block: u32) -> Result<Vec<Slices>> {
        self.rows(
            "SELECT point, transactions, nanoseconds FROM slices
             WHERE experiment = ?1 AND workload = ?2 AND block = ?3 AND direct = 0 ORDER BY point",
            params![id.0, workload, block],
            |row| {
                Ok((
                    row.get::<_, String>(0)?,
                    unsigned(row.get(1)?),
                    blob::decode(row.get_ref(2)?.as_blob()?),
                ))
            },
        )?
        .into_iter()
        .map(|(point, transactions_per_slice, nanoseconds)| {
            Ok(Slices {
                point: self.known(point.parse())?,
                nanoseconds,
                transactions_per_slice,
            })
        })
        .collect()
    }

    /// The experiment that was begun, continued or added to last.
    ///
    /// # Errors
    /// [`Kind::Internal`](perfquilt_model::error::Kind::Internal) when the file cannot be read.
    pub fn latest(&self) -> Result<Option<ExperimentId>> {
        self.connection
            .query_row(
                "SELECT id FROM experiments ORDER BY touched DESC LIMIT 1",
                [],
                |row| row.get(0).map(ExperimentId),
            )
            .optional()
            .map_err(self.failed("read"))
    }

    /// The experiment called `name`.
    ///
    /// # Errors
    /// [`Kind::Usage`](perfquilt_model::error::Kind::Usage), naming the nearest one there is.
    pub fn find(&self, name: &str) -> Result<ExperimentId> {
        let listed = self.list()?;
        if let Some(found) = listed.iter().find(|l| l.header.experiment == name) {
            return Ok(found.id);
        }
        let names: Vec<String> = listed.into_iter().map(|l| l.header.experiment).collect();
        Err(perfquilt_model::error::Error::unknown(
            "experiment",
            name,
            names.iter(),
        ))
    }

    /// All experiments, the latest first.
    ///
    /// # Errors
    /// [`Kind::Internal`](perfquilt_model::error::Kind::Internal) when the file cannot be read.
    pub fn list(&self) -> Result<Vec<Listed>> {
        self.rows(
            "SELECT id, header, (SELECT count(*) FROM observations WHERE experiment = id)
             FROM experiments ORDER BY touched DESC",
            [],
            |row| Ok((row.get(0)?, row.get::<_, String>(1)?, row.get(2)?)),
        )?
        .into_iter()
        .map(|(id, header, observations)| {
            Ok(Listed {
                id: ExperimentId(id),
                header: self.parse_header(&header)?,
                observations: unsigned(observations),
            })
        })
        .collect()
    }

    pub(super) fn rows<T>(
        &self,
        sql: &str,
        params: impl rusqlite::Params,
        row: impl FnMut(&rusqlite::Row<'_>) -> rusqlite::Result<T>,
    ) -> Result<Vec<T>> {
        self.connection
            .prepare_cached(sql)
            .and_then(|mut statement| statement.query_map(params, row)?.collect())
            .map_err(self.failed("read"))
    }

    /// Text this program wrote itself that it cannot read back: the file was tampered with.
    pub(super) fn known<T>(&self, parsed: Result<T>) -> Result<T> {
        parsed.map_err(|error| {
            Error::internal(format!("{} is damaged", self.path.display()))
                .details([error.message().to_owned()])
        })
    }

    pub(super) fn parse_header(&self, text: &str) -> Result<ExperimentHeader> {
        self.known(serde_json::from_str(text).map_err(|e| Error::internal(e.to_string())))
    }
}

/// An observation of the experiment `name`; inside, what of it cannot be understood.
fn observation(row: &rusqlite::Row<'_>, name: &str) -> rusqlite::Result<Result<Observation>> {
    let parsed = |meter: &str, point: &str| Ok((meter.parse::<Meter>()?, point.parse()?));
    let (meter, point) = match parsed(row.get_ref(1)?.as_str()?, row.get_ref(3)?.as_str()?) {
        Ok(parsed) => parsed,
        Err(error) => return Ok(Err(error)),
    };
    Ok(Ok(Observation {
        schema: SCHEMA,
        experiment: name.to_owned(),
        block: row.get(2)?,
        order: row.get(4)?,
        point,
        layout: u64::from_ne_bytes(row.get::<_, i64>(5)?.to_ne_bytes()),
        workload: row.get(0)?,
        meter,
        unit: meter.unit().to_owned(),
        value: row.get(6)?,
        n: unsigned(row.get(7)?),
        direct: row.get(8)?,
        mean: row.get(9)?,
        slow: row.get(10)?,
        p99: row.get(11)?,
    }))
}

fn unsigned(count: i64) -> u64 {
    u64::try_from(count).unwrap_or(0)
}
