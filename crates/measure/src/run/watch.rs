//! One look at a line of upstream: what changed there since the last look for the patches of a series.
//!
//! References in the object store remember how far each line was looked at, and are set after the changes were emitted. A
//! change has the same id whenever it is found again, so that a look that was killed neither loses nor doubles one.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

use sha2::{Digest, Sha256};

use super::bisect::bisect;
use super::build_rebased;
use super::commits::{Commit, CommitRevisions, commit_of, commits};
use super::request::BisectRequest;
use perfquilt_config::WatchedLine;
use perfquilt_config::workspace::Workspace;
use perfquilt_judge::bisect::Conclusion;
use perfquilt_model::counted::counted;
use perfquilt_model::error::{Error, Kind, Result};
use perfquilt_model::progress;
use perfquilt_model::rebase::{BuildResult, PatchReport, TestResult};
use perfquilt_model::warning::Warning;
use perfquilt_model::watch::{ChangeKind, StateChange};
use perfquilt_rebase::named_paths;
use perfquilt_rebase::watch::{Fit, FollowedSeries, changes};
use perfquilt_series::series::path::shown;
use perfquilt_series::series::{Series, SeriesFile};
use perfquilt_series::upstream::watched::{fetch_branch, fetch_newest};
use perfquilt_series::upstream::{self, Objects, Release, git::reference_part};
use perfquilt_system::git::Git;

/// The most commits that are looked at one by one because they change files of the patches.
const MOST_LIKELY: usize = 256;

/// Takes each change, and returns once it is kept.
pub type Emit<'a> = dyn FnMut(&StateChange) -> Result<()> + 'a;

/// What to do with what is new, beside moving the series there.
pub struct WatchOptions<'a> {
    /// The recipe to build the points with, if they are built.
    pub recipe: Option<&'a str>,
    /// Whether to run the server's own tests.
    pub test: bool,
    /// What to measure: one request a workload, all with the same preset.
    pub measure: &'a [BisectRequest],
}

/// Looks at `line`, and gives each change to `emit`, in the order of upstream's commits; speed comes last.
pub fn look(
    ws: &Workspace,
    line: &WatchedLine,
    options: &WatchOptions<'_>,
    emit: &mut Emit<'_>,
) -> Result<()> {
    let from = upstream::ensure(ws, line.release.as_deref())?;
    let series = Series::load_for(ws, Some(&from.version))?;
    if series.patches().is_empty() {
        return Err(Error::measuring(format!(
            "the series of {} has no patches",
            from.name
        )));
    }
    let look = Look {
        followed: FollowedSeries::new(ws, &from, &series),
        line,
        tip: tip(ws, line, &from)?,
        ws,
        from: &from,
        series: &series,
        emit: RefCell::new(emit),
    };
    let range = look.since("checked")?;
    if range.len() > 1 {
        let count = counted(range.len() - 1, "new state", "new states");
        let since = look.named(&range[0]);
        progress::note(&format!("{}: {count} since {since}", line.name));
        look.fits(&range)?;
        if let Some(recipe) = options.recipe {
            look.builds(&range, recipe, options.test)?;
        }
    }
    look.remember("checked")?;
    let range = look.since("measured")?;
    if let Some(first) = options.measure.first().filter(|_| range.len() > 1) {
        let kept = look.kept(&range, &first.preset.recipe)?;
        for request in options.measure {
            look.speed(&range, &kept, request)?;
        }
    }
    look.remember("measured")
}

/// A look at a line.
struct Look<'a> {
    ws: &'a Workspace,
    line: &'a WatchedLine,
    from: &'a Release,
    series: &'a Series,
    followed: FollowedSeries<'a>,
    tip: Commit,
    emit: RefCell<&'a mut Emit<'a>>,
}

/// Returns the name of a reference of the line.
fn reference(line: &WatchedLine, what: &str) -> String {
    format!("refs/watched/{}/{what}", reference_part(&line.name))
}

