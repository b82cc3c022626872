//! Keeps tasks submitted until each has its results or is lost.
//!
//! A published result overrides the scheduler's job state, which only decides when a task is submitted again. A task that ran twice
//! has published once.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use super::scheduler::{JobArray, JobState, Listing, Scheduler};
use perfquilt_model::error::{Error, Kind, Result};
use perfquilt_model::warning::Warning;

/// How often a coordinator submits a task at most.
const MOST_ATTEMPTS: u32 = 3;
/// The largest number of an attempt, those of earlier coordinators included: jobs are found again by their arrays' names.
const MOST_NAMES: u32 = 99;
/// Consecutive polls that find no job of a task without results before it is submitted again: a job that has just ended
/// may have published a result that a network file system does not show yet.
const MISSED_POLLS: u32 = 2;
/// After each submission that failed, the next one waits for twice as many polls, up to this many times.
const MOST_DOUBLINGS: u32 = 5;

/// Returns the warning that the scheduler did not answer.
fn silence(reason: &str) -> Warning {
    Error::cluster(format!("the cluster does not answer: {reason}")).into()
}

/// Says why a task is submitted again; `cut_off` are the processes that submitting left in its process group.
fn ended_without_results(cut_off: &BTreeSet<String>) -> String {
    let ended = "its job ended without results";
    if cut_off.is_empty() {
        return ended.to_owned();
    }
    let names: Vec<&str> = cut_off.iter().map(String::as_str).collect();
    format!(
        "{ended}; `submit` left {} running in its own process group, which ends with it: start a job with `setsid --fork`, or by a daemon",
        names.join(", ")
    )
}

/// A task without results.
#[derive(Debug, Clone, Default)]
struct OpenTask {
    attempts: u32,
    /// Consecutive polls without a job of it.
    missed: u32,
    held: bool,
    /// Attempts up to this one are those of earlier coordinators, and had ended before this coordinator began: most were cancelled
    /// with their coordinator.
    earlier: Option<u32>,
    /// Attempts up to this one count no longer: their results said that they failed.
    given_up: u32,
    /// Attempts whose submission failed and of which the scheduler knows no job: a queue may be full for hours.
    refused: BTreeSet<u32>,
    /// The machine that runs it, as the scheduler calls it.
    machine: Option<String>,
    /// Machines on which it failed, which are not to run it again.
    failed_on: Vec<String>,
}

/// The numbers of tasks by state.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TaskCounts {
    /// Tasks whose results are there.
    pub done: usize,
    /// Tasks that run, as far as the scheduler's last answer tells.
    pub running: usize,
    /// Tasks that wait.
    pub queued: usize,
    /// Tasks without results after all attempts.
    pub lost: usize,
}

/// Submitted tasks and their states.
pub struct Dispatch<'e> {
    scheduler: &'e dyn Scheduler,
    /// The common part of the names of all attempts' arrays, which end in the attempt's number.
    array: JobArray,
    open: BTreeMap<u32, OpenTask>,
    /// The largest number of an attempt that was submitted or found.
    latest: u32,
    running: BTreeSet<u32>,
    /// The tasks that have no results after all attempts.
    pub lost: BTreeSet<u32>,
    done: usize,
    /// Whether the scheduler did not answer at the last poll.
    is_silent: bool,
}

impl<'e> Dispatch<'e> {
    /// Begins with the tasks of `array`. Tasks whose jobs an earlier coordinator has submitted are found again at the first poll.
    pub fn new(scheduler: &'e dyn Scheduler, array: JobArray) -> Self {
        let tasks = array.tasks.iter();
        let open = tasks.map(|&task| (task, OpenTask::default())).collect();
        Dispatch {
            scheduler,
            array,
            open,
            latest: 0,
            running: BTreeSet::new(),
            lost: BTreeSet::new(),
            done: 0,
            is_silent: false,
        }
    }

    /// Returns the name of the array of an attempt, from 1.
    fn name(&self, attempt: u32) -> String {
        format!("{}-{attempt}", self.array.name)
    }

    fn names(&self, attempts: u32) -> Vec<String> {
        (1..=attempts).map(|attempt| self.name(attempt)).collect()
    }

    /// Adds a task, whose file is there.
    pub fn add(&mut self, task: u32) {
        if !self.lost.contains(&task) {
            self.open.entry(task).or_default();
        }
    }

