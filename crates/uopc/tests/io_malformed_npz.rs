//! Containers of arrays that are damaged, or made to do harm: each is refused, with an error that
//! says where it is wrong, and none makes the process take memory for what is not there.

mod files;
mod tensors;

use std::fs;
use std::io::Write;

use files::*;
use flate2::Compression;
use flate2::write::DeflateEncoder;
use tensors::*;
use uopc::io::npz;
use uopc::{Result, Tensor};

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
