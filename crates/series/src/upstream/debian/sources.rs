//! Parser for the machine's apt sources, from which perfquilt derives private sources for source packages.

use std::path::Path;

use perfquilt_model::error::Result;
use perfquilt_system::files::if_there;

/// Fields that control the verification of a source; the private copy keeps them.
const KEPT_OPTIONS: [&str; 6] = [
    "signed-by",
    "trusted",
    "check-valid-until",
    "valid-until-max",
    "allow-insecure",
    "allow-weak",
];

/// An apt source: a stanza of a `.sources` file or a line of a `.list` file.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AptSource {
    /// Addresses of the archive.
    pub uris: Vec<String>,
    /// Its suites.
    pub suites: Vec<String>,
    /// Its components.
    pub components: Vec<String>,
    /// Further fields with their unchanged values, including continuation lines.
    pub options: Vec<(String, String)>,
}

/// Returns every enabled source below `etc` (`/etc/apt`).
pub fn machine_sources(etc: &Path) -> Result<Vec<AptSource>> {
    let mut files = vec![etc.join("sources.list")];
    let parts = etc.join("sources.list.d");
    if let Ok(entries) = std::fs::read_dir(&parts) {
        let mut more: Vec<_> = entries.flatten().map(|entry| entry.path()).collect();
        more.sort();
        files.extend(more);
    }
    let mut sources = Vec::new();
    for file in files {
        let extension = file.extension().and_then(|extension| extension.to_str());
        let parse: fn(&str) -> Vec<AptSource> = match extension {
            Some("list") => parse_list,
            Some("sources") => parse_deb822,
            _ => continue,
        };
        if let Some(text) = if_there("read", &file, std::fs::read_to_string(&file))? {
            sources.extend(parse(&text));
        }
    }
    Ok(sources)
}

fn words(text: &str) -> Vec<String> {
    text.split_whitespace().map(str::to_owned).collect()
}

/// Parses the one-line format: `deb [signed-by=…] URI suite component…`.
fn parse_list(text: &str) -> Vec<AptSource> {
    let mut sources = Vec::new();
    for line in text.lines() {
        let line = line.split('#').next().unwrap_or_default().trim();
        let Some((kind, mut rest)) = line.split_once(char::is_whitespace) else {
            continue;
        };
        if kind != "deb" && kind != "deb-src" {
            continue;
        }
        rest = rest.trim_start();
        let mut options = Vec::new();
        if let Some(inner) = rest.strip_prefix('[') {
            let Some((inside, after)) = inner.split_once(']') else {
                continue;
            };
            for option in inside.split_whitespace() {
                if let Some((name, value)) = option.split_once('=')
                    && KEPT_OPTIONS.contains(&name.to_lowercase().as_str())
                {
                    options.push((field_name(name), value.replace(',', " ")));
                }
            }
            rest = after;
        }
        let mut fields = rest.split_whitespace().map(str::to_owned);
        let (Some(uri), Some(suite)) = (fields.next(), fields.next()) else {
            continue;
        };
        sources.push(AptSource {
            uris: vec![uri],
            suites: vec![suite],
            components: fields.collect(),
            options,
        });
    }
    sources
}

/// Capitalises a field name: `signed-by` → `Signed-By`.
fn field_name(name: &str) -> String {
    let capital = |part: &str| {
        let mut chars = part.chars();
        chars.next().map_or(String::new(), |first| {
            first.to_uppercase().collect::<String>() + chars.as_str()
        })
    };
    name.to_lowercase()
        .split('-')
        .map(capital)
        .collect::<Vec<_>>()
        .join("-")
}

/// Parses the stanza format of `.sources` files.
fn parse_deb822(text: &str) -> Vec<AptSource> {
    let mut sources = Vec::new();
    let mut fields: Vec<(String, String)> = Vec::new();
    for line in text.lines().chain(std::iter::once("")) {
        if line.trim().is_empty() {
            sources.extend(stanza(&std::mem::take(&mut fields)));
        } else if line.starts_with('#') {
        } else if line.starts_with([' ', '\t']) {
            if let Some((_, value)) = fields.last_mut() {
                value.push('\n');
                value.push_str(line);
            }
        } else if let Some((name, value)) = line.split_once(':') {
            fields.push((name.trim().to_lowercase(), value.trim().to_owned()));
        }
    }
    sources
}