/// Fetches the line, and returns its last commit.
fn tip(ws: &Workspace, line: &WatchedLine, from: &Release) -> Result<Commit> {
    if let Some(source) = &line.git {
        let id = fetch_branch(ws, source, &reference(line, "tip"))?;
        return commit(ws, &id);
    }
    let source = line.debian.as_ref();
    let source = source.ok_or_else(|| Error::internal("a line without a source"))?;
    let newest = fetch_newest(ws, source)?;
    // A version that the configuration has is the release itself, whose commit is the same.
    let newest = if newest.tree == from.tree {
        from.clone()
    } else {
        newest
    };
    Ok(Commit {
        id: newest.commit,
        tree: newest.tree,
        title: newest.name,
    })
}

/// Returns a commit of the object store.
fn commit(ws: &Workspace, name: &str) -> Result<Commit> {
    commit_of(&Git::bare(&ws.object_store()), name)
}

/// Adds what to do where an end of the new commits does not build, so that nothing is known of their speed.
fn unbuilt(error: Error) -> Error {
    match error.kind() {
        Kind::Build => error.hint(
            "let the recipe build both, or follow patches alone: `build = false` in [watch]; the next look begins where \
             this one did",
        ),
        _ => error,
    }
}

impl Look<'_> {
    /// Returns the commits from the one at which the last look ended to the tip: first parents where upstream's history is
    /// known, else the two alone. The first look begins where the line left the release.
    fn since(&self, what: &str) -> Result<Vec<Commit>> {
        let store = Objects::open(&self.ws.object_store())?;
        let git = store.git();
        let fetched = format!("refs/fetched/{}", reference_part(&self.from.version));
        let mut begin = None;
        for name in [reference(self.line, what), fetched] {
            let Some(found) = store.reference(&name)? else {
                continue;
            };
            if self.line.git.is_none() {
                begin = Some(found.to_string());
                break;
            }
            // A branch may have been rewritten since.
            let base = git.run(&["merge-base", &found.to_string(), &self.tip.id])?;
            if base.success() {
                begin = Some(base.stdout_text().trim().to_owned());
                break;
            }
        }
        let release = Commit {
            id: self.from.commit.clone(),
            tree: self.from.tree.clone(),
            title: self.from.name.clone(),
        };
        let first = begin.map_or(Ok(release), |begin| commit(self.ws, &begin))?;
        if first.id == self.tip.id || first.tree == self.tip.tree && self.line.git.is_none() {
            return Ok(vec![first]);
        }
        let mut all = vec![first.clone()];
        let is_known = self.line.git.is_some() && first.id != self.from.commit;
        if is_known {
            let listed = commits(&git, &first.id, &self.tip.id)?;
            all.extend(listed.into_iter().filter(|commit| commit.id != first.id));
        } else {
            all.push(self.tip.clone());
        }
        Ok(all)
    }

    /// Remembers that the line was looked at up to its tip.
    fn remember(&self, what: &str) -> Result<()> {
        let store = Objects::open(&self.ws.object_store())?;
        let tip = upstream::objects::oid(&self.tip.id)?;
        store.set_reference(&reference(self.line, what), tip)
    }

    /// Returns a commit's id; the release's name where upstream's history is unknown.
    fn named(&self, commit: &Commit) -> String {
        let name = if self.line.git.is_some() {
            &commit.id
        } else {
            &commit.title
        };
        name.clone()
    }

    fn release_of(&self, commit: &Commit) -> Release {
        if commit.id == self.from.commit {
            return self.from.clone();
        }
        commit.as_release(self.from)
    }

    /// Emits the changes of how patches fit.
    fn fits(&self, range: &[Commit]) -> Result<()> {
        let state = |at: usize| {
            let fits = self.followed.fits(&self.release_of(&range[at]))?;
            Ok(fits.into_iter().map(|(fit, _)| fit).collect::<Vec<Fit>>())
        };
        for (at, before, after) in changes(range.len() - 1, &self.likely(range)?, &state)? {
            let evidence = self.followed.fits(&self.release_of(&range[at]))?;
            for (index, (was, is)) in before.into_iter().zip(after).enumerate() {
                let change = match (was, is) {
                    (was, is) if was == is => continue,
                    (_, Fit::Upstream) => ChangeKind::TakenUpstream,
                    (_, Fit::Conflict) => ChangeKind::Conflict,
                    (Fit::Upstream, Fit::Applies) => ChangeKind::Removed,
                    (Fit::Conflict, Fit::Applies) => ChangeKind::AppliesAgain,
                    _ => continue,
                };
                let evidence = vec![evidence[index].1.clone()];
                self.emit(range, at, change, Some(index), evidence)?;
            }
        }
        Ok(())
    }

    /// Returns the places of the commits that change files of the patches; none if these are too many.
    fn likely(&self, range: &[Commit]) -> Result<BTreeSet<usize>> {
        if range.len() < 3 {
            return Ok(BTreeSet::new());
        }
        let ends = format!("{}..{}", range[0].id, self.tip.id);
        let mut words = vec![
            "--literal-pathspecs",
            "log",
            "--first-parent",
            "--format=%H",
        ];
        let paths = self.followed.paths();
        words.extend([&*ends, "--"]);
        words.extend(paths.iter().map(String::as_str));
        let listed = Git::bare(&self.ws.object_store()).ok(&words)?;
        let ids: BTreeSet<&str> = listed.lines().collect();
        let places = range.iter().enumerate();
        let places = places.filter(|(_, commit)| ids.contains(&*commit.id));
        let places: BTreeSet<usize> = places.map(|(at, _)| at).collect();
        Ok(if places.len() > MOST_LIKELY {
            BTreeSet::new()
        } else {
            places
        })
    }

    /// Emits the patches with which the server no longer builds, or newly fails its tests, and those of which nothing is left
    /// in the server.
    fn builds(&self, range: &[Commit], recipe: &str, test: bool) -> Result<()> {
        let known: RefCell<BTreeMap<usize, Vec<BTreeSet<ChangeKind>>>> = RefCell::default();
        let state = |at: usize| {
            if let Some(known) = known.borrow().get(&at) {
                return Ok(known.clone());
            }
            let states = self.built(&range[at], recipe, test)?;
            known.borrow_mut().insert(at, states.clone());
            Ok(states)
        };
        let found = match changes(range.len() - 1, &BTreeSet::new(), &state) {
            // Without upstream's own server there is nothing to compare.
            Err(error) if error.kind() == Kind::Build => {
                progress::warn(error.warning(&self.line.name));
                return Ok(());
            }
            found => found?,
        };
        for (at, before, after) in found {
            let fits = |at: usize| self.followed.fits(&self.release_of(&range[at]));
            let (was_fit, is_fit) = (fits(at - 1)?, fits(at)?);
            for (index, (was, is)) in before.into_iter().zip(after).enumerate() {
                let applies = (was_fit[index].0, is_fit[index].0) == (Fit::Applies, Fit::Applies);
                for &change in is.difference(&was).filter(|_| applies) {
                    let evidence = match change {
                        ChangeKind::Removed => {
                            "it applies, but the server is the same program with and without it"
                        }
                        ChangeKind::TestsFail => "tests fail with it that pass before it",
                        _ => "it applies, but does not compile",
                    };
                    self.emit(range, at, change, Some(index), vec![evidence.to_owned()])?;
                }
            }
        }
        Ok(())
    }

    /// Builds the points of the series on a commit, and returns what is wrong with the server of each patch.
    fn built(&self, on: &Commit, recipe: &str, test: bool) -> Result<Vec<BTreeSet<ChangeKind>>> {
        let mut rebased = self.followed.rebased(&self.release_of(on))?;
        build_rebased(self.ws, &mut rebased, recipe, test)?;
        Ok(rebased.report.patches.iter().map(faults_of).collect())
    }

    /// Returns the series of the patches that apply and build at both ends.
    fn kept(&self, range: &[Commit], recipe: &str) -> Result<Series> {
        let mut kept = vec![true; self.series.patches().len()];
        for end in [&range[0], &range[range.len() - 1]] {
            let fits = self.followed.fits(&self.release_of(end))?;
            let built = self.built(end, recipe, false);
            for (index, faults) in built.map_err(unbuilt)?.into_iter().enumerate() {
                kept[index] &= matches!(fits[index].0, Fit::Applies | Fit::Upstream)
                    && !faults.contains(&ChangeKind::BuildFails);
            }
        }
        let patches = self.series.patches().iter().zip(kept);
        let kept = patches.filter(|(_, is_kept)| *is_kept);
        let (names, patches): (Vec<_>, Vec<_>) = kept
            .map(|(patch, _)| (format!("{}\n", patch.name), patch.clone()))
            .unzip();
        let file = SeriesFile::parse(names.concat().as_bytes(), "series").0;
        Ok(Series::assemble(file, patches))
    }

    /// Emits the commits that make a workload slower, with the patches of `series` on top.
    fn speed(&self, range: &[Commit], series: &Series, request: &BisectRequest) -> Result<()> {
        let search = |series: Series, range: &[Commit]| {
            let states = CommitRevisions::of(self.ws, self.from, series, range.to_vec());
            bisect(self.ws, &states, request).map_err(unbuilt)
        };
        let found = search(series.clone(), range)?.outcome;
        match found.conclusion {
            Conclusion::Found => {}
            Conclusion::Undecided => {
                let (line, workload) = (&self.line.name, &request.question.workload);
                let told = format!("{line}: whether {workload} is slower stays open");
                progress::warn(Warning::open_speed(told));
                return Ok(());
            }
            _ => return Ok(()),
        }
        for culprit in &found.culprits {
            let parts = &range[culprit.from..=culprit.to];
            let bare = search(Series::default(), parts)?.outcome;
            let is_upstream = series.patches().is_empty() || bare.conclusion == Conclusion::Found;
            let change = if is_upstream {
                ChangeKind::Slower
            } else {
                ChangeKind::NoLongerHelps
            };
            let effect = culprit.effect.as_ref();
            let size = effect.map_or_else(String::new, |effect| {
                format!(": {:+.2} %", effect.estimate * 100.0).replace('-', "\u{2212}")
            });
            let mut evidence = vec![format!(
                "{} on {}{size}",
                request.question.meter, request.question.workload
            )];
            if culprit.to - culprit.from > 1 {
                evidence.push(format!("between {} and it", parts[0].label()));
            }
            let touched = self.patches_of(culprit.files.iter().map(|file| &*file.path));
            let patch = match touched[..] {
                [only] if change == ChangeKind::NoLongerHelps => Some(only),
                _ => None,
            };
            self.emit(range, culprit.to, change, patch, evidence)?;
        }
        Ok(())
    }

    /// Returns the indices of the patches that name one of these files.
    fn patches_of<'p>(&self, files: impl Iterator<Item = &'p str>) -> Vec<usize> {
        let files: BTreeSet<&str> = files.collect();
        let patches = self.series.patches().iter().enumerate();
        let named = patches.filter(|(_, patch)| {
            let mut paths = named_paths(patch).into_iter();
            paths.any(|path| files.contains(&*shown(&path)))
        });
        named.map(|(index, _)| index).collect()
    }

    fn emit(
        &self,
        range: &[Commit],
        at: usize,
        change: ChangeKind,
        patch: Option<usize>,
        evidence: Vec<String>,
    ) -> Result<()> {
        let patch = patch.map(|index| self.series.patches()[index].name.clone());
        let commit = &range[at];
        let parts = [
            &self.line.name,
            patch.as_deref().unwrap_or_default(),
            &commit.id,
        ];
        let digest = Sha256::digest(format!("{change}\n{}", parts.join("\n")));
        let next = self.line.git.iter().map(|_| {
            let label = commit.label();
            format!("git -C .perfquilt/objects.git show {label}")
        });
        let change = StateChange {
            schema: 1,
            id: hex::encode(digest)[..16].to_owned(),
            line: self.line.name.clone(),
            change,
            patch,
            commit: self.named(commit),
            title: commit.title.clone(),
            since: self.named(&range[0]),
            evidence,
            next: next.collect(),
        };
        (self.emit.borrow_mut())(&change)
    }
}

/// Returns what is wrong with the server of a patch, as far as it was built and tested.
fn faults_of(patch: &PatchReport) -> BTreeSet<ChangeKind> {
    let fails = matches!(patch.build, Some(BuildResult::Failed(_)));
    let fails_tests = matches!(&patch.tests, Some(TestResult::Ran(tests)) if !tests.new.is_empty());
    let faults = [
        (fails, ChangeKind::BuildFails),
        (fails_tests, ChangeKind::TestsFail),
        (patch.same_program, ChangeKind::Removed),
    ];
    let is = faults.into_iter().filter(|(is, _)| *is);
    is.map(|(_, change)| change).collect()
}
