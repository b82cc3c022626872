//! The section `[requests]` of a workload's file.

use std::collections::BTreeMap;
use std::fmt;

use serde::de::value::MapAccessDeserializer;
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer};

use crate::workload::client::one;
use perfquilt_config::Section;
use perfquilt_model::error::Error;

/// A setting at fault, as a path below the section, and what is wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct InvalidSetting {
    pub(super) path: Vec<String>,
    pub(super) fault: String,
}

impl InvalidSetting {
    pub(super) fn new(path: &[&str], fault: impl Into<String>) -> Self {
        InvalidSetting {
            path: path.iter().map(|&key| key.to_owned()).collect(),
            fault: fault.into(),
        }
    }

    /// Returns the fault of a setting in the table at `path`.
    pub(super) fn below(self, path: &[&str]) -> Self {
        let keys = self.path.iter().map(String::as_str);
        let path: Vec<&str> = path.iter().copied().chain(keys).collect();
        InvalidSetting::new(&path, self.fault)
    }

    /// Returns the error of the setting in its section.
    pub(super) fn in_section(self, section: &Section) -> Error {
        let path: Vec<&str> = self.path.iter().map(String::as_str).collect();
        section.error(&path, self.fault)
    }
}

/// `[requests]`: settings of a workload of requests.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RequestsSettings {
    /// The protocol: `resp` (Redis, Valkey), `http` (HTTP/1.1), `memcached` (text and meta commands), `mysql` (MySQL,
    /// MariaDB) or `postgresql`.
    pub(super) protocol: String,
    /// Connections to each server, at most 1024.
    #[serde(default = "one")]
    pub(super) connections: u32,
    /// Client threads that share the connections: each sends to all of its own, then reads their replies. Transactions
    /// that wait for each other's locks need a thread per connection. With several, client and servers have all
    /// processors, and slices take 2 ms.
    #[serde(default = "one")]
    pub(super) threads: u32,
    /// Requests that a connection sends before it reads their replies; `mysql` supports only 1.
    #[serde(default = "one")]
    pub(super) pipeline: u32,
    /// Whether statements are prepared once per connection, with values sent in binary form (`mysql`) or as text
    /// (`postgresql`, where quotation marks around a placeholder alone are dropped).
    #[serde(default)]
    pub(super) prepared: bool,
    /// Transactions of each connection in one slice; 0: perfquilt chooses.
    #[serde(default)]
    pub(super) slice_transactions: u32,
    /// Transactions per restart for the counting meters; 0: perfquilt chooses.
    #[serde(default)]
    pub(super) count_transactions: u32,
    /// `[requests.parameters]`: random values in requests, by name.
    #[serde(default)]
    pub(super) parameters: BTreeMap<String, ParameterSettings>,
    /// `[[requests.prepare]]`: requests that create the data. Workloads with the same `prepare` share their data.
    #[serde(default)]
    pub(super) prepare: Vec<StepSettings>,
    /// Whether the server stores its data on disk: `prepare` then runs once, and every start gets a copy of the data.
    /// Otherwise it runs after every start. By default `true` for `mysql` and `postgresql`.
    pub(super) stored: Option<bool>,
    /// Requests without parameters that every timed connection sends first, before statements are prepared:
    /// `SET SESSION …`, `HANDLER … OPEN`, `SELECT 1` (`resp`).
    #[serde(default)]
    pub(super) connect: Vec<RequestSettings>,
    /// Whether the clients' own processor time is an operation `client` in the results.
    #[serde(default)]
    pub(super) client_time: bool,
    /// `[[requests.after_start]]`: requests to every started server.
    #[serde(default)]
    pub(super) after_start: Vec<StepSettings>,
    /// `[[requests.transaction]]`: the transactions that are timed, a mix by weight.
    #[serde(default)]
    pub(super) transaction: Vec<TransactionSettings>,
    /// Scripts of pgbench below `bench-config/`, each a transaction: `PATH` or `PATH@WEIGHT` (only `postgresql`). They
    /// have statements, `:name`, and `\set` with arithmetic of numbers or one of `random`, `random_zipfian`,
    /// `random_gaussian` and `random_exponential`; anything else is an error with file and line.
    #[serde(default)]
    pub(super) pgbench: Vec<String>,
    /// Numbers that these scripts use as variables: `{ scale = 10 }`.
    #[serde(default)]
    pub(super) variables: BTreeMap<String, f64>,
}

