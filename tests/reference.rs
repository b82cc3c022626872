//! The lists and tables of `docs/reference.md` and `docs/errors.md` that the code decides: configuration keys from the types that
//! read them, with their comments and defaults, exit codes, codes of errors and meters. They stand between a comment that names
//! their source (further structures are those that its keys hold) and `<!-- end -->`. To rewrite them:
//! `UPDATE_REFERENCE=1 cargo test --test integration reference`.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};

use crate::common::TestEnvironment;
use crate::common::documents::root;
use perfquilt_model::code::ALL;
use perfquilt_model::observation::Meter;
use regex::Regex;
use syn::{Attribute, Expr, Field, Fields, Item, Lit, Stmt, Type};

/// Folders of the types that read configuration.
const FOLDERS: [&str; 4] = [
    "crates/config/src",
    "crates/cluster/src/scheduler",
    "crates/bench/src/server",
    "crates/bench/src/workload",
];

/// Types without a table of their own: the file as a whole, whose sections are the document's headings, and what the results of
/// a cluster's tasks have.
const WITHOUT_TABLE: [&str; 2] = ["Config", "BlockSlices"];

/// A Rust file below the project's folder.
struct Source {
    path: String,
    items: Vec<Item>,
}

impl Source {
    fn read(path: &Path) -> Self {
        let text = std::fs::read_to_string(path).unwrap();
        let path = path.strip_prefix(root()).unwrap().display().to_string();
        let items = syn::parse_file(&text).unwrap().items;
        Source { path, items }
    }

    /// The expression that the function or constant `name` of this file consists of.
    fn value(&self, name: &str) -> Option<&Expr> {
        self.items.iter().find_map(|item| match item {
            Item::Const(constant) if constant.ident == name => Some(&*constant.expr),
            Item::Fn(function) if function.sig.ident == name => match &function.block.stmts[..] {
                [Stmt::Expr(value, None)] => Some(value),
                _ => None,
            },
            _ => None,
        })
    }

    /// The fields that `impl Default for NAME` sets.
    fn defaults(&self, name: &str) -> BTreeMap<String, &Expr> {
        let is_default = |item: &&syn::ItemImpl| {
            let of_trait = item.trait_.as_ref();
            of_trait.is_some_and(|of| tokens(&of.0) == "Default") && tokens(&item.self_ty) == name
        };
        let implementations = self.items.iter().filter_map(|item| match item {
            Item::Impl(item) => Some(item),
            _ => None,
        });
        let mut found = BTreeMap::new();
        for item in implementations.filter(is_default) {
            let syn::ImplItem::Fn(function) = &item.items[0] else {
                panic!("{name}");
            };
            if let Some(Stmt::Expr(Expr::Struct(value), None)) = function.block.stmts.last() {
                let fields = value.fields.iter();
                found.extend(fields.map(|field| (tokens(&field.member), &field.expr)));
            }
        }
        found
    }
}

/// All Rust files in the folders of configuration.
fn sources() -> Vec<Source> {
    let mut folders: Vec<PathBuf> = FOLDERS.iter().map(|folder| root().join(folder)).collect();
    let mut sources = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|end| end == "rs") {
                sources.push(Source::read(&path));
            }
        }
    }
    sources
}

fn tokens(of: &impl quote::ToTokens) -> String {
    of.to_token_stream().to_string().replace(' ', "")
}

/// The text of an attribute `serde`, without spaces.
fn serde(attributes: &[Attribute]) -> String {
    let own = attributes.iter().filter(|a| a.path().is_ident("serde"));
    let lists = own.filter_map(|a| a.meta.require_list().ok());
    let all: Vec<String> = lists.map(|l| tokens(&l.tokens)).collect();
    all.join(",")
}

/// The value of `KEY="…"` in what `serde` says.
fn setting<'a>(serde: &'a str, key: &str) -> Option<&'a str> {
    let after = serde.split(',').find_map(|part| {
        let value = part.strip_prefix(key)?.strip_prefix("=\"")?;
        value.strip_suffix('"')
    });
    after.filter(|value| !value.is_empty())
}

