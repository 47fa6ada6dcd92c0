//! Files that are damaged, or made to do harm: each is refused, with an error that says where it is
//! wrong, and none makes the process take memory for what is not there.

#![allow(unsafe_code)]

mod tensors;

use std::alloc::{GlobalAlloc, Layout, System};
use std::fs;
use std::io::Write;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use flate2::Compression;
use flate2::write::{DeflateEncoder, GzEncoder};
use tensors::*;
use uopc::io::csv::{self, Options};
use uopc::io::{idx, npy, npz, safetensors, sharded, text};
use uopc::{DType, Result, Tensor, io};

/// The system's allocator, which notes the largest block that anyone has asked for.
struct Noting;

static LARGEST: AtomicUsize = AtomicUsize::new(0);

// SAFETY: the system's allocator does all of it.
unsafe impl GlobalAlloc for Noting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        LARGEST.fetch_max(layout.size(), SeqCst);
        // SAFETY: the caller's promise is handed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Noting = Noting;

/// No file here is larger than a few hundred bytes; what they claim is gigabytes and more.
#[track_caller]
fn nothing_was_taken() {
    let largest = LARGEST.load(SeqCst);
    assert!(largest < 16 << 20, "somebody took {largest} bytes");
}

/// The text of a file's error, without the path before it.
#[track_caller]
fn refused<T>(result: Result<T>, path: &Path) -> String {
    let error = result.map(drop).expect_err("it is refused").to_string();
    let message = error.strip_prefix(&format!("{}: ", path.display()));
    message.unwrap_or_else(|| panic!("{error}")).to_string()
}

/// An npy file with that header and so many zeros.
fn array(version: u8, header: &str, data: usize) -> Vec<u8> {
    let mut file = b"\x93NUMPY".to_vec();
    file.extend([version, 0]);
    match version {
        1 => file.extend((header.len() as u16).to_le_bytes()),
        _ => file.extend((header.len() as u32).to_le_bytes()),
    }
    file.extend(header.as_bytes());
    file.resize(file.len() + data, 0);
    file
}

fn described(descr: &str, shape: &str) -> String {
    format!("{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}, }}")
}

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

/// A member of a container: its name, what is stored, and what is claimed.
struct Entry<'a> {
    name: &'a str,
    method: u16,
    flags: u16,
    packed: Vec<u8>,
    size: u32,
    crc: u32,
    /// Where its header is claimed to be, if not where it is.
    at: Option<u32>,
}

fn stored<'a>(name: &'a str, content: &[u8]) -> Entry<'a> {
    let mut sum = flate2::Crc::new();
    sum.update(content);
    Entry {
        name,
        method: 0,
        flags: 0,
        packed: content.to_vec(),
        size: content.len() as u32,
        crc: sum.sum(),
        at: None,
    }
}

fn deflated<'a>(name: &'a str, content: &[u8]) -> Entry<'a> {
    let mut encoder = DeflateEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(content).unwrap();
    Entry {
        method: 8,
        packed: encoder.finish().unwrap(),
        ..stored(name, content)
    }
}

fn container(entries: &[Entry]) -> Vec<u8> {
    let (mut file, mut list) = (Vec::new(), Vec::new());
    for e in entries {
        let at = e.at.unwrap_or(file.len() as u32);
        let mut common: Vec<u8> = [20, e.flags, e.method, 0, 33]
            .iter()
            .flat_map(|w: &u16| w.to_le_bytes())
            .collect();
        for word in [e.crc, e.packed.len() as u32, e.size] {
            common.extend(word.to_le_bytes());
        }
        common.extend((e.name.len() as u16).to_le_bytes());
        common.extend([0; 2]);
        if e.at.is_none() {
            file.extend(b"PK\x03\x04");
            file.extend(&common);
            file.extend(e.name.as_bytes());
            file.extend(&e.packed);
        }
        list.extend(b"PK\x01\x02\x14\0");
        list.extend(&common);
        list.extend([0; 10]);
        list.extend(at.to_le_bytes());
        list.extend(e.name.as_bytes());
    }
    let n = entries.len() as u16;
    let end = file.len() as u32;
    file.extend(&list);
    file.extend(b"PK\x05\x06\0\0\0\0");
    file.extend([n, n].iter().flat_map(|n| n.to_le_bytes()));
    file.extend((list.len() as u32).to_le_bytes());
    file.extend(end.to_le_bytes());
    file.extend([0; 2]);
    file
}

