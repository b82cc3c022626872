//! Builds points of one recipe and release.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use super::attempt::BuildAttempt;
use super::build_files::is_read;
use super::cache::{BuildRecord, Cache, Collected};
use super::cmake::{CONFIGURED, Cmake, ccache_env};
use super::command::{Commands, with_ccache};
use super::diagnose::{self, Cause, Fault};
use super::files::matching;
use super::key::{self, file_name};
use super::newcomers::Newcomers;
use super::ninja::followed;
use super::opened::{self, is_hidden, is_source};
use super::profile::{self, CachedProfile, InstrumentedBuilder, ProfileProvider, Training};
use super::relink::RelinkInputs;
use super::run::Log;
use super::shared_libraries;
use super::toolchain::Toolchain;
use super::work::{Work, remove};
use super::{BuildItem, Built, Changes, SourceTree};
use perfquilt_config::packages::{self, Detection};
use perfquilt_config::workspace::{StoredAnswers, Workspace};
use perfquilt_config::{BuildSystem, CONFIG_FILE, Profile, Recipe, TestSuite, expand, expand_word};
use perfquilt_model::counted::counted;
use perfquilt_model::error::{DISK_FULL, Error, Result};
use perfquilt_model::observation::ProfileUse;
use perfquilt_model::progress::{self, Step};
use perfquilt_model::warning::Warning;
use perfquilt_system::files::check_trusted;
use perfquilt_system::host::host_name;
use perfquilt_system::mounts::may_execute;

/// Whether the user knows that builds are not observed.
static UNOBSERVED: AtomicBool = AtomicBool::new(false);
const UNOBSERVED_WARNING: &str = "the kernel does not report which files builds open, so no report names the files of a patch that are \
     not in its server: raise fs.inotify.max_user_instances, max_user_watches and max_queued_events";

const OTHER_CACHE: &str = "XDG_CACHE_HOME names another folder for it";

/// Builds the points of one release with one recipe.
#[derive(Debug, Clone)]
pub struct Builder {
    pub(crate) recipe_name: String,
    recipe: Recipe,
    release: String,
    /// Content of `cmake_include`.
    include: Option<String>,
    tools: Toolchain,
    /// Digest of the recipe and the files it names.
    recipe_digest: String,
    /// Digest of the part of the recipe that determines the build tree, without what is installed from it.
    configuration_digest: String,
    pub(crate) config: PathBuf,
    pub(crate) cache_dir: PathBuf,
    /// The folder of this machine alone for source and build trees; `None` where the cache is.
    scratch: Option<PathBuf>,
    cache: Cache,
    /// Which servers and work trees of earlier builds count.
    pub(crate) answers: StoredAnswers,
    pub(crate) logs: PathBuf,
    jobs: usize,
    /// Provides profiles, for a profile-guided recipe.
    profiles: Option<ProfileProvider>,
    /// The profile in use.
    profile: Option<CachedProfile>,
}

impl Builder {
    /// Creates a builder of `release` with the recipe called `recipe`. Queries the installed tools (a tenth
    /// of a second) but builds nothing.
    pub fn new(ws: &Workspace, recipe: &str, release: &str) -> Result<Builder> {
        Self::of(ws, recipe, ws.config.recipe(recipe)?.clone(), release)
    }

    /// Creates a builder like [`Builder::new`] that also supports profile-guided recipes: `training` runs on the
    /// instrumented servers. `base` is the bare release, whose profile all points may share.
    pub fn guided(
        ws: &Workspace,
        recipe: &str,
        base: &BuildItem,
        training: &dyn Fn(&Profile) -> Result<Arc<dyn Training>>,
    ) -> Result<Builder> {
        let plain = Self::new(ws, recipe, &base.release)?;
        let Some(settings) = &plain.recipe.profile else {
            return Ok(plain);
        };
        let (generate, using) = profile::recipes(&plain.recipe, &plain.tools.lines);
        let name = format!("{recipe}-instrumented");
        let instrumented = Self::of(ws, &name, generate, &base.release)?;
        let training = training(settings)?;
        let provider = ProfileProvider::new(
            Arc::new(instrumented),
            &plain.tools.lines,
            settings.of,
            base.clone(),
            training,
            (&plain.cache_dir, plain.answers.clone()),
        )?;
        let mut builder = Self::of(ws, recipe, using, &base.release)?;
        builder.profiles = Some(provider);
        Ok(builder)
    }

