//! A forge's published description of its interface: whether requests and answers are as it says. GitHub's is
//! tests/fixtures/github/openapi.json, made by ci/github/openapi. Those of GitLab and Forgejo have the operations that
//! perfquilt uses, written from their references, which mark no field of an answer as required: a field is where every
//! example has it. GitLab also publishes a description: it has the same operations, parameters and fields, but most types
//! there are `string`, a member's user is a field of it and not among its own, few errors are named, and a status is
//! answered with 200 where the reference says 201.

use std::cell::Cell;
use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::Dialect;

/// A request that fits the description.
pub struct Call<'a> {
    /// Method and path with parameters.
    pub operation: &'a str,
    pub parameters: BTreeMap<String, String>,
    pub query: BTreeMap<String, String>,
    pub body: Value,
    pub token: String,
    /// Whether the answer is a page of a list that has a further one.
    pub has_next: Cell<bool>,
}

impl Call<'_> {
    pub fn number(&self, name: &str) -> u64 {
        self.parameters[name].parse().unwrap()
    }

    /// The page of `all` that was asked for, of at most `most` entries.
    pub fn page<T>(&self, all: Vec<T>, size: &str, most: usize) -> Vec<T> {
        let number = |name: &str, usual: usize| {
            let text = self.query.get(name);
            text.map_or(usual, |text| text.parse().unwrap())
        };
        let (size, page) = (number(size, 30).min(most), number("page", 1));
        self.has_next.set(all.len() > size * page);
        all.into_iter().skip(size * (page - 1)).take(size).collect()
    }
}

/// The description.
pub struct Contract {
    dialect: Dialect,
    document: Value,
}

/// An operation of the description.
pub struct Operation<'a> {
    /// The path with its parameters, as the description has it.
    pub path: &'a str,
    /// The parameters in the path.
    pub parameters: BTreeMap<&'a str, String>,
    value: &'a Value,
}

impl Contract {
    pub fn load(dialect: Dialect) -> Self {
        let text = match dialect {
            Dialect::GitHub => include_str!("../fixtures/github/openapi.json"),
            Dialect::GitLab => include_str!("../fixtures/gitlab/openapi.json"),
            Dialect::Forgejo => include_str!("../fixtures/forgejo/openapi.json"),
        };
        Contract {
            dialect,
            document: serde_json::from_str(text).unwrap(),
        }
    }

