//! Call graphs with instruction counts, from callgrind's profiles ("callgrind format", version 1, of valgrind's
//! manual, chapter "Callgrind Format Specification").

use std::collections::{BTreeMap, HashMap};
use std::io::BufRead;
use std::path::Path;

use indexmap::IndexSet;
use perfquilt_model::error::{Error, Result};
use serde::{Deserialize, Serialize};

/// A function's own cost, without that of its callees.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FunctionCost {
    /// Demangled name; an address if there is no symbol.
    pub name: String,
    /// Instructions executed.
    pub instructions: u64,
}

/// A place in the code: an address inside an object file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Site {
    /// Index into [`CallGraph::objects`].
    pub object: usize,
    /// The address in the object file; 0 if the profile has no addresses.
    pub address: u64,
    /// The line; 0 if unknown.
    pub line: u32,
    /// Index into [`CallGraph::files`] of the line's file.
    pub file: usize,
}

/// Calls from one function to another.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Calls {
    /// Number of calls.
    pub count: u64,
    /// Instructions executed during the calls, in the callee and its callees.
    pub inclusive: u64,
}

/// Instructions and calls of one or several threads.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CallGraph {
    /// Instructions executed.
    pub instructions: u64,
    /// Misses of the simulated first-level instruction cache; 0 without cache simulation.
    pub l1i_misses: u64,
    /// Paths of object files.
    pub objects: Vec<String>,
    /// Paths of source files, `???` if unknown.
    pub files: Vec<String>,
    /// Names of functions, demangled.
    pub functions: Vec<String>,
    /// Own instructions by function (an index into `functions`) and position.
    pub own: BTreeMap<(usize, Site), u64>,
    /// Calls by caller, position of the call, and callee.
    pub calls: BTreeMap<(usize, Site, usize), Calls>,
}

impl CallGraph {
    /// Reads the profile in `file`.
    pub fn read(file: &Path) -> Result<Self> {
        let reader = std::fs::File::open(file).map_err(|e| Error::io("read", file, &e))?;
        Self::parse(std::io::BufReader::new(reader), file)
    }

    /// Parses a profile, `file` in errors.
    fn parse(reader: impl BufRead, file: &Path) -> Result<Self> {
        let mut parser = Parser::default();
        for (index, line) in reader.split(b'\n').enumerate() {
            let line = line.map_err(|e| Error::io("read", file, &e))?;
            // Names may hold any byte; costs and keywords are ASCII.
            let line = String::from_utf8_lossy(&line);
            parser.line(line.trim_end()).ok_or_else(|| {
                Error::meter_failed("not a line of a callgrind profile").at(file, Some(index + 1))
            })?;
        }
        parser.finish().ok_or_else(|| {
            Error::meter_failed("the callgrind profile is incomplete").at(file, None)
        })
    }

    /// Whether a function of this name ran, with any parameters.
    pub fn ran(&self, name: &str) -> bool {
        let is_named = |function: &String| {
            let rest = function.strip_prefix(name);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['(', '.', '\'']))
        };
        self.functions.iter().any(is_named)
    }

    /// Returns the own costs of the functions that have some, highest first.
    pub fn own_costs(&self) -> Vec<FunctionCost> {
        let mut by_function: BTreeMap<usize, u64> = BTreeMap::new();
        for (&(function, _), cost) in &self.own {
            *by_function.entry(function).or_default() += cost;
        }
        let each = by_function.into_iter();
        let mut costs: Vec<FunctionCost> = each
            .map(|(function, instructions)| FunctionCost {
                name: self.functions[function].clone(),
                instructions,
            })
            .collect();
        // Order equal costs by name, so that the order is deterministic.
        costs.sort_by(|a, b| (b.instructions, &a.name).cmp(&(a.instructions, &b.name)));
        costs
    }

    /// Sums several graphs.
    #[must_use]
    pub fn sum<'a>(graphs: impl IntoIterator<Item = &'a CallGraph>) -> Self {
        let mut total = CallGraph::default();
        let mut names = NameTables::default();
        for graph in graphs {
            total.instructions += graph.instructions;
            total.l1i_misses += graph.l1i_misses;
            let objects = names.objects.add_all(&graph.objects);
            let files = names.files.add_all(&graph.files);
            let functions = names.functions.add_all(&graph.functions);
            let moved = |site: Site| Site {
                object: objects[site.object],
                file: files[site.file],
                ..site
            };
            for (&(function, site), cost) in &graph.own {
                let key = (functions[function], moved(site));
                *total.own.entry(key).or_default() += cost;
            }
            for (&(caller, site, callee), calls) in &graph.calls {
                let key = (functions[caller], moved(site), functions[callee]);
                let sum = total.calls.entry(key).or_default();
                sum.count += calls.count;
                sum.inclusive += calls.inclusive;
            }
        }
        total.objects = names.objects.into_names();
        total.files = names.files.into_names();
        total.functions = names.functions.into_names();
        total
    }
}

