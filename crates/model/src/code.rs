//! The codes of errors and warnings: what stays the same when the words of a message change.
//!
//! The first two digits are the area; from 50 on, the last two are a warning's. A number is never given again, also when its code
//! is gone.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::error::{Error, Kind};
use crate::warning::Warning;

/// What kind of error or warning a message tells of. Shown as `PQ0315`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Code {
    /// The number, which never changes its meaning.
    pub number: u16,
    /// The category that decides the exit code, unless the command's purpose decides it ([`Error::of_kind`]); `None` for a
    /// warning, with which no command ends.
    pub kind: Option<Kind>,
    /// What is wrong, as a lower-case fragment.
    pub title: &'static str,
    /// What it means and what to do, in paragraphs.
    pub meaning: &'static str,
}

impl Code {
    /// Finds a code by its text: `PQ0315`, `pq315` or `315`.
    pub fn find(text: &str) -> Option<Self> {
        let digits = text.trim_start_matches(|c: char| "PQpq".contains(c));
        Self::by_number(digits.parse().ok()?)
    }

    fn by_number(number: u16) -> Option<Self> {
        ALL.iter().find(|code| code.number == number).copied()
    }
}

impl Error {
    /// Returns what kind of error this is, which outlives its words.
    pub fn code(&self) -> Code {
        Code::by_number(self.number()).unwrap_or_default()
    }
}

/// The code of what nothing more is known of: a fault of perfquilt.
impl Default for Code {
    fn default() -> Self {
        ALL[0]
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PQ{:04}", self.number)
    }
}

impl Serialize for Code {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// Reads a code; one of a newer program is the default.
impl<'de> Deserialize<'de> for Code {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Ok(Code::find(&text).unwrap_or_default())
    }
}