    /// Returns the path of a task's file.
    pub fn task_file(&self, task: u32) -> PathBuf {
        self.array.task_file(task)
    }

    /// Records that all results of `task` are there. Returns whether that is new.
    pub fn finish(&mut self, task: u32) -> bool {
        let was_open = self.open.remove(&task).is_some();
        // A job that was given up may have published after all.
        let was_lost = self.lost.remove(&task);
        self.running.remove(&task);
        self.done += usize::from(was_open || was_lost);
        was_open || was_lost
    }

    /// Records that the results of `task` say that it failed, so that it is submitted again, if possible for another
    /// machine.
    pub fn retry(&mut self, task: u32) {
        if let Some(open) = self.open.get_mut(&task) {
            open.given_up = open.attempts;
            open.missed = MISSED_POLLS;
            // Only the scheduler names machines here: a result is anybody's text.
            open.failed_on.extend(open.machine.take());
        }
    }

    /// Returns the machines that run tasks, as the scheduler calls them.
    pub fn machines(&self) -> BTreeSet<&str> {
        let running = self.running.iter().filter_map(|task| self.open.get(task));
        running.filter_map(|open| open.machine.as_deref()).collect()
    }

    /// Returns whether every task has its results or is lost.
    pub fn is_over(&self) -> bool {
        self.open.is_empty()
    }

    /// Returns the numbers of tasks by state.
    pub fn counts(&self) -> TaskCounts {
        TaskCounts {
            done: self.done,
            running: self.running.len(),
            queued: self.open.len() - self.running.len(),
            lost: self.lost.len(),
        }
    }

    /// Asks the scheduler, and submits the tasks that have neither jobs nor results. Results must have been read after the scheduler was
    /// asked last ([`Dispatch::finish`]).
    ///
    /// Returns the warnings of the poll, without those of a silence that an earlier poll reported.
    pub fn poll(&mut self) -> Result<Vec<Warning>> {
        let mut warnings = self.look()?;
        let of_silence = |warning: &Warning| warning.code() == silence("").code();
        let is_silent = warnings.iter().any(of_silence);
        if std::mem::replace(&mut self.is_silent, is_silent) {
            warnings.retain(|warning| !of_silence(warning));
        }
        Ok(warnings)
    }