/// Documentation in one line; links to items become what a configuration calls them.
fn doc(attributes: &[Attribute], source: &Source) -> String {
    let own = attributes.iter().filter(|a| a.path().is_ident("doc"));
    let lines = own.filter_map(|a| match &a.meta.require_name_value().ok()?.value {
        Expr::Lit(lit) => match &lit.lit {
            Lit::Str(text) => Some(text.value().trim().to_owned()),
            _ => None,
        },
        _ => None,
    });
    let text = lines.collect::<Vec<_>>().join(" ");
    let link = Regex::new(r"\[`([A-Za-z_:]+)`\](?:\([^)]*\))?").unwrap();
    let shown = link.replace_all(&text, |found: &regex::Captures<'_>| {
        let name = found[1].rsplit("::").next().unwrap();
        match source.value(name) {
            Some(value) => shown(value, source),
            None => format!("`{}`", snake(name)),
        }
    });
    shown.into_owned()
}

/// `CamelCase` as serde's `snake_case`.
fn snake(name: &str) -> String {
    let mut out = String::new();
    for (at, c) in name.char_indices() {
        if c.is_uppercase() && at > 0 && !out.ends_with('_') {
            out.push('_');
        }
        out.extend(c.to_lowercase());
    }
    out
}

/// A default as TOML; empty where there is nothing to show.
fn shown(value: &Expr, source: &Source) -> String {
    match value {
        Expr::Lit(lit) => match &lit.lit {
            Lit::Str(text) if text.value().is_empty() => String::new(),
            Lit::Str(text) => format!("`\"{}\"`", text.value()),
            Lit::Float(number) => {
                format!("{}", number.base10_parse::<f64>().unwrap())
            }
            Lit::Int(number) => number.base10_digits().to_owned(),
            Lit::Bool(value) => format!("`{}`", value.value),
            _ => panic!("{}", tokens(value)),
        },
        // `"text".into()`, `NonZeroU32::new(4).unwrap_or(…)`, `options.map(…).to_vec()`.
        Expr::MethodCall(call) => shown(&call.receiver, source),
        Expr::Call(call) => {
            let function = tokens(&call.func);
            match (function.rsplit("::").next().unwrap(), call.args.first()) {
                (_, Some(argument)) => shown(argument, source),
                ("new" | "default", None) => String::new(),
                (name, None) => shown(source.value(name).unwrap(), source),
            }
        }
        Expr::Binary(shift) => {
            let [left, right] =
                [&shift.left, &shift.right].map(|side| shown(side, source).parse::<u64>().unwrap());
            assert!(matches!(shift.op, syn::BinOp::Shl(_)));
            (left << right).to_string()
        }
        Expr::Macro(list) if list.mac.path.is_ident("vec") => {
            let names = tokens(&list.mac.tokens);
            let names = names.split(',').filter(|name| !name.is_empty());
            let names = names.map(|name| format!("`\"{}\"`", last(name).to_uppercase()));
            names.collect::<Vec<_>>().join(", ")
        }
        Expr::Path(_) if tokens(value) == "None" => String::new(),
        Expr::Path(path) if path.path.segments.len() == 1 => match source.value(&tokens(value)) {
            None => String::new(),
            Some(Expr::Array(_) | Expr::Macro(_)) => "below".to_owned(),
            Some(value) => shown(value, source),
        },
        Expr::Path(_) => format!("`\"{}\"`", snake(last(&tokens(value)))),
        _ => panic!("{}: {}", source.path, tokens(value)),
    }
}

fn last(path: &str) -> &str {
    path.rsplit("::").next().unwrap()
}

/// The type argument of `NAME<…>`.
fn argument<'a>(name: &str, of: &'a str) -> Option<&'a str> {
    of.strip_prefix(name)?.strip_prefix('<')?.strip_suffix('>')
}

/// A Rust type as TOML's, in a few words; of several values with `plural`.
fn type_name(name: &str, plural: bool) -> String {
    if let Some(inner) = argument("Option", name) {
        return type_name(inner, plural);
    }
    if let Some(inner) = argument("Vec", name) {
        let list = if plural { "lists" } else { "list" };
        return format!("{list} of {}", type_name(inner, true));
    }
    if let Some(inner) = argument("BTreeMap", name) {
        let value = inner.split_once(',').unwrap().1;
        return format!("table of {}", type_name(value, true));
    }
    let known = match last(name) {
        "String" => "text",
        "PathBuf" => "path",
        "u8" | "u32" | "u64" | "usize" | "i64" | "NonZeroU32" => "integer",
        "f64" => "number",
        "bool" => "boolean",
        "Duration" => "duration",
        "Meter" => "meter",
        "Value" => "value",
        "Lanes" => return "integer or text".to_owned(),
        "RequestSettings" => "request",
        _ => "table",
    };
    format!("{known}{}", if plural { "s" } else { "" })
}