/// Numbers names in the order of their first use.
#[derive(Debug, Default)]
struct NameTable(IndexSet<String>);

impl NameTable {
    fn add(&mut self, name: &str) -> usize {
        self.0.insert_full(name.to_owned()).0
    }

    fn add_all(&mut self, names: &[String]) -> Vec<usize> {
        names.iter().map(|name| self.add(name)).collect()
    }

    fn into_names(self) -> Vec<String> {
        self.0.into_iter().collect()
    }
}

#[derive(Debug, Default)]
struct NameTables {
    objects: NameTable,
    files: NameTable,
    functions: NameTable,
}

/// Name abbreviations of a file: `(12) name` once, `(12)` from then on.
#[derive(Debug, Default)]
struct Abbreviations(HashMap<u32, usize>);

impl Abbreviations {
    fn resolve(&mut self, text: &str, table: &mut NameTable) -> Option<usize> {
        let Some(rest) = text.strip_prefix('(') else {
            return Some(table.add(text));
        };
        let (number, name) = rest.split_once(')')?;
        let number: u32 = number.parse().ok()?;
        match name.trim_start() {
            "" => self.0.get(&number).copied(),
            name => {
                let index = table.add(name);
                self.0.insert(number, index);
                Some(index)
            }
        }
    }
}

#[derive(Debug, Default)]
struct Parser {
    names: NameTables,
    objects: Abbreviations,
    files: Abbreviations,
    functions: Abbreviations,
    /// Whether cost lines begin with an address and with a line.
    has_address: bool,
    has_line: bool,
    /// The columns of instructions and of misses among the costs.
    ir: Option<usize>,
    i1mr: Option<usize>,
    object: usize,
    file: usize,
    function: Option<usize>,
    callee: Option<usize>,
    calls: Option<u64>,
    address: u64,
    line: u64,
    own: HashMap<(usize, Site), u64>,
    edges: HashMap<(usize, Site, usize), Calls>,
    totals: Option<(u64, u64)>,
}

impl Parser {
    /// Parses one line; `None` if it is malformed.
    fn line(&mut self, text: &str) -> Option<()> {
        let first = match text.bytes().next() {
            None | Some(b'#') => return Some(()),
            Some(byte) => byte,
        };
        if first.is_ascii_digit() || matches!(first, b'+' | b'-' | b'*') {
            return self.cost_line(text);
        }
        let key = text.split(['=', ':']).next()?;
        let value = text.get(key.len() + 1..)?;
        if text.as_bytes()[key.len()] == b':' {
            return self.header(key, value.trim());
        }
        match key {
            "ob" => self.object = self.objects.resolve(value, &mut self.names.objects)?,
            "fl" | "fi" | "fe" => self.file = self.files.resolve(value, &mut self.names.files)?,
            "fn" => {
                let function = self.functions.resolve(value, &mut self.names.functions)?;
                self.function = Some(function);
            }
            "cfn" => {
                let callee = self.functions.resolve(value, &mut self.names.functions)?;
                self.callee = Some(callee);
            }
            // The position of the callee, which its own lines repeat. Names may be written in full only here.
            "cob" => drop(self.objects.resolve(value, &mut self.names.objects)?),
            "cfi" | "cfl" => drop(self.files.resolve(value, &mut self.names.files)?),
            "calls" => self.calls = Some(value.split_whitespace().next()?.parse().ok()?),
            "jump" | "jcnd" => {}
            _ => return None,
        }
        Some(())
    }

    fn header(&mut self, key: &str, value: &str) -> Option<()> {
        match key {
            "positions" => {
                self.has_address = value.split_whitespace().any(|word| word == "instr");
                self.has_line = value.split_whitespace().any(|word| word == "line");
            }
            "events" => {
                let column = |name| value.split_whitespace().position(|event| event == name);
                (self.ir, self.i1mr) = (column("Ir"), column("I1mr"));
            }
            "totals" => self.totals = Some(self.costs(value.split_whitespace())?),
            _ => {}
        }
        Some(())
    }