    /// The operation that a request is of.
    pub fn operation(&self, method: &str, path: &str) -> Option<Operation<'_>> {
        let paths = self.document["paths"].as_object().unwrap();
        let mut found: Vec<Operation<'_>> = paths
            .iter()
            .filter_map(|(template, methods)| {
                let value = methods.get(method.to_lowercase())?;
                let parameters = matches(template, path)?;
                Some(Operation {
                    path: template,
                    parameters,
                    value,
                })
            })
            .collect();
        // A name in the path is meant before a parameter.
        found.sort_by_key(|operation| operation.parameters.len());
        found.into_iter().next()
    }

    /// The faults of a request.
    pub fn request(
        &self,
        operation: &Operation<'_>,
        query: &[(String, String)],
        body: Option<&Value>,
    ) -> Vec<String> {
        let mut wrong = Vec::new();
        let declared: Vec<&Value> = operation.value["parameters"]
            .as_array()
            .into_iter()
            .flatten()
            .map(|parameter| self.resolve(parameter))
            .collect();
        let of = |place: &str, name: &str| {
            declared
                .iter()
                .find(|parameter| parameter["in"] == place && parameter["name"] == name)
        };
        let places = [
            (
                "path",
                operation
                    .parameters
                    .iter()
                    .map(|(k, v)| ((*k).to_owned(), v.clone()))
                    .collect(),
            ),
            ("query", query.to_vec()),
        ];
        for (place, given) in places {
            for (name, value) in given {
                // Forgejo describes no pages of comments and labels, which a later version may have.
                let may_page =
                    self.dialect == Dialect::Forgejo && ["page", "limit"].contains(&&*name);
                let Some(parameter) = of(place, &name) else {
                    if may_page {
                        continue;
                    }
                    wrong.push(format!("unknown parameter {name}"));
                    continue;
                };
                let schema = self.resolve(&parameter["schema"]);
                let value = match schema["type"].as_str() {
                    Some("integer") => value.parse::<i64>().map_or(json!(value), |n| json!(n)),
                    _ => json!(value),
                };
                wrong.extend(self.check(schema, &value, &format!("{place} {name}")));
            }
        }
        let content = &operation.value["requestBody"]["content"]["application/json"]["schema"];
        match (content.is_null(), body) {
            (true, None) => {}
            (true, Some(_)) => wrong.push("a body where none is taken".to_owned()),
            (false, None) => {
                if operation.value["requestBody"]["required"] == true {
                    wrong.push("no body".to_owned());
                }
            }
            (false, Some(body)) => {
                wrong.extend(self.check(content, body, "body"));
                let known = self.properties(content);
                for name in body.as_object().into_iter().flat_map(Map::keys) {
                    if !known.contains(name) {
                        wrong.push(format!("unknown property {name}"));
                    }
                }
            }
        }
        wrong
    }

    /// The faults of the fake's own answer; statuses that are not described may have any body.
    pub fn response(&self, operation: &Operation<'_>, status: u16, body: &Value) -> Vec<String> {
        let described = &operation.value["responses"][status.to_string()];
        if described.is_null() {
            return match status {
                200..=299 => vec![format!("{} does not answer {status}", operation.path)],
                _ => Vec::new(),
            };
        }
        let schema = &self.resolve(described)["content"]["application/json"]["schema"];
        if schema.is_null() {
            Vec::new()
        } else {
            self.check(schema, body, "answer")
        }
    }

    /// The least value that the schema of this name allows, with `fields` in it.
    pub fn example(&self, schema: &str, fields: Value) -> Value {
        let schema = &self.document["components"]["schemas"][schema];
        let mut schema = schema.clone();
        // Asked for, it is there.
        schema["type"] = json!("object");
        let mut value = self.least(&schema);
        merge(&mut value, fields);
        value
    }

    fn least(&self, schema: &Value) -> Value {
        let schema = self.resolve(schema);
        if let Some(values) = schema["enum"].as_array() {
            return values[0].clone();
        }
        for key in ["anyOf", "oneOf"] {
            if let Some(choices) = schema[key].as_array() {
                let null = choices.iter().any(|choice| choice["type"] == "null");
                return if null {
                    Value::Null
                } else {
                    self.least(&choices[0])
                };
            }
        }
        if let Some(parts) = schema["allOf"].as_array() {
            let mut value = json!({});
            parts
                .iter()
                .for_each(|part| merge(&mut value, self.least(part)));
            return value;
        }
        let types: Vec<&str> = match &schema["type"] {
            Value::String(one) => vec![one],
            Value::Array(several) => several.iter().filter_map(Value::as_str).collect(),
            _ if schema["properties"].is_object() => vec!["object"],
            _ => vec!["null"],
        };
        if types.contains(&"null") {
            return Value::Null;
        }
        match types[0] {
            "object" => {
                let required = schema["required"].as_array().into_iter().flatten();
                let names = required.filter_map(Value::as_str);
                names
                    .map(|name| (name.to_owned(), self.least(&schema["properties"][name])))
                    .collect()
            }
            "array" => json!([]),
            "integer" | "number" => json!(1),
            "boolean" => json!(false),
            _ => match schema["format"].as_str() {
                Some("date-time") => json!("2026-01-02T03:04:05Z"),
                Some("uri") => json!("https://github.com/"),
                Some("email") => json!("nobody@example.org"),
                _ => json!("x"),
            },
        }
    }

    fn resolve<'a>(&'a self, value: &'a Value) -> &'a Value {
        match value["$ref"].as_str() {
            Some(place) => self.resolve(self.document.pointer(&place[1..]).unwrap()),
            None => value,
        }
    }

    /// The names of the properties a body may have, in whatever form it takes.
    fn properties(&self, schema: &Value) -> Vec<String> {
        let schema = self.resolve(schema);
        let mut names: Vec<String> = schema["properties"]
            .as_object()
            .into_iter()
            .flat_map(|properties| properties.keys().cloned())
            .collect();
        for key in ["anyOf", "oneOf", "allOf"] {
            for part in schema[key].as_array().into_iter().flatten() {
                names.extend(self.properties(part));
            }
        }
        names
    }

    fn check(&self, schema: &Value, value: &Value, what: &str) -> Vec<String> {
        let mut root = schema.clone();
        root["components"] = self.document["components"].clone();
        let validator = jsonschema::draft202012::options()
            .should_validate_formats(true)
            .build(&root)
            .unwrap();
        validator
            .iter_errors(value)
            .map(|error| format!("{what} {}: {error}", error.instance_path()))
            .collect()
    }
}

/// The parameters of `template` in `path`.
fn matches<'a>(template: &'a str, path: &str) -> Option<BTreeMap<&'a str, String>> {
    let (wanted, given): (Vec<&str>, Vec<&str>) =
        (template.split('/').collect(), path.split('/').collect());
    if wanted.len() != given.len() {
        return None;
    }
    let mut parameters = BTreeMap::new();
    for (wanted, given) in wanted.into_iter().zip(given) {
        match wanted
            .strip_prefix('{')
            .and_then(|name| name.strip_suffix('}'))
        {
            Some(name) => {
                parameters.insert(name, given.to_owned());
            }
            None if wanted == given => {}
            None => return None,
        }
    }
    Some(parameters)
}

fn merge(into: &mut Value, from: Value) {
    match (into, from) {
        (Value::Object(into), Value::Object(from)) => {
            for (key, value) in from {
                merge(into.entry(key).or_insert(Value::Null), value);
            }
        }
        (into, from) => *into = from,
    }
}
