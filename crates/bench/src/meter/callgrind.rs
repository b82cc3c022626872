//! Reads callgrind's profiles ("callgrind format", version 1, of valgrind's manual, chapter
//! "Callgrind Format Specification").

use std::collections::HashMap;
use std::io::BufRead;
use std::path::Path;

use perfquilt_model::error::{Error, Result};

/// A function's own cost, without that of its callees.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FunctionCost {
    /// Demangled name; an address if there is no symbol.
    pub name: String,
    /// Instructions executed.
    pub instructions: u64,
    /// Misses of the simulated first-level instruction cache.
    pub l1i_misses: u64,
}

/// The profile of one thread while counting was on.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Profile {
    /// Instructions executed.
    pub instructions: u64,
    /// Misses of the simulated first-level instruction cache; 0 without cache simulation.
    pub l1i_misses: u64,
    /// Own cost of every function, highest first.
    pub functions: Vec<FunctionCost>,
}

impl Profile {
    /// Reads the profile in `file`.
    pub fn read(file: &Path) -> Result<Self> {
        let reader = std::fs::File::open(file).map_err(|e| Error::io("read", file, &e))?;
        Self::parse(std::io::BufReader::new(reader)).map_err(|error| match error.location() {
            Some(place) => {
                let line = place.line;
                error.at(file, line)
            }
            None => error.at(file, None),
        })
    }

    /// Reads a profile.
    pub fn parse(reader: impl BufRead) -> Result<Self> {
        let mut parser = Parser::default();
        for (index, line) in reader.split(b'\n').enumerate() {
            let line = line.map_err(|e| Error::io("read", Path::new("profile"), &e))?;
            // Names may hold any byte; costs and keywords are ASCII.
            let line = String::from_utf8_lossy(&line);
            parser
                .line(line.trim_end())
                .ok_or_else(|| malformed("not a line of a callgrind profile", index + 1))?;
        }
        parser.finish()
    }

    /// Sums the profiles of several threads.
    #[must_use]
    pub fn sum<'a>(profiles: impl IntoIterator<Item = &'a Profile>) -> Self {
        let mut total = Profile::default();
        let mut by_name: HashMap<&str, (u64, u64)> = HashMap::new();
        for profile in profiles {
            total.instructions += profile.instructions;
            total.l1i_misses += profile.l1i_misses;
            for function in &profile.functions {
                let cost = by_name.entry(&function.name).or_default();
                cost.0 += function.instructions;
                cost.1 += function.l1i_misses;
            }
        }
        total.functions = sorted(
            by_name
                .into_iter()
                .map(|(name, cost)| (name.to_owned(), cost)),
        );
        total
    }

    /// Whether a function of this name ran, with any parameters.
    pub fn ran(&self, name: &str) -> bool {
        let mut functions = self.functions.iter();
        functions.any(|function| is_named(&function.name, name))
    }
}

/// Whether `function` is called `name`, with any parameters.
pub(super) fn is_named(function: &str, name: &str) -> bool {
    let rest = function.strip_prefix(name);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['(', '.', '\'']))
}

fn malformed(message: &str, line: usize) -> Error {
    Error::bench(message).at("profile", line)
}

fn sorted(costs: impl Iterator<Item = (String, (u64, u64))>) -> Vec<FunctionCost> {
    let mut functions: Vec<FunctionCost> = costs
        .map(|(name, (instructions, l1i_misses))| FunctionCost {
            name,
            instructions,
            l1i_misses,
        })
        .collect();
    // Order equal costs by name, so that the order is deterministic.
    functions.sort_by(|a, b| (b.instructions, &a.name).cmp(&(a.instructions, &b.name)));
    functions
}

#[derive(Default)]
struct Parser {
    /// Number of positions at the start of a cost line.
    positions: usize,
    /// Columns of the events among the costs.
    ir: Option<usize>,
    i1mr: Option<usize>,
    /// Names by their number in this file.
    names: HashMap<u32, String>,
    costs: HashMap<u32, (u64, u64)>,
    /// Numbers assigned to functions written without one, by name.
    unnumbered: HashMap<String, u32>,
    current: Option<u32>,
    /// Whether the next cost line is the inclusive cost of a call, which its callee counts itself.
    after_call: bool,
    totals: Option<Vec<u64>>,
}