    fn look(&mut self) -> Result<Vec<Warning>> {
        let names = self.names(MOST_NAMES);
        let jobs = match self.scheduler.list(&names) {
            Listing::Known(jobs) => jobs,
            Listing::Unknown(reason) => return Ok(vec![silence(&reason)]),
        };
        let mut warnings = Vec::new();
        let mut due: BTreeMap<(u32, Vec<String>), Vec<u32>> = BTreeMap::new();
        self.running.clear();
        let tasks: Vec<u32> = self.open.keys().copied().collect();
        for task in tasks {
            let name = |attempt: u32| names[attempt as usize - 1].clone();
            let state = |attempt| Some((attempt, jobs.get(&(name(attempt), task))?));
            let Some(open) = self.open.get_mut(&task) else {
                continue;
            };
            let counting = open.given_up + 1..=MOST_NAMES;
            let states: Vec<(u32, &JobState)> = counting.filter_map(state).collect();
            // An earlier coordinator, or a submission that seemed to fail, may have got further.
            let submitted = states
                .iter()
                .map(|(attempt, _)| *attempt)
                .max()
                .unwrap_or(0);
            open.attempts = open.attempts.max(submitted);
            for (attempt, _) in &states {
                // It was accepted all the same.
                open.refused.remove(attempt);
            }
            self.latest = self.latest.max(submitted);
            let all_ended = states.iter().all(|(_, state)| **state == JobState::Ended);
            let earlier = *open
                .earlier
                .get_or_insert(if all_ended { submitted } else { 0 });
            let running = states.iter().find_map(|(_, state)| match state {
                JobState::Running(machine) => Some(machine.clone()),
                _ => None,
            });
            if running.is_some() {
                open.machine = running;
                self.running.insert(task);
                open.missed = 0;
                continue;
            }
            if states.iter().any(|(_, state)| **state == JobState::Queued) {
                open.missed = 0;
                continue;
            }
            let held = states.iter().find_map(|(_, state)| match state {
                JobState::Held(reason) => Some(reason.clone()),
                _ => None,
            });
            if let Some(reason) = held {
                if !std::mem::replace(&mut open.held, true) {
                    warnings.push(Warning::task_held(format!(
                        "task {task} is held by the cluster and will not start by itself: {reason}"
                    )));
                }
                continue;
            }
            open.missed += u32::from(open.attempts > 0);
            let refused = u32::try_from(open.refused.len()).unwrap_or(u32::MAX);
            if open.attempts > 0 && open.missed < MISSED_POLLS << refused.min(MOST_DOUBLINGS) {
                continue;
            }
            open.missed = 0;
            // More than the limit if submissions that seemed to fail were accepted all the same.
            if open.attempts >= (earlier + refused + MOST_ATTEMPTS).min(MOST_NAMES) {
                self.open.remove(&task);
                self.lost.insert(task);
                warnings.push(Warning::task_lost(format!(
                    "task {task} is lost: none of its jobs had all results"
                )));
                continue;
            }
            open.attempts += 1;
            self.latest = self.latest.max(open.attempts);
            let attempt = open.attempts - earlier - refused;
            if attempt > 1 {
                let reason = match open.failed_on.last() {
                    Some(machine) if open.given_up + 1 == open.attempts => {
                        format!("it failed on {machine}")
                    }
                    _ => ended_without_results(&self.scheduler.cut_off()),
                };
                let words = format!("task {task}: {reason}; attempt {attempt}");
                warnings.push(Warning::task_again(words));
            }
            let key = (open.attempts, open.failed_on.clone());
            due.entry(key).or_default().push(task);
        }
        for ((attempt, not_on), tasks) in due {
            let array = JobArray {
                name: self.name(attempt),
                tasks: tasks.clone(),
                not_on,
                ..self.array.clone()
            };
            match self.scheduler.submit(&array) {
                Ok(()) => {}
                // It may have been accepted all the same, which the next polls show.
                Err(error) if error.kind() == Kind::Bench => {
                    for task in tasks {
                        if let Some(open) = self.open.get_mut(&task) {
                            open.refused.insert(attempt);
                        }
                    }
                    warnings.push(silence(&format!(
                        "{}; perfquilt submits until it is accepted",
                        error.message()
                    )));
                }
                Err(error) => return Err(error),
            }
        }
        Ok(warnings)
    }

