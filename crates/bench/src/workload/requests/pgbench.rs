//! Reads scripts of pgbench, PostgreSQL's benchmark program, as transactions.
//!
//! Of PostgreSQL's documentation, "pgbench", "Custom Scripts": SQL statements, `\set` of numbers and of random numbers,
//! and `:name`. What a script computes while it runs (`\gset`, `\if`, arithmetic with random values) has no place in
//! requests that are generated before they are timed; it is refused with the line.

use std::collections::BTreeMap;

use super::settings::{DistributionName, Expect, ParameterSettings, RequestSettings};
use perfquilt_model::error::Error;

/// A script as requests, and the random values in them.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct ScriptRequests {
    pub(super) requests: Vec<RequestSettings>,
    pub(super) parameters: BTreeMap<String, ParameterSettings>,
}

/// Divides `PATH@WEIGHT` into path and weight, which is 1 if it is not given.
pub(super) fn with_weight(text: &str) -> Result<(&str, u32), String> {
    match text.rsplit_once('@') {
        None => Ok((text, 1)),
        Some((path, weight)) => match weight.parse() {
            Ok(weight) if !path.is_empty() => Ok((path, weight)),
            _ => Err(format!(
                "`{text}` is not a script with a weight, such as `x.sql@3`"
            )),
        },
    }
}

/// Reads the script `text` of the file `name`. Its random values get names that begin with `prefix`; `variables` are numbers that
/// it may use, such as `scale`.
///
/// # Errors
/// [`Error::workload`], with the line.
pub(super) fn read(
    text: &str,
    name: &str,
    prefix: &str,
    variables: &BTreeMap<String, f64>,
) -> Result<ScriptRequests, Error> {
    let mut script = Script {
        prefix,
        known: variables
            .iter()
            .map(|(name, value)| (name.clone(), Value::Number(Number::new(*value, false))))
            .collect(),
        result: ScriptRequests::default(),
    };
    let mut statement = Statement::default();
    for (index, line) in text.lines().enumerate() {
        let at = |fault: String| Error::workload(fault).at(name, index + 1);
        if let Some(command) = line.trim_start().strip_prefix('\\')
            && statement.is_blank()
        {
            script.command(command).map_err(at)?;
            continue;
        }
        if statement.is_blank() {
            statement.line = index + 1;
        }
        for sql in statement.add(line) {
            script.statement(&sql).map_err(at)?;
        }
    }
    if statement.quote.is_some() || statement.comments > 0 {
        let fault = "a quotation or a comment in this statement has no end";
        return Err(Error::workload(fault).at(name, statement.line));
    }
    let last = std::mem::take(&mut statement.text);
    let at = |fault: String| Error::workload(fault).at(name, statement.line);
    script.statement(&last).map_err(at)?;
    if script.result.requests.is_empty() {
        return Err(Error::workload("the script has no statement").at(name, 1));
    }
    Ok(script.result)
}

/// A value of a variable.
#[derive(Debug, Clone, PartialEq)]
enum Value {
    Number(Number),
    /// The parameter with this name.
    Random(String),
}

struct Script<'a> {
    prefix: &'a str,
    known: BTreeMap<String, Value>,
    result: ScriptRequests,
}

impl Script<'_> {
    /// Carries out a command, without its backslash.
    fn command(&mut self, command: &str) -> Result<(), String> {
        let (word, rest) = command
            .split_once(char::is_whitespace)
            .unwrap_or((command, ""));
        if word != "set" {
            return Err(format!(
                "`\\{word}` is not supported: requests are generated before they are sent, by `\\set` alone"
            ));
        }
        let rest = rest.trim();
        let (name, expression) = rest
            .split_once(char::is_whitespace)
            .ok_or("`\\set` needs a name and an expression")?;
        let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
        if !name.chars().all(is_word) {
            return Err(format!("`{name}` is not the name of a variable"));
        }
        let value = Expression {
            rest: expression.trim(),
            known: &self.known,
        }
        .whole()?;
        let value = match value {
            Term::Number(number) => Value::Number(number),
            Term::Random(settings) => {
                let number = self.result.parameters.len();
                let parameter = format!("{}{number}_{}", self.prefix, name.to_ascii_lowercase());
                self.result.parameters.insert(parameter.clone(), settings);
                Value::Random(parameter)
            }
            Term::Variable(parameter) => Value::Random(parameter),
        };
        self.known.insert(name.to_owned(), value);
        Ok(())
    }

    /// Adds a statement, with placeholders for its variables.
    fn statement(&mut self, sql: &str) -> Result<(), String> {
        let sql = sql.trim();
        if sql.is_empty() {
            return Ok(());
        }
        let mut text = String::new();
        let mut rest = sql;
        while let Some(colon) = rest.find(':') {
            let (before, after) = rest.split_at(colon);
            text.push_str(before);
            let name: String = after[1..]
                .chars()
                .take_while(|c| c.is_ascii_alphanumeric() || *c == '_')
                .collect();
            // `::` is a cast, and a variable that no line sets stands for itself, as in pgbench.
            if let Some(cast) = after.strip_prefix("::") {
                text.push_str("::");
                rest = cast;
                continue;
            }
            rest = &after[1 + name.len()..];
            match self.known.get(&name) {
                Some(Value::Number(number)) => text.push_str(&number.value.to_string()),
                Some(Value::Random(parameter)) => text.push_str(&format!("{{{parameter}}}")),
                None if name.is_empty() || name.starts_with(|c: char| c.is_ascii_digit()) => {
                    text.push(':');
                    text.push_str(&name);
                }
                None => {
                    return Err(format!("no earlier line sets the variable `{name}`"));
                }
            }
        }
        text.push_str(rest);
        self.result.requests.push(RequestSettings {
            expect: Expect::Any,
            ..RequestSettings::text(text)
        });
        Ok(())
    }
}