/// First number assigned to names without one.
const UNNUMBERED: u32 = 1 << 31;

impl Parser {
    /// Parses one line; `None` if it is malformed.
    fn line(&mut self, line: &str) -> Option<()> {
        let first = match line.bytes().next() {
            None | Some(b'#') => return Some(()),
            Some(byte) => byte,
        };
        if first.is_ascii_digit() || matches!(first, b'+' | b'-' | b'*') {
            return self.cost_line(line);
        }
        if let Some(value) = line.strip_prefix("fn=") {
            self.current = Some(self.name(value)?);
            return Some(());
        }
        if let Some(value) = line.strip_prefix("cfn=") {
            // A name is written in full only where it first occurs, which may be here.
            return self.name(value).map(drop);
        }
        if line.starts_with("calls=") {
            self.after_call = true;
            return Some(());
        }
        if line.starts_with("jump=") || line.starts_with("jcnd=") {
            return Some(());
        }
        // Files and objects: fl=, fi=, fe=, ob=, cfi=, cfl=, cob=.
        if let Some((key, _)) = line.split_once('=').filter(|(key, _)| key.len() <= 3) {
            return matches!(key, "fl" | "fi" | "fe" | "ob" | "cfi" | "cfl" | "cob").then_some(());
        }
        let (key, value) = line.split_once(':')?;
        match key {
            "positions" => self.positions = value.split_whitespace().count(),
            "events" => {
                let column = |name| value.split_whitespace().position(|event| event == name);
                (self.ir, self.i1mr) = (column("Ir"), column("I1mr"));
            }
            "totals" => {
                let numbers = value.split_whitespace().map(|number| number.parse().ok());
                self.totals = Some(numbers.collect::<Option<_>>()?);
            }
            // version, creator, pid, cmd, part, thread, desc, event, summary.
            _ => {}
        }
        Some(())
    }

    fn cost_line(&mut self, line: &str) -> Option<()> {
        if std::mem::take(&mut self.after_call) {
            return Some(());
        }
        // Positions may be relative; only costs matter. Omitted trailing costs are zero.
        let costs = line.split_ascii_whitespace().skip(self.positions.max(1));
        let mut instructions = 0;
        let mut misses = 0;
        for (column, number) in costs.enumerate() {
            if Some(column) == self.ir {
                instructions = number.parse().ok()?;
            } else if Some(column) == self.i1mr {
                misses = number.parse().ok()?;
            }
        }
        let cost = self.costs.entry(self.current?).or_default();
        cost.0 += instructions;
        cost.1 += misses;
        Some(())
    }

    /// Returns the number for `(12) name`, `(12)` or `name`.
    fn name(&mut self, text: &str) -> Option<u32> {
        let Some(rest) = text.strip_prefix('(') else {
            let next = UNNUMBERED + u32::try_from(self.unnumbered.len()).ok()?;
            let number = *self.unnumbered.entry(text.to_owned()).or_insert(next);
            self.names.insert(number, text.to_owned());
            return Some(number);
        };
        let (number, name) = rest.split_once(')')?;
        let number: u32 = number.parse().ok()?;
        let name = name.trim_start();
        if !name.is_empty() {
            self.names.insert(number, name.to_owned());
        }
        Some(number)
    }