fn stanza(fields: &[(String, String)]) -> Option<AptSource> {
    let get = |name: &str| {
        fields
            .iter()
            .find(|(field, _)| field == name)
            .map(|(_, value)| value.as_str())
    };
    let off = ["no", "false", "without", "off", "disable", "0"];
    if get("enabled").is_some_and(|value| off.contains(&value.to_lowercase().as_str())) {
        return None;
    }
    let source = AptSource {
        uris: words(get("uris")?),
        suites: words(get("suites")?),
        components: words(get("components").unwrap_or_default()),
        options: fields
            .iter()
            .filter(|(name, _)| KEPT_OPTIONS.contains(&name.as_str()))
            .map(|(name, value)| (field_name(name), value.clone()))
            .collect(),
    };
    (!source.uris.is_empty() && !source.suites.is_empty()).then_some(source)
}

/// Returns the source for an archive: the one whose address ends in `archive`; without `archive`, the one of the
/// machine's own suite, otherwise the first with a plain suite.
pub fn choose<'a>(
    sources: &'a [AptSource],
    archive: Option<&str>,
    own_suite: Option<&str>,
) -> Option<&'a AptSource> {
    if let Some(archive) = archive {
        let ends = |uri: &String| uri.trim_end_matches('/').rsplit('/').next() == Some(archive);
        return sources.iter().find(|source| source.uris.iter().any(ends));
    }
    let has_main = |source: &&AptSource| source.components.iter().any(|c| c == "main");
    let own = |source: &&AptSource| {
        own_suite.is_some_and(|own| source.suites.iter().any(|suite| suite == own))
    };
    let plain = |source: &&AptSource| {
        source
            .suites
            .iter()
            .any(|suite| !suite.contains(['-', '/']))
    };
    sources
        .iter()
        .find(|source| has_main(source) && own(source))
        .or_else(|| sources.iter().find(|s| has_main(s) && plain(s)))
}

/// Returns a `.sources` stanza for the source packages of `suites` in `source`'s archive.
pub fn private_stanza(source: &AptSource, suites: &[String]) -> String {
    let mut text = format!(
        "Types: deb-src\nURIs: {}\nSuites: {}\nComponents: main\n",
        source.uris.join(" "),
        suites.join(" ")
    );
    for (name, value) in &source.options {
        text.push_str(&format!("{name}: {value}\n"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const STANZAS: &str = "\
Types: deb
# a comment
URIs: http://mirror.example/debian
Suites: bookworm bookworm-updates
Components: main contrib
Signed-By: /usr/share/keyrings/archive.gpg

Types: deb
URIs: http://mirror.example/debian-security/
Suites: bookworm-security
Components: main
Signed-By:
 -----BEGIN PGP PUBLIC KEY BLOCK-----
 .
 abc

Types: deb
URIs: http://other.example/
Suites: ./
Enabled: no
";

    #[test]
    fn stanzas_are_read() {
        let sources = parse_deb822(STANZAS);
        assert_eq!(sources.len(), 2);
        assert_eq!(sources[0].suites, ["bookworm", "bookworm-updates"]);
        let own = choose(&sources, None, Some("bookworm")).unwrap();
        assert_eq!(own, &sources[0]);
        let security = choose(&sources, Some("debian-security"), Some("bookworm")).unwrap();
        let private = private_stanza(security, &["bullseye-security".to_owned()]);
        assert_eq!(
            private,
            "Types: deb-src\nURIs: http://mirror.example/debian-security/\n\
             Suites: bullseye-security\nComponents: main\n\
             Signed-By: \n -----BEGIN PGP PUBLIC KEY BLOCK-----\n .\n abc\n"
        );
    }

    #[test]
    fn lines_are_read() {
        let text = "# none\ndeb [arch=amd64 signed-by=/k.gpg] http://m/debian trixie main # c\n\
                    deb-src http://m/debian trixie-updates main\nnonsense\ndeb [broken\n";
        let sources = parse_list(text);
        assert_eq!(sources.len(), 2);
        assert_eq!(
            sources[0].options,
            [("Signed-By".to_owned(), "/k.gpg".to_owned())]
        );
        // On a machine with another suite, the archive of the first plain suite is chosen.
        assert_eq!(choose(&sources, None, Some("sid")), Some(&sources[0]));
        assert_eq!(choose(&sources, Some("debian-security"), None), None);
    }
}
