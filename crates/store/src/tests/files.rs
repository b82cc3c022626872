//! Observation files.

use super::*;
use crate::jsonl;
use perfquilt_model::observation::CHECKSUM;

const HEADER: &str = r#"{"schema":1,"experiment":"x","series":["0001-a.patch"],"release":"m-1","machine":{},"harness":"h"}"#;

fn line(field: &str, value: &str) -> String {
    let mut fields: BTreeMap<&str, String> = [
        ("schema", "1"),
        ("experiment", "\"x\""),
        ("block", "3"),
        ("order", "2"),
        ("point", "\"1\""),
        ("layout", "0"),
        ("workload", "\"oltp\""),
        ("meter", "\"time\""),
        ("unit", "\"ns/txn\""),
        ("value", "91823.4"),
        ("n", "400"),
    ]
    .map(|(key, value)| (key, value.to_owned()))
    .into();
    if !field.is_empty() {
        fields.insert(field, value.to_owned());
    }
    let fields: Vec<String> = fields.iter().map(|(k, v)| format!("\"{k}\":{v}")).collect();
    format!("{{{}}}", fields.join(","))
}

fn read(text: &str) -> Result<ObservationFile> {
    jsonl::read(text.as_bytes(), "f.jsonl".as_ref())
}

#[test]
fn written_files_read_back_the_same() {
    let supplement = Supplement {
        within: vec![WithinBlockError {
            workload: "oltp".into(),
            meter: Meter::Time,
            sd: 0.000_7,
        }],
        ..Supplement::default()
    };
    let written = ObservationFile {
        header: header(3),
        supplement,
        observations: vec![observation(0, 0), observation(0, 1), observation(1, 0)],
    };
    let mut bytes = Vec::new();
    written.write(&mut bytes).unwrap();
    let file = jsonl::read(&bytes[..], "f".as_ref()).unwrap();
    assert_eq!(file.header, written.header);
    assert_eq!(file.supplement, written.supplement);
    assert_eq!(file.observations, written.observations);
}

#[test]
fn one_flipped_bit_of_a_file_with_a_digest_is_found_with_file_and_line() {
    use sha2::{Digest, Sha256};
    let lines = [
        HEADER.to_owned(),
        line("", ""),
        line("block", "4"),
        line("workload", "\"\u{e9}\""),
    ];
    let text = lines.join("\n") + "\n";
    let digest = hex::encode(Sha256::digest(&text));
    let text = format!("{text}{CHECKSUM}{digest}\"}}\n");
    assert_eq!(read(&text).unwrap().observations.len(), 3);
    let bytes = text.into_bytes();
    // The last line feed says nothing.
    for bit in 0..(bytes.len() - 1) * 8 {
        let mut flipped = bytes.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        let error = jsonl::read(&flipped[..], "f.jsonl".as_ref()).unwrap_err();
        assert!(
            error.to_string().starts_with("f.jsonl:"),
            "bit {bit}: {error}"
        );
    }
}

#[test]
fn the_smallest_header_is_enough_and_unknown_fields_are_ignored() {
    let text = format!("{HEADER}\n\n{}\r\n", line("colour", "\"red\""));
    let file = read(&text).unwrap();
    assert_eq!(file.observations.len(), 1);
    assert_eq!(file.supplement, Supplement::default());
}

#[test]
fn faults_name_the_line_and_the_field() {
    for (field, value, expected) in [
        ("schema", "2", "`schema` is 2"),
        ("experiment", "\"y\"", "`experiment` is `y`"),
        ("point", "\"2\"", "point `2` is not in the series"),
        ("point", "\"with:1\"", "not a point"),
        ("meter", "\"tiem\"", "unknown variant `tiem`"),
        ("unit", "\"us/txn\"", "`unit` is `us/txn`"),
        ("value", "-3", "`value` is -3"),
        ("value", "0", "`value` is 0"),
        ("value", "1e999", "number out of range"),
        ("value", "NaN", "`value`: expected value"),
        ("value", "null", "`value`: invalid type: null"),
        ("value", "\"3\"", "`value`: invalid type: string"),
        ("block", "1.5", "`block`: invalid type: floating point"),
        ("direct", "1", "`direct`: invalid type: integer"),
        ("n", "0", "`n` is 0"),
        ("n", "-1", "invalid value"),
        ("block", "-1", "invalid value"),
        ("workload", "\"*\"", "`workload` is `*`"),
    ] {
        let text = format!("{HEADER}\n{}\n{}\n", line("order", "1"), line(field, value));
        // Another block, so that the fault is the only error.
        let text = text.replacen("\"block\":3", "\"block\":4", 1);
        let error = read(&text).unwrap_err();
        assert!(error.message().contains(expected), "{field}: {error}");
        assert_eq!(error.location().unwrap().line, Some(3), "{field}");
        assert_eq!(error.kind(), Kind::Usage);
    }
}

#[test]
fn the_header_is_required() {
    for (text, expected) in [
        (String::new(), "empty"),
        ("\n \n".to_owned(), "empty"),
        (line("", ""), "the first line is an observation"),
        ("{}".to_owned(), "not a header: missing field `schema`"),
        ("[1]".to_owned(), "expected a JSON object, found an array"),
        ("\u{feff}{}".to_owned(), "not a header"),
        (
            HEADER.replace("\"schema\":1", "\"schema\":7"),
            "`schema` is 7",
        ),
        (
            HEADER.replace("\"harness\"", "\"titles\":[\"a\",\"b\"],\"harness\""),
            "2 titles for 1 patches",
        ),
        (
            HEADER.replace("\"harness\"", "\"failed\":{\"9\":\"x\"},\"harness\""),
            "point `9` is not in the series",
        ),
        (
            HEADER.replace("\"harness\"", "\"clock\":{\"time\":-1e7},\"harness\""),
            "`clock` of time is -10000000",
        ),
    ] {
        let error = read(&text).unwrap_err();
        assert!(error.message().contains(expected), "{text}: {error}");
    }
}

#[test]
fn duplicates_name_both_lines() {
    let text = format!("{HEADER}\n{}\n{}\n", line("order", "0"), line("order", "1"));
    let error = read(&text).unwrap_err();
    assert_eq!(error.location().unwrap().line, Some(3));
    assert!(error.message().contains("on line 2 already"), "{error}");
}

#[test]
fn a_cut_off_file_is_told_from_a_malformed_one() {
    let whole = format!("{HEADER}\n{}", line("", ""));
    assert_eq!(read(&whole).unwrap().observations.len(), 1);
    let error = read(&whole[..whole.len() - 9]).unwrap_err();
    assert!(error.hint_text().unwrap().contains("cut off"), "{error}");
    let error = read(&format!("{HEADER}\n{{\"schema\":1,\n")).unwrap_err();
    assert!(error.hint_text().is_none());
}

#[test]
fn bytes_that_are_no_text_are_refused() {
    let mut bytes = format!("{HEADER}\n").into_bytes();
    bytes.extend(b"\xff\xfe\x00\n");
    let error = jsonl::read(&bytes[..], "f".as_ref()).unwrap_err();
    assert_eq!(error.location().unwrap().line, Some(2));
}

proptest::proptest! {
    #[test]
    fn no_input_makes_it_panic(
        tail in proptest::collection::vec(proptest::num::u8::ANY, 0..200),
        cut in 0usize..400,
    ) {
        let mut bytes = format!("{HEADER}\n{}\n", line("", "")).into_bytes();
        bytes.truncate(cut);
        bytes.extend(tail);
        let _ = jsonl::read(&bytes[..], "f".as_ref());
    }
}