    fn of(ws: &Workspace, name: &str, recipe: Recipe, release: &str) -> Result<Builder> {
        let system = recipe.system.ok_or_else(|| {
            Error::recipe(format!(
                "recipe `{name}` has no `system`: it can only be inherited from"
            ))
        })?;
        let config = ws.bench_config();
        let include = match (&recipe.cmake_include, system) {
            (Some(file), BuildSystem::Cmake) => {
                let path = config.join(file);
                let text = std::fs::read_to_string(&path).map_err(|error| {
                    Error::input_unreadable(format!("cannot read {}: {error}", path.display()))
                        .hint(format!("`cmake_include` of recipe `{name}` names it"))
                })?;
                Some(text)
            }
            _ => None,
        };
        let packages: Vec<String> = packages::packages(Some(ws))?
            .into_iter()
            .filter(|package| {
                matches!(
                    package.found_by,
                    Detection::Header(_) | Detection::PkgConfig(_)
                )
            })
            .map(|package| package.name)
            .collect();
        let tools = Toolchain::find(&recipe, &packages)?;
        let recipe_digest = key::of_recipe(&recipe, include.as_deref(), &config)?;
        let configuration_digest = key::of_configuration(&recipe, include.as_deref(), &config)?;
        Ok(Builder {
            recipe_name: name.to_owned(),
            recipe,
            release: release.to_owned(),
            include,
            tools,
            recipe_digest,
            configuration_digest,
            config,
            cache_dir: ws.cache().to_owned(),
            scratch: ws.scratch().map(Path::to_owned),
            cache: Cache::new(ws.cache()),
            answers: ws.answers().clone(),
            logs: ws.state().join("logs"),
            jobs: std::thread::available_parallelism().map_or(1, usize::from),
            profiles: None,
            profile: None,
        })
    }

    /// Sets the number of compilers that run at a time (default: one per processor).
    #[must_use]
    pub fn jobs(mut self, jobs: usize) -> Self {
        self.jobs = jobs.max(1);
        self
    }

    /// Returns the key of the server built from the git tree `tree`.
    pub fn key(&self, tree: &str) -> String {
        let profile = self.profiles.as_ref().map(|provider| provider.key(tree));
        let tools = &self.tools.lines;
        key::of_server(tree, &self.recipe_digest, tools, profile.as_deref())
    }

    /// Returns the server built from `tree` if the cache holds it and it counts.
    pub fn cached(&self, tree: &str) -> Option<Built> {
        let key = self.key(tree);
        let built = self.cache.get(&key).filter(|_| self.answers.counts(&key))?;
        let Some(provider) = &self.profiles else {
            return Some(built);
        };
        let profile = provider.cached(tree)?;
        (built.profile.as_ref()?.digest == profile.digest).then_some(built)
    }

    /// Counts the server of `tree`, which another machine built for this process.
    pub fn add_built(&self, tree: &str) {
        self.answers.add(&self.key(tree));
    }

    /// Returns the compilers and linkers in use, one line per tool.
    pub fn toolchain(&self) -> &[String] {
        &self.tools.lines
    }

    /// Returns the folder with this recipe's source and build tree.
    pub fn work_dir(&self) -> PathBuf {
        let name = key::work_name(&self.release, &self.recipe_name, &self.configuration_digest);
        let parent = self.scratch.as_deref().unwrap_or(&self.cache_dir);
        parent.join("work").join(name)
    }

    /// Returns the path of the log of building `item`.
    pub fn log_path(&self, item: &BuildItem) -> PathBuf {
        let key = self.key(&item.tree);
        let point = file_name(&item.point.to_string());
        self.logs.join(format!("build-{point}-{}.log", &key[..12]))
    }