/// A statement that is being read.
#[derive(Default)]
struct Statement {
    text: String,
    /// The line in which it begins.
    line: usize,
    /// The quotation it is in: a quotation mark, or the mark of a dollar quotation.
    quote: Option<String>,
    /// How many comments it is in; they may be nested.
    comments: usize,
}

impl Statement {
    fn is_blank(&self) -> bool {
        self.text.trim().is_empty() && self.quote.is_none() && self.comments == 0
    }

    /// Adds a line and returns the statements that end in it.
    fn add(&mut self, line: &str) -> Vec<String> {
        let mut complete = Vec::new();
        let mut rest = line;
        while let Some(next) = rest.chars().next() {
            let mut length = next.len_utf8();
            let mut is_kept = true;
            if self.comments > 0 {
                is_kept = false;
                if rest.starts_with("*/") {
                    (self.comments, length) = (self.comments - 1, 2);
                } else if rest.starts_with("/*") {
                    (self.comments, length) = (self.comments + 1, 2);
                }
            } else if let Some(quote) = &self.quote {
                if rest.starts_with(quote.as_str()) {
                    length = quote.len();
                    self.text.push_str(quote);
                    (self.quote, is_kept) = (None, false);
                }
            } else if rest.starts_with("--") {
                break;
            } else if rest.starts_with("/*") {
                (self.comments, length, is_kept) = (1, 2, false);
            } else if matches!(next, '\'' | '"') {
                self.quote = Some(next.to_string());
            } else if let Some(mark) = dollar_mark(rest) {
                length = mark.len();
                self.text.push_str(mark);
                (self.quote, is_kept) = (Some(mark.to_owned()), false);
            } else if next == ';' {
                complete.push(std::mem::take(&mut self.text));
                is_kept = false;
            }
            if is_kept {
                self.text.push_str(&rest[..length]);
            }
            rest = &rest[length..];
        }
        self.text.push('\n');
        complete
    }
}

/// Returns the mark of a dollar quotation (`$$`, `$x$`) at the begin of `text`.
fn dollar_mark(text: &str) -> Option<&str> {
    let rest = text.strip_prefix('$')?;
    let end = rest.find('$')?;
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let tag = &rest[..end];
    (tag.chars().all(is_word) && !tag.starts_with(|c: char| c.is_ascii_digit()))
        .then(|| &text[..end + 2])
}

/// A number in an expression.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Number {
    value: f64,
    /// Whether it is a double for pgbench: a literal with a dot or an exponent, or computed from one.
    is_double: bool,
}

impl Number {
    /// A number with a fraction is always a double.
    fn new(value: f64, is_double: bool) -> Self {
        Number {
            value,
            is_double: is_double || value.fract() != 0.0,
        }
    }
}

/// The value of an expression.
enum Term {
    Number(Number),
    Random(ParameterSettings),
    /// A variable with a random value.
    Variable(String),
}

/// An expression that is being read.
struct Expression<'a> {
    rest: &'a str,
    known: &'a BTreeMap<String, Value>,
}

impl<'a> Expression<'a> {
    fn whole(mut self) -> Result<Term, String> {
        let term = self.sum()?;
        if self.rest.trim().is_empty() {
            Ok(term)
        } else {
            Err(format!("unexpected `{}`", self.rest.trim()))
        }
    }

    fn take(&mut self, symbols: &[char]) -> Option<char> {
        self.rest = self.rest.trim_start();
        let found = self.rest.chars().next().filter(|c| symbols.contains(c))?;
        self.rest = &self.rest[found.len_utf8()..];
        Some(found)
    }

