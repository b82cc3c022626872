//! The status page: what runs, what waits, and what ended last. Pure; it needs no script and loads nothing.

use std::fmt::Write;

use serde_json::json;

use crate::store::queue::Job;

/// What there is to show.
#[derive(Debug, Clone)]
pub(super) struct Snapshot {
    pub repository: String,
    /// Seconds since 1970.
    pub now: i64,
    /// What the running job does.
    pub progress: String,
    /// What runs and waits, in the order it is done.
    pub open: Vec<Job>,
    /// What ended, the latest first.
    pub past: Vec<Job>,
}

const STYLE: &str = "\
body{font:15px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;color:#1f2328;background:#fff}\
h1{font-size:1.3rem}h2{font-size:1.05rem;margin-top:2rem}\
table{border-collapse:collapse;width:100%}th,td{text-align:left;padding:.3rem .6rem;border-bottom:1px solid #d1d9e0;vertical-align:top}\
th{font-weight:600}code{font:13px ui-monospace,monospace;overflow-wrap:anywhere}\
.running{background:#ddf4ff}.failed{color:#d1242f}.quiet{color:#59636e}\
@media(prefers-color-scheme:dark){body{color:#f0f6fc;background:#0d1117}th,td{border-color:#3d444d}.running{background:#121d2f}.quiet{color:#9198a1}.failed{color:#f85149}}";

/// The page.
pub(super) fn html(snapshot: &Snapshot) -> String {
    let mut page = format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\
         <meta http-equiv=\"refresh\" content=\"5\"><title>perfquilt: {repository}</title><style>{STYLE}</style></head>\n\
         <body><h1>perfquilt serves <code>{repository}</code></h1>\n<h2>Running and waiting</h2>\n",
        repository = escape(&snapshot.repository),
    );
    if snapshot.open.is_empty() {
        page.push_str("<p class=\"quiet\">Nothing.</p>\n");
    } else {
        page.push_str("<table><tr><th>#</th><th>pull request</th><th>command</th><th>asked by</th><th>since</th><th></th></tr>\n");
        for (place, job) in snapshot.open.iter().enumerate() {
            let running = job.started.is_some() && place == 0;
            let (class, since, what) = match running {
                true => (
                    "running",
                    job.started.unwrap_or(job.received),
                    snapshot.progress.as_str(),
                ),
                false => ("", job.received, "waiting"),
            };
            let _ = writeln!(
                page,
                "<tr class=\"{class}\"><td>{}</td>{}<td>{}</td><td>{}</td></tr>",
                place + 1,
                cells(job),
                since_words(snapshot.now - since),
                escape(what),
            );
        }
        page.push_str("</table>\n");
    }
    page.push_str("<h2>Last results</h2>\n");
    if snapshot.past.is_empty() {
        page.push_str("<p class=\"quiet\">None yet.</p>\n");
    } else {
        page.push_str("<table><tr><th>pull request</th><th>command</th><th>asked by</th><th>ended</th><th>result</th></tr>\n");
        for job in &snapshot.past {
            let _ = writeln!(
                page,
                "<tr>{}<td>{} ago</td><td class=\"{state}\">{state}: {}</td></tr>",
                cells(job),
                since_words(snapshot.now - job.ended.unwrap_or(job.received)),
                escape(&job.result),
                state = job.state.name(),
            );
        }
        page.push_str("</table>\n");
    }
    page.push_str("</body></html>\n");
    page
}

/// The same for programs.
pub(super) fn json(snapshot: &Snapshot) -> String {
    let job = |job: &Job| {
        json!({
            "id": job.id,
            "number": job.job.number,
            "head": job.job.head,
            "command": job.job.command,
            "asked_by": job.job.asked_by,
            "state": job.state.name(),
            "received": job.received,
            "started": job.started,
            "ended": job.ended,
            "result": job.result,
        })
    };
    let open: Vec<_> = snapshot.open.iter().map(job).collect();
    let past: Vec<_> = snapshot.past.iter().map(job).collect();
    let document = json!({
        "schema": 1,
        "repository": snapshot.repository,
        "progress": snapshot.progress,
        "open": open,
        "past": past,
    });
    format!("{document}\n")
}

fn cells(job: &Job) -> String {
    let head: String = job.job.head.chars().take(7).collect();
    format!(
        "<td>{} <code>{}</code></td><td><code>{}</code></td><td>{}</td>",
        job.job.number,
        escape(&head),
        escape(&job.job.command),
        escape(&job.job.asked_by),
    )
}

fn since_words(seconds: i64) -> String {
    match seconds.max(0) {
        seconds @ 0..90 => format!("{seconds} s"),
        seconds @ 90..5400 => format!("{} min", seconds / 60),
        seconds @ 5400..172_800 => format!("{} h", seconds / 3600),
        seconds => format!("{} days", seconds / 86_400),
    }
}

fn escape(text: &str) -> String {
    let mut result = String::new();
    for c in text.chars() {
        match c {
            '&' => result.push_str("&amp;"),
            '<' => result.push_str("&lt;"),
            '>' => result.push_str("&gt;"),
            '"' => result.push_str("&quot;"),
            '\'' => result.push_str("&#39;"),
            c if c.is_control() => result.push('\u{fffd}'),
            c => result.push(c),
        }
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::queue::{JobState, NewJob};

    fn job(state: JobState, text: &str) -> Job {
        Job {
            id: 1,
            job: NewJob {
                repository: "acme/series".into(),
                number: 7,
                head: "0123456789".into(),
                command: text.into(),
                asked_by: text.into(),
                trusted: true,
            },
            state,
            attempts: 1,
            received: 1000,
            started: Some(1010),
            ended: Some(1100),
            result: text.into(),
        }
    }

    #[test]
    fn strangers_words_stay_words() {
        let hostile = "<script>alert(1)</script>\"'\u{1b}";
        let snapshot = Snapshot {
            repository: "acme/series".into(),
            now: 1200,
            progress: hostile.into(),
            open: vec![job(JobState::Running, hostile)],
            past: vec![job(JobState::Failed, hostile)],
        };
        let page = html(&snapshot);
        assert!(
            !page.contains("<script") && !page.contains('\u{1b}'),
            "{page}"
        );
        assert_eq!(page.matches("&lt;script&gt;").count(), 6);
        insta::assert_snapshot!(page);
        let document: serde_json::Value = serde_json::from_str(&json(&snapshot)).unwrap();
        assert_eq!(document["past"][0]["state"], "failed");
    }
}