    /// Returns instructions and misses in the columns of a line. Omitted trailing ones are zero.
    fn costs<'w>(&self, words: impl Iterator<Item = &'w str>) -> Option<(u64, u64)> {
        let (mut instructions, mut misses) = (0, 0);
        let ir = self.ir?;
        for (column, word) in words.enumerate() {
            if column == ir {
                instructions = word.parse().ok()?;
            } else if Some(column) == self.i1mr {
                misses = word.parse().ok()?;
            }
        }
        Some((instructions, misses))
    }

    fn cost_line(&mut self, text: &str) -> Option<()> {
        let mut words = text.split_ascii_whitespace();
        if self.has_address {
            self.address = position(words.next()?, self.address)?;
        }
        if self.has_line {
            self.line = position(words.next()?, self.line)?;
        }
        let (cost, _) = self.costs(words)?;
        let function = self.function?;
        // Before the first file or object line they are unknown.
        if self.names.objects.0.is_empty() {
            self.object = self.names.objects.add("???");
        }
        if self.names.files.0.is_empty() {
            self.file = self.names.files.add("???");
        }
        let site = Site {
            object: self.object,
            address: self.address,
            line: u32::try_from(self.line).ok()?,
            file: self.file,
        };
        if let Some(count) = self.calls.take() {
            let edge = self
                .edges
                .entry((function, site, self.callee?))
                .or_default();
            edge.count += count;
            edge.inclusive += cost;
            return Some(());
        }
        *self.own.entry((function, site)).or_default() += cost;
        Some(())
    }

    fn finish(self) -> Option<CallGraph> {
        // Written last: without it, the profile is truncated.
        let (instructions, l1i_misses) = self.totals?;
        Some(CallGraph {
            instructions,
            l1i_misses,
            objects: self.names.objects.into_names(),
            files: self.names.files.into_names(),
            functions: self.names.functions.into_names(),
            own: self.own.into_iter().collect(),
            calls: self.edges.into_iter().collect(),
        })
    }
}

