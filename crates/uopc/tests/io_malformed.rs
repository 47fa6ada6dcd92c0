//! Files that are damaged, or made to do harm: each is refused, with an error that says where it is
//! wrong, and none makes the process take memory for what is not there.

mod files;
mod tensors;

use std::fs;
use std::io::Write;

use files::*;
use flate2::Compression;
use flate2::write::GzEncoder;
use tensors::*;
use uopc::io::csv::{self, Options};
use uopc::io::{idx, npy, safetensors, sharded, text};
use uopc::{DType, Tensor, io};

#[test]
fn npy() {
    let _engine = own_engine();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.npy");
    let good = described("'<f4'", "(2,)");
    let header = |text: &str| array(1, text, 8);
    let shape = |text: &str| array(1, &described("'<f4'", text), 8);
    let descr = |text: &str| array(1, &described(text, "(2,)"), 8);
    let all = "b1, i1, i2, i4, i8, u1, u2, u4, u8, f2, f4, f8 and V2 for bf16 can be read";
    let mut version = header(&good);
    version[6] = 9;
    let whole = header(&good);
    let cases: Vec<(Vec<u8>, String)> = vec![
        (vec![], "does not begin with \\x93NUMPY: no npy file".into()),
        (b"PK".to_vec(), "does not begin with \\x93NUMPY: no npy file".into()),
        (whole[..7].to_vec(), "ends after 7 bytes, within its header".into()),
        (whole[..9].to_vec(), "ends after 9 bytes, within its header".into()),
        (
            whole[..30].to_vec(),
            "ends after 30 bytes, within its header, which reaches to offset 67".into(),
        ),
        (version, "has version 9.0 of the format; versions 1.0, 2.0 and 3.0 can be read".into()),
        (
            [b"\x93NUMPY\x02\0", &u32::MAX.to_le_bytes()[..]].concat(),
            "claims a header of 4294967295 bytes at offset 8; 65536 are the most".into(),
        ),
        (
            [b"\x93NUMPY\x03\0\x04\0\0\0", &[0xff; 4][..]].concat(),
            "the header is no UTF-8 at offset 12".into(),
        ),
        (
            whole[..whole.len() - 1].to_vec(),
            "the header claims f32 of shape (2,), 8 bytes, but 7 bytes follow it at offset 67".into(),
        ),
        (
            [&whole[..], &[0]].concat(),
            "the header claims f32 of shape (2,), 8 bytes, but 9 bytes follow it at offset 67".into(),
        ),
        // 10^18 elements, and more than can be counted: found out before any memory is taken.
        (
            shape("(1000000000000000000,)"),
            "the header claims f32 of shape (1000000000000000000,), 4000000000000000000 bytes, but \
             8 bytes follow it at offset 85"
                .into(),
        ),
        (
            shape("(1000000000000000000, 1000000000000000000)"),
            "the header claims f32 of shape (1000000000000000000, 1000000000000000000), more than \
             any memory"
                .into(),
        ),
        (
            shape("(99999999999999999999999,)"),
            "the header, at offset 61: the extent is larger than any memory".into(),
        ),
        (
            shape("(-1,)"),
            "the header, at offset 61: expected a whole number that is not below 0, found `-`".into(),
        ),
        (shape("2"), "the header, at offset 60: expected a text in quotes, found `2`".into()),
        (shape("'2'"), "the header, at offset 60: expected a tuple for `shape`".into()),
        (shape("(2"), "the header, at offset 64: expected a whole number that is not below 0, found `}`".into()),
        (
            shape(&format!("({})", "1, ".repeat(65))),
            "`shape` has 65 axes; 64 are the most".into(),
        ),
        (
            descr("'|O'"),
            format!(
                "`descr` is '|O', Python objects, which may run any program when they are read; {all}"
            ),
        ),
        (descr("'<U4'"), format!("`descr` is '<U4', text; {all}")),
        (descr("'<c8'"), format!("`descr` is '<c8', complex numbers; {all}")),
        (descr("'<M8[ns]'"), format!("`descr` is '<M8[ns]', dates or times; {all}")),
        (descr("'|V3'"), format!("`descr` is '|V3', records; {all}")),
        (descr("'<f16'"), format!("`descr` is '<f16'; {all}")),
        (descr("''"), format!("`descr` is ''; {all}")),
        (
            descr("[('a', '<f4')]"),
            "the header, at offset 20: an array of records can't be read; save its fields one by one"
                .into(),
        ),
        (descr("True"), "the header, at offset 20: expected a text for `descr`".into()),
        (descr("'<f4"), "the header, at offset 27: expected `}`, found `f`".into()),
        (header(""), "the header, at offset 10: expected `{`, found the end".into()),
        (header("{}"), "the header, at offset 12: `descr` is missing".into()),
        (
            header("{'shape': (), 'descr': '<f4'}"),
            "the header, at offset 39: `fortran_order` is missing".into(),
        ),
        (
            header("{'shape': (), 'shape': ()}"),
            "the header, at offset 24: `shape` comes twice".into(),
        ),
        (
            header("{'fortran_order': 1}"),
            "the header, at offset 28: expected a text in quotes, found `1`".into(),
        ),
        (
            header("{'owner': 'me'}"),
            "the header, at offset 11: expected descr, fortran_order or shape, found 'owner'".into(),
        ),
        (
            header(&format!("{good} x")),
            "the header, at offset 68: expected the end after `}`".into(),
        ),
        (
            array(1, &described("'|b1'", "(2,)"), 0).into_iter().chain([1, 2]).collect(),
            "the byte 2 is no bool; 0 is false and 1 is true".into(),
        ),
    ];
    let mut differ = Vec::new();
    for (bytes, text) in cases {
        fs::write(&path, &bytes).unwrap();
        let found = refused(npy::load(&path), &path);
        if found != text {
            differ.push(format!("{found}\n  not {text}"));
        }
        assert!(npy::open(&path).is_err(), "{text}");
    }
    assert!(differ.is_empty(), "{}", differ.join("\n"));
    // With nothing in it, an array of any extents is small.
    fs::write(
        &path,
        array(1, &described("'<f4'", "(0, 1000000000000000000)"), 0),
    )
    .unwrap();
    assert_eq!(npy::load(&path).unwrap().numel(), 0);
    let many = Tensor::zeros(vec![1; 65]).unwrap();
    let text = refused(npy::save(&path, &many), &path);
    assert_eq!(text, "an array of NumPy has at most 64 axes, not 65");
    let text = refused(npy::load(folder.path()), folder.path());
    assert_eq!(text, "is a folder, not a file");
    nothing_was_taken();
}

