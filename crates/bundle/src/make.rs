//! Packs a stored run: the servers it measured with their inputs for relinking, what decides how they are measured, and what was
//! found.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};
use toml::Value;

use crate::archive::{self, Source};
use crate::manifest::{Manifest, Needs, OBSERVATIONS, PackedFile};
use crate::{PRESET, server_folder};
use perfquilt_bench::server;
use perfquilt_bench::workload::{self, workload_identity};
use perfquilt_build::is_intact;
use perfquilt_config::workspace::Workspace;
use perfquilt_config::{
    BUILD_RECORD, CONFIG_FILE, Preset, RELINK_FOLDER, RELINK_RECORD, files_below,
};
use perfquilt_measure::run::{builder, prepare};
use perfquilt_model::comparable::{Comparable, Part};
use perfquilt_model::error::{Error, Result};
use perfquilt_model::observation::{ExperimentHeader, ObservationFile};
use perfquilt_rebase::PointTrees;
use perfquilt_results::analyse;
use perfquilt_series::series::SeriesLocation;
use perfquilt_store::{ExperimentId, Store};
use perfquilt_system::{digest, files};

/// Folders of the system, whose files every machine has of its own.
const SYSTEM: [&str; 9] = [
    "/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/etc", "/dev", "/proc",
];

/// The record of a link that works only where the server was built.
const UNLINKABLE: &str =
    r#"{"words":[],"env":{},"reason":"its link needs files of the machine that built it"}"#;

/// Writes the bundle of the run `id` to `path`; returns its manifest and its SHA-256.
///
/// # Errors
/// [`Kind::Usage`](perfquilt_model::error::Kind::Usage) when servers of the run are not in the cache any more, when series, recipe or
/// workloads have changed since, and when a file must not be packed.
pub fn make(
    ws: &Workspace,
    (store, id): (&Store, ExperimentId),
    path: &Path,
) -> Result<(Manifest, String)> {
    let mut file = analyse::stored(store, id)?;
    let header = &mut file.header;
    if header.is_of_servers() {
        let fault = format!("{} is of servers that are no series", header.experiment);
        return Err(Error::unbundled(fault).hint("a bundle is of a run of the series"));
    }
    // That of a bundle made before: the same run gives the same bytes.
    header.bundle = None;
    let observed = store.observed(id, header)?;
    let mut bundle = Bundle {
        ws,
        manifest: Manifest::new(
            &header.experiment,
            header.commit.clone().unwrap_or_default(),
        ),
        contents: BTreeMap::new(),
    };
    bundle.add_servers(header, &observed)?;
    bundle.add_measuring(&file, &observed)?;
    let mut text = Vec::new();
    file.write(&mut text)?;
    bundle.add(OBSERVATIONS, Source::Bytes(bundle.without_folders(text)))?;
    let digest = archive::write(path, &bundle.manifest, &bundle.contents)?;
    Ok((bundle.manifest, digest))
}

/// A bundle as it is collected.
struct Bundle<'a> {
    ws: &'a Workspace,
    manifest: Manifest,
    contents: BTreeMap<String, Source>,
}

