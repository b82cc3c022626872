//! Imports between the modules of a crate, read off the source text.
//!
//! Two modules of one folder are compared with everything below them: `a` imports `b` when a file of `a` names an
//! item of `b`, also through a re-export of their parent. Parents and children may use each other.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::LazyLock;

use regex::Regex;

use super::sources::sources;

/// A path of modules or items from the crate's root.
type ItemPath = Vec<String>;

static USE: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"(?m)^[ \t]*(?:pub(?:\([a-z]+\))? )?use ([^;]+);").unwrap());
static QUALIFIED: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"(?:^|[^\w:.])((?:\w+::)+\w+)").unwrap());
static TEST_FILE: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"#\[cfg\(test\)\]\n(?:pub(?:\([a-z]+\))? )?mod (\w+);").unwrap());

/// The modules of one crate.
struct Crate {
    modules: BTreeMap<ItemPath, String>,
    /// Modules that each module names by `use`, by the last part of the path.
    imports: BTreeMap<ItemPath, BTreeMap<String, ItemPath>>,
}

/// Returns the circles among the modules below `source`, a line each.
pub fn circles(source: &Path) -> Vec<String> {
    let found = Crate::read(source);
    let mut edges: BTreeMap<ItemPath, BTreeMap<String, BTreeSet<String>>> = BTreeMap::new();
    for (module, text) in &found.modules {
        let named = found.imports[module].values().cloned();
        let code = USE.replace_all(text, "");
        let qualified = QUALIFIED
            .captures_iter(&code)
            .filter_map(|path| found.absolute(module, &path[1]));
        for item in named.chain(qualified) {
            let target = found.module_of(&item, 0);
            let common = module.iter().zip(&target).take_while(|(a, b)| a == b);
            let common = common.count();
            if common < module.len() && common < target.len() {
                let siblings = edges.entry(module[..common].to_vec()).or_default();
                let from = siblings.entry(module[common].clone()).or_default();
                from.insert(target[common].clone());
            }
        }
    }
    let parts = edges.iter().flat_map(|(parent, siblings)| {
        circular(siblings).into_iter().map(move |circle| {
            let parent = parent.join("::");
            format!("{} {parent}: {}", source.display(), circle.join(", "))
        })
    });
    parts.collect()
}

impl Crate {
    fn read(source: &Path) -> Self {
        let mut modules = BTreeMap::new();
        let mut tests: Vec<ItemPath> = Vec::new();
        for (path, text) in sources(source) {
            let relative = path.strip_prefix(source).unwrap().with_extension("");
            let parts = relative
                .iter()
                .map(|part| part.to_str().unwrap().to_owned());
            let mut module: ItemPath = parts.collect();
            if module == ["main"] {
                continue;
            }
            if ["mod", "lib"].contains(&module.last().unwrap().as_str()) {
                module.pop();
            }
            tests.extend(TEST_FILE.captures_iter(&text).map(|name| {
                let mut test = module.clone();
                test.push(name[1].to_owned());
                test
            }));
            let code = text.lines().filter(|l| !l.trim_start().starts_with("//"));
            modules.insert(module, code.collect::<Vec<_>>().join("\n"));
        }
        modules.retain(|module, _| !tests.iter().any(|test| module.starts_with(test)));
        let mut found = Crate {
            modules,
            imports: BTreeMap::new(),
        };
        for (module, text) in &found.modules {
            let paths = USE.captures_iter(text).flat_map(|path| expand(&path[1]));
            let named = paths.filter_map(|path| {
                let item = found.absolute(module, &path)?;
                Some((path.rsplit("::").next().unwrap().to_owned(), item))
            });
            let named = named.collect();
            found.imports.insert(module.clone(), named);
        }
        found
    }

    /// The path from the root that `path` means in `module`; `None` when it leads out of the crate.
    fn absolute(&self, module: &[String], path: &str) -> Option<ItemPath> {
        let mut parts: Vec<&str> = path.split("::").collect();
        let mut base = match parts[0] {
            "crate" => Vec::new(),
            "self" | "super" => module.to_vec(),
            first => {
                let mut child = module.to_vec();
                child.push(first.to_owned());
                if !self.modules.contains_key(&child) {
                    return None;
                }
                parts.insert(0, "self");
                module.to_vec()
            }
        };
        while parts[0] == "super" {
            base.pop()?;
            parts.remove(0);
            if parts.is_empty() || parts[0] != "super" {
                parts.insert(0, "self");
            }
        }
        base.extend(parts[1..].iter().map(|part| (*part).to_owned()));
        Some(base)
    }

    /// The module that defines an item, through re-exports.
    fn module_of(&self, item: &[String], depth: usize) -> ItemPath {
        let longest = (0..=item.len())
            .rev()
            .find(|&n| self.modules.contains_key(&item[..n]));
        let Some(n) = longest else {
            return Vec::new();
        };
        let re_exported = item
            .get(n)
            .and_then(|name| self.imports.get(&item[..n])?.get(name));
        match re_exported {
            Some(origin) if origin != item && depth < 8 => {
                let mut origin = origin.clone();
                origin.extend_from_slice(&item[n + 1..]);
                self.module_of(&origin, depth + 1)
            }
            _ => item[..n].to_vec(),
        }
    }
}

/// The single paths of `a::{b, c::{self, d as e}}`.
fn expand(tree: &str) -> Vec<String> {
    let tree = tree.trim();
    let Some((prefix, rest)) = tree.split_once('{') else {
        let path = tree.split(" as ").next().unwrap_or(tree).trim();
        return vec![path.strip_suffix("::self").unwrap_or(path).to_owned()];
    };
    let inner = rest.rsplit_once('}').map_or(rest, |(inner, _)| inner);
    let mut paths = Vec::new();
    let (mut depth, mut start) = (0, 0);
    for (at, letter) in inner.char_indices().chain([(inner.len(), ',')]) {
        match letter {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                let part = inner[start..at].trim();
                if !part.is_empty() {
                    paths.extend(expand(&format!("{prefix}{part}")));
                }
                start = at + 1;
            }
            _ => {}
        }
    }
    paths
}

/// The groups of nodes that reach each other.
fn circular(edges: &BTreeMap<String, BTreeSet<String>>) -> Vec<Vec<String>> {
    let reached = |from: &String| {
        let mut pending = vec![from];
        let mut seen: BTreeSet<&String> = BTreeSet::new();
        while let Some(node) = pending.pop() {
            for next in edges.get(node).into_iter().flatten() {
                if seen.insert(next) {
                    pending.push(next);
                }
            }
        }
        seen
    };
    let reaches: BTreeMap<&String, BTreeSet<&String>> =
        edges.keys().map(|node| (node, reached(node))).collect();
    let mut groups: BTreeSet<Vec<String>> = BTreeSet::new();
    for (node, reach) in &reaches {
        if reach.contains(*node) {
            let same = reach.iter().filter(|other| {
                reaches
                    .get(**other)
                    .is_some_and(|back| back.contains(*node))
            });
            groups.insert(same.map(|node| (*node).clone()).collect());
        }
    }
    groups.into_iter().collect()
}