#[test]
fn safetensors_and_shards() {
    let _engine = own_engine();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.safetensors");
    let header = |text: &str| [&(text.len() as u64).to_le_bytes()[..], text.as_bytes()].concat();
    let one = |info: &str| [header(&format!("{{\"w\":{info}}}")), vec![0; 8]].concat();
    for (bytes, text) in [
        (
            vec![0; 7],
            "7 bytes are fewer than the header needs: truncated",
        ),
        (
            u64::MAX.to_le_bytes().to_vec(),
            "its first 8 bytes claim a header above 100 MB",
        ),
        (header("{\"w\":"), "no safetensors file, or a damaged one: "),
        (header("\u{0}"), "no safetensors file, or a damaged one: "),
        (
            [&2u64.to_le_bytes()[..], &[0xff; 2]].concat(),
            "no safetensors file, or a damaged",
        ),
        (
            one(r#"{"dtype":"F32","shape":[2],"data_offsets":[8,0]}"#),
            "damaged: ",
        ),
        (
            one(r#"{"dtype":"F32","shape":[2],"data_offsets":[4,8]}"#),
            "damaged: ",
        ),
        (
            one(r#"{"dtype":"F32","shape":[3],"data_offsets":[0,8]}"#),
            "damaged: ",
        ),
        (
            one(r#"{"dtype":"F32","shape":[-2],"data_offsets":[0,8]}"#),
            "no safetensors file, or a damaged one: ",
        ),
        (
            one(r#"{"dtype":"Q7","shape":[2],"data_offsets":[0,8]}"#),
            "no safetensors file, or a damaged one: ",
        ),
        (
            one(r#"{"shape":[2],"data_offsets":[0,8]}"#),
            "no safetensors file, or a damaged one: ",
        ),
        (
            one(
                r#"{"dtype":"F64","shape":[1000000000000000000],"data_offsets":[0,8000000000000000000]}"#,
            ),
            "damaged: overflow computing buffer size",
        ),
        (
            one(
                r#"{"dtype":"F64","shape":[18446744073709551615,18446744073709551615],"data_offsets":[0,8]}"#,
            ),
            "damaged: ",
        ),
        (
            one(r#"{"dtype":"F8_E5M2","shape":[8],"data_offsets":[0,8]}"#),
            "w has dtype F8_E5M2, which uopc does not have",
        ),
        (
            [
                header(r#"{"w":{"dtype":"BOOL","shape":[1],"data_offsets":[0,1]}}"#),
                vec![7],
            ]
            .concat(),
            "w: the byte 7 is no bool",
        ),
    ] {
        fs::write(&path, &bytes).unwrap();
        let found = refused(safetensors::load(&path), &path);
        assert!(found.starts_with(text), "{found}\n{text}");
        let lazily = safetensors::open(&path).and_then(|file| file.tensor("w"));
        assert_eq!(refused(lazily, &path), found);
    }

    let index = folder.path().join(sharded::INDEX);
    let wrong_map = "`weight_map` is missing, or no object with a file for each tensor";
    for (text, message) in [
        ("", "is no JSON: "),
        ("[1, 2]", wrong_map),
        ("{\"weight_map\": []}", wrong_map),
        (
            "{\"weight_map\": {\"a\": 3}}",
            "`weight_map`: a has no file's name",
        ),
        (
            "{\"weight_map\": {\"a\": \"../b.safetensors\"}}",
            "`weight_map`: a is in \"../b.safetensors\", which is no file of the same folder",
        ),
        (
            "{\"weight_map\": {\"a\": \"/etc/passwd\"}}",
            "`weight_map`: a is in \"/etc/passwd\", which is no file of the same folder",
        ),
        (
            "{\"weight_map\": {\"a\": \"..\"}}",
            "`weight_map`: a is in \"..\", which is no file of the same folder",
        ),
        (
            "{\"weight_map\": {\"a\": \"x\\\\y\"}}",
            "`weight_map`: a is in \"x\\\\y\", which is no file of the same folder",
        ),
        (
            "{\"weight_map\": {\"a\": \"\"}}",
            "`weight_map`: a is in \"\", which is no file of the same folder",
        ),
    ] {
        fs::write(&index, text).unwrap();
        let found = refused(sharded::open(folder.path()), &index);
        assert!(found.starts_with(message), "{found}\n{message}");
    }
    // A file that is there, without the tensor that the index says.
    let tensor = |name: &str| [(name.to_string(), Tensor::from([1.0f32]))];
    safetensors::save(&path, &tensor("b")).unwrap();
    fs::write(&index, "{\"weight_map\": {\"a\": \"a.safetensors\"}}").unwrap();
    let opened = sharded::open(&index).unwrap();
    assert_eq!(
        refused(opened.tensor("a"), &path),
        "has no tensor a; it has b"
    );
    assert_eq!(
        refused(opened.tensor("c"), &index),
        "has no tensor c; it has a"
    );
    let text = refused(safetensors::save(&path, &tensor("__metadata__")), &path);
    assert!(
        text.starts_with("no tensor can be called __metadata__"),
        "{text}"
    );
    let text = refused(
        io::save_as(
            &path,
            &tensor("a"),
            io::Format::Npz,
            &[("k".into(), "v".into())],
        ),
        &path,
    );
    assert!(
        text.starts_with("NumPy's formats have no place for metadata"),
        "{text}"
    );
    nothing_was_taken();
}

#[test]
fn idx_files() {
    let _engine = own_engine();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a-idx");
    let file = |magic: [u8; 4], extents: &[u32], data: usize| {
        let mut file = magic.to_vec();
        file.extend(extents.iter().flat_map(|e| e.to_be_bytes()));
        file.resize(file.len() + data, 0);
        file
    };
    let gzip = |bytes: &[u8]| {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    };
    let good = file([0, 0, 8, 2], &[2, 3], 6);
    let packed = gzip(&good);
    let mut broken = packed.clone();
    let last = broken.len() - 5;
    broken[last] ^= 0xff;
    for (bytes, text) in [
        (vec![], "is too short to be an IDX file"),
        (gzip(&[]), "is too short to be an IDX file"),
        (
            file([1, 0, 8, 1], &[1], 1),
            "begins with 0x01000801: no IDX file",
        ),
        (
            file([0, 0, 7, 1], &[1], 1),
            "begins with 0x00000701: no IDX file",
        ),
        (file([0, 0, 8, 3], &[1], 0), "ends within its header"),
        (gzip(&file([0, 0, 8, 3], &[1], 0)), "ends within its header"),
        (
            file([0, 0, 8, 2], &[2, 3], 5),
            "claims extents [2, 3] of u8, but 5 bytes follow the header",
        ),
        (
            file([0, 0, 13, 1], &[2], 9),
            "claims extents [2] of f32, but 9 bytes follow the header",
        ),
        (
            gzip(&file([0, 0, 8, 2], &[2, 3], 5)),
            "claims extents [2, 3] of u8, but 5 bytes follow the header",
        ),
        (
            gzip(&file([0, 0, 8, 2], &[2, 3], 700)),
            "claims extents [2, 3] of u8, but 7 bytes follow the header",
        ),
        (
            file([0, 0, 14, 3], &[u32::MAX, u32::MAX, u32::MAX], 4),
            "claims extents [4294967295, 4294967295, 4294967295] of f64, but 4 bytes follow the header",
        ),
        (
            gzip(&file([0, 0, 8, 1], &[4_000_000_000], 4)),
            "claims u8 of shape (4000000000,), which can't come out of ",
        ),
        (packed[..packed.len() - 9].to_vec(), "can't be unpacked: "),
        (broken, "can't be unpacked: "),
        (vec![0x1f, 0x8b, 8, 0], "can't be unpacked: "),
    ] {
        fs::write(&path, &bytes).unwrap();
        let found = refused(idx::load(&path), &path);
        assert!(found.starts_with(text), "{found}\n{text}");
    }
    let text = refused(idx::save(&path, &Tensor::from([1i64])), &path);
    assert_eq!(text, "IDX has no i64; cast to u8, i8, i16, i32, f32 or f64");
    nothing_was_taken();
}

#[test]
fn tables_and_texts() {
    let _engine = own_engine();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.csv");
    let plain = Options::default();
    let named = Options {
        header: true,
        ..Options::default()
    };
    let whole = Options {
        dtype: DType::U8,
        ..Options::default()
    };
    let truth = Options {
        dtype: DType::Bool,
        ..Options::default()
    };
    let filled = Options {
        missing: Some(0.5),
        ..whole.clone()
    };
    let letter = Options {
        delimiter: 'e',
        ..Options::default()
    };
    for (bytes, options, text) in [
        (&b"1,2\n3,\n"[..], &plain, "line 2, column 2: is empty"),
        (
            b"a,b\n1,2\n\n , 4\n",
            &named,
            "line 4, column 1 (a): is empty",
        ),
        (
            b"1,2\n3\n",
            &plain,
            "line 2 has 1 cells, but those before it have 2",
        ),
        (
            b"a,b\n1,2,3\n",
            &named,
            "line 2 has 3 cells, but those before it have 2",
        ),
        (
            b"1,two\n",
            &plain,
            "line 1, column 2: \"two\" is no number of f32",
        ),
        (
            b"1,1.5\n",
            &whole,
            "line 1, column 2: \"1.5\" is no number of u8",
        ),
        (
            b"256\n",
            &whole,
            "line 1, column 1: \"256\" is no number of u8",
        ),
        (
            b"2\n",
            &truth,
            "line 1, column 1: \"2\" is no number of bool",
        ),
        (
            b"0x10\n",
            &plain,
            "line 1, column 1: \"0x10\" is no number of f32",
        ),
        (b"1,\xff\n", &plain, "line 1, column 2: no UTF-8"),
        (b"1\n", &filled, "missing: 0.5 is no u8"),
        (
            b"1\n",
            &letter,
            "the delimiter 'e' can't be told from cells; use one such as , or ;",
        ),
    ] {
        fs::write(&path, bytes).unwrap();
        assert_eq!(refused(csv::load(&path, options), &path), text);
    }
    let three = Tensor::zeros([1, 2, 3]).unwrap();
    assert_eq!(
        refused(csv::save(&path, &three, &[]), &path),
        "a table has two axes, rows and columns, not shape (1, 2, 3)"
    );
    let two = Tensor::zeros([1, 2]).unwrap();
    assert_eq!(
        refused(csv::save(&path, &two, &["a".into()]), &path),
        "1 names for 2 columns; give one each or none"
    );
    fs::write(&path, b"ab\ncd\xffe").unwrap();
    let text = refused(text::load(&path), &path);
    assert_eq!(text, "is no UTF-8 at byte 5, in line 2");
    let none = folder.path().join("none");
    let text = refused(text::load(&none), &none);
    assert!(text.starts_with("can't be read: "), "{text}");
}