    /// Cancels all jobs.
    pub fn cancel(&self) -> Result<()> {
        self.scheduler
            .cancel(&self.names(self.latest.max(MOST_ATTEMPTS)))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    const SILENT: u16 = 713;
    const LOST: u16 = 792;
    const HELD: u16 = 793;

    fn codes(warnings: Result<Vec<Warning>>) -> Vec<u16> {
        let warnings = warnings.unwrap();
        warnings.iter().map(|of| of.code().number).collect()
    }

    /// Name, tasks and excluded machines of a submitted array.
    type Submission = (String, Vec<u32>, Vec<String>);

    /// A scheduler with scripted answers.
    #[derive(Default)]
    struct Scripted {
        jobs: Mutex<BTreeMap<(String, u32), JobState>>,
        silent: Mutex<bool>,
        loses_answers: Mutex<bool>,
        full: Mutex<bool>,
        submitted: Mutex<Vec<Submission>>,
    }

    impl Scheduler for Scripted {
        fn submit(&self, array: &JobArray) -> Result<()> {
            let mut submitted = self.submitted.lock().unwrap();
            submitted.push((
                array.name.clone(),
                array.tasks.clone(),
                array.not_on.clone(),
            ));
            if *self.full.lock().unwrap() {
                return Err(Error::scheduler("too many jobs"));
            }
            let mut jobs = self.jobs.lock().unwrap();
            for &task in &array.tasks {
                jobs.insert((array.name.clone(), task), JobState::Queued);
            }
            if *self.loses_answers.lock().unwrap() {
                return Err(Error::scheduler("no answer"));
            }
            Ok(())
        }

        fn list(&self, names: &[String]) -> Listing {
            if *self.silent.lock().unwrap() {
                return Listing::Unknown("it hangs".into());
            }
            let jobs = self.jobs.lock().unwrap().clone().into_iter();
            Listing::Known(jobs.filter(|((name, _), _)| names.contains(name)).collect())
        }

        fn cancel(&self, _: &[String]) -> Result<()> {
            self.jobs.lock().unwrap().clear();
            Ok(())
        }
    }

    impl Scripted {
        fn set(&self, name: &str, task: u32, state: JobState) {
            self.jobs
                .lock()
                .unwrap()
                .insert((name.to_owned(), task), state);
        }

        fn submissions(&self) -> usize {
            self.submitted.lock().unwrap().len()
        }
    }

    fn array(tasks: &[u32]) -> JobArray {
        JobArray {
            name: "w".into(),
            tasks: tasks.to_vec(),
            class: String::new(),
            folder: "/x".into(),
            program: "/p".into(),
            minutes: 5,
            not_on: Vec::new(),
        }
    }

    #[test]
    fn a_row_without_results_is_submitted_again_after_two_looks_three_times_in_all() {
        let scheduler = Scripted::default();
        let mut dispatch = Dispatch::new(&scheduler, array(&[0, 1]));
        assert_eq!(dispatch.poll().unwrap(), []);
        assert_eq!(
            *scheduler.submitted.lock().unwrap(),
            [("w-1".to_owned(), vec![0, 1], Vec::new())]
        );
        scheduler.set("w-1", 1, JobState::Ended);
        assert_eq!(dispatch.poll().unwrap(), []);
        let again = |attempt| {
            Warning::task_again(format!(
                "task 1: its job ended without results; attempt {attempt}"
            ))
        };
        assert_eq!(dispatch.poll().unwrap(), [again(2)]);
        scheduler.set("w-2", 1, JobState::Ended);
        dispatch.poll().unwrap();
        assert_eq!(dispatch.poll().unwrap(), [again(3)]);
        scheduler.set("w-3", 1, JobState::Running("n".into()));
        dispatch.poll().unwrap();
        assert_eq!(dispatch.counts().running, 1);
        scheduler.set("w-3", 1, JobState::Ended);
        dispatch.poll().unwrap();
        assert_eq!(codes(dispatch.poll()), [LOST]);
        assert_eq!(dispatch.lost, BTreeSet::from([1]));
        // It published late.
        assert!(dispatch.finish(1) && !dispatch.finish(1));
        assert!(dispatch.finish(0) && dispatch.is_over());
        assert_eq!(
            dispatch.counts(),
            TaskCounts {
                done: 2,
                ..TaskCounts::default()
            }
        );
    }

    #[test]
    fn a_row_that_failed_is_submitted_at_once_for_another_machine() {
        let scheduler = Scripted::default();
        let mut dispatch = Dispatch::new(&scheduler, array(&[0]));
        dispatch.poll().unwrap();
        scheduler.set("w-1", 0, JobState::Running("n1".into()));
        dispatch.poll().unwrap();
        assert_eq!(dispatch.machines(), BTreeSet::from(["n1"]));
        // Its job is still ending.
        dispatch.retry(0);
        let again = Warning::task_again("task 0: it failed on n1; attempt 2");
        assert_eq!(dispatch.poll().unwrap(), [again]);
        let submitted = scheduler.submitted.lock().unwrap();
        assert_eq!(
            submitted[1],
            ("w-2".to_owned(), vec![0], vec!["n1".to_owned()])
        );
    }

    #[test]
    fn silence_means_nothing() {
        let scheduler = Scripted::default();
        let mut dispatch = Dispatch::new(&scheduler, array(&[0]));
        dispatch.poll().unwrap();
        *scheduler.silent.lock().unwrap() = true;
        assert_eq!(codes(dispatch.poll()), [SILENT]);
        // It is told once.
        for _ in 0..8 {
            assert_eq!(dispatch.poll().unwrap(), []);
        }
        assert_eq!(scheduler.submissions(), 1);
    }

    #[test]
    fn a_submission_whose_answer_is_lost_is_found() {
        let scheduler = Scripted::default();
        *scheduler.loses_answers.lock().unwrap() = true;
        let mut dispatch = Dispatch::new(&scheduler, array(&[0]));
        assert_eq!(codes(dispatch.poll()), [SILENT]);
        for _ in 0..5 {
            assert_eq!(dispatch.poll().unwrap(), []);
        }
        assert_eq!(scheduler.submissions(), 1);
    }

    #[test]
    fn a_full_queue_uses_up_no_attempt_and_is_asked_ever_more_rarely() {
        let scheduler = Scripted::default();
        *scheduler.full.lock().unwrap() = true;
        let mut dispatch = Dispatch::new(&scheduler, array(&[0]));
        let mut looks_between = Vec::new();
        for _ in 0..7 {
            let before = scheduler.submissions();
            let mut polls = 0;
            while scheduler.submissions() == before {
                dispatch.poll().unwrap();
                polls += 1;
            }
            looks_between.push(polls);
        }
        assert_eq!(looks_between, [1, 4, 8, 16, 32, 64, 64]);
        *scheduler.full.lock().unwrap() = false;
        while scheduler.submissions() == 7 {
            dispatch.poll().unwrap();
        }
        assert_eq!(dispatch.counts().queued, 1);
        // The jobs that were accepted are its attempts.
        let mut notices = Vec::new();
        for _ in 0..300 {
            let latest = scheduler.submissions();
            scheduler.set(&format!("w-{latest}"), 0, JobState::Ended);
            notices.extend(dispatch.poll().unwrap());
        }
        assert_eq!(scheduler.submissions(), 10);
        assert_eq!(codes(Ok(notices)).last(), Some(&LOST));
    }

    #[test]
    fn a_row_is_lost_when_more_submissions_than_allowed_were_accepted_after_all() {
        let scheduler = Scripted::default();
        *scheduler.full.lock().unwrap() = true;
        let mut dispatch = Dispatch::new(&scheduler, array(&[0]));
        while scheduler.submissions() < 5 {
            dispatch.poll().unwrap();
        }
        *scheduler.full.lock().unwrap() = false;
        for attempt in 1..=5 {
            scheduler.set(&format!("w-{attempt}"), 0, JobState::Ended);
        }
        let warnings = (0..9).flat_map(|_| dispatch.poll().unwrap()).collect();
        assert_eq!(codes(Ok(warnings)), [LOST]);
        assert_eq!(scheduler.submissions(), 5);
        assert!(dispatch.is_over());
    }

    #[test]
    fn a_new_head_adopts_the_jobs_of_another() {
        let scheduler = Scripted::default();
        Dispatch::new(&scheduler, array(&[0, 1])).poll().unwrap();
        scheduler.set("w-1", 0, JobState::Running("n".into()));
        let mut dispatch = Dispatch::new(&scheduler, array(&[0, 1]));
        dispatch.poll().unwrap();
        assert_eq!(scheduler.submissions(), 1);
        assert_eq!(
            dispatch.counts(),
            TaskCounts {
                running: 1,
                queued: 1,
                ..TaskCounts::default()
            }
        );
    }

    #[test]
    fn jobs_that_ended_with_an_earlier_head_use_up_no_attempt() {
        let scheduler = Scripted::default();
        for (coordinator, attempt) in [(1, "w-1"), (2, "w-2"), (3, "w-3"), (4, "w-4"), (5, "w-5")] {
            let mut dispatch = Dispatch::new(&scheduler, array(&[0]));
            let notices: Vec<Warning> = (0..3).flat_map(|_| dispatch.poll().unwrap()).collect();
            assert_eq!(notices, [], "coordinator {coordinator}");
            assert_eq!(scheduler.submissions(), coordinator);
            scheduler.set(attempt, 0, JobState::Ended);
        }
        // A coordinator that goes on has its own three attempts.
        let mut dispatch = Dispatch::new(&scheduler, array(&[0]));
        let mut notices = Vec::new();
        for _ in 0..20 {
            notices.extend(dispatch.poll().unwrap());
            let latest = scheduler.submissions();
            scheduler.set(&format!("w-{latest}"), 0, JobState::Ended);
        }
        assert_eq!(scheduler.submissions(), 8);
        assert_eq!(codes(Ok(notices)).last(), Some(&LOST));
    }

    #[test]
    fn a_held_job_is_told_once_and_not_repeated() {
        let scheduler = Scripted::default();
        let mut dispatch = Dispatch::new(&scheduler, array(&[0]));
        dispatch.poll().unwrap();
        scheduler.set("w-1", 0, JobState::Held("BadConstraints".into()));
        assert_eq!(codes(dispatch.poll()), [HELD]);
        assert_eq!(dispatch.poll().unwrap(), []);
        assert_eq!(scheduler.submissions(), 1);
    }
}
