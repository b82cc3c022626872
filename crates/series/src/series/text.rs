//! Text in any character set as UTF-8: lines of headers, encoded words (RFC 2047), messages of commits.

use base64::Engine;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use encoding_rs::{Encoding, WINDOWS_1252};

/// Splits `bytes` into lines, each with its end.
pub fn lines(bytes: &[u8]) -> Vec<&[u8]> {
    let mut begin = 0;
    let mut lines: Vec<&[u8]> = memchr::memchr_iter(b'\n', bytes)
        .map(|end| {
            let line = &bytes[begin..=end];
            begin = end + 1;
            line
        })
        .collect();
    lines.extend((begin < bytes.len()).then(|| &bytes[begin..]));
    lines
}

/// Returns the first blank of a line that is none of ASCII, by its number: mail programs and web pages write them for blanks.
pub fn odd_blank(line: &[u8]) -> Option<String> {
    let text = line_text(line);
    let mut odd = text
        .chars()
        .filter(|c| !c.is_ascii() && (c.is_whitespace() || matches!(c, '\u{200b}' | '\u{feff}')));
    odd.next().map(|c| match c {
        '\u{a0}' => "a no-break blank (U+00A0)".to_owned(),
        other => format!("the blank U+{:04X}", u32::from(other)),
    })
}

/// What a patch needs whose blanks are others than those of the file.
pub const BLANKS_HINT: &str = "a mail program or a web page changed the blanks: get the patch as its author wrote it, such as an attachment";

/// Returns the line as text. A line that is not UTF-8 is read as Windows-1252, a superset of Latin-1, as git reads
/// mails that declare no character set. No byte is lost: every byte is a character of Windows-1252.
pub(super) fn line_text(line: &[u8]) -> String {
    match std::str::from_utf8(line) {
        Ok(text) => text.to_owned(),
        Err(_) => WINDOWS_1252
            .decode_without_bom_handling(line)
            .0
            .into_owned(),
    }
}

/// A text and whether its bytes are valid in the character set that they declare.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DecodedText {
    /// The text.
    pub text: String,
    /// Whether the declared character set is known and fits all bytes. If not, lines that are not UTF-8 are read as
    /// Windows-1252.
    pub is_certain: bool,
}

/// Decodes text that declares the character set `charset`, or none, which means UTF-8.
pub fn decode(bytes: &[u8], charset: Option<&str>) -> DecodedText {
    let declared = charset.unwrap_or("UTF-8").trim();
    let decoded = encoding(declared).and_then(|encoding| decode_as(encoding, bytes));
    match decoded {
        Some(text) => DecodedText {
            text,
            is_certain: true,
        },
        None => DecodedText {
            text: lines(bytes).into_iter().map(line_text).collect(),
            is_certain: false,
        },
    }
}

/// Returns the encoding of a name, also one that the WHATWG's list lacks and iconv has.
fn encoding(name: &str) -> Option<&'static Encoding> {
    let known = |name: &str| Encoding::for_label_no_replacement(name.as_bytes());
    let name = name.to_ascii_lowercase().replace('_', "-");
    known(&name).or_else(|| {
        let joined = name.replace('-', "");
        let other = match joined.as_str() {
            "cp932" | "mskanji" => "shift-jis",
            "eucjp" => "euc-jp",
            "euckr" | "cp949" | "uhc" => "euc-kr",
            "cp936" => "gbk",
            "koi8r" => "koi8-r",
            "koi8u" => "koi8-u",
            "latin7" => "iso-8859-13",
            "latin8" => "iso-8859-14",
            "latin9" => "iso-8859-15",
            "latin10" => "iso-8859-16",
            other => other,
        };
        known(other)
    })
}

fn decode_as(encoding: &'static Encoding, bytes: &[u8]) -> Option<String> {
    // No character set is guessed from the first bytes: in windows-1251, those of a mark of UTF-16 are letters.
    let (text, malformed) = encoding.decode_without_bom_handling(bytes);
    (!malformed).then(|| text.into_owned())
}

/// Decodes the encoded words that mail programs write as `=?UTF-8?q?…?=`. Words in an unknown character set, or with
/// bytes that it does not have, stay as they are.
pub(super) fn decode_words(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some(start) = rest.find("=?") {
        let Some(first) = EncodedWord::parse(&rest[start..]) else {
            out.push_str(&rest[..start + 2]);
            rest = &rest[start + 2..];
            continue;
        };
        let mut bytes = first.bytes;
        let mut end = start + first.length;
        // Whitespace between two encoded words is only a separator, and a character may be split between them.
        while let Some(next) = EncodedWord::parse(rest[end..].trim_start()) {
            if !next.charset.eq_ignore_ascii_case(first.charset) {
                break;
            }
            end += rest[end..].len() - rest[end..].trim_start().len() + next.length;
            bytes.extend(next.bytes);
        }
        let word = encoding(first.charset).and_then(|encoding| decode_as(encoding, &bytes));
        let between = &rest[..start];
        if out.is_empty() || !between.trim().is_empty() {
            out.push_str(between);
        }
        out.push_str(word.as_deref().unwrap_or(&rest[start..end]));
        rest = &rest[end..];
    }
    out.push_str(rest);
    out
}