    /// Creates the folder of the caches.
    fn create_cache(&self) -> Result<()> {
        std::fs::create_dir_all(&self.cache_dir).map_err(|error| {
            let folder = self.cache_dir.display();
            Error::cache(format!(
                "cannot create the folder of the caches, {folder}: {error}"
            ))
            .hint(OTHER_CACHE)
        })?;
        if !may_execute(&self.cache_dir) {
            let folder = self.cache_dir.display();
            return Err(Error::cache(format!(
                "programs in the folder of the caches, {folder}, cannot run: its file system is mounted `noexec`"
            ))
            .hint(OTHER_CACHE));
        }
        check_trusted(&self.cache_dir).map_err(|error| {
            error.hint(format!(
                "give it to the user who runs perfquilt (`chown`, `chmod o-w`), or {OTHER_CACHE}"
            ))
        })
    }

    /// Builds `item`, or takes it from the cache, if its contents there are those that were built.
    ///
    /// # Errors
    /// [`Kind::Build`](perfquilt_model::error::Kind::Build) with patch, file, line and message when it does not
    /// compile; other points can still be built.
    /// [`Kind::Interrupted`](perfquilt_model::error::Kind::Interrupted) on a signal; compiled objects are kept and
    /// the next call resumes from there.
    pub fn build(&self, item: &BuildItem, source: &dyn SourceTree) -> Result<Built> {
        self.create_cache()?;
        if let Some(built) = self.cached(&item.tree) {
            if self.cache.verify(&built.key)? {
                return Ok(built);
            }
            progress::warn(Warning::damaged_build(format!(
                "{}: the cached server ({}) is damaged; rebuilding it (check disk and memory of this machine)",
                item.label,
                built.dir.display()
            )));
        }
        self.for_point(item, source)?.build_now(item, source)
    }