    fn sum(&mut self) -> Result<Term, String> {
        let mut term = self.product()?;
        while let Some(symbol) = self.take(&['+', '-']) {
            let (left, right) = (number(term)?, number(self.product()?)?);
            let value = if symbol == '+' {
                left.value + right.value
            } else {
                left.value - right.value
            };
            term = Term::Number(Number::new(value, left.is_double || right.is_double));
        }
        Ok(term)
    }

    fn product(&mut self) -> Result<Term, String> {
        let mut term = self.factor()?;
        while let Some(symbol) = self.take(&['*', '/', '%']) {
            let (left, right) = (number(term)?, number(self.factor()?)?);
            if right.value == 0.0 && symbol != '*' {
                return Err("division by zero".to_owned());
            }
            let is_double = left.is_double || right.is_double;
            let value = match symbol {
                '*' => left.value * right.value,
                '%' => left.value % right.value,
                // As in pgbench, the quotient of integers is one.
                _ if !is_double => (left.value / right.value).trunc(),
                _ => left.value / right.value,
            };
            term = Term::Number(Number::new(value, is_double));
        }
        Ok(term)
    }

    fn factor(&mut self) -> Result<Term, String> {
        if self.take(&['-']).is_some() {
            let negated = number(self.factor()?)?;
            return Ok(Term::Number(Number::new(-negated.value, negated.is_double)));
        }
        if self.take(&['(']).is_some() {
            let term = self.sum()?;
            return match self.take(&[')']) {
                Some(_) => Ok(term),
                None => Err("a parenthesis is missing".to_owned()),
            };
        }
        let is_variable = self.take(&[':']).is_some();
        let word = self.word();
        if is_variable {
            return match self.known.get(word) {
                Some(Value::Number(number)) => Ok(Term::Number(*number)),
                Some(Value::Random(parameter)) => Ok(Term::Variable(parameter.clone())),
                None => Err(format!("no earlier line sets the variable `{word}`")),
            };
        }
        if self.take(&['(']).is_some() {
            return self.function(word);
        }
        match word.parse::<f64>() {
            Ok(value) if value.is_finite() => {
                let is_double = word.contains(['.', 'e', 'E']);
                Ok(Term::Number(Number::new(value, is_double)))
            }
            _ => Err(format!("`{word}` is not a number")),
        }
    }

    /// Takes letters, digits, underscores and dots.
    fn word(&mut self) -> &'a str {
        self.rest = self.rest.trim_start();
        let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '.';
        let end = self.rest.find(|c| !is_part(c)).unwrap_or(self.rest.len());
        let (word, rest) = self.rest.split_at(end);
        self.rest = rest;
        word
    }

    /// Reads the arguments of a function.
    fn function(&mut self, name: &str) -> Result<Term, String> {
        let mut arguments = Vec::new();
        loop {
            arguments.push(number(self.sum()?)?.value);
            match self.take(&[',', ')']) {
                Some(',') => {}
                Some(_) => break,
                None => {
                    return Err(format!(
                        "the arguments of `{name}` lack a closing parenthesis"
                    ));
                }
            }
        }
        let distribution = match name {
            "random" => DistributionName::Uniform,
            "random_zipfian" => DistributionName::Zipf,
            "random_gaussian" => DistributionName::Gaussian,
            "random_exponential" => DistributionName::Exponential,
            _ => {
                return Err(format!(
                    "`{name}` is not supported: functions are random, random_zipfian, random_gaussian \
                     and random_exponential"
                ));
            }
        };
        let (from, to, shape) = match arguments[..] {
            [from, to] if name == "random" => (from, to, None),
            [from, to, shape] if name != "random" => (from, to, Some(shape)),
            _ => return Err(format!("wrong number of arguments of `{name}`")),
        };
        if from > to || from.fract() != 0.0 || to.fract() != 0.0 {
            return Err(format!(
                "`{name}` needs two integers, the smaller one first"
            ));
        }
        Ok(Term::Random(ParameterSettings {
            from: Some(from as i64),
            to: Some(to as i64),
            distribution: Some(distribution),
            shape,
            ..ParameterSettings::default()
        }))
    }
}

