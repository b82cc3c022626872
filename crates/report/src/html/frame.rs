//! What all pages have in common: a page that needs no script, loads nothing and lets nothing of strangers act.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use maud::{DOCTYPE, Markup, PreEscaped, Render, html};
use sha2::{Digest, Sha256};

use super::super::text::{clean, long};
use super::chart::Ink;

const STYLE: &str = include_str!("style.css");

/// A whole page. `refresh` is after how many seconds it is loaded again.
pub fn page(title: &str, refresh: Option<u32>, body: &Markup) -> String {
    let digest = STANDARD.encode(Sha256::digest(STYLE));
    // Only this style and images that the page itself holds: whatever else slipped in does nothing.
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
            body { (body) }
        }
    };
    page.into_string() + "\n"
}

/// A name of anybody's, as code.
pub struct Name<'a>(
    /// The name.
    pub &'a str,
);

impl Render for Name<'_> {
    fn render(&self) -> Markup {
        html! { code { (clean(self.0)) } }
    }
}

/// A sentence of this program that may hold names; what stands between backticks becomes code.
pub(super) struct Sentence<'a>(pub(super) &'a str);

impl Render for Sentence<'_> {
    fn render(&self) -> Markup {
        let text = long(self.0);
        let parts: Vec<&str> = text.split('`').collect();
        if parts.len().is_multiple_of(2) {
            return html! { (text) };
        }
        html! {
            @for (place, part) in parts.into_iter().enumerate() {
                @if place % 2 == 1 { code { (part) } } @else { (part) }
            }
        }
    }
}

/// A table that a narrow screen scrolls, by keyboard too; `about` says what it holds.
pub fn scroll(about: &str, table: &Markup) -> Markup {
    html! {
        div.scroll tabindex="0" role="region" aria-label=(clean(about)) { (table) }
    }
}

/// A drawing with its caption, and what it shows as a table that can be unfolded.
pub(super) fn drawing(svg: &str, caption: &Markup, table: &Markup) -> Markup {
    html! {
        figure {
            (PreEscaped(svg))
            figcaption { (caption) }
            details { summary { "The same as a table" } (table) }
        }
    }
}

/// A legend's entry.
pub(super) fn key(ink: Ink, round: bool, words: &str) -> Markup {
    let shape = if round { "dot " } else { "" };
    html! { span class=(format!("key {shape}k-{}", ink.name())) {} (words) }
}