/// Parses a position: a number, or the distance from the previous one.
fn position(word: &str, last: u64) -> Option<u64> {
    if word == "*" {
        return Some(last);
    }
    if let Some(hex) = word.strip_prefix("0x") {
        return u64::from_str_radix(hex, 16).ok();
    }
    match word.as_bytes()[0] {
        b'+' | b'-' => last.checked_add_signed(word.parse().ok()?),
        _ => word.parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAMPLE: &str = "\
# callgrind format
version: 1
positions: instr line
events: Ir I1mr

ob=(1) /x/server
fl=(1) handler.cc
fn=(1) write_row(TABLE*)
0x1040 10 5 1
+4 +1 4
cob=(2) /x/libc.so.6
cfi=(2) ./malloc.c
cfn=(2) malloc
calls=3 0x900 50
* * 999 9
-4 -1 1
fi=(3) sql_string.h
+20 7 2
fe=(1)
cfn=(1)
calls=1 +8 *
+1 12 30

ob=(2)
fl=(2)
fn=(2)
0x900 50 20
totals: 32 1
";

    const LINES: &str = "\
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
+7 20 0 0 1

fn=plain_name
1 2
fn=plain_name
1 3

totals: 35 1 1 3
";

    fn read(text: &str) -> Result<CallGraph> {
        CallGraph::parse(text.as_bytes(), Path::new("profile"))
    }

    fn parse(text: &str) -> Option<CallGraph> {
        read(text).ok()
    }

    fn cost(name: &str, instructions: u64) -> FunctionCost {
        FunctionCost {
            name: name.into(),
            instructions,
        }
    }

    #[test]
    fn own_costs_are_summed_without_calls() {
        let graph = read(LINES).unwrap();
        assert_eq!((graph.instructions, graph.l1i_misses), (35, 3));
        let costs = graph.own_costs();
        assert_eq!(
            costs,
            [
                cost("malloc", 20),
                cost("do_command(THD*, bool)", 10),
                cost("plain_name", 5),
            ]
        );
        let sum: u64 = costs.iter().map(|f| f.instructions).sum();
        assert_eq!(sum, graph.instructions);
        let twice = CallGraph::sum([&graph, &graph]);
        assert_eq!((twice.instructions, twice.l1i_misses), (70, 6));
        assert_eq!(twice.own_costs()[0], cost("malloc", 40));
        assert_eq!(CallGraph::sum([]).instructions, 0);
    }

    #[test]
    fn functions_are_found_by_name_without_parameters() {
        let graph = read(LINES).unwrap();
        assert!(graph.ran("do_command"));
        assert!(graph.ran("malloc"));
        assert!(!graph.ran("do_comm"));
        assert!(!graph.ran("command"));
    }

    #[test]
    fn without_a_simulated_cache_there_are_no_misses() {
        let graph = read("positions: line\nevents: Ir\nfn=(1) f\n3 4\ntotals: 4\n").unwrap();
        assert_eq!((graph.instructions, graph.l1i_misses), (4, 0));
        let text = "positions: instr line\nevents: Ir\nfn=(1) f\n0x1a 3 4\ntotals: 4\n";
        assert_eq!(read(text).unwrap().own_costs(), [cost("f", 4)]);
    }

    #[test]
    fn own_costs_and_calls_are_parsed() {
        let graph = parse(SAMPLE).unwrap();
        assert_eq!(graph.instructions, 32);
        assert_eq!(graph.own.values().sum::<u64>(), 32);
        let cost = |address: u64| -> u64 {
            let at = graph
                .own
                .iter()
                .filter(|((_, site), _)| site.address == address);
            at.map(|(_, cost)| cost).sum()
        };
        assert_eq!((cost(0x1040), cost(0x1044), cost(0x1054)), (6, 4, 2));
        let inlined = graph.own.keys().find(|(_, site)| site.address == 0x1054);
        let site = inlined.unwrap().1;
        assert_eq!(
            (graph.files[site.file].as_str(), site.line),
            ("sql_string.h", 7)
        );
        let name = |number: usize| graph.functions[number].as_str();
        let calls: Vec<_> = graph
            .calls
            .iter()
            .map(|((a, _, b), calls)| (name(*a), name(*b), calls.count, calls.inclusive))
            .collect();
        assert_eq!(
            calls,
            [
                ("write_row(TABLE*)", "malloc", 3, 999),
                ("write_row(TABLE*)", "write_row(TABLE*)", 1, 30),
            ]
        );
        assert!(graph.ran("write_row") && !graph.ran("write"));
    }

    #[test]
    fn graphs_of_threads_are_added_up_by_name() {
        let one = parse(SAMPLE).unwrap();
        let other = parse(
            "positions: line\nevents: Ir\nfn=(9) malloc\n5 3\nfn=(2) read\ncfn=(9)\ncalls=2 5\n1 3\n\
             totals: 3\n",
        )
        .unwrap();
        let sum = CallGraph::sum([&one, &other, &one]);
        assert_eq!(sum.instructions, 67);
        assert_eq!(sum.own.values().sum::<u64>(), 67);
        let of = |name: &str| sum.functions.iter().position(|f| f == name).unwrap();
        let calls = |from: &str, to: &str| -> Vec<Calls> {
            let ends = (of(from), of(to));
            let all = sum.calls.iter().filter(|((a, _, b), _)| (*a, *b) == ends);
            all.map(|(_, calls)| *calls).collect()
        };
        assert_eq!(calls("write_row(TABLE*)", "malloc")[0].count, 6);
        assert_eq!(calls("read", "malloc")[0].inclusive, 3);
    }

    #[test]
    fn truncated_and_other_files_are_refused() {
        let cut = SAMPLE.split("totals").next().unwrap();
        assert_eq!(parse(cut), None);
        let cut = &LINES[..LINES.len() - 20];
        assert!(read(cut).unwrap_err().message().contains("incomplete"));
        let error = read("hello\n").unwrap_err();
        assert_eq!(error.location().unwrap().line, Some(1));
        let header = "positions: line\nevents: Ir\n";
        for other in ["3 4\ntotals: 4\n", "fn=(x) f\n", "fn=(1) f\n1 x\n"] {
            assert!(read(&format!("{header}{other}")).is_err(), "{other}");
        }
        assert!(read("").is_err());
        assert_eq!(parse("<html>\n"), None);
        assert_eq!(
            parse("positions: line\nevents: Ir\nfn=(3)\n1 2\ntotals: 2\n"),
            None
        );
        assert_eq!(parse("positions: line\nevents: Ir\n1 2\ntotals: 2\n"), None);
    }

    proptest::proptest! {
        #[test]
        fn nothing_makes_it_panic(bytes in proptest::collection::vec(proptest::num::u8::ANY, 0..200)) {
            let _ = CallGraph::parse(bytes.as_slice(), Path::new("profile"));
        }
    }
}
