//! Containers of files in the zip format, as far as arrays need it: members that are stored or
//! deflated, with the extension for large files; no encryption and no parts on other disks.
//!
//! The list at the end of the file is what counts. Sizes that it claims are compared with the bytes
//! that are there, members may not overlap, so that a small file can't claim the same bytes a
//! million times, and names may not lead out of a folder, though nothing here makes files of them.

use std::borrow::Cow;
use std::io::{self, Read, Write};

use flate2::Crc;
use flate2::read::DeflateDecoder;
use flate2::write::DeflateEncoder;

use super::file::can_inflate;

/// What a container of any content begins with, and an empty one.
pub const MAGIC: [&[u8]; 2] = [b"PK\x03\x04", b"PK\x05\x06"];

const LOCAL: u32 = 0x0403_4b50;
const CENTRAL: u32 = 0x0201_4b50;
const END: u32 = 0x0605_4b50;
const END_64: u32 = 0x0606_4b50;
const LOCATOR_64: u32 = 0x0706_4b50;
/// The number of the extra field with 64-bit sizes.
const EXTRA_64: u16 = 1;
/// Sizes of the records without what has no fixed length.
const LOCAL_SIZE: usize = 30;
const CENTRAL_SIZE: usize = 46;
const END_SIZE: usize = 22;
const LOCATOR_SIZE: usize = 20;

const STORED: u16 = 0;
const DEFLATED: u16 = 8;
/// The name is UTF-8.
const UTF_8: u16 = 1 << 11;
const ENCRYPTED: u16 = 1;
/// The first of January 1980: equal contents make equal files.
const DATE: u16 = 0x21;
/// As much of a member as is unpacked at a time.
const CHUNK: usize = 1 << 16;

/// A part of a file that holds a member.
#[derive(Clone, Debug, PartialEq)]
pub struct Member {
    /// Its name, with slashes between folders.
    pub name: String,
    /// Whether the bytes in the file are the content.
    pub stored: bool,
    /// Where its bytes begin.
    pub first: usize,
    /// Where they end.
    pub end: usize,
    /// How many bytes its content has.
    size: u64,
    crc: u32,
}

/// Reads fields one after the other.
struct Fields<'a> {
    bytes: &'a [u8],
    at: usize,
    /// What is read, for an error.
    what: &'static str,
}

impl<'a> Fields<'a> {
    fn take(&mut self, n: usize) -> Result<&'a [u8], String> {
        let end = self.at.checked_add(n).filter(|&e| e <= self.bytes.len());
        let Some(end) = end else {
            let (what, at) = (self.what, self.at);
            return Err(format!("{what} at offset {at} reaches beyond the end"));
        };
        let part = &self.bytes[self.at..end];
        self.at = end;
        Ok(part)
    }

    fn number(&mut self, n: usize) -> Result<u64, String> {
        let part = self.take(n)?.iter().rev();
        Ok(part.fold(0, |value, &byte| value << 8 | byte as u64))
    }

    fn short(&mut self) -> Result<u16, String> {
        Ok(self.number(2)? as u16)
    }

    fn word(&mut self) -> Result<u32, String> {
        Ok(self.number(4)? as u32)
    }

    fn signature(&mut self, wanted: u32) -> Result<(), String> {
        let (at, what) = (self.at, self.what);
        match self.word()? {
            found if found == wanted => Ok(()),
            found => Err(format!(
                "expected {what} ({wanted:#010x}) at offset {at}, found {found:#010x}"
            )),
        }
    }
}

fn fields<'a>(bytes: &'a [u8], at: u64, what: &'static str) -> Fields<'a> {
    let at = usize::try_from(at).unwrap_or(usize::MAX);
    Fields { bytes, at, what }
}

/// Where the list of members is.
struct List {
    offset: u64,
    members: u64,
    /// Where the records behind it begin.
    end: u64,
}