/// An encoded word at the front of a text.
struct EncodedWord<'a> {
    charset: &'a str,
    bytes: Vec<u8>,
    /// The length of the word in the text, in bytes.
    length: usize,
}

impl EncodedWord<'_> {
    fn parse(text: &str) -> Option<EncodedWord<'_>> {
        let mut parts = text.strip_prefix("=?")?.splitn(4, '?');
        let (charset, coding, body, tail) =
            (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
        if !tail.starts_with('=') || body.contains([' ', '\n']) {
            return None;
        }
        let bytes = match coding {
            "q" | "Q" => quoted(body)?,
            "b" | "B" => base64(body)?,
            _ => return None,
        };
        let length = charset.len() + coding.len() + body.len() + "=????=".len();
        // RFC 2231 allows a language after the character set.
        let charset = charset.split('*').next().unwrap_or(charset);
        Some(EncodedWord {
            charset,
            bytes,
            length,
        })
    }
}

fn quoted(body: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    let mut input = body.bytes();
    while let Some(byte) = input.next() {
        bytes.push(match byte {
            b'_' => b' ',
            b'=' => {
                let mut decoded = [0];
                hex::decode_to_slice([input.next()?, input.next()?], &mut decoded).ok()?;
                decoded[0]
            }
            other => other,
        });
    }
    Some(bytes)
}

/// Decodes base64 with or without padding.
pub(super) fn base64(text: &str) -> Option<Vec<u8>> {
    let config = GeneralPurposeConfig::new()
        .with_decode_padding_mode(DecodePaddingMode::Indifferent)
        .with_decode_allow_trailing_bits(true);
    GeneralPurpose::new(&STANDARD, config).decode(text).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_any_character_set() {
        for (words, text) in [
            ("=?UTF-8?q?J=C3=BCrgen?=", "Jürgen"),
            ("=?ISO-8859-1?Q?f=FCr_=A4?= x", "für ¤ x"),
            ("=?koi8-r?B?xMXX0dTY?=", "девять"),
            ("=?Shift_JIS?B?k/qWew==?=", "日本"),
            ("=?iso-2022-jp?B?GyRCRnxLXBsoQg==?=", "日本"),
            ("=?windows-1252?q?=80?=", "€"),
            ("=?UTF-8?b?w7w?=", "ü"),
            ("=?utf-8*de?q?=C3=BC?=", "ü"),
            // A character that is split between two words.
            ("=?UTF-8?q?a=C3?=\n =?UTF-8?q?=BCb?=", "aüb"),
            ("=?UTF-8?q?a?= =?ISO-8859-1?q?=FC?= c", "aü c"),
            ("a =?x?= b", "a =?x?= b"),
            ("=?no-such-set?q?a?=", "=?no-such-set?q?a?="),
            ("=?UTF-8?q?=FF?= x", "=?UTF-8?q?=FF?= x"),
        ] {
            assert_eq!(decode_words(words), text, "{words}");
        }
    }

    #[test]
    fn texts_with_a_character_set() {
        let certain = |bytes: &[u8], charset| {
            let found = decode(bytes, charset);
            assert!(found.is_certain, "{charset:?}");
            found.text
        };
        assert_eq!(certain(b"f\xfcr", Some("ISO-8859-1")), "für");
        assert_eq!(certain(b"\xe4\xe5", Some("windows-1251")), "де");
        assert_eq!(certain(b"\xe4\xe5", Some("CP1251")), "де");
        assert_eq!(certain(b"\x93\xfa", Some("CP932")), "日");
        assert_eq!(certain(b"\xa4", Some("latin-9")), "€");
        assert_eq!(certain(b"\xfe\xff\xe4", Some("windows-1251")), "юяд");
        assert_eq!(certain("\u{feff}a".as_bytes(), None), "\u{feff}a");
        assert_eq!(certain("ü".as_bytes(), None), "ü");
        // No byte is replaced, whatever the declaration.
        for charset in [None, Some("UTF-8"), Some("EBCDIC-INT")] {
            let found = decode(b"\xc3\xbc\nf\xfcr\x81", charset);
            assert_eq!(
                (found.text.as_str(), found.is_certain),
                ("ü\nfür\u{81}", false)
            );
        }
    }
}
