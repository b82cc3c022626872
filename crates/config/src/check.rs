//! Validation of the configuration, before anything uses it.

use std::collections::BTreeMap;
use std::path::{Component, Path};

use super::{
    Adapter, Bot, BuildSystem, CommandServer, CommandWorkload, Config, INSTALL_RESERVED,
    KEEP_RESERVED, Preset, Recipe, ReleaseSource, Workload, WorkloadKind, expand_word,
};
use crate::CONFIG_FILE;
use perfquilt_model::error::{Error, Result};
use perfquilt_model::repository::Repository;

/// Maximum of settings in seconds: one day.
const MAX_SECONDS: f64 = 86_400.0;
/// Maximum of a workload's counts, so that their sums do not overflow.
const MAX_COUNT: u64 = 1_000_000_000_000;
/// Placeholders of recipes.
const RECIPE_PLACEHOLDERS: &[&str] = &["src", "build", "jobs", "config", "profile"];
/// Additional placeholders of the section `relink`.
const RELINK_PLACEHOLDERS: &[&str] = &["output", "seed"];

/// Checks everything except the workloads.
pub(super) fn check(config: &Config, text: &str) -> Result<()> {
    check_releases(&config.upstream.release, text)?;
    check_recipes(config, text)?;
    for (name, preset) in &config.preset {
        check_preset(config, name, preset, text)?;
    }
    check_server(config, text)?;
    check_bot(config, text)?;
    for (meter, margin) in &config.margin {
        if !(margin.is_finite() && *margin > 0.0 && *margin < 1.0) {
            return wrong(
                format!("margin of {meter} must lie between 0 and 1"),
                line_in(text, "[margin]", &meter.to_string()),
            );
        }
    }
    Ok(())
}

/// Checks a workload; `text` is the content of its file, whose displayed path is `shown`.
pub(super) fn check_workload(workload: &Workload, shown: &str, text: &str) -> Result<()> {
    let wrong = |message: String, line: Option<usize>| Err(Error::usage(message).at(shown, line));
    let (kind, section, there) = match workload.kind {
        WorkloadKind::Sysbench => ("sysbench", "sysbench", workload.sysbench.is_some()),
        WorkloadKind::Command => ("command", "command", workload.command.is_some()),
        WorkloadKind::SqlBench => ("sql-bench", "sql_bench", workload.sql_bench.is_some()),
        WorkloadKind::Handler => ("handler", "handler", workload.handler.is_some()),
    };
    if !there {
        return wrong(format!("kind `{kind}` needs a [{section}] section"), None);
    }
    let mut counts: Vec<(&str, &str, u64)> = Vec::new();
    if let Some(own) = &workload.sysbench {
        counts.push(("sysbench", "threads", own.threads.into()));
    }
    if let Some(own) = &workload.handler {
        counts.push(("handler", "rows", own.rows.into()));
        counts.push(("handler", "threads", own.threads.into()));
    }
    if let Some(own) = &workload.command {
        counts.push(("command", "transactions", own.transactions));
        counts.push(("command", "limit_seconds", own.limit_seconds));
        counts.push(("command", "threads", own.threads.into()));
    }
    for (section, key, count) in counts {
        if !(1..=MAX_COUNT).contains(&count) {
            let bound = match count {
                0 => "at least 1".to_owned(),
                _ => format!("at most {MAX_COUNT}"),
            };
            return wrong(
                format!("`{key}` must be {bound}"),
                line_in(text, &format!("[{section}]"), key),
            );
        }
    }
    match &workload.command {
        Some(own) => check_command(own, shown, text),
        None => Ok(()),
    }
}

fn check_command(own: &CommandWorkload, shown: &str, text: &str) -> Result<()> {
    let line = |key: &str| line_in(text, "[command]", key);
    let commands = [("run", Some(&own.run)), ("prepare", own.prepare.as_ref())];
    for (key, words) in commands {
        if words.is_some_and(|words| is_empty(words)) {
            return Err(Error::usage(format!("`{key}` is an empty command")).at(shown, line(key)));
        }
    }
    match own.patterns() {
        Ok(_) => Ok(()),
        Err(bad) => Err(Error::usage(bad.message).at(shown, line(bad.key))),
    }
}

