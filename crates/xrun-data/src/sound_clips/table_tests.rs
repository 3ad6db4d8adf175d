//! Tests of the table: rows, and reports of invalid lines.

use proptest::prelude::*;

use super::*;
use crate::reading::invalid::OnInvalid;

const TEXT: &str = "filename,fold,target,category,esc10,src_file,take\n1-7-A-0.wav,1,0,dog,True,7,A\n\
                    1-7-B-0.wav,1,0,dog,True,7,B\n2-8-A-3.wav,2,3,Żaba,False,8,A\n";

fn judged(text: &[u8], policy: OnInvalid) -> (Result<Table, DataError>, InvalidCollector) {
    let mut invalid = InvalidCollector::new(policy);
    let table = read(text, Path::new("meta.csv"), &mut invalid);
    (table.and_then(|table| invalid.result().map(|()| table)), invalid)
}

#[test]
fn the_table_of_esc_50_is_read() {
    let table = judged(TEXT.as_bytes(), OnInvalid::Fail).0.unwrap();
    let files: Vec<_> = table.rows.iter().map(|row| (row.line, row.file.as_str(), row.fold, row.target)).collect();
    assert_eq!(files, [(2, "1-7-A-0.wav", 1, 0), (3, "1-7-B-0.wav", 1, 0), (4, "2-8-A-3.wav", 2, 3)]);
    assert_eq!(table.categories, [(0, "dog".to_owned()), (3, "Żaba".to_owned())].into());
    let (name, values) = &table.columns[4];
    assert_eq!((name.as_str(), values.as_slice()), ("src_file", &["7".to_owned(), "8".to_owned()][..]));
    let of_recording: Vec<u32> = table.rows.iter().map(|row| row.values[4]).collect();
    assert_eq!(of_recording, [0, 0, 1]);
    // Windows: a byte order mark, other line ends; columns in another order, with one of one's own, and without the others.
    let text = "\u{feff}category, hospital ,filename,target,fold\r\ndog,a b,./x/1.wav,0,1\r\n";
    let table = judged(text.as_bytes(), OnInvalid::Fail).0.unwrap();
    assert_eq!(table.rows[0].file, "x/1.wav");
    assert_eq!(table.columns[1], ("hospital".into(), vec!["a b".into()]));
}

#[test]
fn invalid_lines_are_reported_with_their_number_or_skipped() {
    let changes = [
        ("2-8-A-3.wav", "1-7-A-0.wav"),
        ("2-8-A-3.wav", "./1-7-A-0.wav"),
        ("2-8-A-3.wav", "../2.wav"),
        ("2-8-A-3.wav", ""),
        (",2,3,", ",two,3,"),
        (",2,3,", ",2,99999999999,"),
        (",2,3,Żaba", ",2,0,Żaba"),
        (",2,3,Żaba", ",2,3,dog"),
        ("Żaba", ""),
        (",False,8,", ",False,7,"),
        (",8,A", ",8,A,9"),
    ];
    let shown = |(from, to): (&str, &str)| {
        let broken = TEXT.replacen(from, to, 1);
        assert_ne!(broken, TEXT);
        let message = judged(broken.as_bytes(), OnInvalid::Fail).0.unwrap_err();
        let (table, invalid) = judged(broken.as_bytes(), OnInvalid::Skip);
        assert_eq!(table.unwrap().rows.len(), 2);
        format!("{message}\n    skip: {}\n", invalid.found.by_reason())
    };
    insta::assert_snapshot!(changes.map(shown).concat());
}

#[test]
fn an_invalid_header_is_fatal() {
    let headers = ["file_name,fold,target,category", "filename,fold,target", "filename,fold,fold,target,category", ""];
    let shown = |header: &str| {
        let text = TEXT.replacen("filename,fold,target,category,esc10,src_file,take", header, 1);
        let message = |policy| judged(text.as_bytes(), policy).0.unwrap_err().to_string();
        assert_eq!(message(OnInvalid::Fail), message(OnInvalid::Skip));
        message(OnInvalid::Fail) + "\n"
    };
    insta::assert_snapshot!(headers.map(shown).concat());
    assert!(judged(b"", OnInvalid::Skip).0.is_err());
    let latin = [TEXT.as_bytes(), b"1.wav,1,0,d\xf6g,True,7,C\n"].concat();
    assert!(judged(&latin, OnInvalid::Skip).0.unwrap_err().to_string().contains("line 5: cannot be read"));
    let many = format!("{}\n", vec!["a"; 70].join(","));
    assert!(judged(many.as_bytes(), OnInvalid::Skip).0.unwrap_err().to_string().contains("at most 64"));
}

proptest! {
    #[test]
    fn mutated_tables_never_panic_nor_break_invariants(
        changes in prop::collection::vec((0..TEXT.len(), any::<u8>()), 0..12),
        pieces in prop::collection::vec((0..TEXT.len(), prop::sample::select(vec![
            "\"", "\n", ",,,", "../", "/", "\0", "4294967296", "\r\n\r\n", "filename", "ż", "7", "1-7-A-0.wav,9,0,dog,,7,\n",
        ])), 0..4),
    ) {
        let mut bytes = TEXT.as_bytes().to_vec();
        for (at, byte) in changes {
            bytes[at] = byte;
        }
        for (at, piece) in pieces {
            bytes.splice(at..at, piece.bytes());
        }
        if let Ok(table) = judged(&bytes, OnInvalid::Skip).0 {
            let mut files = BTreeSet::new();
            for row in &table.rows {
                prop_assert!(files.insert(&row.file));
                prop_assert!(table.categories.contains_key(&row.target));
                prop_assert!(Path::new(&row.file).components().all(|part| matches!(part, Component::Normal(_))));
                prop_assert_eq!(row.values.len(), table.columns.len());
                for (value, (_, values)) in row.values.iter().zip(&table.columns) {
                    prop_assert!((*value as usize) < values.len());
                }
            }
        }
    }
}