impl Bundle<'_> {
    fn add(&mut self, path: &str, source: Source) -> Result<()> {
        let (sha256, bytes, mode) = match &source {
            Source::Bytes(bytes) => (hex::encode(Sha256::digest(bytes)), bytes.len() as u64, 0),
            Source::File(from) => {
                let failed = |error: std::io::Error| Error::io("read", from, &error);
                let found = std::fs::metadata(from).map_err(failed)?;
                let digest = digest::of_file(from).map_err(failed)?;
                (digest, found.len(), found.permissions().mode())
            }
        };
        let file = PackedFile {
            sha256: sha256.clone(),
            bytes,
            executable: mode & 0o100 != 0,
        };
        self.manifest.files.insert(path.to_owned(), file);
        self.contents.entry(sha256).or_insert(source);
        Ok(())
    }

    /// Adds a file that the run reads. A link that leads out of the workspace would pack what nobody named, and what its owner alone
    /// may read is no input of a benchmark but a secret.
    fn add_input(&mut self, path: &Path) -> Result<()> {
        let failed = |error: std::io::Error| Error::io("read", path, &error);
        let real = std::fs::canonicalize(path).map_err(failed)?;
        let root = std::fs::canonicalize(self.ws.root()).map_err(failed)?;
        let mode = std::fs::metadata(&real)
            .map_err(failed)?
            .permissions()
            .mode();
        let why = if !path.starts_with(self.ws.bench_config()) {
            "other machines do not have it: move it to bench-config/, and run again"
        } else if !real.starts_with(&root) {
            "leads out of the workspace"
        } else if mode & 0o044 == 0 {
            "only its owner may read it: it is not packed, as it may have a secret"
        } else {
            let name = format!("workspace/{}", self.ws.written(path).display());
            return self.add(&name, Source::File(real));
        };
        let shown = self.ws.written(path);
        Err(Error::unbundled(format!(
            "{} is part of the run, and {why}",
            shown.display()
        )))
    }

    /// Adds the servers of all points, as they were measured, and the series, of which nothing is built elsewhere.
    fn add_servers(&mut self, header: &ExperimentHeader, observed: &Comparable) -> Result<()> {
        let release = Some(header.release.as_str());
        let prepared = prepare(self.ws, release)?;
        let names = prepared.series.patches().iter().map(|patch| &patch.name);
        if !names.eq(&header.series) {
            return Err(self.changed("the series"));
        }
        self.manifest.series = prepared.series.digest();
        let location = SeriesLocation::of(self.ws, release)?;
        self.add("workspace/series", Source::File(location.file.clone()))?;
        for name in &header.series {
            let patch = Source::Bytes(location.raw(name)?);
            self.add(&format!("workspace/patches/{name}"), patch)?;
        }
        let builder = builder(self.ws, &header.recipe, &prepared)?;
        let (mut missing, mut programs) = (Vec::new(), Vec::new());
        for (point, identity) in observed.programs() {
            let built = builder.cached(&prepared.stack.tree(point)?);
            let Some(built) = built.filter(|built| is_intact(&built.dir)) else {
                missing.push(point.to_string());
                continue;
            };
            if built.identity != identity {
                return Err(self.changed(&format!("the server of point {point}")));
            }
            self.manifest.servers.insert(point, identity.to_owned());
            for path in files_below(&built.dir)? {
                let below = path.strip_prefix(&built.dir).unwrap_or(&path);
                let name = format!("{}/{}", server_folder(point), below.display());
                if below == Path::new(RELINK_FOLDER).join(RELINK_RECORD) {
                    let link = std::fs::read(&path).map_err(|e| Error::io("read", &path, &e))?;
                    let is_portable = self.without_folders(link.clone()) == link;
                    let link = if is_portable { link } else { UNLINKABLE.into() };
                    self.add(&name, Source::Bytes(link))?;
                } else if below != Path::new(BUILD_RECORD) {
                    self.add(&name, Source::File(path.clone()))?;
                }
                if !below.starts_with(RELINK_FOLDER) {
                    programs.push(path);
                }
            }
        }
        if !missing.is_empty() {
            let points = missing.join(" ");
            let fault =
                format!("servers of the run are not in the cache any more: points {points}");
            let command = format!("perfquilt build --recipe {} {points}", header.recipe);
            return Err(Error::unbundled(fault).hint(format!("`{command}` builds them again")));
        }
        let recipe = self.ws.config.recipe(&header.recipe)?;
        self.manifest.needs = Needs::of(recipe, programs.iter().map(PathBuf::as_path));
        Ok(())
    }

    /// Adds the configuration, the workloads, and the files that these and the server read.
    fn add_measuring(&mut self, file: &ObservationFile, observed: &Comparable) -> Result<()> {
        let ws = self.ws;
        let folder = ws.bench_config();
        let mut inputs = server::inputs(ws, server::adapter(ws)?.as_ref())?.0.all();
        inputs.extend(ws.config.server.config.iter().map(|path| folder.join(path)));
        let is_measured = |preset: &&Preset| {
            let workload = |(name, was): (&str, &str)| {
                let seconds = observed.get(&Part::Seconds(name.to_owned()));
                let digest = workload_identity(ws, &preset.workload(&ws.config, name)?)?;
                Ok(digest == was && seconds == Some(&preset.block_seconds.to_string()))
            };
            let mut workloads = observed.workloads().map(workload);
            let mut planned = file.supplement.planned.iter();
            planned.all(|plan| preset.meters.contains(&plan.meter))
                && workloads.all(|same: Result<bool>| same.unwrap_or(false))
        };
        let Some(preset) = ws.config.preset.values().find(is_measured) else {
            return Err(self.changed("a workload, a file that it reads or its preset"));
        };
        for (name, _) in observed.workloads() {
            inputs.insert(folder.join("workloads").join(format!("{name}.toml")));
            let workload = preset.workload(&ws.config, name)?;
            inputs.append(&mut workload::inputs(ws, &workload)?.0.all());
        }
        let is_own = |path: &&PathBuf| {
            path.is_file() && !SYSTEM.iter().any(|folder| path.starts_with(folder))
        };
        let mut own = inputs.iter().filter(is_own);
        own.try_for_each(|path| self.add_input(path))?;
        let names = observed.workloads().map(|(name, _)| name);
        let text = configuration(ws, preset, &file.header, names.collect())?;
        self.add(
            &format!("workspace/{CONFIG_FILE}"),
            Source::Bytes(text.into()),
        )
    }

    fn changed(&self, what: &str) -> Error {
        let fault = format!("{what} is not what {} measured", self.manifest.experiment);
        Error::unbundled(fault)
            .hint("`perfquilt run` measures it as it is now, for a bundle of that")
    }

    /// Returns a document without the names of this machine's folders, which messages of compilers and servers have and nobody else
    /// needs to know.
    fn without_folders(&self, text: Vec<u8>) -> Vec<u8> {
        let home = std::env::var_os("HOME").map(PathBuf::from);
        let folders = [self.ws.root(), self.ws.cache()]
            .into_iter()
            .chain(home.as_deref());
        let folders = folders.filter(|folder| folder.parent().is_some());
        let text = String::from_utf8_lossy(&text).into_owned();
        let without = |text: String, folder: &Path| text.replace(&*folder.to_string_lossy(), "…");
        folders.fold(text, without).into_bytes()
    }
}

