//! The patches of an RPM `.spec`: which it declares (`PatchN`, `%patchlist`), and in which order, with which options, it
//! applies them (`%patch`, `%autosetup`, `%autopatch`). Conditions are reported, not evaluated.

use std::collections::BTreeMap;
use std::path::Path;

use super::{PatchSource, files};
use perfquilt_model::error::{Error, Result};
use perfquilt_series::series::SeriesEntry;

/// How deep macros are expanded.
const MOST_EXPANSIONS: usize = 10;

/// A spec, line by line.
#[derive(Debug, Default)]
pub(super) struct Spec {
    /// The lines with their ends.
    pub(super) lines: Vec<Vec<u8>>,
    /// For each line, the last one of the outermost condition around it, or the line itself.
    pub(super) ends: Vec<usize>,
    /// The declared patches by number.
    pub(super) declared: BTreeMap<u32, DeclaredPatch>,
    /// The applications in order.
    pub(super) applied: Vec<AppliedPatch>,
    /// Sentences about what was not evaluated.
    pub(super) notes: Vec<String>,
}

/// A declared patch.
#[derive(Debug, Clone)]
pub(super) struct DeclaredPatch {
    /// Its file's name.
    pub(super) name: String,
    /// Its line, from 0.
    pub(super) line: usize,
}

/// The application of a patch.
#[derive(Debug, Clone)]
pub(super) struct AppliedPatch {
    pub(super) number: u32,
    /// Its entry in a series; the line is that of the spec, from 1.
    pub(super) entry: SeriesEntry,
    /// Whether a line of its own applies it, and no other patch.
    pub(super) is_single: bool,
}

/// Options of the macros that apply patches.
#[derive(Default)]
struct MacroOptions {
    strip: Option<usize>,
    first: Option<u32>,
    last: Option<u32>,
    numbers: Vec<u32>,
    reverse: bool,
    applies_none: bool,
}

impl MacroOptions {
    /// Reads the words behind a macro, with those of its options in `valued` that take a value.
    fn read(words: &[&str], valued: &str) -> Self {
        let mut found = Self::default();
        let mut words = words.iter();
        while let Some(word) = words.next() {
            let Some(option) = word.strip_prefix('-') else {
                found.numbers.extend(word.parse::<u32>());
                continue;
            };
            let mut letters = option.chars();
            let Some(letter) = letters.next() else {
                continue;
            };
            let attached = letters.as_str();
            let mut value = || {
                if attached.is_empty() {
                    words.next().copied().unwrap_or_default()
                } else {
                    attached
                }
            };
            match letter {
                'p' => found.strip = value().parse().ok(),
                'P' => found.numbers.extend(value().parse::<u32>()),
                'm' => found.first = value().parse().ok(),
                'M' => found.last = value().parse().ok(),
                'R' => found.reverse = true,
                'N' => found.applies_none = true,
                letter if valued.contains(letter) => drop(value()),
                _ => {}
            }
        }
        found
    }

    /// Returns whether it selects this patch.
    fn selects(&self, number: u32) -> bool {
        let is_listed = self.numbers.is_empty() || self.numbers.contains(&number);
        let first = self.first.is_none_or(|first| first <= number);
        is_listed && first && self.last.is_none_or(|last| number <= last)
    }
}

