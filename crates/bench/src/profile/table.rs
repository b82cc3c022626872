//! Computes the costs of each function from a call graph or from samples.

use std::collections::HashMap;
use std::path::Path;

use super::frames::{DebugInfo, Frame};
use crate::meter::call_graph::{CallGraph, Site};
use crate::meter::plain_name;
use crate::meter::samples::Samples;
use perfquilt_model::profile::CostTable;

/// Returns the costs in `graph` per transaction, for `transactions`. `executable` is the server's own file, whose
/// debug information identifies inlined functions.
pub fn of_calls(graph: &CallGraph, transactions: u64, executable: &Path) -> CostTable {
    let each = 1.0 / transactions.max(1) as f64;
    let mut resolver = SiteResolver::new(graph, executable);
    let mut table = CostTable {
        total: graph.instructions as f64 * each,
        ..CostTable::default()
    };
    for (&(function, site), &cost) in &graph.own {
        add(
            &mut table,
            &resolver.resolve(function, site),
            cost as f64 * each,
        );
    }
    for (&(caller, site, callee), calls) in &graph.calls {
        let (count, cost) = (calls.count as f64 * each, calls.inclusive as f64 * each);
        let callee = plain_name(&graph.functions[callee]);
        table.functions.entry(callee.clone()).or_default().calls += count;
        let at = resolver.resolve(caller, site);
        for (depth, name) in at.names.iter().enumerate() {
            // The cost of recursive calls is already part of the function's cost.
            if *name == callee || at.names[..depth].contains(name) {
                continue;
            }
            table.functions.entry(name.clone()).or_default().inclusive += cost;
        }
        nest(&mut table, &at, cost);
        if let Some(caller) = at.names.first() {
            let edge = table.calls.entry((caller.clone(), callee)).or_default();
            edge.calls += count;
            edge.inclusive += cost;
        }
    }
    for costs in table.functions.values_mut() {
        costs.inclusive = costs.inclusive.min(table.total);
    }
    table
}

/// Returns the costs in `samples` per transaction, for `transactions`; see [`of_calls`] for `executable`.
pub fn of_samples(samples: &Samples, transactions: u64, executable: &Path) -> CostTable {
    let each = 1.0 / transactions.max(1) as f64;
    let debug = DebugInfo::open(executable);
    let mut table = CostTable::default();
    for (position, cost) in &samples.spent {
        let frames = match (&debug, position.address) {
            (Some(debug), Some(address)) => debug.frames(address),
            _ => Vec::new(),
        };
        let cost = cost * each;
        table.total += cost;
        add(
            &mut table,
            &InlineStack::of(&frames, position.function.clone()),
            cost,
        );
    }
    table.sample = table.total / samples.count.max(1) as f64;
    table
}

/// Adds own cost at a position.
fn add(table: &mut CostTable, at: &InlineStack, cost: f64) {
    for (depth, name) in at.names.iter().enumerate() {
        if at.names[..depth].contains(name) {
            continue;
        }
        let costs = table.functions.entry(name.clone()).or_default();
        costs.inclusive += cost;
        costs.own += if depth == 0 { cost } else { 0.0 };
        if depth + 1 < at.names.len() {
            table.inlined.insert(name.clone());
        }
    }
    if let (Some((file, line)), Some(name)) = (&at.place, at.names.first()) {
        let key = (name.clone(), file.clone(), *line);
        *table.lines.entry(key).or_default() += cost;
    }
    nest(table, at, cost);
}

/// Adds the cost at a position, or of calls from it, to the edges between inlined functions and their callers.
fn nest(table: &mut CostTable, at: &InlineStack, cost: f64) {
    for names in at.names.windows(2) {
        if let [inner, outer] = names
            && inner != outer
        {
            let key = (outer.clone(), inner.clone());
            *table.nested.entry(key).or_default() += cost;
        }
    }
}

/// The functions at a position, innermost first, and the line of the innermost one.
#[derive(Debug, Clone, Default)]
struct InlineStack {
    names: Vec<String>,
    place: Option<(String, u32)>,
}

/// Resolves sites to functions and caches the results.
struct SiteResolver<'a> {
    graph: &'a CallGraph,
    debug: Option<DebugInfo>,
    /// Index of the object file that `debug` describes.
    object: Option<usize>,
    known: HashMap<(usize, Site), InlineStack>,
}

impl<'a> SiteResolver<'a> {
    fn new(graph: &'a CallGraph, executable: &Path) -> Self {
        let name = executable.file_name();
        let is_it = |object: &String| Path::new(object).file_name() == name;
        SiteResolver {
            graph,
            debug: DebugInfo::open(executable),
            object: graph.objects.iter().position(is_it),
            known: HashMap::new(),
        }
    }