/// Whether a command names no program.
fn is_empty(words: &[String]) -> bool {
    words.first().is_none_or(String::is_empty)
}

fn wrong(message: String, line: Option<usize>) -> Result<()> {
    Err(Error::usage(message).at(CONFIG_FILE, line))
}

/// Returns the number of the first line that contains `needle`, from 1.
pub(super) fn line_of(text: &str, needle: &str) -> Option<usize> {
    text.lines()
        .position(|line| line.contains(needle))
        .map(|index| index + 1)
}

/// Returns the line that sets `key` in the section with header `section`, or else the header's line.
fn line_in(text: &str, section: &str, key: &str) -> Option<usize> {
    let header = line_of(text, section)?;
    let inside = text.lines().skip(header);
    let of_key = inside
        .take_while(|line| !line.trim_start().starts_with('['))
        .position(|line| is_setting(line, key));
    Some(of_key.map_or(header, |index| header + index + 1))
}

/// Whether `line` sets `key`.
fn is_setting(line: &str, key: &str) -> bool {
    line.split_once('=')
        .is_some_and(|(before, _)| before.trim() == key)
}

/// Returns the line of the `version` setting of the release with this version that follows `earlier` others.
fn line_of_release(text: &str, version: &str, earlier: usize) -> Option<usize> {
    let quoted = [format!("\"{version}\""), format!("'{version}'")];
    let is_it = |line: &str| {
        is_setting(line, "version") && quoted.iter().any(|quoted| line.contains(quoted))
    };
    let mut lines = text.lines().enumerate().filter(|(_, line)| is_it(line));
    lines.nth(earlier).map(|(index, _)| index + 1)
}

fn check_releases(releases: &[ReleaseSource], text: &str) -> Result<()> {
    for (index, release) in releases.iter().enumerate() {
        let version = &release.version;
        let earlier = releases[..index]
            .iter()
            .filter(|other| other.version == *version)
            .count();
        let line = line_of_release(text, version, earlier);
        if earlier > 0 {
            return wrong(format!("release {version} is configured twice"), line);
        }
        let sources = [
            release.debian.is_some(),
            release.tarball.is_some(),
            release.git.is_some(),
            release.directory.is_some(),
        ];
        if sources.iter().filter(|given| **given).count() != 1 {
            return wrong(
                format!(
                    "release {version} needs exactly one of debian, tarball, git and directory"
                ),
                line,
            );
        }
    }
    Ok(())
}

fn check_recipes(config: &Config, text: &str) -> Result<()> {
    let wrong = |message: String, section: &str| wrong(message, line_of(text, section));
    for (name, recipe) in &config.recipe {
        let of_recipe = |error: Error| error.details([format!("in recipe `{name}`")]);
        check_names(recipe, text).map_err(of_recipe)?;
        check_placeholders(recipe, text).map_err(of_recipe)?;
    }
    for (name, recipe) in &config.recipe {
        let section = format!("[recipe.{name}]");
        match recipe.system {
            Some(BuildSystem::Cmake | BuildSystem::Command) => {}
            // A recipe that only serves as a parent may omit it.
            None => continue,
        }
        if recipe.install.is_empty() {
            return wrong(format!("recipe `{name}` installs nothing"), &section);
        }
        if !recipe
            .binary
            .as_ref()
            .is_some_and(|binary| recipe.install.contains_key(binary))
        {
            return wrong(
                format!("recipe `{name}` needs `binary`, one of the paths it installs"),
                &section,
            );
        }
        let mut commands = recipe.configure.iter().chain(&recipe.build);
        if commands.any(|words| is_empty(words)) {
            return wrong(format!("recipe `{name}` has an empty command"), &section);
        }
    }
    for (name, recipe) in &config.recipe {
        let Some(relink) = &recipe.relink else {
            continue;
        };
        let complain = |message: String| wrong(message, &format!("[recipe.{name}.relink]"));
        if recipe.system == Some(BuildSystem::Cmake) {
            return complain(format!(
                "recipe `{name}` needs no `relink`: ninja knows how its executable is linked"
            ));
        }
        let has =
            |words: &[String], placeholder| words.iter().any(|word| word.contains(placeholder));
        if !has(&relink.command, "{output}") {
            return complain(format!(
                "`relink` of recipe `{name}` needs {{output}} in its command"
            ));
        }
        if !relink.shuffle.is_empty() && !has(&relink.shuffle, "{seed}") {
            return complain(format!(
                "`shuffle` of recipe `{name}` needs {{seed}}, or every order is the same"
            ));
        }
    }
    for (name, recipe) in &config.recipe {
        let Some(profile) = &recipe.profile else {
            continue;
        };
        let section = format!("[recipe.{name}.profile]");
        for workload in &profile.workloads {
            config
                .workload(workload)
                .map_err(|error| error.at(CONFIG_FILE, line_of(text, &section)))?;
        }
        if profile.workloads.is_empty() || profile.transactions == 0 {
            return wrong(
                format!("the profile of recipe `{name}` needs a workload and some transactions"),
                &section,
            );
        }
    }
    Ok(())
}