/// The members of a container, in the order of its list.
pub fn members(file: &[u8]) -> Result<Vec<Member>, String> {
    let list = list(file)?;
    let mut record = fields(file, list.offset, "an entry of the list of members");
    // An entry has at least so many bytes; a larger claim would be found out below, one by one.
    if list.members > (file.len() / CENTRAL_SIZE) as u64 {
        let n = list.members;
        return Err(format!("claims {n} members, more than its bytes can hold"));
    }
    let mut members = Vec::new();
    for _ in 0..list.members {
        members.push(member(file, &mut record, list.offset)?);
    }
    if record.at as u64 != list.end {
        let (at, end) = (record.at, list.end);
        return Err(format!(
            "the list of members ends at offset {at}, but {end} is claimed"
        ));
    }
    let mut sorted: Vec<&Member> = members.iter().collect();
    sorted.sort_by_key(|m| (m.first, m.end));
    if let Some(pair) = sorted.windows(2).find(|pair| pair[1].first < pair[0].end) {
        let (a, b) = (&pair[0].name, &pair[1].name);
        return Err(format!("the members {a} and {b} overlap"));
    }
    sorted.sort_by(|a, b| a.name.cmp(&b.name));
    if let Some(pair) = sorted.windows(2).find(|pair| pair[0].name == pair[1].name) {
        return Err(format!("two members are called {}", pair[0].name));
    }
    Ok(members)
}

/// The record at the end of the file, behind which only a comment may stand.
fn list(file: &[u8]) -> Result<List, String> {
    if !MAGIC.iter().any(|magic| file.starts_with(magic)) {
        return Err("does not begin with PK: no zip file".into());
    }
    let last = file.len().checked_sub(END_SIZE);
    let earliest = file.len().saturating_sub(END_SIZE + u16::MAX as usize);
    let found = last.and_then(|last| {
        (earliest..=last).rev().find(|&at| {
            let comment = file.len() - at - END_SIZE;
            file[at..].starts_with(&END.to_le_bytes())
                && file[at + 20..at + 22] == (comment as u16).to_le_bytes()
        })
    });
    let Some(at) = found else {
        return Err("has no list of members at its end: truncated, or no zip file".into());
    };
    let mut record = fields(file, at as u64, "the record at the end");
    record.signature(END)?;
    let (disk, list_disk) = (record.short()?, record.short()?);
    let (here, all) = (record.short()?, record.short()?);
    let (size, offset) = (record.word()?, record.word()?);
    let extended = all == u16::MAX || size == u32::MAX || offset == u32::MAX;
    if extended && let Some(list) = list_64(file, at)? {
        return Ok(list);
    }
    if disk != 0 || list_disk != 0 || here != all {
        return Err("is a part of a container on several disks".into());
    }
    checked(offset as u64, size as u64, all as u64, at)
}

/// The list as the records for large files give it, if they are there.
fn list_64(file: &[u8], end: usize) -> Result<Option<List>, String> {
    let Some(at) = end.checked_sub(LOCATOR_SIZE) else {
        return Ok(None);
    };
    if !file[at..].starts_with(&LOCATOR_64.to_le_bytes()) {
        return Ok(None);
    }
    let mut locator = fields(file, at as u64 + 8, "the locator of the list");
    let offset = locator.number(8)?;
    let mut record = fields(file, offset, "the record at the end for large files");
    record.signature(END_64)?;
    // Its size, two versions, two disks and the members on this one.
    record.take(8 + 4 + 8 + 8)?;
    let (members, size) = (record.number(8)?, record.number(8)?);
    let list = record.number(8)?;
    let behind = usize::try_from(offset).unwrap_or(usize::MAX);
    checked(list, size, members, behind).map(Some)
}

fn checked(offset: u64, size: u64, members: u64, behind: usize) -> Result<List, String> {
    match offset.checked_add(size) {
        Some(end) if end == behind as u64 => Ok(List {
            offset,
            members,
            end,
        }),
        _ => Err(format!(
            "claims a list of {size} bytes at offset {offset}, but it would have to end at {behind}"
        )),
    }
}