/// The variants of an enum that serde reads, with their documentation.
fn variants(name: &str, sources: &[Source]) -> Option<Vec<(String, String)>> {
    let name = argument("Vec", name).unwrap_or(name);
    let name = argument("Option", name).unwrap_or(name);
    for source in sources {
        for item in &source.items {
            let Item::Enum(item) = item else { continue };
            let said = serde(&item.attrs);
            let Some(rule) = setting(&said, "rename_all") else {
                continue;
            };
            if item.ident != name {
                continue;
            }
            let named = item.variants.iter().map(|variant| {
                let own = snake(&variant.ident.to_string());
                let own = match rule {
                    "snake_case" => own,
                    "SCREAMING_SNAKE_CASE" => own.to_uppercase(),
                    other => panic!("{other}"),
                };
                (own, doc(&variant.attrs, source))
            });
            return Some(named.collect());
        }
    }
    None
}

/// The list of one structure's keys, with those of the structures `nested` below the keys that hold them.
fn keys(path: &str, name: &str, nested: &[&str], sources: &[Source]) -> String {
    let mut nested = nested.to_vec();
    let list = items(path, name, "", &mut nested, sources);
    assert_eq!(nested, Vec::<&str>::new(), "no key of {name} holds these");
    list
}

/// The items of a structure's keys, indented by `indent`; removes from `nested` what they include.
fn items(
    path: &str,
    name: &str,
    indent: &str,
    nested: &mut Vec<&str>,
    sources: &[Source],
) -> String {
    let source = sources.iter().find(|source| source.path == path);
    let source = source.unwrap_or_else(|| panic!("no file {path}"));
    let structure = source.items.iter().find_map(|item| match item {
        Item::Struct(item) if item.ident == name => Some(item),
        _ => None,
    });
    let structure = structure.unwrap_or_else(|| panic!("no {name} in {path}"));
    let has_default = serde(&structure.attrs).split(',').any(|p| p == "default");
    // Without the attribute, serde does not ask for it.
    let defaults = if has_default {
        source.defaults(name)
    } else {
        BTreeMap::new()
    };
    let Fields::Named(fields) = &structure.fields else {
        panic!("{name}");
    };
    let mut out = String::new();
    for field in &fields.named {
        let said = serde(&field.attrs);
        if said.split(',').any(|part| part == "skip") {
            continue;
        }
        let ident = field.ident.as_ref().unwrap().to_string();
        let key = setting(&said, "rename").unwrap_or(&ident);
        let rust_type = tokens(&field.ty);
        let mut meaning = doc(&field.attrs, source);
        assert!(meaning.ends_with('.'), "{name}.{ident}: {meaning}");
        let mut of_type = type_name(&rust_type, false);
        if let Some(variants) = variants(&rust_type, sources) {
            of_type = if rust_type.contains("Vec<") {
                "list of texts"
            } else {
                "text"
            }
            .to_owned();
            for (variant, doc) in variants {
                let doc = doc.trim_end_matches('.');
                write!(meaning, "\n{indent}  - `\"{variant}\"`: {doc}.").unwrap();
            }
        }
        let default = match defaults.get(&ident) {
            Some(value) => shown(value, source),
            None => default_of(field, &said, has_default, &rust_type, source, sources),
        };
        let facts = [of_type, default];
        let facts = facts
            .iter()
            .filter(|fact| !["", "text"].contains(&fact.as_str()));
        let facts = facts.map(String::as_str).collect::<Vec<_>>().join(", ");
        let facts = match facts.as_str() {
            "" => facts,
            _ => format!(" ({facts})"),
        };
        writeln!(out, "{indent}- `{key}`{facts}: {meaning}").unwrap();
        if let Some(at) = nested.iter().position(|inner| holds(&rust_type, inner)) {
            let inner = nested.remove(at);
            out += &items(path, inner, &format!("{indent}  "), nested, sources);
        }
    }
    out
}