/// Declares codes, their list, and a constructor of errors or warnings for each. The documentation is the code's meaning.
macro_rules! codes {
    (@kind Warning) => { None };
    (@kind $kind:ident) => { Some(Kind::$kind) };
    (@type Warning) => { Warning };
    (@type $kind:ident) => { Error };
    ($($(#[doc = $meaning:literal])+ $number:literal $name:ident $kind:ident $title:literal)*) => {
        /// All codes, by number.
        pub const ALL: &[Code] = &[$(Code {
            number: $number,
            kind: codes!(@kind $kind),
            title: $title,
            meaning: concat!($($meaning, "\n"),+),
        }),*];

        $(
            impl codes!(@type $kind) {
                #[doc = concat!("Creates PQ", stringify!($number), ": ", $title, ".\n\n")]
                $(#[doc = $meaning])+
                pub fn $name(message: impl Into<String>) -> Self {
                    Error::new($number, codes!(@kind $kind), message.into()).into()
                }
            }
        )*
    };
}

codes! {
    /// Something that perfquilt relies on did not hold. Nothing that was finished is lost; run the same command again,
    /// and report the message with the output of `--verbose` if it stays.
    100 internal Internal "a fault of perfquilt"
    /// The operating system refused what the message names. Its last words are the system's own reason.
    101 file Internal "a file cannot be read or written"
    /// Free some space (`perfquilt clean --unused-days 0` empties the caches), then run the same command again.
    102 disk_full Internal "the disk is full"
    /// Run perfquilt as the owner, or work on a copy of the workspace.
    103 permission Internal "another user owns the file"
    /// Work on a copy of the workspace elsewhere.
    104 read_only Internal "the file system is mounted read-only"
    /// Finished work is kept; the same command continues.
    105 ended_by_signal Interrupted "stopped by a signal"
    /// Mostly a limit of this user or container (`ulimit -a`): the message names what was asked for.
    106 system_refused Internal "the system gave no thread, pipe, socket or process"
    /// It must be writable and on a file system that may run programs; `XDG_CACHE_HOME` sets another.
    107 cache Usage "the folder of the caches cannot be used"
    /// Wait until it has ended. A lock ends with its process, so none is left by one that was killed.
    108 locked Usage "another process works here"
    /// What waits on the disk is not what was written there: a bit was flipped, or something else wrote. It was not
    /// used.
    109 digest Usage "stored bytes have another digest"
    /// The message names the file and what to remove.
    110 state_damaged Usage "a state file is damaged"
    /// Install the package that the hint names; `perfquilt doctor` lists all that a workspace needs.
    111 program_missing Usage "a program is not installed"
    /// It exists, but the system does not run it, or it is too old.
    112 program_unusable Usage "a program cannot be started"
    /// It took too long, wrote too much, or there was no thread left for its output.
    113 program_limit Bench "a program exceeded its limit"
    /// Its exit status and last output stand below the message. The exit code is that of the work it was started for.
    114 program_failed Bench "a program failed"
    /// It is a link, too large, or not UTF-8. perfquilt reads what others may have written only as a plain file of
    /// limited size.
    115 file_refused Usage "a file is not of the kind that is read here"
    /// Name another folder, or empty it: perfquilt overwrites no files that it did not write.
    116 folder_taken Usage "the folder is not empty"
    /// Check the path and its permissions.
    117 input_unreadable Usage "a file that was given cannot be read"
    /// Name another file or folder for it.
    118 output Usage "the output cannot be written there"
    /// git's own words follow; the hint says what git needs.
    119 git Usage "git refuses or lacks something"
    /// A version of git with other output, or a damaged repository: `git fsck` tells.
    120 git_output Internal "git answered unexpectedly"
    /// Make the file or folder readable by its owner alone (`chmod go= …`).
    121 secret_readable Usage "other users can read a secret"
    /// The help of a command, such as `perfquilt run --help`, lists what it takes.
    200 arguments Usage "arguments that cannot be used, or not together"
    /// The hint has the nearest name, or all of them.
    201 unknown_name Usage "nothing has this name"
    /// Run the command in a folder with `bench-config/perfquilt.toml`, name one with `-C`, or create one with
    /// `perfquilt init`.
    202 no_workspace Usage "there is no workspace here"
    /// The message has file and line; docs/reference.md has each key with its type and default.
    203 configuration Usage "the configuration is wrong"
    /// Add the section that the message names.
    204 section_missing Usage "a section of the configuration is missing"
    /// The hint says what took its place.
    205 removed_key Usage "this key was removed"
    /// `perfquilt doctor` shows each check with its remedy.
    206 doctor Usage "the machine lacks something"
    /// Points are `0` (the release), `3` (with patches 1 to 3), `alone:3`, `without:3` and `control`.
    207 point Usage "not a point of the series"
    /// The message names the key of `[recipe]`.
    208 recipe Usage "the recipe cannot build this"
    /// The help of a command, such as `perfquilt run --help`, lists what it takes.
    209 command_line Usage "the command line cannot be read"
    /// This version still takes it, the next one does not.
    250 old_name Warning "a command or option has another name now"
    /// Create `series` with one patch a line, or import one with `perfquilt import`.
    300 series_missing Series "there is no series file"
    /// The grammar is quilt's: one patch a line, options after its name, comments after `#`.
    301 series_syntax Series "a line of the series cannot be read"
    /// `perfquilt lint` lists all its faults.
    302 series_unreadable Usage "the series cannot be used as it is written"
    /// Add one to `series`.
    303 series_empty Usage "the series has no patches"
    /// Nothing is overwritten: name another folder or release.
    304 series_exists Usage "the release already has a series"
    /// Resolve it in the file, as in any other file of the repository.
    305 unmerged Series "a merge left its conflict in the series"
    /// quilt and GNU patch take it differently, or not at all.
    306 patch_options Series "a patch has an option that cannot be used"
    /// Restore the file, or remove its line from `series`.
    307 patch_missing Series "a patch of the series has no file"
    /// It is taken, listed twice, or leads out of the folder of patches.
    308 patch_name Series "a patch cannot have this name"
    /// `perfquilt status` lists names and numbers.
    309 patch_unknown Usage "no patch, or several, have this name"
    /// The message has the line. GNU patch would refuse it, too, or apply something else than is written.
    310 patch_syntax Series "the diff is malformed"
    /// A patch without a diff changes nothing; remove its line from `series` or write the diff.
    311 patch_empty Series "the file has no diff"
    /// Scripts, combined diffs, submodules and some compressions are no changes of files.
    312 patch_unsupported Series "a form of diff that is not applied"
    /// The message has the limit.
    313 patch_too_large Series "the patch is larger than the limit"
    /// It needs the full ids of its file and its own base.
    314 binary_patch Series "a binary diff does not fit"
    /// The file differs at the place that the hunk names. `perfquilt rebase` looks for where it went.
    315 hunk Series "a hunk does not apply"
    /// It exists already, is missing, or is of another kind (link, folder, submodule).
    316 file_state Series "a file is not what the patch expects"
    /// Upstream may have taken the patch: `perfquilt rebase` says so, and drops it.
    317 already_applied Series "the change is already there"
    /// No patch and no archive reaches outside of the tree it is applied to.
    318 path_refused Usage "a path leaves the tree"
    /// The patches before or after it change the same lines.
    319 not_separable Series "a patch cannot be separated from the others"
    /// Each finding stands above with file and line; `lint --fix` mends those that leave the trees as they are.
    320 lint Series "lint found errors"
    /// perfquilt applies what it writes before it writes it. Nothing was written; report it with the patch.
    321 other_effect Internal "what would be written has another effect"
    /// Merges and roots have no diff against one parent: name the commits of one line, or `git rebase` them.
    322 history Series "the commits are not a linear history"
    /// Get the whole patch; if nothing is missing, remove the two lines of names.
    323 names_only Series "file names without a hunk"
    /// Check the counts in the hunk's `@@` line.
    324 ignored_line Series "a line that looks like a hunk's is ignored"
    /// Add it to the series, or remove it.
    350 unlisted_patch Warning "the series does not name a file"
    /// Lines around a hunk differ from the release's. `perfquilt lint --fix` rewrites the patch.
    351 fuzz Warning "a patch applies only with fuzz"
    /// `perfquilt lint --fix` rewrites the patch.
    352 offset Warning "a patch applies at another line"
    /// It says the same as `git diff --full-index --binary -M` would, in other words; `perfquilt lint --fix` rewrites
    /// it.
    353 not_canonical Warning "a patch is not in canonical form"
    /// Check that it applies at the right one; `perfquilt lint --fix` then writes its line.
    354 several_places Warning "a hunk fits several places"
    /// Remove one of them from the series.
    355 same_change Warning "two patches make the same change"
    /// quilt takes it for a patch called `#`.
    356 indented_comment Warning "a comment of the series is indented"
    /// quilt removes it at the next refresh; so does `perfquilt lint --fix`.
    357 default_strip Warning "the series has `-p1`, which is the default"
    /// quilt expects plain line ends.
    358 line_ends Warning "the series has CR LF at the ends of lines"
    /// Remove it from the series.
    359 no_diff Warning "a patch has no diff"
    /// Start it with `Subject:` or `Description:` and `From:`, and describe its purpose.
    360 no_header Warning "a patch has no header"
    /// The first line of text is taken as the title.
    361 no_subject Warning "a header has no subject"
    /// The commit's author is `unknown` without it.
    362 no_author Warning "a header has no author"
    /// `perfquilt lint --fix` joins both changes.
    363 changed_twice Warning "a patch changes a file twice"
    /// quilt and perfquilt apply it, and git reads it as a part of the message.
    364 indented_diff Warning "an indented diff is applied"
    /// Make the patch with `git diff --binary`.
    365 binary_without_content Warning "a binary file's content is not in the patch"
    /// If it belongs to the patch, make that with `diff -ruN` or `git diff`.
    366 announced_change Warning "a patch tells of a change that it does not have"
    /// Only the first message is the patch's header; `perfquilt lint --split` makes one patch of each commit.
    367 several_commits Warning "a patch file has several commits"
    /// The diff is applied. If it is a quotation, begin its lines with `> `.
    368 interrupted_header Warning "a header goes on behind a diff"
    /// No program reads it, and a patch that is written again keeps it. The place for words is the header.
    369 text_between Warning "there is text between the diffs"
    /// If the patch was made without a prefix, the other name that the message has is right (`-p 0`).
    370 no_prefix Warning "a patch may have no prefix in its names"
    /// `perfquilt upstream list` shows the configured releases, `perfquilt upstream fetch` gets one.
    400 release_missing Usage "the release is not there"
    /// Check the address and the network, or give the file with `--from`.
    401 download Usage "a release cannot be downloaded"
    /// The file is not the one that was locked. Nothing of it was imported.
    402 checksum Usage "a file does not match its SHA-256"
    /// The lock file says which bytes were measured; the message says what differs.
    403 lock_file Usage "the lock file and the releases differ"
    /// It is damaged, empty, or has members that no source release has.
    404 archive Usage "the archive cannot be imported"
    /// The suite does not have this version; the message says which it has.
    405 source_package Usage "the source package cannot be had"
    /// Check the remote and the tag with `git ls-remote`.
    406 tag Usage "the tag cannot be fetched"
    /// It is a bare git repository in the caches, and must have all its objects itself.
    407 object_store Usage "the object store cannot be used"
    /// `perfquilt upstream verify` says which releases; remove the store and fetch them again.
    408 objects_damaged Internal "the object store is damaged"
    /// If the build needs them, fetch the submodules, or use the release's tarball.
    450 absent_files Warning "files of submodules or Git LFS are not there"
    /// apt could not refresh all of them; a newer version of a package may exist.
    451 old_lists Warning "apt's lists may be old"
    /// The compiler's first errors follow, and the patch that the point adds.
    500 build_failed Build "a point does not build"
    /// Compare `targets` and `install` of the recipe with what the build tree has.
    501 installed_file Build "the build did not make a file that the recipe names"
    /// The queue forgot it, or its result is not in the cache. The same command starts it again.
    502 build_job Build "a job that builds was lost"
    /// It must end by its own exit; a killed server writes none.
    503 profile Build "the instrumented server wrote no profile"
    /// Its last output follows.
    504 relink Bench "the linker wrote nothing"
    /// All machines that measure one experiment need the same.
    505 toolchain Usage "the compiler or linker is another, or too old"
    /// The message says how the test runner ended; its log is kept.
    506 test_suite Bench "the server's own tests could not run"
    /// The message names test and patch.
    507 test_regression Regression "a test fails with a patch and not without it"
    /// Without it there is nothing to compare with.
    508 release_not_built Bench "the release itself was not built"
    /// It is built again. Check disk and memory of this machine.
    550 damaged_build Warning "a cached server is damaged"
    /// The kernel does not report them, so no report names the files of a patch that are not in its server: raise the limits of
    /// inotify that the message names.
    551 unobserved Warning "the files that a build opens are unknown"
    /// Probably for lack of memory: the build is tried again with one job.
    552 compiler_killed Warning "a compiler was killed"
    /// The last lines of its log follow.
    600 server_failed Bench "a server did not start, or ended"
    /// The reply is an error, of another protocol, or not the value that the workload expects.
    601 server_answer Bench "a server answered unexpectedly"
    /// The last lines of the program that fills them follow.
    602 server_data Bench "a server's data could not be made"
    /// Add it to `targets` and `install` of the recipe.
    603 server_program Bench "the built server lacks a program"
    /// The message names the file or key.
    604 server_settings Usage "the server's settings cannot be used"
    /// Fewer lanes or points need less; the message has the sizes.
    605 server_space Bench "there is no room for the servers' files"
    /// Its last output follows; the server's log is kept beside it.
    606 client_failed Bench "a client failed"
    /// It ended, but what it wrote has no usable figure.
    607 client_result Bench "a client's result cannot be used"
    /// The message has the file of the workload and its line.
    608 workload Usage "the workload cannot be used"
    /// Its time would be that of nothing: check its queries.
    609 no_transaction Bench "a workload did no transaction"
    /// Deadlocks and duplicate keys change what is measured; such rounds are not used.
    610 transactions_restarted Bench "transactions were restarted"
    /// `perfquilt doctor` says what the machine allows.
    611 meter_unavailable Usage "a meter cannot be read here"
    /// The figure would be of another time than the work.
    612 meter_failed Bench "a meter counted nothing, or not all"
    /// bubblewrap and user namespaces are needed; `perfquilt doctor` says which is missing.
    613 sandbox_unavailable Usage "there is no sandbox"
    /// The last words of its process follow.
    614 sandbox_failed Internal "the sandbox ended by itself"
    /// What ran in it exceeded the limit that the message names.
    615 sandbox_ended Bench "the sandbox was ended"
    /// Use fewer (`lanes` of the preset), or `lanes = "auto"`.
    616 lanes Usage "the machine has too few cores for the lanes"
    /// Use fewer lanes, or smaller data.
    617 lanes_memory Bench "the machine has too little memory for the lanes"
    /// Times come from a single layout, and an effect may be the layout's.
    650 one_layout Warning "code layouts are not varied"
    /// Give whole processors instead (`cpuset`), or no quota.
    651 quota Warning "a quota of processors applies"
    /// It cannot be traced: name its files as `inputs`.
    652 untraced Warning "what a workload reads is not known in full"
    /// No figure contains its cost.
    653 helper Warning "a process runs beside the server"
    /// This machine cannot read it; `perfquilt doctor` says why.
    654 unread_meter Warning "a meter is left out"
    /// The message says which points, servers or workloads do not go together.
    700 measuring Usage "this cannot be measured together"
    /// `perfquilt run` measures.
    701 no_results Usage "there are no results yet"
    /// Each attempt failed; the messages above say why.
    702 no_block Bench "no block has results"
    /// The message has line and field.
    703 observation_file Usage "not a file of observations"
    /// `perfquilt analyse --help` lists the formats.
    704 foreign_results Usage "another tool's results cannot be read"
    /// It is of another version, or no database of perfquilt.
    705 store Usage "the store of results cannot be used"
    /// What it has was not used. Restore a copy, or move it away and measure again.
    706 store_damaged Internal "the store of results is damaged"
    /// Run the command again when it has ended.
    707 store_locked Internal "another perfquilt writes to the store"
    /// An outcome is bound to its run by digest and nonce, and is read only as a plain file.
    708 outcome Usage "not the outcome of this run"
    /// They are of different series, machines or methods; the message has the difference.
    709 merge Usage "files that cannot be merged"
    /// `--fail-on regression` asked for this exit code.
    710 regression Regression "a patch is slower"
    /// `--fail-on inconclusive` asked for this exit code. More blocks narrow the intervals.
    711 inconclusive Inconclusive "the result is inconclusive"
    /// Copies of one server differ by more than chance: see what disturbs the machine before believing its figures.
    712 calibration Inconclusive "the machine does not keep a promise"
    /// `perfquilt doctor --on slurm` checks it, or `--on command` if commands of your own are the queue.
    713 cluster Bench "the cluster does not answer"
    /// All machines need the same folder, with locks, hard links and space.
    714 cluster_files Usage "the cluster's shared files cannot be used"
    /// Its last output follows.
    715 scheduler Bench "the scheduler refused"
    /// The file is damaged, or of another run or version.
    716 task Usage "not a task or result of this run"
    /// It is refused before anything of it runs: cut off, changed, of another format, or no bundle. Ask its maker for
    /// another copy and its SHA-256.
    717 bundle Usage "a bundle cannot be used"
    /// The message says what the machine lacks: its architecture, features of the processor, or shared libraries.
    718 bundle_elsewhere Usage "a bundle's servers cannot run here"
    /// Its servers or inputs are not there any more, are others now, or must not leave this machine.
    719 unbundled Usage "a run cannot be bundled"
    /// The table has the row; it also shows in which respects the machines differ.
    720 not_confirmed Regression "a verdict does not hold on this machine"
    /// More blocks, or a quieter machine, narrow the intervals.
    721 unconfirmed Inconclusive "verdicts cannot be confirmed on this machine"
    /// Each block has one value for each point, workload and meter: remove one of the two lines.
    722 observed_twice Usage "a value is there twice"
    /// Words of the importer or of the file about what the values are.
    750 reading_note Warning "how the values were read"
    /// Check that these are measured values.
    751 equal_blocks Warning "all blocks agree to the last digit"
    /// If it fails when it is slow, its effect looks better than it is. It has no verdict.
    752 missing_values Warning "a point lacks more values than chance explains"
    /// Its figures are a mean of two states. Look for a cause specific to this server, and measure again.
    753 two_states Warning "a point changed while it was measured"
    /// They tell less than as many independent ones would. Look for what changes slowly on this machine.
    754 dependent_blocks Warning "consecutive blocks resemble each other"
    /// The workload as a whole may not compare the same work, and has no verdict.
    755 missing_work Warning "a part of a workload's work is missing in some blocks"
    /// Times may differ, too; `--unexecuted` measures them.
    756 contradicted Warning "counts differ where no changed code seemed to run"
    /// No further blocks of it were measured.
    757 failed_workload Warning "a workload failed"
    /// One interval in twenty misses 0 by chance; read effects of that size with care.
    758 control_differs Warning "the control differs from itself"
    /// Effects are the mean over lanes; `lanes = 1` in the preset measures on one.
    759 lanes_differ Warning "lanes find different values"
    /// By chance in one of twenty; else the points disturb each other.
    760 end_to_end Warning "the end-to-end check fails"
    /// Its control or its spread differs from that of the others by more than chance explains.
    761 excluded_machine Warning "a machine is left out"
    /// Six machines or more give an interval for their class.
    762 machines_differ Warning "machines find different effects"
    /// More blocks on the same machines do not make the intervals narrow enough.
    763 few_machines Warning "more machines are needed for this resolution"
    /// If they are one machine, the intervals do not hold for other machines.
    764 namesakes Warning "several machines have one name"
    /// Today's would have measured more.
    765 earlier_rule Warning "an earlier version's rule ended the experiment"
    /// Whatever changed on the machine between them counts as an effect. Measure all points in each block.
    766 unpaired Warning "points were not measured in turns"
    /// Nothing is known of them over all workloads.
    767 lacking_points Warning "a workload has no value of some points"
    /// Every effect uses the blocks that have both its points, so effects need not add up exactly.
    768 incomplete_blocks Warning "blocks lack points"
    /// There is no interval: measure twice as many blocks as there are lanes, or with `lanes = 1`.
    769 one_time Warning "all blocks ran at one time"
    /// A clock that jumped, or another unit? They are used, and make the intervals wide.
    770 outliers Warning "blocks have values far from the others"
    /// Measure six times or more, or longer.
    771 few_readings Warning "too few equal readings for an interval"
    /// Intervals are as wide as that digit leaves open. Check that these are measured values.
    772 equal_readings Warning "readings agree to the last digit"
    /// Intervals are wider for it. Measure all points in turns.
    773 dependent_readings Warning "consecutive readings resemble each other"
    /// A quieter hour, or a machine of its own, makes the intervals narrower.
    774 stolen_time Warning "the hypervisor ran other machines meanwhile"
    /// Remove the quota (`cpu.max`, `docker run --cpus`), or give whole processors (`cpuset`).
    775 throttled Warning "a quota stopped servers or clients"
    /// Servers or clients wait for something else, which dilutes effects on time.
    776 idle Warning "the processor had nothing to do"
    /// Stop what else runs there, or let perfquilt use real-time scheduling (as root, or with CAP_SYS_NICE).
    777 preempted Warning "servers were taken off their processor"
    /// The machine has too little memory: measure fewer points at once, or smaller tables.
    778 paged Warning "servers read their own pages from a disk"
    /// A fixed one (`cpupower frequency-set`) makes the intervals narrower.
    779 frequency Warning "the processor's frequency changed"
    /// A difference may come from the machine, recipe, program or workload that the message names.
    780 other_conditions Warning "two experiments differ in more than time"
    /// A difference may be theirs.
    781 other_bases Warning "two experiments have different bases"
    /// Only those that both have are compared, one by one.
    782 other_workloads Warning "two experiments have different workloads"
    /// A patch's effect may depend on the patches before it.
    783 other_series Warning "two experiments have different series"
    /// Its intervals may still narrow.
    784 unfinished Warning "a compared experiment is not finished"
    /// Its server is another one, and so are those of the patches behind it.
    785 edited_patch Warning "a patch was edited between two experiments"
    /// By their digests: a difference comes from the machine or the method.
    786 same_programs Warning "programs and workloads are the same"
    /// Their figures may differ for that alone.
    787 other_method Warning "two experiments have different methods"
    /// The servers cannot be linked again on this machine; intervals are wider for it.
    788 layout_from_first Warning "how times vary between layouts was taken from the first experiment"
    /// Measure longer, or fewer workloads or points.
    789 short_budget Warning "the budget is less than a report needs"
    /// Patches without effect are seldom called so: choose the `resolution` that the message names, or a wider
    /// margin.
    790 unreachable_margin Warning "the resolution is too coarse for the margin"
    /// The message has the reason.
    791 task_again Warning "a task of the cluster is submitted again"
    /// None of its jobs had all results.
    792 task_lost Warning "a task of the cluster is lost"
    /// It does not start by itself; the message has the scheduler's reason.
    793 task_held Warning "the cluster holds a task"
    /// The request was repeated as far as that is safe. Run the command again later.
    800 forge_unreachable Forge "the forge cannot be reached"
    /// Mostly a scope that the token lacks; the hint names it.
    801 forge_refused Forge "the forge refused"
    /// A proxy or a sign-in page answers in its place.
    802 forge_answer Forge "the forge's answer cannot be read"
    /// The message says which variable is missing or wrong; no message shows its value.
    803 credentials Usage "the credentials cannot be used"
    /// It does not exist, several have the commit, or the token may not see it.
    804 pull_request Forge "there is no such pull request"
    /// Give repository and number on the command line.
    805 event Usage "the workflow's event names no pull request"
    /// docs/bot.md has each of them.
    806 bot_settings Usage "the bot's settings cannot be used"
    /// They must form one line on top of the target branch.
    807 pull_request_commits Series "the commits of the pull request are no series"
    /// The message has the limit; strangers' commits are read with limits of time, number and size.
    808 pull_request_too_large Series "the pull request exceeds a limit"
    /// The message has the limit, or how its process ended.
    809 job_ended Bench "a job was ended"
    /// The hint says what to send again; docs/mail.md tells which mails make a series.
    810 mail_series Series "the mails are no series"
    /// The bot knows the commits of the branches of `remote`.
    811 mail_base Series "the base commit of a series cannot be used"
    /// The mail is kept, and the bot hands it over again.
    812 mail_not_sent Forge "an answer was not sent"
    /// The pull request's last one is taken; `--head` names another.
    850 assumed_commit Warning "the measured commit is unknown"
    /// The message has the reason; its series waits for another.
    851 skipped_mail Warning "a mail is skipped"
    /// The bot no longer serves that repository.
    852 foreign_job Warning "a job of another repository is dropped"
    /// It is given up; the pull request's comment says so.
    853 crashing_job Warning "a job crashed the bot several times"
    /// docs/importing.md lists the sources.
    900 import_source Usage "this cannot be imported"
    /// The message has the mail's place and title.
    901 import_mail Usage "a mail cannot be imported"
    /// The message has the limit.
    902 import_too_large Usage "what is imported exceeds a limit"
    /// The message has the limit.
    903 history_too_large Series "the commits exceed a limit"
    /// Something is missing from them. Nothing was written.
    904 import_differs Series "the patches do not make the source's tree"
    /// `perfquilt edit` creates it.
    905 no_edit Usage "there is no edit branch"
    /// The hint has git's command that leads on, or back.
    906 edit_state Usage "the edit branch is not in a state to go on"
    /// Both sides changed, or a commit belongs to no patch. Nothing was written.
    907 edit_conflict Series "the branch cannot be written back"
    /// The hint says how to complete the change, or to discard it.
    908 journal Usage "a file changed during an unfinished change"
    /// It was not completed. All files that it would have replaced are kept.
    909 journal_damaged Internal "the journal of an unfinished change is damaged"
    /// The message says what is in its way.
    910 branch Usage "the branch cannot be created"
    /// `perfquilt rebase` lists each with the commands that decide.
    911 rebase_decision Series "patches need a decision"
    /// The message says what is in its way.
    912 rebase_target Usage "the series cannot go there"
    /// `perfquilt rebase` shows what is open.
    913 resolution Usage "there is no conflict to resolve so"
    /// Commit the resolution in the worktree, then run the same command again.
    914 resolution_unfinished Series "the conflict is not resolved yet"
    /// It is missing, or its submodules are: fetch them.
    915 commit Usage "a commit cannot be measured here"
    /// All its files are written now.
    950 completed_write Warning "an interrupted change of the series was completed"
    /// `perfquilt refresh` writes it there.
    951 unwritten_branch Warning "work of an edit branch is not in the series"
    /// It is at the last commit that perfquilt knows.
    952 restored_branch Warning "the edit branch was missing and is there again"
    /// Lines `Patch: NAME` of its commits are read as names of patches.
    953 old_patch_lines Warning "the edit branch has an earlier version's lines"
    /// The branch's commits are used.
    954 worktree_gone Warning "the edit branch has no worktree any more"
    /// It is in no patch: commit it, or remove it.
    955 uncommitted_file Warning "a file is not committed"
    /// perfquilt waits for it.
    956 git_still_runs Warning "git from an interrupted command still runs"
    /// The message names what was kept of its state.
    957 restored_worktree Warning "an interrupted rebase was undone in the worktree"
    /// Its commits are kept, and are those to edit.
    958 existing_branch Warning "an existing branch is used"
    /// The message names the reference that keeps it.
    959 kept_commit Warning "a commit that no branch has is kept"
    /// A bisection needs two states, one workload and a size.
    1000 bisection_question Usage "not a question to bisect"
    /// Bisections replay what `perfquilt bisect log` wrote.
    1001 bisection_log Usage "not the log of a bisection"
    /// More blocks, or a larger size, decide.
    1002 undecided Inconclusive "undecided within the allowed blocks"
    /// There is nothing to find between them on this workload.
    1003 ends_do_not_differ Inconclusive "the ends do not differ"
    /// A new one starts, and uses the measurements of unchanged servers.
    1050 edited_series Warning "the series was edited since the bisection stopped"
    /// More blocks, or a larger size, decide.
    1051 open_speed Warning "whether a line of upstream is slower stays open"
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failure::Failure;

    #[test]
    fn numbers_are_unique_and_in_order() {
        let numbers: Vec<u16> = ALL.iter().map(|code| code.number).collect();
        assert!(numbers.is_sorted_by(|a, b| a < b), "{numbers:?}");
        for code in ALL {
            assert_eq!(code.kind.is_none(), code.number % 100 >= 50, "{code}");
            assert!(
                !code.title.ends_with('.') && code.meaning.trim().ends_with('.'),
                "{code}"
            );
        }
    }

    #[test]
    fn a_code_survives_other_words_another_kind_and_a_file() {
        let error = Error::hunk("hunk 1 of 2 does not apply").of_kind(Kind::Build);
        assert_eq!(
            (error.code().to_string(), error.kind()),
            ("PQ0315".to_owned(), Kind::Build)
        );
        let error = error.reworded("it does not fit");
        let json = serde_json::to_string(&Failure::new(&error, None)).unwrap();
        let read: Failure = serde_json::from_str(&json).unwrap();
        assert_eq!(Error::from(read).code(), error.code());
    }

    #[test]
    fn codes_are_found_as_people_write_them() {
        for text in ["PQ0315", "pq315", "315"] {
            assert_eq!(Code::find(text).unwrap().number, 315, "{text}");
        }
        assert_eq!(Code::find("PQ"), None);
        assert_eq!(Code::find("99"), None);
    }
}