/// The next entry of the list, which begins at `list`.
fn member(file: &[u8], record: &mut Fields, list: u64) -> Result<Member, String> {
    record.signature(CENTRAL)?;
    record.take(4)?;
    let (flags, method) = (record.short()?, record.short()?);
    record.take(4)?;
    let crc = record.word()?;
    let (mut packed, mut size) = (record.word()? as u64, record.word()? as u64);
    let lengths = [record.short()?, record.short()?, record.short()?];
    record.take(8)?;
    let mut offset = record.word()? as u64;
    let name = record.take(lengths[0] as usize)?;
    let extra = record.take(lengths[1] as usize)?;
    record.take(lengths[2] as usize)?;
    let name = std::str::from_utf8(name)
        .map_err(|_| "a member's name is no UTF-8".to_string())?
        .to_string();
    let wrong = |what: String| format!("member {name}: {what}");
    checked_name(&name)?;
    wide_sizes(extra, [&mut size, &mut packed, &mut offset]).map_err(wrong)?;
    if flags & ENCRYPTED != 0 {
        return Err(wrong("is encrypted".into()));
    }
    let stored = match method {
        STORED => true,
        DEFLATED => false,
        other => {
            return Err(wrong(format!(
                "is packed by method {other}; stored (0) and deflated (8) can be read"
            )));
        }
    };
    let mut local = fields(file, offset, "the member's own header");
    local.signature(LOCAL).map_err(wrong)?;
    local.take(LOCAL_SIZE - 8).map_err(wrong)?;
    let (name_length, extra_length) =
        (local.short().map_err(wrong)?, local.short().map_err(wrong)?);
    let own = local.take(name_length as usize).map_err(wrong)?;
    if own != name.as_bytes() {
        return Err(wrong("has another name in its own header".into()));
    }
    local.take(extra_length as usize).map_err(wrong)?;
    let (first, end) = (local.at, (local.at as u64).checked_add(packed));
    let Some(end) = end.filter(|&end| end <= list) else {
        return Err(wrong(format!(
            "claims {packed} bytes at offset {first}, which reach into the list at {list}"
        )));
    };
    if stored && packed != size || !stored && !can_inflate(packed, size) {
        return Err(wrong(format!(
            "claims {size} bytes, which can't come out of {packed}"
        )));
    }
    Ok(Member {
        name: name.clone(),
        stored,
        first,
        end: end as usize,
        size,
        crc,
    })
}

/// Puts in the numbers that do not fit 32 bits, in their order.
fn wide_sizes(extra: &[u8], numbers: [&mut u64; 3]) -> Result<(), String> {
    let mut field = fields(extra, 0, "an extra field");
    while field.at < extra.len() {
        let (kind, size) = (field.short()?, field.short()?);
        let content = field.take(size as usize)?;
        if kind != EXTRA_64 {
            continue;
        }
        let mut wide = fields(content, 0, "the field of 64-bit sizes");
        for number in numbers {
            if *number == u32::MAX as u64 {
                *number = wide.number(8)?;
            }
        }
        return Ok(());
    }
    Ok(())
}

/// A name that stays in its folder, wherever it would be unpacked.
pub fn checked_name(name: &str) -> Result<(), String> {
    let out = name.split('/').any(|part| part == "..")
        || name.starts_with('/')
        || name.contains(['\\', '\0'])
        || name.as_bytes().get(1) == Some(&b':');
    match (name.is_empty(), out) {
        (true, _) => Err("a member has no name".into()),
        (_, true) => Err(format!(
            "the member's name {} leads out of its folder",
            name.escape_debug()
        )),
        _ => Ok(()),
    }
}

/// The content of a member, whose sum is checked.
pub fn content<'a>(file: &'a [u8], member: &Member) -> Result<Cow<'a, [u8]>, String> {
    let packed = &file[member.first..member.end];
    let content = match member.stored {
        true => Cow::Borrowed(packed),
        false => Cow::Owned(inflate(packed, member.size)?),
    };
    if content.len() as u64 != member.size {
        let (claimed, found) = (member.size, content.len());
        return Err(format!("claims {claimed} bytes and unpacks to {found}"));
    }
    let mut sum = Crc::new();
    sum.update(&content);
    if sum.sum() != member.crc {
        let (claimed, found) = (member.crc, sum.sum());
        return Err(format!(
            "is damaged: its sum is {found:#010x}, but {claimed:#010x} is claimed"
        ));
    }
    Ok(content)
}

/// The first bytes of a member, or all if there are fewer.
pub fn head<'a>(file: &'a [u8], member: &Member, n: usize) -> Result<Cow<'a, [u8]>, String> {
    let packed = &file[member.first..member.end];
    match member.stored {
        true => Ok(Cow::Borrowed(&packed[..n.min(packed.len())])),
        false => Ok(Cow::Owned(inflated(packed, n as u64)?)),
    }
}