/// Whether `rust_type` is the structure `inner`, optional or repeated.
fn holds(rust_type: &str, inner: &str) -> bool {
    let of = argument("Option", rust_type).or_else(|| argument("Vec", rust_type));
    of.unwrap_or(rust_type) == inner
}

/// The default of a field that no `impl Default` sets.
fn default_of(
    field: &Field,
    said: &str,
    has_default: bool,
    rust_type: &str,
    source: &Source,
    sources: &[Source],
) -> String {
    if let Some(function) = setting(said, "default") {
        let function = last(function);
        let value = source.value(function);
        let value = value.or_else(|| sources.iter().find_map(|source| source.value(function)));
        return shown(value.unwrap_or_else(|| panic!("{function}")), source);
    }
    let optional = has_default || said.split(',').any(|part| part == "default");
    let Type::Path(_) = &field.ty else {
        panic!("{rust_type}");
    };
    if argument("Option", rust_type).is_some() {
        return String::new();
    }
    if !optional {
        return "required".to_owned();
    }
    match last(rust_type) {
        "bool" => "`false`".to_owned(),
        "u8" | "u32" | "u64" | "usize" => "0".to_owned(),
        name => default_variant(name, sources)
            .map(|variant| format!("`\"{}\"`", snake(&variant)))
            .unwrap_or_default(),
    }
}

/// The variant of an enum with the attribute `default`.
fn default_variant(name: &str, sources: &[Source]) -> Option<String> {
    let items = sources.iter().flat_map(|source| &source.items);
    items.into_iter().find_map(|item| match item {
        Item::Enum(item) if item.ident == name => {
            let is_default =
                |v: &&syn::Variant| v.attrs.iter().any(|a| a.path().is_ident("default"));
            let variant = item.variants.iter().find(is_default)?;
            Some(variant.ident.to_string())
        }
        _ => None,
    })
}

/// The exit codes: numbers and comments of `Kind`.
fn exit_codes() -> String {
    let source = Source::read(&root().join("crates/model/src/error.rs"));
    let kinds = source.items.iter().find_map(|item| match item {
        Item::Enum(item) if item.ident == "Kind" => Some(item),
        _ => None,
    });
    let mut out = String::from("| code | meaning |\n|--:|---|\n| 0 | Done. |\n");
    for kind in &kinds.unwrap().variants {
        let (_, code) = kind.discriminant.as_ref().unwrap();
        writeln!(out, "| {} | {} |", tokens(code), doc(&kind.attrs, &source)).unwrap();
    }
    out
}

fn error_codes() -> String {
    let mut out = String::from("| code | exit | error or warning | meaning |\n|---|--:|---|---|\n");
    for code in ALL {
        let meaning = code.meaning.replace('\n', "");
        let exit = code
            .kind
            .map_or("–".to_owned(), |kind| kind.exit_code().to_string());
        let title = code.title;
        writeln!(out, "| {code} | {exit} | {title} | {} |", meaning.trim()).unwrap();
    }
    out
}

fn meters() -> String {
    let mut out =
        String::from("| meter | unit | blocks | margin | meaning |\n|---|---|---|--:|---|\n");
    for meter in Meter::ALL {
        let blocks = if meter.is_timed() { "timed" } else { "counted" };
        let (unit, margin) = (meter.unit(), 100.0 * meter.default_margin());
        let meaning = meter.description();
        writeln!(
            out,
            "| `{meter}` | {unit} | {blocks} | {margin} % | {meaning} |"
        )
        .unwrap();
    }
    out
}