impl Spec {
    /// Reads a spec; `shown` is its path in errors.
    pub(super) fn parse(bytes: &[u8], shown: &str) -> Result<Self> {
        let mut spec = Spec {
            lines: bytes
                .split_inclusive(|&byte| byte == b'\n')
                .map(<[u8]>::to_vec)
                .collect(),
            ..Spec::default()
        };
        let texts: Vec<String> = spec.lines.iter().map(|line| text(line)).collect();
        spec.ends = ends_of_conditions(&texts);
        let mut macros = BTreeMap::new();
        let mut conditions: Vec<String> = Vec::new();
        let mut section = "";
        for (at, line) in texts.iter().enumerate() {
            let words: Vec<&str> = line.split_whitespace().collect();
            let Some(&first) = words.first() else {
                continue;
            };
            let about = || conditions.last().cloned();
            match first {
                _ if first.starts_with('#') || first.starts_with("%dnl") => {}
                "%if" | "%ifarch" | "%ifnarch" | "%ifos" | "%ifnos" => {
                    conditions.push(line.trim().to_owned())
                }
                "%else" | "%elif" | "%elifarch" | "%elifos" => {
                    if let Some(last) = conditions.last_mut() {
                        *last = format!("{first} of {}", last.trim_start_matches("%else of "));
                    }
                }
                "%endif" => drop(conditions.pop()),
                "%global" | "%define" if words.len() > 2 => {
                    macros.insert(words[1].to_owned(), words[2..].join(" "));
                }
                "%prep"
                | "%build"
                | "%install"
                | "%check"
                | "%description"
                | "%package"
                | "%files"
                | "%changelog"
                | "%patchlist"
                | "%sourcelist"
                | "%generate_buildrequires" => {
                    section = words[0];
                }
                _ if section == "%patchlist" => {
                    let value = expand(line.trim(), &macros);
                    spec.declare(None, &value, at, about(), shown)?;
                }
                "%autosetup" | "%autopatch" => {
                    let valued = if first == "%autosetup" { "naSb" } else { "" };
                    let options = MacroOptions::read(&words[1..], valued);
                    if !options.applies_none {
                        spec.apply(&options, at, false, about(), shown)?;
                    }
                }
                _ if first == "%patch" || is_numbered(first, "%patch") => {
                    let mut options = MacroOptions::read(&words[1..], "bFdzo");
                    options
                        .numbers
                        .extend(first["%patch".len()..].parse::<u32>());
                    if options.numbers.is_empty() {
                        options.numbers.push(0);
                    }
                    options.strip = options.strip.or(Some(0));
                    let is_single = options.numbers.len() == 1;
                    spec.apply(&options, at, is_single, about(), shown)?;
                }
                _ if section == "%changelog" || section == "%description" => {}
                _ => {
                    let tag = line
                        .split_once(':')
                        .map(|(tag, value)| (tag.trim(), value.trim()));
                    match tag {
                        Some((tag, value)) if is_patch_tag(tag) => {
                            let number = tag["patch".len()..].parse().ok();
                            let value = expand(value, &macros);
                            spec.declare(number, &value, at, about(), shown)?;
                        }
                        Some((tag, value))
                            if ["name", "version", "release"]
                                .contains(&&*tag.to_ascii_lowercase()) =>
                        {
                            macros
                                .entry(tag.to_ascii_lowercase())
                                .or_insert(value.to_owned());
                        }
                        _ if section == "%prep" && mentions_patch(line) => {
                            let note = format!("{shown}:{}: not read: {}", at + 1, line.trim());
                            spec.notes.push(note);
                        }
                        _ => {}
                    }
                }
            }
        }
        let unused = spec.declared.iter();
        let unused =
            unused.filter(|(number, _)| !spec.applied.iter().any(|of| of.number == **number));
        let unused: Vec<String> = unused
            .map(|(_, patch)| {
                format!(
                    "left out: {} ({shown}:{} declares it, nothing applies it)",
                    patch.name,
                    patch.line + 1
                )
            })
            .collect();
        spec.notes.extend(unused);
        Ok(spec)
    }

    fn declare(
        &mut self,
        number: Option<u32>,
        value: &str,
        line: usize,
        condition: Option<String>,
        shown: &str,
    ) -> Result<()> {
        let next = self
            .declared
            .last_key_value()
            .map_or(0, |(last, _)| last + 1);
        let name = value.rsplit('/').next().unwrap_or_default().to_owned();
        let at = |error: Error| error.at(shown, Some(line + 1));
        if name.is_empty() || name.contains('%') {
            let fault = format!("cannot tell the name of the patch `{value}`: it has a macro");
            return Err(at(Error::import_source(fault)).hint("write the file's name there"));
        }
        if let Some(condition) = condition {
            self.notes.push(format!(
                "{shown}:{}: {name} is declared inside `{condition}`, which is not evaluated: it is imported",
                line + 1
            ));
        }
        let patch = DeclaredPatch { name, line };
        if let Some(other) = self.declared.insert(number.unwrap_or(next), patch) {
            let fault = format!(
                "the number of this patch is that of {} in line {}",
                other.name,
                other.line + 1
            );
            return Err(at(Error::import_source(fault)));
        }
        Ok(())
    }