    fn resolve(&mut self, function: usize, site: Site) -> InlineStack {
        if let Some(at) = self.known.get(&(function, site)) {
            return at.clone();
        }
        let at = self.look_up(function, site);
        self.known.insert((function, site), at.clone());
        at
    }

    fn look_up(&self, function: usize, site: Site) -> InlineStack {
        let own = plain_name(&self.graph.functions[function]);
        let file = &self.graph.files[site.file];
        let recorded = (site.line > 0 && file != "???").then(|| (file.clone(), site.line));
        let frames = match (&self.debug, self.object == Some(site.object)) {
            (Some(debug), true) if site.address > 0 => debug.frames(site.address),
            _ => Vec::new(),
        };
        let at = InlineStack::of(&frames, own);
        InlineStack {
            place: at.place.or(recorded),
            ..at
        }
    }
}

impl InlineStack {
    /// Builds the stack of these frames in the function `own`, named as in the cost source.
    fn of(frames: &[Frame], own: String) -> Self {
        // The last frame is the same function, named by the debug information.
        let inlined = frames.len().saturating_sub(1);
        let named = |frame: &Frame| plain_name(&frame.function);
        let mut names: Vec<String> = frames[..inlined]
            .iter()
            .map(named)
            .filter(|name| !name.is_empty())
            .collect();
        names.push(own);
        InlineStack {
            names,
            place: frames.first().and_then(|frame| frame.place.clone()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::meter::call_graph::Calls;
    use perfquilt_model::profile::FunctionCosts;

    fn graph() -> CallGraph {
        let site = |address: u64| Site {
            object: 0,
            address,
            line: 7,
            file: 0,
        };
        let calls = |count, inclusive| Calls { count, inclusive };
        CallGraph {
            instructions: 1000,
            objects: vec!["/x/no-such-server".into()],
            files: vec!["a.cc".into()],
            functions: vec![
                "main".into(),
                "walk(int) [clone .isra.0]".into(),
                "leaf.part.1".into(),
            ],
            own: BTreeMap::from([
                ((0, site(1)), 100),
                ((1, site(2)), 400),
                ((2, site(3)), 500),
            ]),
            calls: BTreeMap::from([
                ((0, site(1), 1), calls(4, 900)),
                ((1, site(2), 1), calls(6, 700)),
                ((1, site(2), 2), calls(20, 500)),
            ]),
            ..CallGraph::default()
        }
    }

    #[test]
    fn own_and_inclusive_costs_are_those_of_a_transaction() {
        let table = of_calls(&graph(), 10, Path::new("/none/server"));
        assert_eq!(table.total, 100.0);
        let of = |name: &str| table.functions[name];
        let costs = |own, inclusive, calls| FunctionCosts {
            own,
            inclusive,
            calls,
        };
        assert_eq!(of("main"), costs(10.0, 100.0, 0.0));
        // Recursive calls are not counted again.
        assert_eq!(of("walk(int)"), costs(40.0, 90.0, 1.0));
        assert_eq!(of("leaf"), costs(50.0, 50.0, 2.0));
        assert_eq!(table.lines[&("leaf".into(), "a.cc".into(), 7)], 50.0);
        assert_eq!(table.calls[&("walk(int)".into(), "leaf".into())].calls, 2.0);
        assert!(table.inlined.is_empty());
    }

    #[test]
    fn inlined_costs_are_attributed_to_the_callers() {
        let at = |names: &[&str]| InlineStack {
            names: names.iter().map(|name| (*name).to_owned()).collect(),
            place: None,
        };
        let mut table = CostTable::default();
        add(&mut table, &at(&["step", "walk", "main"]), 5.0);
        add(&mut table, &at(&["walk", "main"]), 3.0);
        add(&mut table, &at(&["main"]), 1.0);
        let of = |outer: &str, inner: &str| table.nested[&(outer.into(), inner.into())];
        assert_eq!((of("main", "walk"), of("walk", "step")), (8.0, 5.0));
        assert_eq!(table.nested.len(), 2);
    }

    #[test]
    fn inlined_functions_are_found_by_debug_information() {
        // The test executable has debug information.
        let own = std::env::current_exe().unwrap();
        let debug = DebugInfo::open(&own).unwrap();
        assert!(debug.frames(u64::MAX).is_empty());
        assert!(DebugInfo::open(Path::new("/none")).is_none());
    }
}