    /// Returns the builder with the profile that `item` is compiled with, which is made first if necessary.
    fn for_point(&self, item: &BuildItem, source: &dyn SourceTree) -> Result<Cow<'_, Builder>> {
        match &self.profiles {
            None if self.recipe.profile.is_some() => Err(Error::internal(
                "a profile-guided recipe needs a builder with a training",
            )),
            None => Ok(Cow::Borrowed(self)),
            Some(provider) => {
                let profile = provider.profile(item, source)?;
                Ok(Cow::Owned(Builder {
                    profile: Some(profile),
                    ..self.clone()
                }))
            }
        }
    }

    fn build_now(&self, item: &BuildItem, source: &dyn SourceTree) -> Result<Built> {
        let key = self.key(&item.tree);
        let work = Work::lock(&self.work_dir())?;
        // The previous holder of the lock may have built this point.
        if let Some(built) = self.cached(&item.tree) {
            return Ok(built);
        }
        let started = Instant::now();
        let mut log = Log::create(&self.log_path(item))?;
        log.line(&format!("{} (recipe {})", item.label, self.recipe_name))?;
        for line in &self.tools.lines {
            log.line(line)?;
        }
        self.move_to(item, &work, source)?;
        let step = progress::begin(&format!("building {}", item.label), None);
        let attempt = self.compile(item, &work, &mut log, &*step)?;
        let collected = self.collect(item, &work)?;
        if attempt.opened.is_none() && !UNOBSERVED.swap(true, Ordering::Relaxed) {
            progress::warn(Warning::unobserved(UNOBSERVED_WARNING));
        }
        let opened = attempt.opened.as_ref();
        let opened = opened.map(|opened| &opened.all() | &collected.copied_from(&work.src()));
        let mut seconds = attempt.seconds;
        seconds.overhead = (started.elapsed().as_secs_f64() - seconds.total()).max(0.0);
        let record = BuildRecord {
            label: item.label.clone(),
            release: item.release.clone(),
            tree: item.tree.clone(),
            recipe: self.recipe_name.clone(),
            toolchain: self.tools.lines.clone(),
            seconds,
            compiled_units: attempt.units,
            opened,
            profile: self.profile.as_ref().map(|profile| ProfileUse {
                digest: profile.digest.clone(),
                of: profile.of.clone(),
                changed: attempt.profile_warnings.changed,
                without: attempt.profile_warnings.without,
            }),
            ..BuildRecord::default()
        };
        let replaces = self.answers.is_fresh();
        let built = self.cache.publish(&key, collected, record, replaces)?;
        self.answers.add(&key);
        step.finish(&format!("built {}: {}", item.label, summary(&built)));
        Ok(built)
    }

    /// Collects the server of `item` from the working folder.
    fn collect(&self, item: &BuildItem, work: &Work) -> Result<Collected> {
        let install = self.installed(&work.dir)?;
        let owner = self.work_dir();
        let owner = owner.file_name().unwrap_or_default().to_string_lossy();
        // The lock of a machine's own folder does not keep other machines out.
        let owner = match &self.scratch {
            Some(_) => format!("{owner}-{}-{}", host_name(), std::process::id()),
            None => owner.into_owned(),
        };
        let of_point = |error: Error| error.details([format!("in {}", item.label)]);
        let mut collected = self.cache.collect(&owner, &install).map_err(of_point)?;
        self.check_shared_libraries(&collected, &work.dir)
            .map_err(of_point)?;
        let relink = self.relink_inputs(&work.dir).map_err(of_point)?;
        self.cache
            .add_relink(&mut collected, &relink)
            .map_err(of_point)?;
        Ok(collected)
    }

    /// Moves the working folder to `item`.
    ///
    /// Commands get an empty folder: rules of a makefile need not name every file that they read, and a library may be built
    /// once and never again. Ninja is believed as far as programs opened what it knows, and nothing else.
    fn move_to(&self, item: &BuildItem, work: &Work, source: &dyn SourceTree) -> Result<()> {
        work.prepare(&self.tools.lines.join("\n"))?;
        let src = work.src();
        let mut hides = false;
        let folder = work.dir.to_string_lossy();
        let is_trusted = work.build().exists() && self.answers.counts(&folder);
        self.answers.add(&folder);
        if self.recipe.system == Some(BuildSystem::Command) || !is_trusted {
            work.empty()?;
        } else {
            let changes = source.changes(&item.tree, &src)?;
            let new = changes
                .as_ref()
                .and_then(|changes| Newcomers::among(&src, changes).named(&src));
            hides = new.is_some();
            let reason = match (new, &changes) {
                (Some(path), _) => Some(format!("{path} is new, and other files name it already")),
                (None, Some(changes)) => self.distrust(work, changes)?,
                (None, None) => Some("the build tree is another workspace's".to_owned()),
            };
            if let Some(reason) = reason {
                let label = &item.label;
                progress::note(&format!("{label}: {reason}; building from a clean tree"));
                work.empty()?;
            }
        }
        if !src.exists() {
            source.move_to(&item.base, &src)?;
            let changes = source.changes(&item.tree, &src)?.unwrap_or_default();
            let new = Newcomers::among(&src, &changes);
            hides |= new.named(&src).is_some();
            source.move_to(&item.tree, &src)?;
            let removed = Newcomers::removed(&changes);
            if hides || new.hiding(&src).is_some() || removed.named(&src).is_some() {
                work.preprocess()?;
            }
        }
        source.move_to(&item.tree, &src)
    }

    /// Returns why ninja would not build again all that depends on `changes`, which are about to be made; else makes CMake run
    /// again if it depends on one, since its cache would keep what it read.
    fn distrust(&self, work: &Work, changes: &Changes) -> Result<Option<String>> {
        if changes.is_empty() {
            return Ok(None);
        }
        if let Some(product) = work.future_product() {
            return Ok(Some(format!(
                "the clock was ahead when {} was made",
                product.display()
            )));
        }
        let Some(opened) = work.opened() else {
            return Ok(Some(
                "perfquilt cannot determine which files the build reads".to_owned(),
            ));
        };
        let is_listed = |path: &str| {
            let folder = Path::new(path).parent().unwrap_or(Path::new(""));
            opened.building.contains(&format!("{}/", folder.display()))
        };
        let src = work.src();
        // Its patterns and conditions may depend on whether any file exists.
        let configures = |path: &String, kept: bool| {
            opened.configuring.contains(path)
                || is_read(path) && !(kept && std::fs::symlink_metadata(src.join(path)).is_ok())
        };
        if changes.iter().any(|(path, kept)| configures(path, *kept)) {
            remove(&work.build().join(CONFIGURED))?;
        }
        if !Newcomers::removed(changes).is_empty() {
            work.preprocess()?;
        }
        let mut read = changes
            .keys()
            .filter(|path| opened.has(path) || is_listed(path))
            .peekable();
        if read.peek().is_none() {
            return Ok(None);
        }
        let targets = expand(&self.recipe.targets, &self.values(&work.dir, self.jobs))?;
        let followed = followed(&work.build(), &src, &targets);
        if let Some(path) = read.find(|path| !followed.contains(*path)) {
            return Ok(Some(format!("no rule names {path}, which the build reads")));
        }
        // A compiler that ninja does not follow may read any header.
        let mut compiled = opened.building.iter().filter(|path| is_source(path));
        let unknown =
            compiled.find(|path| !followed.contains(*path) && !is_hidden(&src.join(path)));
        Ok(unknown.map(|path| format!("no rule names {path}, which the build compiles")))
    }

    /// Compiles `item`, to which the working folder was moved.
    fn compile(
        &self,
        item: &BuildItem,
        work: &Work,
        log: &mut Log,
        step: &dyn Step,
    ) -> Result<BuildAttempt> {
        let before = work.opened();
        // If this process is killed, nobody knows what the rest of the build opened.
        work.set_opened(&None)?;
        let mut attempt = self.attempt(work, self.jobs, log, step)?;
        let mut fault = self.fault(&attempt, work);
        if self.jobs > 1 && fault.as_ref().is_some_and(|f| f.cause == Cause::Killed) {
            let words = "a compiler was killed, probably for lack of memory; retrying with one job";
            progress::warn(Warning::compiler_killed(words));
            let first = attempt;
            attempt = self.attempt(work, 1, log, step)?;
            attempt.add(first);
            fault = self.fault(&attempt, work);
        }
        attempt.opened = opened::both(before, attempt.opened);
        work.set_opened(&attempt.opened)?;
        if let (Some(fault), Some(ran)) = (fault, &attempt.failed) {
            return Err(self.explain(item, fault, &ran.ended, log));
        }
        Ok(attempt)
    }

    /// Returns the recipe's tests.
    pub(crate) fn suite(&self) -> Option<&TestSuite> {
        self.recipe.test.as_ref()
    }

    /// Builds `item` with the targets of its tests in the working folder, and passes the locked folder to `act`.
    pub(crate) fn in_work_tree<T>(
        &self,
        item: &BuildItem,
        source: &dyn SourceTree,
        log: &mut Log,
        act: &mut dyn FnMut(&WorkTree<'_>, &mut Log) -> Result<T>,
    ) -> Result<T> {
        let mut builder = self.for_point(item, source)?.into_owned();
        if let Some(suite) = &self.recipe.test {
            builder.recipe.targets.extend(suite.targets.iter().cloned());
        }
        let work = Work::lock(&builder.work_dir())?;
        builder.move_to(item, &work, source)?;
        let step = progress::begin(&format!("building the tests of {}", item.label), None);
        builder.compile(item, &work, log, &*step)?;
        step.finish("");
        let values = builder.values(&work.dir, builder.jobs);
        let env = builder.recipe_env(&values)?;
        let tree = WorkTree {
            build: builder.build_dir(&work.dir),
            work: &work,
            values,
            env,
        };
        act(&tree, log)
    }

    /// Diagnoses the failure of `attempt`, if it failed.
    fn fault(&self, attempt: &BuildAttempt, work: &Work) -> Option<Fault> {
        let ran = attempt.failed.as_ref()?;
        let build = self.build_dir(&work.dir);
        Some(diagnose::find(&ran.output, &work.src(), &build))
    }

    fn attempt(
        &self,
        work: &Work,
        jobs: usize,
        log: &mut Log,
        step: &dyn Step,
    ) -> Result<BuildAttempt> {
        let dir = &work.dir;
        let values = self.values(dir, jobs);
        let commands = |list: &[Vec<String>]| -> Result<Vec<Vec<String>>> {
            list.iter().map(|words| expand(words, &values)).collect()
        };
        let mut env = self.recipe_env(&values)?;
        if self.tools.ccache.is_some() {
            let user =
                |name: &str| std::env::var_os(name).is_some() || self.recipe.env.contains_key(name);
            env.extend(ccache_env(
                &self.cache_dir,
                self.scratch.as_deref(),
                dir,
                &user,
            ));
            if work.preprocesses() {
                env.push(("CCACHE_NODIRECT".to_owned(), "1".to_owned()));
            }
        }
        match self.recipe.system {
            Some(BuildSystem::Command) => Commands {
                configure: commands(&self.recipe.configure)?,
                build: commands(&self.recipe.build)?,
                env: match &self.tools.ccache {
                    Some(ccache) => with_ccache(env, dir, ccache)?,
                    None => env,
                },
            }
            .build(work, log, step),
            _ => Cmake {
                args: expand(&self.recipe.cmake_args, &values)?,
                include: self.include.clone(),
                targets: expand(&self.recipe.targets, &values)?,
                env,
                jobs,
            }
            .with_tools(dir, &self.tools)
            .build(work, log, step),
        }
    }

    /// Returns the environment variables of the recipe, with placeholders replaced by `values`.
    fn recipe_env(&self, values: &BTreeMap<String, String>) -> Result<Vec<(String, String)>> {
        let env = self.recipe.env.iter();
        env.map(|(name, value)| Ok((name.clone(), expand_word(value, values)?)))
            .collect()
    }

    /// Returns the build tree below the working folder `dir`.
    fn build_dir(&self, dir: &Path) -> PathBuf {
        match self.recipe.system {
            Some(BuildSystem::Command) => dir.join("src"),
            _ => dir.join("build"),
        }
    }

    fn profile_dir(&self) -> &Path {
        let profile = self.profile.as_ref();
        profile.map_or(Path::new(""), |profile| &profile.dir)
    }

    /// Returns the values of the recipe's placeholders.
    fn values(&self, dir: &Path, jobs: usize) -> BTreeMap<String, String> {
        let text = |path: &Path| path.display().to_string();
        [
            ("src", text(&dir.join("src"))),
            ("build", text(&self.build_dir(dir))),
            ("jobs", jobs.to_string()),
            ("config", text(&self.config)),
            ("profile", text(self.profile_dir())),
        ]
        .map(|(name, value)| (name.to_owned(), value))
        .into()
    }

    /// Returns [`Builder::values`] for the recipe's section `relink`; `{output}` stays, since every link expands it again.
    fn relink_values(&self, dir: &Path) -> BTreeMap<String, String> {
        let mut values = self.values(dir, self.jobs);
        values.insert("output".to_owned(), "{output}".to_owned());
        values
    }

    /// Returns the inputs for relinking the measured executable.
    fn relink_inputs(&self, dir: &Path) -> Result<RelinkInputs> {
        if let Some(relink) = &self.recipe.relink {
            let values = self.relink_values(dir);
            let fill = |text: &str| expand_word(text, &values);
            return RelinkInputs::of_recipe(relink, &self.recipe.env, &fill, &matching);
        }
        let binary = self.recipe.binary.as_ref();
        let outside = binary.and_then(|binary| self.recipe.install.get(binary));
        match (self.recipe.system, outside) {
            (Some(BuildSystem::Cmake), Some(outside)) => {
                let outside = expand_word(outside, &self.values(dir, self.jobs))?;
                RelinkInputs::of_ninja(Path::new(&outside), &self.build_dir(dir), dir)
            }
            _ => Ok(RelinkInputs::none("its recipe has no section `relink`")),
        }
    }

    /// Returns the files to install: path inside the result to path outside.
    fn installed(&self, dir: &Path) -> Result<BTreeMap<String, String>> {
        let values = self.values(dir, self.jobs);
        let install = self.recipe.install.iter();
        install
            .map(|(inside, outside)| Ok((inside.clone(), expand_word(outside, &values)?)))
            .collect()
    }

    /// Refuses a server that would load libraries from the working folder `dir`, where the next point overwrites them.
    fn check_shared_libraries(&self, collected: &Collected, dir: &Path) -> Result<()> {
        for (name, path) in collected.files() {
            let found = shared_libraries::in_work_folder(&path, dir);
            let Some(first) = found.first() else { continue };
            let which = match found.len() {
                1 => format!("{first} from the build tree"),
                several => format!(
                    "{first} and {} more libraries from the build tree",
                    several - 1
                ),
            };
            return Err(Error::recipe(format!(
                "recipe `{}`: `{name}` would load {which}, where the next point overwrites them",
                self.recipe_name
            ))
            .at(CONFIG_FILE, None)
            .hint(
                "link them statically or use the system's; or install them too, and link with the run path $ORIGIN",
            ));
        }
        Ok(())
    }

    fn explain(&self, item: &BuildItem, fault: Fault, ended: &str, log: &Log) -> Error {
        let log = format!("the whole log: {}", log.path.display());
        let who = match &item.patch {
            Some(patch) => format!("patch \"{patch}\""),
            // A bisected commit has no patch of its own either, and may have the series on top.
            None if item.label == item.release => format!("{} (without patches)", item.label),
            None => item.label.clone(),
        };
        let what = match fault.cause {
            Cause::Compile => "does not compile",
            Cause::Link => "does not link",
            Cause::Configure => "cannot be configured",
            Cause::DiskFull => "not built: the disk is full",
            Cause::NoProcesses => "not built: the machine has no free process",
            Cause::Killed => "not built: a compiler was killed, probably for lack of memory",
            Cause::Other => "cannot be built",
        };
        let message = format!("{who} {what}: {}", fault.message);
        // Not the fault of a point: the others would fail as well.
        let mut error = match fault.cause {
            Cause::DiskFull => Error::disk_full(message),
            Cause::NoProcesses => Error::internal(message),
            _ => Error::build_failed(message),
        };
        if let Some(file) = &fault.file {
            error = error.at(file, fault.line);
        }
        error = error.details(fault.excerpt);
        if fault.cause == Cause::Other {
            error = error.details([format!("(it {ended})")]);
        }
        if let (Some(file), Some(_), false) = (&fault.file, &item.patch, item.touches.is_empty()) {
            let touched = item.touches.iter().any(|path| path == file);
            error = error.details([if touched {
                format!("the patch touches {file}")
            } else {
                format!("the patch does not touch {file} itself")
            }]);
        }
        error.hint(match fault.cause {
            Cause::DiskFull => format!("{DISK_FULL}; {log}"),
            Cause::NoProcesses => {
                format!(
                    "raise the limit of processes of this user (`ulimit -u`), or end some; {log}"
                )
            }
            Cause::Killed => format!("give this machine more memory or swap; {log}"),
            _ if item.patch.is_some() => log,
            _ => format!("`perfquilt doctor` lists missing packages; {log}"),
        })
    }
}