    fn apply(
        &mut self,
        options: &MacroOptions,
        line: usize,
        is_single: bool,
        condition: Option<String>,
        shown: &str,
    ) -> Result<()> {
        if let Some(missing) = options
            .numbers
            .iter()
            .find(|number| !self.declared.contains_key(number))
        {
            let fault = format!("there is no patch {missing}");
            return Err(Error::import_source(fault).at(shown, Some(line + 1)));
        }
        for (number, patch) in &self.declared {
            if !options.selects(*number) {
                continue;
            }
            let name = &patch.name;
            if self.applied.iter().any(|of| of.number == *number) {
                self.notes.push(format!(
                    "{shown}:{}: {name} is applied again: imported once",
                    line + 1
                ));
                continue;
            }
            if let Some(condition) = &condition {
                self.notes.push(format!(
                    "{shown}:{}: {name} is applied inside `{condition}`, which is not evaluated: it is imported",
                    line + 1
                ));
            }
            self.applied.push(AppliedPatch {
                number: *number,
                entry: SeriesEntry {
                    strip: options.strip.unwrap_or(1),
                    reverse: options.reverse,
                    line: line + 1,
                    ..SeriesEntry::plain(name)
                },
                is_single,
            });
        }
        Ok(())
    }

    /// Returns the entries of the series that it applies.
    pub(super) fn entries(&self) -> impl Iterator<Item = &SeriesEntry> {
        self.applied.iter().map(|of| &of.entry)
    }
}

/// Returns the line of `series` for a patch.
fn series_line(entry: &SeriesEntry) -> String {
    let strip = match entry.strip {
        1 => String::new(),
        strip => format!(" -p{strip}"),
    };
    let reverse = if entry.reverse { " -R" } else { "" };
    format!("{}{strip}{reverse}\n", entry.name)
}

/// Reads the patches of the spec at `path`, which lie beside it or in a folder `SOURCES` beside its own.
pub(super) fn read(path: &Path) -> Result<PatchSource> {
    let shown = path.display().to_string();
    let spec = Spec::parse(&files::contents(path)?, &shown)?;
    if spec.applied.is_empty() {
        let fault = Error::import_source("the spec applies no patches").at(shown, None);
        return Err(fault.details(spec.notes));
    }
    let folder = folder(path);
    let names = spec.entries().map(|entry| entry.name.clone());
    let listed = names.map(|name| (folder.join(&name), name));
    Ok(PatchSource {
        kind: format!("the patches of {shown}"),
        patches: files::patches(listed)?,
        series: Some(
            spec.entries()
                .map(series_line)
                .collect::<String>()
                .into_bytes(),
        ),
        notes: spec.notes,
        ..PatchSource::default()
    })
}

/// Returns the folder of the patches of the spec at `path`.
pub(super) fn folder(path: &Path) -> std::path::PathBuf {
    let own = path.parent().unwrap_or(Path::new(""));
    let sources = own.join("../SOURCES");
    if own.ends_with("SPECS") && sources.is_dir() {
        sources
    } else {
        own.to_owned()
    }
}

fn text(line: &[u8]) -> String {
    String::from_utf8_lossy(line).into_owned()
}

/// Returns the last line of the outermost condition around each line, or the line's own place.
fn ends_of_conditions(texts: &[String]) -> Vec<usize> {
    let mut ends: Vec<usize> = (0..texts.len()).collect();
    let (mut depth, mut start) = (0_usize, 0);
    for (at, line) in texts.iter().enumerate() {
        let line = line.trim_start();
        if line.starts_with("%if") {
            if depth == 0 {
                start = at;
            }
            depth += 1;
        } else if line.starts_with("%endif") && depth > 0 {
            depth -= 1;
            if depth == 0 {
                ends[start..at].fill(at);
            }
        }
    }
    ends
}

fn is_numbered(word: &str, prefix: &str) -> bool {
    let digits = word.strip_prefix(prefix);
    digits.is_some_and(|digits| !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit()))
}

/// Returns whether a tag declares a patch: `Patch`, `PATCH12`.
fn is_patch_tag(tag: &str) -> bool {
    let tag = tag.to_ascii_lowercase();
    tag == "patch" || is_numbered(&tag, "patch")
}