#[test]
fn generated_tables_are_those_of_the_code() {
    let sources = sources();
    let table = Regex::new(
        r"(?s)<!-- (?P<source>exit codes|error codes|meters|keys: \S+(?: \w+)+) -->\n.*?<!-- end -->",
    )
    .unwrap();
    let table_of = |found: &regex::Captures<'_>| {
        let source = &found["source"];
        let table = match source.split(' ').collect::<Vec<_>>()[..] {
            ["exit", _] => exit_codes(),
            ["error", _] => error_codes(),
            ["meters"] => meters(),
            ["keys:", path, name, ref nested @ ..] => keys(path, name, nested, &sources),
            _ => unreachable!("{source}"),
        };
        format!("<!-- {source} -->\n\n{table}\n<!-- end -->")
    };
    for page in ["docs/reference.md", "docs/errors.md"] {
        let file = root().join(page);
        let text = std::fs::read_to_string(&file).unwrap();
        let fresh = table.replace_all(&text, table_of);
        assert!(table.is_match(&text), "{page}");
        if std::env::var_os("UPDATE_REFERENCE").is_some() {
            std::fs::write(&file, &*fresh).unwrap();
            continue;
        }
        for (written, generated) in text.lines().zip(fresh.lines()) {
            assert_eq!(
                written, generated,
                "stale: UPDATE_REFERENCE=1 cargo test --test integration reference"
            );
        }
        assert_eq!(text, fresh);
    }
}

#[test]
fn every_section_of_the_configuration_has_a_table() {
    let text = std::fs::read_to_string(root().join("docs/reference.md")).unwrap();
    let mut checked = 0;
    for source in sources() {
        for item in &source.items {
            let Item::Struct(item) = item else { continue };
            if !serde(&item.attrs).contains("deny_unknown_fields") {
                continue;
            }
            let name = item.ident.to_string();
            if WITHOUT_TABLE.contains(&name.as_str()) {
                continue;
            }
            let mark = format!("<!-- keys: {} ", source.path);
            let mut tables = text.lines().filter_map(|line| line.strip_prefix(&mark));
            let has_table = tables.any(|names| names.split(' ').any(|of| of == name));
            assert!(has_table, "{mark}{name} -->");
            checked += 1;
        }
    }
    assert!(checked > 20, "{checked}");
}

#[test]
fn an_errors_line_ends_with_a_code_that_explain_knows() {
    let space = TestEnvironment::new();
    let error = space.fails(2, &["-C", "/", "lint"]);
    let first = error.lines().next().unwrap();
    let code = Regex::new(r"^error: .* \[(PQ\d{4})\]$").unwrap();
    let code = &code.captures(first).expect(first)[1];
    let told = space.ok(&["explain", code]);
    let known = ALL.iter().find(|of| of.to_string() == *code).unwrap();
    assert!(
        told.starts_with(&format!("{code}: {}\n", known.title)),
        "{told}"
    );
    let json: serde_json::Value =
        serde_json::from_str(&space.ok(&["explain", code, "--json"])).unwrap();
    assert_eq!(
        (&json["code"], &json["exit_code"]),
        (&code.into(), &2.into())
    );
    assert_eq!(space.ok(&["explain"]).lines().count(), ALL.len());
    assert!(space.fails(2, &["explain", "PQ9999"]).contains("[PQ0201]"));
}

#[test]
fn mistakes_on_the_command_line_and_warnings_end_with_a_code_too() {
    let space = TestEnvironment::new();
    // The first line of what clap says, with and without colours; a value's own type knows more.
    for (args, code) in [
        (&["lnit"][..], 209),
        (&["lint", "--nothing"], 209),
        (&["explain", "1", "2"], 209),
        (&["run", "--point", "x"], 207),
        (&["lint", "--nothing", "--color", "always"], 209),
    ] {
        let error = space.fails(2, args);
        let first = error.lines().next().unwrap();
        assert!(first.ends_with(&format!(" [PQ{code:04}]")), "{error}");
        assert_eq!(error.matches("[PQ").count(), 1, "{error}");
        assert_eq!(error.contains('\u{1b}'), args.contains(&"always"));
    }
    // Help is no mistake.
    assert!(!space.fails(2, &["upstream"]).contains("[PQ"));
    let error = space.fails(2, &["compare", "a", "b"]);
    assert!(error.starts_with("warning: "), "{error}");
    assert!(
        error.lines().next().unwrap().ends_with(" [PQ0250]"),
        "{error}"
    );
    let told = space.ok(&["explain", "PQ0250", "--json"]);
    let told: serde_json::Value = serde_json::from_str(&told).unwrap();
    assert_eq!(told["exit_code"], serde_json::Value::Null);
}