/// The working folder of a built point, locked.
pub(crate) struct WorkTree<'w> {
    /// The folder, with sources and build tree.
    pub(crate) work: &'w Work,
    /// The build tree.
    pub(crate) build: PathBuf,
    /// The values of the recipe's placeholders.
    pub(crate) values: BTreeMap<String, String>,
    /// The recipe's environment variables.
    pub(crate) env: Vec<(String, String)>,
}

impl InstrumentedBuilder for Builder {
    fn key(&self, tree: &str) -> String {
        Builder::key(self, tree)
    }

    fn build(&self, item: &BuildItem, source: &dyn SourceTree) -> Result<Built> {
        Builder::build(self, item, source)
    }
}

/// Returns `215 units in 34 s (configure 0.0, compile 30.1, link 3.2, own 0.4)`; without the units if the build
/// system does not report them.
fn summary(built: &Built) -> String {
    let s = &built.seconds;
    let units = match built.compiled_units {
        0 => String::new(),
        units => format!("{} ", counted(units, "unit", "units")),
    };
    format!(
        "{units}in {:.1} s (configure {:.1}, compile {:.1}, link {:.1}, own {:.1})",
        s.total(),
        s.configure,
        s.compile,
        s.link,
        s.overhead
    ) + &match &built.profile {
        Some(profile) => {
            let mut text = format!("; with the profile of {}", profile.of);
            match profile.changed {
                0 => {}
                1 => text += ", which does not match 1 function",
                several => text += &format!(", which does not match {several} functions"),
            }
            match profile.without {
                0 => {}
                1 => text += ", without data for 1 file",
                several => text += &format!(", without data for {several} files"),
            }
            text
        }
        None => String::new(),
    }
}