/// What deflate has packed, no more than one byte beyond the claim.
fn inflate(packed: &[u8], claimed: u64) -> Result<Vec<u8>, String> {
    inflated(packed, claimed.saturating_add(1))
}

fn inflated(packed: &[u8], limit: u64) -> Result<Vec<u8>, String> {
    // The vector grows with what really comes out, whatever is claimed.
    let mut content = Vec::with_capacity(CHUNK.min(limit as usize));
    DeflateDecoder::new(packed)
        .take(limit)
        .read_to_end(&mut content)
        .map_err(|e| format!("can't be unpacked: {e}"))?;
    Ok(content)
}

/// A container that is being written.
pub struct Writer<'a, W: Write> {
    out: &'a mut W,
    /// How many bytes are written.
    at: u64,
    list: Vec<u8>,
    members: u64,
}

impl<'a, W: Write> Writer<'a, W> {
    /// An empty one.
    pub fn new(out: &'a mut W) -> Writer<'a, W> {
        Writer {
            out,
            at: 0,
            list: Vec::new(),
            members: 0,
        }
    }

    /// Adds a member whose content is made of parts.
    pub fn add(&mut self, name: &str, parts: &[&[u8]], deflate: bool) -> io::Result<()> {
        let mut sum = Crc::new();
        parts.iter().for_each(|part| sum.update(part));
        let size: u64 = parts.iter().map(|part| part.len() as u64).sum();
        let packed = match deflate {
            true => {
                let mut encoder = DeflateEncoder::new(Vec::new(), flate2::Compression::default());
                parts.iter().try_for_each(|part| encoder.write_all(part))?;
                vec![encoder.finish()?]
            }
            false => Vec::new(),
        };
        let packed: Vec<&[u8]> = packed.iter().map(Vec::as_slice).collect();
        let stored = if deflate { &packed[..] } else { parts };
        let stored_size: u64 = stored.iter().map(|part| part.len() as u64).sum();

        // Numbers that do not fit stand in an extra field, in the order of the format.
        let (narrow_size, narrow_stored) = (narrow(size), narrow(stored_size));
        let wide = [
            (narrow_size, size),
            (narrow_stored, stored_size),
            (narrow(self.at), self.at),
        ];
        // A member's own header has both sizes or none.
        let both = narrow_size == u32::MAX || narrow_stored == u32::MAX;
        let own = if both {
            wide_field(&wide[..2], true)
        } else {
            Vec::new()
        };
        let listed = wide_field(&wide, false);
        let method = if deflate { DEFLATED } else { STORED };
        let common = |version: u16, sizes: [u32; 2]| {
            let words = [version, UTF_8, method, 0, DATE];
            let mut bytes: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
            let words = [sum.sum(), sizes[0], sizes[1]];
            bytes.extend(words.iter().flat_map(|w| w.to_le_bytes()));
            bytes.extend((name.len() as u16).to_le_bytes());
            bytes
        };
        let (header_sizes, list_sizes) = match both {
            true => ([u32::MAX; 2], [narrow_stored, narrow_size]),
            false => ([narrow_stored, narrow_size], [narrow_stored, narrow_size]),
        };
        let mut header = LOCAL.to_le_bytes().to_vec();
        header.extend(common(version(&own), header_sizes));
        header.extend((own.len() as u16).to_le_bytes());
        header.extend(name.as_bytes());
        header.extend(own);
        self.list.extend(CENTRAL.to_le_bytes());
        self.list.extend(version(&listed).to_le_bytes());
        self.list.extend(common(version(&listed), list_sizes));
        self.list.extend((listed.len() as u16).to_le_bytes());
        // No comment, the first disk, no attributes.
        self.list.extend([0; 2 + 2 + 2 + 4]);
        self.list.extend(narrow(self.at).to_le_bytes());
        self.list.extend(name.as_bytes());
        self.list.extend(listed);
        self.members += 1;
        self.out.write_all(&header)?;
        stored
            .iter()
            .try_for_each(|part| self.out.write_all(part))?;
        self.at += header.len() as u64 + stored_size;
        Ok(())
    }

    /// Writes the list of all members, the last thing in the file.
    pub fn finish(self) -> io::Result<()> {
        let (size, members) = (self.list.len() as u64, self.members);
        self.out.write_all(&self.list)?;
        let mut end = Vec::new();
        let short = u16::try_from(members).unwrap_or(u16::MAX);
        if short == u16::MAX || narrow(size) == u32::MAX || narrow(self.at) == u32::MAX {
            end.extend(END_64.to_le_bytes());
            end.extend(44u64.to_le_bytes());
            end.extend([45, 0, 45, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
            let numbers = [members, members, size, self.at];
            end.extend(numbers.iter().flat_map(|n| n.to_le_bytes()));
            end.extend(LOCATOR_64.to_le_bytes());
            end.extend(0u32.to_le_bytes());
            end.extend((self.at + size).to_le_bytes());
            end.extend(1u32.to_le_bytes());
        }
        end.extend(END.to_le_bytes());
        end.extend([0; 4]);
        end.extend([short, short].iter().flat_map(|n| n.to_le_bytes()));
        end.extend(narrow(size).to_le_bytes());
        end.extend(narrow(self.at).to_le_bytes());
        end.extend([0; 2]);
        self.out.write_all(&end)
    }
}

/// A number in 32 bits, or the mark for one that stands elsewhere.
fn narrow(n: u64) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}

/// The extra field with the numbers that do not fit, or with all; nothing if there are none.
fn wide_field(numbers: &[(u32, u64)], all: bool) -> Vec<u8> {
    let wide = numbers
        .iter()
        .filter(|(narrow, _)| all || *narrow == u32::MAX);
    let content: Vec<u8> = wide.flat_map(|(_, n)| n.to_le_bytes()).collect();
    if content.is_empty() {
        return content;
    }
    let head = [EXTRA_64, content.len() as u16];
    let head = head.iter().flat_map(|n| n.to_le_bytes());
    head.chain(content).collect()
}

/// The version of the format that is needed, times 10.
fn version(extra: &[u8]) -> u16 {
    if extra.is_empty() { 20 } else { 45 }
}

/// How a member is shown in an error.
pub fn named(member: &str, message: &str) -> String {
    format!("member {member}: {message}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn container(members: &[(&str, &[u8])], deflate: bool) -> Vec<u8> {
        let mut file = Vec::new();
        let mut writer = Writer::new(&mut file);
        for (name, content) in members {
            writer.add(name, &[content], deflate).unwrap();
        }
        writer.finish().unwrap();
        file
    }

    #[test]
    fn members_come_back() {
        for deflate in [false, true] {
            let long = vec![7u8; 100_000];
            let all: [(&str, &[u8]); 3] = [("a", b"abc"), ("b/c", b""), ("d", &long)];
            let file = container(&all, deflate);
            let found = members(&file).unwrap();
            assert_eq!(found.len(), 3);
            for (member, (name, bytes)) in found.iter().zip(all) {
                assert_eq!(member.name, name);
                assert_eq!(content(&file, member).unwrap(), bytes);
                assert_eq!(
                    head(&file, member, 2).unwrap(),
                    &bytes[..bytes.len().min(2)]
                );
            }
        }
        assert_eq!(members(&container(&[], false)).unwrap(), []);
    }

    /// A file cut anywhere, and one with any byte changed, gives an answer or an error.
    #[test]
    fn damage_does_no_harm() {
        let file = container(&[("a", b"abcabcabc"), ("b", b"xyz")], true);
        for n in 0..file.len() {
            assert!(members(&file[..n]).is_err());
        }
        for k in 0..file.len() {
            for change in [1, 0x80, 0xff] {
                let mut other = file.clone();
                other[k] ^= change;
                for member in members(&other).unwrap_or_default() {
                    let _ = content(&other, &member);
                }
            }
        }
    }

    #[test]
    fn numbers_beyond_32_bits() {
        let mut numbers = [u32::MAX as u64, 5, u32::MAX as u64];
        let field = wide_field(&[(u32::MAX, 1 << 40), (5, 5), (u32::MAX, 1 << 41)], false);
        let [a, b, c] = &mut numbers;
        wide_sizes(&field, [a, b, c]).unwrap();
        assert_eq!(numbers, [1 << 40, 5, 1 << 41]);
    }
}
