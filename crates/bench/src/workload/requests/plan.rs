//! The transactions of a workload, and the requests generated from them.

use std::collections::BTreeMap;
use std::ops::Range;

use rand::RngExt;
use rand::SeedableRng;
use rand::rngs::StdRng;

use super::parameter::Parameter;
use super::protocols::Protocol;
use super::request::Request;
use super::settings::{InvalidSetting, ParameterSettings, RequestSettings};
use super::template::{Slot, Template, Values, is_name};

/// Requests that belong together, in this order.
#[derive(Debug, Clone)]
pub(super) struct Transaction {
    /// How often it runs, in proportion to the others.
    weight: u32,
    /// Its requests among those of the plan.
    requests: Range<usize>,
    slots: Vec<Slot>,
}

/// The transactions of a workload.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) protocol: Box<dyn Protocol>,
    /// The requests of all transactions.
    pub(super) requests: Vec<Request>,
    transactions: Vec<Transaction>,
    parameters: Vec<Parameter>,
    /// The sum of all weights.
    total_weight: u64,
    /// The requests that a connection sends before all else, as the only transaction.
    pub(super) connect: Option<Box<Plan>>,
}

/// A transaction's settings: its weight and its requests.
pub(super) type WeightedRequests<'a> = (u32, &'a [RequestSettings]);

impl Plan {
    /// Compiles transactions; `section` is the name of their array in the settings.
    pub(super) fn new(
        protocol: Box<dyn Protocol>,
        parameters: &BTreeMap<String, ParameterSettings>,
        section: &str,
        transactions: &[WeightedRequests<'_>],
    ) -> Result<Self, InvalidSetting> {
        let mut plan = Plan {
            protocol,
            requests: Vec::new(),
            transactions: Vec::new(),
            parameters: Vec::new(),
            total_weight: 0,
            connect: None,
        };
        let mut names = BTreeMap::new();
        for (index, (name, settings)) in parameters.iter().enumerate() {
            let path = ["parameters", name];
            if !is_name(name) {
                let fault = "a parameter's name has lower-case letters, digits and underscores";
                return Err(InvalidSetting::new(&path, fault));
            }
            let parameter = Parameter::new(settings).map_err(|invalid| invalid.below(&path))?;
            plan.parameters.push(parameter);
            names.insert(name.as_str(), index);
        }
        for (index, (weight, requests)) in transactions.iter().enumerate() {
            let index = index.to_string();
            if requests.is_empty() {
                let fault = "the transaction has no requests";
                return Err(InvalidSetting::new(&[section, &index, "requests"], fault));
            }
            plan.add(*weight, requests, &names)
                .map_err(|(request, fault)| {
                    let request = request.to_string();
                    InvalidSetting::new(&[section, &index, "requests", &request], fault)
                })?;
        }
        Ok(plan)
    }

    /// Adds a transaction. An error has the index of the request at fault.
    fn add(
        &mut self,
        weight: u32,
        requests: &[RequestSettings],
        names: &BTreeMap<&str, usize>,
    ) -> Result<(), (usize, String)> {
        let first = self.requests.len();
        let mut slots = Vec::new();
        for (index, settings) in requests.iter().enumerate() {
            let at = |fault| (index, fault);
            let texts = self.protocol.parts(settings).map_err(at)?;
            let mut template = |text: &String| {
                Template::parse(text, names, &mut slots)
                    .map_err(|placeholder| at(format!("`{placeholder}` is not a parameter")))
            };
            let parts = texts.iter().map(&mut template).collect::<Result<_, _>>()?;
            let value = settings.value.as_ref().map(template).transpose()?;
            if value.is_some() && !self.protocol.has_values() {
                return Err(at("this protocol's replies have no `value`".to_owned()));
            }
            self.requests.push(Request {
                number: first + index,
                label: settings.send.clone(),
                parts,
                expect: settings.expect,
                value,
            });
        }
        self.total_weight += u64::from(weight);
        self.transactions.push(Transaction {
            weight,
            requests: first..self.requests.len(),
            slots,
        });
        Ok(())
    }

    /// Returns the smallest number of requests of a transaction, at least 1.
    pub(super) fn fewest_requests(&self) -> usize {
        let requests = self.transactions.iter().map(|one| one.requests.len());
        requests.min().unwrap_or(1).max(1)
    }

    /// Returns the sum of all weights.
    pub(super) fn total_weight(&self) -> u64 {
        self.total_weight
    }
}

/// More values than an attempt to measure a block draws.
const SEQUENCE_OF_ATTEMPT: u64 = 100_000_000;

/// Draws transactions and their values, the same ones for the same seed.
#[derive(Debug)]
pub(super) struct Generator<'a> {
    plan: &'a Plan,
    random: StdRng,
    /// How often each parameter was drawn.
    drawn: Vec<u64>,
    values: Values,
}