    fn finish(self) -> Result<Profile> {
        let Some(ir) = self.ir else {
            return Err(Error::bench("not a callgrind profile: it has no event Ir"));
        };
        // Written last: without it, the profile is truncated.
        let Some(totals) = self.totals else {
            return Err(Error::bench("the callgrind profile is incomplete"));
        };
        let total = |column: Option<usize>| {
            column
                .and_then(|column| totals.get(column).copied())
                .unwrap_or(0)
        };
        let mut by_name: HashMap<String, (u64, u64)> = HashMap::new();
        for (number, cost) in &self.costs {
            let name = self.names.get(number).cloned();
            let sum = by_name
                .entry(name.unwrap_or_else(|| format!("({number})")))
                .or_default();
            sum.0 += cost.0;
            sum.1 += cost.1;
        }
        Ok(Profile {
            instructions: total(Some(ir)),
            l1i_misses: total(self.i1mr),
            functions: sorted(by_name.into_iter()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAMPLE: &str = "\
# callgrind format
version: 1
creator: callgrind-3.19.0
pid: 7
cmd:  server --option=a:b
part: 1
thread: 11

desc: Timerange: Basic block 0 - 35
positions: line
events: Ir Dr Dw I1mr
summary: 0

ob=(1) /x/server
fl=(1) ???
fn=(1) do_command(THD*, bool)
0 5 1 1 2
+3 4
cob=(2) /x/libc.so.6
cfi=(2) ./malloc.c
cfn=(2) malloc
calls=3 3350
0 999 9 9 9
* 1

fn=(2)
-7 20 0 0 1

fn=plain_name
1 2
fn=plain_name
1 3

totals: 35 1 1 3
";

    fn parse(text: &str) -> Result<Profile> {
        Profile::parse(text.as_bytes())
    }

    fn cost(name: &str, instructions: u64, l1i_misses: u64) -> FunctionCost {
        FunctionCost {
            name: name.into(),
            instructions,
            l1i_misses,
        }
    }

    #[test]
    fn own_costs_are_summed_without_calls() {
        let profile = parse(SAMPLE).unwrap();
        assert_eq!((profile.instructions, profile.l1i_misses), (35, 3));
        assert_eq!(
            profile.functions,
            [
                cost("malloc", 20, 1),
                cost("do_command(THD*, bool)", 10, 2),
                cost("plain_name", 5, 0),
            ]
        );
        let sum: u64 = profile.functions.iter().map(|f| f.instructions).sum();
        assert_eq!(sum, profile.instructions);
    }

    #[test]
    fn functions_are_found_by_name_without_parameters() {
        let profile = parse(SAMPLE).unwrap();
        assert!(profile.ran("do_command"));
        assert!(profile.ran("malloc"));
        assert!(!profile.ran("do_comm"));
        assert!(!profile.ran("command"));
    }

    #[test]
    fn sums_join_threads() {
        let profile = parse(SAMPLE).unwrap();
        let sum = Profile::sum([&profile, &profile]);
        assert_eq!((sum.instructions, sum.l1i_misses), (70, 6));
        assert_eq!(sum.functions[0], cost("malloc", 40, 2));
        assert_eq!(Profile::sum([]).instructions, 0);
    }

    #[test]
    fn no_cache_simulation_means_no_misses() {
        let text = "positions: line\nevents: Ir\nfn=(1) f\n3 4\ntotals: 4\n";
        let profile = parse(text).unwrap();
        assert_eq!((profile.instructions, profile.l1i_misses), (4, 0));
    }

    #[test]
    fn several_positions_are_skipped() {
        let text = "positions: instr line\nevents: Ir\nfn=(1) f\n0x1a 3 4\ntotals: 4\n";
        assert_eq!(parse(text).unwrap().functions, [cost("f", 4, 0)]);
    }

    #[test]
    fn truncated_and_other_files_are_refused() {
        let cut = &SAMPLE[..SAMPLE.len() - 20];
        assert!(parse(cut).unwrap_err().message().contains("incomplete"));
        assert!(parse("").is_err());
        let error = parse("hello\n").unwrap_err();
        assert_eq!(error.location().unwrap().line, Some(1));
        assert!(
            parse("events: Ir\n3 4\ntotals: 4\n").is_err(),
            "no function"
        );
        assert!(parse("events: Ir\nfn=(x) f\n").is_err());
        assert!(parse("events: Ir\nfn=(1) f\n1 x\n").is_err());
    }

    proptest::proptest! {
        #[test]
        fn nothing_makes_it_panic(bytes in proptest::collection::vec(proptest::num::u8::ANY, 0..200)) {
            let _ = Profile::parse(bytes.as_slice());
        }
    }
}
