//! The common frame and elements of all pages. Pages have no scripts, load nothing and render untrusted text as text.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use maud::{DOCTYPE, Markup, PreEscaped, Render, html};
use sha2::{Digest, Sha256};

use crate::text::clean;

const STYLE: &str = include_str!("style.css");

/// Returns a whole page; `refresh` is the interval in seconds after which browsers reload it.
pub fn page(title: &str, refresh: Option<u32>, body: &Markup) -> String {
    let digest = STANDARD.encode(Sha256::digest(STYLE));
    // The policy allows only this style and embedded images, in case anything else gets into the page.
    let policy = format!(
        "default-src 'none'; style-src 'sha256-{digest}'; img-src data:; base-uri 'none'; form-action 'none'"
    );
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta http-equiv="Content-Security-Policy" content=(policy);
                meta name="viewport" content="width=device-width,initial-scale=1";
                meta name="referrer" content="no-referrer";
                meta name="generator" content=(concat!("perfquilt ", env!("CARGO_PKG_VERSION")));
                @if let Some(seconds) = refresh {
                    meta http-equiv="refresh" content=(seconds);
                }
                title { (clean(title)) }
                style { (PreEscaped(STYLE)) }
            }
            body { (PreEscaped(unbroken(&body.0))) }
        }
    };
    page.into_string() + "\n"
}

/// Keeps figures on one line: the blanks of `−0.33 % ± 0.35` become no-break spaces.
fn unbroken(body: &str) -> String {
    const NO_BREAK: char = '\u{a0}';
    let mut shown = String::with_capacity(body.len());
    let mut done = 0;
    for (at, blank) in body.match_indices(' ') {
        if at < done {
            continue;
        }
        let (before, behind) = (&body[..at], &body[at + blank.len()..]);
        let is_number = before.ends_with(|c: char| c.is_ascii_digit() || c == '⁶');
        let keeps = |mark: &str| mark == "±" && before.ends_with('%') || mark == "%" && is_number;
        let Some(mark) = ["%", "± "]
            .into_iter()
            .find(|mark| behind.starts_with(mark) && keeps(mark.trim_end()))
        else {
            continue;
        };
        shown.push_str(&body[done..at]);
        shown.push(NO_BREAK);
        shown.push_str(mark.trim_end());
        if mark.ends_with(' ') {
            shown.push(NO_BREAK);
        }
        done = at + blank.len() + mark.len();
    }
    shown + &body[done..]
}

/// An untrusted name, rendered as code.
pub struct Name<'a>(
    /// The name.
    pub &'a str,
);

impl Render for Name<'_> {
    fn render(&self) -> Markup {
        html! { code { (clean(self.0)) } }
    }
}

/// Wraps a table so that it scrolls on narrow screens, also by keyboard; `about` labels it.
pub fn scroll(about: &str, table: &Markup) -> Markup {
    html! {
        div.scroll tabindex="0" role="region" aria-label=(clean(about)) { (table) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_do_not_break() {
        let shown = unbroken("a −0.33 % ± 0.35, 5 % and % ± 3; > 10⁶ % ± ?");
        let blank = "\u{a0}";
        assert_eq!(
            shown,
            format!(
                "a −0.33{blank}%{blank}±{blank}0.35, 5{blank}% and %{blank}±{blank}3; > 10⁶{blank}%{blank}±{blank}?"
            )
        );
        // Not in other text.
        assert_eq!(unbroken("date +%s; a % b ± c"), "date +%s; a % b ± c");
    }
}