/// Refuses names of installed or kept files that lead out of the result or are reserved.
fn check_names(recipe: &Recipe, text: &str) -> Result<()> {
    let names = recipe.install.keys().map(|name| (name, INSTALL_RESERVED));
    let kept = recipe.relink.iter().flat_map(|relink| relink.keep.keys());
    let kept = kept.map(|name| (name, KEEP_RESERVED));
    for (name, reserved) in names.chain(kept) {
        let path = Path::new(name);
        let line = line_in_recipes(text, &format!("\"{name}\""));
        let mut parts = path.components();
        if name.is_empty() || !parts.all(|part| matches!(part, Component::Normal(_))) {
            return wrong(format!("`{name}` is not a path inside the result"), line);
        }
        if reserved.iter().any(|taken| path.starts_with(taken)) {
            return wrong(format!("`{name}` is reserved for perfquilt"), line);
        }
    }
    Ok(())
}

/// Refuses unknown placeholders.
fn check_placeholders(recipe: &Recipe, text: &str) -> Result<()> {
    let values = |names: &[&str]| -> BTreeMap<String, String> {
        let names = names.iter().map(|&name| name.to_owned());
        names.map(|name| (name, String::new())).collect()
    };
    let of_recipe = values(RECIPE_PLACEHOLDERS);
    let words = recipe
        .cmake_args
        .iter()
        .chain(&recipe.targets)
        .chain(recipe.configure.iter().flatten())
        .chain(recipe.build.iter().flatten())
        .chain(recipe.install.values())
        .chain(recipe.env.values())
        .map(|word| (word, &of_recipe));
    let of_relink = values(&[RECIPE_PLACEHOLDERS, RELINK_PLACEHOLDERS].concat());
    let relink = recipe.relink.iter().flat_map(|relink| {
        let commands = relink.command.iter().chain(&relink.shuffle);
        commands.chain(relink.keep.values())
    });
    let relink = relink.map(|word| (word, &of_relink));
    words.chain(relink).try_for_each(|(word, values)| {
        let filled = expand_word(word, values);
        filled
            .map(drop)
            .map_err(|error| error.at(CONFIG_FILE, line_in_recipes(text, word)))
    })
}

/// Returns the first line that contains `needle` within the sections of recipes.
fn line_in_recipes(text: &str, needle: &str) -> Option<usize> {
    let mut inside = false;
    let found = text.lines().position(|line| {
        // A line of an array may also begin with a bracket, but no name follows it.
        let name = line.trim_start().trim_start_matches('[');
        if name.len() < line.trim_start().len() && name.starts_with(char::is_alphabetic) {
            inside = name.starts_with("recipe");
        }
        inside && line.contains(needle)
    });
    found.map(|index| index + 1)
}