#[test]
fn npz() {
    let _engine = own_engine();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.npz");
    let one = array(1, &described("'<f4'", "(2,)"), 8);
    let good = container(&[stored("a.npy", &one), deflated("b.npy", &one)]);
    fs::write(&path, &good).unwrap();
    assert_eq!(npz::load(&path).unwrap().len(), 2);
    let n = good.len();
    let cut = good[..n - 1].to_vec();
    let mut many = good.clone();
    many[n - 12..n - 10].copy_from_slice(&9u16.to_le_bytes());
    many[n - 14..n - 12].copy_from_slice(&9u16.to_le_bytes());
    let mut far = good.clone();
    far[n - 6..n - 2].copy_from_slice(&0x7fff_ffffu32.to_le_bytes());
    let of = |entry: Entry| container(&[entry]);
    let huge = array(1, &described("'<f8'", "(1000000000000000000,)"), 8);
    let cases: Vec<(Vec<u8>, String)> = vec![
        (vec![], "does not begin with PK: no zip file".into()),
        (
            b"\x93NUMPY".to_vec(),
            "does not begin with PK: no zip file".into(),
        ),
        (
            b"PK\x03\x04".to_vec(),
            "has no list of members at its end: truncated, or no zip file".into(),
        ),
        (
            cut,
            "has no list of members at its end: truncated, or no zip file".into(),
        ),
        (
            many,
            "claims 9 members, more than its bytes can hold".into(),
        ),
        (
            far,
            "claims a list of 102 bytes at offset 2147483647, but it would have to end at".into(),
        ),
        (
            of(stored("../a.npy", &one)),
            "the member's name ../a.npy leads out of its folder".into(),
        ),
        (
            of(stored("/a.npy", &one)),
            "the member's name /a.npy leads out of its folder".into(),
        ),
        (
            of(stored("x/../../a.npy", &one)),
            "the member's name x/../../a.npy leads".into(),
        ),
        (
            of(stored("..\\a.npy", &one)),
            "the member's name ..\\\\a.npy leads out".into(),
        ),
        (
            of(stored("c:a.npy", &one)),
            "the member's name c:a.npy leads out".into(),
        ),
        (of(stored("", &one)), "a member has no name".into()),
        (
            of(stored("readme.txt", b"hello")),
            "member readme.txt: is no array: its name".into(),
        ),
        (
            of(stored("a/", b"")),
            "member a/: is no array: its name does not end in .npy".into(),
        ),
        (
            container(&[stored("a.npy", &one), stored("a.npy", &one)]),
            "two members are called a.npy".into(),
        ),
        // One content under many names, as small files do that unpack to gigabytes.
        (
            container(&[
                stored("a.npy", &one),
                Entry {
                    at: Some(0),
                    ..stored("a.npy", &one)
                },
            ]),
            "the members a.npy and a.npy overlap".into(),
        ),
        (
            of(Entry {
                flags: 1,
                ..stored("a.npy", &one)
            }),
            "member a.npy: is encrypted".into(),
        ),
        (
            of(Entry {
                method: 12,
                ..stored("a.npy", &one)
            }),
            "member a.npy: is packed by method 12; stored (0) and deflated (8) can be read".into(),
        ),
        (
            of(Entry {
                size: 4_000_000_000,
                ..deflated("a.npy", &one)
            }),
            "member a.npy: claims 4000000000 bytes, which can't come out of".into(),
        ),
        (
            of(Entry {
                size: 9,
                ..stored("a.npy", &one)
            }),
            "member a.npy: claims 9 bytes, which can't come out of 75".into(),
        ),
        (
            of(Entry {
                at: Some(1 << 30),
                ..stored("a.npy", &one)
            })
            .into_iter()
            .collect::<Vec<u8>>(),
            "does not begin with PK: no zip file".into(),
        ),
        (
            of(Entry {
                size: 74,
                ..deflated("a.npy", &one)
            }),
            "member a.npy: claims 74 bytes and unpacks to 75".into(),
        ),
        (
            of(Entry {
                size: 76,
                ..deflated("a.npy", &one)
            }),
            "member a.npy: claims 76 bytes and unpacks to 75".into(),
        ),
        (
            of(Entry {
                crc: 1,
                ..stored("a.npy", &one)
            }),
            "member a.npy: is damaged: its sum is".into(),
        ),
        (
            of(Entry {
                packed: vec![0xff; 70],
                ..deflated("a.npy", &one)
            }),
            "member a.npy: can't be unpacked: ".into(),
        ),
        (
            of(stored("a.npy", b"no array")),
            "member a.npy: does not begin with \\x93NUMPY".into(),
        ),
        (
            of(deflated("a.npy", &huge)),
            "member a.npy: the header claims f64 of shape (1000000000000000000,), \
             8000000000000000000 bytes, but 8 bytes follow"
                .into(),
        ),
    ];
    for (bytes, text) in cases {
        fs::write(&path, &bytes).unwrap();
        let found = refused(npz::load(&path), &path);
        assert!(found.starts_with(&text), "{found}\n{text}");
        let lazily = npz::open(&path).and_then(|file| {
            let names = file.names().into_iter();
            names
                .map(|name| file.tensor(&name))
                .collect::<Result<Vec<_>>>()
        });
        assert_eq!(refused(lazily, &path), found);
    }
    // Cut anywhere, and changed anywhere: an answer or an error.
    for k in 0..good.len() {
        fs::write(&path, &good[..k]).unwrap();
        assert!(npz::load(&path).is_err());
        let mut other = good.clone();
        other[k] ^= 0xff;
        fs::write(&path, &other).unwrap();
        let _ = npz::load(&path);
    }
    let named = |name: &str| [(name.to_string(), Tensor::from([1.0f32]))];
    let text = refused(npz::save(&path, &named("../a")), &path);
    assert_eq!(text, "the member's name ../a.npy leads out of its folder");
    let text = refused(npz::save(&path, &named("")), &path);
    assert_eq!(text, "a name of 0 bytes can't be written; use 1 to 65531");
    npz::save(&path, &named("b")).unwrap();
    let file = npz::open(&path).unwrap();
    assert_eq!(refused(file.tensor("a"), &path), "has no array a; it has b");
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