/// Returns a term that can be computed with.
fn number(term: Term) -> Result<Number, String> {
    match term {
        Term::Number(number) => Ok(number),
        Term::Random(_) | Term::Variable(_) => Err(
            "an expression cannot compute with a random value: let the statement do it, or draw from another range"
                .to_owned(),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn variables() -> BTreeMap<String, f64> {
        [("scale".to_owned(), 10.0)].into()
    }

    fn script(text: &str) -> Result<ScriptRequests, Error> {
        read(text, "x.sql", "s", &variables())
    }

    #[test]
    fn the_built_in_script_of_pgbench_is_read() {
        let read = script(
            "\\set aid random(1, 100000 * :scale)\n\\set bid random(1, 1 * :scale)\n\
             \\set delta random(-5000, 5000)\nBEGIN;\n\
             UPDATE pgbench_accounts SET abalance = abalance + :delta WHERE aid = :aid;\n\
             SELECT abalance::text FROM pgbench_accounts\n  WHERE aid = :aid; -- ; no end\n\
             INSERT INTO h VALUES (:bid, 'it''s; :scale', $x$;:$x$, \"a;b\") /* ; /* ; */ */;\nEND;\n",
        )
        .unwrap();
        let sent: Vec<&str> = read.requests.iter().map(|r| r.send.as_str()).collect();
        assert_eq!(
            sent,
            [
                "BEGIN",
                "UPDATE pgbench_accounts SET abalance = abalance + {s2_delta} WHERE aid = {s0_aid}",
                "SELECT abalance::text FROM pgbench_accounts\n  WHERE aid = {s0_aid}",
                "INSERT INTO h VALUES ({s1_bid}, 'it''s; 10', $x$;:$x$, \"a;b\")",
                "END",
            ]
        );
        let aid = &read.parameters["s0_aid"];
        assert_eq!((aid.from, aid.to), (Some(1), Some(1_000_000)));
        let delta = &read.parameters["s2_delta"];
        assert_eq!((delta.from, delta.to), (Some(-5000), Some(5000)));
    }

    #[test]
    fn numbers_are_computed() {
        for (expression, value) in [
            ("1 + 2 * 3", "7"),
            ("(1 + 2) * -3", "-9"),
            ("7 / 2", "3"),
            ("7.0 / 2.5", "2.8"),
            // A literal with a dot is a double, also without a fraction.
            ("7.0 / 2", "3.5"),
            ("(3 + 4.0) / 2", "3.5"),
            ("7 % 4 - :scale", "-7"),
        ] {
            let text = format!("\\set x {expression}\nSELECT :x");
            assert_eq!(
                script(&text).unwrap().requests[0].send,
                format!("SELECT {value}")
            );
        }
    }

    #[test]
    fn distributions_have_their_shape() {
        let read = script("\\set x random_zipfian(1, 9, 1.2)\n\\set y :x\nSELECT :x, :y").unwrap();
        let x = &read.parameters["s0_x"];
        assert_eq!(
            (x.distribution, x.shape),
            (Some(DistributionName::Zipf), Some(1.2))
        );
        assert_eq!(read.requests[0].send, "SELECT {s0_x}, {s0_x}");
    }

    #[test]
    fn what_cannot_be_read_names_its_line() {
        for (text, line, part) in [
            ("SELECT 1;\n\\sleep 5 ms\n", 2, "\\sleep"),
            ("SELECT 1;\nSELECT :nobody;\n", 2, "nobody"),
            (
                "\\set x random(1, 2)\n\\set y :x + 1\nSELECT 1",
                2,
                "random value",
            ),
            ("\\set x random(2, 1)\n", 1, "smaller"),
            ("\\set x random(1)\n", 1, "number of arguments"),
            ("\\set x random_zipfian(1, 2)\n", 1, "number of arguments"),
            ("\\set x sqrt(2)\n", 1, "sqrt"),
            ("\\set x 1 / 0\n", 1, "zero"),
            ("\\set x (1\n", 1, "parenthesis"),
            ("\\set x 1 2\n", 1, "`2`"),
            ("\\set x\n", 1, "an expression"),
            ("\\set a-b 1\n", 1, "a-b"),
            ("SELECT 1;\nSELECT 'x;\n", 2, "no end"),
            ("\n-- nothing\n", 1, "no statement"),
        ] {
            let error = script(text).unwrap_err();
            assert_eq!(
                error.location().unwrap().line,
                Some(line),
                "{text}: {error}"
            );
            assert!(error.message().contains(part), "{text}: {error}");
        }
    }

    #[test]
    fn weights_follow_the_path() {
        assert_eq!(with_weight("a/b.sql"), Ok(("a/b.sql", 1)));
        assert_eq!(with_weight("a@b.sql@30"), Ok(("a@b.sql", 30)));
        assert!(with_weight("a.sql@x").is_err());
        assert!(with_weight("@3").is_err());
    }

    proptest::proptest! {
        #[test]
        fn no_script_panics(text in "(\\\\set [a-z] |random\\(|SELECT|:[a-z]|[-+*/%().,;'$ \n0-9a-zé])*") {
            let _ = script(&text);
        }
    }
}