fn check_preset(config: &Config, name: &str, preset: &Preset, text: &str) -> Result<()> {
    let section = format!("[preset.{name}]");
    let at = |error: Error| error.at(CONFIG_FILE, line_of(text, &section));
    let recipe = config.recipe(&preset.recipe).map_err(at)?;
    if recipe.system.is_none() {
        return wrong(
            format!("recipe `{}` has no `system`", preset.recipe),
            line_of(text, &section),
        );
    }
    for workload in &preset.workloads {
        config.workload(workload).map_err(at)?;
    }
    if preset.workloads.is_empty() || preset.meters.is_empty() || preset.blocks < 2 {
        return wrong(
            format!("preset `{name}` needs a workload, a meter and at least 2 blocks"),
            line_of(text, &section),
        );
    }
    if let Some((key, fault)) = fault(preset) {
        return wrong(
            format!("preset `{name}`: {fault}"),
            line_in(text, &section, key),
        );
    }
    Ok(())
}

/// Returns the key of a preset's invalid setting and a description of the fault.
fn fault(preset: &Preset) -> Option<(&'static str, String)> {
    if !is_seconds(preset.block_seconds) {
        let fault = "`block_seconds` is more than 0 and at most a day (86400)";
        return Some(("block_seconds", fault.to_owned()));
    }
    if preset.count_blocks == 0 {
        return Some((
            "count_blocks",
            "`count_blocks` must be at least 1".to_owned(),
        ));
    }
    if preset
        .resolution
        .is_some_and(|resolution| !(resolution > 0.0 && resolution < 1.0))
    {
        let fault = "`resolution` is a fraction of speed, as 0.005 for ±0.5 %";
        return Some(("resolution", fault.to_owned()));
    }
    match preset.min_blocks {
        Some(_) if preset.resolution.is_none() => {
            let fault = "`min_blocks` has no effect without `resolution`";
            Some(("min_blocks", fault.to_owned()))
        }
        Some(least) if least < 2 || least > preset.blocks => {
            let most = preset.blocks;
            let fault = format!("`min_blocks` is at least 2 and at most `blocks` ({most})");
            Some(("min_blocks", fault))
        }
        _ => None,
    }
}

/// Whether a setting in seconds is a valid duration: above 0 and at most [`MAX_SECONDS`].
fn is_seconds(value: f64) -> bool {
    value > 0.0 && value <= MAX_SECONDS
}

fn check_server(config: &Config, text: &str) -> Result<()> {
    let server = &config.server;
    if server.adapter == Adapter::Command && server.command.is_none() {
        return wrong(
            "adapter `command` needs a [server.command] section".into(),
            line_of(text, "[server]"),
        );
    }
    if !is_seconds(server.start_seconds) {
        return wrong(
            "`start_seconds` is more than 0 and at most a day (86400)".into(),
            line_in(text, "[server]", "start_seconds"),
        );
    }
    let Some(CommandServer {
        start, ready, stop, ..
    }) = &server.command
    else {
        return Ok(());
    };
    for (key, words) in [
        ("start", Some(start)),
        ("ready", Some(ready)),
        ("stop", stop.as_ref()),
    ] {
        if words.is_some_and(|words| is_empty(words)) {
            let line = line_in(text, "[server.command]", key);
            return wrong(
                format!("`{key}` of the server is an empty command"),
                line.or_else(|| line_of(text, "[server]")),
            );
        }
    }
    Ok(())
}

fn check_bot(config: &Config, text: &str) -> Result<()> {
    if config.bot != Bot::default() {
        let at = |error: Error| error.at(CONFIG_FILE, line_of(text, "[bot]"));
        config.bot.repository.parse::<Repository>().map_err(at)?;
        config.preset(&config.bot.preset).map_err(at)?;
    }
    for pattern in &config.bot.steering {
        let name = pattern.strip_suffix('/').unwrap_or(pattern);
        if name.is_empty() || name.contains('/') {
            return Err(Error::usage(format!("`{pattern}` in `steering` is not a name"))
                .at(CONFIG_FILE, line_in(text, "[bot]", "steering"))
                .hint("a name means files of that name in every folder, `NAME/` everything in folders of that name"));
        }
    }
    let name = &config.commands.name;
    let plain = |b: u8| b.is_ascii_alphanumeric() || b == b'-';
    if name.is_empty() || !name.bytes().all(plain) {
        return wrong(
            format!("`{name}` cannot be used as a name after an @"),
            line_in(text, "[commands]", "name"),
        );
    }
    Ok(())
}