/// Returns the configuration that measures `workloads` on the servers of `header` with the settings of `preset`. Its sections are named
/// one by one, so that none with credentials, addresses or commands of this workspace's forge is among them.
fn configuration(
    ws: &Workspace,
    preset: &Preset,
    header: &ExperimentHeader,
    workloads: Vec<&str>,
) -> Result<String> {
    let text = files::read_text(&ws.root().join(CONFIG_FILE), CONFIG_FILE)?;
    let wrong = |error: &dyn std::fmt::Display| Error::configuration(error.to_string());
    let mut kept: toml::Table = text.parse().map_err(|error| wrong(&error))?;
    let measured = kept["preset"].get(&preset.name).cloned();
    kept.retain(|section, _| section == "server" || section == "margin");
    if let Some(Value::Table(mut measured)) = measured {
        measured.retain(|key, _| key != "on" && key != "test" && key != "budget");
        measured.insert("workloads".to_owned(), workloads.into());
        measured.insert("recipe".to_owned(), header.recipe.as_str().into());
        let preset = toml::Table::from_iter([(PRESET.to_owned(), measured.into())]);
        kept.insert("preset".to_owned(), preset.into());
    }
    let binary = ws.config.recipe(&header.recipe)?.binary.as_deref();
    let version = &ws.config.release(Some(&header.release))?.version;
    let name = &ws.config.upstream.name;
    let words = [name, version, &header.recipe, binary.unwrap_or_default()];
    let [name, version, recipe, binary] = words.map(|word| Value::from(word).to_string());
    let rest = toml::to_string(&kept).map_err(|error| wrong(&error))?;
    Ok(format!(
        "[upstream]\nname = {name}\ncurrent = {version}\n\n[recipe.{recipe}]\nsystem = \"command\"\n\
         binary = {binary}\ninstall = {{ {binary} = {binary} }}\n\n{rest}"
    ))
}