/// Returns whether a line of `%prep` uses patches in another way.
fn mentions_patch(line: &str) -> bool {
    [
        "%patch",
        "%{PATCH",
        "%{P:",
        "%{patch",
        "%PATCH",
        "%autopatch",
        "%autosetup",
    ]
    .iter()
    .any(|word| line.contains(word))
}

/// Expands the macros `%{NAME}`, `%NAME` and `%{?NAME}` as far as they are known.
fn expand(value: &str, macros: &BTreeMap<String, String>) -> String {
    let mut text = value.to_owned();
    for _ in 0..MOST_EXPANSIONS {
        let before = text.clone();
        for (name, content) in macros {
            for form in [
                format!("%{{{name}}}"),
                format!("%{{?{name}}}"),
                format!("%{name}"),
            ] {
                text = text.replace(&form, content);
            }
        }
        if text == before {
            break;
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(spec: &str) -> (Vec<String>, Vec<String>) {
        let spec = Spec::parse(spec.as_bytes(), "x.spec").unwrap();
        let entries = spec
            .entries()
            .map(|entry| series_line(entry).trim().to_owned());
        (entries.collect(), spec.notes)
    }

    #[test]
    fn every_way_to_apply_patches_is_read() {
        let head = "Name: srv\nVersion: 1.2\n%global tag v%{version}\nPatch0: %{name}-a.patch\nPatch1: b-%{tag}.patch\n\
                    PATCH10: https://example.org/x/c.patch?raw\nPatch: d.patch\n%prep\n";
        let all = ["srv-a.patch", "b-v1.2.patch", "c.patch?raw", "d.patch"];
        let of = |prep: &str| {
            lines(&format!(
                "{head}{prep}\n%build\n%changelog\n* Patch9: none\n"
            ))
            .0
        };
        assert_eq!(of("%autosetup -p1 -n %{name}"), all);
        assert_eq!(of("%autosetup -N\n%autopatch -p1 -M 1"), all[..2]);
        assert_eq!(of("%autopatch -p 1 -m 10"), all[2..]);
        assert_eq!(of("%autopatch -p1 11 0"), ["srv-a.patch", "d.patch"]);
        let each =
            of("%setup -q\n%patch10 -p1 -b .c\n%patch -P 1 -p2\n%patch -P0\n%patch 11 -p1 -R");
        assert_eq!(
            each,
            [
                "c.patch?raw",
                "b-v1.2.patch -p2",
                "srv-a.patch -p0",
                "d.patch -R"
            ]
        );
        let list = lines("%patchlist\n# one\na.patch\nb.patch\n%prep\n%autosetup -S git\n").0;
        assert_eq!(list, ["a.patch", "b.patch"]);
        let error = Spec::parse(b"%prep\n%patch -P 3 -p1\n", "x.spec").unwrap_err();
        assert_eq!(error.to_string(), "x.spec:2: there is no patch 3");
        let error = Spec::parse(b"Patch1: %{unknown}.patch\n", "x.spec").unwrap_err();
        assert!(
            error
                .to_string()
                .starts_with("x.spec:1: cannot tell the name"),
            "{error}"
        );
    }

    #[test]
    fn what_is_not_evaluated_is_told() {
        let spec = "%if 0%{?rhel}\nPatch1: a.patch\n%else\nPatch2: b.patch\n%endif\nPatch3: c.patch\nPatch4: d.patch\n%prep\n\
                    %setup\n%patch -P1 -p1\n%ifarch s390x\n%patch2 -p1\n%endif\npatch -p1 < %{PATCH4}\n%patch -P 3 -p1\n";
        let (entries, notes) = lines(spec);
        assert_eq!(entries, ["a.patch", "b.patch", "c.patch"]);
        let notes = notes.join("\n");
        for words in [
            "x.spec:2: a.patch is declared inside `%if 0%{?rhel}`",
            "x.spec:4: b.patch is declared inside `%else of %if 0%{?rhel}`",
            "x.spec:12: b.patch is applied inside `%ifarch s390x`",
            "x.spec:14: not read: patch -p1 < %{PATCH4}",
            "left out: d.patch",
        ] {
            assert!(notes.contains(words), "{notes}");
        }
    }
}