/// `[[requests.transaction]]`: requests that belong together.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TransactionSettings {
    /// How often it runs, in proportion to the other transactions.
    #[serde(default = "one")]
    pub(super) weight: u32,
    /// Its requests, in this order: texts to send, or tables.
    pub(super) requests: Vec<RequestSettings>,
}

/// `[[requests.prepare]]` and `[[requests.after_start]]`: requests that are not timed.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct StepSettings {
    /// Repetitions.
    #[serde(default = "once")]
    pub(super) times: u64,
    /// Its requests, in this order.
    pub(super) requests: Vec<RequestSettings>,
}

fn once() -> u64 {
    1
}

/// A request: a table, or the text to send.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, remote = "Self")]
pub(super) struct RequestSettings {
    /// `resp`: the words of a command, quoted as in a shell; `http`: `GET /path`; `memcached`: a command without the
    /// length of its data; `mysql`, `postgresql`: a statement (`postgresql`: several where they are not prepared).
    pub(super) send: String,
    /// `http` and `memcached`: the data, whose length perfquilt adds; `resp`: a last word.
    pub(super) body: Option<String>,
    /// `http`: lines `Name: value`.
    #[serde(default)]
    pub(super) headers: Vec<String>,
    /// The expected reply; any other, and every error, fails the block.
    #[serde(default)]
    pub(super) expect: Expect,
    /// `mysql`: the text that the first row has in its first column, an integer or a text. Any other row fails the block.
    pub(super) value: Option<String>,
}

/// Which reply to a request is expected. An error never is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Expect {
    /// A reply with a result: no null, miss, empty list, empty set of rows or HTTP status beyond 2xx.
    #[default]
    Result,
    /// Any reply that is no error.
    Any,
}

impl RequestSettings {
    /// Returns the request that sends `text`.
    pub(super) fn text(text: impl Into<String>) -> Self {
        RequestSettings {
            send: text.into(),
            body: None,
            headers: Vec::new(),
            expect: Expect::default(),
            value: None,
        }
    }
}

impl<'de> Deserialize<'de> for RequestSettings {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(TextOrTable)
    }
}

struct TextOrTable;

impl<'de> Visitor<'de> for TextOrTable {
    type Value = RequestSettings;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a request: its text, or a table with `send`")
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<RequestSettings, E> {
        Ok(RequestSettings::text(text))
    }

    fn visit_map<A: MapAccess<'de>>(self, table: A) -> Result<RequestSettings, A::Error> {
        RequestSettings::deserialize(MapAccessDeserializer::new(table))
    }
}

/// `[requests.parameters]`: a random value, of exactly one of the kinds `from` and `to`, `sequence`, `length`,
/// `choices`.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ParameterSettings {
    /// The smallest integer.
    pub(super) from: Option<i64>,
    /// The largest integer.
    pub(super) to: Option<i64>,
    /// How integers are distributed; by default `uniform`. `gaussian` and `exponential` are pgbench's.
    pub(super) distribution: Option<DistributionName>,
    /// The distribution's shape: by default 1 for `zipf` and 2.5 for `gaussian` and `exponential`.
    pub(super) shape: Option<f64>,
    /// The first of consecutive integers.
    pub(super) sequence: Option<i64>,
    /// The length of a random text.
    pub(super) length: Option<u32>,
    /// The characters of a random text; by default a-z and 0-9.
    pub(super) characters: Option<String>,
    /// Texts of which one is drawn.
    pub(super) choices: Option<Vec<String>>,
    /// The minimum number of digits of an integer, filled with zeros.
    pub(super) width: Option<u8>,
}

/// The distribution of a parameter's integers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum DistributionName {
    /// All integers are equally likely.
    Uniform,
    /// The k-th integer has a probability in proportion to 1/k^shape.
    Zipf,
    /// Normal around the middle, cut off at `shape` standard deviations on both sides.
    Gaussian,
    /// Exponential from the smallest on, falling by e^-shape over the range.
    Exponential,
}