impl<'a> Generator<'a> {
    pub(super) fn new(plan: &'a Plan, seed: u64) -> Self {
        Generator {
            plan,
            random: StdRng::seed_from_u64(seed),
            drawn: vec![0; plan.parameters.len()],
            values: Values::default(),
        }
    }

    /// Begins sequences behind everything that earlier attempts on the same servers can have drawn.
    pub(super) fn at_attempt(mut self, attempt: u32) -> Self {
        self.drawn.fill(u64::from(attempt) * SEQUENCE_OF_ATTEMPT);
        self
    }

    /// Begins a new random stream. Sequences go on.
    pub(super) fn reseed(&mut self, seed: u64) {
        self.random = StdRng::seed_from_u64(seed);
    }

    /// Appends `count` transactions, chosen by their weights.
    pub(super) fn generate(&mut self, count: usize, script: &mut Script) {
        for _ in 0..count {
            let index = self.choose();
            self.generate_one(index, script);
        }
    }

    fn choose(&mut self) -> usize {
        let transactions = &self.plan.transactions;
        if transactions.len() < 2 {
            return 0;
        }
        let mut left = self.random.random_range(0..self.plan.total_weight);
        for (index, transaction) in transactions.iter().enumerate() {
            match left.checked_sub(transaction.weight.into()) {
                Some(rest) => left = rest,
                None => return index,
            }
        }
        0
    }

    /// Appends the transaction with this index.
    pub(super) fn generate_one(&mut self, index: usize, script: &mut Script) {
        let plan = self.plan;
        let transaction = &plan.transactions[index];
        self.values.clear();
        for &(parameter, _) in &transaction.slots {
            let drawn = &mut self.drawn[parameter];
            let before = *drawn;
            *drawn += 1;
            self.values
                .add(|text| plan.parameters[parameter].draw(&mut self.random, before, text));
        }
        for request in &plan.requests[transaction.requests.clone()] {
            plan.protocol
                .encode(request, &self.values, &mut script.bytes);
            if let Some(value) = &request.value {
                value.write(&self.values, &mut script.expected);
            }
            script.requests.push(SentRequest {
                number: request.number,
                end: script.bytes.len(),
                expected: script.expected.len(),
            });
        }
        script.ends.push(script.requests.len());
    }
}

/// Generated transactions for one connection.
#[derive(Debug, Default)]
pub(super) struct Script {
    bytes: Vec<u8>,
    requests: Vec<SentRequest>,
    /// The values that replies must have.
    expected: Vec<u8>,
    /// For each transaction, the end of its requests.
    ends: Vec<usize>,
}

/// A request as bytes.
#[derive(Debug, Clone, Copy)]
struct SentRequest {
    /// Its number in the plan.
    number: usize,
    /// The end of its bytes.
    end: usize,
    /// The end of the value that its reply must have.
    expected: usize,
}

impl Script {
    /// Returns the number of transactions.
    pub(super) fn transactions(&self) -> usize {
        self.ends.len()
    }

    /// Returns the number of bytes of all requests.
    pub(super) fn size(&self) -> usize {
        self.bytes.len()
    }

    /// Removes all transactions.
    pub(super) fn clear(&mut self) {
        self.bytes.clear();
        self.requests.clear();
        self.expected.clear();
        self.ends.clear();
    }

    /// Returns the range of the requests of these transactions.
    pub(super) fn range(&self, transactions: Range<usize>) -> Range<usize> {
        let before = |count: usize| count.checked_sub(1).map_or(0, |last| self.ends[last]);
        before(transactions.start)..before(transactions.end)
    }

    /// Returns the number of a request in the plan, and the value that its reply must have: empty if any will do.
    pub(super) fn request(&self, index: usize) -> (usize, &[u8]) {
        let before = |count: usize| self.last_of(count).map_or(0, |last| last.expected);
        let expected = &self.expected[before(index)..before(index + 1)];
        (self.requests[index].number, expected)
    }

    /// Returns the bytes of requests.
    pub(super) fn bytes(&self, range: Range<usize>) -> &[u8] {
        let before = |count: usize| self.last_of(count).map_or(0, |last| last.end);
        &self.bytes[before(range.start)..before(range.end)]
    }

    /// Returns the last of the first `count` requests.
    fn last_of(&self, count: usize) -> Option<&SentRequest> {
        count.checked_sub(1).map(|last| &self.requests[last])
    }
}

#[cfg(test)]
mod tests {
    use super::super::protocols::testing::plan;
    use super::*;

    #[test]
    fn sequences_of_another_attempt_begin_behind_the_first_ones() {
        let plan = plan("memcached", "'get k{s}'");
        let first_request = |attempt: u32| {
            let mut script = Script::default();
            Generator::new(&plan, 1)
                .at_attempt(attempt)
                .generate(1, &mut script);
            String::from_utf8(script.bytes(0..1).to_vec()).unwrap()
        };
        assert!(first_request(0).ends_with("k1\r\n"), "{}", first_request(0));
        assert!(
            first_request(2).ends_with("k200000001\r\n"),
            "{}",
            first_request(2)
        );
    }
}
